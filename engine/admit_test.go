package engine_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/engine"
	"github.com/gopherqueue/gq/machine"
	"github.com/gopherqueue/gq/store"
)

// pooled configures a queue in a pool whose capacity is taken at the start.
func (f *fixture) pooled(queue string, capacity int64) {
	f.Helper()
	if err := f.PutPool(f.Context(), gq.Pool{Name: "p", Capacity: capacity, AtStart: true}); err != nil {
		f.Fatal(err)
	}
	if _, err := f.ChangeQueue(f.Context(), queue, func(q *gq.Queue) { q.Pool = "p" }); err != nil {
		f.Fatal(err)
	}
}

func held(r *gq.ClaimRequest) { r.Hold = true }

func TestAdmit(t *testing.T) {
	bubble(t, func(t *testing.T, f *fixture) {
		f.pooled(gq.DefaultQueue, 5)
		first, second := f.submit(gq.Spec{CostUnits: 3}), f.submit(gq.Spec{CostUnits: 4})
		jobs := f.claim(2, held)
		const denial = "capacity exceeded: used=3, requested=4, capacity=5, count="
		recorded := func(s gq.State, reason string, events ...string) {
			t.Helper()
			var told []string
			for _, e := range must[[]gq.Event](t)(f.Events(t.Context(), 0, 100)) {
				if _, denied := machine.ParseDenial(e.Reason); denied {
					told = append(told, e.Reason)
					if e.Job != second || e.Queue != gq.DefaultQueue {
						t.Errorf("a denial is recorded for %v in %s", e.Job, e.Queue)
					}
				}
			}
			if s.Reason != reason || !slices.Equal(told, events) {
				t.Errorf("the job says %q and the history %q, want %q and %q", s.Reason, told, reason, events)
			}
		}
		s, err := f.Admit(t.Context(), jobs[0].State.Lease.Ref(), 7*time.Second, time.Minute)
		if err != nil || s.Status != gq.StatusRunning || s.Lease.TTL != 7*time.Second || s.RunAt.After(time.Now()) {
			t.Fatalf("the first start: %+v, %v", s, err)
		}
		recorded(s, "")
		time.Sleep(time.Second)
		ref := jobs[1].State.Lease.Ref()
		s, err = f.Admit(t.Context(), ref, 0, time.Minute)
		full, ok := errors.AsType[*machine.CapacityError](err)
		if !ok || *full != (machine.CapacityError{Pool: "p", Used: 3, Requested: 4, Capacity: 5}) {
			t.Fatalf("the second start: %v", err)
		}
		recorded(s, denial+"1", denial+"1")
		if s, err = f.Admit(t.Context(), ref, 0, time.Minute); !errors.Is(err, gq.ErrNoCapacity) {
			t.Fatalf("once more: %v", err)
		}
		recorded(s, denial+"2", denial+"1")
		if s.Status != gq.StatusClaimed || s.Detail != gq.DetailLeasePending || !s.RunAt.Equal(time.Now().Add(time.Minute)) || !s.Lease.HeartbeatAt.Equal(time.Now()) {
			t.Errorf("refused, the job is %+v", s)
		}
		x, err := f.Explain(t.Context(), second)
		if err != nil || x.Cause != gq.CausePool || !strings.Contains(x.Summary, "has 2 of 5 left") || len(x.Jobs) != 1 || x.Jobs[0].Job != first {
			t.Errorf("why it does not run: %+v, %v", x.Reason, err)
		}
		// Other workers and late calls are refused.
		if _, err := f.Admit(t.Context(), gq.LeaseRef{ID: ref.ID, Worker: "x"}, 0, 0); !errors.Is(err, gq.ErrStaleLease) {
			t.Errorf("another worker: %v", err)
		}
		if _, err := f.Admit(t.Context(), gq.LeaseRef{}, 0, 0); !errors.Is(err, gq.ErrStaleLease) {
			t.Errorf("no lease: %v", err)
		}
		time.Sleep(6 * time.Second) // the first lease ends
		if s, err = f.Admit(t.Context(), ref, 0, time.Minute); err != nil || s.Status != gq.StatusRunning {
			t.Errorf("with room: %+v, %v", s, err)
		}
		recorded(s, "", denial+"1", denial+"2")
		if _, err := f.Admit(t.Context(), ref, 0, time.Minute); !errors.Is(err, gq.ErrIllegalMove) {
			t.Errorf("a running job asks: %v", err)
		}
	})
}

