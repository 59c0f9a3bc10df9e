package matchmaker_test

import (
	"context"
	"encoding/json"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/internal/matchmaker"
	"github.com/gopherqueue/gq/internal/testing/spec"
	"github.com/gopherqueue/gq/machine"
	"github.com/gopherqueue/gq/match"
	"github.com/gopherqueue/gq/store/local"
)

// The specified group "assignment and lease": timers, renewals, cancellations.

func TestAssignment(t *testing.T) {
	spec.Covers(t, "M-04", "M-05", "M-06", "M-43", "M-50", "M-52", "M-53", "M-55", "M-56", "M-59", "M-150")
	bubble(t, matchmaker.Options{}, func(f *fixture) {
		j, q := f.submit(), f.submit(quantum)
		f.idle("nobody is registered")
		f.is(j, "QUEUED", 0)
		f.provider("p")
		r := f.round()
		if len(r.Assignments) != 2 || r.Number != 1 {
			f.Fatalf("the round: %+v", r)
		}
		for i, length := range map[int]time.Duration{0: 600 * time.Second, 1: 180 * time.Second} {
			a := r.Assignments[i]
			l := f.lease(a.Lease)
			want := matchmaker.Lease{
				ID: a.Lease, Job: jobID(f, a.Job), Provider: "p", Kind: match.Kinds()[i], Attempt: 0, Start: l.Start,
				AckBy: l.Start.Add(5 * time.Second), Deadline: l.Start.Add(length), RenewBy: l.Start.Add(length * 6 / 10), Status: "ACTIVE",
			}
			if l != want {
				f.Errorf("lease %+v\nwant %+v", l, want)
			}
			if a.Lease != r.Seed.Lease(a.Job, "p", 0) {
				f.Errorf("lease id %s", a.Lease)
			}
		}
		for _, j := range []matchmaker.Job{j, q} {
			f.is(j, "ASSIGNED", 0)
			f.told(j, "jobAssigned")
		}
		if p := f.standing("p"); p.LeasesActive != 2 || p.AIUnitsUsed != 1 || p.QuantumUnitsUsed != 1 {
			f.Errorf("the account: %+v", p)
		}
	})
}

func TestAck(t *testing.T) {
	spec.Covers(t, "M-60", "M-61", "M-62", "M-78", "M-150")
	bubble(t, matchmaker.Options{}, func(f *fixture) {
		f.provider("p")
		j := f.submit()
		l := f.assigned()
		time.Sleep(4900 * time.Millisecond)
		acked := f.ack(l)
		if !acked.Acked || !acked.Start.Equal(l.Start) || !acked.Deadline.Equal(l.Deadline) || !acked.RenewBy.Equal(l.RenewBy) {
			f.Errorf("acknowledged: %+v\nbefore: %+v", acked, l)
		}
		if again := f.ack(l); again != acked {
			f.Errorf("again: %+v", again)
		}
		_, err := f.Ack(f.Context(), matchmaker.Ref{Lease: l.ID, Provider: "q"})
		f.refused("another's lease", err, gq.ErrStaleLease)
		_, err = f.Ack(f.Context(), matchmaker.Ref{Lease: "unknown"})
		f.refused("an unknown lease", err, gq.ErrNotFound)
		f.is(j, "ASSIGNED", 0)

		f.beats("p")
		late := f.submit()
		l = f.assigned()
		time.Sleep(5 * time.Second)
		f.ends(l.ID, "CANCELLED", "ACK_TIMEOUT") // whether or not it was recorded yet
		_, err = f.Ack(f.Context(), matchmaker.Ref{Lease: l.ID})
		f.refused("too late", err, gq.ErrStaleLease)
		f.beats("p")
		f.idle("before the backoff is over")
		now := f.is(late, "QUEUED", 1)
		if now.LastError != "ACK_TIMEOUT" {
			f.Errorf("last error %q", now.LastError)
		}
		f.ends(l.ID, "CANCELLED", "ACK_TIMEOUT")
		f.told(late, "jobAssigned", "leaseCancelled ACK_TIMEOUT")
		time.Sleep(time.Duration(machine.HashBackoff(5*time.Second, 900*time.Second, 2e9, late.ID, 0)) * time.Second)
		f.beats("p")
		second := f.assigned()
		if second.Attempt != 1 || second.ID == l.ID {
			f.Errorf("the second attempt: %+v", second)
		}
	})
}

