// Package engine implements the queue on top of a store: every call of clients, workers and
// operators. Servers, the command line and Go programs that embed the queue use it. Package
// client has the same methods for a queue on a server.
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
// The engine generates ids, fills in defaults, lets claims and result waiters wait without
// polling (ten thousand waiters cost as much as one), fires schedules, explains why a job does
// not run, and applies the changes that become due with time.
//
// # Many engines
//
// Any number of engines can use one store, in one process or many; there is no leader. The
// store checks every rule in the commit that it applies to, so if two engines race, one of
// them loses and no job does. An engine caches only data that makes it faster or improves an
// explanation: queue settings for a second, and the workers it has seen. If several processes
// share the store, a running engine announces its workers to the others, so that all of them list
// the same ones.
//
// # Time
//
// [New] starts nothing. [Engine.Run] calls [Engine.Sweep] whenever a change is due. A sweep
// records delays, retries and expiries, updates the dependents of ended jobs, fires schedules
// and deletes jobs past their retention. At least one engine of a store should run. Without
// it every method still works, because a claim evaluates jobs at the current time, but the
// recorded state of unclaimed jobs falls behind.
//
// # Errors
//
// Errors wrap the sentinels of package gq with the action and its subject; see [gq.Error]. A
// call that ended with its context or with [gq.ErrTimeout] may have taken effect. Repeat a
// submission with an idempotency key, and repeat a settling call unchanged.
package engine

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/internal/wake"
	"github.com/gopherqueue/gq/machine"
	"github.com/gopherqueue/gq/store"
)

// Options configure an engine. The zero value has all defaults.
type Options struct {
	Log       *slog.Logger  // nil logs nothing
	Random    rand.Source   // for ids and jitter; nil is crypto/rand
	Timeout   time.Duration // of a submission, which then fails with gq.ErrTimeout; 0 is 30 s
	Sweep     time.Duration // shortest time between sweeps; 0 is 1 s
	Batch     int           // jobs that one step of a sweep changes; 0 is 1000
	Poll      time.Duration // poll interval for stores that are no store.Notifier; 0 is 1 s
	Preset    gq.Preset     // policy of queues that are not configured; 0 is [gq.PresetJobModel]
	KeyWindow time.Duration // idempotency window of jobs that do not set their own; 0 is 24 h
	Memory    time.Duration // how long a worker stays listed without claims or heartbeats; 0 is 1 min
	Version   string        // of the program, as other engines list it; "" is the release of this module

	// ReadRequest decodes submissions from SQL. Without it they stay in the inbox.
	ReadRequest RequestReader
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
	switch {
	case o.Preset == 0:
		o.Preset = gq.PresetJobModel
	case !o.Preset.Valid():
		faults = append(faults, gq.Fault{Field: "preset", Problem: fmt.Sprintf("%d is not a preset", o.Preset)})
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

// Engine is a queue on top of a store. Its methods are safe for concurrent use.
type Engine struct {
	late      error                          // of a submission that took too long
	deadline  atomic.Pointer[sharedDeadline] // the current one
	callbacks atomic.Bool                    // the store has recorded that callbacks are in use
	delivery  Callbacks                      // nil delivers none

	store   store.Store
	config  store.Config // of the store
	options Options
	log     *slog.Logger
	random  source
	clock   clock

	queues   queueCache
	patches  stripes // serialise changes of one job's metadata
	patterns patterns
	claims   waitQueue
	rates    sync.Map // queue to the time at which its rate limit allows the next claim
	watch    watch
	progress progress
	workers  registry
	node     *node
	calendar calendar
	rooms    rooms
	caught   shared[struct{}] // executions of CatchUp
	tallies  sync.Map         // pool to *shared[*tally]
	history  *histories

	delegates delegates

	forgetting forgetting

	takingIn sync.Mutex // held while submissions are taken in

	counters  counters
	flows     flowCount
	flowSizes flowSizes
}

// New creates an engine on top of a store. The caller closes the store.
func New(s store.Store, o Options) (*Engine, error) {
	if s == nil {
		return nil, fmt.Errorf("new engine: %w", &gq.InvalidError{Faults: []gq.Fault{{Field: "store", Problem: "is missing"}}})
	}
	o, err := o.withDefaults()
	if err != nil {
		return nil, fmt.Errorf("new engine: %w", err)
	}
	e := &Engine{store: s, config: s.Config(), options: o, log: o.Log, random: newSource(o.Random)}
	e.queues.standard = o.Preset.Policy()
	e.late = fmt.Errorf("no answer within %v: %w", o.Timeout, gq.ErrTimeout)
	e.claims = newWaitQueue(e)
	e.watch = newWatch(e)
	e.workers = newRegistry(o.Memory)
	e.node = newNode(s, o.Version)
	e.calendar = newCalendar()
	e.history = newHistories(e)
	return e, nil
}

// Store returns the store of the engine.
func (e *Engine) Store() store.Store { return e.store }

// Callbacks delivers the results of jobs to their callback URLs.
type Callbacks interface {
	// CheckURL returns an error if delivery to a URL is certain to fail. The submission
	// fails with that error.
	CheckURL(url string) error
	// CatchUp blocks until every job that has ended so far can be removed without losing a
	// delivery.
	CatchUp(ctx context.Context) error
}

// UseCallbacks sets the delivery of callbacks. Call it before any other method.
func (e *Engine) UseCallbacks(c Callbacks) { e.delivery = c }

// Run sweeps until the context ends and then returns nil. It retries after errors of the
// store and returns an error only if the store is closed or has failed for good.
func (e *Engine) Run(ctx context.Context) error {
	beside, stop := context.WithCancel(ctx)
	var done sync.WaitGroup
	defer done.Wait()
	defer stop()
	done.Go(func() { e.runGone(beside) })
	done.Go(func() { e.history.run(beside) })
	if e.node.shared {
		done.Go(func() { e.runNode(beside) })
	}
	news, ended := make(chan struct{}, 1), make(chan struct{}, 1)
	soon := agenda{news: make(chan struct{}, 1)}
	pace := pacer{engine: e, idle: e.options.Sweep, pause: e.options.Sweep, next: time.Now()}
	serving, stopInbox := context.WithCancel(ctx)
	takeIn, inboxEnded := e.startInbox(serving)
	defer inboxEnded()
	defer stopInbox()
	if n, ok := e.store.(store.Notifier); ok {
		stop := n.Notify(false, func(n store.News) {
			if n.Relayed != nil {
				e.progress.hear(n.Relayed)
				return
			}
			e.history.news.Store(true)
			if n.Inbox {
				takeIn()
				return
			}
			if n.Dependents {
				wake.Up(ended)
			}
			soon.at(n.Due)
			if e.rooms.changed(n.Queues) || e.rooms.changed(n.Freed) {
				soon.at(e.clock.now())
			}
			if n.Dependents || !n.DueKnown || len(n.Queues)+len(n.Freed) > 0 {
				wake.Up(news)
			}
		})
		defer stop()
		pace.idle = max(pace.idle, time.Minute) // notifications can get lost
	}
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-timer.C:
		case <-ended:
			e.releaseNow(ctx)
			continue
		case <-news: // wait for further news, so that one sweep handles all of them
			timer.Reset(pace.by(pace.last.Add(e.options.Sweep)))
			continue
		case <-soon.news:
			timer.Reset(pace.by(time.Now().Add(soon.take().Sub(e.clock.now()))))
			continue
		}
		wait, err := pace.sweep(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return fmt.Errorf("run: %w", err)
		}
		timer.Reset(wait)
	}
}