func TestReport(t *testing.T) {
	bubble(t, func(t *testing.T, f *fixture) {
		f.submit(gq.Spec{})
		_, ref := f.take(held)
		s, err := f.Report(t.Context(), ref, gq.DetailLeasePending, machine.Report{Progress: -1, Note: "warm"})
		if err != nil || s.Detail != gq.DetailLeasePending || s.Note != "warm" {
			t.Errorf("%+v, %v", s, err)
		}
		// The whole call is refused.
		if _, err := f.Report(t.Context(), ref, gq.DetailPreparing, machine.Report{Note: "back"}); !errors.Is(err, gq.ErrIllegalMove) {
			t.Errorf("backwards: %v", err)
		}
		if _, err := f.Report(t.Context(), ref, gq.DetailLeasePending, machine.Report{Progress: 2}); !errors.Is(err, gq.ErrInvalid) {
			t.Errorf("too far: %v", err)
		}
	})
}

func TestCatchUp(t *testing.T) {
	bubble(t, func(t *testing.T, f *fixture) {
		policy := gq.PresetScheduler.Policy()
		lost := f.submit(gq.Spec{Policy: policy})
		j, _ := f.take()
		byLease, err := f.ByLease(t.Context(), j.State.Lease.ID, gq.WithPayload)
		if err != nil || byLease.State.ID != lost || byLease.Spec.Payload.Data == nil {
			t.Errorf("by its lease: %+v, %v", byLease, err)
		}
		if _, err := f.ByLease(t.Context(), "nobody's", 0); !errors.Is(err, gq.ErrNotFound) {
			t.Errorf("by no lease: %v", err)
		}
		if s, err := f.Advance(t.Context(), lost); err != nil || s.Status != gq.StatusRunning {
			t.Errorf("with nothing due: %+v, %v", s, err)
		}
		time.Sleep(policy.LeaseTTL)
		if err := f.CatchUp(t.Context()); err != nil {
			t.Fatal(err)
		}
		f.status(lost, gq.StatusFailed)
		again := f.submit(gq.Spec{Policy: policy})
		f.take()
		time.Sleep(policy.LeaseTTL)
		if s, err := f.Advance(t.Context(), again); err != nil || s.Status != gq.StatusFailed {
			t.Errorf("after its lease: %+v, %v", s, err)
		}
		if _, err := f.Advance(t.Context(), machine.NewJobID([16]byte{1})); !errors.Is(err, gq.ErrNotFound) {
			t.Errorf("an unknown job: %v", err)
		}
		jobs, err := f.Jobs(t.Context(), []gq.JobID{lost, machine.NewJobID([16]byte{1}), again}, 0)
		if err != nil || len(jobs) != 2 || jobs[lost].State.ID != lost {
			t.Errorf("many jobs: %v, %v", jobs, err)
		}
	})
}

func TestConfigurePool(t *testing.T) {
	bubble(t, func(t *testing.T, f *fixture) {
		configure := func(capacity, want int64) {
			t.Helper()
			if err := f.ConfigurePool(t.Context(), gq.Pool{Name: "p", Capacity: capacity, AtStart: true}); err != nil {
				t.Fatal(err)
			}
			pools, err := f.Pools(t.Context())
			if err != nil || len(pools) != 1 || pools[0].Capacity != want || !pools[0].AtStart {
				t.Errorf("configured as %d: %+v, %v; want %d", capacity, pools, err, want)
			}
		}
		configure(70, 70)
		if err := f.PutPool(t.Context(), gq.Pool{Name: "p", Capacity: 50}); err != nil { // whoever does not know AtStart leaves it
			t.Fatal(err)
		}
		configure(70, 50)
		configure(80, 80)
		configure(70, 70)
	})
}

