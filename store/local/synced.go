package local

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/gopherqueue/gq"
)

// A log ends where its first broken record begins, since a crash may have torn it. So
// damage to an acknowledged record looks like the end of the log, unless something
// proves how far the log had been synced. Two things do.
//
// The file SYNCED has the length up to which each log and the manifest are known to be
// synced. The guard writes it after each sync and before callers get their answers, but
// does not sync it: the file survives a killed process. It is synced when the store has
// been idle for a second and before a log or manifest is removed.
//
// Each commit has a mark with the lengths that were known when it was written. After a
// power cut SYNCED may be old; the marks prove all commits but those in flight.
//
// Both remain true while the file they describe exists, and a missing file counts as
// lost only if Pebble would read it. So both may be old.
const syncedFile = "SYNCED"

// The file has two slots, so that one of them is always whole:
//
//	4   checksum of the rest
//	4   length of the rest
//	8   generation; the higher one counts
//	    for each file: byte length of its name, name, fixed 8 synced bytes
const (
	syncedSlot   = 4096
	syncedHeader = 4 + 4
)

// syncedRun begins the entry of the file that names the run of the store which wrote it, see
// [tableRun].
const syncedRun = "run:"

// evidence is how many bytes of each file are known to have been synced.
type evidence map[string]int64

// add notes that bytes of a file had been synced.
func (e evidence) add(name string, bytes int64) {
	if bytes > e[name] {
		e[name] = bytes
	}
}

func (e evidence) merge(other evidence) {
	for name, bytes := range other {
		e.add(name, bytes)
	}
}

// ledger writes the file SYNCED while the store is open. A nil ledger does nothing.
type ledger struct {
	fs   vfs.FS
	warn func(error)

	mu         sync.Mutex
	file       vfs.File  // guarded by mu; nil before open and after close or an error
	known      evidence  // guarded by mu
	logs       []openLog // the logs in known, ascending; guarded by mu
	generation uint64    // guarded by mu
	dirty      bool      // written since the last sync; guarded by mu
	scratch    []byte    // guarded by mu
}

type openLog struct {
	number uint64
	name   string
}

// open rewrites the file durably with what is known.
func (l *ledger) open(fs vfs.FS, dir string, known evidence) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.fs, l.known, l.logs = fs, evidence{}, nil
	for _, name := range slices.Sorted(maps.Keys(known)) {
		l.noteLocked(name, known[name])
	}
	name := fs.PathJoin(dir, syncedFile)
	f, err := fs.Create(name+".new", vfs.WriteCategoryUnspecified)
	if err != nil {
		return err
	}
	content := make([]byte, 2*syncedSlot)
	copy(content, l.encodeLocked())
	_, err = f.Write(content)
	if err := errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	if err := fs.Rename(name+".new", name); err != nil {
		return err
	}
	if err := syncDir(fs, dir); err != nil {
		return err
	}
	l.file, err = fs.OpenReadWrite(name, vfs.WriteCategoryUnspecified)
	return err
}

// close frees the file. Its content remains true.
func (l *ledger) close() {
	if l == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.file != nil {
		if err := errors.Join(l.file.Sync(), l.file.Close()); err != nil {
			l.warn(err)
		}
		l.file = nil
	}
}

