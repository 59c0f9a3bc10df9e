package storetest

import (
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/store"
)

var insertCases = []Case{
	{
		Name:   "Insert/FirstState",
		Clause: "a job starts PENDING and moves on to SCHEDULED in the same commit; it has no attempt and no lease",
		Covers: []string{"Q-29", "Q-39", "J-18", "J-19", "J-26"},
		run:    insertFirstState,
	},
	{
		Name:   "Insert/FirstStateDelayed",
		Clause: "a job whose first run lies in the future starts PENDING and moves on to DELAYED; of delay and run time the later counts",
		Covers: []string{"J-20", "J-27"},
		run:    insertDelayed,
	},
	{
		Name:   "Insert/RunTimePast",
		Clause: "a run time that has passed, or is now, makes a job claimable at once",
		Covers: []string{"Q-40"},
		run:    insertPast,
	},
	{
		Name:   "Insert/RunTimeBeyondLife",
		Clause: "a job that may not run before its lifetime is over is ErrInvalid, naming delay or run_at, and takes its group with it; a key that is taken still finds its job",
		run:    insertBeyondLife,
	},
	{
		Name:   "Insert/ReadBack",
		Clause: "every field of a spec is read back as it was submitted",
		Covers: []string{"J-93", "J-134"},
		run:    insertReadBack,
	},
	{
		Name:   "Insert/Sequence",
		Clause: "the sequence numbers ascend in the order of submission: over calls, over the groups of a call and over the jobs of a group",
		run:    insertSequence,
	},
	{
		Name:    "Insert/Mint",
		Clause:  "the ids of a group that leaves them to the store are known from the answer: its jobs are found by them and by no others, depend on each other and on those of other groups by them, and keys, events, leases, lists and children tell them; they stay after a restart and are taken",
		Reopens: true,
		Covers:  []string{"Q-38", "J-08"},
		run:     insertMint,
	},
	{
		Name:   "Insert/Claim",
		Clause: "a claim that comes with a job is served as if it came right after it, or not tried: it gets what precedes the job first, nothing from a paused queue or beyond a limit and nothing that it does not ask for; the answer to the submission is the same",
		run:    insertClaim,
	},
	{
		Name:   "Insert/DuplicateID",
		Clause: "an id can be inserted once: a second insert is ErrDuplicateID and leaves the first job untouched",
		Covers: []string{"Q-38", "J-08"},
		run:    insertDuplicate,
	},
	{
		Name:   "Insert/DuplicateFinishedID",
		Clause: "the id of a finished job stays taken",
		Covers: []string{"Q-38", "J-08"},
		run:    insertDuplicateFinished,
	},
	{
		Name:   "Insert/DuplicateInCall",
		Clause: "of two groups in one call with the same id the first is inserted",
		run:    insertDuplicateInCall,
	},
	{
		Name:   "Insert/GroupAtomic",
		Clause: "a group is all or nothing, and does not disturb the other groups of the call",
		run:    insertAtomic,
	},
	{
		Name:   "Insert/Depth",
		Clause: "a queue takes exactly MaxDepth live jobs; beyond that a group is ErrQueueFull as a whole, until a job ends",
		run:    insertDepth,
	},
	{
		Name:   "Insert/DepthInCall",
		Clause: "the groups of one call count against the depth of a queue one after the other, and other queues do not care",
		run:    insertDepthInCall,
	},
}

func insertFirstState(e *env) {
	spec := e.spec()
	s := e.insert(spec)[0]
	e.equal("the answer and what is stored", s, e.state(spec.ID))
	want := gq.State{
		ID: spec.ID, Sequence: s.Sequence, Policy: &spec.Policy, Status: gq.StatusScheduled,
		Own: gq.PriorityNormal, Depth: 1, Bound: spec.Policy.MaxAttempts,
		CreatedAt: e.now(), UpdatedAt: e.now(), RunAt: e.now(), ScheduledAt: e.now(),
	}
	e.equal("a new job", s, want)
	h := e.history(spec.ID)
	if len(h) != 2 {
		e.Fatalf("the history has %d entries, want 2: %v", len(h), trace(h))
	}
	e.equal("the history", h, []gq.Event{
		{Seq: h[0].Seq, Time: e.now(), Queue: "q", JobType: spec.Type, Job: spec.ID, Type: gq.EventSubmitted, Status: gq.StatusPending},
		{Seq: h[1].Seq, Time: e.now(), Queue: "q", JobType: spec.Type, Job: spec.ID, Type: gq.EventScheduled, Status: gq.StatusScheduled},
	})
}

