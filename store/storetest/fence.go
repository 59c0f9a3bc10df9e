package storetest

import (
	"slices"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/machine"
	"github.com/gopherqueue/gq/store"
)

var fenceCases = []Case{
	{
		Name:   "Fence/WrongLease",
		Clause: "only the lease that holds a job may change it: another id, version or worker is ErrStaleLease and changes nothing",
		Covers: []string{"Q-46", "Q-50", "Q-58", "Q-82", "Q-90"},
		run:    fenceWrong,
	},
	{
		Name:   "Fence/Expired",
		Clause: "from its expiry on a lease is ErrStaleLease, even while nobody has reclaimed the job",
		Covers: []string{"Q-85", "Q-90", "Q-99"},
		run:    fenceExpired,
	},
	{
		Name:   "Fence/Reclaimed",
		Clause: "only the newest lease may settle a job: a former holder is ErrStaleLease and the new holder's lease is untouched",
		Covers: []string{"Q-59", "Q-62", "Q-90", "Q-91", "Q-99"},
		run:    fenceReclaimed,
	},
	{
		Name:   "Fence/Forged",
		Clause: "a lease id that was never issued leads to no job, however much it looks like one that was",
		run:    fenceForged,
	},
	{
		Name:   "Fence/Waiting",
		Clause: "a job that nobody holds takes no word from any lease",
		Covers: []string{"Q-46", "Q-58"},
		run:    fenceWaiting,
	},
	{
		Name:   "Fence/Overtime",
		Clause: "a success after the execution timeout is ErrStaleLease, even under a lease that heartbeats kept alive",
		run:    fenceOvertime,
	},
	{
		Name:   "Fence/Lifetime",
		Clause: "from the end of the job's lifetime on its lease is ErrStaleLease",
		run:    fenceLifetime,
	},
	{
		Name:   "Fence/Hold",
		Clause: "a hold is fenced like a lease: after its end nothing can be prepared or started under it",
		run:    fenceHold,
	},
	{
		Name:    "Fence/Reopen",
		Clause:  "leases fence across a restart: the newest goes on, the others stay stale, and versions go on growing",
		Reopens: true,
		run:     fenceReopen,
	},
	{
		Name:   "Fence/OneSettles",
		Clause: "of many different settlements at once one is applied",
		Covers: []string{"Q-82"},
		run:    fenceOneSettles,
	},
}

// stale fails unless every call under the lease is refused and changes nothing. The updates
// carry blobs, to detect one that is written despite the refusal.
func (e *env) stale(what string, id gq.JobID, ref gq.LeaseRef) {
	e.Helper()
	before := e.snapshot(id)
	for _, verb := range []struct {
		name  string
		apply store.Apply
	}{
		{"complete", completing(ref, []byte("stale"))},
		{"fail", failing(ref, gq.Failure{Category: gq.CategoryTemporary, Message: "stale"})},
		{"heartbeat", beating(ref, machine.Report{Progress: 0.9, Note: "stale", CheckpointBytes: 5})},
		{"release", releasing(ref, 0, "stale")},
		{"prepare", preparing(ref, gq.DetailLeasePending)},
		{"start", starting(ref, time.Hour)},
	} {
		named := []store.Ref{byID(id)}
		if ref.ID != "" {
			named = append(named, byLease(ref.ID))
		}
		for _, by := range named {
			answer := e.tryUpdate(store.Update{
				Ref: by, Apply: verb.apply,
				Metadata: &gq.Metadata{Priority: gq.PriorityNormal, CorrelationID: "stale"}, Result: []byte("stale"), Checkpoint: []byte("stale"),
			})[0]
			e.is(verb.name+" "+what, answer.Err, gq.ErrStaleLease)
			if answer.Changed {
				e.Errorf("%s %s reports a change", verb.name, what)
			}
			e.unchanged(verb.name+" "+what, before, id)
		}
	}
}

