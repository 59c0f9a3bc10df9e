package postgres

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/store"
)

// batcher lets concurrent callers share transactions. While one is in flight, calls
// gather for the next. A single caller does not wait.
type batcher[In, Out any] struct {
	run    func(ctx context.Context, items []In, alone bool) ([]Out, error)
	weight func(*In) int  // of an item; a transaction ends with the call that reaches maxWeight
	most   int            // maximum number of transactions in flight
	heavy  int            // waiting weight that justifies a second transaction
	beside func(*In) bool // whether an item may run beside another transaction; nil means all
	firm   func(*In) bool // do waits for its shared transaction even if ctx ends; nil means none
	runner *runner        // runs the transactions

	mu      sync.Mutex
	waiting []*call[In, Out] // guarded by mu
	flights int              // guarded by mu
}

// call is what one caller asked for.
type call[In, Out any] struct {
	ctx   context.Context //nolint:containedctx // of the caller, for the case that it must go alone
	since time.Time       // of the outage that it has met already, or else when it began
	items []In
	out   []Out
	err   error
	done  chan struct{} // closed when out and err are set

	shared chan struct{} // closed after the shared transaction; nil unless an item is firm
}

// maxWeight is about how many jobs a shared transaction has at most.
const maxWeight = 2000

// The waiting weight that justifies a second transaction in flight. It is less for
// inserts, which do not conflict with each other and take longest to write.
const (
	heavyInserts = 32
	heavyGets    = 64
	heavyUpdates = 256
	heavyClaims  = 1000
)

// do runs items together with those of other callers. If ctx ends first, their outcome is
// unknown.
func (l *batcher[In, Out]) do(ctx context.Context, items []In) ([]Out, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	outage, began := store.OutageOf(ctx), time.Now()
	c := &call[In, Out]{ctx: ctx, since: outage.Since(began), items: items, done: make(chan struct{})}
	for i := range items {
		if l.firm != nil && c.shared == nil && l.firm(&items[i]) {
			c.shared = make(chan struct{})
		}
	}
	l.mu.Lock()
	l.waiting = append(l.waiting, c)
	if l.flights == 0 || l.flights < l.most && l.weighty() {
		l.flights++
		l.runner.Go(l.fly)
	}
	l.mu.Unlock()
	if c.shared != nil {
		<-c.shared
	}
	select {
	case <-c.done:
	default:
		select {
		case <-c.done:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	if errors.Is(c.err, gq.ErrUnavailable) {
		outage.Begin(began)
	} else {
		outage.End()
	}
	return c.out, c.err
}

// weighty reports whether the waiting calls justify a second transaction. If not, it is
// cheaper to let them share the next one with calls that arrive in the meantime.
func (l *batcher[In, Out]) weighty() bool {
	weight := 0
	for _, c := range l.waiting {
		for i := range c.items {
			if l.beside != nil && !l.beside(&c.items[i]) {
				return false
			}
			if weight += l.weight(&c.items[i]); weight >= l.heavy {
				return true
			}
		}
	}
	return false
}

// fly runs transactions as long as calls are waiting.
func (l *batcher[In, Out]) fly() {
	for {
		calls := l.gather()
		if len(calls) == 0 {
			return
		}
		l.share(calls)
		l.linger()
	}
}

// lingerTurns is how often linger yields at most.
const lingerTurns = 8

// linger yields the processor as long as calls arrive, so that callers that were just
// answered join the next transaction. Waiting for them is cheaper than a transaction.
func (l *batcher[In, Out]) linger() {
	before := -1
	for range lingerTurns {
		runtime.Gosched()
		l.mu.Lock()
		now := len(l.waiting)
		l.mu.Unlock()
		if now == before {
			return
		}
		before = now
	}
}

func (l *batcher[In, Out]) gather() []*call[In, Out] {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.beside != nil && l.flights > 1 && !l.weighty() {
		l.flights-- // the other flight takes the waiting calls
		return nil
	}
	n, weight := 0, 0
	for n < len(l.waiting) && weight < maxWeight {
		for i := range l.waiting[n].items {
			weight += l.weight(&l.waiting[n].items[i])
		}
		n++
	}
	if n == 0 {
		l.flights--
		return nil
	}
	calls := l.waiting[:n:n]
	l.waiting = l.waiting[n:]
	return calls
}

// share runs one transaction for calls. If it fails each call runs by itself, so that no
// call fails because of another, or waits for a lock that only another one needs. If it
// did not reach the database, it is retried until the time of its oldest call is over; the
// others then share the next one.
func (l *batcher[In, Out]) share(calls []*call[In, Out]) {
	var items []In
	for _, c := range calls {
		items = append(items, c.items...)
	}
	// The transaction serves several callers, so no caller's context cancels it.
	out, err := l.run(retriedSince(waitingSince(calls)), items, false)
	if errors.Is(err, gq.ErrUnavailable) && !uncertain(err) {
		calls = l.again(calls)
	}
	landed := func(c *call[In, Out]) {
		if c.shared != nil {
			close(c.shared)
		}
	}
	if err != nil && (len(calls) > 1 || held(err)) && !errors.Is(err, gq.ErrUnavailable) {
		for _, c := range calls {
			landed(c)
			l.runner.under.Go(func() { // there may be many, so these goroutines do not stay
				defer close(c.done)
				c.out, c.err = l.run(c.ctx, c.items, true)
			})
		}
		return
	}
	for _, c := range calls {
		if c.err = err; err == nil {
			c.out, out = out[:len(c.items):len(c.items)], out[len(c.items):]
		}
		close(c.done)
		landed(c)
	}
}

// retriedSince returns a context for a transaction that is retried for as long as a call since t.
func retriedSince(t time.Time) context.Context {
	ctx := store.Together(context.Background())
	store.OutageOf(ctx).Begin(t)
	return ctx
}

// waitingSince returns since when the oldest call waits.
func waitingSince[In, Out any](calls []*call[In, Out]) time.Time {
	since := calls[0].since
	for _, c := range calls[1:] {
		if c.since.Before(since) {
			since = c.since
		}
	}
	return since
}

// again lets those of some calls wait for the next transaction whose time is not over. It returns
// the others, of which the oldest is one.
func (l *batcher[In, Out]) again(calls []*call[In, Out]) (over []*call[In, Out]) {
	since := waitingSince(calls)
	var next []*call[In, Out]
	for _, c := range calls {
		if c.since.Equal(since) || time.Since(c.since) >= retryWithin {
			over = append(over, c)
		} else {
			next = append(next, c)
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.waiting = append(next, l.waiting...)
	return over
}

// held reports whether a transaction failed because it waited too long for a lock.
func held(err error) bool {
	const lockNotAvailable = "55P03"
	var e *pgconn.PgError
	return errors.As(err, &e) && e.Code == lockNotAvailable
}

// overtime reports whether the server ended a statement that took too long.
func overtime(err error) bool {
	const queryCanceled = "57014"
	var e *pgconn.PgError
	return errors.As(err, &e) && e.Code == queryCanceled
}
