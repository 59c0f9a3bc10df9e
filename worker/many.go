package worker

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/gopherqueue/gq"
)

// Gather says when a handler of many jobs is called: when Size jobs are there, or when the
// first of them has waited for Wait.
type Gather struct {
	Size int           // jobs of one call; 1 to 10,000
	Wait time.Duration // at most; default: 1 s
}

// maxGather is the largest Gather.Size.
const maxGather = 10_000

// HandleMany registers a handler that gets many jobs of a kind in one call, for work that is
// cheaper together, such as inserting rows.
//
//	worker.HandleMany(w, Track, worker.Gather{Size: 100, Wait: 5 * time.Second},
//		func(ctx context.Context, jobs []*worker.Job[Click]) []error {
//			return insert(ctx, jobs)
//		})
//
// The jobs of a call come in no particular order. The handler returns one error for each, in
// the order of jobs, or nil if all have succeeded.
// Each job has its own lease, heartbeats and verdict: an error ends one job as it would end a
// job of [Handle], and [Run.SetResult] sets the result of one. A panic fails all of them.
//
// The context ends when the contexts of all its jobs have ended; [Run.Context] is that of one
// job. A job whose context ends while it waits for others leaves the group. The time that it
// waits counts for its execution timeout.
//
// A call occupies one slot of the worker, however many jobs it gets. Jobs that wait for others
// need none, so a worker holds up to (Config.Slots + 1) × Size jobs. When the worker stops, it
// calls the handler without waiting for more jobs. [Worker.RunOne] calls the handler with one job.
func HandleMany[A, R any](to Registry, k gq.Kind[A, R], g Gather, f func(ctx context.Context, jobs []*Job[A]) []error) {
	field := fmt.Sprintf("handlers[%.64q].gather", k.Name())
	if g.Size < 1 || g.Size > maxGather {
		to.fault(field+".size", fmt.Sprintf("%d is not between 1 and %d", g.Size, maxGather))
	}
	if g.Wait < 0 || g.Wait > gq.MaxDuration {
		to.fault(field+".wait", fmt.Sprintf("%v is not between 0 and %v", g.Wait, gq.MaxDuration))
	}
	if f == nil {
		to.handle(k.Name(), k.Queue(), nil)
		return
	}
	g.Wait = cmp.Or(g.Wait, time.Second)
	gathering := &gatherer[A]{Gather: g, handler: f}
	to.gathers(k.Name(), g.Size)
	handle(to, k, gathering.handle)
}

// gatherer collects jobs into groups.
type gatherer[A any] struct {
	Gather
	handler func(ctx context.Context, jobs []*Job[A]) []error

	mu   sync.Mutex
	open *group[A] // the group that jobs join; nil if there is none; guarded by mu
}

// group is jobs for one call of the handler.
type group[A any] struct {
	jobs    []*Job[A]     // guarded by gatherer.mu
	called  bool          // nobody joins or leaves any more; guarded by gatherer.mu
	full    chan struct{} // closed when it has all its jobs
	gone    chan struct{} // closed when all its jobs have left
	results map[*Job[A]]error
	done    chan struct{} // closed when results is set
}

// handle is the handler of each single job.
func (g *gatherer[A]) handle(ctx context.Context, job *Job[A]) error {
	all, first := g.join(job)
	switch {
	case job.worker.single:
		g.call(all)
	case first:
		go g.run(all, job.worker, job.fetcher.set)
	}
	select {
	case <-all.done:
	case <-ctx.Done():
		if g.leave(all, job) {
			return context.Cause(ctx)
		}
		<-all.done
	}
	return all.results[job]
}

// join adds a job to the open group or begins one.
func (g *gatherer[A]) join(job *Job[A]) (all *group[A], first bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.open == nil {
		g.open = &group[A]{full: make(chan struct{}), gone: make(chan struct{}), done: make(chan struct{})}
		first = true
	}
	all = g.open
	if all.jobs = append(all.jobs, job); len(all.jobs) >= g.Size {
		close(all.full)
		g.open = nil
	}
	return all, first
}

// leave takes a job out of a group that was not called yet, and reports whether it did.
func (g *gatherer[A]) leave(all *group[A], job *Job[A]) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if all.called {
		return false
	}
	i := slices.Index(all.jobs, job)
	if all.jobs = slices.Delete(all.jobs, i, i+1); len(all.jobs) == 0 {
		close(all.gone)
		if g.open == all {
			g.open = nil
		}
	}
	return true
}

// run waits until the group is full or has waited long enough, and then for a slot, and calls the
// handler. Jobs join the group as long as it is not full.
func (g *gatherer[A]) run(all *group[A], w *Worker, set *setUse) {
	timer := time.NewTimer(g.Wait)
	defer timer.Stop()
	select {
	case <-all.full:
	case <-timer.C:
	case <-w.stopping:
	case <-all.gone:
		return
	}
	if w.slots.enter(set, all.gone) {
		defer w.slots.exit(set)
		g.call(all)
	}
}

// call closes the group, calls the handler and keeps its verdicts, also if it panics or ends
// the goroutine.
func (g *gatherer[A]) call(all *group[A]) {
	g.mu.Lock()
	if g.open == all {
		g.open = nil
	}
	all.called = true
	jobs := all.jobs
	g.mu.Unlock()
	defer close(all.done)
	if len(jobs) == 0 {
		return
	}
	payloads := sync.OnceValue(func() map[string]bool {
		found := make(map[string]bool)
		for _, job := range jobs {
			job.payloadWords(func(word string) { found[word] = true })
		}
		return found
	})
	for _, job := range jobs {
		job.Run.called = payloads         // an error of the call can quote all of them
		job.worker.slots.release(job.Run) // others can wait in its place
	}
	every := func(err error) {
		all.results = make(map[*Job[A]]error, len(jobs))
		for _, job := range jobs {
			all.results[job] = err
		}
	}
	every(errExited)
	defer func() {
		if p := recover(); p != nil {
			caught := panicked(p)
			jobs[0].logged(slog.LevelError, "handler of many jobs panicked", slog.String("error", jobs[0].quotable(caught.value)), slog.Int("jobs", len(jobs)), slog.String("stack", string(caught.stack)))
			every(caught)
		}
	}()
	ctx, cancel := untilAllEnd(jobs)
	defer cancel()
	verdicts := g.handler(ctx, slices.Clone(jobs))
	switch {
	case verdicts == nil:
		every(nil)
	case len(verdicts) == len(jobs):
		for i, job := range jobs {
			all.results[job] = verdicts[i]
		}
	default:
		every(gq.Permanent(fmt.Errorf("the handler returned %d verdicts for %d jobs", len(verdicts), len(jobs)), "invalid_verdicts"))
	}
}

// untilAllEnd returns a context that ends when those of all jobs have ended, with the values of
// the first.
func untilAllEnd[A any](jobs []*Job[A]) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(context.WithoutCancel(jobs[0].Context()))
	var mu sync.Mutex
	open := len(jobs)
	stops := make([]func() bool, len(jobs))
	for i, job := range jobs {
		own := job.Context()
		stops[i] = context.AfterFunc(own, func() {
			mu.Lock()
			defer mu.Unlock()
			if open--; open == 0 {
				cancel(context.Cause(own))
			}
		})
	}
	return ctx, func() {
		for _, stop := range stops {
			stop()
		}
		cancel(context.Canceled)
	}
}
