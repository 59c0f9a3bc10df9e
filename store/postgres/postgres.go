// Package postgres keeps jobs in a PostgreSQL database. Any number of processes may open
// the same database; they are all equal.
//
// # How a transaction is built
//
// The rules are in package machine and run here, in Go, on locked rows. SQL selects,
// locks and writes. All writing transactions take their locks in the same order, so they
// cannot deadlock:
//
//  1. advisory locks on idempotency keys, by hash
//  2. the advisory lock on the assignment of queues to pools; some claims share it
//  3. rows of gq.queue with a limit that the transaction must keep, by name
//  4. rows of gq.held, then of gq.ready, then of gq.done, by sequence number
//  5. rows of gq.pool, by name
//  6. advisory locks on the turns of fair queues, by hash
//  7. the advisory lock on documents
//  8. the advisory lock on the head, only to number events, to fold counts and to purge
//
// Claims take locks of the fourth kind at any point, but never wait for them (SKIP
// LOCKED). DELETE also locks, so rows that will move to another table are deleted up
// front (see take). A transaction reads the time while it holds its locks, and its
// segment of events gets its place when it is written, so for any one job both only grow.
// No lock is taken by every transaction.
package postgres

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/internal/retry"
	"github.com/gopherqueue/gq/store"
)

// Store keeps jobs in a PostgreSQL database. It implements [store.Store].
type Store struct {
	cfg    store.Config
	pool   database
	begins begins

	runner      *runner
	inserts     batcher[store.Group, store.Inserted]
	updates     batcher[store.Update, store.Updated]
	claims      batcher[store.Claim, store.Claimed]
	gets        batcher[getting, store.Found]
	oldests     batcher[string, oldestPage]
	configs     batcher[gq.Policy, []gq.Queue]
	notifier    notifier
	appended    atomic.Int64 // counts appended to gq.delta since notifier.fold
	floors      floors
	keyWrites   keyWrites
	limited     queueHints // queues whose configuration claims must read first
	lined       queueHints // queues with jobs that were set aside, see keys_aside.go
	asides      asides
	rated       queueHints // of these, queues that only the rates of limit keys limit
	uncounted   queueHints // those of them that limit only jobs that run: see txn.uncounted
	guarded     queueHints // queues whose configuration inserts must read first
	newKeys     keyHints   // queues in which submitted keys are usually new
	registry    registry
	works       sync.Pool // *workspace
	examination examination
	jobIndex    jobIndex

	noViews    error       // why they were not made; nil if they were
	unfinished atomic.Bool // an upgrade of the tables waits for the end of older programs

	mu      sync.RWMutex   // held for reading during every call
	closed  bool           // guarded by mu
	closing sync.Mutex     // held by Close
	under   sync.WaitGroup // goroutines of calls; they may outlive the call

	ids        *idKey
	spares     chan int64 // segment ids that insertFast and prepareKnown may use
	lately     heldRows
	reading    atomic.Pointer[clockReading] // nil if the store has a clock of its own
	latest     atomic.Int64                 // the newest time returned to a call, in nanoseconds
	near       atomic.Int64                 // gq.near.until, as far as this node knows
	startedDay atomic.Int64                 // the newest day whose partitions are known to exist
	maintainAt atomic.Int64                 // when maintain runs next, in nanoseconds of the local clock
	stale      atomic.Bool                  // jobs were removed since maintain last ran
}

var (
	_ store.Store  = (*Store)(nil)
	_ store.Shared = (*Store)(nil)
)

// Shared implements [store.Shared].
func (*Store) Shared() {}

// enter begins a call and fails if the store is closed. leave ends the call.
func (s *Store) enter() error {
	s.mu.RLock()
	if s.closed {
		s.mu.RUnlock()
		return gq.ErrClosed
	}
	return nil
}

func (s *Store) leave() { s.mu.RUnlock() }

// maxTries is how often a transaction is tried if the server aborts it because of others.
const maxTries = 10

// retryWithin is for how long the transactions of a call are retried if the connection is lost,
// with the time that the tries themselves take. See [store.Together].
const retryWithin = 5 * time.Second

// write runs f in a transaction and commits it. f may run again, for example after a
// deadlock, so it must set its results from scratch.
func (s *Store) write(ctx context.Context, f func(tx *txn) error) error {
	if err := s.enter(); err != nil {
		return err
	}
	defer s.leave()
	return s.transact(ctx, s.begins.write, f)
}

// transact is write for callers that have called enter. It retries a transaction that
// certainly had no effect, for a few seconds if the connection was lost.
func (s *Store) transact(ctx context.Context, begin string, f func(tx *txn) error) error {
	var err error
	outage, began := store.OutageOf(ctx), time.Now()
	until := outage.Since(began).Add(retryWithin)
	for pause := 25 * time.Millisecond; ; pause = min(2*pause, time.Second) {
		for try := range maxTries {
			if err = s.attempt(ctx, begin, try > 0, f); !undone(err) {
				break
			}
		}
		if !lost(err) || store.IsImpatient(ctx) || !time.Now().Add(pause).Before(until) || !retry.Pause(ctx, jitter(pause)) {
			break
		}
	}
	if lost(err) || uncertain(err) {
		outage.Begin(began)
		err = &unavailableError{err}
	} else {
		outage.End()
	}
	return err
}

