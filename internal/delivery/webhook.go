// Package delivery tells callback URLs that their jobs have ended.
//
// # The outbox
//
// The event log is the outbox. A cursor, which is a document, says how far it has been read. Every
// end of a job with a callback becomes a delivery, another document, in the same commit that moves
// the cursor, so that none is lost or made twice, however many processes do this and whenever
// they die. A delivery is outstanding until its receiver answers 2xx or it is given up. It is sent
// at least once; the receiver recognises repetitions by the Webhook-Id.
//
// # Slow receivers
//
// A receiver that is slow or gone delays no other: at most a few requests per host are under way,
// one to a slow host, and all slow hosts together get a quarter of the requests. The number of
// outstanding deliveries is bounded. A host with too many has further ones dead-lettered; with too
// many in all, the log is not read on until there is room.
//
// # Hostile receivers
//
// A receiver can only answer: see sender.go. Only the status of its answer is used.
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
	"github.com/gopherqueue/gq/internal/retry"
	"github.com/gopherqueue/gq/store"
	"github.com/gopherqueue/gq/webhook"
)

// Engine is what deliveries need of a queue.
type Engine interface {
	Follow(ctx context.Context, after uint64, f func([]gq.Event) error) error
	LastEvent(ctx context.Context) (uint64, error)
}

// Store is what deliveries need of its store; every store has it.
type Store interface {
	Get(ctx context.Context, refs []store.Ref, parts gq.Parts) ([]store.Found, error)
	PutDocs(ctx context.Context, docs []store.Doc) ([]uint64, error)
	Doc(ctx context.Context, kind, name string) (store.Doc, error)
	Docs(ctx context.Context, kind, after string, limit int) ([]store.Doc, error)
}

// Options configure deliveries. The zero value is the default.
type Options struct {
	Allow     Allow          // what may be reached apart from the public internet
	Secret    webhook.Secret // signs deliveries; nil is one that is kept in the store
	Exclusive bool           // no other process uses the store, so no delivery is under way elsewhere
	Log       *slog.Logger   // nil logs nothing

	Attempts    int                                        // of one delivery; 0 is 10
	Backoff     func(attempt int, u float64) time.Duration // before the next attempt; nil is standardBackoff
	Concurrency int                                        // requests under way; 0 is 64
	MaxPerHost  int                                        // outstanding deliveries to one host; 0 is 10,000
	MaxTotal    int                                        // outstanding deliveries; 0 is 100,000
	KeepDone    time.Duration                              // how long delivered ones are kept; 0 is 24 h
	KeepDead    time.Duration                              // how long those given up are kept; 0 is 30 days
	Scan        time.Duration                              // between looks for deliveries that other processes left; 0 is 15 s
	Within      time.Duration                              // connection, request and the head of the answer; 0 is 10 s
}

func (o Options) withDefaults() Options {
	set := func(n *int, standard int) {
		if *n == 0 {
			*n = standard
		}
	}
	setDuration := func(d *time.Duration, standard time.Duration) {
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
	setDuration(&o.KeepDone, 24*time.Hour)
	setDuration(&o.KeepDead, 30*24*time.Hour)
	setDuration(&o.Scan, 15*time.Second)
	setDuration(&o.Within, sendWithin)
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

// takenFor is how long a process has a delivery for itself.
const takenFor = time.Minute

// Hooks makes deliveries.
type Hooks struct {
	engine  Engine
	store   Store
	options Options
	sender  *sender
	secret  webhook.Secret // set before Run begins

	passed atomic.Uint64 // all ends up to this event have their deliveries, made here or elsewhere

	mu     sync.Mutex
	known  map[string]*entry // outstanding deliveries; guarded by mu
	hosts  map[string]*host  // guarded by mu
	active [paces]int        // requests under way, by the pace of their hosts; guarded by mu
	idle   int               // hosts without outstanding deliveries; guarded by mu
	totals Totals            // guarded by mu
	wake   chan struct{}     // there may be something to send
	room   chan struct{}     // a delivery has ended
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

// Totals counts deliveries.
func (h *Hooks) Totals() Totals {
	h.mu.Lock()
	defer h.mu.Unlock()
	t := h.totals
	t.Outstanding = len(h.known)
	return t
}

// Prepare makes sure that there is a cursor and a secret. Every job that ends after it gets its
// delivery, even if the process dies before [Hooks.Run] reads of it.
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

// Run delivers until the context ends, which is a clean stop: it interrupts requests under way, and
// the next run makes them again.
func (h *Hooks) Run(ctx context.Context) error {
	var broken error // not worth retrying
	err := h.retry(ctx, "webhooks", func(ctx context.Context) error {
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

// retry repeats a step until it succeeds, the context ends or the store has failed for good.
func (h *Hooks) retry(ctx context.Context, what string, step func(ctx context.Context) error) error {
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
		if !retry.Pause(ctx, pause) {
			return nil
		}
		pause = min(2*pause, 10*time.Second)
	}
}

func jitter() float64 { return rand.Float64() } //nolint:gosec // spreads load
