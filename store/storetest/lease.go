package storetest

import (
	"fmt"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/machine"
	"github.com/gopherqueue/gq/store"
)

var leaseCases = []Case{
	{
		Name:   "Lease/Grant",
		Clause: "a claim gives a job to one worker under a lease with an id, version 1 at first, and the policy's time",
		Covers: []string{"Q-26", "Q-30", "Q-43", "Q-44", "Q-83", "J-21", "J-29"},
		run:    leaseGrant,
	},
	{
		Name:   "Lease/Tokens",
		Clause: "each claim gets a lease id that no other claim ever got, of this or another job",
		Covers: []string{"Q-60", "J-150"},
		run:    leaseTokens,
	},
	{
		Name:   "Lease/Invisible",
		Clause: "while a lease lives, no other claim sees its job",
		Covers: []string{"Q-10", "Q-55"},
		run:    leaseInvisible,
	},
	{
		Name:   "Lease/RunTime",
		Clause: "a delayed job is claimable exactly from its run time on, whether or not a sweep has run",
		Covers: []string{"J-28", "J-37"},
		run:    leaseRunTime,
	},
	{
		Name:   "Lease/RetryTime",
		Clause: "a job that failed is claimable exactly from the end of its backoff on, whether or not a sweep has run",
		Covers: []string{"Q-11", "Q-42", "Q-80", "J-34", "J-38", "J-64"},
		run:    leaseRetryTime,
	},
	{
		Name:   "Lease/Expiry",
		Clause: "a job whose lease has run out stays as it is until a claim takes it: exactly from the expiry on, under its old id, with a new lease and the next version, without any sweep",
		Covers: []string{"Q-24", "Q-34", "Q-54", "Q-56", "Q-57", "Q-61", "Q-63", "Q-84", "Q-96", "Q-97", "Q-98", "Q-102", "Q-106", "J-52", "J-56"},
		run:    leaseExpiry,
	},
	{
		Name:   "Lease/Hands",
		Clause: "a job can pass through many hands: the same id, larger versions, each attempt linked to the one before",
		Covers: []string{"Q-02", "Q-15", "Q-84", "Q-87", "Q-100", "J-07", "J-89", "J-92", "J-94", "J-95"},
		run:    leaseHands,
	},
	{
		Name:   "Lease/ExpiryOrder",
		Clause: "a job whose lease has run out takes its old place in the order",
		run:    leaseExpiryOrder,
	},
	{
		Name:   "Lease/TTL",
		Clause: "the time of a lease is the policy's, or what the claim asked for",
		Covers: []string{"Q-86", "J-60"},
		run:    leaseTTL,
	},
	{
		Name:   "Lease/Hold",
		Clause: "a claim that only holds gives the job as CLAIMED without counting an attempt; the execution starts later under the same lease",
		run:    leaseHold,
	},
	{
		Name:   "Lease/HoldExpiry",
		Clause: "a hold that runs out gives the job back at no cost",
		run:    leaseHoldExpiry,
	},
	{
		Name:   "Lease/Lifetime",
		Clause: "from the end of its lifetime on, counted from its submission, a job is not claimable, whether or not a sweep has run",
		Covers: []string{"J-61"},
		run:    leaseLifetime,
	},
	{
		Name:   "Lease/Exhausted",
		Clause: "a job that lost the lease of its last attempt is not handed out again",
		run:    leaseExhausted,
	},
	{
		Name:   "Lease/LossBackoff",
		Clause: "where the loss of a lease costs a backoff, the job is claimable after it and not before",
		run:    leaseLossBackoff,
	},
	{
		Name:   "Lease/OwnBackoff",
		Clause: "a store asks the application's own backoff where it takes back a lease by itself",
		run:    leaseOwnBackoff,
	},
}