func fenceWrong(e *env) {
	e.each(e.specs(2)...)
	jobs := e.claim(2)
	mine, other := jobs[0].State.Lease.Ref(), jobs[1].State.Lease.Ref()
	id := jobs[0].State.ID
	e.stale("without a lease", id, gq.LeaseRef{})
	e.stale("with a version and no id", id, gq.LeaseRef{Version: mine.Version, Worker: mine.Worker})
	e.stale("under a lease nobody has", id, gq.LeaseRef{ID: "nobody's", Version: mine.Version})
	e.stale("under a larger version", id, gq.LeaseRef{ID: mine.ID, Version: mine.Version + 1})
	e.stale("by another worker", id, gq.LeaseRef{ID: mine.ID, Version: mine.Version, Worker: "someone else"})
	e.stale("under a lease in capitals", id, gq.LeaseRef{ID: mine.ID + " ", Version: mine.Version})

	before := e.snapshot(id)
	for _, apply := range []store.Apply{completing(other, nil), failing(other, permanent), releasing(other, 0, "")} {
		answer := e.tryUpdate(store.Update{Ref: byID(id), Apply: apply})[0]
		e.is("a word under the lease of another job", answer.Err, gq.ErrStaleLease)
		e.unchanged("a word under the lease of another job", before, id)
	}
	for _, j := range jobs {
		e.complete(j)
	}
}

func fenceExpired(e *env) {
	job := e.add()
	j := e.one()
	e.clock.Set(j.State.Lease.ExpiresAt.Add(-1))
	e.update(job.ID, beating(j.State.Lease.Ref(), machine.Report{Progress: -1}))
	s := e.state(job.ID)
	e.clock.Set(s.Lease.ExpiresAt)
	e.stale("at the expiry", job.ID, s.Lease.Ref())
	e.stands("at the expiry", job.ID, gq.StatusRunning)
	e.clock.Advance(time.Hour)
	e.stale("long after the expiry", job.ID, s.Lease.Ref())

	second := e.one()
	e.complete(second)
}

func fenceReclaimed(e *env) {
	job := e.add()
	var former []gq.LeaseRef
	for range 2 {
		j := e.one(by("former"))
		former = append(former, j.State.Lease.Ref())
		e.clock.Set(j.State.Lease.ExpiresAt)
	}
	newest := e.one(by("newest"))
	for _, ref := range former {
		e.stale("by a former holder", job.ID, ref)
		// The new lease with the old version or worker is stale too.
		e.stale("by a former holder that knows the new id", job.ID, gq.LeaseRef{ID: newest.State.Lease.ID, Version: ref.Version})
		e.stale("by a former holder under its own name", job.ID, gq.LeaseRef{ID: newest.State.Lease.ID, Worker: "former"})
	}
	e.equal("the new holder's state", e.state(job.ID), newest.State)
	e.complete(newest)
	for _, ref := range former {
		e.stale("by a former holder after the end", job.ID, ref)
	}
}

func fenceForged(e *env) {
	id := e.add().ID
	for range 3 {
		j := e.one()
		issued := string(j.State.Lease.ID)
		for at := range issued {
			digit := "0"
			if issued[at:at+1] == digit {
				digit = "1"
			}
			forged := gq.LeaseID(issued[:at] + digit + issued[at+1:])
			e.is("Get by a forged lease", e.find(byLease(forged), 0).Err, gq.ErrNotFound)
			answer := e.tryUpdate(store.Update{Ref: byLease(forged), Apply: completing(gq.LeaseRef{ID: forged}, nil)})[0]
			e.is("Update by a forged lease", answer.Err, gq.ErrStaleLease)
		}
		e.update(id, releasing(j.State.Lease.Ref(), 0, ""))
	}
}

func fenceWaiting(e *env) {
	fresh := e.add(inQueue("b"))
	e.stale("on a job that was never claimed", fresh.ID, gq.LeaseRef{})
	job := e.add()
	j := e.one()
	e.fail(j, gq.Failure{Category: gq.CategoryTemporary, Message: "real"})
	e.stale("on a job in backoff", job.ID, j.State.Lease.Ref())
	e.cancel(job.ID)
	e.stale("on a cancelled job", job.ID, j.State.Lease.Ref())
	if got := e.find(byID(fresh.ID), 0).State.Status; got != gq.StatusScheduled {
		e.Errorf("the job that was never claimed is %s, want SCHEDULED", got)
	}
}

