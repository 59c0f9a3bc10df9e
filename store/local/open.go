// Package local is the embedded store: scheduling indexes in memory over a
// durable log-structured store (Pebble) on disk, in one directory, for one
// process.
//
// Memory holds what scheduling needs of live jobs, at most about 200 bytes each.
// Payloads, results, finished jobs and events are on disk only. Many callers
// share a commit, which is synced before any of them gets an answer;
// docs/storage.md describes the records.
//
// After a write error the store has failed: every call returns
// [gq.ErrStoreFailed] and nothing more is written. Reopening the directory finds
// everything that was acknowledged. The store never ends the process. When the disk
// is nearly full, new jobs are refused with [gq.ErrDiskFull] while running ones
// can still be settled; jobs are accepted again when there is space.
package local

import (
	crand "crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/store"
)

// Options configure the embedded store. The zero value is the default.
type Options struct {
	Config   store.Config
	Log      *slog.Logger // nil discards
	Reserve  int64        // bytes to keep free on the disk; below it no job is accepted; 0 is 384 MiB or a tenth of the disk, whichever is less
	CacheMiB int          // memory for blocks read from disk; 0 is 64

	// AcceptLoss opens a store even if acknowledged parts of its log are damaged. It
	// gives up the first unreadable commit and everything after it, reports the loss
	// to Log and keeps the damaged logs as lost-*.log. It has no effect on an
	// undamaged store.
	AcceptLoss bool

	// OnCommit, if set, is called with the bytes of every commit before it is
	// written. It is for measurements: see [Replay].
	OnCommit func(commit []byte)

	fs        vfs.FS // nil is the operating system's; tests set their own
	ephemeral bool   // nothing survives a close
	keptIDs   int    // see folds; 0 is the default, a negative number none; tests set it
}

// Store is an open embedded store.
type Store struct {
	dir       string
	config    store.Config
	log       *slog.Logger
	disk      *guard
	db        *pebble.DB
	cache     *pebble.Cache
	lock      *pebble.Lock
	run       string // see [tableRun]
	ephemeral bool

	intake   intake
	watchers watchers
	works    sync.Pool // of *work

	// Owned by the writer.
	tx        txn
	random    *rand.ChaCha8
	specs     specs
	opened    openedPool
	readAhead uint64 // the last job whose spec was read ahead
	foreign   onDisk // ids of jobs from elsewhere
	keys      onDisk
	retries   onDisk // keys for retries of the last hours
	documents documents
	onCommit  func([]byte)

	mu       sync.RWMutex
	table    *table // guarded by mu; only the writer changes it
	applied  uint64 // commits in the table; guarded by mu
	lastTime int64  // time of the newest commit; guarded by mu

	marks     marks      // of retention; owned by the writer
	garbage   garbage    // of retention and purges
	importing *importing // nil unless an import is unfinished; guarded by mu

	byName atomic.Pointer[[]*queue] // see queuesByName

	shortage shortage // of disk space

	commits   chan commit
	syncs     chan commit   // written to Pebble, not yet synced
	idle      chan struct{} // holds a token when nothing waits for the disk
	idleDue   atomic.Bool   // the committer is idle; the syncer sends the token when it is idle too
	spares    chan []*work  // empty slices to reuse
	durable   atomic.Uint64
	lastEvent atomic.Uint64 // the newest durable one
	dropped   atomic.Uint64 // events up to this one were dropped
	gone      atomic.Uint64 // events up to this one may be missing, since an import
	claimable atomic.Int64  // about how many jobs are claimable
	waiting   sync.Cond     // until durable grows or the store fails
	failed    atomic.Pointer[error]

	commitCount  atomic.Uint64
	written      uint64        // commits handed to Pebble; owned by the committer
	acknowledged atomic.Uint64 // the last durable one of them
	early        atomic.Bool   // set by a test: answer before the sync
	closing      sync.Once
	gate         sync.RWMutex // held while a read begins; not s.mu, on which readers would wait for a whole commit
	reads        sync.WaitGroup
	background   sync.WaitGroup
	stopped      chan struct{}
	closeErr     error
}

// Open opens the store in a directory, or creates one if the directory is empty or
// missing. If another process has it open, the error is [gq.ErrInUse]. If the
// directory holds something else or a newer format, the error is [gq.ErrFormat] and
// nothing is changed. If the store is damaged, the error is [gq.ErrCorrupt]; see
// [Options].
func Open(dir string, o Options) (*Store, error) {
	if dir == "" {
		return nil, &gq.InvalidError{Faults: []gq.Fault{{Field: "store", Problem: "the directory is missing: file:DIR"}}}
	}
	if o.fs == nil {
		abs, err := filepath.Abs(dir)
		if err != nil {
			return nil, fmt.Errorf("open %s: %w", dir, err)
		}
		dir, o.fs = resolve(abs), vfs.Default
	}
	return open(dir, o)
}

// resolve follows symbolic links, so that a directory has one name and one lock. It
// keeps the missing parts of a path.
func resolve(dir string) string {
	if target, err := filepath.EvalSymlinks(dir); err == nil {
		return target
	}
	parent, base := filepath.Split(filepath.Clean(dir))
	if base == "" || filepath.Clean(parent) == dir {
		return dir
	}
	return filepath.Join(resolve(filepath.Clean(parent)), base)
}

// OpenMemory opens an empty store that ends with the process: the same store on a file
// system in memory, meant for tests.
func OpenMemory(o Options) (*Store, error) {
	o.fs, o.ephemeral = vfs.NewMem(), true
	return open("memory", o)
}

