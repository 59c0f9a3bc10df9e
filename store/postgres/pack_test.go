package postgres_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/internal/testing/pgtest"
	"github.com/gopherqueue/gq/machine"
	"github.com/gopherqueue/gq/store"
)

// TestJobsShareRows: jobs that are claimed together share rows, and so do those that end
// together. Whatever then happens to any of them, every read finds each job once and as it
// was left.
func TestJobsShareRows(t *testing.T) {
	clock := &turningClock{now: still{}.Now()}
	s := open(t, pgtest.Database(t), store.Config{Clock: clock})
	defer s.Close()
	var specs []gq.Spec
	for i := range 300 {
		spec := newSpec("q")
		spec.Payload = gq.Payload{Data: fmt.Appendf(nil, `{"n":%d}`, i), ContentType: "application/json"}
		specs = append(specs, spec)
		if len(specs) == 100 { // the numbers of one call follow each other
			mustInsert(t, s, specs...)
			clock.now = clock.now.Add(time.Second)
			specs = specs[:0]
		}
	}
	page, err := s.List(t.Context(), gq.Query{OldestFirst: true, Limit: 1000})
	if err != nil || len(page.Jobs) != 300 {
		t.Fatal(len(page.Jobs), err)
	}
	want := make(map[gq.JobID]gq.Job)
	for _, j := range page.Jobs {
		want[j.State.ID] = j
	}
	claimed, err := s.Claim(t.Context(), []store.Claim{claimFrom("q", 200)})
	if err != nil || len(claimed[0].Jobs) != 200 {
		t.Fatal(err, len(claimed[0].Jobs))
	}
	if n := number(t, s.URL(), "SELECT count(*) FROM gq.held"); n > 20 {
		t.Errorf("200 jobs that were claimed together have %d rows", n)
	}
	held := claimed[0].Jobs
	for _, j := range held {
		want[j.State.ID] = j
	}
	if _, err := s.Update(t.Context(), mapped(held[:100], completing)); err != nil {
		t.Fatal(err)
	}
	if n := number(t, s.URL(), "SELECT count(*) FROM gq.done"); n > 10 {
		t.Errorf("100 jobs that ended together have %d rows", n)
	}
	check := func() {
		t.Helper()
		var all []gq.Job
		for _, oldest := range []bool{true, false} {
			var listed []gq.Job
			for cursor := ""; ; {
				page, err := s.List(t.Context(), gq.Query{OldestFirst: oldest, Limit: 1 + rand.IntN(90), Cursor: cursor})
				if err != nil {
					t.Fatal(err)
				}
				listed = append(listed, page.Jobs...)
				if cursor = page.Next; cursor == "" {
					break
				}
			}
			if !oldest {
				slices.Reverse(listed)
			}
			if !slices.IsSortedFunc(listed, func(a, b gq.Job) int { return int(int64(a.State.Sequence) - int64(b.State.Sequence)) }) {
				t.Fatal("the list is not in order")
			}
			if all = listed; len(all) != len(want) {
				t.Fatalf("%d jobs are listed, want %d", len(all), len(want))
			}
		}
		refs := make([]store.Ref, 0, len(all))
		for _, j := range all {
			refs = append(refs, store.Ref{Job: j.State.ID})
		}
		found, err := s.Get(t.Context(), refs, gq.WithPayload)
		if err != nil {
			t.Fatal(err)
		}
		counts := make(map[gq.Status]int)
		for i, f := range found {
			if f.Err != nil {
				t.Fatal(f.Err)
			}
			w := want[f.Job.State.ID]
			if f.Job.State.Status != w.State.Status || f.Job.State.Version != w.State.Version || all[i].State.Version != w.State.Version {
				t.Fatalf("job %s is %s, version %d, want %s, %d", w.State.ID, f.Job.State.Status, f.Job.State.Version, w.State.Status, w.State.Version)
			}
			counts[w.State.Status]++
		}
		stored, err := s.Counts(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for status, n := range stored[0].By {
			if int(n) != counts[gq.Status(status)] {
				t.Fatalf("%d jobs are counted as %s, want %d", n, gq.Status(status), counts[gq.Status(status)])
			}
		}
	}
	for _, j := range held[:100] {
		got, err := s.Get(t.Context(), []store.Ref{{Job: j.State.ID}}, 0)
		if err != nil || got[0].Err != nil || got[0].Job.State.Status != gq.StatusCompleted {
			t.Fatal(err, got)
		}
		j.State = got[0].Job.State
		want[j.State.ID] = j
	}
	check()

	// A random walk of everything that may be said about some of the jobs alone.
	running := held[100:]
	for round := range 60 {
		rand.Shuffle(len(running), func(i, k int) { running[i], running[k] = running[k], running[i] })
		n := min(1+rand.IntN(9), len(running))
		var updates []store.Update
		leaves := false
		switch rand.IntN(5) {
		case 0:
			updates, leaves = mapped(running[:n], completing), true
			for i := range updates {
				updates[i].Settles = rand.IntN(2) == 0
			}
		case 1:
			updates = mapped(running[:n], func(j gq.Job) store.Update {
				return store.Update{Ref: store.Ref{Lease: j.State.Lease.ID}, Apply: func(s gq.State, now time.Time) (gq.State, []gq.Event, error) {
					return machine.Heartbeat(s, j.State.Lease.Ref(), machine.Report{}, now)
				}}
			})
		case 2:
			updates, leaves = mapped(running[:n], func(j gq.Job) store.Update {
				return store.Update{Ref: store.Ref{Job: j.State.ID}, Apply: func(s gq.State, now time.Time) (gq.State, []gq.Event, error) {
					return machine.Release(s, j.State.Lease.Ref(), 0, "", now)
				}}
			}), true
		case 3:
			updates, leaves = mapped(running[:n], func(j gq.Job) store.Update {
				return store.Update{Settles: true, Ref: store.Ref{Lease: j.State.Lease.ID}, Apply: func(s gq.State, now time.Time) (gq.State, []gq.Event, error) {
					return machine.Fail(s, j.State.Lease.Ref(), gq.Failure{Category: gq.CategoryPermanent, Message: "no"}, machine.Draw{}, now)
				}}
			}), true
		default:
			again, err := s.Claim(t.Context(), []store.Claim{claimFrom("q", n)})
			if err != nil {
				t.Fatal(err)
			}
			for _, j := range again[0].Jobs {
				want[j.State.ID] = j
			}
			running = append(running, again[0].Jobs...)
		}
		clock.now = clock.now.Add(time.Second)
		if len(updates) > 0 {
			out, err := s.Update(t.Context(), updates)
			if err != nil {
				t.Fatal(err)
			}
			for i := range out {
				if out[i].Err != nil {
					t.Fatal(out[i].Err)
				}
				j := running[i]
				j.State = out[i].State
				want[j.State.ID] = j
				running[i] = j
			}
		}
		if leaves {
			running = running[n:]
		}
		if round%10 == 0 {
			check()
		}
	}
	check()

	// Leases that run out together end together.
	clock.now = clock.now.Add(time.Hour)
	due, err := s.Due(t.Context(), 1000)
	if err != nil {
		t.Fatal(err)
	}
	late := make(map[gq.JobID]bool)
	for _, id := range due.Jobs {
		late[id] = true
	}
	for _, j := range running {
		if !late[j.State.ID] {
			t.Errorf("job %s is not due", j.State.ID)
		}
	}

	// Finished jobs go one by one, by hand or by age.
	var ended []gq.JobID
	for id, j := range want {
		if j.State.Status == gq.StatusCompleted {
			ended = append(ended, id)
		}
	}
	faults, err := s.Purge(t.Context(), ended[:5])
	if err != nil || slices.ContainsFunc(faults, func(err error) bool { return err != nil }) {
		t.Fatal(err, faults)
	}
	for _, id := range ended[:5] {
		delete(want, id)
	}
	clock.now = clock.now.Add(365 * 24 * time.Hour)
	finished := 0
	for _, j := range want {
		if j.State.Status.Terminal() {
			finished++
		}
	}
	for left := finished; left > 0; {
		n, _, err := s.Collect(t.Context(), 7)
		if err != nil || n != min(7, left) && n < 1 || n > 7 {
			t.Fatalf("%d jobs were removed, %v", n, err)
		}
		left -= n
		rest := 0
		counts, err := s.Counts(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for status, n := range counts[0].By {
			if gq.Status(status).Terminal() {
				rest += int(n)
			}
		}
		listed, err := s.List(t.Context(), gq.Query{Limit: 1000, Statuses: []gq.Status{gq.StatusCompleted, gq.StatusFailed, gq.StatusDeadLetter, gq.StatusCancelled}})
		if err != nil || len(listed.Jobs) != left || rest != left {
			t.Fatalf("%d finished jobs are listed and %d counted, want %d: %v", len(listed.Jobs), rest, left, err)
		}
	}
}

// TestApplicationsLockTheirJobsOnly: while an application's transaction has completed a job,
// jobs that were claimed together with it can be settled.
func TestApplicationsLockTheirJobsOnly(t *testing.T) {
	s := open(t, pgtest.Database(t), store.Config{})
	defer s.Close()
	mustInsert(t, s, newSpec("q"), newSpec("q"), newSpec("q"), newSpec("q"))
	claimed, err := s.Claim(t.Context(), []store.Claim{claimFrom("q", 4)})
	if err != nil || len(claimed[0].Jobs) != 4 || number(t, s.URL(), "SELECT count(*) FROM gq.held") > 2 {
		t.Fatal(err, claimed)
	}
	jobs := claimed[0].Jobs
	tx, err := connect(t, s.URL()).Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	beat := func(j gq.Job) store.Update {
		return store.Update{Ref: store.Ref{Lease: j.State.Lease.ID}, Apply: func(s gq.State, now time.Time) (gq.State, []gq.Event, error) {
			return machine.Heartbeat(s, j.State.Lease.Ref(), machine.Report{}, now)
		}}
	}
	// The second call finds a job that this transaction has locked and one that it has not.
	for _, updates := range [][]store.Update{{beat(jobs[0])}, {completing(jobs[0]), completing(jobs[1])}} {
		out, err := s.Tx(tx).Update(t.Context(), updates)
		if err != nil || slices.ContainsFunc(out, func(u store.Updated) bool { return u.Err != nil }) {
			t.Fatal(err, out)
		}
	}
	out, err := s.Update(t.Context(), []store.Update{completing(jobs[2]), completing(jobs[3])})
	if err != nil || out[0].Err != nil || out[1].Err != nil {
		t.Fatal(err, out)
	}
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, j := range jobs {
		found, err := s.Get(t.Context(), []store.Ref{{Job: j.State.ID}}, 0)
		if err != nil || found[0].Err != nil || found[0].Job.State.Status != gq.StatusCompleted {
			t.Error(err, found)
		}
	}
}

// turningClock is a clock that the test turns.
type turningClock struct{ now time.Time }

func (c *turningClock) Now() time.Time { return c.now }

func mapped(jobs []gq.Job, f func(gq.Job) store.Update) []store.Update {
	updates := make([]store.Update, len(jobs))
	for i, j := range jobs {
		updates[i] = f(j)
	}
	return updates
}
