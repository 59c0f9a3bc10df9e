package postgres_test

import (
	"testing"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/engine"
	"github.com/gopherqueue/gq/internal/testing/pgtest"
	"github.com/gopherqueue/gq/store"
	"github.com/gopherqueue/gq/store/postgres"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// TestDependentsDoNotWaitForASweep: a job can be claimed as soon as the last one that it
// waits for has ended.
func TestDependentsDoNotWaitForASweep(t *testing.T) {
	s, err := postgres.Open(t.Context(), pgtest.Database(t), store.Config{})
	if err != nil {
		t.Fatal(err)
	}
	e, err := engine.Start(s, engine.Options{Sweep: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	job := gq.Spec{Queue: "q", Type: "t"}
	_, err = e.SubmitGraph(t.Context(), []gq.GraphJob{
		{Spec: job, Ref: "a"},
		{Spec: job, Ref: "b"},
		{Spec: job, Ref: "c", Needs: []gq.Dependency{{Kind: gq.DependencyFanIn, Ref: "a"}, {Kind: gq.DependencyFanIn, Ref: "b"}}},
		{Spec: job, Ref: "d", Needs: []gq.Dependency{{Kind: gq.DependencyAfter, Ref: "c"}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	for done := 0; done < 4; {
		jobs, err := e.Claim(t.Context(), gq.ClaimRequest{Worker: "w", Queues: []string{"q"}, N: 10, Wait: 20 * time.Second})
		if err != nil || len(jobs) == 0 {
			t.Fatalf("after %d jobs a claim got none: %v", done, err)
		}
		for i := range jobs {
			if _, err := e.Settle(t.Context(), []gq.Outcome{{Lease: jobs[i].State.Lease.Ref(), Verdict: gq.VerdictComplete}}); err != nil {
				t.Fatal(err)
			}
		}
		done += len(jobs)
	}
}
