package local

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/gopherqueue/gq"
)

// neededLogs lists the logs that Pebble would read if it were opened now: those in the
// directory or named in others whose data is not in tables yet. Only the manifest says
// which. So neededLogs opens the database read-only on a file system where all these
// logs exist but are empty, and notes which of them Pebble opens.
func (s *Store) neededLogs(lock *pebble.Lock, others []string) (needed []string, err error) {
	asked := &inquiry{FS: s.disk.FS, others: others, empty: vfs.NewMem()}
	cache := pebble.NewCache(1 << 20)
	defer cache.Unref()
	options := databaseOptions(asked, cache)
	options.Lock, options.Logger = lock, quiet{s}
	options.ReadOnly, options.ErrorIfNotExists = true, true
	db, err := s.openDatabase(options)
	if errors.Is(err, gq.ErrCorrupt) {
		err = fmt.Errorf("%w; nothing was changed", err)
	}
	if err != nil {
		return nil, err
	}
	if err := db.Close(); err != nil {
		return nil, err
	}
	slices.Sort(asked.opened)
	return slices.Compact(asked.opened), nil
}

// inquiry is a read-only file system whose logs are empty.
type inquiry struct {
	vfs.FS
	others []string // additional logs, which need not exist
	opened []string // logs that were opened
	empty  *vfs.MemFS
}

var errInquiry = errors.New("the database is opened for reading only")

func (q *inquiry) List(dir string) ([]string, error) {
	names, err := q.FS.List(dir)
	if err != nil {
		return nil, err
	}
	for _, name := range q.others {
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names, nil
}

// log makes an empty log in memory.
func (q *inquiry) log(name string) (path string, ok bool, err error) {
	base := q.PathBase(name)
	if _, ok := logNumber(base); !ok {
		return "", false, nil
	}
	f, err := q.empty.Create(base, vfs.WriteCategoryUnspecified)
	if err != nil {
		return "", true, err
	}
	return base, true, f.Close()
}

func (q *inquiry) Open(name string, opts ...vfs.OpenOption) (vfs.File, error) {
	path, ok, err := q.log(name)
	if err != nil {
		return nil, err
	}
	if ok {
		q.opened = append(q.opened, path)
		return q.empty.Open(path, opts...)
	}
	return q.FS.Open(name, opts...)
}

func (q *inquiry) Stat(name string) (vfs.FileInfo, error) {
	path, ok, err := q.log(name)
	if err != nil {
		return nil, err
	}
	if ok {
		return q.empty.Stat(path)
	}
	return q.FS.Stat(name)
}

func (q *inquiry) Unwrap() vfs.FS { return q.FS }

func (q *inquiry) Create(string, vfs.DiskWriteCategory) (vfs.File, error) { return nil, errInquiry }

func (q *inquiry) ReuseForWrite(string, string, vfs.DiskWriteCategory) (vfs.File, error) {
	return nil, errInquiry
}

func (q *inquiry) OpenReadWrite(string, vfs.DiskWriteCategory, ...vfs.OpenOption) (vfs.File, error) {
	return nil, errInquiry
}

func (q *inquiry) Link(string, string) error          { return errInquiry }
func (q *inquiry) Remove(string) error                { return errInquiry }
func (q *inquiry) RemoveAll(string) error             { return errInquiry }
func (q *inquiry) Rename(string, string) error        { return errInquiry }
func (q *inquiry) MkdirAll(string, os.FileMode) error { return nil }
func (q *inquiry) Lock(string) (io.Closer, error)     { return nil, errInquiry }
