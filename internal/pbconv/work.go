package pbconv

import (
	"fmt"

	"github.com/gopherqueue/gq"
	pb "github.com/gopherqueue/gq/api/gopherqueue/v1"
	"github.com/gopherqueue/gq/internal/errs"
	"github.com/gopherqueue/gq/machine"
)

// ProtoClaim encodes a claim.
func ProtoClaim(c *gq.ClaimRequest) *pb.ClaimRequest {
	return &pb.ClaimRequest{
		Worker: c.Worker, Queues: c.Queues, Types: c.Types, Offers: c.Offers, MaxCost: c.MaxCost, N: int64(c.N),
		Wait: protoDuration(c.Wait), Ttl: protoDuration(c.TTL), DefaultTtl: protoDuration(c.DefaultTTL), Hold: c.Hold,
	}
}

// ClaimFromProto decodes a claim.
func ClaimFromProto(m *pb.ClaimRequest) (gq.ClaimRequest, error) {
	var r protoReader
	c := gq.ClaimRequest{
		Worker: m.GetWorker(), Queues: m.GetQueues(), Types: m.GetTypes(), Offers: m.GetOffers(), MaxCost: m.GetMaxCost(),
		N:    r.int("", "n", m.GetN()),
		Wait: r.duration("", "wait", m.GetWait()), TTL: r.duration("", "ttl", m.GetTtl()), DefaultTTL: r.duration("", "default_ttl", m.GetDefaultTtl()), Hold: m.GetHold(),
	}
	return c, r.err()
}

// Bases returns the policy of a queue, which completes a job's partial policy.
type Bases func(queue string) (gq.Policy, error)

// of returns the base of a submission, looked up only if needed.
func (b Bases) of(m *pb.Spec) (gq.Policy, error) {
	if b == nil || !PolicyIsPartial(m.GetPolicy()) {
		return machine.DefaultPolicy(), nil
	}
	queue := m.GetQueue()
	if queue == "" {
		queue = gq.DefaultQueue
	}
	return b(queue)
}

// Spec decodes a submission; the queue's policy completes its own.
func (b Bases) Spec(m *pb.Spec) (gq.Spec, error) {
	base, err := b.of(m)
	if err != nil {
		return gq.Spec{}, err
	}
	return SpecFromProto(m, base)
}

func (b Bases) specs(field string, all []*pb.Spec) ([]gq.Spec, error) {
	if len(all) == 0 {
		return nil, nil
	}
	var r protoReader
	specs := make([]gq.Spec, len(all))
	for i, m := range all {
		var err error
		specs[i], err = b.Spec(m)
		if err != nil && errs.KindOf(err) != gq.KindInvalid {
			return nil, err
		}
		r.nested(fmt.Sprintf("%s[%d].", field, i), err)
	}
	return specs, r.err()
}

func protoSpecs(specs []gq.Spec) []*pb.Spec {
	if len(specs) == 0 {
		return nil
	}
	out := make([]*pb.Spec, len(specs))
	for i := range specs {
		out[i] = ProtoSpec(&specs[i])
	}
	return out
}

// ProtoDraft encodes a job of a graph.
func ProtoDraft(d *gq.GraphJob) *pb.Draft {
	m := &pb.Draft{Spec: ProtoSpec(&d.Spec), Ref: d.Ref, Final: pb.Final(d.Final)}
	for _, n := range d.Needs {
		m.Needs = append(m.Needs, &pb.Need{Kind: pb.DependencyKind(n.Kind), Ref: n.Ref})
	}
	return m
}

// Draft decodes a job of a graph.
func (b Bases) Draft(m *pb.Draft) (gq.GraphJob, error) {
	spec, err := b.Spec(m.GetSpec())
	if err != nil && errs.KindOf(err) != gq.KindInvalid {
		return gq.GraphJob{}, err
	}
	var r protoReader
	r.nested("", err)
	d := gq.GraphJob{Spec: spec, Ref: m.GetRef(), Final: readEnum(&r, "", "final", m.GetFinal(), gq.OnFailure)}
	if len(m.GetNeeds()) > 0 {
		d.Needs = make([]gq.Dependency, len(m.GetNeeds()))
	}
	for i, n := range m.GetNeeds() {
		mark := len(r.faults)
		d.Needs[i] = gq.Dependency{Kind: readEnum(&r, "", "kind", n.GetKind(), gq.DependencyFanIn), Ref: n.GetRef()}
		r.number("needs", i, mark)
	}
	return d, r.err()
}

