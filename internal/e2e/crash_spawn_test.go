package e2e_test

import (
	"context"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/internal/testing/pgtest"
	"github.com/gopherqueue/gq/internal/testing/spec"
)

// fanOut is two parts and a job that waits for both, which know their parent by its id.
func fanOut(parent gq.JobID) []gq.Spec {
	of := gq.Metadata{CorrelationID: parent.String()}
	need := func(ref string) gq.Dependency { return gq.Dependency{Kind: gq.DependencyFanIn, Ref: ref} }
	return []gq.Spec{
		{Queue: "children", Type: "join", Ref: "join", DependsOn: []gq.Dependency{need("a"), need("b")}, Metadata: of},
		{Queue: "children", Type: "part", Ref: "a", Metadata: of}, {Queue: "children", Type: "part", Ref: "b", Metadata: of},
	}
}

// TestSpawnsSurviveKills kills a server while many jobs complete with jobs that name each other:
// a job has completed with all of them or has not completed, and each join waits for its own parts.
func TestSpawnsSurviveKills(t *testing.T) {
	spec.Covers(t, "J-78", "J-79")
	t.Parallel()
	for name, store := range map[string]func() string{
		"File":       func() string { return "file:" + t.TempDir() },
		"PostgreSQL": func() string { return pgtest.Database(t) },
	} {
		t.Run(name, func(t *testing.T) {
			url, acknowledged := store(), map[gq.JobID][]gq.JobID{}
			for round := range 3 {
				s := startServer(t, nil, "--store", url)
				checkSpawns(t, s, acknowledged)
				completeUntilKilled(t, s, acknowledged, 30*(round+1))
			}
			s := startServer(t, nil, "--store", url)
			checkSpawns(t, s, acknowledged)
		})
	}
}

// completeUntilKilled completes jobs until a number of completions has been acknowledged, and kills
// the server during others.
func completeUntilKilled(t *testing.T, s *served, acknowledged map[gq.JobID][]gq.JobID, until int) {
	t.Helper()
	c := s.client()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	parents := make([]gq.Spec, 200)
	for i := range parents {
		parents[i] = gq.Spec{Queue: "parents", Type: "fan", Policy: gq.PresetResilient.Policy()}
	}
	if _, err := c.SubmitBatch(ctx, parents); err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	var working sync.WaitGroup
	for range 6 {
		working.Go(func() {
			for {
				jobs, err := c.Claim(ctx, gq.ClaimRequest{Worker: "w", Queues: []string{"parents"}, N: 1, Wait: time.Minute, TTL: time.Hour})
				if err != nil || len(jobs) == 0 {
					return
				}
				parent := jobs[0].State.ID
				answers, err := c.Settle(ctx, []gq.Outcome{{Lease: jobs[0].State.Lease.Ref(), Verdict: gq.VerdictComplete, Spawn: fanOut(parent)}})
				if err != nil || answers[0].Err != nil {
					return
				}
				mu.Lock()
				for _, p := range answers[0].Spawned {
					acknowledged[parent] = append(acknowledged[parent], p.ID())
				}
				enough := len(acknowledged) >= until
				mu.Unlock()
				if enough {
					_ = s.Command.Process.Signal(syscall.SIGKILL)
					cancel()
					return
				}
			}
		})
	}
	working.Wait()
	if len(acknowledged) < until {
		t.Fatalf("only %d completions were acknowledged", len(acknowledged))
	}
	<-s.Exited
}

// checkSpawns compares the jobs of a server with what it has acknowledged.
func checkSpawns(t *testing.T, s *served, acknowledged map[gq.JobID][]gq.JobID) {
	t.Helper()
	c, children, completed := s.client(), map[string]map[gq.JobID]*gq.Job{}, map[gq.JobID]bool{}
	for q := (gq.Query{Limit: 1000}); ; {
		page, err := c.List(t.Context(), q)
		if err != nil {
			t.Fatal(err)
		}
		for i := range page.Jobs {
			j := &page.Jobs[i]
			if j.Spec.Type == "fan" {
				completed[j.State.ID] = j.State.Status == gq.StatusCompleted
				continue
			}
			of := j.Metadata.CorrelationID
			if children[of] == nil {
				children[of] = map[gq.JobID]*gq.Job{}
			}
			children[of][j.State.ID] = j
		}
		if q.Cursor = page.Next; q.Cursor == "" {
			break
		}
	}
	for parent, done := range completed {
		family := children[parent.String()]
		if want := map[bool]int{true: 3}[done]; len(family) != want {
			t.Errorf("job %s has completed: %v, with %d children", parent, done, len(family))
		}
		for _, child := range family {
			own := 0
			for _, d := range child.Spec.DependsOn {
				if d.Kind == gq.DependencyFanIn && family[d.Job] != nil && family[d.Job].Spec.Type == "part" {
					own++
				}
			}
			if want := map[string]int{"join": 2}[child.Spec.Type]; own != want || own > 0 && child.State.Status != gq.StatusPending {
				t.Errorf("%s %s is %s and waits for %d of its siblings, want %d", child.Spec.Type, child.State.ID, child.State.Status, own, want)
			}
		}
	}
	for parent, ids := range acknowledged {
		for _, id := range ids {
			if children[parent.String()][id] == nil {
				t.Errorf("job %s was acknowledged as a child of %s and is gone", id, parent)
			}
		}
	}
}