func insertDelayed(e *env) {
	for _, test := range []struct {
		name  string
		set   setting
		after time.Duration
	}{
		{"delay", delayed(time.Nanosecond), time.Nanosecond},
		{"run time", func(s *gq.Spec) { s.RunAt = start.Add(time.Hour) }, time.Hour},
		{"delay after run time", func(s *gq.Spec) { s.RunAt, s.Delay = start.Add(time.Hour), 2*time.Hour }, 2 * time.Hour},
		{"run time after delay", func(s *gq.Spec) { s.RunAt, s.Delay = start.Add(time.Hour), time.Minute }, time.Hour},
	} {
		s := e.add(test.set)
		due := e.now().Add(test.after)
		if s.Status != gq.StatusDelayed || !s.RunAt.Equal(due) || !s.ScheduledAt.IsZero() {
			e.Errorf("%s: the job is %s until %v (scheduled at %v), want DELAYED until %v", test.name, s.Status, s.RunAt, s.ScheduledAt, due)
		}
		h := e.history(s.ID)
		e.equal(test.name+": the history", trace(h), []gq.Status{gq.StatusPending, gq.StatusDelayed})
		if last := h[len(h)-1]; last.Type != gq.EventDelayed || !last.Until.Equal(due) || !last.Time.Equal(e.now()) {
			e.Errorf("%s: the last event is %s at %v until %v, want %s at %v until %v",
				test.name, last.Type, last.Time, last.Until, gq.EventDelayed, e.now(), due)
		}
		e.equal(test.name+": the stored state", e.state(s.ID), s)
	}
}

func insertPast(e *env) {
	past := e.add(func(s *gq.Spec) { s.RunAt = start.Add(-time.Hour) })
	now := e.add(func(s *gq.Spec) { s.RunAt = start })
	for _, s := range []gq.State{past, now} {
		if s.Status != gq.StatusScheduled {
			e.Errorf("a job with a run time at or before now is %s, want SCHEDULED", s.Status)
		}
	}
	e.claimed("jobs with a run time at or before now", 10, []gq.JobID{past.ID, now.ID})
}

func insertBeyondLife(e *env) {
	hour := under(func(p *gq.Policy) { p.Lifetime = time.Hour })
	at := func(d time.Duration) setting { return func(s *gq.Spec) { s.RunAt = e.now().Add(d) } }
	for name, test := range map[string]struct {
		spec  gq.Spec
		field string
	}{
		"delay":           {e.spec(hour, delayed(time.Hour)), "delay"},
		"run time":        {e.spec(hour, at(time.Hour)), "run_at"},
		"keyed run time":  {e.spec(hour, at(time.Hour), keyed("late", 1)), "run_at"},
		"late run time":   {e.spec(hour, at(1000*time.Hour)), "run_at"},
		"run time, chain": {e.spec(hour, at(time.Hour), depends(gq.DependencyAfter, e.add().ID)), "run_at"},
	} {
		why := e.refused(gq.ErrInvalid, test.spec)
		if got := why.fields(); len(got) != 1 || got[0] != test.field {
			e.Errorf("%s beyond the lifetime: the error names %q (%v), want %s", name, got, why.err, test.field)
		}
		e.absent("a job with its "+name+" beyond its lifetime", test.spec.ID)
	}
	group := []gq.Spec{e.spec(), e.spec(hour, at(2*time.Hour))}
	if got := e.refused(gq.ErrInvalid, group...).fields(); len(got) != 1 || got[0] != "jobs[1].run_at" {
		e.Errorf("a group with a run time beyond a lifetime: the error names %q, want jobs[1].run_at", got)
	}
	e.absent("the other job of the group", group[0].ID)

	last := e.add(hour, at(time.Hour-1), keyed("k", 1))
	e.equal("a run time 1 ns before the end of the lifetime", last.Status, gq.StatusDelayed)
	e.add(under(func(p *gq.Policy) { p.Lifetime = 0 }), at(1000*time.Hour))
	again := e.tryInsert(store.One(e.spec(hour, at(time.Hour), keyed("k", 1))))[0]
	if again.Err != nil || !again.Jobs[0].Existing || again.Jobs[0].State.ID != last.ID {
		e.Errorf("a key that is taken, with a run time beyond the lifetime: %+v, want the job that has it", again)
	}
}

