package matchmaker_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/internal/matchmaker"
	"github.com/gopherqueue/gq/match"
	"github.com/gopherqueue/gq/store"
)

// A submission with a key can be repeated; the key belongs to its requester.
func TestSubmitTwice(t *testing.T) {
	bubble(t, matchmaker.Options{}, func(f *fixture) {
		keyed := func(e *match.Enqueue) { e.Key, e.Requester = "k", "alice" }
		first := f.submit(keyed)
		f.policy(`{"lease":{"ai_secs":900}}`) // applies to new jobs; the repeated submission is still the same
		if again := f.submit(keyed); again.ID != first.ID || !again.Existing || first.Existing {
			f.Errorf("submitted %s, then %s (existing %t)", first.ID, again.ID, again.Existing)
		}
		if other := f.submit(keyed, by("bob")); other.ID == first.ID || other.Existing {
			f.Error("two requesters share a key")
		}
		long := by(strings.Repeat("c", gq.MaxNameBytes))
		if other := f.submit(keyed, long); other.Existing || f.submit(keyed, long).ID != other.ID {
			f.Error("a requester with a long name has no keys of its own")
		}
		_, err := f.Submit(f.Context(), match.Enqueue{Job: match.Job{Kind: match.AI, Units: 2, Requester: "alice"}, Key: "k"})
		f.refused("other content", err, gq.ErrKeyReused)
		if page, err := f.Jobs(f.Context(), matchmaker.JobQuery{Limit: 10}); err != nil || len(page.Jobs) != 3 {
			f.Errorf("%d jobs, %v", len(page.Jobs), err)
		}
		time.Sleep(25 * time.Hour)
		if late := f.submit(keyed); late.ID == first.ID {
			f.Error("the key is remembered for ever")
		}
	})
}

func TestListJobs(t *testing.T) {
	bubble(t, matchmaker.Options{}, func(f *fixture) {
		f.provider("p", func(p *match.Provider) { p.Capabilities = []match.Kind{match.Quantum} })
		var all []string
		for range 5 {
			all = append(all, f.submit(by("alice")).ID)
			time.Sleep(time.Second)
		}
		held := f.submit(quantum, by("bob"))
		f.assigned()
		gone := f.submit(living(1))
		time.Sleep(2 * time.Second)
		alice := "alice"
		for _, v := range []struct {
			what string
			q    matchmaker.JobQuery
			want []string
		}{
			{"all", matchmaker.JobQuery{}, append([]string{gone.ID, held.ID}, reversed(all)...)},
			{"queued", matchmaker.JobQuery{State: "QUEUED"}, reversed(all)},
			{"assigned", matchmaker.JobQuery{State: "ASSIGNED"}, []string{held.ID}},
			{"expired, before a sweep", matchmaker.JobQuery{State: "EXPIRED"}, []string{gone.ID}},
			{"completed", matchmaker.JobQuery{State: "COMPLETED"}, nil},
			{"of a kind", matchmaker.JobQuery{Kind: match.Quantum}, []string{held.ID}},
			{"of a requester", matchmaker.JobQuery{Requester: &alice}, reversed(all)},
		} {
			var got []string
			for q := v.q; ; {
				q.Limit = 2
				page, err := f.Jobs(f.Context(), q)
				if err != nil {
					f.Fatal(err)
				}
				for _, j := range page.Jobs {
					got = append(got, j.ID)
				}
				if q.Cursor = page.Next; page.Next == "" {
					break
				}
			}
			if !slices.Equal(got, v.want) {
				f.Errorf("%s: %v, want %v", v.what, got, v.want)
			}
		}
	})
}

func reversed(list []string) []string {
	list = slices.Clone(list)
	slices.Reverse(list)
	return list
}

// gets counts the reads of jobs.
type gets struct {
	store.Store
	store.Changer
	n int
}

func (g *gets) Get(ctx context.Context, refs []store.Ref, parts gq.Parts) ([]store.Found, error) {
	g.n++
	return g.Store.Get(ctx, refs, parts)
}

