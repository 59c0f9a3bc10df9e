package engine_test

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/engine"
	"github.com/gopherqueue/gq/internal/testing/spec"
	"github.com/gopherqueue/gq/store"
)

// fanIn is n parts and a job that waits for all of them, by name.
func fanIn(n int) []gq.Spec {
	join := gq.Spec{Type: "join", Ref: "join"}
	children := []gq.Spec{join} // before those that it waits for
	for i := range n {
		ref := fmt.Sprint("part-", i)
		children = append(children, gq.Spec{Type: "part", Ref: ref})
		children[0].DependsOn = append(children[0].DependsOn, gq.Dependency{Kind: gq.DependencyFanIn, Ref: ref})
	}
	return children
}

// Two jobs spawn parts that name each other and their joins, in the commits of their completions,
// at the same moment and with the same names. A holder whose lease is gone spawns nothing. All of
// it is there after a restart.
func TestSpawnedJobsNameEachOther(t *testing.T) {
	spec.Covers(t, "J-78", "J-79")
	onEachStore(t, func(t *testing.T, again func() store.Store) {
		s := again()
		f := &fixture{T: t, Engine: newEngine(t, s, engine.Options{}), store: s}
		parents := []gq.JobID{f.submit(gq.Spec{Type: "a"}), f.submit(gq.Spec{Type: "b"})}
		held := f.claim(2)
		stale := held[0].State.Lease.Ref()
		stale.ID = "gone"
		lost := must[[]gq.LeaseResult](t)(f.Settle(t.Context(), []gq.Outcome{{Lease: stale, Verdict: gq.VerdictComplete, Spawn: fanIn(2)}}))[0]
		wantErr(t, "a stale lease", lost.Err, gq.ErrStaleLease)
		joins, parts := make([]gq.JobID, len(held)), make([][]gq.JobID, len(held))
		var wait sync.WaitGroup
		for i := range held {
			wait.Go(func() {
				outcome := gq.Outcome{Lease: held[i].State.Lease.Ref(), Verdict: gq.VerdictComplete, Spawn: fanIn(3)}
				a := must[[]gq.LeaseResult](t)(f.Settle(t.Context(), []gq.Outcome{outcome}))[0]
				if a.Err != nil || len(a.Spawned) != 4 {
					t.Errorf("%v, spawned %d", a.Err, len(a.Spawned))
					return
				}
				joins[i] = a.Spawned[0].ID()
				for _, p := range a.Spawned[1:] {
					parts[i] = append(parts[i], p.ID())
				}
				if again := must[[]gq.LeaseResult](t)(f.Settle(t.Context(), []gq.Outcome{outcome}))[0]; again.Err != nil || len(again.Spawned) > 0 {
					t.Errorf("the same call again: %v, %d children", again.Err, len(again.Spawned))
				}
			})
		}
		wait.Wait()
		if page := must[gq.Page](t)(f.List(t.Context(), gq.Query{})); len(page.Jobs) != 2+2*4 {
			t.Errorf("there are %d jobs", len(page.Jobs))
		}
		s = again()
		f = &fixture{T: t, Engine: newEngine(t, s, engine.Options{}), store: s}
		for i, id := range joins {
			join := f.get(id)
			if n := len(join.Spec.DependsOn); n != 4 || join.State.Status != gq.StatusPending || join.State.Waits != 3 || join.Spec.Ref != "" ||
				!slices.Contains(join.Spec.DependsOn, gq.Dependency{Kind: gq.DependencyFanOut, Job: parents[i]}) {
				t.Fatalf("the join is %s and waits for %d: %+v", join.State.Status, join.State.Waits, join.Spec.DependsOn)
			}
			for _, part := range parts[i] {
				if !slices.Contains(join.Spec.DependsOn, gq.Dependency{Kind: gq.DependencyFanIn, Job: part}) {
					t.Errorf("the join waits for %+v, without its part %s", join.Spec.DependsOn, part)
				}
			}
		}
		for i, part := range f.claim(6) {
			if part.Spec.Type != "part" {
				t.Fatalf("claimed a %s before its parts", part.Spec.Type)
			}
			if i == 0 { // a part that fails does not hold up the join
				must[gq.State](t)(f.Engine.Fail(t.Context(), part.State.Lease.Ref(), gq.Failure{Category: gq.CategoryPermanent}))
				continue
			}
			must[gq.State](t)(f.Complete(t.Context(), part.State.Lease.Ref(), nil))
		}
		if _, err := f.Sweep(t.Context(), time.Now()); err != nil {
			t.Fatal(err)
		}
		for _, j := range f.claim(2) {
			if !slices.Contains(joins, j.State.ID) {
				t.Errorf("claimed %s %s", j.Spec.Type, j.State.ID)
			}
		}
	})
}

