// Package delivery tells callback URLs that their jobs have ended.
//
// # The outbox
//
// The event log is the outbox. A cursor, a document, says how far it has been
// read; every end of a job that has a callback becomes a delivery, another
// document, in the same commit that moves the cursor. So none is lost or made
// twice, however many processes do it and whenever they die. A delivery is a
// document until its receiver has said 2xx or it was given up: it is made at
// least once, and the receiver tells repetitions by the Webhook-Id.
//
// # Who waits for whom
//
// A receiver that is slow or gone holds up nobody else: at most a few requests
// per host are under way, one where the last was slow, and all slow hosts together
// have a quarter of the places. What is outstanding is bounded. A host
// with too much of it has what comes on top dead-lettered; if there is too much
// altogether the log is not read on until there is room.
//
// # What receivers can do to us
//
// Nothing but answer: see sender.go. Of an answer only the status is used.
package delivery

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
	"github.com/gopherqueue/gq/store"
	"github.com/gopherqueue/gq/webhook"
)

// Engine is what deliveries need of a queue.
type Engine interface {
	Follow(ctx context.Context, after uint64, f func([]gq.Event) error) error
	LastEvent(ctx context.Context) (uint64, error)
}

// Store is what they need of its store; every store is one.
type Store interface {
	Get(ctx context.Context, refs []store.Ref, parts gq.Parts) ([]store.Found, error)
	PutDocs(ctx context.Context, docs []store.Doc) ([]uint64, error)
	Doc(ctx context.Context, kind, name string) (store.Doc, error)
	Docs(ctx context.Context, kind, after string, limit int) ([]store.Doc, error)
}

// Options are what deliveries can be told. The zero value is the default.
type Options struct {
	Allow     Allow          // what may be reached besides the public internet
	Secret    webhook.Secret // what deliveries are signed with; nil is one that is kept in the store
	Exclusive bool           // nobody else works on the store, so that nothing can be under way elsewhere
	Log       *slog.Logger   // nil is silence

	Attempts    int                                        // of one delivery; 0 is 10
	Backoff     func(attempt int, u float64) time.Duration // before the next attempt; nil is standardBackoff
	Concurrency int                                        // requests under way; 0 is 64
	MaxPerHost  int                                        // outstanding deliveries to one host; 0 is 10,000
	MaxTotal    int                                        // outstanding deliveries; 0 is 100,000
	KeepDone    time.Duration                              // how long what was delivered is shown; 0 is 24 h
	KeepDead    time.Duration                              // how long what was given up is kept; 0 is 30 days
	Scan        time.Duration                              // between looks for what other processes left; 0 is 15 s
	Within      time.Duration                              // connection, request and the head of the answer; 0 is 10 s
}

