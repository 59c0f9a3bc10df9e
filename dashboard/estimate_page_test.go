package dashboard_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/dashboard"
)

func TestEveryCauseHasAnEstimateOrSaysWhyNot(t *testing.T) {
	s := newSite(t, dashboard.Options{})
	page := func(id gq.JobID) string {
		t.Helper()
		return s.get("jobs/"+id.String(), http.StatusOK)
	}
	finish := func(job gq.Job) {
		t.Helper()
		if _, err := s.queue.Complete(t.Context(), job.State.Lease.Ref(), nil); err != nil {
			t.Fatal(err)
		}
	}
	first := s.submit(gq.Spec{Queue: "mail", Type: "t"})
	s.has(page(first), "cannot be told: nobody can tell when a worker comes")

	held := s.claim("mail")
	behind := s.submit(gq.Spec{Queue: "mail", Type: "t", DependsOn: []gq.Dependency{{Job: first, Kind: gq.DependencyAfter}}})
	s.has(page(behind), "cannot be told: it waits for jobs that run, and none of their queue has ended lately")
	second := s.submit(gq.Spec{Queue: "mail", Type: "t"})
	if _, err := s.queue.ChangeQueue(t.Context(), "mail", func(q *gq.Queue) { q.MaxRunning = 1 }); err != nil {
		t.Fatal(err)
	}
	s.has(page(second), "reached max_running", "0 jobs ahead of it; jobs of its queue started at")
	finish(held)
	finish(s.claim("mail"))
	s.claim("mail")
	third := s.submit(gq.Spec{Queue: "mail", Type: "t"})
	fourth := s.submit(gq.Spec{Queue: "mail", Type: "t"})
	s.has(page(third), "reached max_running", "0 jobs ahead of it; jobs of its queue started at")
	s.has(page(fourth), "1 job ahead of it; jobs of its queue started at")

	if _, err := s.queue.Claim(t.Context(), gq.ClaimRequest{Worker: "worker-2", Queues: []string{"idle"}, N: 1}); err != nil {
		t.Fatal(err)
	}
	s.has(page(s.submit(gq.Spec{Queue: "idle", Type: "t"})), "the next job of queue idle", "cannot be told: no job of its queue has started lately")

	delayed := s.submit(gq.Spec{Queue: "mail", Type: "t", Delay: time.Hour})
	s.has(page(delayed), "Starts <time", "the time that was set for it")
	after := s.submit(gq.Spec{Queue: "mail", Type: "t", DependsOn: []gq.Dependency{{Job: delayed, Kind: gq.DependencyAfter}}})
	s.has(page(after), "cannot be told: it depends on jobs that have not started")
	if _, err := s.queue.Pause(t.Context(), "mail"); err != nil {
		t.Fatal(err)
	}
	s.has(page(third), "cannot be told: nobody can tell when the queue is resumed")
	s.has(page(delayed), "Starts no earlier than <time", "the time that was set for it")
}

// The order of a queue says nothing about the jobs of matching.
func TestAJobOfMatchingHasNoPlaceInLine(t *testing.T) {
	s := newSite(t, dashboard.Options{Sources: dashboard.Sources{Matching: "matching"}})
	for _, queue := range []string{"matching", "mail"} {
		for range 5 {
			s.submit(gq.Spec{Queue: queue, Type: "t"})
			if _, err := s.queue.Complete(t.Context(), s.claim(queue).State.Lease.Ref(), nil); err != nil {
				t.Fatal(err)
			}
		}
		for n := range 2 {
			page := s.get("jobs/"+s.submit(gq.Spec{Queue: queue, Type: "t"}).String(), http.StatusOK)
			if queue == "matching" {
				s.has(page, "cannot be told: rounds of matching decide which job is next")
				s.lacks(page, "jobs of its queue started at")
			} else {
				s.has(page, []string{"0 jobs ahead of it", "1 job ahead of it"}[n])
			}
		}
	}
}

// The time at which the wait for a signal ends is not the start of anything.
func TestAJobThatWaitsForASignalHasNoEstimate(t *testing.T) {
	s := newSite(t, dashboard.Options{})
	flow := gq.NewWorkflow("order")
	flow.Signal("approve", time.Hour)
	id, err := s.queue.SubmitWorkflow(t.Context(), flow)
	if err != nil {
		t.Fatal(err)
	}
	found, err := s.queue.Workflow(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	text := s.get("jobs/"+found.Jobs[0].ID.String(), http.StatusOK)
	s.has(text, "cannot be told: nobody can tell when the signal comes")
	s.lacks(text, "Starts <time")
}
