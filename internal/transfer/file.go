package transfer

import (
	"bytes"
	"compress/flate"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"hash/crc32"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/store"
)

// A backup is one line and then blocks:
//
//	gopherqueue backup 1
//	byte      type
//	fixed 8   block number, from 0
//	fixed 4   size of its content
//	fixed 4   size of its content before compression
//	          content, DEFLATE
//	fixed 4   CRC-32C of the block up to here
//
// The first block describes the source; the last one has the sums and the SHA-256 of
// everything before it. Both are JSON. The blocks between them hold items.
const (
	magicPrefix = "gopherqueue backup "
	magic       = magicPrefix + "1\n"

	typeHead  = 'h'
	typeItems = 'i'
	typeEnd   = 'e'

	blockHeader = 1 + 8 + 4 + 4
	maxBlock    = 1 << 30 // many times the size of a part
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// fileHead is the first block.
type fileHead struct {
	ID        string    `json:"id"` // of this backup
	CreatedAt time.Time `json:"created_at"`
	Origin    string    `json:"origin"`
	LastJob   uint64    `json:"last_job"`
	LastEvent uint64    `json:"last_event"`
	Gone      uint64    `json:"gone"`
	LastDoc   uint64    `json:"last_document"`
	Time      int64     `json:"time"` // Unix nanoseconds
	Jobs      int64     `json:"jobs"`
}

// fileEnd is the last block.
type fileEnd struct {
	SHA256 string `json:"sha256"`
	Sums   Sums   `json:"sums"`
}

// partial returns the file name of an incomplete backup.
func partial(path string) string { return path + ".partial" }

// Target is a backup being written. It replaces an unfinished one of an earlier run: a
// backup shows one moment, so it cannot be resumed.
type Target struct {
	path   string
	file   *os.File
	hash   hash.Hash
	blocks uint64
	sums   Sums
	sealed bool
}

// Create starts a backup. The file gets its name once it is complete; if the file exists
// already, the error is [gq.ErrConflict].
func Create(path string) (*Target, error) {
	if _, err := os.Lstat(path); err == nil {
		return nil, fmt.Errorf("%s exists already; choose another name or remove it: %w", path, gq.ErrConflict)
	}
	f, err := os.OpenFile(partial(path), os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return nil, err
	}
	return &Target{path: path, file: f, hash: sha256.New()}, nil
}

// Close closes the file, and removes it if it is unfinished.
func (t *Target) Close() error {
	err := t.file.Close()
	if t.path != "" {
		err = errors.Join(err, os.Remove(partial(t.path)))
	}
	return err
}

// Import implements [store.Importer].
func (t *Target) Import(_ context.Context, h store.Head) (store.Import, error) {
	if _, err := io.WriteString(io.MultiWriter(t.file, t.hash), magic); err != nil {
		return nil, err
	}
	return t, t.json(typeHead, fileHead{
		ID: rand.Text(), CreatedAt: time.Now().UTC(), Origin: hex.EncodeToString(h.Origin[:]), LastJob: h.LastJob,
		LastEvent: h.LastEvent, Gone: h.Gone, LastDoc: h.LastDoc, Time: h.Time.UnixNano(), Jobs: h.Jobs,
	})
}

// Mark implements [store.Import].
func (t *Target) Mark() []byte { return nil }

// Write implements [store.Import].
func (t *Target) Write(_ context.Context, items store.Items, _ []byte) error {
	t.sums.add(&items)
	return t.block(typeItems, encode(&items))
}

// Export implements [store.Exporter]: it completes the file and opens it for reading.
func (t *Target) Export(ctx context.Context) (store.Export, error) {
	if !t.sealed {
		if err := t.json(typeEnd, fileEnd{hex.EncodeToString(t.hash.Sum(nil)), t.sums}); err != nil {
			return nil, err
		}
		if err := t.file.Sync(); err != nil {
			return nil, err
		}
		t.sealed = true
	}
	f, err := OpenFile(partial(t.path))
	if err != nil {
		return nil, err
	}
	if err := f.Check(ctx, nil); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// Finish implements [store.Import]: it gives the file its final name.
func (t *Target) Finish(context.Context) error {
	if err := os.Rename(partial(t.path), t.path); err != nil {
		return err
	}
	dir, err := os.Open(filepath.Dir(t.path))
	if err != nil {
		return err
	}
	t.path = ""
	return errors.Join(dir.Sync(), dir.Close())
}

func (t *Target) json(typ byte, v any) error {
	raw, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return t.block(typ, raw)
}

func (t *Target) block(typ byte, raw []byte) error {
	var b bytes.Buffer
	b.Write(make([]byte, blockHeader))
	w, err := flate.NewWriter(&b, flate.BestSpeed)
	if err != nil {
		return err
	}
	_, err = w.Write(raw)
	if err = errors.Join(err, w.Close()); err != nil {
		return err
	}
	block := b.Bytes()
	size := len(block) - blockHeader
	if size > maxBlock || len(raw) > maxBlock {
		return fmt.Errorf("a block of %d bytes is more than %d: %w", len(raw), maxBlock, gq.ErrTooMany)
	}
	block[0] = typ
	binary.BigEndian.PutUint64(block[1:], t.blocks)
	binary.BigEndian.PutUint32(block[9:], uint32(size))
	binary.BigEndian.PutUint32(block[13:], uint32(len(raw)))
	block = binary.BigEndian.AppendUint32(block, crc32.Checksum(block, castagnoli))
	t.blocks++
	_, err = io.MultiWriter(t.file, t.hash).Write(block)
	return err
}

// File is a backup being read. Its cursors are offsets in the file.
type File struct {
	name string
	in   io.ReaderAt
	size int64
	file io.Closer // nil if nothing must be closed

	first int64 // offset of the items
	head  store.Head
	sums  Sums // set by Check
}

// OpenFile opens a backup and reads its first block.
func OpenFile(name string) (*File, error) {
	f, err := os.Open(name)
	if errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("%s: %w", name, gq.ErrNotFound)
	}
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = notBackup(name, "is not a file")
	}
	var b *File
	if err == nil {
		b, err = newFile(name, f, info.Size())
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	b.file = f
	return b, nil
}

func notBackup(name, problem string) error {
	return &gq.InvalidError{Faults: []gq.Fault{{Field: name, Problem: problem}}}
}

func newFile(name string, in io.ReaderAt, size int64) (*File, error) {
	f := &File{name: name, in: in, size: size}
	line := make([]byte, min(size, int64(len(magic))))
	if _, err := in.ReadAt(line, 0); err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	if !bytes.HasPrefix(line, []byte(magicPrefix)) {
		return nil, notBackup(name, "is not a backup of GopherQueue")
	}
	if string(line) != magic {
		return nil, notBackup(name, fmt.Sprintf("is a backup of another format, %q, and this program knows format 1", line[len(magicPrefix):]))
	}
	b, err := f.block(int64(len(magic)))
	if err != nil {
		return nil, err
	}
	var head fileHead
	if b.typ != typeHead || b.number != 0 {
		return nil, f.broken(b, "is not the head that comes first")
	}
	if err := json.Unmarshal(b.raw, &head); err != nil {
		return nil, f.broken(b, err.Error())
	}
	f.first = b.end
	f.head = store.Head{
		Origin:  sha256.Sum256(b.raw),
		LastJob: head.LastJob, LastEvent: head.LastEvent, Gone: head.Gone, LastDoc: head.LastDoc,
		Time: time.Unix(0, head.Time).UTC(), Jobs: head.Jobs,
	}
	if head.Gone > head.LastEvent {
		return nil, f.broken(b, "has numbers that cannot be")
	}
	return f, nil
}

// block is a block that was read, or a part of it.
type block struct {
	typ     byte
	number  uint64
	at, end int64
	raw     []byte
	whole   []byte // as it is in the file
}

// broken returns an error with the position of a block.
func (f *File) broken(b block, problem string) error {
	return fmt.Errorf("%s: block %d at byte %d %s: %w", f.name, b.number, b.at, problem, gq.ErrCorrupt)
}

// frame reads a block without decompressing it, and verifies its checksum.
func (f *File) frame(at int64) (block, error) {
	b := block{at: at}
	if at >= f.size {
		return b, fmt.Errorf("%s ends at byte %d without its last block: it was cut off: %w", f.name, f.size, gq.ErrCorrupt)
	}
	var header [blockHeader]byte
	if n, err := f.in.ReadAt(header[:], at); n < len(header) {
		return b, f.cut(b, err)
	}
	b.typ, b.number = header[0], binary.BigEndian.Uint64(header[1:])
	size, raw := binary.BigEndian.Uint32(header[9:]), binary.BigEndian.Uint32(header[13:])
	if size > maxBlock || raw > maxBlock {
		return b, f.broken(b, "has a size that cannot be")
	}
	b.end = at + blockHeader + int64(size) + 4
	if b.end > f.size {
		return b, f.cut(b, io.EOF)
	}
	b.whole = make([]byte, b.end-at)
	if _, err := f.in.ReadAt(b.whole, at); err != nil && !errors.Is(err, io.EOF) {
		return b, fmt.Errorf("%s: block %d at byte %d: %w", f.name, b.number, at, err)
	}
	body := b.whole[:len(b.whole)-4]
	if sum := binary.BigEndian.Uint32(b.whole[len(body):]); sum != crc32.Checksum(body, castagnoli) {
		return b, f.broken(b, "has another checksum than it should")
	}
	return b, nil
}

func (f *File) cut(b block, err error) error {
	if !errors.Is(err, io.EOF) {
		return fmt.Errorf("%s: byte %d: %w", f.name, b.at, err)
	}
	return fmt.Errorf("%s ends at byte %d, within the block that begins at byte %d: it was cut off: %w", f.name, f.size, b.at, gq.ErrCorrupt)
}

// block reads and decompresses a block.
func (f *File) block(at int64) (block, error) {
	b, err := f.frame(at)
	if err != nil {
		return b, err
	}
	want := int64(binary.BigEndian.Uint32(b.whole[13:]))
	var raw bytes.Buffer
	n, err := io.Copy(&raw, io.LimitReader(flate.NewReader(bytes.NewReader(b.whole[blockHeader:len(b.whole)-4])), want+1))
	if err != nil || n != want {
		return b, f.broken(b, fmt.Sprintf("has %d bytes of content where it should have %d", n, want))
	}
	b.raw = raw.Bytes()
	return b, nil
}

// Check reads the whole file and verifies every checksum. It calls done with the number
// of bytes read so far.
func (f *File) Check(ctx context.Context, done func(read, size int64)) error {
	whole := sha256.New()
	line := make([]byte, f.first)
	if _, err := f.in.ReadAt(line, 0); err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	whole.Write(line)
	for at, number := f.first, uint64(1); ; number++ {
		if err := ctx.Err(); err != nil {
			return context.Cause(ctx)
		}
		b, err := f.frame(at)
		if err != nil {
			return err
		}
		if b.number != number {
			return f.broken(b, fmt.Sprintf("stands where block %d should be", number))
		}
		if done != nil {
			done(b.end, f.size)
		}
		switch {
		case b.typ == typeItems:
			whole.Write(b.whole)
			at = b.end
		case b.typ != typeEnd:
			return f.broken(b, fmt.Sprintf("is of type %q, which is not known", b.typ))
		case b.end != f.size:
			return fmt.Errorf("%s has %d bytes after its last block: %w", f.name, f.size-b.end, gq.ErrCorrupt)
		default:
			return f.end(at, whole.Sum(nil))
		}
	}
}

// end reads the last block.
func (f *File) end(at int64, whole []byte) error {
	b, err := f.block(at)
	if err != nil {
		return err
	}
	var end fileEnd
	if err := json.Unmarshal(b.raw, &end); err != nil {
		return f.broken(b, err.Error())
	}
	if end.SHA256 != hex.EncodeToString(whole) {
		return fmt.Errorf("%s has SHA-256 %x before its last block, which says %.64s: %w", f.name, whole, end.SHA256, gq.ErrCorrupt)
	}
	f.sums = end.Sums
	return nil
}

// Head implements [store.Export]. The origin is the file itself.
func (f *File) Head() store.Head { return f.head }

// Sums returns the sums of the backup's contents; zero before Check.
func (f *File) Sums() Sums { return f.sums }

// Size returns the size of the file in bytes.
func (f *File) Size() int64 { return f.size }

// Read implements [store.Export], block by block.
func (f *File) Read(_ context.Context, cursor string, _ int) (items store.Items, next string, err error) {
	at := f.first
	if cursor != "" {
		if at, err = strconv.ParseInt(cursor, 10, 64); err != nil || at < f.first {
			return items, "", &gq.InvalidError{Faults: []gq.Fault{{Field: "cursor", Problem: "is not a place in the file"}}}
		}
	}
	b, err := f.block(at)
	if err != nil {
		return items, "", err
	}
	switch b.typ {
	case typeEnd:
		return items, "", nil
	case typeItems:
		if items, err = decode(b.raw); err != nil {
			return items, "", f.broken(b, "cannot be read: "+err.Error())
		}
		return items, strconv.FormatInt(b.end, 10), nil
	}
	return items, "", f.broken(b, fmt.Sprintf("is of type %q, which is not known", b.typ))
}

// Close implements [store.Export].
func (f *File) Close() error {
	if f.file == nil {
		return nil
	}
	return f.file.Close()
}
