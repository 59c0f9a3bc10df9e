package local

import (
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/gopherqueue/gq"
)

// guard stands between Pebble and the file system. Pebble ends the process when it
// cannot write its log or manifest, which a library must not do to its host. So the
// guard hides such an error from Pebble and freezes the file system: from then on
// nothing reaches the disk, as after a power cut, and Pebble's writes go nowhere. The
// store is marked failed before Pebble's write "succeeds", so no caller gets an
// acknowledgement.
//
// It also watches the free space, so that the disk never fills up completely.
type guard struct {
	vfs.FS
	dir     string
	reserve uint64
	fail    func(error)
	frozen  atomic.Bool
	limbo   vfs.FS      // files created after the freeze
	free    uint64      // bytes available when last measured; owned by the writer
	watches atomic.Bool // recovery is over: tables must leave room for the log
	syncs   atomic.Uint64
	ledger  *ledger // nil records nothing
}

const defaultReserve = 384 << 20

func newGuard(fs vfs.FS, dir string, reserve int64, fail func(error)) *guard {
	return &guard{FS: fs, dir: dir, reserve: uint64(max(reserve, 0)), fail: fail, limbo: vfs.NewMem(), free: math.MaxUint64}
}

// purpose is what a write is for; its value divides the reserve into the space that
// must stay free. Jobs are refused first, so that accepted ones can still be settled.
// Tables repeat the log's content and can wait; they never take space that the log
// needs.
type purpose uint64

const (
	forJobs     purpose = 1 // the whole reserve must be free
	forTables   purpose = 8
	forChanges  purpose = 32
	forCleaning purpose = 128 // writes that will free space
)

// survey sets the default reserve, which on a small disk is a tenth of it.
func (g *guard) survey() {
	if usage, err := g.GetDiskUsage(g.dir); err == nil && g.reserve == 0 {
		g.reserve = min(defaultReserve, usage.TotalBytes/10)
	}
}

// memTable returns the size limit of a memtable: flushing all of them must fit into the
// reserve.
func (g *guard) memTable() uint64 {
	if g.reserve == 0 {
		return memTableBytes
	}
	return min(memTableBytes, max(g.reserve/(memTables+2), 256<<10))
}

// measure reads the free space.
func (g *guard) measure() {
	if usage, err := g.GetDiskUsage(g.dir); err == nil { // a file system in memory has no answer
		g.free = usage.AvailBytes
	}
}

// room returns an error if the disk has no room for a write.
func (g *guard) room(p purpose, bytes int) error {
	if need := g.reserve / uint64(p); g.free < need+uint64(bytes) {
		return fmt.Errorf("%s has %s free, and %s are kept in reserve; free some space: %w",
			g.dir, sizeText(g.free), sizeText(need), gq.ErrDiskFull)
	}
	return nil
}

// available returns the bytes that are free now. A file system in memory does not know.
func (g *guard) available() (free uint64, known bool) {
	usage, err := g.GetDiskUsage(g.dir)
	if err != nil {
		return math.MaxUint64, false
	}
	return usage.AvailBytes, true
}

// short reports whether the disk has no room for new jobs.
func (g *guard) short() bool {
	usage, err := g.GetDiskUsage(g.dir)
	return err == nil && usage.AvailBytes < g.reserve
}

// ample reports whether the disk is far from being short.
func (g *guard) ample() bool {
	usage, err := g.GetDiskUsage(g.dir)
	return err != nil || usage.AvailBytes >= 2*g.reserve
}

// crowds reports whether so many more bytes of a table would take space that the log
// may need.
func (g *guard) crowds(name string, bytes uint64) bool {
	if !g.watches.Load() || g.reserve == 0 || !strings.HasSuffix(name, ".sst") {
		return false
	}
	usage, err := g.GetDiskUsage(g.dir)
	return err == nil && usage.AvailBytes < g.reserve/uint64(forTables)+bytes
}

// freeze ends all writing. It fails the store first: when a write is swallowed, the
// store must already have failed.
func (g *guard) freeze(op, name string, err error) {
	g.fail(fmt.Errorf("%s %s: %w", op, name, err))
	g.frozen.Store(true)
}

// mayPass reports whether an error can go away by itself. Pebble still has in its log
// what it could not write to a table, and retries.
func mayPass(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) ||
		errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE)
}

// vital reports whether Pebble ends the process if the file cannot be written.
func vital(name string) bool {
	base := filepath.Base(name)
	return strings.HasSuffix(base, ".log") || strings.HasPrefix(base, "MANIFEST") || strings.HasPrefix(base, "marker")
}

func (g *guard) inLimbo(name string, category vfs.DiskWriteCategory) (vfs.File, error) {
	if err := g.limbo.MkdirAll(g.PathDir(name), 0o755); err != nil {
		return nil, err
	}
	return g.limbo.Create(name, category)
}

// opened wraps a file that was opened for writing, or hides the error from Pebble.
func (g *guard) opened(f vfs.File, err error, name string, category vfs.DiskWriteCategory) (vfs.File, error) {
	if err != nil && mayPass(err) && !vital(name) {
		return nil, g.slow(err)
	}
	if err != nil {
		g.freeze("create", name, err)
		return g.inLimbo(name, category)
	}
	return &guarded{File: f, g: g, name: name}, nil
}