func TestRenew(t *testing.T) {
	spec.Covers(t, "M-54", "M-58", "M-64", "M-66", "M-125", "M-141", "M-150", "M-154")
	bubble(t, matchmaker.Options{}, func(f *fixture) {
		f.provider("p")
		j := f.submit()
		l := f.assigned()
		ref := matchmaker.Ref{Lease: l.ID, Provider: "p"}
		_, err := f.Renew(f.Context(), ref)
		f.refused("before the acknowledgement", err, gq.ErrIllegalMove)
		l = f.ack(l)
		for n := 1; n <= 4; n++ {
			time.Sleep(time.Until(l.RenewBy) + time.Second) // late, but before the deadline
			renewed, err := f.Renew(f.Context(), ref)
			if err != nil {
				f.Fatal(err)
			}
			if renewed.Status != "RENEWED" || renewed.Renewals != n || renewed.Deadline.Sub(l.Deadline) != 300*time.Second || renewed.RenewBy.Sub(l.RenewBy) != 300*time.Second {
				f.Errorf("renewal %d: %+v, before %+v", n, renewed, l)
			}
			l = renewed
		}
		if life := l.Deadline.Sub(l.Start); life != 1800*time.Second {
			f.Errorf("it lives %v", life)
		}
		_, err = f.Renew(f.Context(), ref)
		f.refused("the fifth renewal", err, gq.ErrIllegalMove)
		if again := f.lease(l.ID); again != l {
			f.Errorf("a refused renewal changed %+v to %+v", l, again)
		}
		time.Sleep(time.Until(l.Deadline) - time.Millisecond)
		if err := f.complete(l); err != nil {
			f.Error(err)
		}
		f.is(j, "COMPLETED", 0)
		f.told(j, "jobAssigned", "leaseRenewed", "leaseRenewed", "leaseRenewed", "leaseRenewed", "jobCompleted")
	})
}

func TestExpiry(t *testing.T) {
	spec.Covers(t, "M-67", "M-79", "M-104", "M-132", "M-150")
	bubble(t, matchmaker.Options{}, func(f *fixture) {
		f.provider("p")
		j := f.submit()
		l := f.ack(f.assigned())
		time.Sleep(time.Until(l.Deadline) - time.Millisecond)
		if now := f.lease(l.ID); now.Status != "ACTIVE" {
			f.Errorf("before the deadline: %+v", now)
		}
		time.Sleep(time.Millisecond)
		f.refused("at the deadline", f.complete(l), gq.ErrStaleLease)
		f.ends(l.ID, "EXPIRED", "LEASE_EXPIRED")
		if now := f.is(j, "QUEUED", 1); now.LastError != "LEASE_EXPIRED" || now.RunAt == 0 {
			f.Errorf("job %+v", now)
		}
		f.beats("p")
		f.idle("before the backoff is over")
		time.Sleep(10 * time.Second)
		f.beats("p")
		if l := f.assigned(); l.Attempt != 1 {
			f.Errorf("the next attempt: %+v", l)
		}
	})
}

func TestDecline(t *testing.T) {
	spec.Covers(t, "M-68", "M-69", "M-82", "M-150")
	bubble(t, matchmaker.Options{}, func(f *fixture) {
		f.provider("p")
		j := f.submit()
		l := f.assigned()
		declined, err := f.Decline(f.Context(), matchmaker.Ref{Lease: l.ID})
		if err != nil || declined.Status != "CANCELLED" || declined.Reason != "declined" {
			f.Fatalf("declined: %+v, %v", declined, err)
		}
		if _, err := f.Decline(f.Context(), matchmaker.Ref{Lease: l.ID}); err != nil {
			f.Errorf("the same call again: %v", err)
		}
		f.is(j, "QUEUED", 0)
		f.refused("a declined lease", f.complete(l), gq.ErrStaleLease)
		f.idle("the decliner pauses")
		other := f.submit(quantum)
		if l := f.assigned(); l.Job.String() != other.ID {
			f.Errorf("the pause is for one kind only: %+v", l)
		}
		f.provider("q")
		if l := f.assigned(); l.Provider != "q" || l.Job.String() != j.ID || l.Attempt != 0 {
			f.Errorf("it goes elsewhere: %+v", l)
		}
		if p := f.standing("p"); p.CooldownUntil.AI != time.Now().Unix()+5 || p.CooldownUntil.Quantum != 0 || p.Fails != 0 {
			f.Errorf("the decliner: %+v", p)
		}
	})
}