func (o Options) withDefaults() Options {
	set := func(n *int, standard int) {
		if *n == 0 {
			*n = standard
		}
	}
	lasting := func(d *time.Duration, standard time.Duration) {
		if *d == 0 {
			*d = standard
		}
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Backoff == nil {
		o.Backoff = standardBackoff
	}
	set(&o.Attempts, 10)
	set(&o.Concurrency, 64)
	set(&o.MaxPerHost, 10_000)
	set(&o.MaxTotal, 100_000)
	lasting(&o.KeepDone, 24*time.Hour)
	lasting(&o.KeepDead, 30*24*time.Hour)
	lasting(&o.Scan, 15*time.Second)
	lasting(&o.Within, sendWithin)
	return o
}

// standardBackoff is 5 s, 20 s, 80 s, … up to 6 h, each up to a fifth longer:
// ten attempts take about a day.
func standardBackoff(attempt int, u float64) time.Duration {
	const most = 6 * time.Hour
	d := 5 * time.Second
	for range attempt - 1 {
		d = min(4*d, most)
	}
	return d + time.Duration(u*float64(d)/5)
}

// takenFor is how long a process has a delivery to itself.
const takenFor = time.Minute

// Hooks makes deliveries.
type Hooks struct {
	engine  Engine
	store   Store
	options Options
	sender  *sender
	secret  webhook.Secret // set before Run begins

	passed atomic.Uint64 // deliveries were made of all ends up to this event, here or elsewhere

	mu     sync.Mutex
	known  map[string]*entry // outstanding deliveries; guarded by mu
	hosts  map[string]*host  // guarded by mu
	active [paces]int        // requests under way, by the pace of their hosts; guarded by mu
	idle   int               // hosts to which nothing goes; guarded by mu
	totals Totals            // guarded by mu
	wake   chan struct{}     // there may be something to send
	room   chan struct{}     // something was settled
}

// Totals count since the start of the process.
type Totals struct {
	Delivered, Failed, Dead uint64 // deliveries; attempts without success; deliveries given up
	Outstanding             int
}

// New makes deliveries over an engine and its store. Nothing happens before
// [Hooks.Run].
func New(e Engine, s Store, o Options) *Hooks {
	o = o.withDefaults()
	return &Hooks{
		engine: e, store: s, options: o, sender: newSender(o.Allow, o.Within),
		known: map[string]*entry{}, hosts: map[string]*host{},
		wake: make(chan struct{}, 1), room: make(chan struct{}, 1),
	}
}

// Totals tells how deliveries go.
func (h *Hooks) Totals() Totals {
	h.mu.Lock()
	defer h.mu.Unlock()
	t := h.totals
	t.Outstanding = len(h.known)
	return t
}

// Prepare makes sure that there is a cursor and a secret. Jobs that end after it
// are told of, also if the process dies before [Hooks.Run] gets to them.
func (h *Hooks) Prepare(ctx context.Context) error {
	if _, _, err := h.cursor(ctx); err != nil {
		return fmt.Errorf("prepare webhooks: %w", err)
	}
	secret, err := h.Secret(ctx)
	if err != nil {
		return fmt.Errorf("prepare webhooks: %w", err)
	}
	h.secret = secret
	return nil
}

// Run delivers until the context ends, which is a clean stop: requests under way
// are then broken off and made again by the next run.
func (h *Hooks) Run(ctx context.Context) error {
	var broken error // which no waiting would mend
	err := h.persist(ctx, "webhooks", func(ctx context.Context) error {
		err := h.Prepare(ctx)
		if err != nil && !errors.Is(err, gq.ErrUnavailable) {
			broken = err
			return nil
		}
		return err
	})
	switch {
	case ctx.Err() != nil:
		return nil
	case err != nil || broken != nil:
		return errors.Join(err, broken)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer h.sender.close()
	var wait sync.WaitGroup
	defer wait.Wait()
	failed := make(chan error, 3)
	for _, loop := range []func(context.Context) error{h.ingest, h.scan, h.dispatch} {
		wait.Go(func() { failed <- loop(ctx) })
	}
	err = <-failed
	cancel()
	if err != nil {
		return fmt.Errorf("webhooks: %w", err)
	}
	return nil
}

// persist repeats a step that fails, until it succeeds, the context ends or the
// store is gone for good.
func (h *Hooks) persist(ctx context.Context, what string, step func(ctx context.Context) error) error {
	pause := 100 * time.Millisecond
	for {
		err := step(ctx)
		switch {
		case err == nil || ctx.Err() != nil:
			return nil //nolint:nilerr // the end of the context is a clean stop
		case errors.Is(err, gq.ErrClosed) || errors.Is(err, gq.ErrStoreFailed):
			return err
		}
		h.options.Log.Warn(what, "event", "webhook_error", "error", err)
		if !sleep(ctx, pause) {
			return nil
		}
		pause = min(2*pause, 10*time.Second)
	}
}

func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

func wakeUp(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

func jitter() float64 { return rand.Float64() } //nolint:gosec // spreads load