// ProtoBeat encodes a heartbeat.
func ProtoBeat(b *gq.Heartbeat) *pb.Beat {
	m := &pb.Beat{Lease: ProtoLeaseRef(b.Lease), Note: Prose(b.Note), Checkpoint: b.Checkpoint, Spawn: protoSpecs(b.Spawn)}
	if !(b.Progress < 0) { // NaN is sent too, and rejected by the server
		m.Progress = &b.Progress
	}
	return m
}

// Beat decodes a heartbeat.
func (b Bases) Beat(m *pb.Beat) (gq.Heartbeat, error) {
	spawn, err := b.specs("spawn", m.GetSpawn())
	if err != nil {
		return gq.Heartbeat{}, err
	}
	beat := gq.Heartbeat{Lease: LeaseRefFromProto(m.GetLease()), Progress: -1, Note: m.GetNote(), Checkpoint: m.GetCheckpoint(), Spawn: spawn}
	if m.Progress != nil {
		beat.Progress = m.GetProgress()
	}
	return beat, nil
}

// ProtoOutcome encodes an outcome.
func ProtoOutcome(o *gq.Outcome) *pb.Outcome {
	m := new(struct {
		outcome    pb.Outcome
		lease      pb.LeaseRef
		completion pb.Completion
		complete   pb.Outcome_Complete
	})
	out := &m.outcome
	m.lease.Id, m.lease.Version, m.lease.Worker = string(o.Lease.ID), uint64(o.Lease.Version), o.Lease.Worker
	out.Lease, out.NoState = &m.lease, o.NoState
	switch o.Verdict {
	case gq.VerdictComplete:
		m.completion.Result, m.completion.Spawn = o.Result, protoSpecs(o.Spawn)
		m.complete.Complete = &m.completion
		out.Verdict = &m.complete
	case gq.VerdictFail:
		out.Verdict = &pb.Outcome_Fail{Fail: protoFailure(&o.Failure)}
	case gq.VerdictRelease:
		out.Verdict = &pb.Outcome_Release{Release: &pb.Release{Delay: protoDuration(o.Delay), Reason: Prose(o.Reason)}}
	default: // no verdict; the server rejects it
	}
	return out
}

// Outcome decodes an outcome, possibly without a verdict.
func (b Bases) Outcome(m *pb.Outcome) (gq.Outcome, error) {
	var r protoReader
	o := gq.Outcome{Lease: LeaseRefFromProto(m.GetLease()), NoState: m.GetNoState()}
	switch v := m.GetVerdict().(type) {
	case *pb.Outcome_Complete:
		spawn, err := b.specs("spawn", v.Complete.GetSpawn())
		if err != nil {
			return o, err
		}
		o.Verdict, o.Result, o.Spawn = gq.VerdictComplete, v.Complete.GetResult(), spawn
	case *pb.Outcome_Fail:
		o.Verdict, o.Failure = gq.VerdictFail, r.failure("failure.", v.Fail)
	case *pb.Outcome_Release:
		o.Verdict, o.Delay, o.Reason = gq.VerdictRelease, r.duration("", "delay", v.Release.GetDelay()), v.Release.GetReason()
	}
	return o, r.err()
}

// ProtoSubmitted encodes the result of a submission; a problem carries the request id.
func ProtoSubmitted(s *gq.SubmitResult, request string) *pb.Submitted {
	if s.Err != nil {
		return &pb.Submitted{Problem: ProtoProblem(s.Err, request)}
	}
	m := new(struct {
		submitted pb.Submitted
		state     pb.State
	})
	out := &m.submitted
	out.State, out.Existing, out.Same = fillState(&m.state, nil, &s.State, nil), s.Existing, s.Same
	out.Replaces = protoID(s.Replaces)
	return out
}