// After the pause the decliner still does not get the job under the same seed, since the
// lease id would repeat.
func TestDeclinedLeaseDoesNotRepeat(t *testing.T) {
	spec.Covers(t, "M-48")
	bubble(t, matchmaker.Options{}, func(f *fixture) {
		if err := f.PutBeacon(f.Context(), match.Beacon{Chain: "c", Epoch: 1, Height: 1}); err != nil {
			f.Fatal(err)
		}
		f.provider("p")
		j := f.submit()
		l := f.assigned()
		if _, err := f.Decline(f.Context(), matchmaker.Ref{Lease: l.ID}); err != nil {
			f.Fatal(err)
		}
		time.Sleep(6 * time.Second)
		f.beats("p")
		f.idle("under the same seed")
		x := f.explain(j)
		if !strings.Contains(x, "provider p: excluded") {
			f.Errorf("explained as %s", x)
		}
		restarted := f.another(matchmaker.Options{})
		restarted.idle("under the same seed, after a restart")
		if err := f.PutBeacon(f.Context(), match.Beacon{Chain: "c", Epoch: 1, Height: 2}); err != nil {
			f.Fatal(err)
		}
		if again := f.assigned(); again.ID == l.ID || again.Attempt != 0 {
			f.Errorf("under another seed: %+v", again)
		}
	})
}

// A provider that is no longer active loses its leases in the same commit.
func TestCancellationByStatus(t *testing.T) {
	spec.Covers(t, "M-25", "M-70", "M-71", "M-72", "M-75", "M-76", "M-82", "M-126", "M-150", "M-159")
	for status, reason := range map[match.Status]string{
		match.Jailed: "provider_jailed", match.Suspended: "provider_suspended", match.Retired: "provider_retired",
	} {
		t.Run(status.String(), func(t *testing.T) {
			bubble(t, matchmaker.Options{}, func(f *fixture) {
				f.provider("p")
				held, running := f.submit(), f.submit()
				r := f.round()
				var leases []matchmaker.Lease
				for _, a := range r.Assignments {
					leases = append(leases, f.lease(a.Lease))
				}
				if len(leases) != 2 {
					f.Fatalf("the round: %+v", r)
				}
				for _, l := range leases {
					if l.Job.String() == running.ID {
						f.ack(l)
					}
				}
				if _, err := f.SetStatus(f.Context(), "p", status, "audit"); err != nil {
					f.Fatal(err)
				}
				for _, j := range []matchmaker.Job{held, running} {
					f.is(j, "QUEUED", 0)
					f.told(j, "jobAssigned", "leaseCancelled "+reason)
				}
				for _, l := range leases {
					f.ends(l.ID, "CANCELLED", reason)
					f.refused("a cancelled lease", f.complete(l), gq.ErrStaleLease)
				}
				f.idle("the provider is " + status.String())
				if p := f.standing("p"); p.LeasesActive != 0 || p.Status != status || p.Reason != "audit" || p.Health != 1e9 || p.Fails != 0 {
					f.Errorf("the provider: %+v", p)
				}
				f.provider("q") // at once: there is no backoff
				if r := f.round(); len(r.Assignments) != 2 {
					f.Errorf("the next round: %+v", r)
				}
				_, err := f.SetStatus(f.Context(), "p", match.Active, "")
				if status == match.Retired {
					f.refused("who has retired", err, gq.ErrConflict)
				} else if err != nil {
					f.Error(err)
				}
			})
		})
	}
}