func insertReadBack(e *env) {
	parent := e.add(inQueue("parents"))
	spec := e.spec(inQueue("a-Z_0.9:x/y"), ofType("typ ü"), at(gq.PriorityHigh), delayed(time.Second), costing(12345),
		requiring("gpu", "big"), depends(gq.DependencyFanOut, parent.ID), keyed("schlüssel", 1<<63+5),
		func(s *gq.Spec) {
			s.Payload = gq.Payload{Data: []byte{0, 1, 0xff}, ContentType: "application/x-test; v=1"}
			s.Key.Scope = "elsewhere"
			s.RunAt = start.Add(time.Nanosecond)
			s.Requester, s.Tier, s.MaxFee = "somebody", "PRO", 1<<62
			s.Attributes = map[string]string{"a": "", "ö": "\x00\n\"'\\"}
			s.ReplayOf = e.id()
			s.Metadata.Tags = map[string]string{"team": "blue", "mixed": "a\tb 🙂"}
			s.Metadata.CorrelationID = "trace\x00-7"
			s.Metadata.CallbackURL = "https://example.com/hook?a=b#c"
			s.Policy = gq.Policy{
				Preset: gq.PresetQuantum, MaxAttempts: 7, MaxLeaseLosses: 3,
				Backoff: gq.Backoff{
					Strategy: gq.StrategyCustom, Initial: 3, Max: time.Hour + 1, Multiplier: 1.0000001, Jitter: gq.JitterTenth, Custom: "mine",
				},
				RetryTimeout: true, RetrySystem: false, RetryNever: true, OnLoss: gq.LossBackoff, CancelWins: true,
				LeaseTTL: time.Second + 1, Hold: time.Minute + 2, HoldFault: true, Extend: gq.ExtendAdd, ExtendPPB: 123, RenewByPPB: 456, RenewalsMax: 9,
				ExecutionTimeout: time.Hour + 3, Lifetime: 24*time.Hour + 4, RunLifetime: 2*time.Hour + 5, StartWithin: 23*time.Hour + 7, Retention: 25*time.Hour + 8, Aging: 26 * time.Hour, IdempotencyWindow: time.Hour + 6,
			}
		})
	e.insert(spec)
	j := e.get(spec.ID)
	e.equal("the spec as read", j.Spec, spec)
	e.equal("the metadata as read", j.Metadata, spec.Metadata)
	e.equal("the policy in the state", *j.State.Policy, spec.Policy)

	e.clock.Advance(time.Second)
	j = e.one(from(spec.Queue), offering("big", "gpu"), with(allParts))
	e.equal("the spec as claimed", j.Spec, spec)
	e.equal("the metadata as claimed", j.Metadata, spec.Metadata)
}

func insertSequence(e *env) {
	var states []gq.State
	states = append(states, e.insert(e.specs(3)...)...)
	states = append(states, e.each(e.specs(3, at(gq.PriorityCritical))...)...)
	states = append(states, e.add(inQueue("other")))
	states = append(states, e.each(e.spec(inQueue("other")), e.spec())...)
	for i, s := range states {
		if i > 0 && s.Sequence <= states[i-1].Sequence {
			e.Errorf("job %d has sequence %d, the one before it %d", i, s.Sequence, states[i-1].Sequence)
		}
		if got := e.state(s.ID).Sequence; got != s.Sequence {
			e.Errorf("job %d was answered sequence %d and is stored with %d", i, s.Sequence, got)
		}
	}
}