func leaseGrant(e *env) {
	spec := e.spec(costing(3))
	submitted := e.insert(spec)[0]
	e.clock.Advance(time.Second)
	j := e.one(by("alice"))
	if j.State.Lease == nil || j.State.Lease.ID == "" {
		e.Fatalf("a claimed job has no lease id: %+v", j.State.Lease)
	}
	want := submitted
	want.Status, want.Attempt, want.Version = gq.StatusRunning, 1, 1
	want.UpdatedAt, want.StartedAt, want.FirstStartedAt = e.now(), e.now(), e.now()
	want.Lease = &gq.Lease{
		ID: j.State.Lease.ID, Version: 1, State: gq.LeaseActive, Worker: "alice", Attempt: 1,
		GrantedAt: e.now(), HeartbeatAt: e.now(), ExpiresAt: e.now().Add(5 * time.Minute), TTL: 5 * time.Minute, CostUnits: 3,
	}
	e.equal("the state as claimed", j.State, want)
	e.equal("the state as stored", e.state(spec.ID), want)
	e.equal("the metadata as claimed", j.Metadata, spec.Metadata)
	found := e.find(byLease(j.State.Lease.ID), 0)
	e.check("Get by lease", found.Err)
	e.equal("the state by lease", found.State, want)
	e.is("Get by a lease that nobody has", e.find(byLease("nobody's"), 0).Err, gq.ErrNotFound)

	h := e.history(spec.ID)
	last := h[len(h)-1]
	e.equal("the event", last, gq.Event{
		Seq: last.Seq, Time: e.now(), Queue: "q", JobType: spec.Type, Job: spec.ID, Type: gq.EventStarted, Status: gq.StatusRunning, Attempt: 1,
		Lease: j.State.Lease.ID, Version: 1, LeaseState: gq.LeaseActive, Worker: "alice", CostUnits: 3, Until: j.State.Lease.ExpiresAt,
		Elapsed: time.Second,
	})
}

func leaseTokens(e *env) {
	e.insert(e.specs(300, under(func(p *gq.Policy) { p.MaxAttempts = 100 }))...)
	seen := make(map[gq.LeaseID]bool)
	for round := range 5 {
		jobs := e.claim(300)
		if len(jobs) != 300 {
			e.Fatalf("claimed %d jobs, want 300", len(jobs))
		}
		updates := make([]store.Update, 0, len(jobs))
		for _, j := range jobs {
			l := j.State.Lease
			if l.ID == "" || seen[l.ID] {
				e.Fatalf("lease id %q was given twice", l.ID)
			}
			seen[l.ID] = true
			if l.Version != gq.LeaseVersion(round+1) || j.State.Version != l.Version {
				e.Fatalf("claim %d of a job has version %d (lease %d), want %d", round+1, j.State.Version, l.Version, round+1)
			}
			updates = append(updates, store.Update{Ref: byID(j.State.ID), Apply: releasing(l.Ref(), 0, "again")})
		}
		if round%2 == 1 {
			e.clock.Advance(5 * time.Minute) // half of the time the leases expire
			continue
		}
		for _, answer := range e.tryUpdate(updates...) {
			e.check("Update", answer.Err)
		}
	}
}

func leaseInvisible(e *env) {
	e.add()
	j := e.one(by("holder"))
	e.none("right after another claim", by("other"))
	e.none("by the holder itself", by("holder"))
	e.clock.Set(j.State.Lease.ExpiresAt.Add(-1))
	e.none("1 ns before the lease ends", by("other"))
}

func leaseRunTime(e *env) {
	job := e.add(delayed(time.Minute))
	e.clock.Advance(time.Minute - 1)
	e.none("1 ns before the run time")
	e.clock.Advance(1)
	e.claimed("at the run time", 1, []gq.JobID{job.ID})
	h := e.history(job.ID)
	e.equal("the history", trace(h), []gq.Status{gq.StatusPending, gq.StatusDelayed, gq.StatusScheduled, gq.StatusRunning})
}

func leaseRetryTime(e *env) {
	job := e.add()
	s := e.fail(e.one(), temporary)
	if want := e.now().Add(time.Second); s.Status != gq.StatusRetrying || !s.RunAt.Equal(want) {
		e.Fatalf("after the first failure the job is %s until %v, want RETRYING until %v", s.Status, s.RunAt, want)
	}
	e.none("right after the failure")
	e.clock.Set(s.RunAt.Add(-1))
	e.none("1 ns before the backoff ends")
	e.clock.Advance(1)
	j := e.one()
	if j.State.ID != job.ID || j.State.Attempt != 2 || j.State.Version != 2 || j.State.Faults != 1 {
		e.Errorf("the second attempt is job %s, attempt %d, version %d, faults %d; want %s, 2, 2, 1",
			j.State.ID, j.State.Attempt, j.State.Version, j.State.Faults, job.ID)
	}
	e.equal("the stored state", e.state(job.ID), j.State)
	e.equal("the history", trace(e.history(job.ID)),
		[]gq.Status{gq.StatusPending, gq.StatusScheduled, gq.StatusRunning, gq.StatusRetrying, gq.StatusScheduled, gq.StatusRunning})
}

