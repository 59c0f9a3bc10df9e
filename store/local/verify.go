package local

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/batchrepr"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/gopherqueue/gq"
)

// Pebble takes a broken record in the manifest, or near the end of the newest log, for
// the end of the file, since a power cut leaves that behind. But if something proves
// that the broken record had been synced (see synced.go), no power cut did this, and
// going on would lose acknowledged data. So the store reads these files before Pebble
// does.
//
// The files consist of blocks, and blocks of chunks. A chunk has a checksum, the length
// of the payload, a type, the payload and, in logs, the log's number and, except in a
// database's first log, an offset up to which it had been synced. A record is one
// chunk, or a first, any number of middle and a last one.
const (
	blockBytes      = 32 << 10
	chunkHeader     = 4 + 2 + 1
	logChunkHeader  = chunkHeader + 4
	longChunkHeader = logChunkHeader + 8
	chunkFull       = 1 // chunk types in the manifest
	chunkFirst      = 2
	chunkLast       = 4
	logChunkFull    = 5 // in a log; followed by first, middle, last
	longChunkFull   = 9 // in a log with offsets
	longChunkLast   = 12
	manifestMarker  = "marker.manifest."
	newestLogSuffix = ".log"
)

// damage is where a synced file can no longer be read.
type damage struct {
	path    string
	missing bool  // the whole file
	at      int64 // byte
	synced  int64 // bytes that are known to have been synced
	scan    *scan // nil for other files than logs
	later   []*scan
}

// known is what verify learned about the files of a store that was not closed.
type known struct {
	evidence evidence
	logs     []*scan // those that Pebble will read, oldest first
	damage   *damage // the first one, nil if there is none
}

// verify reads the manifest and the logs.
func (s *Store) verify(lock *pebble.Lock, acceptLoss bool) (*known, error) {
	evident, err := readSynced(s.disk.FS, s.dir)
	if errors.Is(err, gq.ErrCorrupt) && acceptLoss {
		s.log.Warn("what tells how far the logs were synced cannot be read: the store is opened without it", "dir", s.dir, "error", err)
		evident, err = evidence{}, nil
	}
	if err != nil {
		return nil, withAdvice(s.dir, err)
	}
	k := &known{evidence: evident}
	manifest, err := s.currentManifest()
	if err != nil || manifest == "" {
		return k, err
	}
	scanned, err := s.scan(manifest, 0)
	if err != nil {
		return nil, err
	}
	k.evidence.merge(scanned.evidence)
	if synced := k.evidence[manifest]; scanned.missing || scanned.broken < synced {
		// The tables of the database depend on the manifest, so it cannot be cut.
		return nil, (&damage{path: scanned.path, missing: scanned.missing, at: scanned.broken, synced: synced}).error()
	}
	if err := s.readLogs(lock, k); err != nil {
		return nil, err
	}
	k.judge()
	return k, nil
}

// currentManifest returns the name of the current manifest, empty if there is none.
func (s *Store) currentManifest() (manifest string, err error) {
	names, err := s.disk.List(s.dir)
	if err != nil {
		return "", err
	}
	marked := uint64(0)
	for _, name := range names {
		if rest, ok := strings.CutPrefix(name, manifestMarker); ok {
			number, target, _ := strings.Cut(rest, ".")
			if n, err := strconv.ParseUint(number, 10, 64); err == nil && n >= marked {
				manifest, marked = target, n
			}
		}
	}
	return manifest, nil
}

// readLogs reads the logs that Pebble will read, and notes those that are missing.
func (s *Store) readLogs(lock *pebble.Lock, k *known) error {
	read := map[string]bool{}
	for {
		var named []string
		for name := range k.evidence {
			if _, ok := logNumber(name); ok {
				named = append(named, name)
			}
		}
		needed, err := s.neededLogs(lock, named)
		if err != nil {
			return err
		}
		more := false
		for _, name := range needed {
			if read[name] {
				continue
			}
			number, _ := logNumber(name)
			scanned, err := s.scan(name, uint32(number))
			if err != nil {
				return err
			}
			scanned.number = number
			read[name], more = true, true
			k.logs = append(k.logs, scanned)
			k.evidence.merge(scanned.evidence) // it may name logs that are missing
		}
		if !more {
			break
		}
	}
	slices.SortFunc(k.logs, func(a, b *scan) int { return cmp.Compare(a.number, b.number) })
	return nil
}

