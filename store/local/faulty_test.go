package local

import (
	"sync"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// faultyFS is a file system that fails on demand.
type faultyFS struct {
	vfs.FS

	mu     sync.Mutex
	strike func(op, name string) error // guarded by mu; nil fails nothing
	struck []string                    // names of the files that were hit; guarded by mu
}

// arm makes the operations fail for which strike returns an error. Operations are
// create, write, sync, rename, remove and link.
func (f *faultyFS) arm(strike func(op, name string) error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.strike = strike
}

// hits lists the files that were hit so far.
func (f *faultyFS) hits() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return append([]string(nil), f.struck...)
}

func (f *faultyFS) fault(op, name string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.strike == nil {
		return nil
	}
	err := f.strike(op, name)
	if err != nil {
		f.struck = append(f.struck, name)
	}
	return err
}

func (f *faultyFS) wrap(file vfs.File, err error, name string) (vfs.File, error) {
	if err != nil {
		return nil, err
	}
	return &faultyFile{File: file, fs: f, name: name}, nil
}

func (f *faultyFS) Create(name string, c vfs.DiskWriteCategory) (vfs.File, error) {
	if err := f.fault("create", name); err != nil {
		return nil, err
	}
	file, err := f.FS.Create(name, c)
	return f.wrap(file, err, name)
}

func (f *faultyFS) ReuseForWrite(old, name string, c vfs.DiskWriteCategory) (vfs.File, error) {
	if err := f.fault("create", name); err != nil {
		return nil, err
	}
	file, err := f.FS.ReuseForWrite(old, name, c)
	return f.wrap(file, err, name)
}

func (f *faultyFS) OpenReadWrite(name string, c vfs.DiskWriteCategory, opts ...vfs.OpenOption) (vfs.File, error) {
	if err := f.fault("create", name); err != nil {
		return nil, err
	}
	file, err := f.FS.OpenReadWrite(name, c, opts...)
	return f.wrap(file, err, name)
}

func (f *faultyFS) OpenDir(name string) (vfs.File, error) {
	file, err := f.FS.OpenDir(name)
	return f.wrap(file, err, name)
}

func (f *faultyFS) Rename(old, name string) error {
	if err := f.fault("rename", name); err != nil {
		return err
	}
	return f.FS.Rename(old, name)
}

func (f *faultyFS) Remove(name string) error {
	if err := f.fault("remove", name); err != nil {
		return err
	}
	return f.FS.Remove(name)
}

func (f *faultyFS) Link(old, name string) error {
	if err := f.fault("link", name); err != nil {
		return err
	}
	return f.FS.Link(old, name)
}

func (f *faultyFS) Unwrap() vfs.FS { return f.FS }

type faultyFile struct {
	vfs.File
	fs   *faultyFS
	name string
}

// Write writes the first half of its input before it fails, as a disk does.
func (f *faultyFile) Write(p []byte) (int, error) {
	if err := f.fs.fault("write", f.name); err != nil {
		n, writeErr := f.File.Write(p[:len(p)/2])
		if writeErr != nil {
			err = writeErr
		}
		return n, err
	}
	return f.File.Write(p)
}

func (f *faultyFile) Sync() error {
	if err := f.fs.fault("sync", f.name); err != nil {
		return err
	}
	return f.File.Sync()
}

func (f *faultyFile) SyncData() error {
	if err := f.fs.fault("sync", f.name); err != nil {
		return err
	}
	return f.File.SyncData()
}

func (f *faultyFile) SyncTo(length int64) (bool, error) {
	if err := f.fs.fault("sync", f.name); err != nil {
		return false, err
	}
	return f.File.SyncTo(length)
}
