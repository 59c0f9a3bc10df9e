package storetest

import (
	"context"
	"crypto/rand"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/machine"
	"github.com/gopherqueue/gq/store"
)

// Cost measures what a setting of jobs costs. It compares the CPU time of jobs with a key with that
// of plain ones, which run in turns, while other jobs have keys too.
type Cost struct {
	Open    func(testing.TB) store.Store
	CPU     func() time.Duration // of everything that works for the store, so far
	Keys    int                  // of other live jobs
	Jobs    int                  // of each kind in each round, submitted one by one
	Batched int                  // of each kind in each round, submitted in batches of 100
	Rounds  int                  // of which the median counts
}

// costMost is how much a job with a key may cost, in units of a plain one.
const costMost = 1.5

// costKinds are the kinds of jobs that may cost costMost. A rule changes the nth job of a run.
var costKinds = []struct {
	name string
	rule func(s *gq.Spec, run string, n, keys int)
}{
	{"Unique", func(s *gq.Spec, run string, n, _ int) {
		s.Key = gq.IdempotencyKey{Scope: "cost", Name: fmt.Sprint(run, "-", n), Fingerprint: 1}
		s.Unique = gq.UniqueRule{While: gq.WhileLive, OnCollision: gq.Refuse}
	}},
	{"Ordered", func(s *gq.Spec, run string, n, _ int) { s.OrderKey = fmt.Sprint(run, "-", n) }},
	// The queue's rate allows all of them. They use the keys of the other jobs, which are behind them.
	{"Rated", func(s *gq.Spec, _ string, n, keys int) {
		if s.Queue == "others" {
			s.Metadata.Priority = gq.PriorityBulk
		}
		s.Queue, s.LimitKey = "rated", fmt.Sprint(n*7919%max(keys, 1))
	}},
}

// Run submits, claims and completes jobs of each kind, and fails if one costs more than costMost.
func (c Cost) Run(t *testing.T) {
	for _, kind := range costKinds {
		t.Run(kind.name, func(t *testing.T) {
			s := c.Open(t)
			defer s.Close() //nolint:errcheck // a measurement
			q := machine.NewQueue("rated")
			q.KeyRate = gq.Rate{Count: 1000, Per: time.Second, Burst: 1000}
			if err := s.PutQueue(t.Context(), q); err != nil {
				t.Fatal(err)
			}
			n, run := 0, rand.Text()
			rule := func(s *gq.Spec) {
				n++
				kind.rule(s, run, n, c.Keys)
			}
			before := c.CPU()
			for left := c.Keys; left > 0; left -= 500 {
				if err := insertAll(t.Context(), s, costJobs("others", min(left, 500), rule)); err != nil {
					t.Fatal(err)
				}
			}
			var memory runtime.MemStats
			runtime.GC()
			runtime.ReadMemStats(&memory)
			t.Logf("%d jobs with a key each: %v of CPU a job, %d MB of live heap", c.Keys, (c.CPU()-before)/time.Duration(max(c.Keys, 1)), memory.HeapAlloc>>20)
			t.Run("Single", func(t *testing.T) { c.compare(t, s, c.Jobs, 1, rule) })
			t.Run("Batches", func(t *testing.T) { c.compare(t, s, c.Batched, 100, rule) })
		})
	}
}

// compare measures plain jobs and those that a rule changes.
func (c Cost) compare(t *testing.T, s store.Store, jobs, batch int, rule func(*gq.Spec)) {
	t.Helper()
	var plains, specials []time.Duration
	var ratios []float64
	for range c.Rounds {
		plain, special := c.cycle(t, s, jobs, batch, func(*gq.Spec) {}), c.cycle(t, s, jobs, batch, rule)
		plains, specials, ratios = append(plains, plain), append(specials, special), append(ratios, float64(special)/float64(plain))
	}
	slices.Sort(plains)
	slices.Sort(specials)
	slices.Sort(ratios)
	middle := c.Rounds / 2
	ratio := float64(specials[middle]) / float64(plains[middle])
	t.Logf("batches of %d: plain %v, with a key %v a job, ratio %.2f (%.2f to %.2f)", batch, plains[middle], specials[middle], ratio, ratios[0], ratios[len(ratios)-1])
	if ratio > costMost {
		t.Errorf("in batches of %d a job with a key costs %.2f times a plain one, want at most %.1f", batch, ratio, costMost)
	}
}

// costCallers is the number of callers at the same time.
const costCallers = 64

// cycle returns the CPU time of a job from submission to completion.
func (c Cost) cycle(t *testing.T, s store.Store, jobs, batch int, change func(*gq.Spec)) time.Duration {
	t.Helper()
	groups := costJobs("cost", jobs, change)
	before := c.CPU()
	var wait sync.WaitGroup
	for i := range costCallers {
		mine := groups[i*len(groups)/costCallers : (i+1)*len(groups)/costCallers]
		wait.Go(func() {
			for part := range slices.Chunk(mine, batch) {
				if err := costStep(t.Context(), s, part); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	wait.Wait()
	return (c.CPU() - before) / time.Duration(jobs)
}

func costStep(ctx context.Context, s store.Store, groups []store.Group) error {
	if err := insertAll(ctx, s, groups); err != nil {
		return err
	}
	claimed, err := s.Claim(ctx, []store.Claim{{Filter: store.Filter{Queues: []string{groups[0].Jobs[0].Queue}}, N: len(groups), Worker: "cost"}})
	if err != nil || claimed[0].Err != nil {
		return fmt.Errorf("claim: %w, %w", err, claimed[0].Err)
	}
	updates := make([]store.Update, len(claimed[0].Jobs))
	for i, j := range claimed[0].Jobs {
		updates[i] = store.Update{Ref: byLease(j.State.Lease.ID), Apply: completing(j.State.Lease.Ref(), nil), Settles: true}
	}
	updated, err := s.Update(ctx, updates)
	for i := range updated {
		if updated[i].Err != nil {
			return updated[i].Err
		}
	}
	return err
}

func insertAll(ctx context.Context, s store.Store, groups []store.Group) error {
	inserted, err := s.Insert(ctx, groups)
	for i := range inserted {
		if inserted[i].Err != nil {
			return inserted[i].Err
		}
	}
	return err
}

func costJobs(queue string, n int, change func(*gq.Spec)) []store.Group {
	groups := make([]store.Group, n)
	payload := make([]byte, 100*n)
	_, _ = rand.Read(payload) // never fails
	for i := range groups {
		var id [16]byte
		_, _ = rand.Read(id[:])
		s := gq.Spec{
			ID: machine.NewJobID(id), Queue: queue, Type: "cost",
			Payload: gq.Payload{Data: payload[100*i : 100*(i+1)], ContentType: gq.OctetStream},
		}.WithDefaults()
		change(&s)
		groups[i] = store.Group{Jobs: []gq.Spec{s}, Mint: true}
	}
	return groups
}
