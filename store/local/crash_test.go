package local

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/internal/testing/race"
	"github.com/gopherqueue/gq/internal/testing/spec"
	"github.com/gopherqueue/gq/machine"
	"github.com/gopherqueue/gq/store"
)

// lineage is how many power cuts one disk goes through. Then the run continues with a
// new disk, so that it does not slow down.
const lineage = 8

// powerCuts is how many simulated power cuts a run makes.
func powerCuts() int {
	if race.Share() {
		return 80
	}
	return 1000
}

// TestPowerCut cuts the power repeatedly while callers work, and checks after each cut
// that no acknowledged change is missing. What an answer showed counts as acknowledged
// too.
func TestPowerCut(t *testing.T) {
	if testing.Short() {
		t.Skip("opens hundreds of stores")
	}
	t.Parallel() // runs with TestModelOnDisk, which mostly waits for the disk
	spec.Covers(t, "Q-01", "Q-03", "Q-04", "Q-66", "J-09")
	h := newCrashHarness(t, rand.Uint64(), false)
	cuts := powerCuts()
	for i := range cuts {
		if i%lineage == 0 && i > 0 {
			h.renew()
		}
		h.cut()
	}
	h.close()
	t.Logf("%d cuts, %d acknowledged operations, %d of them on jobs that had to survive a cut, %d unsynced batches lost",
		cuts, h.acks, h.survived, h.lostInFlight)
	if h.acks < cuts || h.survived < cuts || h.lostInFlight == 0 {
		t.Errorf("the run provoked too little: it proves nothing")
	}
}

// TestPowerCutCatchesEarlyAcknowledgement is the negative control: the harness must
// detect a store that answers before the sync.
func TestPowerCutCatchesEarlyAcknowledgement(t *testing.T) {
	h := newCrashHarness(t, rand.Uint64(), true)
	defer h.close()
	for range 200 {
		h.cut()
		if h.losses > 0 {
			return
		}
	}
	t.Error("200 power cuts did not expose a store that acknowledges before it syncs")
}

// crashHarness runs a workload on a file system that loses everything unsynced.
type crashHarness struct {
	t      *testing.T
	rng    *rand.Rand
	fs     *vfs.MemFS
	over   func(vfs.FS) vfs.FS // wraps fs for the store; nil is fs itself
	store  *Store
	early  bool // planted defect: acknowledge before the sync
	clock  *stepClock
	worker int

	mu      sync.Mutex
	jobs    map[gq.JobID]*witness
	seen    map[uint64]gq.Event // events that a reader got
	lastSeq uint64

	acks, survived, lostInFlight, losses int
}

// witness is what callers know about a job.
type witness struct {
	state   gq.State // as last acknowledged
	pending bool     // a call about it is running
}

type stepClock struct {
	mu  sync.Mutex
	now time.Time
}

func (c *stepClock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(time.Millisecond)
	return c.now
}

func newCrashHarness(t *testing.T, seed uint64, early bool) *crashHarness {
	t.Logf("seed %d", seed)
	h := &crashHarness{
		t: t, rng: rand.New(rand.NewPCG(seed, 0)), fs: vfs.NewCrashableMem(), early: early,
		clock: &stepClock{now: time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)},
		jobs:  map[gq.JobID]*witness{}, seen: map[uint64]gq.Event{},
	}
	h.open()
	return h
}

func (h *crashHarness) open() {
	fs := vfs.FS(h.fs)
	if h.over != nil {
		fs = h.over(fs)
	}
	s, err := open("db", Options{fs: fs, Config: store.Config{Clock: h.clock}})
	if err != nil {
		h.t.Fatalf("reopen: %v", err)
	}
	s.early.Store(h.early)
	h.store = s
}

// renew continues with an empty disk.
func (h *crashHarness) renew() {
	h.close()
	h.fs = vfs.NewCrashableMem()
	h.jobs, h.seen, h.lastSeq = map[gq.JobID]*witness{}, map[uint64]gq.Event{}, 0
	h.open()
}

func (h *crashHarness) close() {
	if err := h.store.Close(); err != nil {
		h.t.Errorf("close: %v", err)
	}
}

// cut runs callers, cuts the power while they work, reopens what survived and checks
// it.
func (h *crashHarness) cut() {
	ctx := context.Background()
	stop := make(chan struct{})
	callers, ready := h.work(ctx, stop)

	// Cut after a random number of answers, whatever is running then.
	for range 1 + h.rng.IntN(30) {
		<-ready
	}
	known, seen := h.snapshot()
	clone := h.fs.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: h.rng.IntN(3) * 30, RNG: rand.New(rand.NewPCG(h.rng.Uint64(), 2))})
	close(stop)
	callers.Wait()
	h.close()

	h.fs = clone
	h.open()
	h.check(ctx, known, seen)
}

