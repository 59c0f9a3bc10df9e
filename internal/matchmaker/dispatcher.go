// Package matchmaker assigns the jobs of a matching queue to providers.
//
// Package match decides: a round is its function. This package runs rounds. It keeps the
// function's input between rounds, writes its results, and serves the calls of the
// matching face. Its parts do no I/O, except that audit reads documents:
//
//   - registry: the providers, their status and their heartbeats
//   - ledger: what each provider was given, and when leases expire
//   - backlog: the jobs that wait, in the order in which rounds take them
//   - audit: the records of rounds, and how to compute a round again
//
// Rounds and calls are not a separate package: all of them change registry, ledger and
// backlog together, under one lock and in one commit with the head.
//
// # What is stored
//
// Jobs are jobs of the store, in their own queue; an assignment is a claim whose lease id
// the round has computed. Everything else is documents: the head (the number of rounds
// and matches), the profiles of providers, their ledger accounts, their heartbeats, the
// settings, the beacon, and a record of every round that assigned anything.
//
// # Why exactly one round wins
//
// A round changes the head, the accounts of the providers that got something, and the
// jobs, in one commit that names the version of each document it has read. If several
// nodes try, one of them finds the documents unchanged; the others change nothing and
// read again. Everything else that decides who may hold what (a provider's status, the
// settings) changes the head too, so no round can commit a decision based on an outdated
// state.
//
// Leases end without changing the head. A node that has not read of it yet believes that
// a provider is busier than it is, which exceeds no quota.
package matchmaker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/engine"
	"github.com/gopherqueue/gq/internal/errs"
	"github.com/gopherqueue/gq/internal/wake"
	"github.com/gopherqueue/gq/match"
	"github.com/gopherqueue/gq/store"
)

// DefaultQueue is the store's queue for the jobs.
const DefaultQueue = match.Queue

// Requirement is what jobs of the queue require of a worker, so that only rounds claim
// them.
const Requirement = "gq.matching"

// Options configure a dispatcher. The zero value selects the defaults.
type Options struct {
	Log      *slog.Logger    // nil discards
	Queue    string          // "" is DefaultQueue
	Settings *match.Settings // initial settings, until they are changed; nil is match.DefaultSettings
	Hooks    match.Hooks     // what other systems decide and are told
	Meter    Meter           // nil measures nothing

	// Exclusive says that no other process uses the store, so that none delivers to a sink.
	Exclusive bool
}

// Engine is the part of an engine that a dispatcher needs. Submit, Get, List, CatchUp and
// Follow run with the user's context, so that a guard in front of the engine can reject them; Queue
// and ChangeQueue run on the dispatcher's own behalf.
type Engine interface {
	Submit(ctx context.Context, s gq.Spec) (gq.SubmitResult, error)
	Get(ctx context.Context, id gq.JobID, parts gq.Parts) (gq.Job, error)
	List(ctx context.Context, q gq.Query) (gq.Page, error)
	CatchUp(ctx context.Context) error
	Follow(ctx context.Context, after uint64, f func([]gq.Event) error) error
	Queue(ctx context.Context, name string) (gq.Queue, error)
	ChangeQueue(ctx context.Context, name string, change func(*gq.Queue)) (gq.Queue, error)
	Delegate(queue string, d engine.Delegate)
	Now() time.Time
}

// Meter measures what a dispatcher does to jobs without the engine.
type Meter interface {
	Assigned(states []gq.State, took time.Duration) // by one round
	Renewed(s gq.State, took time.Duration)
	Ended(s gq.State, took time.Duration) // for one attempt
	// Round measures a round: its outcome is assigned, empty, overtaken or failed.
	Round(outcome string, assigned int, took time.Duration)
}

// noMeter measures nothing.
type noMeter struct{}

func (noMeter) Assigned([]gq.State, time.Duration) {}
func (noMeter) Renewed(gq.State, time.Duration)    {}
func (noMeter) Ended(gq.State, time.Duration)      {}
func (noMeter) Round(string, int, time.Duration)   {}

// Dispatcher runs rounds. Its methods may be called concurrently.
type Dispatcher struct {
	engine  Engine
	store   store.Store
	change  store.Changer
	options Options
	log     *slog.Logger
	queue   string
	process string        // random id of this process
	woken   chan struct{} // supply or demand has changed
	known   atomic.Pointer[knownSettings]
	clock   atomic.Pointer[reading]
	last    atomic.Pointer[Levels]
	serving atomic.Pointer[[]gq.LiveWorker]
	looked  time.Time // when workers last caught up; guarded by mu

	claims, rulings, rounds *delivery // to the sinks

	mu     sync.Mutex // guards all below; held while the head changes
	loaded bool       // state has everything from the store
	state
}

