package engine

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/internal/wake"
	"github.com/gopherqueue/gq/store"
)

// Wait blocks until a job has ended and returns it with its result. If the context ends first,
// Wait returns the job as last read and an error, which has kind [gq.KindTimeout] if a deadline
// passed. The error is [gq.ErrGone] if the job ended meanwhile and was removed before it was read;
// that can happen only to a job that is not kept.
func (e *Engine) Wait(ctx context.Context, id gq.JobID) (gq.Job, error) {
	var last gq.Job // as read before
	for {
		ended, done := e.watch.join(id)
		job, err := e.Get(ctx, id, gq.WithResult)
		if err != nil || job.State.Status.Terminal() {
			done()
			if errors.Is(err, gq.ErrNotFound) && !last.State.ID.IsZero() {
				return last, gq.ErrGone.Errorf("wait for %s: it has ended, and its retention of %v was over before it could be read", id, last.State.Policy.Retention)
			}
			if err != nil {
				err = jobError("wait for", id, err)
			}
			return job, err
		}
		if last = job; job.State.ID != id { // the submission of id was a repetition
			done()
			id = job.State.ID
			continue
		}
		select {
		case <-ended:
			done()
		case <-ctx.Done():
			done()
			cause := context.Cause(ctx)
			if errors.Is(ctx.Err(), context.DeadlineExceeded) {
				cause = fmt.Errorf("%w: %w", gq.ErrTimeout, cause)
			}
			return job, fmt.Errorf("wait for %s, which is %s: %w", id, job.State.Status, cause)
		}
	}
}

// watch notifies callers of Wait when their jobs have ended. One goroutine serves all of them.
// After each notification of the store it reads the new events, or the jobs themselves if they
// are few. So the cost of a commit does not grow with the number of waiters.
type watch struct {
	engine *Engine

	mu      sync.Mutex
	jobs    map[gq.JobID]*watched // guarded by mu
	serving bool                  // guarded by mu
	newest  uint64                // newest event in the store's notifications; guarded by mu
	news    bool                  // the store has sent a notification; guarded by mu
	wake    chan struct{}
}

// watched is a job that callers wait for.
type watched struct {
	waiters int           // guarded by watch.mu
	ended   chan struct{} // closed when the callers must read the job again
}

const (
	watchedFew = 32   // up to this many jobs are read directly
	watchPage  = 1000 // events per read
)

func newWatch(e *Engine) watch {
	return watch{engine: e, jobs: map[gq.JobID]*watched{}, wake: make(chan struct{}, 1)}
}

// join returns a channel that is closed when a job ends after this call, and a function to call
// when the caller stops waiting.
func (w *watch) join(id gq.JobID) (ended <-chan struct{}, done func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	j := w.jobs[id]
	if j == nil {
		j = &watched{ended: make(chan struct{})}
		w.jobs[id] = j
	}
	j.waiters++
	if !w.serving {
		w.serving = true
		go w.serve()
	}
	return j.ended, func() { w.leave(id, j) }
}

func (w *watch) leave(id gq.JobID, j *watched) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if j.waiters--; j.waiters > 0 || w.jobs[id] != j {
		return
	}
	delete(w.jobs, id)
	if len(w.jobs) == 0 {
		w.wakeUp()
	}
}

func (w *watch) wakeUp() { wake.Up(w.wake) }

// end notifies the waiters of a job.
func (w *watch) end(id gq.JobID) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if j := w.jobs[id]; j != nil {
		close(j.ended)
		delete(w.jobs, id)
	}
}

// serve runs while callers wait.
func (w *watch) serve() {
	poll := w.engine.options.Poll
	if n, ok := w.engine.store.(store.Notifier); ok {
		stop := n.Notify(true, func(n store.News) {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.newest, w.news = max(w.newest, n.Event), true
			w.wakeUp()
		})
		defer stop()
		poll = max(poll, time.Minute) // notifications can get lost
	}
	timer := time.NewTimer(poll)
	defer timer.Stop()
	read := uint64(0) // last processed event; 0 is unknown
	for look := true; ; {
		w.mu.Lock()
		if len(w.jobs) == 0 {
			w.serving = false
			w.mu.Unlock()
			return
		}
		look = look || w.news
		w.news = false
		newest := w.newest
		w.mu.Unlock()
		if look {
			read = w.look(read, newest)
			look = false
			continue
		}
		timer.Reset(poll)
		select {
		case <-w.wake:
		case <-timer.C:
			look, read = true, 0
		}
	}
}

// look notifies the waiters of ended jobs and returns the last processed event.
func (w *watch) look(read, newest uint64) uint64 {
	w.mu.Lock()
	ids := make([]store.Ref, 0, len(w.jobs))
	if read == 0 || len(w.jobs) <= watchedFew {
		for id := range w.jobs {
			ids = append(ids, store.Ref{Job: id})
		}
	}
	w.mu.Unlock()
	if len(ids) > 0 {
		return w.readJobs(ids, newest)
	}
	for read < newest {
		events, err := w.engine.store.Events(context.Background(), read, watchPage)
		if err != nil || len(events) == 0 {
			return 0 // read the jobs next time
		}
		for i := range events {
			if events[i].Status.Terminal() {
				w.end(events[i].Job)
			}
		}
		read = events[len(events)-1].Seq
	}
	return read
}

func (w *watch) readJobs(refs []store.Ref, newest uint64) uint64 {
	for len(refs) > 0 {
		n := min(len(refs), watchPage)
		found, err := w.engine.store.Get(context.Background(), refs[:n], 0)
		if err != nil {
			for _, r := range refs { // the callers read the job and get the error
				w.end(r.Job)
			}
			return 0
		}
		for i := range found {
			if found[i].Err != nil || found[i].State.Status.Terminal() {
				w.end(refs[i].Job)
			}
		}
		refs = refs[n:]
	}
	return newest
}