func leaseExpiry(e *env) {
	job := e.add()
	first := e.one(by("lost"))
	expiry := e.now().Add(5 * time.Minute)
	e.clock.Set(expiry.Add(-1))
	e.none("1 ns before the lease ends")
	e.clock.Set(expiry)
	e.equal("the state after expiry and before any claim", e.state(job.ID), first.State)

	second := e.one(by("new"))
	if second.State.ID != job.ID {
		e.Fatalf("claimed job %s, want the same job %s", second.State.ID, job.ID)
	}
	l := second.State.Lease
	if l.ID == first.State.Lease.ID || l.Version != 2 || second.State.Version != 2 || l.Worker != "new" || second.State.Attempt != 2 {
		e.Errorf("the new lease is %s, version %d (job %d), worker %q, attempt %d; want a new one, version 2, worker new, attempt 2",
			l.ID, l.Version, second.State.Version, l.Worker, second.State.Attempt)
	}
	e.equal("the stored state", e.state(job.ID), second.State)
	h := e.history(job.ID)
	e.equal("the history", trace(h), []gq.Status{gq.StatusPending, gq.StatusScheduled, gq.StatusRunning, gq.StatusRetrying, gq.StatusScheduled, gq.StatusRunning})
	if lost := h[3]; lost.LeaseState != gq.LeaseExpired || lost.Lease != first.State.Lease.ID || lost.Failure == nil || lost.Failure.Category != gq.CategorySystem {
		e.Errorf("the loss is recorded as %+v, want the first lease EXPIRED with a failure of category SYSTEM", lost)
	}
}

func leaseHands(e *env) {
	job := e.add(under(func(p *gq.Policy) { p.MaxAttempts = 10 }))
	var before gq.LeaseID
	for i := range 5 {
		j := e.one(by(numbered(5)[i]))
		s := j.State
		if s.ID != job.ID || s.Attempt != i+1 || s.Lease.Attempt != i+1 || s.Version != gq.LeaseVersion(i+1) || s.Lease.Previous != before {
			e.Fatalf("delivery %d: job %s, attempt %d (lease %d), version %d, previous lease %q; want %s, %d, %d, %d, %q",
				i+1, s.ID, s.Attempt, s.Lease.Attempt, s.Version, s.Lease.Previous, job.ID, i+1, i+1, i+1, before)
		}
		before = s.Lease.ID
		e.clock.Set(s.Lease.ExpiresAt)
		for _, ref := range []store.Ref{byID(job.ID), byLease(before)} {
			if found := e.find(ref, 0); found.Err != nil || found.State.ID != job.ID {
				e.Errorf("Get %+v after expiry found %s, %v", ref, found.State.ID, found.Err)
			}
		}
	}
	j := e.one(by("last"))
	e.complete(j)
	e.stands("after all", job.ID, gq.StatusCompleted)
}

func leaseExpiryOrder(e *env) {
	first := e.add()
	held := e.one()
	second, urgent := e.add(), e.add(at(gq.PriorityHigh))
	e.clock.Set(held.State.Lease.ExpiresAt)
	e.claimed("after the first job's lease ran out", 10, []gq.JobID{urgent.ID, first.ID, second.ID})
}