func fenceOvertime(e *env) {
	job := e.add(under(func(p *gq.Policy) { p.ExecutionTimeout = 6 * time.Minute }))
	j := e.one()
	e.clock.Advance(4 * time.Minute)
	e.update(job.ID, beating(j.State.Lease.Ref(), machine.Report{Progress: -1}))
	e.clock.Advance(2*time.Minute - 1)
	e.update(job.ID, beating(j.State.Lease.Ref(), machine.Report{Progress: -1}))
	e.clock.Advance(1)
	before := e.snapshot(job.ID)
	for name, u := range map[string]store.Update{
		"complete":  {Apply: completing(j.State.Lease.Ref(), []byte("late")), Result: []byte("late")},
		"heartbeat": {Apply: beating(j.State.Lease.Ref(), machine.Report{CheckpointBytes: 4}), Checkpoint: []byte("late")},
	} {
		u.Ref = byID(job.ID)
		e.is(name+" at the execution timeout", e.tryUpdate(u)[0].Err, gq.ErrStaleLease)
		e.unchanged(name+" at the execution timeout", before, job.ID)
	}
}

func fenceLifetime(e *env) {
	job := e.add(under(func(p *gq.Policy) { p.Lifetime = time.Minute }))
	j := e.one()
	e.clock.Advance(time.Minute)
	e.stale("at the end of the lifetime", job.ID, j.State.Lease.Ref())
}

func fenceHold(e *env) {
	job := e.add()
	first := e.one(holding)
	e.clock.Set(first.State.Lease.ExpiresAt)
	e.stale("under a hold that ran out", job.ID, first.State.Lease.Ref())
	second := e.one(holding)
	e.stale("under a former hold", job.ID, first.State.Lease.Ref())
	e.update(job.ID, releasing(second.State.Lease.Ref(), 0, "declined"))
	third := e.one()
	e.stale("under a hold that was given back", job.ID, first.State.Lease.Ref())
	if s := third.State; s.Lease.Previous != "" || !s.ScheduledAt.Equal(job.ScheduledAt) {
		e.Errorf("after two holds the first attempt follows %q, scheduled at %v; want none, %v", s.Lease.Previous, s.ScheduledAt, job.ScheduledAt)
	}
	e.complete(third)
}

func fenceReopen(e *env) {
	job := e.add()
	first := e.one()
	e.clock.Set(first.State.Lease.ExpiresAt)
	second := e.one()
	e.reopen()
	e.equal("the state after a restart", e.state(job.ID), second.State)
	e.stale("by a former holder after a restart", job.ID, first.State.Lease.Ref())
	e.none("while the lease lives, after a restart")
	e.update(job.ID, beating(second.State.Lease.Ref(), machine.Report{Progress: -1}))
	e.clock.Set(e.state(job.ID).Lease.ExpiresAt)
	e.reopen()
	third := e.one()
	if third.State.Version != 3 || third.State.Lease.Previous != second.State.Lease.ID {
		e.Errorf("the claim after two restarts has version %d and previous lease %q, want 3 and %q",
			third.State.Version, third.State.Lease.Previous, second.State.Lease.ID)
	}
	e.stale("by the holder before the restart", job.ID, second.State.Lease.Ref())
	e.complete(third)
}

func fenceOneSettles(e *env) {
	job := e.add()
	ref := e.one().State.Lease.Ref()
	applied := make(chan store.Updated, 30)
	ready := make(chan struct{})
	for i := range cap(applied) {
		apply := []store.Apply{completing(ref, []byte{byte(i)}), failing(ref, gq.Failure{Category: gq.CategoryPermanent, Code: numbered(30)[i]})}[i%2]
		go func() {
			<-ready
			answers, err := e.s.Update(e.Context(), []store.Update{{Ref: byID(job.ID), Apply: apply}})
			if err != nil {
				answers = []store.Updated{{Err: err}}
			}
			applied <- answers[0]
		}()
	}
	close(ready)
	won := 0
	for range cap(applied) {
		if answer := <-applied; answer.Err == nil {
			won++
		} else {
			e.is("a settlement that came too late", answer.Err, gq.ErrStaleLease)
		}
	}
	h := e.history(job.ID)
	if terminal := slices.IndexFunc(h, func(v gq.Event) bool { return v.Status.Terminal() }); won != 1 || terminal != len(h)-1 {
		e.Errorf("%d of %d settlements were applied, the history is %v; want one, as the last entry", won, cap(applied), trace(h))
	}
}
