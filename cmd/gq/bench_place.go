package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/internal/bench"
	"github.com/gopherqueue/gq/internal/storeurl"
	"github.com/gopherqueue/gq/store"
	"github.com/gopherqueue/gq/store/local"
)

// benchPlace is where a benchmark creates its stores, and how to clean it up.
type benchPlace interface {
	bench.Place
	fmt.Stringer
	Close() error
}

// benchBeside is a place where a server can have its own store.
type benchBeside interface {
	// Beside returns the URL of that store.
	Beside() string
}

// openBenchPlace opens the place that a URL names; the zero URL is a temporary directory.
func openBenchPlace(u storeurl.URL, getenv func(string) string) (benchPlace, error) {
	switch u.Scheme {
	case "":
		dir, err := os.MkdirTemp(getenv("TMPDIR"), "gq-bench-")
		if err != nil {
			return nil, err
		}
		return &benchDirectory{dir: dir, leave: os.RemoveAll}, nil
	case "memory":
		return benchMemory{}, nil
	case "postgres", "postgresql":
		return &benchServer{url: u.String(), made: make(map[string]bool)}, nil
	default:
		return openBenchDirectory(u.Dir)
	}
}

// benchMemory makes stores in memory.
type benchMemory struct{}

func (benchMemory) Open(_ string, onCommit func([]byte)) (store.Store, error) {
	return local.OpenMemory(local.Options{OnCommit: onCommit})
}

func (benchMemory) Replay(commits [][]byte) (time.Duration, error) { return local.Replay("", commits) }
func (benchMemory) Remove(string) error                            { return nil }
func (benchMemory) Keeps() bool                                    { return false }
func (benchMemory) Close() error                                   { return nil }
func (benchMemory) String() string                                 { return "memory:" }
func (benchMemory) Beside() string                                 { return "memory:" }

// benchDirectory makes stores below a directory, and leaves it as it found it: empty, or
// not there.
type benchDirectory struct {
	dir   string
	leave func(dir string) error
}

// openBenchDirectory rejects a directory that is not empty: a benchmark must never touch
// a store in use.
func openBenchDirectory(dir string) (*benchDirectory, error) {
	refuse := func(problem string) error {
		return &gq.InvalidError{Faults: []gq.Fault{{Field: "store", Problem: fmt.Sprintf("%s %s", dir, problem)}}}
	}
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	entries, err := os.ReadDir(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		if err := os.MkdirAll(dir, 0o750); errors.Is(err, syscall.ENOTDIR) {
			return nil, refuse("lies below something that is not a directory")
		} else if err != nil {
			return nil, err
		}
		return &benchDirectory{dir: dir, leave: os.Remove}, nil
	case errors.Is(err, syscall.ENOTDIR):
		return nil, refuse("is not a directory")
	case err != nil:
		return nil, err
	}
	for _, entry := range entries {
		if entry.Name() != "lost+found" { // present on mounted file systems
			return nil, refuse("is not empty (it has " + entry.Name() + "); a benchmark needs an empty directory or one that does not exist")
		}
	}
	return &benchDirectory{dir: dir, leave: func(string) error { return nil }}, nil
}

const (
	benchFloor  = "floor"
	benchServed = "served"
)

func (d *benchDirectory) path(name string) string { return filepath.Join(d.dir, name) }

func (d *benchDirectory) Open(name string, onCommit func([]byte)) (store.Store, error) {
	return local.Open(d.path(name), local.Options{OnCommit: onCommit})
}

func (d *benchDirectory) Replay(commits [][]byte) (time.Duration, error) {
	elapsed, err := local.Replay(d.path(benchFloor), commits)
	return elapsed, errors.Join(err, d.Remove(benchFloor))
}

func (d *benchDirectory) Remove(name string) error { return os.RemoveAll(d.path(name)) }
func (d *benchDirectory) Keeps() bool              { return true }
func (d *benchDirectory) String() string           { return "file:" + d.dir }

func (d *benchDirectory) Beside() string { return "file:" + d.path(benchServed) }

func (d *benchDirectory) Close() error { return errors.Join(d.Remove(benchServed), d.leave(d.dir)) }