// synced notes how much of a log or manifest is on disk.
func (l *ledger) synced(name string, bytes int64) {
	name = filepath.Base(name)
	if l == nil || !recorded(name) {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.noteLocked(name, bytes); l.file != nil {
		l.writeLocked()
	}
}

// gone forgets a file that is about to be removed or reused. The manifest records what
// replaced the file, so gone first makes durable how far the manifest was synced.
func (l *ledger) gone(name string) {
	name = filepath.Base(name)
	if l == nil || !recorded(name) {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.known, name)
	if number, ok := logNumber(name); ok {
		l.logs = slices.DeleteFunc(l.logs, func(o openLog) bool { return o.number == number })
	}
	if l.file != nil {
		l.writeLocked()
		l.syncLocked()
	}
}

// sync makes the file durable if it has changed.
func (l *ledger) sync() {
	if l == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.file != nil && l.dirty {
		l.syncLocked()
	}
}

// pending reports whether sync has anything to do.
func (l *ledger) pending() bool {
	if l == nil {
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.file != nil && l.dirty
}

func (l *ledger) noteLocked(name string, bytes int64) {
	if _, known := l.known[name]; !known {
		if number, ok := logNumber(name); ok {
			at, _ := slices.BinarySearchFunc(l.logs, number, func(o openLog, n uint64) int { return cmp.Compare(o.number, n) })
			l.logs = slices.Insert(l.logs, at, openLog{number, name})
		}
	}
	l.known.add(name, bytes)
	if _, known := l.known[name]; !known {
		l.known[name] = 0
	}
}

func (l *ledger) writeLocked() {
	slot := l.encodeLocked()
	_, err := l.file.WriteAt(slot, int64(l.generation%2)*syncedSlot)
	l.dirty = true
	l.doneLocked(err)
}

func (l *ledger) syncLocked() {
	l.dirty = false
	l.doneLocked(l.file.Sync())
}

// doneLocked stops writing the file after an error: its content remains true.
func (l *ledger) doneLocked(err error) {
	if err != nil && l.file != nil {
		l.warn(err)
		_ = l.file.Close()
		l.file = nil
	}
}

func (l *ledger) encodeLocked() []byte {
	l.generation++
	b := append(l.scratch[:0], make([]byte, syncedHeader)...)
	b = binary.LittleEndian.AppendUint64(b, l.generation)
	for name, bytes := range l.known {
		if len(b)+1+len(name)+8 > syncedSlot {
			break // there are never that many
		}
		b = append(append(b, byte(len(name))), name...)
		b = binary.LittleEndian.AppendUint64(b, uint64(bytes))
	}
	binary.LittleEndian.PutUint32(b[4:], uint32(len(b)-syncedHeader))
	binary.LittleEndian.PutUint32(b, crc32.Checksum(b[4:], castagnoli))
	l.scratch = b
	return b
}

// readSynced reads the file of a store that is not open. Without the file nothing is
// known.
func readSynced(fs vfs.FS, dir string) (evidence, error) {
	name := fs.PathJoin(dir, syncedFile)
	f, err := fs.Open(name)
	if errors.Is(err, os.ErrNotExist) {
		return evidence{}, nil
	}
	if err != nil {
		return nil, err
	}
	content, err := io.ReadAll(io.LimitReader(f, 2*syncedSlot))
	if err := errors.Join(err, f.Close()); err != nil {
		return nil, err
	}
	var newest evidence
	last := uint64(0)
	for at := 0; at < len(content); at += syncedSlot {
		if generation, e, ok := decodeSynced(content[at:min(at+syncedSlot, len(content))]); ok && generation > last {
			last, newest = generation, e
		}
	}
	if newest == nil {
		return nil, fmt.Errorf("%s cannot be read: %w", name, gq.ErrCorrupt)
	}
	return newest, nil
}

func decodeSynced(b []byte) (generation uint64, e evidence, ok bool) {
	if len(b) < syncedHeader+8 {
		return 0, nil, false
	}
	size := binary.LittleEndian.Uint32(b[4:])
	if size < 8 || int64(size) > int64(len(b)-syncedHeader) ||
		binary.LittleEndian.Uint32(b) != crc32.Checksum(b[4:syncedHeader+size], castagnoli) {
		return 0, nil, false
	}
	b = b[syncedHeader : syncedHeader+size]
	generation, b, e = binary.LittleEndian.Uint64(b), b[8:], evidence{}
	for len(b) > 0 {
		n := int(b[0])
		if len(b) < 1+n+8 {
			return 0, nil, false
		}
		e[string(b[1:1+n])] = int64(binary.LittleEndian.Uint64(b[1+n:]))
		b = b[1+n+8:]
	}
	return generation, e, true
}

// recorded reports whether a crash may tear the end of a database file.
func recorded(name string) bool {
	if strings.HasPrefix(name, "MANIFEST-") {
		return true
	}
	_, ok := logNumber(name)
	return ok
}

// logNumber returns the number in the name of a log.
func logNumber(name string) (uint64, bool) {
	digits, ok := strings.CutSuffix(name, newestLogSuffix)
	if !ok {
		return 0, false
	}
	n, err := strconv.ParseUint(digits, 10, 64)
	return n, err == nil
}

func logName(number uint64) string { return fmt.Sprintf("%06d%s", number, newestLogSuffix) }

// mark is the last entry of each commit. Only the log has it.
//
//	uvarint  number of the commit since the store was opened
//	uvarint  number of the last commit that had been acknowledged when it was written
//	uvarint  number of the newest log, synced bytes of it
//	uvarint  number of the log before, synced bytes of it
//	byte     length of the above
//	4        "gqm\x01"
type mark struct {
	number, acknowledged uint64
	logs                 [2]struct {
		number uint64
		synced int64
	}
}

const markMagic = "gqm\x01"

// mark sets m to what is known to be synced now.
func (l *ledger) mark(m *mark) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := range m.logs {
		if n := len(l.logs) - 1 - i; n >= 0 {
			m.logs[i].number = l.logs[n].number
			m.logs[i].synced = l.known[l.logs[n].name]
		}
	}
}

func (m *mark) append(b []byte) []byte {
	start := len(b)
	b = binary.AppendUvarint(b, m.number)
	b = binary.AppendUvarint(b, m.acknowledged)
	for _, l := range m.logs {
		b = binary.AppendUvarint(b, l.number)
		b = binary.AppendUvarint(b, uint64(l.synced))
	}
	b = append(b, byte(len(b)-start))
	return append(b, markMagic...)
}

// lastMark reads the mark at the end of a commit, or of its last chunk.
func lastMark(b []byte) (m mark, ok bool) {
	b, ok = cutSuffix(b, markMagic)
	if !ok || len(b) == 0 || len(b)-1 < int(b[len(b)-1]) {
		return m, false
	}
	body := b[len(b)-1-int(b[len(b)-1]) : len(b)-1]
	var fields [6]uint64
	for i := range fields {
		v, n := uvarint(body)
		if n == 0 {
			return m, false
		}
		fields[i], body = v, body[n:]
	}
	m.number, m.acknowledged = fields[0], fields[1]
	for i := range m.logs {
		m.logs[i].number, m.logs[i].synced = fields[2+2*i], int64(fields[3+2*i])
	}
	return m, len(body) == 0
}

func cutSuffix(b []byte, suffix string) ([]byte, bool) {
	if len(b) < len(suffix) || string(b[len(b)-len(suffix):]) != suffix {
		return b, false
	}
	return b[:len(b)-len(suffix)], true
}
