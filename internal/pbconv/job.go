package pbconv

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/gopherqueue/gq"
	pb "github.com/gopherqueue/gq/api/gopherqueue/v1"
	"github.com/gopherqueue/gq/internal/errs"
	"github.com/gopherqueue/gq/machine"
)

// ProtoSpec encodes a submission. A zero policy, which means the queue's, is omitted.
func ProtoSpec(s *gq.Spec) *pb.Spec { return fillSpec(new(pb.Spec), nil, s) }

// fillSpec fills in the message, using the given memory for its metadata if not nil.
func fillSpec(out *pb.Spec, metadata *pb.Metadata, s *gq.Spec) *pb.Spec {
	out.Id = protoID(s.ID)
	out.Queue = s.Queue
	out.Type = s.Type
	out.Payload = s.Payload.Data
	out.ContentType = s.Payload.ContentType
	switch {
	case s.Policy != (gq.Policy{}) && !s.Overrides.IsZero():
		policy := s.Overrides.Over(s.Policy)
		out.Policy = ProtoPolicy(&policy)
	case s.Policy != (gq.Policy{}):
		out.Policy = ProtoPolicy(&s.Policy)
	case !s.Overrides.IsZero():
		out.Policy = protoOverrides(s)
	}
	out.IdempotencyKey = s.Key.Name
	out.IdempotencyScope = s.Key.Scope
	out.IdempotencyFingerprint = s.Key.Fingerprint
	out.RunAt = protoTime(s.RunAt)
	out.Delay = protoDuration(s.Delay)
	if len(s.DependsOn) > 0 {
		out.DependsOn = make([]*pb.Dependency, len(s.DependsOn))
		for i, d := range s.DependsOn {
			out.DependsOn[i] = &pb.Dependency{Kind: pb.DependencyKind(d.Kind), JobId: protoID(d.Job), Ref: d.Ref}
		}
	}
	out.CostUnits = s.CostUnits
	out.Requires = s.Requires
	out.LimitKey = s.LimitKey
	out.FairKey = s.FairKey
	out.OrderKey = s.OrderKey
	out.Weight = int64(s.Weight)
	out.Requester = s.Requester
	out.Tier = s.Tier
	out.MaxFee = s.MaxFee
	out.Attributes = s.Attributes
	out.ReplayOf = protoID(s.ReplayOf)
	out.Unique, out.Replaces = protoUnique(&s.Unique), protoID(s.Replaces)
	out.WorkflowId, out.Ref, out.Gate = protoWorkflow(s.Workflow), s.Ref, pb.Gate(s.Gate)
	if m := &s.Metadata; !emptyMetadata(m) {
		if metadata == nil {
			metadata = new(pb.Metadata)
		}
		metadata.Priority, metadata.Tags = pb.Priority(m.Priority), m.Tags
		metadata.CorrelationId, metadata.CallbackUrl = m.CorrelationID, m.CallbackURL
		out.Metadata = metadata
	}
	return out
}

func emptyMetadata(m *gq.Metadata) bool {
	return m.Priority == 0 && m.CorrelationID == "" && m.CallbackURL == "" && len(m.Tags) == 0
}

// SpecFromProto decodes a submission. base completes a partial policy; see
// [PolicyIsPartial]. An absent policy stays zero.
func SpecFromProto(m *pb.Spec, base gq.Policy) (gq.Spec, error) {
	var r protoReader
	s := r.spec("", m, base)
	return s, r.err()
}