// SubmittedFromProto decodes the result of a submission.
func SubmittedFromProto(m *pb.Submitted) (gq.SubmitResult, error) {
	if m.GetProblem() != nil {
		return gq.SubmitResult{Err: ErrorFromProblem(m.GetProblem())}, nil
	}
	state, err := StateFromProto(m.GetState())
	var r protoReader
	out := gq.SubmitResult{State: state, Existing: m.GetExisting(), Same: m.GetSame(), Replaces: r.id("", "replaces", m.GetReplaces())}
	if err == nil {
		err = r.err()
	}
	return out, err
}

// ProtoAnswers encodes the results of heartbeats or outcomes.
func ProtoAnswers(answers []gq.LeaseResult, request string) *pb.Answers {
	out := &pb.Answers{Answers: make([]*pb.Answer, len(answers))}
	empty := new(pb.Answer) // of all outcomes that succeeded and want no state
	for i := range answers {
		a := &answers[i]
		if a.State.ID.IsZero() && len(a.Spawned) == 0 && a.Err == nil {
			out.Answers[i] = empty
			continue
		}
		memory := new(struct {
			answer pb.Answer
			state  stateMessage
		})
		m := &memory.answer
		if !a.State.ID.IsZero() {
			m.State = memory.state.fill(&a.State, nil)
		}
		for k := range a.Spawned {
			m.Spawned = append(m.Spawned, ProtoSubmitted(&a.Spawned[k], request))
		}
		if a.Err != nil {
			m.Problem = ProtoProblem(a.Err, request)
		}
		out.Answers[i] = m
	}
	return out
}

// AnswersFromProto decodes the results of heartbeats or outcomes.
func AnswersFromProto(m *pb.Answers) ([]gq.LeaseResult, error) {
	var r protoReader
	out := make([]gq.LeaseResult, len(m.GetAnswers()))
	for i, a := range m.GetAnswers() {
		mark := len(r.faults)
		if a.GetState() != nil {
			out[i].State = r.stateAlone("state.", a.GetState())
		}
		for k, s := range a.GetSpawned() {
			submitted, err := SubmittedFromProto(s)
			r.nested(fmt.Sprintf("spawned[%d].", k), err)
			out[i].Spawned = append(out[i].Spawned, submitted)
		}
		if a.GetProblem() != nil {
			out[i].Err = ErrorFromProblem(a.GetProblem())
		}
		r.number("answers", i, mark)
	}
	return out, r.err()
}

// ProtoLiveWorker encodes an active worker.
func ProtoLiveWorker(w *gq.LiveWorker) *pb.LiveWorker {
	return &pb.LiveWorker{
		Name: w.Name, Queues: w.Queues, Types: w.Types, Offers: w.Offers, MaxCost: w.MaxCost,
		Waiting: int64(w.Waiting), Running: int64(w.Running), LastSeenAt: protoTime(w.LastSeen),
		Node: w.Node, Version: w.Version, Leases: textsOf(w.Leases),
	}
}

// LiveWorkerFromProto decodes an active worker.
func LiveWorkerFromProto(m *pb.LiveWorker) (gq.LiveWorker, error) {
	var r protoReader
	w := gq.LiveWorker{
		Name: m.GetName(), Queues: m.GetQueues(), Types: m.GetTypes(), Offers: m.GetOffers(), MaxCost: m.GetMaxCost(),
		Waiting: r.int("", "waiting", m.GetWaiting()), Running: r.int("", "running", m.GetRunning()),
		LastSeen: r.time("", "last_seen_at", m.GetLastSeenAt()),
		Node:     m.GetNode(), Version: m.GetVersion(), Leases: fromTexts[gq.LeaseID](m.GetLeases()),
	}
	return w, r.err()
}

// textsOf converts names of any type to strings.
func textsOf[T ~string](names []T) []string { return fromTexts[string](names) }

func fromTexts[T, S ~string](texts []S) []T {
	if len(texts) == 0 {
		return nil
	}
	names := make([]T, len(texts))
	for i, text := range texts {
		names[i] = T(text)
	}
	return names
}
