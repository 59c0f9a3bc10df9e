package postgres

import (
	"context"
	"errors"
	"runtime"
	"sync"

	"github.com/jackc/pgx/v5/pgconn"
)

// batcher lets concurrent callers share transactions: while some are in flight, the calls for
// the next one gather. A caller that comes alone does not wait.
type batcher[In, Out any] struct {
	run    func(ctx context.Context, items []In, alone bool) ([]Out, error)
	weight func(*In) int   // of an item; a transaction ends with the call that reaches maxWeight
	most   int             // transactions in flight at once
	heavy  int             // how much has to wait before a second one begins
	all    *sync.WaitGroup // of the store

	mu      sync.Mutex
	waiting []*call[In, Out] // guarded by mu
	flights int              // guarded by mu
}

// call is what one caller asked for.
type call[In, Out any] struct {
	ctx   context.Context //nolint:containedctx // of the caller, for the case that it must go alone
	items []In
	out   []Out
	err   error
	done  chan struct{} // closed when out and err are set
}

// maxWeight bounds a shared transaction, in jobs or so.
const maxWeight = 2000

// How much is worth a transaction beside the one in flight. Jobs that are inserted
// have nothing to do with each other, and to write one takes longest.
const (
	heavyInserts = 32
	heavyUpdates = 256
)

// do runs items together with those of other callers. If the context ends first, their outcome
// is unknown.
func (l *batcher[In, Out]) do(ctx context.Context, items []In) ([]Out, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	c := &call[In, Out]{ctx: ctx, items: items, done: make(chan struct{})}
	l.mu.Lock()
	l.waiting = append(l.waiting, c)
	if l.flights == 0 || l.flights < l.most && l.weighty() {
		l.flights++
		l.all.Go(l.fly)
	}
	l.mu.Unlock()
	select {
	case <-c.done:
		return c.out, c.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// weighty reports whether the waiting calls justify a second transaction. Less work costs less if
// it waits for the first one to end and shares the next with calls that come meanwhile.
func (l *batcher[In, Out]) weighty() bool {
	weight := 0
	for _, c := range l.waiting {
		for i := range c.items {
			if weight += l.weight(&c.items[i]); weight >= l.heavy {
				return true
			}
		}
	}
	return false
}

// fly runs transactions for as long as anyone waits.
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

// lingerTurns is how often a band lets others go first before it goes on.
const lingerTurns = 8

// linger lets those that were answered ask the next question, as long as some do: a
// transaction takes longer than they.
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

// share runs one transaction for calls. Where it fails each runs by itself, so
// that nobody has the faults of others, and whoever waits for a lock of somebody
// else's does not make the others wait.
func (l *batcher[In, Out]) share(calls []*call[In, Out]) {
	var items []In
	for _, c := range calls {
		items = append(items, c.items...)
	}
	// The transaction is everyone's: nobody's context ends it.
	out, err := l.run(context.Background(), items, false)
	if err != nil && (len(calls) > 1 || held(err)) && !uncertain(err) {
		for _, c := range calls {
			l.all.Go(func() {
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
	}
}

// held reports whether a transaction ended because somebody held a lock for too
// long.
func held(err error) bool {
	const lockNotAvailable = "55P03"
	var e *pgconn.PgError
	return errors.As(err, &e) && e.Code == lockNotAvailable
}
