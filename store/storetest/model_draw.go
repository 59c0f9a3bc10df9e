package storetest

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	"pgregory.net/rapid"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/machine"
	"github.com/gopherqueue/gq/store"
)

// The values that stories use. There are few names and short times, so that jobs interact.

var (
	queueNames   = []string{"a", "b", "c"}
	typeNames    = []string{"x", "y"}
	workerNames  = []string{"alice", "bob"}
	capabilities = []string{"big", "gpu"}
)

func chance(r *rapid.T, what string, oneIn int) bool {
	return rapid.IntRange(1, oneIn).Draw(r, what) == oneIn
}

func pick[T any](r *rapid.T, what string, from ...T) T { return rapid.SampledFrom(from).Draw(r, what) }

func seconds(r *rapid.T, what string, from ...int) time.Duration {
	return time.Duration(pick(r, what, from...)) * time.Second
}

// id returns a new job id.
func (m *model) id() gq.JobID {
	var raw [16]byte
	for i := range raw {
		raw[i] = byte(m.random.Uint32())
	}
	return machine.NewJobID(raw)
}

// anyJob draws an existing job, or nil.
func (m *model) anyJob(r *rapid.T, what string, wanted func(*modelJob) bool) *modelJob {
	jobs := slices.DeleteFunc(m.sorted(), func(j *modelJob) bool { return !wanted(j) })
	if len(jobs) == 0 {
		return nil
	}
	return jobs[rapid.IntRange(0, len(jobs)-1).Draw(r, what)]
}

func everyJob(*modelJob) bool { return true }

func drawPolicy(r *rapid.T) gq.Policy {
	p := machine.DefaultPolicy()
	p.MaxAttempts = pick(r, "max attempts", 3, 2, 1)
	p.MaxLeaseLosses = pick(r, "max losses", 0, 0, 2)
	p.Backoff = gq.Backoff{
		Strategy: pick(r, "strategy", gq.StrategyConstant, gq.StrategyLinear, gq.StrategyExponential), Jitter: gq.JitterNone,
		Initial: seconds(r, "initial", 1, 2), Max: seconds(r, "max", 2, 60), Multiplier: pick(r, "multiplier", 1.0, 2.0, 3.0),
	}
	p.RetryTimeout, p.RetrySystem = !chance(r, "no retry of timeouts", 4), !chance(r, "no retry of losses", 4)
	p.RetryNever, p.CancelWins = chance(r, "no retry", 8), rapid.Bool().Draw(r, "cancel wins")
	p.OnLoss = pick(r, "on loss", gq.LossCounts, gq.LossFree, gq.LossBackoff, gq.LossFails)
	p.LeaseTTL, p.Hold = seconds(r, "ttl", 5, 10), seconds(r, "hold", 3, 6)
	p.HoldFault = rapid.Bool().Draw(r, "hold fault")
	if chance(r, "extend", 2) {
		p.Extend, p.ExtendPPB, p.RenewByPPB, p.RenewalsMax = gq.ExtendAdd, 500_000_000, 600_000_000, 2
	}
	p.ExecutionTimeout = seconds(r, "timeout", 0, 30, 8)
	p.Lifetime = seconds(r, "lifetime", 0, 0, 0, 300, 20)
	p.RunLifetime = seconds(r, "run lifetime", 0, 0, 0, 15)
	p.Aging = seconds(r, "aging", 0, 0, 0, 2)
	p.Retention = rapid.SampledFrom([]time.Duration{0, 0, 0, 0, 20 * time.Second, 90 * time.Second}).Draw(r, "retention") // no key lasts longer
	p.StartWithin = seconds(r, "start within", 0, 0, 0, 0, 8)
	p.IdempotencyWindow = seconds(r, "window", 5, 20)
	return p
}

