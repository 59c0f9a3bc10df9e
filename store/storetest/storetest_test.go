package storetest

import (
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gopherqueue/gq/internal/testing/leaktest"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

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
