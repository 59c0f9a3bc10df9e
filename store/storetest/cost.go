package storetest

import (
	"context"
	"crypto/rand"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/machine"
	"github.com/gopherqueue/gq/store"
)

// Cost compares the CPU time of jobs that a setting makes special with that of plain ones.
type Cost struct {
	Store   store.Store
	CPU     func() time.Duration // of everything that works for the store, so far
	Callers int                  // at the same time
	Batch   int                  // jobs per call
	Jobs    int                  // of each kind in each round
	Rounds  int
}

// Unique submits, claims and completes plain jobs and unique ones in turns while other jobs
// hold so many keys, and returns the CPU time of a job of each kind in the median round.
func (c Cost) Unique(t testing.TB, keys int) (plain, unique time.Duration) {
	t.Helper()
	name, run := 0, rand.Text()
	rule := func(s *gq.Spec) {
		name++
		s.Key = gq.IdempotencyKey{Scope: "cost", Name: fmt.Sprint(run, "-", name), Fingerprint: 1}
		s.Unique = gq.UniqueRule{While: gq.WhileLive, OnCollision: gq.Refuse}
	}
	return c.compare(t, keys, rule)
}

// Ordered is Unique for jobs with an order key, each with a key of its own.
func (c Cost) Ordered(t testing.TB, keys int) (plain, ordered time.Duration) {
	t.Helper()
	name, run := 0, rand.Text()
	return c.compare(t, keys, func(s *gq.Spec) {
		name++
		s.OrderKey = fmt.Sprint(run, "-", name)
	})
}

// Rated is Unique for jobs with a limit key in a queue with a rate per key, which allows all of
// them. As many keys have other live jobs, and the measured jobs use these keys.
func (c Cost) Rated(t testing.TB, keys int) (plain, rated time.Duration) {
	t.Helper()
	q := machine.NewQueue("rated")
	q.KeyRate = gq.Rate{Count: 1000, Per: time.Second, Burst: 1000}
	if err := c.Store.PutQueue(t.Context(), q); err != nil {
		t.Fatal(err)
	}
	name := 0
	return c.compare(t, keys, func(s *gq.Spec) {
		if name++; s.Queue == "others" {
			s.Metadata.Priority = gq.PriorityBulk // behind the measured jobs
		}
		s.Queue, s.LimitKey = "rated", fmt.Sprint(name*7919%max(keys, 1))
	})
}

// compare measures plain jobs and those that a rule changes.
func (c Cost) compare(t testing.TB, keys int, rule func(*gq.Spec)) (plain, special time.Duration) {
	t.Helper()
	for left := keys; left > 0; left -= 500 {
		groups := costJobs("others", min(left, 500), rule)
		if err := insertAll(t.Context(), c.Store, groups); err != nil {
			t.Fatal(err)
		}
	}
	var plains, specials []time.Duration
	for range c.Rounds {
		plains = append(plains, c.cycle(t, func(*gq.Spec) {}))
		specials = append(specials, c.cycle(t, rule))
	}
	slices.Sort(plains)
	slices.Sort(specials)
	return plains[len(plains)/2], specials[len(specials)/2]
}

// cycle returns the CPU time of a job from submission to completion.
func (c Cost) cycle(t testing.TB, change func(*gq.Spec)) time.Duration {
	t.Helper()
	groups := costJobs("cost", c.Jobs, change)
	before := c.CPU()
	var wait sync.WaitGroup
	for i := range c.Callers {
		mine := groups[i*len(groups)/c.Callers : (i+1)*len(groups)/c.Callers]
		wait.Go(func() {
			for part := range slices.Chunk(mine, c.Batch) {
				if err := costStep(t.Context(), c.Store, part); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	wait.Wait()
	return (c.CPU() - before) / time.Duration(c.Jobs)
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
