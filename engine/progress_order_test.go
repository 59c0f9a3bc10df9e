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

// Each follower gets the reports of all jobs of a heartbeat, and of one job only the newest.
func TestProgressOfTwoJobsForTwoFollowers(t *testing.T) {
	s, err := local.OpenMemory(local.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close() //nolint:errcheck // it is in memory
	e, err := New(s, Options{})
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if _, err := e.Submit(t.Context(), gq.Spec{Type: "t"}); err != nil {
			t.Fatal(err)
		}
	}
	jobs, err := e.Claim(t.Context(), gq.ClaimRequest{Worker: "w", N: 2})
	if err != nil || len(jobs) != 2 {
		t.Fatal(jobs, err)
	}
	followers := []*reports{e.progress.join(), e.progress.join()}
	beats := make([]gq.Heartbeat, len(jobs))
	for i := range jobs {
		beats[i] = gq.Heartbeat{Lease: jobs[i].State.Lease.Ref(), Progress: 0.5, Note: "new"}
	}
	if _, err := e.Heartbeat(t.Context(), beats); err != nil {
		t.Fatal(err)
	}
	for _, r := range followers {
		if len(r.byJob) != 2 {
			t.Fatalf("a follower gets %d reports, want 2", len(r.byJob))
		}
		report := r.byJob[jobs[0].State.ID]
		old := report
		old.Note = "old"
		end := gq.Event{Seq: 9, Job: report.Job, Type: gq.EventCompleted, Status: gq.StatusCompleted, Version: report.Version}
		if got := e.withProgress(t.Context(), 8, []gq.Event{end}, []gq.Event{old}, r); len(got) != 2 || got[0].Note != "new" || got[1].Type != gq.EventCompleted {
			t.Errorf("%+v", got)
		}
	}
}