// work starts callers that continue until they are stopped or the store returns an
// error. ready receives a value after each answer unless it is full.
func (h *crashHarness) work(ctx context.Context, stop chan struct{}) (callers *sync.WaitGroup, ready chan struct{}) {
	callers = new(sync.WaitGroup)
	const crews = 4
	ready = make(chan struct{}, crews*64)
	for range crews {
		h.worker++
		crew := &crew{h: h, rng: rand.New(rand.NewPCG(h.rng.Uint64(), 1)), name: fmt.Sprintf("w%d", h.worker)}
		callers.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				if crew.step(ctx) != nil {
					return
				}
				select {
				case ready <- struct{}{}:
				default:
				}
			}
		})
	}
	callers.Go(func() { h.watch(ctx, stop) })
	return callers, ready
}

// snapshot copies what has been acknowledged so far. A job with a running call may be
// found in either state.
func (h *crashHarness) snapshot() (map[gq.JobID]witness, map[uint64]gq.Event) {
	h.mu.Lock()
	defer h.mu.Unlock()
	known := make(map[gq.JobID]witness, len(h.jobs))
	for id, w := range h.jobs {
		known[id] = *w
	}
	seen := make(map[uint64]gq.Event, len(h.seen))
	maps.Copy(seen, h.seen)
	return known, seen
}

// watch reads events and notes what it got.
func (h *crashHarness) watch(ctx context.Context, stop chan struct{}) {
	for {
		select {
		case <-stop:
			return
		default:
		}
		h.mu.Lock()
		after := h.lastSeq
		h.mu.Unlock()
		events, err := h.store.Events(ctx, after, 100)
		if err != nil {
			return
		}
		h.mu.Lock()
		for _, e := range events {
			h.seen[e.Seq] = e
			h.lastSeq = e.Seq
		}
		h.mu.Unlock()
	}
}

