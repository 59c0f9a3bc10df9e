// Package delivery notifies callback URLs that their jobs have ended.
//
// # The outbox
//
// The event log is the outbox. A cursor, stored as a document, records how far it has
// been read. The end of a job with a callback becomes a delivery, another document, in
// the commit that moves the cursor. So none is lost or created twice, however many
// processes do this and whenever they crash. A delivery is outstanding until its receiver
// responds with 2xx or it is given up. It is sent at least once; the receiver recognizes
// repeats by the Webhook-Id.
//
// # Slow receivers
//
// A slow or dead receiver delays no other: only a few requests per host run at once, one
// to a slow host, and all slow hosts together get a quarter of the requests. The number
// of outstanding deliveries is bounded. Further deliveries to a host at its limit are
// dead-lettered; at the total limit, reading the log pauses until there is room.
//
// # Hostile receivers
//
// A receiver can do no more than respond: see sender.go. Only the response status is
// used.
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

// Engine is the part of a queue that deliveries need.
type Engine interface {
	Follow(ctx context.Context, after uint64, f func([]gq.Event) error) error
	LastEvent(ctx context.Context) (uint64, error)
}

// Store is the part of a store that deliveries need; every store implements it.
type Store interface {
	Get(ctx context.Context, refs []store.Ref, parts gq.Parts) ([]store.Found, error)
	PutDocs(ctx context.Context, docs []store.Doc) ([]uint64, error)
	Doc(ctx context.Context, kind, name string) (store.Doc, error)
	Docs(ctx context.Context, kind, after string, limit int) ([]store.Doc, error)
}

// Options configure deliveries. The zero value selects the defaults.
type Options struct {
	Allow     Allow          // what callbacks may reach besides the public internet
	Secret    webhook.Secret // signs deliveries; nil uses one kept in the store
	Exclusive bool           // no other process uses the store, so no delivery is in progress elsewhere
	Log       *slog.Logger   // nil discards

	Attempts    int                                        // of one delivery; 0 is 10
	Backoff     func(attempt int, u float64) time.Duration // before the next attempt; nil is standardBackoff
	Concurrency int                                        // concurrent requests; 0 is 64
	MaxPerHost  int                                        // outstanding deliveries to one host; 0 is 10,000
	MaxTotal    int                                        // outstanding deliveries; 0 is 100,000
	KeepDone    time.Duration                              // how long delivered ones are kept; 0 is 24 h
	KeepDead    time.Duration                              // how long those given up are kept; 0 is 30 days
	Scan        time.Duration                              // interval of scans for deliveries left by other processes; 0 is 15 s
	Within      time.Duration                              // limit for connecting, the request and the response header; 0 is 10 s
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

// standardBackoff is 5 s, 20 s, 80 s, … up to 6 h, each with up to 20 % added: ten
// attempts take about a day.
func standardBackoff(attempt int, u float64) time.Duration {
	const most = 6 * time.Hour
	d := 5 * time.Second
	for range attempt - 1 {
		d = min(4*d, most)
	}
	return d + time.Duration(u*float64(d)/5)
}

// takenFor is how long a process owns a delivery that it takes.
const takenFor = time.Minute

// Hooks creates and sends deliveries.
type Hooks struct {
	engine  Engine
	store   Store
	options Options
	sender  *sender
	secret  webhook.Secret // set before Run begins

	passed atomic.Uint64 // all jobs that ended up to this event have their deliveries, whoever created them

	mu     sync.Mutex
	known  map[string]*entry // outstanding deliveries; guarded by mu
	hosts  map[string]*host  // guarded by mu
	active [paces]int        // requests in progress, by the pace of their hosts; guarded by mu
	idle   int               // hosts without outstanding deliveries; guarded by mu
	totals Totals            // guarded by mu
	wake   chan struct{}     // signals that there may be something to send
	room   chan struct{}     // signals that a delivery has ended
}

// Totals are counters since the start of the process.
type Totals struct {
	Delivered, Failed, Dead uint64 // deliveries; attempts without success; deliveries given up
	Outstanding             int
}

// New creates Hooks for an engine and its store. Nothing happens before [Hooks.Run].
func New(e Engine, s Store, o Options) *Hooks {
	o = o.withDefaults()
	return &Hooks{
		engine: e, store: s, options: o, sender: newSender(o.Allow, o.Within),
		known: map[string]*entry{}, hosts: map[string]*host{},
		wake: make(chan struct{}, 1), room: make(chan struct{}, 1),
	}
}

// Totals returns the counters.
func (h *Hooks) Totals() Totals {
	h.mu.Lock()
	defer h.mu.Unlock()
	t := h.totals
	t.Outstanding = len(h.known)
	return t
}

// Prepare creates the cursor and the secret if they do not exist. Every job that ends
// afterwards gets its delivery, even if the process dies before [Hooks.Run] sees it.
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

// Run delivers until the context ends, and then returns nil. It interrupts requests in
// progress; the next run repeats them.
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

// retry repeats a step until it succeeds, the context ends or the store has failed
// permanently.
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