// Names of spawned jobs that are wrong refuse the whole call, and nothing changes.
func TestSpawnedNamesFaults(t *testing.T) {
	f := newFixture(t, engine.Options{}, nil)
	need := func(refs ...string) (deps []gq.Dependency) {
		for _, ref := range refs {
			deps = append(deps, gq.Dependency{Kind: gq.DependencyAfter, Ref: ref})
		}
		return deps
	}
	id := f.submit(gq.Spec{Type: "parent"})
	_, lease := f.take()
	for what, c := range map[string]struct {
		children []gq.Spec
		fields   []string
	}{
		"unknown": {[]gq.Spec{{Type: "a", Ref: "a"}, {Type: "b", DependsOn: need("a", "c")}}, []string{"spawn[1].needs[1].ref"}},
		"itself":  {[]gq.Spec{{Type: "a", Ref: "a", DependsOn: need("a")}}, []string{"spawn[0].needs[0].ref"}},
		"twice":   {[]gq.Spec{{Type: "a", Ref: "a"}, {Type: "b", Ref: "a"}}, []string{"spawn[1].ref"}},
		"cycle":   {[]gq.Spec{{Type: "a", Ref: "a", DependsOn: need("b")}, {Type: "b", Ref: "b", DependsOn: need("a")}}, []string{"spawn[0].depends_on"}},
	} {
		for call, spawn := range map[string]func() gq.LeaseResult{
			"complete": func() gq.LeaseResult {
				return must[[]gq.LeaseResult](t)(f.Settle(t.Context(), []gq.Outcome{{Lease: lease, Verdict: gq.VerdictComplete, Spawn: c.children}}))[0]
			},
			"heartbeat": func() gq.LeaseResult {
				return must[[]gq.LeaseResult](t)(f.Heartbeat(t.Context(), []gq.Heartbeat{{Lease: lease, Spawn: c.children}}))[0]
			},
		} {
			err := spawn().Err
			wantErr(t, what+", "+call, err, gq.ErrInvalid)
			if got := fields(err); !slices.Equal(got, c.fields) || strings.Contains(err.Error(), "jobs[") {
				t.Errorf("%s, %s: faults of %v, want %v: %v", what, call, got, c.fields, err)
			}
		}
	}
	f.status(id, gq.StatusRunning)
	if page := must[gq.Page](t)(f.List(t.Context(), gq.Query{})); len(page.Jobs) != 1 {
		t.Errorf("there are %d jobs", len(page.Jobs))
	}
}

// Each name of a spawned job has a kind of dependency of its own.
func TestSpawnedNamesHaveKinds(t *testing.T) {
	bubble(t, func(t *testing.T, f *fixture) {
		f.submit(gq.Spec{Type: "parent"})
		join := gq.Spec{Type: "join", DependsOn: []gq.Dependency{{Kind: gq.DependencyFanIn, Ref: "a"}, {Kind: gq.DependencyAfterAny, Ref: "b"}}}
		out := must[[]gq.LeaseResult](t)(f.Settle(t.Context(), []gq.Outcome{{
			Lease: f.claim(1)[0].State.Lease.Ref(), Verdict: gq.VerdictComplete, Spawn: []gq.Spec{join, {Type: "t", Ref: "a"}, {Type: "t", Ref: "b"}},
		}}))[0]
		if out.Err != nil || len(out.Spawned) != 3 {
			t.Fatal(out.Err, out.Spawned)
		}
		for i, kind := range []gq.DependencyKind{gq.DependencyFanIn, gq.DependencyAfterAny} {
			if deps := f.get(out.Spawned[0].ID()).Spec.DependsOn; !slices.Contains(deps, gq.Dependency{Kind: kind, Job: out.Spawned[i+1].ID()}) {
				t.Errorf("the join depends on %+v", deps)
			}
		}
	})
}