// check compares the reopened store with what was acknowledged.
func (h *crashHarness) check(ctx context.Context, known map[gq.JobID]witness, seen map[uint64]gq.Event) {
	refs := make([]store.Ref, 0, len(known))
	for id := range known {
		refs = append(refs, store.Ref{Job: id})
	}
	found, err := h.store.Get(ctx, refs, gq.WithPayload|gq.WithResult)
	if err != nil {
		h.t.Fatalf("read after reopening: %v", err)
	}
	jobs := map[gq.JobID]*witness{}
	for i, f := range found {
		w := known[refs[i].Job]
		switch {
		case f.Err != nil && w.state.ID.IsZero(): // its submission was not answered
			h.lostInFlight++
			continue
		case f.Err != nil:
			h.lost("job %s, acknowledged as %s: %v", refs[i].Job, w.state.Status, f.Err)
			continue
		case behind(f.State, w.state):
			h.lost("job %s was acknowledged as %s attempt %d version %d and is %s attempt %d version %d",
				refs[i].Job, w.state.Status, w.state.Attempt, w.state.Version, f.State.Status, f.State.Attempt, f.State.Version)
			continue
		}
		h.survived++
		if f.State.Live() {
			jobs[f.State.ID] = &witness{state: f.State}
		}
	}
	last, err := h.store.Events(ctx, 0, 1_000_000)
	if err != nil {
		h.t.Fatalf("events after reopening: %v", err)
	}
	for seq, e := range seen {
		if seq > uint64(len(last)) {
			h.lost("event %d was shown to a reader and is gone", seq)
		} else if got := last[seq-1]; got.Seq != seq || got.Job != e.Job || got.Type != e.Type || !got.Time.Equal(e.Time) {
			h.lost("event %d was shown as %s of %s and is %s of %s", seq, e.Type, e.Job, got.Type, got.Job)
		}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.jobs, h.seen, h.lastSeq = jobs, map[uint64]gq.Event{}, uint64(len(last))
}

func (h *crashHarness) lost(format string, args ...any) {
	h.losses++
	if !h.early {
		h.t.Errorf("lost: "+format, args...)
	}
}

// behind reports whether a state is older than the one acknowledged.
func behind(got, acknowledged gq.State) bool {
	if acknowledged.ID.IsZero() {
		return false
	}
	if acknowledged.Status.Terminal() {
		return got.Status != acknowledged.Status
	}
	return got.Version < acknowledged.Version || got.Attempt < acknowledged.Attempt ||
		got.UpdatedAt.Before(acknowledged.UpdatedAt)
}

// crew is one caller.
type crew struct {
	h    *crashHarness
	rng  *rand.Rand
	name string
	held []gq.State
}

// step makes one random call. Its error means that the store is closed.
func (c *crew) step(ctx context.Context) error {
	switch n := c.rng.IntN(10); {
	case n == 0 && c.rng.IntN(2) == 0:
		return c.submitPack(ctx)
	case n < 4:
		return c.submit(ctx)
	case n < 7 || len(c.held) == 0:
		return c.claim(ctx)
	default:
		return c.settle(ctx)
	}
}

func (c *crew) submit(ctx context.Context) error {
	var raw [16]byte
	for i := range raw {
		raw[i] = byte(c.rng.Uint32())
	}
	data := raw[:]
	if c.rng.IntN(16) == 0 { // several blocks, so that a sync may cover only a part of it
		data = make([]byte, c.rng.IntN(3*blockBytes))
		copy(data, raw[:])
	}
	s := gq.Spec{ID: machine.NewJobID(raw), Type: "crash", Payload: gq.Payload{Data: data, ContentType: "application/octet-stream"}}.WithDefaults()
	c.h.set(s.ID, gq.State{}, true)
	out, err := c.h.store.Insert(ctx, []store.Group{store.One(s)})
	if err == nil {
		err = out[0].Err
	}
	if err != nil {
		return err
	}
	c.h.set(s.ID, out[0].Jobs[0].State, false)
	return nil
}

// submitPack submits jobs that are alike, which share a record.
func (c *crew) submitPack(ctx context.Context) error {
	groups := make([]store.Group, packLeast+c.rng.IntN(packLeast))
	for i := range groups {
		var raw [16]byte
		for i := range raw {
			raw[i] = byte(c.rng.Uint32())
		}
		spec := gq.Spec{ID: machine.NewJobID(raw), Type: "crash", Payload: gq.Payload{Data: []byte("1")}}.WithDefaults()
		groups[i] = store.Group{Jobs: []gq.Spec{spec}, Mint: true}
	}
	out, err := c.h.store.Insert(ctx, groups)
	if err != nil {
		return err
	}
	for i := range out {
		if out[i].Err != nil {
			return out[i].Err
		}
		c.h.set(out[i].Jobs[0].State.ID, out[i].Jobs[0].State, false)
	}
	return nil
}

func (c *crew) claim(ctx context.Context) error {
	out, err := c.h.store.Claim(ctx, []store.Claim{{
		Filter: store.Filter{Queues: []string{gq.DefaultQueue}}, N: 1 + c.rng.IntN(3), Worker: c.name,
	}})
	if err != nil {
		return err
	}
	for _, j := range out[0].Jobs {
		c.held = append(c.held, j.State)
		c.h.set(j.State.ID, j.State, false)
	}
	return out[0].Err
}

func (c *crew) settle(ctx context.Context) error {
	i := c.rng.IntN(len(c.held))
	s := c.held[i]
	c.held = append(c.held[:i], c.held[i+1:]...)
	ref := s.Lease.Ref()
	u := store.Update{Ref: store.Ref{Job: s.ID}, Result: []byte("done"), Apply: func(s gq.State, now time.Time) (gq.State, []gq.Event, error) {
		return machine.Complete(s, ref, []byte("done"), now)
	}}
	if c.rng.IntN(3) == 0 {
		u = store.Update{Ref: store.Ref{Lease: ref.ID}, Apply: func(s gq.State, now time.Time) (gq.State, []gq.Event, error) {
			return machine.Fail(s, ref, gq.Failure{Category: gq.CategoryTemporary, Message: "again"}, machine.Draw{}, now)
		}}
	}
	out, err := c.h.store.Update(ctx, []store.Update{u})
	if err != nil {
		return err
	}
	if out[0].Err != nil && !errors.Is(out[0].Err, gq.ErrStaleLease) {
		c.h.t.Errorf("settle %s: %v", s.ID, out[0].Err)
	}
	if out[0].Err == nil {
		c.h.set(s.ID, out[0].State, false)
	}
	return nil
}

// set notes what an answer says about a job.
func (h *crashHarness) set(id gq.JobID, s gq.State, pending bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !pending {
		h.acks++
	}
	if w := h.jobs[id]; w != nil && behind(s, w.state) {
		return // a later answer was noted first
	}
	h.jobs[id] = &witness{s, pending}
}
