package matchmaker_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/engine"
	"github.com/gopherqueue/gq/internal/matchmaker"
	"github.com/gopherqueue/gq/internal/testing/pgtest"
	"github.com/gopherqueue/gq/match"
	"github.com/gopherqueue/gq/store"
	"github.com/gopherqueue/gq/store/local"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// fixture is a dispatcher on an in-memory store, in a bubble where time passes only when
// everyone waits.
type fixture struct {
	*testing.T
	*matchmaker.Dispatcher
	engine *engine.Engine
	store  store.Store
}

// bubble runs a test with a fixture whose rounds run only on request.
func bubble(t *testing.T, o matchmaker.Options, f func(f *fixture)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		t.Helper()
		f(newFixture(t, openStore(t), o))
	})
}

func openStore(t testing.TB) store.Store {
	t.Helper()
	const kept = 40 * 24 * time.Hour
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

func newFixture(t *testing.T, s store.Store, o matchmaker.Options) *fixture {
	t.Helper()
	e, err := engine.New(s, engine.Options{Random: rand.NewPCG(1, 2)})
	if err != nil {
		t.Fatal(err)
	}
	d, err := matchmaker.New(e, s, o)
	if err != nil {
		t.Fatal(err)
	}
	return &fixture{t, d, e, s}
}

// nodes makes the ids of processes unique.
var nodes atomic.Uint64

// another creates a dispatcher of another process on the same store.
func (f *fixture) another(o matchmaker.Options) *fixture {
	f.Helper()
	e, err := engine.New(f.store, engine.Options{Random: rand.NewPCG(3, nodes.Add(1))})
	if err != nil {
		f.Fatal(err)
	}
	d, err := matchmaker.New(e, f.store, o)
	if err != nil {
		f.Fatal(err)
	}
	return &fixture{f.T, d, e, f.store}
}

// run runs the engine's and the dispatcher's timers until the test ends.
func (f *fixture) run() {
	f.Helper()
	f.sweeps()
	f.background(f.Dispatcher.Run)
}

// sweeps runs the engine's timers alone.
func (f *fixture) sweeps() { f.Helper(); f.background(f.engine.Run) }

func (f *fixture) background(run func(context.Context) error) {
	f.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- run(ctx) }()
	f.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			f.Errorf("run: %v", err)
		}
	})
}

// policy changes the settings.
func (f *fixture) policy(text string) match.Settings {
	f.Helper()
	set, err := f.ChangeSettings(f.Context(), func(s *match.Settings) error { return s.Update([]byte(text)) })
	if err != nil {
		f.Fatalf("policy %s: %v", text, err)
	}
	return set
}

// unhurried makes all timeouts long enough for a slow machine in real time.
func (f *fixture) unhurried() {
	f.Helper()
	f.policy(`{"ack_timeout_ms":500000,"lease":{"ai_secs":600,"quantum_secs":600},"eligibility":{"heartbeat_timeout_secs":100000}}`)
}

// provider registers a provider that can do everything.
func (f *fixture) provider(id string, more ...func(*match.Provider)) {
	f.Helper()
	p := match.Provider{
		ID: id, Status: match.Active, Capabilities: match.Kinds(), Models: []string{"m"}, Precisions: []string{"fp16"},
		Gates: []string{"h", "cx"}, MaxDepth: 10, MaxWidth: 10, Region: "eu", Stake: 10_000, AttestationExpiresAt: match.MaxTime,
	}
	for _, m := range more {
		m(&p)
	}
	if _, err := f.Register(f.Context(), p, nil); err != nil {
		f.Fatal(err)
	}
}

// beats sends heartbeats of providers.
func (f *fixture) beats(ids ...string) {
	f.Helper()
	for _, id := range ids {
		if _, err := f.Heartbeat(f.Context(), id); err != nil {
			f.Fatal(err)
		}
	}
}

func (f *fixture) standing(id string) matchmaker.Provider {
	f.Helper()
	p, err := f.Provider(f.Context(), id)
	if err != nil {
		f.Fatal(err)
	}
	return p
}

// submit submits an AI job.
func (f *fixture) submit(more ...func(*match.Enqueue)) matchmaker.Job {
	f.Helper()
	e := match.Enqueue{Job: match.Job{Kind: match.AI, Units: 1}}
	for _, m := range more {
		m(&e)
	}
	j, err := f.Submit(f.Context(), e)
	if err != nil {
		f.Fatal(err)
	}
	return j
}

func quantum(e *match.Enqueue)               { e.Kind = match.Quantum }
func fee(n int64) func(*match.Enqueue)       { return func(e *match.Enqueue) { e.MaxFee = n } }
func units(n int64) func(*match.Enqueue)     { return func(e *match.Enqueue) { e.Units = n } }
func by(name string) func(*match.Enqueue)    { return func(e *match.Enqueue) { e.Requester = name } }
func living(secs int64) func(*match.Enqueue) { return func(e *match.Enqueue) { e.TTL = secs } }
func model(name string) func(*match.Enqueue) { return func(e *match.Enqueue) { e.Spec.Model = name } }

func jobID(f *fixture, text string) gq.JobID {
	f.Helper()
	id, err := gq.ParseJobID(text)
	if err != nil {
		f.Fatal(err)
	}
	return id
}

