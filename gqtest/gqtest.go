// Package gqtest runs a queue inside a test: in memory, with a clock that only the test moves,
// and with handlers that run when the test says so.
//
//	func TestWelcome(t *testing.T) {
//		q := gqtest.New(t)
//		w := worker.New(q, worker.Config{})
//		worker.Handle(w, SendEmail, sendEmail)
//		q.AddWorker(w)
//
//		signUp(t.Context(), q.Client, "ada@example.org") // submits a job for tomorrow
//		gqtest.RequireSubmitted(q, SendEmail, Email{To: "ada@example.org"})
//		q.Advance(24 * time.Hour) // runs sendEmail
//	}
//
// The queue is the real engine and the worker is the real worker, on a store made of maps
// (package store/simple): retries, dependencies, limits and schedules behave as in production.
// Only three things differ. Time stands still until [Queue.Advance]. Handlers run one at a
// time, in the goroutine of the test, in the same order in every run. Ids and jitter are the
// same in every run.
//
// A queue works inside a bubble of package [testing/synctest] too. Its own clock is not that
// of the bubble: a handler that sleeps there takes no time on the queue.
package gqtest

import (
	"context"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/engine"
	"github.com/gopherqueue/gq/internal/wake"
	"github.com/gopherqueue/gq/store"
	"github.com/gopherqueue/gq/store/simple"
	"github.com/gopherqueue/gq/worker"
)

// start is the time at which every queue starts.
var start = time.Date(2026, time.January, 1, 0, 0, 0, 0, time.UTC)

// maxRuns is the number of executions after which a test fails, because its jobs most likely
// submit each other without end.
var maxRuns = 100_000

// Queue is a queue for one test. Code under test gets its Client. The other methods are for
// the goroutine of the test; they end the test if something is wrong.
type Queue struct {
	*gq.Client

	t       testing.TB
	engine  *engine.Engine
	store   *ratedStore
	clock   *clock
	workers []*worker.Worker
	running bool // a handler

	faults faults
}

// New returns an empty queue. It starts on 2026-01-01 at 00:00 UTC and ends with the test.
// The options are those of [gq.Open].
func New(t testing.TB, options ...gq.OpenOption) *Queue {
	t.Helper()
	var o gq.OpenOptions
	for _, set := range options {
		set(&o)
	}
	c := &clock{now: start}
	s, err := simple.Open(store.Config{Clock: c, Limits: o.Limits, Backoffs: o.Backoffs})
	if err != nil {
		t.Fatalf("gqtest: %v", err)
	}
	t.Cleanup(func() { _ = s.Close() }) // never fails
	q := &Queue{t: t, store: &ratedStore{Store: s}, clock: c}
	q.engine, err = engine.New(q.store, engine.Options{Log: o.Log, Preset: o.DefaultPreset, Random: rand.NewPCG(1, 2)})
	if err != nil {
		t.Fatalf("gqtest: %v", err)
	}
	q.Client = (&gq.Client{Driver: q.engine}).With(o.Middleware...)
	return q
}

// AddWorker lets the queue run the handlers of a worker that was created on it with
// [worker.New]. Register its handlers first, and call neither Run nor Start.
func (q *Queue) AddWorker(w *worker.Worker) {
	w.Use(q.faults.inject(q))
	q.workers = append(q.workers, w)
}

// Now returns the time of the queue.
func (q *Queue) Now() time.Time { return q.clock.Now() }

// RunUntilIdle runs all jobs that can run now, including those that handlers submit, and
// returns the number of executions. Jobs without a handler stay where they are.
func (q *Queue) RunUntilIdle() (runs int) {
	q.t.Helper()
	if q.running {
		q.t.Fatal("gqtest: a handler called RunUntilIdle")
	}
	for {
		q.sweep()
		n := q.runEach()
		if n == 0 {
			return runs
		}
		if runs += n; runs > maxRuns {
			q.t.Fatalf("gqtest: not idle after %d executions", runs)
		}
	}
}

// runEach lets every worker run one job and returns the number of executions.
func (q *Queue) runEach() (runs int) {
	q.t.Helper()
	q.running = true
	defer func() { q.running = false }()
	q.store.forget()
	for _, w := range q.workers {
		ran, err := w.RunOne(context.Background())
		if err != nil {
			q.t.Fatalf("gqtest: worker %s: %v", w.Name(), err)
		}
		if ran {
			runs++
		}
	}
	return runs
}

// sweep records everything that is due and returns when the next change is due.
func (q *Queue) sweep() (next time.Time) {
	q.t.Helper()
	for {
		r, err := q.engine.Sweep(context.Background(), q.Now())
		if err != nil {
			q.t.Fatalf("gqtest: %v", err)
		}
		if !r.More && r.Advanced+r.Released+r.Fired+r.Collected == 0 {
			return r.Next
		}
	}
}

// Advance moves the time of the queue forward by d and returns the number of executions. It
// stops at every instant at which a job or a schedule is due, and runs there what can run.
//
// In a handler it lets time pass while the handler runs: it runs no other handler.
func (q *Queue) Advance(d time.Duration) (runs int) {
	q.t.Helper()
	return q.AdvanceTo(q.Now().Add(d))
}

// AdvanceTo is [Queue.Advance] to a time. A time in the past changes nothing.
func (q *Queue) AdvanceTo(t time.Time) (runs int) {
	q.t.Helper()
	run := func() {
		if !q.running {
			runs += q.RunUntilIdle()
		}
	}
	for {
		run()
		next := q.sweep()
		if at := q.store.retryAt(); at.After(q.Now()) { // a handler may have let it pass
			next = wake.Earlier(next, at)
		}
		if next.IsZero() || next.After(t) || !next.After(q.Now()) {
			break
		}
		q.clock.set(next)
	}
	if t.After(q.Now()) {
		q.clock.set(t)
		q.sweep()
		run()
	}
	return runs
}

// clock is a clock that moves only when it is told to.
type clock struct {
	mu  sync.Mutex
	now time.Time // guarded by mu
}

func (c *clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *clock) set(t time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = t
}

// ratedStore remembers when the rate limits of queues allow the next claim, because no timer
// of the store does.
type ratedStore struct {
	*simple.Store

	mu   sync.Mutex
	next time.Time // zero if no claim was delayed; guarded by mu
}

// Claim implements [store.Claimer].
func (s *ratedStore) Claim(ctx context.Context, claims []store.Claim) ([]store.Claimed, error) {
	answers, err := s.Store.Claim(ctx, claims)
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range answers {
		s.next = wake.Earlier(s.next, answers[i].RetryAt)
	}
	return answers, err
}

func (s *ratedStore) retryAt() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.next
}

func (s *ratedStore) forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.next = time.Time{}
}
