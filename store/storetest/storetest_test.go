package storetest

import (
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gopherqueue/gq/internal/testing/leaktest"
	"github.com/gopherqueue/gq/internal/testing/race"
	"github.com/gopherqueue/gq/store"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// A store can pass the suite with any of the choices that the contract allows. A case that reopens
// the store says so.
func TestRun(t *testing.T) {
	var mu sync.Mutex
	reopened := make(map[string]bool) // cases; guarded by mu
	t.Run("Plain", func(t *testing.T) {
		b, prefix := naiveBackend("", 0), t.Name()+"/"
		reopen := b.Reopen
		b.Parallel = true
		b.Reopen = func(t testing.TB, s store.Store, cfg store.Config) store.Store {
			t.Helper()
			mu.Lock()
			reopened[strings.TrimPrefix(t.Name(), prefix)] = true
			mu.Unlock()
			return reopen(t, s, cfg)
		}
		Run(t, b)
	})
	for _, c := range Cases() {
		if reopened[c.Name] && !c.Reopens {
			t.Errorf("%s reopens the store and does not say so", c.Name)
		}
	}
	t.Run("Otherwise", func(t *testing.T) {
		b := naiveBackend("", tellsInTheSameCommit|readsNow|sweepsFirst)
		b.Parallel = true
		if race.Share() { // make check and make test-planted run all cases
			b.Only = func(c Case) bool { return len(c.Covers) > 0 }
		}
		Run(t, b)
	})
}

func TestCases(t *testing.T) {
	names := make(map[string]bool)
	for _, c := range Cases() {
		group, story, ok := strings.Cut(c.Name, "/")
		if !ok || group == "" || story == "" || strings.ContainsAny(c.Name, " _") {
			t.Errorf("%q is not named Group/Story", c.Name)
		}
		if names[c.Name] {
			t.Errorf("two cases are named %s", c.Name)
		}
		names[c.Name] = true
		if c.Clause == "" || strings.HasSuffix(c.Clause, ".") {
			t.Errorf("%s: the clause %q is not a clause", c.Name, c.Clause)
		}
	}
}

func TestFailuresOfGoodStore(t *testing.T) {
	if failures := Failures(t, naiveBackend("", 0), "Insert/", "Lease/"); len(failures) != 0 {
		t.Errorf("a good store fails %+v", failures)
	}
}

func TestClock(t *testing.T) {
	c := NewClock(start)
	if got := c.Advance(time.Second); !got.Equal(start.Add(time.Second)) || !c.Now().Equal(got) {
		t.Errorf("the clock shows %v and %v", got, c.Now())
	}
	c.Set(start)
	if !c.Now().Equal(start) {
		t.Errorf("the clock shows %v, want %v", c.Now(), start)
	}
	var wait sync.WaitGroup
	for range 100 {
		wait.Go(func() { c.Advance(time.Nanosecond) })
	}
	wait.Wait()
	if got := c.Now().Sub(start); got != 100 {
		t.Errorf("the clock moved by %v, want 100ns", got)
	}
}

func TestRunModel(t *testing.T) {
	race.Spare(t)
	for name, h := range map[string]habit{"Plain": 0, "Otherwise": tellsInTheSameCommit | readsNow | sweepsFirst} {
		t.Run(name, func(t *testing.T) {
			RunModel(t, naiveBackend("", h))
		})
	}
}
