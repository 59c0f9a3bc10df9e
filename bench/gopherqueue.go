package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/engine"
	"github.com/gopherqueue/gq/store"
	"github.com/gopherqueue/gq/store/postgres"
	"github.com/gopherqueue/gq/worker"
)

// gopherQueue is the queue of this repository: store/postgres through engine and
// worker, as users run it. Audit events and fencing cannot be turned off.
type gopherQueue struct{ slots int }

func (gopherQueue) name() string    { return "GopherQueue" }
func (gopherQueue) can(string) bool { return true }

// timed is a store that times its non-empty claims.
type timed struct {
	*postgres.Store
	claims *times
}

func (s timed) Claim(ctx context.Context, claims []store.Claim) ([]store.Claimed, error) {
	start := time.Now()
	out, err := s.Store.Claim(ctx, claims)
	took := time.Since(start)
	for i := range out {
		if len(out[i].Jobs) > 0 {
			s.claims.add(took)
			break
		}
	}
	return out, err
}

// node is an engine on a store.
type node struct {
	*engine.Engine
	store  io.Closer
	claims *times
	cancel context.CancelFunc
	wg     sync.WaitGroup
	errs   [2]error
}

func openNode(ctx context.Context, url string) (*node, error) {
	s, err := postgres.Open(ctx, url, store.Config{})
	if err != nil {
		return nil, err
	}
	claims := new(times)
	e, err := engine.New(timed{s, claims}, engine.Options{})
	return &node{Engine: e, store: s, claims: claims}, err
}

// newWorker returns a worker that calls handle with the number of each job.
func newWorker(q worker.Queue, slots int, handle func(i int)) *worker.Worker {
	w := worker.New(q, worker.Config{Slots: slots, Logger: slog.New(slog.DiscardHandler)})
	w.HandleFunc("noop", func(_ context.Context, run *worker.Run) error {
		i, err := number(run.Payload().Data)
		if err == nil {
			handle(i)
		}
		return err
	})
	return w
}

// work starts the engine and a worker.
func (n *node) work(ctx context.Context, slots int, handle func(i int)) error {
	w := newWorker(n.Engine, slots, handle)
	ctx, n.cancel = context.WithCancel(ctx)
	n.wg.Go(func() { n.errs[0] = n.Run(ctx) })
	n.wg.Go(func() { n.errs[1] = w.Run(ctx) })
	return nil
}

func (n *node) close() error {
	if n.cancel != nil {
		n.cancel()
	}
	n.wg.Wait()
	return errors.Join(n.errs[0], n.errs[1], n.store.Close())
}

func noop(i int) gq.Spec {
	return gq.Spec{Type: "noop", Payload: gq.Payload{Data: payload(i)}}
}

func (n *node) submit(ctx context.Context, i int) error {
	_, err := n.Submit(ctx, noop(i))
	return err
}

func (n *node) submitMany(ctx context.Context, from, count int) error {
	return submitMany(ctx, n, from, count)
}

// submitMany submits jobs in one call.
func submitMany(ctx context.Context, q interface {
	SubmitBatch(ctx context.Context, specs []gq.Spec) ([]gq.SubmitResult, error)
}, from, count int,
) error {
	specs := make([]gq.Spec, count)
	for i := range specs {
		specs[i] = noop(from + i)
	}
	answers, err := q.SubmitBatch(ctx, specs)
	for _, a := range answers {
		err = errors.Join(err, a.Err)
	}
	return err
}

func (g gopherQueue) run(ctx context.Context, t task) (out outcome, err error) {
	n, err := openNode(ctx, t.URL)
	if err != nil {
		return out, err
	}
	defer func() { err = errors.Join(err, n.close()) }()
	fill := func() error {
		return t.inBatches(func(from, count int) error { return n.submitMany(ctx, from, count) })
	}
	switch t.Row {
	case "bulk":
		t.begin()
		start := time.Now()
		err := fill()
		return outcome{Jobs: t.Jobs, Seconds: time.Since(start).Seconds()}, err
	case "single":
		return t.singles(func(i int) error { return n.submit(ctx, i) })
	case "drain", "backlog":
		if err := fill(); err != nil {
			return out, err
		}
		if err := settle(ctx, t.URL); err != nil {
			return out, err
		}
		return g.drain(ctx, n, t)
	case "latency":
		l := newLatencies(t.Jobs)
		if err := n.work(ctx, g.slots, l.started); err != nil {
			return out, err
		}
		time.Sleep(time.Second)
		return l.measure(t, func(i int) error { return n.submit(ctx, i) })
	case "pinned":
		if err := n.work(ctx, g.slots, func(int) {}); err != nil {
			return out, err
		}
		return t.steady(ctx, n.claims, func(k int) error { return n.submitMany(ctx, 0, k) })
	case "idle":
		err := n.work(ctx, g.slots, func(int) {})
		time.Sleep(seconds(t.Seconds))
		return out, err
	}
	return out, fmt.Errorf("row %q is unknown", t.Row)
}

func (g gopherQueue) drain(ctx context.Context, n *node, t task) (outcome, error) {
	m := newMeter(t.Jobs, t.Step)
	t.begin()
	m.start()
	if err := n.work(ctx, g.slots, func(int) { m.hit() }); err != nil {
		return outcome{}, err
	}
	if err := m.wait(ctx); err != nil {
		return outcome{}, err
	}
	for {
		counts, err := n.Counts(ctx, gq.DefaultQueue)
		if err != nil {
			return outcome{}, err
		}
		if len(counts) == 1 && counts[0].By[gq.StatusCompleted] >= int64(t.Jobs) {
			break
		}
		time.Sleep(5 * time.Millisecond)
	}
	out := outcome{Jobs: t.Jobs, Seconds: time.Since(m.begin).Seconds()}
	out.First, out.Last = m.ends()
	return out, nil
}