func (r *protoReader) spec(at string, m *pb.Spec, base gq.Policy) gq.Spec {
	s := gq.Spec{
		ID:         r.id(at, "id", m.GetId()),
		Queue:      m.GetQueue(),
		Type:       m.GetType(),
		Payload:    gq.Payload{Data: m.GetPayload(), ContentType: m.GetContentType()},
		Key:        gq.IdempotencyKey{Name: m.GetIdempotencyKey(), Scope: m.GetIdempotencyScope(), Fingerprint: m.GetIdempotencyFingerprint()},
		RunAt:      r.time(at, "run_at", m.GetRunAt()),
		Delay:      r.duration(at, "delay", m.GetDelay()),
		CostUnits:  m.GetCostUnits(),
		Requires:   m.GetRequires(),
		LimitKey:   m.GetLimitKey(),
		FairKey:    m.GetFairKey(),
		OrderKey:   m.GetOrderKey(),
		Weight:     r.int(at, "weight", m.GetWeight()),
		Requester:  m.GetRequester(),
		Tier:       m.GetTier(),
		MaxFee:     m.GetMaxFee(),
		Attributes: m.GetAttributes(),
		ReplayOf:   r.id(at, "replay_of", m.GetReplayOf()),
		Unique:     r.unique(at+"unique.", m.GetUnique()),
		Replaces:   r.id(at, "replaces", m.GetReplaces()),
		Workflow:   r.workflow(at, "workflow_id", m.GetWorkflowId()),
		Ref:        m.GetRef(),
		Gate:       readEnum(r, at, "gate", m.GetGate(), gq.GateSignalled),
		Metadata:   r.metadata(at, m.GetMetadata()),
	}
	if p := m.GetPolicy(); p != nil {
		s.Policy = r.policy(at+"policy.", p, base)
	}
	if deps := m.GetDependsOn(); len(deps) > 0 {
		s.DependsOn = make([]gq.Dependency, len(deps))
		for i, d := range deps {
			var id gq.JobID
			var err error
			if d.GetRef() == "" || d.GetJobId() != "" {
				id, err = gq.ParseJobID(d.GetJobId())
			}
			if err != nil || d.GetKind() < 0 || d.GetKind() > pb.DependencyKind(gq.DependencyFanIn) {
				at := fmt.Sprintf("%sdepends_on[%d].", at, i)
				r.job(at, "job_id", d.GetJobId())
				readEnum(r, at, "kind", d.GetKind(), gq.DependencyFanIn)
				continue
			}
			s.DependsOn[i] = gq.Dependency{Kind: gq.DependencyKind(d.GetKind()), Job: id, Ref: d.GetRef()}
		}
	}
	return s
}

func protoMetadata(m *gq.Metadata) *pb.Metadata {
	if emptyMetadata(m) {
		return nil
	}
	return &pb.Metadata{
		Priority: pb.Priority(m.Priority), Tags: m.Tags, CorrelationId: m.CorrelationID, CallbackUrl: m.CallbackURL,
	}
}

func (r *protoReader) metadata(at string, m *pb.Metadata) gq.Metadata {
	return gq.Metadata{
		Priority: readEnum(r, at, "priority", m.GetPriority(), gq.PriorityBulk),
		Tags:     m.GetTags(), CorrelationID: m.GetCorrelationId(), CallbackURL: m.GetCallbackUrl(),
	}
}

// ProtoJob encodes a job with all parts that were read. The default policy is omitted.
func ProtoJob(j *gq.Job) *pb.Job { return new(jobMessage).fill(j) }

// jobMessage allocates the message of a job and its parts together.
type jobMessage struct {
	job      pb.Job
	spec     pb.Spec
	metadata pb.Metadata
	state    stateMessage
}

func (m *jobMessage) fill(j *gq.Job) *pb.Job {
	out := &m.job
	out.State, out.Spec = m.state.fill(&j.State, &j.Spec.Policy), fillSpec(&m.spec, &m.metadata, &j.Spec)
	if machine.ShownKey(&j.Spec) != j.Spec.Key {
		out.Spec.IdempotencyKey, out.Spec.IdempotencyScope, out.Spec.IdempotencyFingerprint = "", "", 0
	}
	out.Result, out.Checkpoint, out.Inputs, out.Redacted = j.Result, j.Checkpoint, protoInputs(j.Inputs), j.Redacted
	if j.WorkflowOutcome != 0 {
		out.WorkflowOutcome = j.WorkflowOutcome.String()
	}
	out.Spec.Id = ""
	if j.Spec.Policy.Preset == gq.PresetJobModel && j.Spec.Policy.IsPreset() {
		out.Spec.Policy = nil
	}
	if j.Spec.Metadata.Equal(gq.Metadata{Priority: gq.PriorityNormal}) {
		out.Spec.Metadata = nil
	}
	if !j.Metadata.Equal(j.Spec.Metadata) {
		out.Metadata = protoMetadata(&j.Metadata)
		if out.Metadata == nil {
			out.Metadata = &pb.Metadata{}
		}
	}
	return out
}

