package local

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"strconv"
	"strings"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/gopherqueue/gq"
)

// Pebble takes a broken record in the manifest, or near the end of the newest
// log, for the end of the file, since that is what a power cut leaves behind.
// But where a later record proves that the broken one had been synced, no power
// cut did this: going on would forget what was acknowledged. So these two files
// are read before Pebble does.
//
// Both are divided into blocks, and blocks into chunks: a checksum, the length
// of the payload, a type, in logs the number of the log and the offset up to
// which it had been synced, and the payload.
const (
	blockBytes      = 32 << 10
	chunkHeader     = 4 + 2 + 1
	logChunkHeader  = chunkHeader + 4 + 8
	chunkFull       = 1 // types of the manifest
	chunkFirst      = 2
	chunkLast       = 4
	logChunkFull    = 9 // types of a log
	logChunkLast    = 12
	manifestMarker  = "marker.manifest."
	newestLogSuffix = ".log"
)

// verify reports damage that Pebble would overlook.
func (s *Store) verify() error {
	names, err := s.disk.List(s.dir)
	if err != nil {
		return err
	}
	manifest, marked := "", uint64(0)
	log, newest := "", uint64(0)
	for _, name := range names {
		if rest, ok := strings.CutPrefix(name, manifestMarker); ok {
			number, target, _ := strings.Cut(rest, ".")
			if n, err := strconv.ParseUint(number, 10, 64); err == nil && n >= marked {
				manifest, marked = target, n
			}
		}
		if number, ok := strings.CutSuffix(name, newestLogSuffix); ok {
			if n, err := strconv.ParseUint(number, 10, 64); err == nil && n >= newest {
				log, newest = name, n
			}
		}
	}
	if manifest != "" {
		if err := s.verifyChunks(manifest, 0); err != nil {
			return err
		}
	}
	if log != "" {
		return s.verifyChunks(log, uint32(newest))
	}
	return nil
}

// verifyChunks reads one file; log is 0 for the manifest.
func (s *Store) verifyChunks(name string, log uint32) (err error) {
	f, err := s.disk.Open(s.disk.PathJoin(s.dir, name), vfs.SequentialReadsOption)
	if errors.Is(err, os.ErrNotExist) {
		return nil // Pebble will say so
	}
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	broken := int64(-1) // where the first broken chunk begins
	block := make([]byte, blockBytes)
	for start := int64(0); ; start += blockBytes {
		n, err := io.ReadFull(f, block)
		if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) {
			if errors.Is(err, io.EOF) {
				return nil
			}
			return err
		}
		// After the broken chunk the next one is searched for, in its block.
		search := false
		for at := 0; at+chunkHeader <= n; {
			c, ok := chunkAt(block[at:n], log)
			switch {
			case ok && broken >= 0 && c.proves(broken, log):
				return fmt.Errorf("%s is damaged at byte %d: %w", s.disk.PathJoin(s.dir, name), broken, gq.ErrCorrupt)
			case ok:
				at += c.size
			case broken < 0 && n-at < logChunkHeader && allZero(block[at:n]):
				at = n // the rest of a block is left empty where no chunk fits
			case broken < 0 || search:
				if broken < 0 {
					broken, search = start+int64(at), true
				}
				at++
			default:
				at = n
			}
		}
	}
}

// chunk is what matters of a chunk.
type chunk struct {
	kind   byte
	size   int
	synced int64
}

// proves reports whether a chunk shows that everything up to an offset had been
// synced before it was written. Each record of the manifest is synced before the
// next.
func (c chunk) proves(offset int64, log uint32) bool {
	if log != 0 {
		return c.synced > offset
	}
	return c.kind == chunkFull || c.kind == chunkFirst
}

// chunkAt reads the chunk at the beginning of b, if there is an intact one of
// the file.
func chunkAt(b []byte, log uint32) (c chunk, ok bool) {
	header, least, most := chunkHeader, byte(chunkFull), byte(chunkLast)
	if log != 0 {
		header, least, most = logChunkHeader, logChunkFull, logChunkLast
	}
	if len(b) < header || b[6] < least || b[6] > most {
		return c, false
	}
	c = chunk{kind: b[6], size: header + int(binary.LittleEndian.Uint16(b[4:]))}
	if log != 0 {
		if binary.LittleEndian.Uint32(b[7:]) != log {
			return c, false
		}
		c.synced = int64(binary.LittleEndian.Uint64(b[11:]))
	}
	return c, c.size <= len(b) && binary.LittleEndian.Uint32(b) == checksum(b[6:c.size])
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// checksum is Pebble's: CRC-32C, rotated, plus a constant.
func checksum(b []byte) uint32 {
	c := crc32.Checksum(b, castagnoli)
	return (c>>15 | c<<17) + 0xa282ead8
}

func allZero(b []byte) bool {
	for _, v := range b {
		if v != 0 {
			return false
		}
	}
	return true
}
