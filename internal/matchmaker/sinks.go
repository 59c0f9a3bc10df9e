package matchmaker

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/internal/matchmaker/audit"
	"github.com/gopherqueue/gq/internal/retry"
	"github.com/gopherqueue/gq/internal/wake"
	"github.com/gopherqueue/gq/match"
	"github.com/gopherqueue/gq/store"
)

// Deliveries to sinks. The records of a sink wait in the store: claims and rulings as
// documents of their own, written in the commit of what they tell of, and rounds as the
// audit log, with a cursor. One process at a time delivers to a sink; if it dies, another
// one continues after ownFor and may repeat the last batch.
const (
	batchSize  = 100              // records of one call
	sendWithin = 30 * time.Second // time limit of one call
	ownFor     = time.Minute      // longer than one call and its commit take
	lookEvery  = 15 * time.Second // for records that other processes left
	retryFirst = time.Second      // after a call that failed, then twice as long each time
	retryMost  = time.Minute
)

// sinkState is the document of a sink.
type sinkState struct {
	Owner string    `json:"owner,omitzero"` // the process that delivers
	Until time.Time `json:"until,omitzero"` // while it may do so alone
	After uint64    `json:"after,omitzero"` // rounds: delivered up to this one
}

// batch is what one call delivers. The zero value is nothing.
type batch struct {
	n     int
	send  func(ctx context.Context) error
	done  []store.Doc // to be deleted afterwards
	after uint64      // rounds: the new cursor
}

// source reads the records of a sink that were not delivered yet. It is nil if the sink is
// off.
type source interface {
	next(ctx context.Context, s *sinkState) (batch, error)
}

// delivery delivers to one sink.
type delivery struct {
	name   string
	source source
	woken  chan struct{}

	sent, failed atomic.Uint64 // records; calls
	stuck        atomic.Bool   // the last call failed

	// Guarded by mu, which is held during a step.
	mu       sync.Mutex
	state    sinkState
	version  uint64 // version of its document; 0 if it was not read
	failures int    // in a row
}

func newDelivery(name string, s source) *delivery {
	return &delivery{name: name, source: s, woken: make(chan struct{}, 1)}
}

// wake makes the delivery look for records.
func (v *delivery) wake() {
	if v.source != nil {
		wake.Up(v.woken)
	}
}

// deliveries lists those that are on.
func (d *Dispatcher) deliveries() (list []*delivery) {
	for _, v := range []*delivery{d.claims, d.rulings, d.rounds} {
		if v.source != nil {
			list = append(list, v)
		}
	}
	return list
}

// deliverAll delivers until the context ends. The caller calls wait at its own end.
func (d *Dispatcher) deliverAll(ctx context.Context) (wait func()) {
	ctx, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	for _, v := range d.deliveries() {
		running.Go(func() { d.deliverLoop(ctx, v) })
	}
	return func() { cancel(); running.Wait() }
}

func (d *Dispatcher) deliverLoop(ctx context.Context, v *delivery) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			v.release(d)
			return
		case <-timer.C:
		case <-v.woken:
			if v.stuck.Load() {
				continue // it waits for its next attempt
			}
		}
		pause, err := d.deliverOne(ctx, v)
		switch {
		case ctx.Err() != nil:
			continue
		case errors.Is(err, gq.ErrClosed) || errors.Is(err, gq.ErrStoreFailed):
			return // rounds end for the same reason, and say so
		case err != nil:
			d.log.Warn("a sink of matching did not accept its records; they are kept and sent again", "sink", v.name, "retry_in", pause.Round(time.Millisecond), "error", err)
		}
		timer.Reset(pause)
	}
}

// Deliver makes every sink accept what waits for it, or returns the first error. Run does
// this by itself; simulations can too.
func (d *Dispatcher) Deliver(ctx context.Context) error {
	for _, v := range d.deliveries() {
		for {
			pause, err := d.deliverOne(ctx, v)
			if err != nil {
				return fmt.Errorf("deliver to the sink %s: %w", v.name, err)
			}
			if pause > 0 {
				break
			}
		}
	}
	return nil
}

// deliverOne delivers one batch and returns how long to wait before the next.
func (d *Dispatcher) deliverOne(ctx context.Context, v *delivery) (time.Duration, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	pause, err := v.step(ctx, d)
	if err != nil {
		v.failures++
		v.failed.Add(1)
		v.stuck.Store(true)
		return retry.Delay(v.failures, retryFirst, retryMost), err
	}
	v.failures = 0
	v.stuck.Store(false)
	return pause, nil
}

func (v *delivery) step(ctx context.Context, d *Dispatcher) (time.Duration, error) {
	if v.version == 0 {
		if err := v.begin(ctx, d); err != nil {
			return 0, err
		}
	}
	before := v.state.After
	some, err := v.source.next(ctx, &v.state)
	if err != nil || some.n == 0 {
		return lookEvery, err
	}
	owned, err := v.own(ctx, d)
	if err != nil || !owned {
		return lookEvery, err
	}
	if v.state.After != before {
		return 0, nil // another process has delivered some of them
	}
	within, cancel := context.WithTimeout(ctx, sendWithin)
	err = some.send(within)
	cancel()
	if err != nil {
		return 0, err
	}
	next := v.state
	next.Until, next.After = d.engine.Now().Add(ownFor).UTC(), max(next.After, some.after)
	if err := v.put(ctx, d, next, some.done); err != nil {
		v.version = 0 // it is read again
		if errors.Is(err, gq.ErrConflict) {
			return 0, nil // another process delivered the same; repeats are allowed
		}
		return 0, err
	}
	v.sent.Add(uint64(some.n))
	return 0, nil
}