// A reduced quota revokes the newest leases.
func TestCancellationByPolicy(t *testing.T) {
	spec.Covers(t, "M-73", "M-82", "M-110", "M-126", "M-150")
	bubble(t, matchmaker.Options{}, func(f *fixture) {
		f.provider("p")
		jobs := make(map[string]matchmaker.Job)
		for range 20 {
			j := f.submit()
			jobs[j.ID] = j
		}
		first, second := f.round(), f.round()
		if len(first.Assignments) != 16 || len(first.Requeued) != 4 || len(second.Assignments) != 0 || f.standing("p").LeasesActive != 16 {
			f.Fatalf("it was given %d and %d", len(first.Assignments), len(second.Assignments))
		}
		for _, a := range first.Assignments {
			f.ack(f.lease(a.Lease))
		}
		f.policy(`{"quotas":{"leases_max_per_provider":1}}`)
		if p := f.standing("p"); p.LeasesActive != 1 {
			f.Errorf("%d leases are left", p.LeasesActive)
		}
		for i, a := range first.Assignments {
			if i == 0 {
				f.ends(a.Lease, "ACTIVE", "")
				continue
			}
			f.ends(a.Lease, "CANCELLED", "quota_reduced")
			f.is(jobs[a.Job], "QUEUED", 0)
		}
		f.idle("it is full")
	})
}

func TestUnitsAreGivenBackWhenTakenAway(t *testing.T) {
	spec.Covers(t, "M-73", "M-111")
	for kind, setting := range map[match.Kind]string{match.AI: "ai_units_per_epoch", match.Quantum: "quantum_units_per_epoch"} {
		t.Run(kind.String(), func(t *testing.T) {
			bubble(t, matchmaker.Options{}, func(f *fixture) {
				f.provider("p")
				for range 4 {
					f.submit(units(100), func(e *match.Enqueue) { e.Kind = kind })
				}
				f.round()
				f.policy(`{"quotas":{"` + setting + `":250}}`)
				if p := f.standing("p"); p.LeasesActive != 2 || p.AIUnitsUsed+p.QuantumUnitsUsed != 200 {
					f.Errorf("%d leases, %d and %d units", p.LeasesActive, p.AIUnitsUsed, p.QuantumUnitsUsed)
				}
			})
		})
	}
}

func TestComplete(t *testing.T) {
	spec.Covers(t, "M-74", "M-103", "M-105", "M-107", "M-108", "M-109", "M-123", "M-132", "M-150")
	bubble(t, matchmaker.Options{}, func(f *fixture) {
		f.provider("p")
		j := f.submit()
		l := f.assigned()
		f.refused("before the acknowledgement", f.complete(l), gq.ErrIllegalMove)
		f.ack(l)
		ref := matchmaker.Ref{Lease: l.ID}
		for what, c := range map[string]match.Completion{
			"no digest": {}, "no hexadecimal": {Digest: strings.Repeat("x", 64)}, "a short digest": {Digest: "00"},
			"a long one": {Digest: strings.Repeat("00", 65)}, "meta that is no object": {Digest: digest, Meta: json.RawMessage(`[1]`)},
			"meta that is no JSON": {Digest: digest, Meta: json.RawMessage(`{`)},
			"too much meta":        {Digest: digest, Meta: json.RawMessage(`{"a":"` + strings.Repeat("x", 64<<10) + `"}`)},
			"too long a proof":     {Digest: digest, Proof: strings.Repeat("x", 16<<10+1)},
		} {
			_, err := f.Complete(f.Context(), ref, c)
			f.refused(what, err, gq.ErrInvalid)
		}
		f.is(j, "ASSIGNED", 0)
		good := match.Completion{Digest: strings.ToUpper(digest), Meta: json.RawMessage(`{ "tokens": 3 }`)}
		done, err := f.Complete(f.Context(), ref, good)
		if err != nil || done.Status != "COMPLETED" {
			f.Fatalf("completed: %+v, %v", done, err)
		}
		now := f.is(j, "COMPLETED", 0)
		if !now.Tombstoned || now.Digest != digest || now.Lease != l.ID {
			f.Errorf("the job: %+v", now)
		}
		again, err := f.Complete(f.Context(), ref, good)
		if err != nil || again != done {
			f.Errorf("the same call again: %+v, %v", again, err)
		}
		f.refused("another digest", f.complete(matchmaker.Lease{ID: l.ID}), gq.ErrStaleLease)
		f.told(j, "jobAssigned", "jobCompleted")
		f.idle("it is done")
		if p := f.standing("p"); p.LeasesActive != 0 {
			f.Errorf("it holds %d", p.LeasesActive)
		}
	})
}

