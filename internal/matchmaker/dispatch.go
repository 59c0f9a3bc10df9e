// Package matchmaker assigns the jobs of a matching queue to providers.
//
// Package match decides: a round is its function. This package keeps what the
// function needs between rounds (who is there, who waits, who has been given
// what) and writes what it decided.
//
// # What is stored
//
// Jobs are jobs of the store, in a queue of their own; an assignment is a claim
// whose lease id the round has computed. Everything else is documents: the head
// (how many rounds and matches there were), providers, their books, signs of
// life, the settings, the beacon, and a record of every round that assigned
// anything, from which it can be computed again.
//
// # Why exactly one round wins
//
// A round changes the head, the books of the providers it gave something to, and
// the jobs, in one commit that names the version of each document it has read.
// Of several nodes that try, one finds them unchanged; the others find nothing
// changed at all, and look again. Whatever else decides who may hold what (a
// provider's standing, the settings) goes through the head too, so that no round
// is decided on a state that is gone when it is written.
//
// Leases end without the head. A node that has not heard of that yet believes a
// provider to be busier than it is, which exceeds no quota.
package matchmaker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/engine"
	"github.com/gopherqueue/gq/internal/errs"
	"github.com/gopherqueue/gq/match"
	"github.com/gopherqueue/gq/store"
)

// DefaultQueue is the queue of the store that holds the jobs.
const DefaultQueue = "matching"

// Requirement is what jobs of the queue require of a worker, so that no claim
// but that of a round finds them.
const Requirement = "gq.matching"

// Options are what a dispatcher can be told. The zero value is the default.
type Options struct {
	Log      *slog.Logger    // nil is silence
	Queue    string          // "" is DefaultQueue
	Settings *match.Settings // until others are put; nil is match.DefaultSettings
	Proofs   ProofChecker    // nil accepts every completion
	SLA      SLA             // nil goes by the settings
	Claims   ClaimSink       // nil wants none
	Meter    Meter           // nil measures nothing
}

// Engine is what a dispatcher needs of an engine. What callers ask for goes through
// Submit, Get and Follow with their context, so that a guard in front of the engine
// decides about them; Queue and ChangeQueue are for the dispatcher's own sake.
type Engine interface {
	Submit(ctx context.Context, s gq.Spec) (gq.SubmitResult, error)
	Get(ctx context.Context, id gq.JobID, parts gq.Parts) (gq.Job, error)
	Follow(ctx context.Context, after uint64, f func([]gq.Event) error) error
	Queue(ctx context.Context, name string) (gq.Queue, error)
	ChangeQueue(ctx context.Context, name string, change func(*gq.Queue)) (gq.Queue, error)
	Delegate(queue string, explain engine.Explainer)
	Now() time.Time
}

// Meter measures what a dispatcher does to jobs without the engine.
type Meter interface {
	Assigned(states []gq.State, took time.Duration) // by one round
	Renewed(s gq.State, took time.Duration)
	Ended(s gq.State, took time.Duration) // an attempt
}

// noMeter measures nothing.
type noMeter struct{}

func (noMeter) Assigned([]gq.State, time.Duration) {}
func (noMeter) Renewed(gq.State, time.Duration)    {}
func (noMeter) Ended(gq.State, time.Duration)      {}

// Dispatcher runs rounds. Its methods may be called concurrently.
type Dispatcher struct {
	engine  Engine
	store   store.Store
	change  store.Changer
	options Options
	log     *slog.Logger
	queue   string
	kick    chan struct{} // something has changed
	slashed signal        // there is a new penalty
	known   atomic.Pointer[knownSettings]
	heard   atomic.Pointer[moment]

	mu     sync.Mutex // guards all below, and is held while the head changes
	loaded bool
	world
	last time.Time // when the last round was tried
}

// New makes a dispatcher over an engine and its store. It starts nothing.
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
	d := &Dispatcher{engine: e, store: s, change: changer, options: o, log: o.Log, queue: o.Queue, kick: make(chan struct{}, 1)}
	e.Delegate(d.queue, d.explain)
	return d, nil
}