// JobFromProto decodes a job.
func JobFromProto(m *pb.Job) (gq.Job, error) {
	var r protoReader
	j := r.jobOf("", m)
	return j, r.err()
}

func (r *protoReader) jobOf(at string, m *pb.Job) gq.Job {
	j := gq.Job{
		Spec:  r.spec(at+"spec.", m.GetSpec(), machine.DefaultPolicy()),
		State: r.state(at+"state.", m.GetState()), Result: m.GetResult(), Checkpoint: m.GetCheckpoint(), Inputs: r.inputs(at, m.GetInputs()),
		Redacted: m.GetRedacted(),
	}
	if name := m.GetWorkflowOutcome(); name != "" {
		for _, f := range errs.FaultsOf(j.WorkflowOutcome.UnmarshalText([]byte(name))) {
			r.fault(at, "workflow_outcome", "%s", f.Problem)
		}
	}
	j.Spec.ID = j.State.ID
	if m.GetSpec().GetPolicy() == nil {
		j.Spec.Policy = machine.DefaultPolicy()
	}
	if m.GetSpec().GetMetadata() == nil {
		j.Spec.Metadata.Priority = gq.PriorityNormal
	}
	if j.State.Policy == nil {
		j.State.Policy = new(j.Spec.Policy)
	}
	j.Metadata = j.Spec.Metadata
	if m.Metadata != nil {
		j.Metadata = r.metadata(at+"metadata.", m.Metadata)
	}
	j.Metadata.Tags = labels(j.Metadata.Tags)
	return j
}

// ProtoJobs encodes jobs.
func ProtoJobs(jobs []gq.Job) []*pb.Job {
	out, messages := make([]*pb.Job, len(jobs)), make([]jobMessage, len(jobs))
	for i := range jobs {
		out[i] = messages[i].fill(&jobs[i])
	}
	return out
}

// JobsFromProto decodes jobs.
func JobsFromProto(all []*pb.Job) ([]gq.Job, error) {
	if len(all) == 0 {
		return nil, nil
	}
	var r protoReader
	jobs := make([]gq.Job, len(all))
	for i, m := range all {
		before := len(r.faults)
		jobs[i] = r.jobOf("", m)
		r.number("jobs", i, before)
	}
	return jobs, r.err()
}

// number prefixes the faults after mark with a list index.
func (r *protoReader) number(list string, i, mark int) {
	for k := mark; k < len(r.faults); k++ {
		r.faults[k].Field = fmt.Sprintf("%s[%d].%s", list, i, r.faults[k].Field)
	}
}

// ProtoState encodes a state with its policy. The default policy is omitted.
func ProtoState(s *gq.State) *pb.State { return fillState(new(pb.State), nil, s, nil) }

// stateMessage allocates the messages of a state and its lease together.
type stateMessage struct {
	state pb.State
	lease pb.Lease
}

func (m *stateMessage) fill(s *gq.State, beside *gq.Policy) *pb.State {
	return fillState(&m.state, &m.lease, s, beside)
}