// begin reads the document of the sink, or creates it: rounds are delivered from the first
// one after that.
func (v *delivery) begin(ctx context.Context, d *Dispatcher) error {
	var s sinkState
	version, err := d.find(ctx, kindSink, v.name, &s)
	if err != nil {
		return err
	}
	if v.state, v.version = s, version; version > 0 {
		return nil
	}
	h, err := d.headNow(ctx)
	if err != nil {
		return err
	}
	err = v.put(ctx, d, sinkState{After: h.Round}, nil)
	if errors.Is(err, gq.ErrConflict) { // another process created it
		return v.begin(ctx, d)
	}
	return err
}

// own makes this process the one that delivers, unless another one is.
func (v *delivery) own(ctx context.Context, d *Dispatcher) (bool, error) {
	now := d.engine.Now()
	if v.state.Owner == v.owner(d) && v.state.Until.Sub(now) > ownFor/2 {
		return true, nil
	}
	var s sinkState
	version, err := d.find(ctx, kindSink, v.name, &s)
	if err != nil {
		return false, err
	}
	v.state, v.version = s, version
	if s.Owner != v.owner(d) && s.Until.After(now) && !d.options.Exclusive {
		return false, nil
	}
	s.Owner, s.Until = v.owner(d), now.Add(ownFor).UTC()
	err = v.put(ctx, d, s, nil)
	if errors.Is(err, gq.ErrConflict) {
		return false, nil
	}
	return err == nil, err
}

func (v *delivery) owner(d *Dispatcher) string { return d.process }

// release lets another process continue at once.
func (v *delivery) release(d *Dispatcher) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.version == 0 || v.state.Owner != v.owner(d) {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	next := v.state
	next.Owner, next.Until = "", time.Time{}
	_ = v.put(ctx, d, next, nil) // otherwise the time passes
}

// put writes the document of the sink and deletes delivered records.
func (v *delivery) put(ctx context.Context, d *Dispatcher, s sinkState, done []store.Doc) error {
	made, err := doc(kindSink, v.name, v.version, s)
	if err != nil {
		return err
	}
	docs := append([]store.Doc{made}, done...)
	versions, err := d.store.PutDocs(ctx, docs)
	if err != nil {
		return err
	}
	v.state, v.version = s, versions[0]
	return nil
}

// outboxSource reads records that are documents.
type outboxSource[T any] struct {
	store store.Documents
	kind  string
	sink  match.Sink[T]
}

func outbox[T any](d *Dispatcher, kind string, sink match.Sink[T]) source {
	if sink == nil {
		return nil
	}
	return &outboxSource[T]{d.store, kind, sink}
}

func (o *outboxSource[T]) next(ctx context.Context, _ *sinkState) (batch, error) {
	docs, err := o.store.Docs(ctx, o.kind, "", batchSize)
	if err != nil || len(docs) == 0 {
		return batch{}, err
	}
	records := make([]T, len(docs))
	for i := range docs {
		if err := read(docs[i], &records[i]); err != nil {
			return batch{}, err
		}
		docs[i].Data = nil
	}
	return batch{n: len(records), done: docs, send: func(ctx context.Context) error { return o.sink(ctx, records) }}, nil
}

// roundSource reads rounds from the audit log.
type roundSource struct {
	dispatcher *Dispatcher
	follower   audit.Follower
	sink       match.Sink[match.RoundProof]
}

func newRounds(d *Dispatcher, sink match.Sink[match.RoundProof]) source {
	if sink == nil {
		return nil
	}
	return &roundSource{dispatcher: d, sink: sink}
}

func (r *roundSource) next(ctx context.Context, s *sinkState) (out batch, err error) {
	d := r.dispatcher
	h, err := d.headNow(ctx)
	if err != nil || h.Round <= s.After {
		return out, err
	}
	var records []match.RoundProof
	for n := s.After + 1; n <= h.Round && len(records) < batchSize; n++ {
		round, err := r.follower.Read(ctx, d.store, n)
		if errors.Is(err, gq.ErrNotFound) && len(records) == 0 {
			first, err := audit.FirstFrom(ctx, d.store, n)
			if err != nil || first == 0 {
				return out, err
			}
			d.log.Error("records of rounds were deleted before their sink accepted them", "sink", "rounds", "from", n, "to", first-1)
			n = first - 1
			continue
		}
		if err != nil {
			return out, err
		}
		proof, err := proofOf(&round)
		if err != nil {
			return out, err
		}
		records = append(records, proof)
		out.after = n
	}
	out.n, out.send = len(records), func(ctx context.Context) error { return r.sink(ctx, records) }
	return out, nil
}

// proofOf returns what a round's sink is told.
func proofOf(r *audit.Round) (match.RoundProof, error) {
	input := sha256.New()
	out := json.NewEncoder(input) // as gq match replay --input does
	out.SetEscapeHTML(false)
	out.SetIndent("", "  ")
	if err := out.Encode(r.Input); err != nil {
		return match.RoundProof{}, fmt.Errorf("encode the input of round %d: %w", r.Round, err)
	}
	return match.RoundProof{
		Round: r.Round, Beacon: match.Beacon{Chain: r.Input.Chain, Epoch: r.Input.Epoch, Height: r.Input.Height, Beacon: r.Input.Beacon},
		Now: r.Input.Now, Seed: r.Result.Seed, InputDigest: hex.EncodeToString(input.Sum(nil)), OrderDigest: r.OrderDigest,
		Assignments: r.Result.Assignments, Requeued: r.Result.Requeued,
	}, nil
}