func open(dir string, o Options) (_ *Store, err error) {
	config, err := o.Config.WithDefaults()
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", dir, err)
	}
	if config.Clock == nil {
		config.Clock = systemClock()
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	var seed [32]byte
	if _, err := crand.Read(seed[:]); err != nil {
		return nil, fmt.Errorf("open %s: %w", dir, err)
	}
	s := &Store{
		dir: dir, config: config, log: o.Log,
		ephemeral: o.ephemeral,
		table:     newTable(),
		random:    rand.NewChaCha8(seed),
		onCommit:  o.OnCommit,
		commits:   make(chan commit, 2),
		idle:      make(chan struct{}, 1),
		spares:    make(chan []*work, 2),
		stopped:   make(chan struct{}),
		intake:    intake{wake: make(chan struct{}, 1)},
		waiting:   sync.Cond{L: new(sync.Mutex)},
		syncs:     make(chan commit, 8),
	}
	s.works.New = func() any { return &work{done: make(chan struct{}, 1)} }
	s.disk = newGuard(o.fs, dir, o.Reserve, s.fail)
	if !o.ephemeral {
		s.disk.ledger = &ledger{warn: func(err error) {
			s.log.Warn("how far the log is synced can no longer be recorded", "dir", dir, "error", err)
		}}
	}
	if err := s.openFiles(o.CacheMiB, o.AcceptLoss); err != nil {
		return nil, err
	}
	s.table.readRandom = s.mustRandom
	if o.keptIDs != 0 {
		s.table.folds.most = o.keptIDs
	}
	if err := s.recover(); err != nil {
		closed := s.closeFiles(false)
		if damage, ok := errors.AsType[*unreadable](s.failure()); ok { // the other errors repeat it
			return nil, fmt.Errorf("open %s: %w", dir, damage)
		}
		if errors.Is(err, gq.ErrCorrupt) {
			err = fmt.Errorf("%w; %s", err, remedy(dir))
		}
		return nil, errors.Join(fmt.Errorf("open %s: %w", dir, err), closed)
	}
	s.lastEvent.Store(s.table.lastEvent)
	s.foreign, s.keys = onDisk{prefix: prefixID}, onDisk{prefix: prefixKey}
	s.retries = onDisk{prefix: prefixRetry, from: retriesFrom(s.lastTime)}
	s.buildFilters()
	s.idle <- struct{}{}
	go s.write()
	go s.commit()
	go s.sync()
	s.wakeUp()
	return s, nil
}

// Close waits for running calls, syncs and frees everything.
func (s *Store) Close() error {
	s.closing.Do(func() {
		s.intake.mu.Lock()
		s.intake.closed = true
		s.intake.mu.Unlock()
		s.wakeUp()
		<-s.stopped
		s.foreign.stop()
		s.keys.stop()
		s.retries.stop()
		s.background.Wait()
		closed := fmt.Errorf("%s: %w", s.dir, gq.ErrClosed)
		s.failed.CompareAndSwap(nil, &closed)
		s.gate.Lock()   // no read begins after this
		s.gate.Unlock() //nolint:staticcheck // an empty section on purpose
		s.reads.Wait()
		s.closeErr = errors.Join(s.keepTime(), s.closeFiles(errors.Is(s.failure(), gq.ErrClosed)))
	})
	return s.closeErr
}

// now returns the next commit's time: the clock's, but never before the last commit.
func (s *Store) now() time.Time {
	s.lastTime = max(s.lastTime, s.config.Clock.Now().UnixNano())
	return time.Unix(0, s.lastTime).UTC()
}

// keepTime saves the latest time used in any answer, so that time does not go back when
// the store is reopened.
func (s *Store) keepTime() error {
	if !errors.Is(s.failure(), gq.ErrClosed) {
		return nil // a failed store writes nothing
	}
	return s.db.Set(metaClock, binary.BigEndian.AppendUint64(nil, uint64(s.lastTime)), pebble.Sync)
}

// Meter implements [store.Meter].
func (s *Store) Meter() store.Metrics {
	m := store.Metrics{Commits: s.commitCount.Load(), Syncs: s.disk.syncs.Load()}
	if s.reading() {
		defer s.reads.Done()
		m.DiskBytes = s.db.Metrics().DiskSpaceUsage()
		if free, known := s.disk.available(); known && s.disk.reserve > 0 {
			m.DiskFree, m.DiskReserve = free, s.disk.reserve
			m.DiskRefuses = s.shortage.refuses(free, s.disk.reserve)
		}
	}
	return m
}

// Ephemeral reports whether everything is lost when the process ends.
func (s *Store) Ephemeral() bool { return s.ephemeral }

// reading starts a read and reports false if the store is closed or failed. The caller
// must call reads.Done.
func (s *Store) reading() bool {
	s.gate.RLock()
	defer s.gate.RUnlock()
	if s.failure() != nil {
		return false
	}
	s.reads.Add(1)
	return true
}

// clock is the wall time at the start plus the monotonic time since.
type clock struct{ start time.Time }

func systemClock() store.Clock { return clock{time.Now()} }

func (c clock) Now() time.Time { return c.start.Add(time.Since(c.start)) }

var (
	_ store.Store    = (*Store)(nil)
	_ store.Meter    = (*Store)(nil)
	_ store.Notifier = (*Store)(nil)
)

// Config implements [store.Store].
func (s *Store) Config() store.Config { return s.config }