// Only the newest attempt is active; older ones can do nothing any more.
func TestOldAttemptsAreTombstoned(t *testing.T) {
	spec.Covers(t, "M-44", "M-74", "M-81")
	bubble(t, matchmaker.Options{}, func(f *fixture) {
		f.provider("p")
		j := f.submit()
		first := f.ack(f.assigned())
		f.fail(first)
		f.ends(first.ID, "CANCELLED", "PROVIDER_FAIL")
		if now := f.is(j, "QUEUED", 1); now.LastError != "PROVIDER_FAIL" || now.Message != "out of memory" {
			f.Errorf("job %+v", now)
		}
		time.Sleep(10 * time.Second)
		f.beats("p")
		second := f.ack(f.assigned())
		if second.Attempt != 1 {
			f.Errorf("the second attempt: %+v", second)
		}
		f.refused("the first attempt", f.complete(first), gq.ErrStaleLease)
		if err := f.complete(second); err != nil {
			f.Fatal(err)
		}
		f.refused("the first attempt", f.complete(first), gq.ErrStaleLease)
		f.ends(first.ID, "CANCELLED", "PROVIDER_FAIL")
		f.ends(second.ID, "COMPLETED", "")
		f.told(j, "jobAssigned", "leaseCancelled PROVIDER_FAIL", "jobAssigned", "jobCompleted")
	})
}

// explain returns everything that the engine says about a job.
func (f *fixture) explain(j matchmaker.Job) string {
	f.Helper()
	x, err := f.engine.Explain(f.Context(), jobID(f, j.ID))
	if err != nil {
		f.Fatal(err)
	}
	lines := []string{x.Cause.String() + ": " + x.Summary}
	for _, r := range x.Also {
		lines = append(lines, r.Summary)
	}
	return strings.Join(lines, "\n")
}

// historian counts reads of histories.
type historian struct {
	*local.Store
	read atomic.Int64
}

func (h *historian) History(ctx context.Context, id gq.JobID) ([]gq.Event, error) {
	h.read.Add(1)
	return h.Store.History(ctx, id)
}

// Jobs that lose their leases in one commit go to others, without reading each job's
// history: every history would contain all of them.
func TestManyLeasesEndAtOnce(t *testing.T) {
	for name, by := range map[string]func(*fixture) *fixture{
		"by who gave them":   func(f *fixture) *fixture { return f },
		"by another process": func(f *fixture) *fixture { return f.another(matchmaker.Options{}) },
	} {
		t.Run(name, func(t *testing.T) { manyLeasesEnd(t, by) })
	}
}

func manyLeasesEnd(t *testing.T, by func(*fixture) *fixture) {
	synctest.Test(t, func(t *testing.T) {
		s, ok := openStore(t).(*local.Store)
		if !ok {
			t.Fatal("not the embedded store")
		}
		h := &historian{Store: s}
		f := newFixture(t, h, matchmaker.Options{})
		f.provider("p")
		for range 10 {
			f.submit()
		}
		if r := f.round(); len(r.Assignments) != 10 {
			f.Fatalf("assigned %+v", r.Assignments)
		}
		f = by(f)
		f.provider("q")
		h.read.Store(0)
		if _, err := f.SetStatus(f.Context(), "p", match.Suspended, ""); err != nil {
			f.Fatal(err)
		}
		if _, err := f.SetStatus(f.Context(), "p", match.Active, ""); err != nil {
			f.Fatal(err)
		}
		r := f.round()
		for _, a := range r.Assignments {
			if a.Provider != "q" {
				f.Errorf("job %s went to %s, which had it under this seed", a.Job, a.Provider)
			}
		}
		if n := h.read.Load(); len(r.Assignments) != 10 || n > 0 {
			f.Errorf("%d jobs assigned, %d histories read", len(r.Assignments), n)
		}
		if _, err := f.SetStatus(f.Context(), "q", match.Suspended, ""); err != nil {
			f.Fatal(err)
		}
		if _, err := f.SetStatus(f.Context(), "q", match.Active, ""); err != nil {
			f.Fatal(err)
		}
		f.idle("both had them under this seed")
	})
}