func leaseTTL(e *env) {
	for i, test := range []struct {
		name   string
		policy func(*gq.Policy)
		ask    []asking
		want   time.Duration
	}{
		{"the default", func(*gq.Policy) {}, nil, 5 * time.Minute},
		{"the policy's", func(p *gq.Policy) { p.LeaseTTL = 7 * time.Second }, nil, 7 * time.Second},
		{"the default of short leases", func(p *gq.Policy) { *p = gq.PresetSemantics.Policy() }, nil, 5 * time.Second},
		{"the claim's", func(*gq.Policy) {}, []asking{lasting(time.Second)}, time.Second},
		{"the default of a worker that renews", func(*gq.Policy) {}, []asking{renewing}, 30 * time.Second},
		{"the claim's, not the default", func(*gq.Policy) {}, []asking{renewing, lasting(time.Second)}, time.Second},
		{"the policy's, not the default", func(p *gq.Policy) { p.LeaseTTL = time.Minute }, []asking{renewing}, time.Minute},
		{"the shorter one of short leases", func(p *gq.Policy) { *p = gq.PresetSemantics.Policy() }, []asking{renewing}, 5 * time.Second},
		{"the policy's if renewals are limited", func(p *gq.Policy) {
			p.Extend, p.ExtendPPB, p.RenewByPPB, p.RenewalsMax = gq.ExtendAdd, 500_000_000, 600_000_000, 4
		}, []asking{renewing}, 5 * time.Minute},
		{"the policy's hold", func(p *gq.Policy) { p.Hold = 9 * time.Second }, []asking{holding}, 9 * time.Second},
		{"the claim's hold", func(*gq.Policy) {}, []asking{holding, lasting(time.Nanosecond)}, time.Nanosecond},
	} {
		queue := fmt.Sprintf("queue-%d", i)
		e.add(under(test.policy), inQueue(queue))
		ask := append([]asking{from(queue)}, test.ask...)
		l := e.one(ask...).State.Lease
		if l.TTL != test.want || !l.ExpiresAt.Equal(e.now().Add(test.want)) {
			e.Errorf("%s: the lease lasts %v until %v, want %v until %v", test.name, l.TTL, l.ExpiresAt, test.want, e.now().Add(test.want))
		}
		e.clock.Set(l.ExpiresAt.Add(-1))
		e.none(test.name+": 1 ns before its end", ask...)
		e.clock.Advance(1)
		e.complete(e.one(append(ask, func(c *store.Claim) { c.Hold = false })...))
	}
}

func leaseHold(e *env) {
	job := e.add()
	j := e.one(holding, by("alice"))
	s := j.State
	if s.Status != gq.StatusClaimed || s.Detail != gq.DetailClaimed || s.Attempt != 0 || s.Lease.Attempt != 0 || !s.StartedAt.IsZero() {
		e.Errorf("a held job is %s (%s), attempt %d (lease %d), started %v; want CLAIMED (CLAIMED), 0, 0, never",
			s.Status, s.Detail, s.Attempt, s.Lease.Attempt, s.StartedAt)
	}
	e.none("while it is held")
	e.clock.Advance(time.Second)
	e.update(job.ID, preparing(s.Lease.Ref(), gq.DetailPreparing))
	e.clock.Advance(time.Second)
	started := e.update(job.ID, starting(s.Lease.Ref(), 0))
	l := started.Lease
	if started.Status != gq.StatusRunning || started.Attempt != 1 || l.ID != s.Lease.ID || l.Version != 1 || l.Worker != "alice" || !l.ExpiresAt.Equal(e.now().Add(5*time.Minute)) {
		e.Errorf("after the start the job is %s, attempt %d, lease %+v; want RUNNING, 1, the same lease for 5m from now", started.Status, started.Attempt, l)
	}
	e.equal("the stored state", e.state(job.ID), started)
	e.equal("the history", trace(e.history(job.ID)), []gq.Status{gq.StatusPending, gq.StatusScheduled, gq.StatusClaimed, gq.StatusClaimed, gq.StatusRunning})
}

func leaseHoldExpiry(e *env) {
	job := e.add(under(func(p *gq.Policy) { p.MaxAttempts = 1 }))
	for i := range 3 {
		j := e.one(holding)
		if j.State.Version != gq.LeaseVersion(i+1) || j.State.Attempt != 0 || j.State.Faults != 0 || j.State.Losses != 0 {
			e.Errorf("hold %d: version %d, attempt %d, faults %d, losses %d; want version %d and no count",
				i+1, j.State.Version, j.State.Attempt, j.State.Faults, j.State.Losses, i+1)
		}
		e.clock.Set(j.State.Lease.ExpiresAt.Add(-1))
		e.none("1 ns before the hold ends")
		e.clock.Advance(1)
	}
	j := e.one()
	if j.State.Attempt != 1 {
		e.Errorf("the first execution after lost holds is attempt %d, want 1", j.State.Attempt)
	}
	e.stands("at last", job.ID, gq.StatusRunning)
}