func insertMint(e *env) {
	first := e.minted(e.spec(ofType("first"), func(s *gq.Spec) { s.Payload = gq.Payload{Data: e.noise(20), ContentType: "application/octet-stream"} }))[0]
	large := e.minted(e.spec(inQueue("other"), ofType("large"), func(s *gq.Spec) { s.Payload = gq.Payload{Data: e.noise(5000), ContentType: "application/octet-stream"} }))[0]
	parent, child := e.spec(inQueue("graph"), keyed("k", 7)), e.spec(inQueue("graph"))
	child.DependsOn = []gq.Dependency{{Kind: gq.DependencyAfter, Job: parent.ID}, {Kind: gq.DependencyAfter, Job: first.ID}}
	group := e.minted(parent, child)
	ids := []gq.JobID{first.ID, large.ID, group[0].ID, group[1].ID}
	seen := make(map[gq.JobID]bool)
	for _, id := range ids {
		if seen[id] || id.IsZero() || id[6]>>4 != 4 || id[8]>>6 != 2 {
			e.Errorf("%s is not a new random UUID", id)
		}
		seen[id] = true
	}
	e.equal("what the child depends on", e.get(group[1].ID).Spec.DependsOn, []gq.Dependency{
		{Kind: gq.DependencyAfter, Job: group[0].ID}, {Kind: gq.DependencyAfter, Job: first.ID},
	})
	again := e.tryInsert(store.Group{Jobs: []gq.Spec{e.spec(inQueue("graph"), keyed("k", 7))}, Mint: true})[0]
	e.check("a key that is taken", again.Err)
	if p := again.Jobs[0]; p.State.ID != group[0].ID || !p.Existing || !p.Same {
		e.Errorf("the key leads to job %s, existing %t, same %t; want %s", p.State.ID, p.Existing, p.Same, group[0].ID)
	}
	e.absent("an id of which the last bit differs", altered(first.ID, 15))
	e.absent("an id of which the first bit differs", altered(first.ID, 0))

	for _, id := range ids {
		if job := e.get(id); job.Spec.ID != id || job.State.ID != id {
			e.Errorf("job %s is read as %s with the spec of %s", id, job.State.ID, job.Spec.ID)
		}
		for _, event := range e.history(id) {
			if event.Job != id {
				e.Errorf("the history of job %s tells of %s", id, event.Job)
			}
		}
	}
	for _, event := range e.events(0) {
		if !seen[event.Job] {
			e.Errorf("an event tells of job %s, which nobody submitted", event.Job)
		}
	}
	held := e.one(with(allParts))
	if held.State.ID != first.ID || held.Spec.ID != first.ID {
		e.Errorf("claimed job %s, want %s", held.State.ID, first.ID)
	}
	e.equal("the payload", held.Spec.Payload.Data, e.get(first.ID).Spec.Payload.Data)
	placed := e.tryUpdate(store.Update{
		Ref: byID(first.ID), Apply: completing(held.State.Lease.Ref(), nil), Mint: true,
		Spawn: []gq.Spec{e.spec(inQueue("children"), func(s *gq.Spec) {
			s.DependsOn = []gq.Dependency{{Kind: gq.DependencyFanOut, Job: first.ID}}
		})},
	})[0]
	e.check("an update that spawns a child", placed.Err)
	ids = append(ids, placed.Spawned[0].State.ID)
	e.reopen()
	e.listed("all jobs", gq.Query{OldestFirst: true, Limit: 10}, ids)
	for _, id := range ids {
		taken := e.spec()
		taken.ID = id
		e.refused(gq.ErrDuplicateID, taken)
	}
	if data := e.one(from("other"), with(allParts)).Spec.Payload.Data; len(data) != 5000 {
		e.Errorf("a large payload has %d bytes, want 5000", len(data))
	}
}

