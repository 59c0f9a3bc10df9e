package local

import (
	"errors"
	"fmt"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
)

// Replay writes recorded commits to an empty database with the store's settings,
// one after the other, each with a sync, and nothing else. It is the floor that
// a store made of this database can be measured against. An empty dir means
// memory.
func Replay(dir string, commits [][]byte) (elapsed time.Duration, err error) {
	fs := vfs.Default
	if dir == "" {
		dir, fs = "floor", vfs.NewMem()
	}
	cache := newCache(64)
	defer cache.Unref()
	options := databaseOptions(fs, cache)
	options.Logger = silent{}
	options.ErrorIfExists = true
	db, err := pebble.Open(dir, options)
	if err != nil {
		return 0, fmt.Errorf("replay in %s: %w", dir, err)
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	start := time.Now()
	for _, repr := range commits {
		batch := db.NewBatch()
		if err := batch.SetRepr(append([]byte(nil), repr...)); err != nil {
			return 0, fmt.Errorf("replay: %w", err)
		}
		if err := errors.Join(batch.Commit(pebble.Sync), batch.Close()); err != nil {
			return 0, fmt.Errorf("replay: %w", err)
		}
	}
	return time.Since(start), nil
}

type silent struct{}

func (silent) Infof(string, ...any)  {}
func (silent) Errorf(string, ...any) {}
func (silent) Fatalf(format string, args ...any) {
	panic(fmt.Sprintf(format, args...))
}