// fillState fills in the message, using the given memory for the lease if not nil. It
// omits the policy if it equals beside, which is sent separately. What a store remembers
// for repeated calls is not sent.
func fillState(out *pb.State, lease *pb.Lease, s *gq.State, beside *gq.Policy) *pb.State {
	out.Id = protoID(s.ID)
	out.Status = pb.Status(s.Status)
	out.Detail = pb.Detail(s.Detail)
	out.Priority = pb.Priority(s.Own)
	out.InheritedPriority = pb.Priority(s.Inherited)
	out.Sequence = s.Sequence
	out.Turn = s.Turn
	out.Attempt = int64(s.Attempt)
	out.Bound = int64(s.Bound)
	out.Faults = int64(s.Faults)
	out.Losses = int64(s.Losses)
	out.Waits = int64(s.Waits)
	out.AnyOpen = s.AnyOpen
	out.Gate = pb.Gate(s.Gate)
	out.Depth = int64(s.Depth)
	out.CreatedAtNs = nanos(s.CreatedAt)
	out.SubmittedAtNs = nanos(s.SubmittedAt)
	out.UpdatedAtNs = nanos(s.UpdatedAt)
	out.RunAtNs = nanos(s.RunAt)
	out.ScheduledAtNs = nanos(s.ScheduledAt)
	out.StartedAtNs = nanos(s.StartedAt)
	out.FirstStartedAtNs = nanos(s.FirstStartedAt)
	out.CompletedAtNs = nanos(s.CompletedAt)
	out.Version = uint64(s.Version)
	out.Progress = s.Progress
	out.Note = Prose(s.Note)
	out.Reason = Prose(s.Reason)
	out.ResultBytes = int64(s.ResultBytes)
	out.CheckpointBytes = int64(s.CheckpointBytes)
	out.Checkpoints = int64(s.Checkpoints)
	out.ReplacedBy = protoID(s.ReplacedBy)
	out.OrderedAfter = protoID(s.OrderedAfter)
	out.Traceparent = s.TraceParent
	if s.Lease != nil {
		if lease == nil {
			lease = new(pb.Lease)
		}
		out.Lease = fillLease(lease, s.Lease)
	}
	if s.Failure != nil {
		out.Failure = protoFailure(s.Failure)
	}
	if c := &s.Cancellation; *c != (gq.Cancellation{}) {
		out.Cancellation = &pb.Cancellation{
			RequestedAtNs: nanos(c.RequestedAt), DeliveredAtNs: nanos(c.DeliveredAt), HonouredAtNs: nanos(c.HonouredAt), Reason: Prose(c.Reason),
		}
	}
	switch {
	case s.Policy == nil || beside != nil && *s.Policy == *beside:
	case beside == nil && s.Policy.Preset == gq.PresetJobModel && s.Policy.IsPreset():
	default:
		out.Policy = ProtoPolicy(s.Policy)
	}
	return out
}

func fillLease(out *pb.Lease, l *gq.Lease) *pb.Lease {
	out.Id = string(l.ID)
	out.Version = uint64(l.Version)
	out.State = pb.LeaseState(l.State)
	out.Worker = l.Worker
	out.Attempt = int64(l.Attempt)
	out.Previous = string(l.Previous)
	out.GrantedAtNs, out.HeartbeatAtNs, out.ExpiresAtNs = nanos(l.GrantedAt), nanos(l.HeartbeatAt), nanos(l.ExpiresAt)
	out.TtlNs = int64(l.TTL)
	out.Renewals = int64(l.Renewals)
	out.CostUnits = l.CostUnits
	return out
}

// StateFromProto decodes a state with its policy.
func StateFromProto(m *pb.State) (gq.State, error) {
	var r protoReader
	s := r.stateAlone("state.", m)
	return s, r.err()
}

// stateAlone decodes a state that is sent without a spec.
func (r *protoReader) stateAlone(at string, m *pb.State) gq.State {
	s := r.state(at, m)
	if s.Policy == nil {
		s.Policy = new(machine.DefaultPolicy())
	}
	return s
}