// spec draws a job. It may depend on existing jobs and on members of its group, mostly on
// the previous one.
func (m *model) spec(r *rapid.T, members []gq.JobID, earlier int) gq.Spec {
	s := gq.Spec{
		ID: m.id(), Queue: pick(r, "queue", queueNames...), Type: pick(r, "type", typeNames...), Policy: drawPolicy(r),
		Payload:   gq.Payload{Data: []byte(fmt.Sprint("payload ", m.random.IntN(1000))), ContentType: "text/plain"},
		CostUnits: pick[int64](r, "cost", 0, 1, 2, 3),
	}
	s.LimitKey, s.FairKey = pick(r, "limit key", "", "", "k", "l"), pick(r, "fair key", "", "f", "g")
	if s.LimitKey != "" {
		s.Weight = pick(r, "weight", 0, 0, 1, 2, 4)
	}
	s.Metadata.Priority = pick(r, "priority", gq.PriorityNormal, gq.PriorityCritical, gq.PriorityHigh, gq.PriorityLow, gq.PriorityBulk)
	switch rapid.IntRange(0, 5).Draw(r, "when") {
	case 0:
		s.Delay = seconds(r, "delay", 1, 5)
	case 1:
		s.RunAt = m.now.Add(seconds(r, "run at", -1, 0, 1, 3))
	}
	if chance(r, "requires", 4) {
		s.Requires = rapid.SampledFrom([][]string{{"gpu"}, {"big", "gpu"}}).Draw(r, "what")
	}
	if chance(r, "gated", 6) {
		s.Workflow, s.Ref, s.Gate = storyWorkflow, "step", pick(r, "gate", gq.GateSignal, gq.GateSignal, gq.GateFailure)
		s.Delay, s.RunAt = 0, time.Time{}
	} else if chance(r, "keyed", 3) {
		s.Key = gq.IdempotencyKey{Scope: pick(r, "scope", "x", "xk"), Name: pick(r, "key", "k", "kk"), Fingerprint: pick[uint64](r, "fingerprint", 1, 1, 2)}
	}
	for range pick(r, "dependencies", 0, 0, 1, 2, 3) {
		d := gq.Dependency{Kind: pick(r, "kind", gq.DependencyAfter, gq.DependencyAfter, gq.DependencyAfterAny, gq.DependencyChain, gq.DependencyFanOut, gq.DependencyFanIn)}
		if len(members) > 1 && rapid.Bool().Draw(r, "inside") {
			d.Job = pick(r, "member", members...) // also itself or in a cycle
			if earlier > 0 && !chance(r, "anywhere", 3) {
				d.Job = members[earlier-1]
			}
		} else if parent := m.anyJob(r, "parent", everyJob); parent != nil {
			d.Job = parent.spec.ID
		} else {
			continue
		}
		if chance(r, "unknown", 50) {
			d.Job = m.id()
		}
		s.DependsOn = append(s.DependsOn, d)
	}
	if chance(r, "traced", 4) {
		s.Attributes = map[string]string{gq.AttributeTraceParent: modelTrace}
	}
	if s.Gate == 0 { // jobs of a workflow have no keys
		drawUnique(r, &s)
		drawOrder(r, &s)
	}
	return s
}

// drawnGroup is a group, and whether one of its specs is invalid.
type drawnGroup struct {
	store.Group
	spoiled bool
}

// GoString formats the group for the report of a story.
func (g drawnGroup) GoString() string {
	return fmt.Sprintf("spoiled %t%s", g.spoiled, describe(g.Group))
}

func (m *model) drawSpec(r *rapid.T) gq.Spec { return m.spec(r, nil, 0).WithDefaults() }

func (m *model) drawGroup(r *rapid.T) (g drawnGroup) {
	ids := make([]gq.JobID, pick(r, "jobs", 1, 1, 1, 2, 3, 4))
	for i := range ids {
		ids[i] = m.id()
	}
	for i, id := range ids {
		s := m.spec(r, ids, i)
		s.ID = id
		if taken := m.anyJob(r, "taken", everyJob); taken != nil && chance(r, "take its id", 40) {
			s.ID = taken.spec.ID
		}
		if chance(r, "spoil", 60) {
			field := pick(r, "field", slices.Sorted(maps.Keys(badFields))...)
			s.Unique = gq.UniqueRule{} // a unique job may have a window of 0
			badFields[field][0](&s)
			if field == "payload" {
				s.Payload.Data = []byte{0xff}
			}
			g.spoiled = true
		} else {
			s = s.WithDefaults()
		}
		g.Jobs = append(g.Jobs, s)
	}
	return g
}

func (m *model) drawClaim(r *rapid.T) store.Claim {
	c := store.Claim{
		Filter: store.Filter{Queues: rapid.Permutation(queueNames).Draw(r, "queues")[:pick(r, "of", 1, 2, 3, 3)]},
		N:      pick(r, "n", 1, 2, 5, 20), Worker: pick(r, "worker", workerNames...), Parts: allParts,
	}
	if chance(r, "some types", 4) {
		c.Types = []string{pick(r, "type", typeNames...)}
	}
	if !chance(r, "no offers", 4) {
		c.Offers = capabilities[:pick(r, "offers", 2, 1)]
	}
	if chance(r, "max cost", 4) {
		c.MaxCost = pick[int64](r, "up to", 1, 2)
	}
	c.Hold = chance(r, "hold", 4)
	if chance(r, "own ttl", 4) {
		c.TTL = seconds(r, "ttl", 1, 7)
	}
	return c
}

// drawRef draws the lease under which a worker acts, mostly the right one.
func (m *model) drawRef(r *rapid.T, j *modelJob) gq.LeaseRef {
	var ref gq.LeaseRef
	if j != nil && j.s.Lease != nil {
		ref = gq.LeaseRef{ID: j.s.Lease.ID, Version: j.s.Lease.Version, Worker: j.s.Lease.Worker}
	}
	switch rapid.IntRange(0, 20).Draw(r, "lease") {
	case 14:
		ref.Version++
	case 15:
		ref.Worker = "mallory"
	case 16:
		ref.ID = gq.LeaseID("unknown")
	case 17, 18:
		if j != nil {
			ref = gq.LeaseRef{ID: j.s.PreviousLease} // the previous one
		}
	case 19:
		ref = gq.LeaseRef{ID: ref.ID}
	case 20:
		if other := m.anyJob(r, "of another job", func(o *modelJob) bool { return o.s.Lease != nil }); other != nil {
			ref = gq.LeaseRef{ID: other.s.Lease.ID}
		}
	}
	return ref
}