// altered is an id that differs in one bit.
func altered(id gq.JobID, at int) gq.JobID {
	id[at] ^= 1
	return id
}

func insertClaim(e *env) {
	submit := func(settings ...setting) (placed gq.State, got []gq.Job) {
		e.Helper()
		spec := e.spec(settings...)
		claim := store.Claim{Filter: store.Filter{Queues: []string{spec.Queue}, Types: []string{"wanted"}}, N: 2, Worker: "w", TTL: time.Minute, Parts: allParts}
		answer := e.tryInsert(store.Group{Jobs: []gq.Spec{spec}, Mint: true, Claim: &claim})[0]
		e.check("Insert with a claim", answer.Err)
		placed = answer.Jobs[0].State
		if placed.Status != gq.StatusScheduled || placed.Lease != nil || answer.Jobs[0].Existing {
			e.Errorf("a submission with a claim is answered with %v, lease %v", placed.Status, placed.Lease)
		}
		if answer.Claimed != nil {
			e.check("the claim of an insert", answer.Claimed.Err)
			got = answer.Claimed.Jobs
		}
		return placed, got
	}
	data := []byte(`{"n": 1}`)
	wanted := ofType("wanted")
	placed, got := submit(wanted, func(s *gq.Spec) { s.Payload.Data = data })
	if len(got) == 0 { // it was not tried
		got = e.claim(1, with(allParts))
	}
	if len(got) != 1 || got[0].State.ID != placed.ID || got[0].State.Status != gq.StatusRunning || got[0].State.Lease.Worker == "" {
		e.Fatalf("the claim got %+v, want job %s", got, placed.ID)
	}
	e.equal("the payload", string(got[0].Spec.Payload.Data), string(data))
	e.equal("the state that is stored", e.state(placed.ID), got[0].State)
	history := e.history(placed.ID)
	if n := len(history); n != 3 || history[0].Type != gq.EventSubmitted || history[2].Type != gq.EventStarted {
		e.Errorf("the history of a job that was claimed at once is %+v", history)
	}
	e.complete(got[0])

	if placed, got := submit(ofType("other")); len(got) > 0 {
		e.Errorf("a claim of other jobs got job %s", placed.ID)
	}
	first := e.add(inQueue("busy"), wanted)
	second, got := submit(inQueue("busy"), wanted)
	if len(got) > 0 && got[0].State.ID != first.ID {
		e.Errorf("the claim got job %s before %s", got[0].State.ID, first.ID)
	}
	if len(got) == 0 {
		e.claimed("what precedes the job", 2, []gq.JobID{first.ID, second.ID}, from("busy"))
	}
	e.put("paused", func(q *gq.Queue) { q.Paused = true })
	e.put("narrow", func(q *gq.Queue) { q.MaxRunning = 1 })
	for _, queue := range []string{"paused", "narrow"} {
		if queue == "narrow" {
			e.add(inQueue(queue), wanted)
			e.one(from(queue))
		}
		if placed, got := submit(inQueue(queue), wanted); len(got) > 0 || e.state(placed.ID).Status != gq.StatusScheduled {
			e.Errorf("a claim from a %s queue got %d jobs", queue, len(got))
		}
	}
}

func insertDuplicate(e *env) {
	first := e.spec(delayed(time.Minute))
	e.insert(first)
	before := e.snapshot(first.ID)
	e.clock.Advance(time.Second)

	second := e.spec(inQueue("other"), at(gq.PriorityCritical))
	second.ID = first.ID
	e.refused(gq.ErrDuplicateID, second)
	e.refused(gq.ErrDuplicateID, first)
	e.unchanged("inserting its id again", before, first.ID)

	other := e.spec()
	e.refused(gq.ErrDuplicateID, other, second)
	e.absent("another member of a group with a taken id", other.ID)
	e.unchanged("a group with its id", before, first.ID)
}