// judge finds the first log that lacks data known to have been synced. Its last record
// may be synced in part: then it was not acknowledged.
func (k *known) judge() {
	for i, l := range k.logs {
		if synced := k.evidence[l.name]; l.broken < synced {
			k.damage = &damage{path: l.path, missing: l.missing, at: l.broken, synced: synced, scan: l, later: k.logs[i+1:]}
			return
		}
	}
}

// scan is the result of reading a log or a manifest.
type scan struct {
	name, path string
	number     uint64 // of the log
	missing    bool
	records    int64 // where the last record before the first broken chunk ends
	broken     int64 // where the first broken chunk begins, or the file ends
	end        int64 // where the last chunk that belongs to the file ends
	evidence   evidence

	lastNumber   uint64 // of the last commit before the first broken chunk
	highest      uint64 // highest number of any readable commit
	acknowledged uint64 // highest number that a commit names as acknowledged
	commits      int    // readable ones after the first broken chunk
	jobs         int    // submitted in those commits
}

// scan reads one file; log is 0 for the manifest.
func (s *Store) scan(name string, log uint32) (_ *scan, err error) {
	r := &scan{name: name, path: s.disk.PathJoin(s.dir, name), broken: -1, evidence: evidence{}}
	f, err := s.disk.FS.Open(r.path, vfs.SequentialReadsOption)
	if errors.Is(err, os.ErrNotExist) {
		r.missing, r.broken = true, 0
		return r, nil
	}
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	block := make([]byte, blockBytes)
	var record []byte // the current record's chunks so far
	whole := false    // record has all chunks so far
	start := int64(0)
	for ; ; start += blockBytes {
		n, err := io.ReadFull(f, block)
		if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) {
			if errors.Is(err, io.EOF) {
				break
			}
			return nil, err
		}
		search := false // search this block for the next chunk after the first broken one
		at := 0
		for at+chunkHeader <= n {
			c, ok := chunkAt(block[at:n], log)
			offset := start + int64(at)
			switch {
			case ok && c.end:
				if r.broken < 0 {
					r.broken = offset + int64(c.size)
					r.records, r.end = r.broken, r.broken
				}
				return r, nil
			case ok:
				at += c.size
				r.end = offset + int64(c.size)
				first, last := c.place()
				if first {
					record, whole = record[:0], true
				}
				record = append(record, c.payload...)
				r.proof(c, log, offset, first)
				if last {
					r.record(record, whole, log, r.end)
					whole = false
				}
			case r.broken < 0 && n-at < longChunkHeader && allZero(block[at:n]):
				at = n // the rest of a block is zero if no chunk fits
			case r.broken < 0 || search:
				if r.broken < 0 {
					r.broken, search, whole = offset, true, false
					r.end = max(r.end, offset+r.torn(block[at:n], log))
				}
				at++
			default:
				at, whole = n, false
			}
		}
		if n < blockBytes {
			start += int64(min(at, n)) // the rest is not a chunk
			break
		}
	}
	if r.broken < 0 {
		r.broken = start
	}
	return r, nil
}

// proof notes what a chunk proves about its file. Each record of the manifest is synced
// before the next is written.
func (r *scan) proof(c chunk, log uint32, offset int64, first bool) {
	switch {
	case log != 0:
		r.evidence.add(r.name, c.synced)
	case first:
		r.evidence.add(r.name, offset)
	}
}

// record notes a record that was read to its end, whole or in part.
func (r *scan) record(record []byte, whole bool, log uint32, end int64) {
	if r.broken < 0 {
		r.records = end
	}
	if log == 0 {
		return
	}
	if m, ok := lastMark(record); ok {
		r.highest = max(r.highest, m.number)
		r.acknowledged = max(r.acknowledged, m.acknowledged)
		if r.broken < 0 {
			r.lastNumber = m.number
		}
		for _, l := range m.logs {
			if l.number > 0 {
				r.evidence.add(logName(l.number), l.synced)
			}
		}
	}
	if r.broken >= 0 && whole {
		r.commits++
		r.jobs += newJobs(record)
	}
}

// newJobs counts the jobs submitted in a commit.
func newJobs(commit []byte) (n int) {
	for r := batchrepr.Read(commit); ; {
		kind, key, _, ok, err := r.Next()
		if !ok || err != nil {
			return n
		}
		if kind == pebble.InternalKeyKindSet && len(key) > 0 && key[0] == prefixSpec {
			n++
		}
	}
}

