// Package postgres keeps jobs in a PostgreSQL database. Any number of processes may open the
// same one; all of them are equal.
//
// # How a transaction is built
//
// The rules are in package machine and run here, in Go, on locked rows. SQL selects, locks and
// writes. Every writing transaction takes its locks in the same order, which rules out deadlocks:
//
//  1. advisory locks on idempotency keys, by their hash
//  2. the advisory lock of the assignment of queues to pools, which some claims share
//  3. rows of gq.queue that have a limit the transaction must keep, by name
//  4. rows of gq.held, then of gq.ready, then of gq.done, by sequence number
//  5. rows of gq.pool, by name
//  6. advisory locks on the turns of fair queues, by their hash
//  7. the advisory lock of documents
//  8. the advisory lock of the head, only to number events, to fold counts and to purge
//
// Claims take the fourth kind without waiting (SKIP LOCKED), at any point. DELETE also locks, so
// rows that will move to another table are deleted up front (see take). The time is read while
// the locks are held, and the segment with the events gets its place when it is written: for any
// one job both only grow. There is no lock that every transaction takes.
package postgres

import (
	"context"
	"errors"
	"fmt"
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

	inserts  batcher[store.Group, store.Inserted]
	updates  batcher[store.Update, store.Updated]
	claims   batcher[store.Claim, store.Claimed]
	configs  batcher[bool, []gq.Queue]
	notifier notifier
	floors   floors
	limited  queueHints // claims must look at their configuration first
	guarded  queueHints // and so must inserts
	registry registry
	works    sync.Pool // *workspace

	mu     sync.RWMutex   // held for reading by every call under way
	closed bool           // guarded by mu
	under  sync.WaitGroup // what calls have begun and may have left behind

	ids        *idKey
	spares     chan int64   // segments that insertFast may use
	latest     atomic.Int64 // the newest instant that a call was given, in nanoseconds
	startedDay atomic.Int64 // the newest day that is known to have its partitions
	maintainAt atomic.Int64 // when maintain looks again, in nanoseconds of this process
	stale      atomic.Bool  // jobs have gone since it looked
}

var _ store.Store = (*Store)(nil)

// enter begins a call, unless the store is closed; leave ends it.
func (s *Store) enter() error {
	s.mu.RLock()
	if s.closed {
		s.mu.RUnlock()
		return gq.ErrClosed
	}
	return nil
}

func (s *Store) leave() { s.mu.RUnlock() }

// maxTries is how often a transaction is tried that the server aborts because of others.
const maxTries = 10

// retryWithin is how long a lost connection is retried.
const retryWithin = 5 * time.Second

// write runs f in a transaction and commits it. f runs again after a deadlock, so it must set its
// results from scratch.
func (s *Store) write(ctx context.Context, verb string, f func(tx *txn) error) error {
	if err := s.enter(); err != nil {
		return fmt.Errorf("%s: %w", verb, err)
	}
	defer s.leave()
	return s.transact(ctx, verb, s.begins.write, f)
}

// transact is write for callers that have called enter. A transaction that certainly had no effect
// is retried, for a few seconds if the connection was lost.
func (s *Store) transact(ctx context.Context, verb, begin string, f func(tx *txn) error) error {
	var err error
	waited := time.Duration(0)
	for pause := 25 * time.Millisecond; ; pause = min(2*pause, time.Second) {
		for try := range maxTries {
			if err = s.attempt(ctx, begin, try > 0, f); !undone(err) {
				break
			}
		}
		if !lost(err) || waited > retryWithin || !retry.Pause(ctx, jitter(pause)) {
			break
		}
		waited += pause
	}
	if lost(err) || uncertain(err) {
		err = &unavailableError{err}
	}
	if err != nil {
		return fmt.Errorf("%s: %w", verb, err)
	}
	return nil
}

// read runs f on one snapshot of the database.
func (s *Store) read(ctx context.Context, verb string, f func(tx *txn) error) error {
	if err := s.enter(); err != nil {
		return fmt.Errorf("%s: %w", verb, err)
	}
	defer s.leave()
	return s.transact(ctx, verb, s.begins.read, func(tx *txn) error {
		if err := tx.readClock(ctx); err != nil {
			return err
		}
		return f(tx)
	})
}

// readOnce is read for one statement, or for several that need no common snapshot. It does not
// read the time.
func (s *Store) readOnce(ctx context.Context, verb string, f func(tx *txn) error) error {
	if err := s.enter(); err != nil {
		return fmt.Errorf("%s: %w", verb, err)
	}
	defer s.leave()
	return s.transact(ctx, verb, s.begins.single, f)
}

// attempt runs f in a transaction, once. A retry is careful: it asks beforehand for what made the
// first try fail.
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

// end commits what there is to commit and has not been.
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
	if errors.Is(err, errMoved) || errors.Is(err, errLimited) {
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
		// Two inserted the same id at once, and the next try sees the other. Or a segment
		// that was at hand is in use: the server that gave it has lost that to a failover.
		return e.TableName == "foreign_id" || strings.HasPrefix(e.TableName, "segment_")
	}
	return false
}

// known is the newest instant that this process knows without the database.
func (s *Store) known() int64 {
	if s.cfg.Clock == nil {
		return s.latest.Load()
	}
	return max(s.latest.Load(), s.cfg.Clock.Now().UnixNano())
}

// time turns the database's clock into the time of the store, which never runs backwards: it is
// not before the persisted time, nor before any time that this process has returned.
func (s *Store) time(clock, persisted int64) time.Time {
	if s.cfg.Clock != nil {
		clock = s.cfg.Clock.Now().UnixNano()
	}
	now := max(clock, persisted)
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