// A page of leases is one read of jobs, and pages have every lease once, even if leases end
// in between.
func TestPagesOfLeases(t *testing.T) {
	bubble(t, matchmaker.Options{}, func(f *fixture) {
		f.policy(`{"quotas":{"leases_max_per_provider":100}}`)
		f.provider("p")
		f.provider("q", func(p *match.Provider) { p.Region = "us" })
		for range 20 {
			f.submit(func(e *match.Enqueue) { e.Regions = []string{"eu"}; e.Payload = []byte(`"x"`) })
		}
		f.submit(func(e *match.Enqueue) { e.Regions = []string{"us"} })
		var granted []gq.LeaseID
		for _, a := range f.round().Assignments {
			granted = append(granted, a.Lease)
		}
		counted := &gets{Store: f.store, Changer: f.store.(store.Changer)}
		other := newFixture(f.T, counted, matchmaker.Options{})
		walk := func(provider string, between func(n int)) (got []gq.LeaseID) {
			after := int64(0)
			for n := 0; ; n++ {
				if _, err := other.Provider(f.Context(), "p"); err != nil { // reads what has happened
					f.Fatal(err)
				}
				before := counted.n
				page, err := other.Leases(f.Context(), provider, after, 6)
				if err != nil {
					f.Fatal(err)
				}
				if reads := counted.n - before; reads != 1 {
					f.Errorf("page %d took %d reads of jobs", n, reads)
				}
				for _, h := range page.Leases {
					if h.Lease.Provider != provider && provider != "" || string(h.Job.Payload) != `"x"` && h.Lease.Provider == "p" {
						f.Errorf("lease %+v of job %+v", h.Lease, h.Job)
					}
					got = append(got, h.Lease.ID)
				}
				if after = page.Next; after == 0 {
					return got
				}
				between(n)
			}
		}
		if got := walk("", func(int) {}); !slices.Equal(got, granted) {
			f.Errorf("all leases: %v, want %v", got, granted)
		}
		of := func(provider string) (list []gq.LeaseID) {
			for _, id := range granted {
				if f.lease(id).Provider == provider {
					list = append(list, id)
				}
			}
			return list
		}
		mine := of("p")
		got := walk("p", func(n int) {
			if n == 0 {
				f.ack(f.lease(mine[0]))
				if err := f.complete(f.lease(mine[0])); err != nil {
					f.Error(err)
				}
			}
		})
		if !slices.Equal(got, mine) {
			f.Errorf("leases of p: %v, want %v", got, mine)
		}
		_, err := f.Leases(f.Context(), "nobody", 0, 10)
		f.refused("an unknown provider", err, gq.ErrNotFound)
	})
}

func TestListRounds(t *testing.T) {
	bubble(t, matchmaker.Options{}, func(f *fixture) {
		if list, next, err := f.Rounds(f.Context(), 0, 3); err != nil || len(list) != 0 || next != 0 {
			f.Errorf("before the first: %v %d %v", list, next, err)
		}
		f.provider("p")
		for range 7 {
			f.submit()
			f.submit(model("unknown"))
			f.assigned()
		}
		var got []uint64
		for before := uint64(0); ; {
			list, next, err := f.Rounds(f.Context(), before, 3)
			if err != nil {
				f.Fatal(err)
			}
			for _, r := range list {
				got = append(got, r.Round)
				rec, err := f.RoundRecord(f.Context(), r.Round)
				if err != nil || r.Assignments != 1 || r.Jobs != 1 || r.Seed != rec.Result.Seed || r.Now != rec.Input.Now || r.SetAside != int(r.Round) {
					f.Errorf("%+v of %+v, %v", r, rec, err)
				}
			}
			if before = next; next == 0 {
				break
			}
		}
		if want := []uint64{7, 6, 5, 4, 3, 2, 1}; !slices.Equal(got, want) {
			f.Errorf("rounds %v", got)
		}
	})
}

func TestCancelJob(t *testing.T) {
	bubble(t, matchmaker.Options{}, func(f *fixture) {
		f.provider("p")
		waiting := f.submit()
		if j, err := f.CancelJob(f.Context(), jobID(f, waiting.ID), "not needed"); err != nil || j.State != "CANCELLED" || j.Reason != "not needed" {
			f.Errorf("%+v, %v", j, err)
		}
		f.idle("the job was cancelled")
		if _, err := f.CancelJob(f.Context(), jobID(f, waiting.ID), "again"); err != nil {
			f.Errorf("again: %v", err)
		}
		for _, acked := range []bool{false, true} {
			j := f.submit()
			l := f.assigned()
			if acked {
				l = f.ack(l)
			}
			if _, err := f.CancelJob(f.Context(), jobID(f, j.ID), "stop"); err != nil {
				f.Fatal(err)
			}
			f.is(j, "CANCELLED", 0)
			f.ends(l.ID, "CANCELLED", "job_cancelled")
			f.refused("completing it", f.complete(l), gq.ErrStaleLease)
			if p := f.standing("p"); p.LeasesActive != 0 || p.Fails != 0 {
				f.Errorf("the provider: %+v", p)
			}
			f.told(j, "jobAssigned", "leaseCancelled job_cancelled")
		}
		done := f.submit()
		l := f.ack(f.assigned())
		if err := f.complete(l); err != nil {
			f.Fatal(err)
		}
		_, err := f.CancelJob(f.Context(), jobID(f, done.ID), "late")
		f.refused("a completed job", err, gq.ErrIllegalMove)
		f.is(done, "COMPLETED", 0)
		foreign, err := f.engine.Submit(f.Context(), gq.Spec{Queue: "other", Type: "t"})
		if err != nil {
			f.Fatal(err)
		}
		_, err = f.CancelJob(f.Context(), foreign.ID(), "")
		f.refused("a job of another queue", err, gq.ErrNotFound)
	})
}

