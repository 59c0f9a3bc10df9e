package local

import (
	"sync"
	"syscall"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// quotaFS is a disk of limited size with one directory.
type quotaFS struct {
	vfs.FS
	dir string

	freed chan struct{} // receives a value after a file was removed, without blocking

	mu      sync.Mutex
	size    int64 // guarded by mu
	refused int   // operations refused for lack of space; guarded by mu
}

// resize changes the size of the disk.
func (q *quotaFS) resize(size int64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.size = size
}

// full returns how often a write found no space.
func (q *quotaFS) full() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.refused
}

func (q *quotaFS) used() (used int64) {
	names, err := q.List(q.dir)
	if err != nil {
		return 0
	}
	for _, name := range names {
		if info, err := q.Stat(q.PathJoin(q.dir, name)); err == nil {
			used += info.Size()
		}
	}
	return used
}

// grow reserves space for more bytes, or fails.
func (q *quotaFS) grow(bytes int64) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	if bytes > 0 && q.used()+bytes > q.size {
		q.refused++
		return syscall.ENOSPC
	}
	return nil
}

func (q *quotaFS) GetDiskUsage(string) (vfs.DiskUsage, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	used := q.used()
	return vfs.DiskUsage{
		AvailBytes: uint64(max(q.size-used, 0)), TotalBytes: uint64(q.size), UsedBytes: uint64(used),
	}, nil
}

func (q *quotaFS) wrap(f vfs.File, err error) (vfs.File, error) {
	if err != nil {
		return nil, err
	}
	return &quotaFile{File: f, q: q}, nil
}

func (q *quotaFS) Create(name string, c vfs.DiskWriteCategory) (vfs.File, error) {
	return q.wrap(q.FS.Create(name, c))
}

func (q *quotaFS) ReuseForWrite(old, name string, c vfs.DiskWriteCategory) (vfs.File, error) {
	return q.wrap(q.FS.ReuseForWrite(old, name, c))
}

func (q *quotaFS) OpenReadWrite(name string, c vfs.DiskWriteCategory, opts ...vfs.OpenOption) (vfs.File, error) {
	return q.wrap(q.FS.OpenReadWrite(name, c, opts...))
}

func (q *quotaFS) Remove(name string) error {
	err := q.FS.Remove(name)
	select {
	case q.freed <- struct{}{}:
	default:
	}
	return err
}

func (q *quotaFS) Unwrap() vfs.FS { return q.FS }

type quotaFile struct {
	vfs.File
	q   *quotaFS
	pos int64 // of the next Write
}

func (f *quotaFile) Write(p []byte) (int, error) {
	info, err := f.Stat()
	if err != nil {
		return 0, err
	}
	if err := f.q.grow(f.pos + int64(len(p)) - info.Size()); err != nil {
		return 0, err
	}
	n, err := f.File.Write(p)
	f.pos += int64(n)
	return n, err
}