func TestSamples(t *testing.T) {
	bubble(t, func(t *testing.T, f *fixture) {
		f.pooled(gq.DefaultQueue, 5)
		begin := time.Now()
		f.submit(gq.Spec{Queue: "elsewhere"}) // in no pool
		for range 3 {
			f.submit(gq.Spec{CostUnits: 1})
		}
		_, ref := f.take()
		total := func(m machine.Measure) (n int64) {
			t.Helper()
			samples, err := f.Samples(t.Context(), "p", begin.Add(-time.Minute))
			if err != nil || len(samples) == 0 {
				t.Fatalf("samples: %v, %v", samples, err)
			}
			if m.Level() {
				return samples[len(samples)-1].Values[m]
			}
			for i := range samples {
				n += samples[i].Values[m]
			}
			return n
		}
		wants := func(when string, want map[machine.Measure]int64) {
			t.Helper()
			for m, n := range want {
				if got := total(m); got != n {
					t.Errorf("%s %s is %d, want %d", when, m, got, n)
				}
			}
		}
		first := map[machine.Measure]int64{
			machine.SubmittedCount: 3, machine.StartedCount: 1, machine.CompletedCount: 0, machine.QueuedLevel: 2, machine.RunningLevel: 1, machine.UsedLevel: 1, machine.CapacityLevel: 5,
		}
		wants("before a sample", first)
		for range 3 {
			if err := f.Sample(t.Context(), "p"); err != nil {
				t.Fatal(err)
			}
			wants("after a sample", first)
		}
		time.Sleep(20 * time.Second)
		if _, err := f.Complete(t.Context(), ref, nil); err != nil {
			t.Fatal(err)
		}
		second := map[machine.Measure]int64{
			machine.SubmittedCount: 3, machine.CompletedCount: 1, machine.ReleasedCount: 1, machine.ExpiredCount: 0, machine.QueuedLevel: 2, machine.RunningLevel: 0, machine.UsedLevel: 0,
		}
		wants("after an end", second)
		if err := f.Sample(t.Context(), "p"); err != nil {
			t.Fatal(err)
		}
		wants("after its sample", second)
		// Many events are counted in several steps.
		specs := make([]gq.Spec, 700)
		for i := range specs {
			specs[i] = gq.Spec{Type: "t"}
		}
		for range 4 {
			if _, err := f.SubmitBatch(t.Context(), specs); err != nil {
				t.Fatal(err)
			}
		}
		wants("with thousands of events", map[machine.Measure]int64{machine.SubmittedCount: 2803, machine.QueuedLevel: 2802})

		// A range begins with the levels at its start, without earlier counts.
		time.Sleep(time.Hour)
		samples, err := f.Samples(t.Context(), "p", time.Now().Add(-time.Minute))
		if err != nil || len(samples) != 2 || samples[0].Values[machine.QueuedLevel] != 2802 || samples[0].Values[machine.SubmittedCount] != 0 {
			t.Errorf("an hour later: %+v, %v", samples, err)
		}
	})
}

// meddled is a store that calls a function before documents are listed.
type meddled struct {
	store.Store
	meddle func()
}

func (m *meddled) Docs(ctx context.Context, kind, after string, limit int) ([]store.Doc, error) {
	if f := m.meddle; f != nil {
		m.meddle = nil
		f()
	}
	return m.Store.Docs(ctx, kind, after, limit)
}

// If an engine stores a sample while another reads, no event is counted twice.
func TestSamplesMeanwhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := new(meddled)
		f := newFixture(t, engine.Options{}, func(s store.Store) store.Store {
			m.Store = s
			return m
		})
		f.pooled(gq.DefaultQueue, 5)
		begin := time.Now()
		for range 3 {
			f.submit(gq.Spec{CostUnits: 1})
		}
		m.meddle = func() {
			if err := f.Sample(t.Context(), "p"); err != nil {
				t.Error(err)
			}
		}
		samples, err := f.Samples(t.Context(), "p", begin.Add(-time.Minute))
		if err != nil || m.meddle != nil {
			t.Fatalf("nobody meddled: %v", err)
		}
		n := int64(0)
		for i := range samples {
			n += samples[i].Values[machine.SubmittedCount]
		}
		if n != 3 {
			t.Errorf("%d jobs were submitted, 3 are", n)
		}
	})
}

// Samples past their retention are deleted, and an idle pool writes nothing.
func TestSamplesKept(t *testing.T) {
	bubble(t, func(t *testing.T, f *fixture) {
		f.pooled(gq.DefaultQueue, 5)
		hour := func(ago time.Duration) string { return time.Now().Add(-ago).UTC().Format("2006-01-02T15") }
		const day = 24 * time.Hour
		for _, ago := range []time.Duration{40 * day, 31*day + time.Hour, 30 * day} {
			doc := store.Doc{Kind: "samples of p", Name: hour(ago), Data: []byte{1}}
			if _, err := f.store.PutDocs(t.Context(), []store.Doc{doc}); err != nil {
				t.Fatal(err)
			}
		}
		kept := func() (names []string, versions uint64) {
			docs, err := f.store.Docs(t.Context(), "samples of p", "", 0)
			if err != nil {
				t.Fatal(err)
			}
			for _, d := range docs {
				names, versions = append(names, d.Name), versions+d.Version
			}
			return names, versions
		}
		if err := f.Sample(t.Context(), "p"); err != nil {
			t.Fatal(err)
		}
		names, before := kept()
		if want := []string{hour(30 * day), hour(0)}; !slices.Equal(names, want) {
			t.Errorf("kept are %v, want %v", names, want)
		}
		for range 5 {
			if err := f.Sample(t.Context(), "p"); err != nil {
				t.Fatal(err)
			}
		}
		if _, after := kept(); after != before {
			t.Error("samples were written although nothing happened")
		}
	})
}
