package engine_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/gopherqueue/gq"
)

// Pages over many queues have every job once and in order, whatever has finished, was removed
// or was listed before.
func TestListMergesQueues(t *testing.T) {
	bubble(t, func(t *testing.T, f *fixture) {
		random := rand.New(rand.NewPCG(1, 2))
		states := make(map[gq.JobID]gq.Status)
		order := make(map[gq.JobID]uint64)
		check := func(q gq.Query) {
			t.Helper()
			var want, got []gq.JobID
			for id, s := range states {
				if len(q.Statuses) == 0 || slices.Contains(q.Statuses, s) {
					want = append(want, id)
				}
			}
			slices.SortFunc(want, func(a, b gq.JobID) int {
				if q.OldestFirst {
					a, b = b, a
				}
				return int(order[b]) - int(order[a])
			})
			for {
				page, err := f.List(t.Context(), q)
				if err != nil {
					t.Fatal(err)
				}
				if len(page.Jobs) > q.Limit {
					t.Fatalf("a page of %d has %d jobs", q.Limit, len(page.Jobs))
				}
				for i := range page.Jobs {
					got = append(got, page.Jobs[i].State.ID)
				}
				if q.Cursor = page.Next; page.Next == "" {
					break
				}
			}
			if !slices.Equal(got, want) {
				t.Fatalf("%+v lists %d jobs, want %d, or in another order", q, len(got), len(want))
			}
		}
		for range 60 {
			queue := fmt.Sprintf("q%d", random.IntN(25))
			for range 1 + random.IntN(6) {
				out, err := f.Submit(t.Context(), gq.Spec{Queue: queue, Type: "t"})
				if err != nil {
					t.Fatal(err)
				}
				states[out.ID()], order[out.ID()] = gq.StatusScheduled, out.State.Sequence
			}
			jobs, err := f.Claim(t.Context(), gq.ClaimRequest{Worker: "w", Queues: []string{fmt.Sprintf("q%d", random.IntN(25))}, N: 3})
			if err != nil {
				t.Fatal(err)
			}
			for _, j := range jobs {
				s, err := f.Complete(t.Context(), j.State.Lease.Ref(), nil)
				if err != nil {
					t.Fatal(err)
				}
				states[j.State.ID] = s.Status
			}
			for id, s := range states {
				if random.IntN(20) == 0 && s == gq.StatusScheduled {
					if _, err := f.Cancel(t.Context(), id, ""); err != nil {
						t.Fatal(err)
					}
					states[id] = gq.StatusCancelled
				} else if random.IntN(20) == 0 && s.Terminal() {
					if err := f.Purge(t.Context(), id); err != nil {
						t.Fatal(err)
					}
					delete(states, id)
				}
			}
			for _, statuses := range [][]gq.Status{nil, {gq.StatusCompleted}, {gq.StatusCancelled, gq.StatusCompleted}, {gq.StatusScheduled}} {
				check(gq.Query{Statuses: statuses, OldestFirst: random.IntN(2) == 0, Limit: 1 + random.IntN(20)})
			}
		}
	})
}
