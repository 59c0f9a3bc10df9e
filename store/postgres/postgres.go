// Package postgres keeps jobs in a PostgreSQL database. Any number of processes
// may open the same one; none of them is special.
//
// # How a transaction is built
//
// The rules stand in package machine and run here, in Go, on rows that are locked.
// SQL selects, locks and writes. Every writing transaction takes its locks in
// the same order, so that none waits in a circle:
//
//  1. advisory locks on idempotency keys, by their hash
//  2. the advisory lock of pools and whose they are, which some claims share
//  3. rows of gq.queue that have a limit the transaction must keep, by name
//  4. rows of gq.held, then of gq.ready, then of gq.done, by sequence number
//  5. rows of gq.pool, by name
//  6. advisory locks on the turns of fair queues, by their hash
//  7. the advisory lock of documents
//  8. the advisory lock of the head, only to number events, to fold counts and to purge
//
// Claims take the fourth kind without waiting for any (SKIP LOCKED), and may do
// so at any point. To delete a row is to lock it: what is sure to go to another
// table is taken out at once (see take). The time is read after the locks are held,
// and the segment that tells of the changes gets its place among others when it is
// written: for any one job both only grow.
// There is no lock that everyone takes.
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
	works    sync.Pool // of *workspace

	mu     sync.RWMutex   // held for reading by every call under way
	closed bool           // guarded by mu
	under  sync.WaitGroup // what calls have begun and may have left behind

	spares     chan int64   // segments that insertFast may use
	latest     atomic.Int64 // the newest instant that a call was given, in nanoseconds
	startedDay atomic.Int64 // the newest day that is known to have its partitions
	maintainAt atomic.Int64 // when maintain looks again, in nanoseconds of this process
	stale      atomic.Bool  // jobs have gone since it looked
}

var _ store.Store = (*Store)(nil)

// enter lets a call in, unless the store is closed; leave lets it out.
func (s *Store) enter() error {
	s.mu.RLock()
	if s.closed {
		s.mu.RUnlock()
		return gq.ErrClosed
	}
	return nil
}

func (s *Store) leave() { s.mu.RUnlock() }

// maxTries is how often a transaction is begun that the server ended because of
// others.
const maxTries = 10

// retryWithin is for how long a connection is looked for.
const retryWithin = 5 * time.Second

// write runs f in a transaction and commits what it wrote. f runs again where
// the server broke off a deadlock, so it must set what it answers from scratch.
func (s *Store) write(ctx context.Context, verb string, f func(tx *txn) error) error {
	if err := s.enter(); err != nil {
		return fmt.Errorf("%s: %w", verb, err)
	}
	defer s.leave()
	return s.transact(ctx, verb, s.begins.write, f)
}

// transact is write for those that were let in. A transaction that is known not
// to have happened is tried again, for a few seconds where the connection was
// lost.
func (s *Store) transact(ctx context.Context, verb, begin string, f func(tx *txn) error) error {
	var err error
	waited := time.Duration(0)
	for pause := 25 * time.Millisecond; ; pause = min(2*pause, time.Second) {
		for try := range maxTries {
			if err = s.attempt(ctx, begin, try > 0, f); !undone(err) {
				break
			}
		}
		if !lost(err) || waited > retryWithin || !sleep(ctx, jitter(pause)) {
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

// readOnce is read for one statement, besides one for the time, or for several that
// need not be of one moment. It does not read the time by itself.
func (s *Store) readOnce(ctx context.Context, verb string, f func(tx *txn) error) error {
	if err := s.enter(); err != nil {
		return fmt.Errorf("%s: %w", verb, err)
	}
	defer s.leave()
	return s.transact(ctx, verb, s.begins.single, f)
}

// attempt runs f in a transaction, once. One that is tried again is careful: it
// asks beforehand what the first try has found out the hard way.
func (s *Store) attempt(ctx context.Context, begin string, again bool, f func(tx *txn) error) error {
	return s.pool.AcquireFunc(ctx, func(c *pgxpool.Conn) error {
		tx := &txn{Tx: &connTx{conn: c.Conn(), dialect: s.pool.dialect, begin: begin, piped: s.begins.piped}, s: s, careful: again, again: again, shared: begin == s.begins.shared}
		if begin == "" {
			return f(tx)
		}
		tx.ours = true
		// A transaction whose connection is lost was undone by the server.
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
			s.notifier.tell(tx.opened, tx.mark.id != 0)
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

// undone reports whether a transaction has had no effect because of others and may
// be tried again.
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
		return e.TableName == "name" || strings.HasPrefix(e.TableName, "segment_")
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

// time turns what the database's clock shows into the time of the store, which
// never runs backwards: not behind what is persisted, nor behind what this
// process was told before.
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
