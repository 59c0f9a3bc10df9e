//go:build unix

package pgtest

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
)

// A test process that panics or is killed cannot remove its directory. While it lives
// it holds a lock on a file there; the next process that starts a server removes the
// directories without a locked file.

const lockName = "lock"

// hold marks a new directory as in use until the file is closed or the process ends.
// The file gets its name only after it is locked.
func hold(dir string) (*os.File, error) {
	name := filepath.Join(dir, lockName)
	f, err := os.Create(name + ".new")
	if err != nil {
		return nil, err
	}
	err = lock(f)
	if err == nil {
		err = os.Rename(f.Name(), name)
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

func lock(f *os.File) error { return syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) }

// removeStale removes directories whose process has ended.
func removeStale(parent string) {
	found, _ := filepath.Glob(filepath.Join(parent, directoryPrefix+"*", lockName)) // the pattern is valid
	for _, name := range found {
		f, err := os.Open(name)
		if err != nil {
			continue
		}
		if lock(f) == nil {
			_ = os.RemoveAll(filepath.Dir(name)) // it may be another user's
		}
		_ = f.Close()
	}
}