// read runs f on one snapshot of the database.
func (s *Store) read(ctx context.Context, f func(tx *txn) error) error {
	if err := s.enter(); err != nil {
		return err
	}
	defer s.leave()
	return s.transact(ctx, s.begins.read, func(tx *txn) error {
		if err := tx.readClock(ctx); err != nil {
			return err
		}
		return f(tx)
	})
}

// readOnce is read for a single statement, or for several that need no common snapshot.
// It does not read the time.
func (s *Store) readOnce(ctx context.Context, f func(tx *txn) error) error {
	if err := s.enter(); err != nil {
		return err
	}
	defer s.leave()
	return s.transact(ctx, s.begins.single, f)
}

// attempt runs f in a transaction, once. On a retry it sets txn.careful and txn.again, so
// that f checks first for what may have made the last try fail.
func (s *Store) attempt(ctx context.Context, begin string, again bool, f func(tx *txn) error) error {
	return s.pool.AcquireFunc(ctx, func(c *pgxpool.Conn) error {
		tx := &txn{Tx: &connTx{conn: c.Conn(), dialect: s.pool.dialect, begin: begin, piped: s.begins.piped}, s: s, careful: again, again: again, shared: begin == s.begins.shared}
		if begin == "" {
			return f(tx)
		}
		tx.ours = true
		// The server rolls back a transaction whose connection is lost.
		defer func() {
			if conn := c.Conn(); !conn.IsClosed() && conn.PgConn().TxStatus() != 'I' {
				_, _ = conn.Exec(context.WithoutCancel(ctx), "ROLLBACK") // if that fails the pool closes the connection
			}
		}()
		if err := f(tx); err != nil {
			return err
		}
		if err := tx.end(ctx); err != nil {
			return err
		}
		if tx.written {
			s.notifier.tell(&tx.changes, tx.mark.id != 0)
		}
		return nil
	})
}

// end commits the transaction if it has something to commit and finish has not done so.
func (tx *txn) end(ctx context.Context) error {
	switch {
	case tx.committed:
		return nil
	case tx.written:
		return tx.commit(ctx)
	case tx.relies:
		return tx.confirm(ctx)
	}
	return nil
}

// undone reports whether a transaction had no effect because of others and may be retried.
func undone(err error) bool {
	const serializationFailure, deadlockDetected, uniqueViolation = "40001", "40P01", "23505"
	if errors.Is(err, errMoved) || errors.Is(err, errLimited) || errors.Is(err, errDoubted) {
		return true
	}
	var e *pgconn.PgError
	if !errors.As(err, &e) {
		return false
	}
	switch e.Code {
	case serializationFailure, deadlockDetected:
		return true
	case uniqueViolation:
		// Another transaction inserted the same id or key; the next try sees it. Or a spare
		// segment id is in use, because a failover lost the record that it was handed
		// out.
		return e.TableName == "foreign_id" || e.TableName == "idempotency" || strings.HasPrefix(e.TableName, "segment_")
	}
	return false
}

// keyTaken reports whether another transaction has added a key that this one was adding.
func keyTaken(err error) bool {
	const uniqueViolation = "23505"
	var e *pgconn.PgError
	return errors.As(err, &e) && e.Code == uniqueViolation && e.TableName == "idempotency"
}

// known is the newest time that this process knows without asking the database.
func (s *Store) known() int64 {
	if s.cfg.Clock == nil {
		return s.latest.Load()
	}
	return max(s.latest.Load(), s.cfg.Clock.Now().UnixNano())
}

// time converts the database's clock into the store's time. It never runs backwards: it
// is neither before the persisted time nor before any time that this process has
// returned.
func (s *Store) time(clock, persisted int64) time.Time {
	if s.cfg.Clock != nil {
		clock = s.cfg.Clock.Now().UnixNano()
	}
	now := max(clock, persisted)
	if s.cfg.Clock == nil {
		if r := s.reading.Load(); r == nil || clock > r.clock {
			s.reading.Store(&clockReading{clock, time.Now()})
		}
	}
	return s.reach(now)
}

// reach returns a time as the store's, or a later one that this process has returned already.
func (s *Store) reach(now int64) time.Time {
	for {
		latest := s.latest.Load()
		if now <= latest {
			return instant(latest)
		}
		if s.latest.CompareAndSwap(latest, now) {
			return instant(now)
		}
	}
}

// Config implements [store.Store].
func (s *Store) Config() store.Config { return s.cfg }
