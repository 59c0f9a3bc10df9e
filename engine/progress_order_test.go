package engine

import (
	"testing"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/store/local"
)

// A report of an execution comes after the end of the one before, and before its own, also if a
// follower reads all at once.
func TestProgressOfTheNextExecution(t *testing.T) {
	s, err := local.OpenMemory(local.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close() //nolint:errcheck // it is in memory
	e, err := New(s, Options{})
	if err != nil {
		t.Fatal(err)
	}
	out, err := e.Submit(t.Context(), gq.Spec{Type: "t"})
	if err != nil {
		t.Fatal(err)
	}
	id := out.ID()
	events := []gq.Event{
		{Seq: 5, Job: id, Type: gq.EventFailed, Status: gq.StatusScheduled, Version: 1},
		{Seq: 6, Job: id, Type: gq.EventStarted, Status: gq.StatusRunning, Version: 2},
		{Seq: 7, Job: id, Type: gq.EventCompleted, Status: gq.StatusCompleted, Version: 2},
	}
	for version, want := range map[gq.LeaseVersion][]gq.EventType{
		1: {gq.EventProgress, gq.EventFailed, gq.EventStarted, gq.EventCompleted},
		2: {gq.EventFailed, gq.EventStarted, gq.EventProgress, gq.EventCompleted},
		3: {gq.EventFailed, gq.EventStarted, gq.EventCompleted, gq.EventProgress},
	} {
		report := gq.Event{Job: id, Type: gq.EventProgress, Status: gq.StatusRunning, Version: version}
		got := e.withProgress(t.Context(), 4, events, []gq.Event{report}, e.progress.join())
		seq := uint64(4)
		for i, typ := range want {
			if typ != gq.EventProgress {
				seq++
			}
			if len(got) != len(want) || got[i].Type != typ || got[i].Seq != seq {
				t.Fatalf("a report of execution %d: %+v, want %v", version, got, want)
			}
		}
	}
}