// New creates a dispatcher for an engine and its store. It starts nothing.
func New(e Engine, s store.Store, o Options) (*Dispatcher, error) {
	changer, ok := s.(store.Changer)
	if !ok {
		return nil, fmt.Errorf("new dispatcher: the store cannot change documents and jobs together: %w", gq.ErrInvalid)
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Meter == nil {
		o.Meter = noMeter{}
	}
	if o.Queue == "" {
		o.Queue = DefaultQueue
	}
	if o.Settings == nil {
		defaults := match.DefaultSettings()
		o.Settings = &defaults
	}
	if err := o.Settings.Validate(); err != nil {
		return nil, fmt.Errorf("new dispatcher: %w", err)
	}
	d := &Dispatcher{engine: e, store: s, change: changer, options: o, log: o.Log, queue: o.Queue, process: newProcessName(), woken: make(chan struct{}, 1)}
	d.claims = newDelivery("claims", outbox(d, kindClaim, o.Hooks.Claims))
	d.rulings = newDelivery("sla", outbox(d, kindRuling, o.Hooks.Rulings))
	d.rounds = newDelivery("rounds", newRounds(d, o.Hooks.Rounds))
	e.Delegate(d.queue, engine.Delegate{Explain: d.explain, Workers: d.workers})
	return d, nil
}

// wake makes Run try a round soon.
func (d *Dispatcher) wake() { wake.Up(d.woken) }

// Pauses of the loop.
const (
	minPause  = 10 * time.Millisecond // between rounds, while more assignments may be possible
	gather    = 50 * time.Millisecond // from a change to its round, so that changes share one; the interval if shorter
	maxPause  = time.Minute           // while nothing changes
	afterLoss = time.Second           // for a node that another one overtook, to leave rounds to the other
)

// Run runs rounds until the context ends, and then returns nil: one soon after supply or
// demand changed, one every interval while jobs wait, and none while no job waits. It also
// delivers records to the sinks, which no round waits for.
func (d *Dispatcher) Run(ctx context.Context) error {
	defer d.deliverAll(ctx)()
	poll := maxPause
	if n, ok := d.store.(store.Notifier); ok {
		stop := n.Notify(false, func(news store.News) {
			if slices.Contains(news.Queues, d.queue) || slices.Contains(news.Freed, d.queue) {
				d.wake()
			}
		})
		defer stop()
	} else {
		poll = time.Second
	}
	timer := time.NewTimer(0)
	defer timer.Stop()
	next, pause := time.Now(), minPause
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-d.woken:
			if soon := time.Now().Add(d.gathering()); soon.Before(next) {
				next = soon
			}
			timer.Reset(max(time.Until(next), 0))
			continue
		case <-timer.C:
		}
		wait, err := d.Step(ctx)
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, gq.ErrClosed) || errors.Is(err, gq.ErrStoreFailed):
			return fmt.Errorf("dispatch: %w", err)
		case err != nil:
			d.log.Warn("dispatch", "error", err)
			pause = min(2*pause, maxPause)
			wait = pause
		default:
			pause = minPause
		}
		next = time.Now().Add(min(wait, poll))
		timer.Reset(time.Until(next))
	}
}

// gathering returns how long after a change its round waits for further ones.
func (d *Dispatcher) gathering() time.Duration {
	d.mu.Lock()
	defer d.mu.Unlock()
	return min(gather, time.Duration(d.settings.DispatchInterval)*time.Millisecond)
}

// Step runs a round if there is a reason to, and returns how long there will be none.
// [Dispatcher.Run] calls it; simulations can too.
func (d *Dispatcher) Step(ctx context.Context) (time.Duration, error) {
	_, wait, err := d.step(ctx, false)
	return wait, err
}

// Round runs a round now, regardless of the interval, and returns its result.
func (d *Dispatcher) Round(ctx context.Context) (Round, error) {
	r, _, err := d.step(ctx, true)
	if err != nil {
		return Round{}, fmt.Errorf("round: %w", err)
	}
	return r, nil
}

// maxRetries is how often a change that lost the race is retried before it fails.
const maxRetries = 10

func (d *Dispatcher) step(ctx context.Context, asked bool) (Round, time.Duration, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for n := 0; ; n++ {
		if err := d.catchUp(ctx); err != nil {
			return Round{}, 0, err
		}
		now := d.now()
		if err := d.sweep(ctx, now); err != nil {
			return Round{}, 0, err
		}
		if !asked && !d.backlog.HasDue() {
			return Round{}, d.quiet(now), nil
		}
		r, err := d.run(ctx, now, asked)
		switch {
		case err == nil:
			if err := d.forgetRounds(ctx, now); err != nil {
				d.log.Warn("drop old rounds", "error", err)
			}
			if !asked && len(r.Assignments) > 0 && d.backlog.HasServable() {
				return r, minPause, nil // more assignments may be possible
			}
			return r, d.quiet(now), nil
		case !overtaken(err):
			return Round{}, 0, err
		case n >= maxRetries:
			return Round{}, 0, fmt.Errorf("overtaken %d times: %w", n, err)
		case !asked && n > 0:
			return Round{}, afterLoss, nil
		}
		d.stale = true
	}
}

// overtaken reports whether a commit failed because another node was faster.
func overtaken(err error) bool {
	kind := errs.KindOf(err)
	return kind == gq.KindConflict || kind == gq.KindStaleLease || errors.Is(err, gq.ErrNotFound)
}

// quiet returns how long no round is needed unless something changes.
func (d *Dispatcher) quiet(now time.Time) time.Duration {
	interval := time.Duration(d.settings.DispatchInterval) * time.Millisecond
	if d.backlog.HasServable() {
		return interval
	}
	wait := maxPause
	for _, at := range []time.Time{d.backlog.NextRun(), d.ledger.NextExpiry()} {
		if !at.IsZero() {
			wait = min(wait, max(at.Sub(now), time.Millisecond))
		}
	}
	if d.backlog.HasDue() {
		wait = min(wait, time.Second) // a provider may become eligible without a call, for example when its health recovers
	}
	return wait
}
