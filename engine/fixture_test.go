package engine_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/engine"
	"github.com/gopherqueue/gq/internal/testing/leaktest"
	"github.com/gopherqueue/gq/internal/testing/pgtest"
	"github.com/gopherqueue/gq/store"
	"github.com/gopherqueue/gq/store/local"
)

// TestMain fails the package if a goroutine outlives its tests.
func TestMain(m *testing.M) { leaktest.Main(pgtest.Tests(m)) }

// fixture is an engine over a store in memory, in a bubble where time passes only when all
// goroutines wait.
type fixture struct {
	*testing.T
	*engine.Engine
	store store.Store
}

// bubble runs a test with a fixture.
func bubble(t *testing.T, f func(t *testing.T, f *fixture)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		t.Helper()
		f(t, newFixture(t, engine.Options{}, nil))
	})
}

// newFixture opens a store and an engine over it, or over the store that wrap returns.
// Inside a bubble, close it in the bubble.
func newFixture(t *testing.T, o engine.Options, wrap func(store.Store) store.Store) *fixture {
	t.Helper()
	s := open(t)
	if wrap != nil {
		s = wrap(s)
	}
	return &fixture{T: t, Engine: newEngine(t, s, o), store: s}
}

func open(t *testing.T) store.Store {
	t.Helper()
	// A short retention: days in a bubble take seconds, since the store has timers.
	return openKept(t, 24*time.Hour)
}

// openKept opens a store with the given retention.
func openKept(t *testing.T, kept time.Duration) store.Store {
	t.Helper()
	s, err := local.OpenMemory(local.Options{Config: store.Config{
		Retention: store.Retention{Completed: kept, Cancelled: kept, Failed: kept, DeadLetter: kept},
	}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("close the store: %v", err)
		}
	})
	return s
}

func newEngine(t *testing.T, s store.Store, o engine.Options) *engine.Engine {
	t.Helper()
	e, err := engine.New(s, o)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// run runs the engine until the test ends.
func (f *fixture) run() {
	f.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- f.Engine.Run(ctx) }()
	f.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			f.Errorf("run: %v", err)
		}
	})
}

// submit submits a job, which must be accepted.
func (f *fixture) submit(s gq.Spec, with ...gq.Option) gq.JobID {
	f.Helper()
	for _, set := range with {
		set(&s)
	}
	if s.Type == "" {
		s.Type = "t"
	}
	out, err := f.Submit(f.Context(), s)
	if err != nil {
		f.Fatalf("submit: %v", err)
	}
	return out.ID()
}

// claim gets n jobs, or fails.
func (f *fixture) claim(n int, more ...func(*gq.ClaimRequest)) []gq.Job {
	f.Helper()
	r := gq.ClaimRequest{Worker: "w", N: max(n, 1)}
	for _, m := range more {
		m(&r)
	}
	jobs, err := f.Claim(f.Context(), r)
	if err != nil {
		f.Fatalf("claim: %v", err)
	}
	if len(jobs) != n {
		f.Fatalf("claimed %d jobs, want %d", len(jobs), n)
	}
	return jobs
}

func (f *fixture) take(more ...func(*gq.ClaimRequest)) (gq.Job, gq.LeaseRef) {
	f.Helper()
	j := f.claim(1, more...)[0]
	return j, j.State.Lease.Ref()
}

// runAt changes the earliest start of a job, which no call of the engine can.
func (f *fixture) runAt(id gq.JobID, after time.Duration) gq.JobID {
	f.Helper()
	updated, err := f.store.Update(f.Context(), []store.Update{{
		Ref: store.Ref{Job: id},
		Apply: func(s gq.State, now time.Time) (gq.State, []gq.Event, error) {
			s.RunAt = now.Add(after)
			return s, nil, nil
		},
	}})
	if err != nil || updated[0].Err != nil {
		f.Fatalf("move the start of %s: %v, %+v", id, err, updated)
	}
	return id
}

func (f *fixture) get(id gq.JobID) gq.Job {
	f.Helper()
	j, err := f.Get(f.Context(), id, gq.WithPayload|gq.WithResult|gq.WithCheckpoint)
	if err != nil {
		f.Fatal(err)
	}
	return j
}

func (f *fixture) status(id gq.JobID, want gq.Status) {
	f.Helper()
	if got := f.get(id).State.Status; got != want {
		f.Errorf("job %s is %s, want %s", id, got, want)
	}
}

func (f *fixture) sweep() engine.SweepReport {
	f.Helper()
	r, err := f.Sweep(f.Context(), time.Now())
	if err != nil {
		f.Fatal(err)
	}
	return r
}