// drawnChange is a verb and its target.
type drawnChange struct {
	store.Ref
	verb
}

// GoString formats the change for the report of a story.
func (c drawnChange) GoString() string { return fmt.Sprintf("%s of job %s%s", c.name, c.Job, c.Lease) }

func (c drawnChange) update() store.Update {
	return store.Update{Ref: c.Ref, Apply: c.apply, Metadata: c.metadata, Result: c.result, Checkpoint: c.checkpoint}
}

func (m *model) drawChange(r *rapid.T) (c drawnChange) {
	wanted := rapid.SampledFrom([]func(*modelJob) bool{
		func(j *modelJob) bool { return j.held() && !j.expired(m.now) }, (*modelJob).held, everyJob,
	}).Draw(r, "wanted")
	j := m.anyJob(r, "job", wanted)
	c.verb = m.drawVerb(r, j)
	if chance(r, "signal", 6) {
		waiting := func(j *modelJob) bool { return j.s.Gate == gq.GateSignal && !j.terminal() }
		if to := m.anyJob(r, "to", waiting); to != nil {
			j, c.verb = to, signalVerb(pick(r, "value", []byte("1"), []byte("22")))
			m.happened("signal")
		}
	}
	if chance(r, "the same again", 8) { // as after a lost answer
		settled := func(j *modelJob) bool { return m.settling[j.spec.ID].name != "" }
		if again := m.anyJob(r, "settled job", settled); again != nil {
			j, c.verb = again, m.settling[again.spec.ID]
		}
	}
	switch {
	case j == nil || chance(r, "unknown job", 30):
		c.Ref = pick(r, "which", byID(m.id()), byLease("unknown"))
	case j.s.Lease != nil && rapid.Bool().Draw(r, "by lease"):
		c.Ref = byLease(j.s.Lease.ID)
		if j.s.PreviousLease != "" && chance(r, "by an old lease", 3) {
			c.Ref = byLease(j.s.PreviousLease)
		}
	default:
		c.Ref = byID(j.spec.ID)
	}
	return c
}

func (m *model) drawVerb(r *rapid.T, j *modelJob) verb {
	ref := m.drawRef(r, j)
	switch pick(r, "verb", "complete", "fail", "complete", "fail", "heartbeat", "heartbeat", "release", "start", "start", "prepare", "cancel", "update", "reschedule", "advance", "signal") {
	case "complete":
		return completeVerb(ref, pick(r, "result", nil, []byte("r"), []byte("s")))
	case "fail":
		f := gq.Failure{Category: pick(r, "category", gq.CategoryTemporary, gq.CategoryTemporary, gq.CategoryPermanent, gq.CategoryTimeout, gq.CategorySystem, gq.CategoryCancelled)}
		f.Code, f.RetryAfter = pick(r, "code", "", "c"), seconds(r, "retry after", 0, 0, 4)
		return failVerb(ref, f)
	case "heartbeat":
		report := machine.Report{Progress: pick(r, "progress", -1, 0, 0.5, 1.0, 1.5, math.NaN()), Note: pick(r, "note", "", "n")}
		return heartbeatVerb(ref, report, pick(r, "checkpoint", nil, []byte("c"), []byte("cc")))
	case "release":
		return releaseVerb(ref, seconds(r, "delay", 0, 0, 3, -1), pick(r, "reason", "", "x"))
	case "start":
		return startVerb(ref, seconds(r, "ttl", 0, 0, 4))
	case "prepare":
		return prepareVerb(ref, pick(r, "detail", gq.DetailClaimed, gq.DetailPreparing, gq.DetailLeasePending, gq.DetailAssigned, gq.DetailNone))
	case "signal":
		return signalVerb(pick(r, "value", []byte("1"), []byte("22")))
	case "cancel":
		return cancelVerb(pick(r, "reason", "", "x"))
	case "update":
		data := gq.Metadata{CorrelationID: pick(r, "correlation", "", "c"), Tags: pick(r, "tags", nil, map[string]string{"a": "b"})}
		data.Priority = pick(r, "priority", gq.PriorityNormal, gq.PriorityCritical, gq.PriorityBulk)
		if j != nil && rapid.Bool().Draw(r, "keep priority") {
			data.Priority = j.s.Own
		}
		return updateVerb(data)
	case "reschedule":
		return rescheduleVerb(m.now.Add(seconds(r, "at", -1, 0, 1, 4, 25)))
	default:
		return advanceVerb()
	}
}