func leaseLifetime(e *env) {
	life := under(func(p *gq.Policy) { p.Lifetime = time.Hour })
	e.add(life)
	e.add(life, delayed(30*time.Minute))
	lost := e.add(life, inQueue("lost"))
	e.one(from("lost"), lasting(time.Minute))
	e.add(life, inQueue("given-back"))
	e.add(life, inQueue("failed"))
	other := e.add()

	e.clock.Set(start.Add(40 * time.Minute)) // changing a job does not extend its lifetime
	j := e.one(from("given-back"))
	e.update(j.State.ID, releasing(j.State.Lease.Ref(), 0, ""))
	e.fail(e.one(from("failed")), temporary)
	longer := e.add(under(func(p *gq.Policy) { p.Lifetime = 2 * time.Hour }), inQueue("longer"))

	e.clock.Set(start.Add(time.Hour - 1))
	e.claimed("1 ns before the end of the lifetime, after it was given back", 10, []gq.JobID{j.State.ID}, from("given-back"))
	e.update(j.State.ID, releasing(e.get(j.State.ID).State.Lease.Ref(), 0, ""))
	e.clock.Set(start.Add(time.Hour))
	e.claimed("at the end of the lifetime, counted from the submission", 10, nil, from("given-back", "failed"))
	e.claimed("with a longer life of its own", 10, []gq.JobID{longer.ID}, from("longer"))
	e.claimed("at the end of the lifetime of all but one", 10, []gq.JobID{other.ID}, from("q", "lost"))
	found, err := e.store().Peek(e.Context(), store.Filter{Queues: []string{"q", "lost"}}, 10)
	e.check("Peek", err)
	if len(found) != 0 {
		e.Errorf("Peek found %d jobs past their lifetime (such as %s), want none", len(found), lost.ID)
	}

	last := e.add(life, inQueue("last"))
	e.clock.Advance(time.Hour - 1)
	e.claimed("1 ns before the end of the lifetime", 10, []gq.JobID{last.ID}, from("last"))
}

func leaseExhausted(e *env) {
	job := e.add(under(func(p *gq.Policy) { p.MaxAttempts = 1 }))
	fails := e.add(under(func(p *gq.Policy) { p.OnLoss = gq.LossFails }))
	if got := len(e.claim(2, lasting(time.Minute))); got != 2 {
		e.Fatalf("claimed %d jobs, want 2", got)
	}
	e.clock.Advance(time.Minute)
	e.none("after the only attempt was lost")
	e.sweep()
	e.stands("after a sweep", job.ID, gq.StatusDeadLetter)
	e.stands("after a sweep, where a loss is final", fails.ID, gq.StatusFailed)
	e.none("after a sweep")
}

func leaseLossBackoff(e *env) {
	job := e.add(under(func(p *gq.Policy) { p.OnLoss = gq.LossBackoff; p.Backoff.Initial = time.Minute }))
	j := e.one()
	e.clock.Set(j.State.Lease.ExpiresAt)
	e.none("when the lease ran out")
	e.sweep()
	e.none("after a sweep, in the backoff")
	e.clock.Advance(time.Minute - 1)
	e.none("1 ns before the backoff ends")
	e.clock.Advance(1)
	e.claimed("at the end of the backoff", 1, []gq.JobID{job.ID})
}

func leaseOwnBackoff(e *env) {
	e.open(func(c *store.Config) {
		c.Backoffs = map[string]machine.BackoffFunc{
			"never mind": func(int, time.Duration, time.Duration) time.Duration { return 0 },
			"forever":    func(_ int, _, most time.Duration) time.Duration { return most },
			"broken":     func(int, time.Duration, time.Duration) time.Duration { panic("an application's mistake") },
		}
	})
	own := func(name string) setting {
		return under(func(p *gq.Policy) {
			p.OnLoss = gq.LossBackoff
			p.Backoff = gq.Backoff{
				Strategy: gq.StrategyCustom, Custom: name, Jitter: gq.JitterNone,
				Initial: time.Minute, Max: time.Hour, Multiplier: 2,
			}
		})
	}
	e.add(own("forever"))
	job := e.add(own("never mind"))
	e.add(own("unknown")) // waits as for exponential
	e.add(own("broken"))  // so does this one
	held := e.claim(4)
	if len(held) != 4 {
		e.Fatalf("claimed %d jobs, want 4", len(held))
	}
	e.clock.Set(held[0].State.Lease.ExpiresAt)
	found, err := e.store().Peek(e.Context(), store.Filter{Queues: []string{"q"}}, 5)
	e.check("Peek", err)
	if len(found) != 1 || found[0].State.ID != job.ID {
		e.Errorf("when the leases ran out Peek found %d jobs, want the one without a delay", len(found))
	}
	e.claimed("when the leases ran out", 5, []gq.JobID{job.ID})
}

// renewing is what workers ask that renew their leases.
func renewing(c *store.Claim) { c.DefaultTTL = 30 * time.Second }