// torn returns the size of a broken chunk, 0 if it belongs to another file: a reused
// log has chunks of the old log after its own.
func (r *scan) torn(b []byte, log uint32) int64 {
	header, ok := headerOf(b, log)
	if log == 0 || !ok {
		return 0
	}
	return int64(min(len(b), header+int(binary.LittleEndian.Uint16(b[4:]))))
}

// chunk is a decoded chunk.
type chunk struct {
	kind    byte
	end     bool // marks the end of a log that was closed
	size    int
	synced  int64
	payload []byte
}

// place reports whether a chunk is the first and whether it is the last of its record.
func (c chunk) place() (first, last bool) {
	kind := (c.kind-chunkFull)%4 + chunkFull
	return kind == chunkFull || kind == chunkFirst, kind == chunkFull || kind == chunkLast
}

// headerOf returns the length of the chunk header at the start of b, if it belongs to
// the file.
func headerOf(b []byte, log uint32) (bytes int, ok bool) {
	if len(b) < chunkHeader {
		return 0, false
	}
	switch kind := b[6]; {
	case log == 0:
		return chunkHeader, kind >= chunkFull && kind <= chunkLast
	case kind < logChunkFull || kind > longChunkLast:
		return 0, false
	case kind < longChunkFull:
		bytes = logChunkHeader
	default:
		bytes = longChunkHeader
	}
	return bytes, len(b) >= bytes && binary.LittleEndian.Uint32(b[chunkHeader:]) == log
}

// chunkAt reads the chunk at the start of b, if it is intact and belongs to the file.
func chunkAt(b []byte, log uint32) (c chunk, ok bool) {
	if log != 0 && endOfLog(b, log) {
		return chunk{end: true, size: logChunkHeader}, true
	}
	header, ok := headerOf(b, log)
	if !ok {
		return c, false
	}
	c = chunk{kind: b[6], size: header + int(binary.LittleEndian.Uint16(b[4:]))}
	if c.size > len(b) || binary.LittleEndian.Uint32(b) != checksum(b[6:c.size]) {
		return c, false
	}
	if header == longChunkHeader {
		c.synced = int64(binary.LittleEndian.Uint64(b[logChunkHeader:]))
	}
	c.payload = b[header:c.size]
	return c, true
}

// endOfLog reports whether a log was closed here: an empty chunk of the next log.
func endOfLog(b []byte, log uint32) bool {
	return len(b) >= logChunkHeader && allZero(b[:6]) && b[6] == logChunkFull && binary.LittleEndian.Uint32(b[chunkHeader:]) == log+1
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

// error says what is damaged, what is lost and what to do.
func (d *damage) error() error {
	what := fmt.Sprintf("%s is damaged at byte %d", d.path, d.at)
	if d.missing {
		what = d.path + " is missing"
	}
	if d.scan == nil {
		return fmt.Errorf("%s, and %d bytes of it had been synced: %w; nothing was changed; %s", what, d.synced, gq.ErrCorrupt, remedy(filepath.Dir(d.path)))
	}
	return withAdvice(filepath.Dir(d.path), fmt.Errorf("%s, and %d bytes of it had been acknowledged; %s: %w", what, d.synced, d.loss(), gq.ErrCorrupt))
}

// withAdvice adds what to do about a log that cannot be read.
func withAdvice(dir string, err error) error {
	return fmt.Errorf("%w; nothing was changed; %s, or give up what cannot be read with gq serve --accept-loss (local.Options.AcceptLoss)", err, remedy(dir))
}

// loss describes what is lost if the log is cut at the damage.
func (d *damage) loss() string {
	commits, jobs, highest := 0, 0, uint64(0)
	for _, l := range append([]*scan{d.scan}, d.later...) {
		commits, jobs = commits+l.commits, jobs+l.jobs
		highest = max(highest, l.highest, l.acknowledged)
	}
	text := "every commit from there on would be lost"
	if first := d.scan.lastNumber; first > 0 && highest > first {
		text = fmt.Sprintf("at least %d commits from there on would be lost", highest-first)
	}
	return text + fmt.Sprintf(": what cannot be read, and %d commits with %d new jobs that can but depend on it", commits, jobs)
}