func (g *guard) Create(name string, category vfs.DiskWriteCategory) (vfs.File, error) {
	if g.aside(name) {
		return g.FS.Create(name, category)
	}
	if g.frozen.Load() {
		return g.inLimbo(name, category)
	}
	if g.crowds(name, g.reserve/uint64(forTables)) { // too little space even to begin
		return nil, g.slow(syscall.ENOSPC)
	}
	if vital(name) {
		g.ledger.sync() // the log before this one has been closed
	}
	f, err := g.FS.Create(name, category)
	return g.opened(f, err, name, category)
}

func (g *guard) ReuseForWrite(oldname, newname string, category vfs.DiskWriteCategory) (vfs.File, error) {
	if g.frozen.Load() {
		return g.inLimbo(newname, category)
	}
	g.ledger.gone(oldname)
	f, err := g.FS.ReuseForWrite(oldname, newname, category)
	return g.opened(f, err, newname, category)
}

func (g *guard) OpenReadWrite(name string, category vfs.DiskWriteCategory, opts ...vfs.OpenOption) (vfs.File, error) {
	if g.frozen.Load() {
		return g.inLimbo(name, category)
	}
	f, err := g.FS.OpenReadWrite(name, category, opts...)
	return g.opened(f, err, name, category)
}

func (g *guard) Open(name string, opts ...vfs.OpenOption) (vfs.File, error) {
	if g.frozen.Load() {
		if f, err := g.limbo.Open(name, opts...); err == nil {
			return f, nil
		}
	}
	return g.FS.Open(name, opts...)
}

func (g *guard) OpenDir(name string) (vfs.File, error) {
	f, err := g.FS.OpenDir(name)
	if err != nil || g.aside(name) {
		return f, err
	}
	return &guarded{File: f, g: g, name: name}, nil
}

// alter changes a directory. If that fails for a vital file, it freezes.
func (g *guard) alter(op, name string, change func() error) error {
	if g.aside(name) {
		return change()
	}
	if g.frozen.Load() {
		return nil
	}
	err := change()
	if err == nil || errors.Is(err, os.ErrNotExist) || errors.Is(err, os.ErrExist) || !vital(name) {
		return err
	}
	g.freeze(op, name, err)
	return nil
}

func (g *guard) Remove(name string) error {
	return g.alter("remove", name, func() error {
		if !g.aside(name) {
			g.ledger.gone(name)
		}
		return g.FS.Remove(name)
	})
}

func (g *guard) RemoveAll(name string) error {
	return g.alter("remove", name, func() error { return g.FS.RemoveAll(name) })
}

func (g *guard) Link(oldname, newname string) error {
	return g.alter("link", newname, func() error { return g.FS.Link(oldname, newname) })
}

func (g *guard) Rename(oldname, newname string) error {
	return g.alter("rename", newname, func() error { return g.FS.Rename(oldname, newname) })
}

func (g *guard) Unwrap() vfs.FS { return g.FS }

// slow delays errors: Pebble retries a failed flush at once and would spin on a full
// disk.
func (g *guard) slow(err error) error {
	if mayPass(err) {
		time.Sleep(20 * time.Millisecond) //nolint:forbidigo // Pebble retries at once; there is nothing to wait for
	}
	return err
}

// guarded is a file that is written through the guard.
type guarded struct {
	vfs.File
	g       *guard
	name    string
	written atomic.Int64 // bytes
}

// Fd hides the descriptor: nothing may bypass the guard.
func (f *guarded) Fd() uintptr { return vfs.InvalidFd }

func (f *guarded) wrote(n, want int, err error) (int, error) {
	switch {
	case err == nil:
		return n, nil
	case mayPass(err) && !vital(f.name):
		return n, f.g.slow(err)
	default:
		f.g.freeze("write", f.name, err)
		return want, nil
	}
}

func (f *guarded) Write(p []byte) (int, error) {
	if f.g.frozen.Load() {
		return len(p), nil
	}
	if f.g.crowds(f.name, uint64(len(p))) {
		return 0, f.g.slow(syscall.ENOSPC)
	}
	n, err := f.File.Write(p)
	f.written.Add(int64(n))
	return f.wrote(n, len(p), err)
}

func (f *guarded) WriteAt(p []byte, off int64) (int, error) {
	if f.g.frozen.Load() {
		return len(p), nil
	}
	n, err := f.File.WriteAt(p, off)
	return f.wrote(n, len(p), err)
}

// synced freezes on every error: data of a failed sync may be lost even if the next
// sync succeeds.
func (f *guarded) synced(sync func() (all bool, err error)) error {
	if f.g.frozen.Load() {
		return nil
	}
	f.g.syncs.Add(1)
	written := f.written.Load()
	all, err := sync()
	if err != nil {
		f.g.freeze("sync", f.name, err)
	} else if all {
		f.g.ledger.synced(f.name, written)
	}
	return nil
}

func (f *guarded) Sync() error {
	return f.synced(func() (bool, error) { return true, f.File.Sync() })
}

func (f *guarded) SyncData() error {
	return f.synced(func() (bool, error) { return true, f.File.SyncData() })
}

func (f *guarded) SyncTo(length int64) (full bool, err error) {
	err = f.synced(func() (bool, error) {
		full, err = f.File.SyncTo(length)
		return full, err
	})
	return full, err
}

func (f *guarded) Preallocate(offset, length int64) error {
	if f.g.frozen.Load() {
		return nil
	}
	if err := f.File.Preallocate(offset, length); err != nil && !vital(f.name) {
		return f.g.slow(err)
	}
	return nil // preallocation is optional for the log
}