// poke has the next round tried soon.
func (d *Dispatcher) poke() {
	select {
	case d.kick <- struct{}{}:
	default:
	}
}

// Pauses of the loop.
const (
	shortest  = 10 * time.Millisecond // between rounds, while there is room for more
	gather    = 50 * time.Millisecond // from a change to its round, so that changes share one; the interval if that is less
	longest   = time.Minute           // without a look, however quiet it is
	afterLoss = time.Second           // a node that lost a round leaves the others to the winner
)

// Run holds rounds until the context ends, which is a clean stop: one soon after
// supply or demand changed, one every interval while jobs wait, and none at all
// while nothing does.
func (d *Dispatcher) Run(ctx context.Context) error {
	poll := longest
	if n, ok := d.store.(store.Notifier); ok {
		stop := n.Notify(func(news store.News) {
			for _, q := range news.Queues {
				if q == d.queue {
					d.poke()
				}
			}
		})
		defer stop()
	} else {
		poll = time.Second
	}
	timer := time.NewTimer(0)
	defer timer.Stop()
	next, pause := time.Now(), shortest
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-d.kick:
			next = earlier(next, time.Now().Add(d.gathering()))
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
			pause = min(2*pause, longest)
			wait = pause
		default:
			pause = shortest
		}
		next = time.Now().Add(min(wait, poll))
		timer.Reset(time.Until(next))
	}
}

// gathering is how long changes are gathered for a round.
func (d *Dispatcher) gathering() time.Duration {
	d.mu.Lock()
	defer d.mu.Unlock()
	return min(gather, time.Duration(d.settings.DispatchInterval)*time.Millisecond)
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

// Step holds a round if there is reason to, and returns how long there will be
// none. [Dispatcher.Run] calls it; simulations may by themselves.
func (d *Dispatcher) Step(ctx context.Context) (time.Duration, error) {
	_, wait, err := d.step(ctx, false)
	if err == nil {
		err = d.deliverClaims(ctx)
	}
	return wait, err
}

// Round holds a round now, whatever the interval, and returns what it decided.
func (d *Dispatcher) Round(ctx context.Context) (Round, error) {
	r, _, err := d.step(ctx, true)
	if err != nil {
		return Round{}, fmt.Errorf("round: %w", err)
	}
	return r, nil
}

// tries is how often a round that was overtaken is decided anew before the
// others are left to have their way.
const tries = 10

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
		d.last = time.Now()
		if !asked && !d.backlog.waits() {
			return Round{}, d.quiet(now), nil
		}
		r, err := d.hold(ctx, now, asked)
		switch {
		case err == nil:
			if err := d.forgetRounds(ctx, now); err != nil {
				d.log.Warn("drop old rounds", "error", err)
			}
			if !asked && len(r.Assignments) > 0 && d.backlog.ready() {
				return r, shortest, nil // there may be room for more at once
			}
			return r, d.quiet(now), nil
		case !overtaken(err):
			return Round{}, 0, err
		case n >= tries:
			return Round{}, 0, fmt.Errorf("overtaken %d times: %w", n, err)
		case !asked && n > 0:
			return Round{}, afterLoss, nil
		}
		d.stale = true
	}
}

// overtaken reports whether a commit failed because someone was faster.
func overtaken(err error) bool {
	kind := errs.KindOf(err)
	return kind == gq.KindConflict || kind == gq.KindStaleLease || errors.Is(err, gq.ErrNotFound)
}

// quiet is how long nothing will happen unless something changes.
func (d *Dispatcher) quiet(now time.Time) time.Duration {
	interval := time.Duration(d.settings.DispatchInterval) * time.Millisecond
	if d.backlog.ready() {
		return interval
	}
	wait := longest
	for _, at := range []time.Time{d.backlog.next(), d.leaseDue()} {
		if !at.IsZero() {
			wait = min(wait, max(at.Sub(now), time.Millisecond))
		}
	}
	if d.backlog.waits() {
		wait = min(wait, time.Second) // jobs stand aside: a provider may come back by itself
	}
	return wait
}
