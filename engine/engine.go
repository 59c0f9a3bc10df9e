// Package engine is the queue itself: what clients, workers and operators can
// do, over any store. The faces, the command line and a Go program that embeds
// the queue all call these methods; package client has the same ones for a queue
// elsewhere.
//
//	s, err := local.Open("gq-data", local.Options{})
//	…
//	e, err := engine.New(s, engine.Options{})
//	…
//	go e.Run(ctx)
//	submitted, err := e.Submit(ctx, gq.Spec{Type: "email.send", Payload: …})
//
// # What the engine adds to a store
//
// It draws ids, fills in what a submission leaves open, makes waiting cheap
// (claims and results are waited for without polling, and ten thousand waiters
// cost as much as one), fires schedules, explains why a job does not run, and
// lets time do its work.
//
// # Many engines
//
// Any number of engines may work on one store, in one process or many; there is
// no leader. Every rule is checked by the store in the commit it is about, so a
// race between two engines is lost by one of them and by nobody's job. What one
// engine remembers (queue settings for a second, the workers it has seen) only
// makes things faster or an explanation better.
//
// # Time
//
// [New] starts nothing. [Engine.Run] calls [Engine.Sweep] whenever something is
// due: it records what time has done to jobs, passes the end of a job on to its
// dependents, fires schedules and drops what is past its retention. At least one
// engine of a store should run. Without that every method still works, since a
// claim judges jobs by the time it is made, but a job that nobody claims stays
// as it was recorded.
//
// # Errors
//
// Errors are the sentinels of package gq, wrapped with verb and subject; see
// [gq.Error]. A call that ended with its context, or with [gq.ErrTimeout], may
// have happened: repeat a submission under an idempotency key, and repeat a
// settling call as it was.
package engine

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/machine"
	"github.com/gopherqueue/gq/store"
)

// Options are what an engine can be told. The zero value is the default.
type Options struct {
	Log       *slog.Logger  // nil is silence
	Random    rand.Source   // of ids and jitter; nil is crypto/rand
	Timeout   time.Duration // until a submission is reported as gq.ErrTimeout; 0 is 30 s
	Sweep     time.Duration // between sweeps while there is something to do; 0 is 1 s
	Batch     int           // jobs that one step of a sweep changes; 0 is 1000
	Poll      time.Duration // how often to look where the store tells no news; 0 is 1 s
	KeyWindow time.Duration // how long keys are remembered of jobs whose policy has its preset's window; 0 is 24 h
	Memory    time.Duration // how long a silent worker is remembered; 0 is 1 min
}

func (o Options) withDefaults() (Options, error) {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	var faults []gq.Fault
	for _, d := range []struct {
		field    string
		value    *time.Duration
		standard time.Duration
	}{
		{"timeout", &o.Timeout, 30 * time.Second},
		{"sweep", &o.Sweep, time.Second},
		{"poll", &o.Poll, time.Second},
		{"memory", &o.Memory, time.Minute},
		{"key_window", &o.KeyWindow, machine.DefaultPolicy().IdempotencyWindow},
	} {
		switch {
		case *d.value == 0:
			*d.value = d.standard
		case *d.value < time.Millisecond || *d.value > gq.MaxDuration:
			faults = append(faults, gq.Fault{Field: d.field, Problem: fmt.Sprintf("%v is not between 1ms and %v", *d.value, gq.MaxDuration)})
		}
	}
	if o.Batch == 0 {
		o.Batch = 1000
	}
	if o.Batch < 1 || o.Batch > store.MaxPage {
		faults = append(faults, gq.Fault{Field: "batch", Problem: fmt.Sprintf("%d is not between 1 and %d", o.Batch, store.MaxPage)})
	}
	if len(faults) > 0 {
		return o, &gq.InvalidError{Faults: faults}
	}
	return o, nil
}

// Engine is a queue over a store. Its methods may be called concurrently.
type Engine struct {
	late      error                          // what a submission is told that took too long
	deadline  atomic.Pointer[sharedDeadline] // the current one
	callbacks atomic.Bool                    // the store knows of callbacks
	delivery  Callbacks                      // nil delivers none

	store   store.Store
	config  store.Config // of the store
	options Options
	log     *slog.Logger
	random  source
	clock   clock

	queues   queueCache
	patches  stripes // serialise changes of one job's metadata
	claims   waitQueue
	rates    sync.Map // queue to the instant at which its rate lets a job through
	watch    watch
	workers  registry
	calendar calendar

	delegates delegates // who explains jobs that are not claimed
}

// New makes an engine over a store, which stays the caller's to close.
func New(s store.Store, o Options) (*Engine, error) {
	if s == nil {
		return nil, fmt.Errorf("new engine: %w", &gq.InvalidError{Faults: []gq.Fault{{Field: "store", Problem: "is missing"}}})
	}
	o, err := o.withDefaults()
	if err != nil {
		return nil, fmt.Errorf("new engine: %w", err)
	}
	e := &Engine{store: s, config: s.Config(), options: o, log: o.Log, random: newSource(o.Random)}
	e.late = fmt.Errorf("no answer within %v: %w", o.Timeout, gq.ErrTimeout)
	e.claims = newWaitQueue(e)
	e.watch = newWatch(e)
	e.workers = newRegistry(o.Memory)
	e.calendar = newCalendar()
	return e, nil
}

// Store is the store that the engine was made over.
func (e *Engine) Store() store.Store { return e.store }

// Callbacks delivers the ends of jobs to the addresses they name.
type Callbacks interface {
	// CheckURL says why a delivery to an address would certainly be refused. The
	// submission is refused with its error.
	CheckURL(url string) error
	// CatchUp returns nil once every job that has ended so far may be removed: it
	// keeps what its deliveries need.
	CatchUp(ctx context.Context) error
}

// UseCallbacks names who delivers callbacks. Call it before anything else.
func (e *Engine) UseCallbacks(c Callbacks) { e.delivery = c }

// Run lets time do its work until the context ends, which is a clean stop. It
// goes on through errors of the store, since another call may succeed, and ends
// with one only when the store is closed or has failed for good.
func (e *Engine) Run(ctx context.Context) error {
	news := make(chan struct{}, 1)
	idle := e.options.Sweep
	if n, ok := e.store.(store.Notifier); ok {
		stop := n.Notify(func(store.News) {
			select {
			case news <- struct{}{}:
			default:
			}
		})
		defer stop()
		idle = max(idle, time.Minute) // the longest without news: they are hints
	}
	timer := time.NewTimer(0)
	defer timer.Stop()
	pause := e.options.Sweep              // after an error
	last, next := time.Time{}, time.Now() // sweeps
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-timer.C:
		case <-news:
			// It is looked at together with what else comes within the interval.
			if soon := last.Add(e.options.Sweep); soon.Before(next) {
				next = soon
			}
			timer.Reset(time.Until(next))
			continue
		}
		last = time.Now()
		report, err := e.sweep(ctx, e.clock.surely)
		wait := idle
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, gq.ErrClosed) || errors.Is(err, gq.ErrStoreFailed):
			return fmt.Errorf("run: %w", err)
		case err != nil:
			e.log.Warn("sweep", "error", err)
			wait, pause = pause, min(2*pause, time.Minute)
		case report.More:
			wait, pause = 0, e.options.Sweep
		default:
			pause = e.options.Sweep
			if !report.Next.IsZero() {
				wait = min(wait, max(report.Next.Sub(e.clock.now()), time.Millisecond))
			}
		}
		next = time.Now().Add(wait)
		timer.Reset(wait)
	}
}