func (r *protoReader) state(at string, m *pb.State) gq.State {
	s := gq.State{
		ID:              r.id(at, "id", m.GetId()),
		Sequence:        m.GetSequence(),
		Turn:            m.GetTurn(),
		Status:          readEnum(r, at, "status", m.GetStatus(), gq.StatusCancelled),
		Detail:          readEnum(r, at, "detail", m.GetDetail(), gq.DetailAssigned),
		Own:             readEnum(r, at, "priority", m.GetPriority(), gq.PriorityBulk),
		Inherited:       readEnum(r, at, "inherited_priority", m.GetInheritedPriority(), gq.PriorityBulk),
		Depth:           r.int(at, "depth", m.GetDepth()),
		Waits:           r.int(at, "waits", m.GetWaits()),
		AnyOpen:         m.GetAnyOpen(),
		Gate:            readEnum(r, at, "gate", m.GetGate(), gq.GateSignalled),
		Attempt:         r.int(at, "attempt", m.GetAttempt()),
		Bound:           r.int(at, "bound", m.GetBound()),
		Faults:          r.int(at, "faults", m.GetFaults()),
		Losses:          r.int(at, "losses", m.GetLosses()),
		CreatedAt:       instant(m.GetCreatedAtNs()),
		SubmittedAt:     instant(m.GetSubmittedAtNs()),
		UpdatedAt:       instant(m.GetUpdatedAtNs()),
		RunAt:           instant(m.GetRunAtNs()),
		ScheduledAt:     instant(m.GetScheduledAtNs()),
		StartedAt:       instant(m.GetStartedAtNs()),
		FirstStartedAt:  instant(m.GetFirstStartedAtNs()),
		CompletedAt:     instant(m.GetCompletedAtNs()),
		Version:         gq.LeaseVersion(m.GetVersion()),
		Progress:        m.GetProgress(),
		Note:            m.GetNote(),
		Reason:          m.GetReason(),
		ResultBytes:     r.int(at, "result_bytes", m.GetResultBytes()),
		CheckpointBytes: r.int(at, "checkpoint_bytes", m.GetCheckpointBytes()),
		Checkpoints:     r.int(at, "checkpoints", m.GetCheckpoints()),
		ReplacedBy:      r.id(at, "replaced_by", m.GetReplacedBy()),
		OrderedAfter:    r.id(at, "ordered_after", m.GetOrderedAfter()),
		TraceParent:     m.GetTraceparent(),
	}
	if l := m.GetLease(); l != nil {
		s.Lease = r.lease(at+"lease.", l)
	}
	if f := m.GetFailure(); f != nil {
		failure := r.failure(at+"failure.", f)
		s.Failure = &failure
	}
	if c := m.GetCancellation(); c != nil {
		s.Cancellation = gq.Cancellation{
			RequestedAt: instant(c.GetRequestedAtNs()), DeliveredAt: instant(c.GetDeliveredAtNs()),
			HonouredAt: instant(c.GetHonouredAtNs()), Reason: c.GetReason(),
		}
	}
	if p := m.GetPolicy(); p != nil {
		policy := r.policy(at+"policy.", p, machine.DefaultPolicy())
		s.Policy = &policy
	}
	return s
}

func (r *protoReader) lease(at string, m *pb.Lease) *gq.Lease {
	return &gq.Lease{
		ID: gq.LeaseID(m.GetId()), Version: gq.LeaseVersion(m.GetVersion()),
		State: readEnum(r, at, "state", m.GetState(), gq.LeaseCancelled), Worker: m.GetWorker(),
		Attempt: r.int(at, "attempt", m.GetAttempt()), Previous: gq.LeaseID(m.GetPrevious()),
		GrantedAt: instant(m.GetGrantedAtNs()), HeartbeatAt: instant(m.GetHeartbeatAtNs()), ExpiresAt: instant(m.GetExpiresAtNs()),
		TTL: time.Duration(m.GetTtlNs()), Renewals: r.int(at, "renewals", m.GetRenewals()), CostUnits: m.GetCostUnits(),
	}
}