func TestCancelLease(t *testing.T) {
	bubble(t, matchmaker.Options{}, func(f *fixture) {
		f.provider("p")
		f.provider("q")
		j := f.submit()
		l := f.ack(f.assigned())
		_, err := f.CancelLease(f.Context(), matchmaker.Ref{Lease: l.ID, Provider: "x"}, "")
		f.refused("another holder", err, gq.ErrStaleLease)
		if _, err := f.CancelLease(f.Context(), matchmaker.Ref{Lease: l.ID}, "declined"); err != nil {
			f.Fatal(err)
		}
		f.ends(l.ID, "CANCELLED", "lease_cancelled: declined")
		f.is(j, "QUEUED", 0)
		if p := f.standing(l.Provider); p.CooldownUntil != (match.Cooldowns{}) || p.Fails != 0 || p.LeasesActive != 0 {
			f.Errorf("the provider is at fault: %+v", p)
		}
		if next := f.assigned(); next.Provider == l.Provider || next.Attempt != 0 {
			f.Errorf("assigned to %s at attempt %d", next.Provider, next.Attempt)
		}
		_, err = f.CancelLease(f.Context(), matchmaker.Ref{Lease: l.ID}, "again, otherwise")
		f.refused("an ended lease", err, gq.ErrStaleLease)
	})
}

func TestCancelRound(t *testing.T) {
	bubble(t, matchmaker.Options{}, func(f *fixture) {
		for _, id := range names(3) {
			f.provider(id)
		}
		var jobs []matchmaker.Job
		for range 6 {
			jobs = append(jobs, f.submit())
		}
		r := f.round()
		if len(r.Assignments) != 6 {
			f.Fatalf("%+v", r)
		}
		first := f.ack(f.lease(r.Assignments[0].Lease))
		if err := f.complete(first); err != nil {
			f.Fatal(err)
		}
		out, err := f.CancelRound(f.Context(), r.Number, "wrong policy")
		if err != nil || len(out.Cancelled) != 5 || out.Ended != 1 || slices.Contains(out.Cancelled, first.ID) {
			f.Fatalf("%+v, %v", out, err)
		}
		for _, id := range out.Cancelled {
			f.ends(id, "CANCELLED", "round_cancelled: wrong policy")
		}
		queued := 0
		for _, j := range jobs {
			if f.job(j).State == "QUEUED" {
				queued++
			}
		}
		if queued != 5 {
			f.Errorf("%d jobs are queued", queued)
		}
		if again, err := f.CancelRound(f.Context(), r.Number, "wrong policy"); err != nil || len(again.Cancelled) != 0 || again.Ended != 6 {
			f.Errorf("again: %+v, %v", again, err)
		}
		rec, err := f.RoundRecord(f.Context(), r.Number)
		if err != nil || rec.Check() != nil {
			f.Errorf("the record: %v, %v", err, rec.Check())
		}
		if next := f.round(); len(next.Assignments) != 5 {
			f.Errorf("the next round: %+v", next)
		}
		_, err = f.CancelRound(f.Context(), 99, "")
		f.refused("an unknown round", err, gq.ErrNotFound)
	})
}

// Removing a retired provider deletes it on every node; its id can be registered again.
func TestRemoveProvider(t *testing.T) {
	bubble(t, matchmaker.Options{}, func(f *fixture) {
		f.provider("p")
		f.provider("q")
		f.submit()
		f.submit()
		f.round()
		other := f.another(matchmaker.Options{})
		other.standing("p")
		f.refused("an active one", f.Remove(f.Context(), "p"), gq.ErrConflict)
		if _, err := f.SetStatus(f.Context(), "p", match.Retired, "sold"); err != nil {
			f.Fatal(err)
		}
		if err := f.Remove(f.Context(), "p"); err != nil {
			f.Fatal(err)
		}
		f.refused("twice", f.Remove(f.Context(), "p"), gq.ErrNotFound)
		for _, node := range []*fixture{f, other, f.another(matchmaker.Options{})} {
			if list, err := node.Providers(f.Context(), "", 10); err != nil || len(list) != 1 || list[0].ID != "q" {
				f.Errorf("providers %+v, %v", list, err)
			}
			_, err := node.Heartbeat(f.Context(), "p")
			f.refused("its heartbeat", err, gq.ErrNotFound)
		}
		for _, kind := range []string{"matching.provider", "matching.ledger", "matching.beat"} {
			if _, err := f.store.Doc(f.Context(), kind, "p"); !errors.Is(err, gq.ErrNotFound) {
				f.Errorf("%s is kept: %v", kind, err)
			}
		}
		if rec, err := f.RoundRecord(f.Context(), 1); err != nil || rec.Check() != nil {
			f.Errorf("the record: %v, %v", err, rec.Check())
		}
		other.provider("p", func(p *match.Provider) { p.Stake = 7000 })
		if p := f.standing("p"); p.Stake != 7000 || p.Status != match.Active || p.LeasesActive != 0 {
			f.Errorf("registered again: %+v", p)
		}
		// The records of later rounds build on those before.
		for range 3 {
			f.submit()
			r := f.round()
			if rec, err := f.RoundRecord(f.Context(), r.Number); err != nil || rec.Check() != nil {
				f.Errorf("round %d: %v, %v", r.Number, err, rec.Check())
			}
		}
	})
}
