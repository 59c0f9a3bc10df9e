package gqtest

import (
	"context"
	"sync"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/machine"
	"github.com/gopherqueue/gq/store"
	"github.com/gopherqueue/gq/worker"
)

// Kind is any [gq.Kind].
type Kind interface{ Name() string }

// faults are the faults that a test has ordered, and the handlers that run.
type faults struct {
	mu      sync.Mutex
	next    map[string][]fault                   // by job type, in order; guarded by mu
	running map[gq.JobID]context.CancelCauseFunc // guarded by mu
}

// fault is what happens to one execution: it fails with err, is cancelled or, without either, loses
// its lease.
type fault struct {
	err    error
	cancel bool
}

// FailNext makes the next n executions of a kind fail with err. Their handlers do not run; the
// error counts as if the handler had returned it.
func (q *Queue) FailNext(k Kind, n int, err error) {
	q.t.Helper()
	if err == nil {
		q.t.Fatal("gqtest: FailNext needs an error")
	}
	q.faults.add(k.Name(), n, fault{err: err})
}

// LoseNext makes the next n executions of a kind lose their lease as soon as the handler
// starts: see [Queue.LoseLease].
func (q *Queue) LoseNext(k Kind, n int) { q.faults.add(k.Name(), n, fault{}) }

// CancelNext cancels the next execution of a kind as soon as its handler starts, as a user would with
// [gq.Driver.Cancel]: the context of the handler ends with [worker.ErrCancelRequested].
func (q *Queue) CancelNext(k Kind) { q.faults.add(k.Name(), 1, fault{cancel: true}) }

// cancel cancels a running job and lets its worker know.
func (q *Queue) cancel(ctx context.Context, run *worker.Run) {
	q.t.Helper()
	_, err := q.engine.Cancel(ctx, run.ID(), "CancelNext")
	if err == nil {
		_, err = run.Spawn(ctx, nil) // a heartbeat, whose answer has the request
	}
	if err != nil {
		q.t.Fatalf("gqtest: cancel %s: %v", run.ID(), err)
	}
}

// LoseLease expires the lease of a running job at once, as if its worker had been unreachable
// for too long. The context of its handler ends with [worker.ErrLeaseLost], the outcome of the
// handler is discarded, and the job's policy decides when it runs again. Call it while the
// handler runs, for example in a fake that the handler calls.
func (q *Queue) LoseLease(id gq.JobID) {
	q.t.Helper()
	expire := func(s gq.State, now time.Time) (gq.State, []gq.Event, error) {
		if !s.Status.Held() {
			return s, nil, gq.ErrIllegalMove
		}
		lease := *s.Lease
		lease.ExpiresAt = now
		s.Lease = &lease
		return machine.Advance(s, machine.Draw{}, now)
	}
	answers, err := q.store.Update(context.Background(), []store.Update{{Ref: store.Ref{Job: id}, Apply: expire}})
	if err == nil {
		err = answers[0].Err
	}
	if err != nil {
		q.t.Fatalf("gqtest: lose the lease of %s: %v", id, err)
	}
	q.faults.mu.Lock()
	end := q.faults.running[id]
	q.faults.mu.Unlock()
	if end != nil {
		end(worker.ErrLeaseLost)
	}
}

func (f *faults) add(typ string, n int, one fault) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.next == nil {
		f.next = make(map[string][]fault)
	}
	for range n {
		f.next[typ] = append(f.next[typ], one)
	}
}

// take returns the fault of the next execution of a type, if it has one.
func (f *faults) take(typ string) (one fault, ok bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	list := f.next[typ]
	if len(list) == 0 {
		return fault{}, false
	}
	f.next[typ] = list[1:]
	return list[0], true
}

// begin records a running handler, whose context end ends.
func (f *faults) begin(id gq.JobID, end context.CancelCauseFunc) (done func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.running == nil {
		f.running = make(map[gq.JobID]context.CancelCauseFunc)
	}
	f.running[id] = end
	return func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		delete(f.running, id)
	}
}

// inject returns middleware that applies the faults of a queue.
func (f *faults) inject(q *Queue) worker.Middleware {
	return func(next worker.Handler) worker.Handler {
		return func(ctx context.Context, run *worker.Run) error {
			ctx, end := context.WithCancelCause(ctx)
			defer end(nil)
			defer f.begin(run.ID(), end)()
			if one, ok := f.take(run.Type()); ok {
				switch {
				case one.err != nil:
					return one.err
				case one.cancel:
					q.cancel(ctx, run)
				default:
					q.LoseLease(run.ID())
				}
			}
			return next(ctx, run)
		}
	}
}
