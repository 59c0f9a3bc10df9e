package engine_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/gopherqueue/gq"
)

func TestReschedule(t *testing.T) {
	bubble(t, func(t *testing.T, f *fixture) {
		id := f.submit(gq.Spec{Delay: time.Hour})
		s := must[gq.State](t)(f.Reschedule(t.Context(), id, time.Time{}))
		if s.Status != gq.StatusScheduled {
			t.Errorf("run now left the job %s", s.Status)
		}
		at := time.Now().Add(30 * time.Minute)
		if s = must[gq.State](t)(f.Reschedule(t.Context(), id, at)); s.Status != gq.StatusDelayed || !s.RunAt.Equal(at) || s.ID == id {
			t.Errorf("to run at %v it is %s until %v", at, s.Status, s.RunAt)
		}
		id = s.ID
		if s = must[gq.State](t)(f.Reschedule(t.Context(), id, at.Add(1))); s.Status != gq.StatusDelayed || s.ID != id {
			t.Errorf("a delayed job that is to run later is %s: %v", s.Status, s.ID)
		}
		must[gq.State](t)(f.Reschedule(t.Context(), id, time.Now()))
		next := f.submit(gq.Spec{DependsOn: []gq.Dependency{{Kind: gq.DependencyAfter, Job: id}}})
		_, err := f.Reschedule(t.Context(), next, time.Time{})
		wantErr(t, "a job with an open dependency", err, gq.ErrIllegalMove)
		if !strings.Contains(err.Error(), id.String()) {
			t.Errorf("%v does not name the dependency %s", err, id)
		}
		_, lease := f.take()
		_, err = f.Reschedule(t.Context(), id, time.Time{})
		wantErr(t, "a running job", err, gq.ErrIllegalMove)
		must[gq.State](t)(f.Complete(t.Context(), lease, nil))
		_, err = f.Reschedule(t.Context(), id, time.Time{})
		wantErr(t, "a finished job", err, gq.ErrIllegalMove)
		_, err = f.Reschedule(t.Context(), gq.JobID{1}, time.Time{})
		wantErr(t, "no job", err, gq.ErrNotFound)
	})
}

// ReplayWhere replays every selected job once, over several calls, and none of the new ones.
func TestReplayWhere(t *testing.T) {
	bubble(t, func(t *testing.T, f *fixture) {
		const jobs = 25
		old := map[gq.JobID]bool{}
		for i := range jobs {
			id := f.submit(gq.Spec{Queue: "q", Type: fmt.Sprint("t", i%2), Payload: payload("1")})
			must[gq.State](t)(f.Cancel(t.Context(), id, ""))
			old[id] = true
		}
		f.submit(gq.Spec{Queue: "other"})
		q := gq.Query{Queue: "q", Statuses: []gq.Status{gq.StatusCancelled}, Limit: 10}
		if n := must[gq.CountReport](t)(f.CountWhere(t.Context(), q)); n.Jobs != jobs || n.Next != "" {
			t.Errorf("counted %+v, want %d", n, jobs)
		}
		typed := q
		typed.Types = []string{"t0"}
		if n := must[gq.CountReport](t)(f.CountWhere(t.Context(), typed)); n.Jobs != 13 || n.Next != "" {
			t.Errorf("counted %+v of a type, want 13", n)
		}
		total := 0
		for calls := 1; ; calls++ {
			report := must[gq.ReplayReport](t)(f.ReplayWhere(t.Context(), q))
			if len(report.Jobs) > q.Limit || report.Refused != 0 || calls > 5 {
				t.Fatalf("call %d: %+v", calls, report)
			}
			for _, id := range report.Jobs {
				job := f.get(id)
				if !old[job.Spec.ReplayOf] || job.State.Status != gq.StatusScheduled {
					t.Errorf("replayed %s as %+v", job.Spec.ReplayOf, job.State)
				}
				delete(old, job.Spec.ReplayOf)
				must[gq.State](t)(f.Cancel(t.Context(), id, "")) // it is selected by status, but new
			}
			total += len(report.Jobs)
			if q.Cursor = report.Next; q.Cursor == "" {
				break
			}
		}
		if total != jobs || len(old) != 0 {
			t.Errorf("replayed %d jobs and left %d, want %d and none", total, len(old), jobs)
		}
		must[gq.Queue](t)(f.ChangeQueue(t.Context(), "q", func(q *gq.Queue) { q.MaxDepth = 1 }))
		report := must[gq.ReplayReport](t)(f.ReplayWhere(t.Context(), gq.Query{Queue: "q", Statuses: q.Statuses}))
		if len(report.Jobs) != 1 || report.Existing != jobs || report.Refused != jobs-1 || !strings.Contains(report.Problem, "depth") {
			t.Errorf("in a queue that takes one job: %d replayed, %d refused, %q", len(report.Jobs), report.Refused, report.Problem)
		}
		for what, bad := range map[string]gq.Query{
			"no status": {Queue: "q"}, "a live status": {Statuses: []gq.Status{gq.StatusRunning}},
			"a made-up cursor": {Statuses: q.Statuses, Cursor: "AAAA"}, "a negative limit": {Statuses: q.Statuses, Limit: -1},
		} {
			_, err := f.ReplayWhere(t.Context(), bad)
			wantErr(t, what, err, gq.ErrInvalid)
		}
	})
}

// A deleted queue loses what was configured and declared, and a new declaration applies in full.
func TestDeleteQueue(t *testing.T) {
	bubble(t, func(t *testing.T, f *fixture) {
		declared := gq.Queue{Name: "q", MaxRunning: 5, MaxDepth: 10}
		must[gq.Queue](t)(f.DeclareQueue(t.Context(), declared))
		must[gq.Queue](t)(f.ChangeQueue(t.Context(), "q", func(q *gq.Queue) { q.MaxRunning = 1 }))
		id := f.submit(gq.Spec{Queue: "q"})
		err := f.DeleteQueue(t.Context(), "q")
		wantErr(t, "with a live job", err, gq.ErrQueueInUse)
		if !strings.Contains(err.Error(), "1 SCHEDULED") {
			t.Errorf("%v does not tell the counts", err)
		}
		must[gq.State](t)(f.Cancel(t.Context(), id, ""))
		if err := f.DeleteQueue(t.Context(), "q"); err != nil {
			t.Fatal(err)
		}
		if q := must[gq.Queue](t)(f.Queue(t.Context(), "q")); q.MaxRunning != 0 || q.MaxDepth != 0 || !q.UpdatedAt.IsZero() {
			t.Errorf("deleted with a finished job it is %+v", q)
		}
		if q := must[gq.Queue](t)(f.DeclareQueue(t.Context(), declared)); q.MaxRunning != 5 || q.MaxDepth != 10 {
			t.Errorf("declared again it is %+v", q)
		}
		if err := f.Purge(t.Context(), id); err != nil {
			t.Fatal(err)
		}
		if err := f.DeleteQueue(t.Context(), "q"); err != nil {
			t.Fatal(err)
		}
		_, err = f.Queue(t.Context(), "q")
		wantErr(t, "a deleted queue without jobs", err, gq.ErrNotFound)
		wantErr(t, "delete it again", f.DeleteQueue(t.Context(), "q"), gq.ErrNotFound)
		wantErr(t, "delete a bad name", f.DeleteQueue(t.Context(), ""), gq.ErrInvalid)
	})
}