func insertDuplicateFinished(e *env) {
	done, gone := e.spec(), e.spec()
	e.each(done, gone)
	e.complete(e.one())
	e.cancel(gone.ID)
	before := e.snapshot(done.ID, gone.ID)
	e.refused(gq.ErrDuplicateID, done)
	e.refused(gq.ErrDuplicateID, gone)
	e.unchanged("inserting the id of a finished job", before, done.ID, gone.ID)
}

func insertDuplicateInCall(e *env) {
	first := e.spec(ofType("first"))
	second := e.spec(ofType("second"))
	second.ID = first.ID
	answers := e.tryInsert(store.One(first), store.One(second))
	e.check("the first of two equal ids", answers[0].Err)
	e.is("the second of two equal ids", answers[1].Err, gq.ErrDuplicateID)
	if got := e.get(first.ID).Spec.Type; got != "first" {
		e.Errorf("the stored job is of type %q, want that of the first group", got)
	}
}

func insertAtomic(e *env) {
	good, bad := e.specs(3), e.specs(3)
	bad[2].DependsOn = []gq.Dependency{{Kind: gq.DependencyAfter, Job: e.id()}}
	invalid := e.specs(2)
	invalid[1].Type = ""
	last := e.spec()
	answers := e.tryInsert(store.Group{Jobs: good}, store.Group{Jobs: bad}, store.Group{Jobs: invalid}, store.One(last))
	e.check("a good group", answers[0].Err)
	e.is("a group with an unknown dependency", answers[1].Err, gq.ErrInvalid)
	e.is("a group with an invalid member", answers[2].Err, gq.ErrInvalid)
	e.check("a good group behind bad ones", answers[3].Err)

	for _, s := range append(bad, invalid...) {
		e.absent("a member of a refused group", s.ID)
	}
	if got := e.counts()["q"].Live(); got != 4 {
		e.Errorf("%d live jobs are counted, want the 4 of the good groups", got)
	}
	if got := len(e.events(0)); got != 8 {
		e.Errorf("%d events were written, want two for each of 4 jobs", got)
	}
	e.claimed("after refused groups", 10, []gq.JobID{good[0].ID, good[1].ID, good[2].ID, last.ID})
}

func insertDepth(e *env) {
	e.put("q", func(q *gq.Queue) { q.MaxDepth = 3 })
	e.insert(e.specs(2)...)
	group := e.specs(2)
	e.refused(gq.ErrQueueFull, group...)
	e.absent("a member of a group that did not fit", group[0].ID)

	last := e.add(delayed(time.Hour))
	full := e.spec(keyed("k", 1))
	e.refused(gq.ErrQueueFull, full)
	if got := e.counts("q")["q"].Live(); got != 3 {
		e.Errorf("%d live jobs are counted, want MaxDepth, 3", got)
	}
	mixed := e.specs(2)
	mixed[0].Queue = "other"
	e.refused(gq.ErrQueueFull, mixed...)
	e.absent("a member in another queue of a group that did not fit", mixed[0].ID)

	e.cancel(last.ID)
	again := e.spec(keyed("k", 1))
	e.insert(again) // also proves that the refused job did not take its key
	e.refused(gq.ErrQueueFull, e.spec())
	placed := e.tryInsert(store.One(e.spec(keyed("k", 1))))[0]
	if placed.Err != nil || !placed.Jobs[0].Existing {
		e.Errorf("a full queue answered a key that is taken with %+v, want the job that has it", placed)
	}
}

func insertDepthInCall(e *env) {
	e.put("q", func(q *gq.Queue) { q.MaxDepth = 2 })
	answers := e.tryInsert(
		store.One(e.spec()), store.Group{Jobs: e.specs(2)}, store.One(e.spec()),
		store.One(e.spec()), store.Group{Jobs: e.specs(5, inQueue("other"))},
	)
	for i, want := range []error{nil, gq.ErrQueueFull, nil, gq.ErrQueueFull, nil} {
		if want == nil {
			e.check("Insert", answers[i].Err)
			continue
		}
		e.is("Insert of one more than fits", answers[i].Err, want)
	}
}