func (f *fixture) putQueue(q gq.Queue) {
	f.Helper()
	if _, err := f.PutQueue(f.Context(), q); err != nil {
		f.Fatal(err)
	}
}

func must[T any](t testing.TB) func(v T, err error) T {
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

func on(queue string) func(*gq.ClaimRequest) {
	return func(r *gq.ClaimRequest) { r.Queues = []string{queue} }
}

func waiting(d time.Duration) func(*gq.ClaimRequest) {
	return func(r *gq.ClaimRequest) { r.Wait = d }
}

func as(worker string) func(*gq.ClaimRequest) {
	return func(r *gq.ClaimRequest) { r.Worker = worker }
}

func holding(r *gq.ClaimRequest) { r.Hold = true }

// wantErr fails unless err is the sentinel.
func wantErr(t testing.TB, what string, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Errorf("%s: error %v, want %v", what, err, want)
	}
}

func seeded(t testing.TB) *rand.Rand {
	t.Helper()
	seed := uint64(time.Now().UnixNano())
	if fixed := seedFromEnvironment(t); fixed != 0 {
		seed = fixed
	}
	t.Logf("repeat with GQ_SEED=%d", seed)
	return rand.New(rand.NewPCG(seed, 0))
}

// counting counts calls to a store, and passes on its notifications.
type counting struct {
	store.Store
	claimCalls, claims, gets, events atomic.Int64
}

// Insert serves no claims, so that all are counted.
func (c *counting) Insert(ctx context.Context, groups []store.Group) ([]store.Inserted, error) {
	return c.Store.Insert(ctx, withoutClaims(groups))
}

func (c *counting) Claim(ctx context.Context, claims []store.Claim) ([]store.Claimed, error) {
	c.claimCalls.Add(1)
	c.claims.Add(int64(len(claims)))
	return c.Store.Claim(ctx, claims)
}

func (c *counting) Get(ctx context.Context, refs []store.Ref, p gq.Parts) ([]store.Found, error) {
	c.gets.Add(int64(len(refs)))
	return c.Store.Get(ctx, refs, p)
}

func (c *counting) Events(ctx context.Context, after uint64, limit int) ([]gq.Event, error) {
	c.events.Add(1)
	return c.Store.Events(ctx, after, limit)
}

func (c *counting) Notify(events bool, f func(store.News)) (stop func()) {
	return c.Store.(store.Notifier).Notify(events, f)
}

// silent is a store without notifications.
type silent struct{ store.Store }

func (s silent) Change(ctx context.Context, c store.Change) (store.Changed, error) {
	return s.Store.(store.Changer).Change(ctx, c)
}

// stalled is a store whose calls block until their context ends.
type stalled struct {
	store.Store
	reads bool // reading queues blocks too
}

func (s stalled) Queues(ctx context.Context, q store.QueueQuery) ([]gq.Queue, error) {
	if s.reads {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return s.Store.Queues(ctx, q)
}

func (stalled) Insert(ctx context.Context, _ []store.Group) ([]store.Inserted, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

// gate passes claims to the store and holds their answers until it is opened.
type gate struct {
	store.Store
	mu   sync.Mutex
	held chan struct{} // nil holds nothing; guarded by mu
}

func (g *gate) Notify(events bool, f func(store.News)) (stop func()) {
	return g.Store.(store.Notifier).Notify(events, f)
}

// Insert serves no claims: they come through Claim.
func (g *gate) Insert(ctx context.Context, groups []store.Group) ([]store.Inserted, error) {
	return g.Store.Insert(ctx, withoutClaims(groups))
}

func withoutClaims(groups []store.Group) []store.Group {
	groups = slices.Clone(groups)
	for i := range groups {
		groups[i].Claim = nil
	}
	return groups
}

func (g *gate) Claim(ctx context.Context, claims []store.Claim) ([]store.Claimed, error) {
	out, err := g.Store.Claim(ctx, claims)
	g.mu.Lock()
	held := g.held
	g.mu.Unlock()
	if held != nil {
		<-held
	}
	return out, err
}

func (g *gate) hold() (release func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	held := make(chan struct{})
	g.held = held
	return func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		g.held = nil
		close(held)
	}
}

// pass lets later claims through without holding their answers.
func (g *gate) pass() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.held = nil
}

func payload(format string, args ...any) gq.Payload {
	return gq.Payload{Data: fmt.Appendf(nil, format, args...), ContentType: gq.JSON}
}