func (f *fixture) job(j matchmaker.Job) matchmaker.Job {
	f.Helper()
	out, err := f.Job(f.Context(), jobID(f, j.ID))
	if err != nil {
		f.Fatal(err)
	}
	return out
}

// round runs a round.
func (f *fixture) round() matchmaker.Round {
	f.Helper()
	r, err := f.Round(f.Context())
	if err != nil {
		f.Fatal(err)
	}
	return r
}

// assigned runs a round that must assign one job, and returns its lease.
func (f *fixture) assigned() matchmaker.Lease {
	f.Helper()
	r := f.round()
	if len(r.Assignments) != 1 {
		f.Fatalf("%d assignments: %+v", len(r.Assignments), r)
	}
	return f.lease(r.Assignments[0].Lease)
}

// idle runs a round that must assign nothing.
func (f *fixture) idle(why string) {
	f.Helper()
	if r := f.round(); len(r.Assignments) > 0 {
		f.Errorf("%s: assigned %+v", why, r.Assignments)
	}
}

func (f *fixture) lease(id gq.LeaseID) matchmaker.Lease {
	f.Helper()
	l, err := f.Lease(f.Context(), id)
	if err != nil {
		f.Fatal(err)
	}
	return l
}

// unitsOf returns the units that the job of a lease uses.
func (f *fixture) unitsOf(l matchmaker.Lease) int64 {
	f.Helper()
	j, err := f.Job(f.Context(), l.Job)
	if err != nil {
		f.Fatal(err)
	}
	return j.Units
}

func (f *fixture) ack(l matchmaker.Lease) matchmaker.Lease {
	f.Helper()
	l, err := f.Ack(f.Context(), matchmaker.Ref{Lease: l.ID})
	if err != nil {
		f.Fatal(err)
	}
	return l
}

const digest = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"

func (f *fixture) complete(l matchmaker.Lease) error {
	f.Helper()
	_, err := f.Complete(f.Context(), matchmaker.Ref{Lease: l.ID}, match.Completion{Digest: digest})
	return err
}

func (f *fixture) fail(l matchmaker.Lease) {
	f.Helper()
	if _, err := f.Fail(f.Context(), matchmaker.Ref{Lease: l.ID}, "out of memory"); err != nil {
		f.Fatal(err)
	}
}

// refused checks the error of a call.
func (f *fixture) refused(what string, err, want error) {
	f.Helper()
	if !errors.Is(err, want) {
		f.Errorf("%s: error %v, want %v", what, err, want)
	}
}

// is checks the state and attempts of a job.
func (f *fixture) is(j matchmaker.Job, state string, attempts int64) matchmaker.Job {
	f.Helper()
	now := f.job(j)
	if now.State != state || now.Attempt != attempts {
		f.Errorf("job is %s at attempt %d, want %s at %d: %+v", now.State, now.Attempt, state, attempts, now)
	}
	return now
}

// ends checks the status and reason of an ended lease.
func (f *fixture) ends(id gq.LeaseID, status, reason string) {
	f.Helper()
	if l := f.lease(id); l.Status != status || l.Reason != reason {
		f.Errorf("lease is %s (%s), want %s (%s)", l.Status, l.Reason, status, reason)
	}
}

// history returns the events of a job by name.
func (f *fixture) history(j matchmaker.Job) (names []string) {
	f.Helper()
	events, err := f.engine.History(f.Context(), jobID(f, j.ID))
	if err != nil {
		f.Fatal(err)
	}
	for i := range events {
		notices, err := f.Notices(f.Context(), &events[i])
		if err != nil {
			f.Fatal(err)
		}
		for _, n := range notices {
			text := n.Type
			if n.Reason != "" {
				text += " " + n.Reason
			}
			names = append(names, text)
		}
	}
	return names
}

// told checks the notices of a job.
func (f *fixture) told(j matchmaker.Job, want ...string) {
	f.Helper()
	if got := f.history(j); !slices.Equal(got, want) {
		f.Errorf("told %s\nwant %s", strings.Join(got, ", "), strings.Join(want, ", "))
	}
}

// toldOf checks the events of a provider in the log.
func (f *fixture) toldOf(provider string, want ...string) {
	f.Helper()
	events, err := f.store.Events(f.Context(), 0, 1000)
	if err != nil {
		f.Fatal(err)
	}
	var got []string
	for i := range events {
		e := &events[i]
		if !e.Type.OfProvider() || e.Worker != provider {
			continue
		}
		notices, err := f.Notices(f.Context(), e)
		if err != nil {
			f.Fatal(err)
		}
		if e.Seq != uint64(i+1) || e.Queue != matchmaker.DefaultQueue || e.Time.IsZero() {
			f.Errorf("event %+v", e)
		}
		if len(notices) == 0 {
			got = append(got, e.Type.String()+" "+e.Reason)
		}
		for _, n := range notices {
			if n.Seq != e.Seq || n.Provider != provider || !n.Job.IsZero() {
				f.Errorf("notice %+v", n)
			}
			got = append(got, fmt.Sprintf("%s %s %d", n.Type, n.Reason, n.Penalty))
		}
	}
	if !slices.Equal(got, want) {
		f.Errorf("told of %s: %q, want %q", provider, got, want)
	}
}

func names(n int) (list []string) {
	for i := range n {
		list = append(list, fmt.Sprintf("p%d", i))
	}
	return list
}
