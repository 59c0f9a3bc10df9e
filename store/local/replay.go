package local

import (
	"errors"
	"fmt"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/batchrepr"
	"github.com/cockroachdb/pebble/v2/vfs"
)

// Replay writes recorded commits to an empty database with the store's settings: the
// same batches of keys and values, one after the other, each synced. It is the lower
// bound for a store on this database. An empty dir means memory.
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
		if err := rewrite(db, repr); err != nil {
			return 0, fmt.Errorf("replay: %w", err)
		}
	}
	return time.Since(start), nil
}

// rewrite builds and commits one batch.
func rewrite(db *pebble.DB, repr []byte) error {
	batch := db.NewBatch()
	for r := batchrepr.Read(repr); ; {
		kind, key, value, ok, err := r.Next()
		if err != nil {
			return err
		}
		if !ok {
			break
		}
		switch kind {
		case pebble.InternalKeyKindSet:
			err = batch.Set(key, value, nil)
		case pebble.InternalKeyKindDelete:
			err = batch.Delete(key, nil)
		case pebble.InternalKeyKindRangeDelete:
			err = batch.DeleteRange(key, value, nil)
		default:
			err = fmt.Errorf("unexpected record of kind %d", kind)
		}
		if err != nil {
			return err
		}
	}
	return errors.Join(batch.Commit(pebble.Sync), batch.Close())
}

type silent struct{}

func (silent) Infof(string, ...any)  {}
func (silent) Errorf(string, ...any) {}
func (silent) Fatalf(format string, args ...any) {
	panic(fmt.Sprintf(format, args...))
}