func protoFailure(f *gq.Failure) *pb.Failure {
	return &pb.Failure{
		Category: pb.Category(f.Category), Code: Prose(f.Code), Message: Prose(f.Message), RetryAfter: protoDuration(f.RetryAfter),
	}
}

func (r *protoReader) failure(at string, m *pb.Failure) gq.Failure {
	return gq.Failure{
		Category: readEnum(r, at, "category", m.GetCategory(), gq.CategorySystem),
		Code:     m.GetCode(), Message: m.GetMessage(), RetryAfter: r.duration(at, "retry_after", m.GetRetryAfter()),
	}
}

// ProtoLeaseRef encodes a reference to a lease.
func ProtoLeaseRef(l gq.LeaseRef) *pb.LeaseRef {
	return &pb.LeaseRef{Id: string(l.ID), Version: uint64(l.Version), Worker: l.Worker}
}

// LeaseRefFromProto decodes a reference to a lease. The store checks whether the lease
// exists.
func LeaseRefFromProto(m *pb.LeaseRef) gq.LeaseRef {
	return gq.LeaseRef{ID: gq.LeaseID(m.GetId()), Version: gq.LeaseVersion(m.GetVersion()), Worker: m.GetWorker()}
}

// ProtoQuery encodes the filter of a query, without its page.
func ProtoQuery(q *gq.Query) *pb.Query {
	m := &pb.Query{
		Queue: q.Queue, CreatedAfter: protoTime(q.CreatedAfter), CreatedBefore: protoTime(q.CreatedBefore), OldestFirst: q.OldestFirst,
		Types: slices.Clone(q.Types), Tags: maps.Clone(q.Tags), MaxScan: int64(q.MaxScan), Keys: slices.Clone(q.Keys),
	}
	for _, s := range q.Statuses {
		m.Statuses = append(m.Statuses, pb.Status(s))
	}
	return m
}

// QueryFromProto decodes the filter of a query. Every status must be a known one.
func QueryFromProto(m *pb.Query) (gq.Query, error) {
	var r protoReader
	q := gq.Query{
		Queue:         m.GetQueue(),
		CreatedAfter:  r.time("", "created_after", m.GetCreatedAfter()),
		CreatedBefore: r.time("", "created_before", m.GetCreatedBefore()),
		OldestFirst:   m.GetOldestFirst(),
		Types:         m.GetTypes(),
		Tags:          m.GetTags(),
		MaxScan:       int(m.GetMaxScan()),
		Keys:          m.GetKeys(),
	}
	if len(m.GetStatuses()) > 0 {
		q.Statuses = make([]gq.Status, len(m.GetStatuses()))
	}
	for i, s := range m.GetStatuses() {
		mark := len(r.faults)
		q.Statuses[i] = readEnum(&r, "", "status", s, gq.StatusCancelled)
		for k := mark; k < len(r.faults); k++ {
			r.faults[k].Field = fmt.Sprintf("statuses[%d]", i)
		}
	}
	return q, r.err()
}

// ProtoUpdate encodes a change of metadata.
func ProtoUpdate(id gq.JobID, p *gq.MetadataPatch) *pb.UpdateRequest {
	return &pb.UpdateRequest{
		Id: protoID(id), Priority: pb.Priority(p.Priority), SetTags: p.SetTags, DropTags: slices.Clone(p.DropTags),
		CorrelationId: p.CorrelationID, CallbackUrl: p.CallbackURL,
	}
}

// UpdateFromProto decodes a change of metadata.
func UpdateFromProto(m *pb.UpdateRequest) (gq.JobID, gq.MetadataPatch, error) {
	var r protoReader
	id := r.job("", "id", m.GetId())
	p := gq.MetadataPatch{
		Priority: readEnum(&r, "", "priority", m.GetPriority(), gq.PriorityBulk), SetTags: m.GetSetTags(), DropTags: m.GetDropTags(),
		CorrelationID: m.CorrelationId, CallbackURL: m.CallbackUrl,
	}
	return id, p, r.err()
}
