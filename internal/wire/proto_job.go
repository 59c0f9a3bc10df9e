package wire

import (
	"fmt"
	"slices"

	"github.com/gopherqueue/gq"
	pb "github.com/gopherqueue/gq/api/gopherqueue/v1"
)

// ProtoSpec is a submission. A zero policy stays away: it is the queue's.
func ProtoSpec(s *gq.Spec) *pb.Spec {
	m := &pb.Spec{
		Id:                     protoID(s.ID),
		Queue:                  s.Queue,
		Type:                   s.Type,
		Payload:                s.Payload.Data,
		ContentType:            s.Payload.ContentType,
		IdempotencyKey:         s.Key.Name,
		IdempotencyScope:       s.Key.Scope,
		IdempotencyFingerprint: s.Key.Fingerprint,
		RunAt:                  protoTime(s.RunAt),
		Delay:                  protoDuration(s.Delay),
		CostUnits:              s.CostUnits,
		Requires:               s.Requires,
		LimitKey:               s.LimitKey,
		FairKey:                s.FairKey,
		Requester:              s.Requester,
		Tier:                   s.Tier,
		MaxFee:                 s.MaxFee,
		Attributes:             s.Attributes,
		ReplayOf:               protoID(s.ReplayOf),
		Metadata:               protoMetadata(&s.Metadata),
	}
	if s.Policy != (gq.Policy{}) {
		m.Policy = ProtoPolicy(&s.Policy)
	}
	if len(s.DependsOn) > 0 {
		m.DependsOn = make([]*pb.Dependency, len(s.DependsOn))
		for i, d := range s.DependsOn {
			m.DependsOn[i] = &pb.Dependency{Kind: pb.DependencyKind(d.Kind), JobId: protoID(d.Job)}
		}
	}
	return m
}

// SpecFromProto reads a submission. base is what an incomplete policy starts
// from; see [PolicyIsPartial]. A policy that is absent stays zero.
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
		Key:        gq.Key{Name: m.GetIdempotencyKey(), Scope: m.GetIdempotencyScope(), Fingerprint: m.GetIdempotencyFingerprint()},
		RunAt:      r.time(at, "run_at", m.GetRunAt()),
		Delay:      r.duration(at, "delay", m.GetDelay()),
		CostUnits:  m.GetCostUnits(),
		Requires:   m.GetRequires(),
		LimitKey:   m.GetLimitKey(),
		FairKey:    m.GetFairKey(),
		Requester:  m.GetRequester(),
		Tier:       m.GetTier(),
		MaxFee:     m.GetMaxFee(),
		Attributes: m.GetAttributes(),
		ReplayOf:   r.id(at, "replay_of", m.GetReplayOf()),
		Metadata:   r.metadata(at, m.GetMetadata()),
	}
	if p := m.GetPolicy(); p != nil {
		s.Policy = r.policy(at+"policy.", p, base)
	}
	if deps := m.GetDependsOn(); len(deps) > 0 {
		s.DependsOn = make([]gq.Dependency, len(deps))
		for i, d := range deps {
			id, err := gq.ParseJobID(d.GetJobId())
			if err != nil || d.GetKind() < 0 || d.GetKind() > pb.DependencyKind(gq.FanIn) {
				at := fmt.Sprintf("%sdepends_on[%d].", at, i)
				id = r.job(at, "job_id", d.GetJobId())
				readEnum(r, at, "kind", d.GetKind(), gq.FanIn)
				continue
			}
			s.DependsOn[i] = gq.Dependency{Kind: gq.DependencyKind(d.GetKind()), Job: id}
		}
	}
	return s
}

// ProtoMetadata is what a user may change.
func protoMetadata(m *gq.Metadata) *pb.Metadata {
	if m.Priority == 0 && m.CorrelationID == "" && m.CallbackURL == "" && len(m.Tags) == 0 {
		return nil
	}
	return &pb.Metadata{
		Priority: pb.Priority(m.Priority), Tags: m.Tags, CorrelationId: m.CorrelationID, CallbackUrl: m.CallbackURL,
	}
}

func (r *protoReader) metadata(at string, m *pb.Metadata) gq.Metadata {
	return gq.Metadata{
		Priority: readEnum(r, at, "priority", m.GetPriority(), gq.Bulk),
		Tags:     m.GetTags(), CorrelationID: m.GetCorrelationId(), CallbackURL: m.GetCallbackUrl(),
	}
}

// ProtoJob is a job with all that was read of it.
func ProtoJob(j *gq.Job) *pb.Job {
	m := &pb.Job{State: protoState(&j.State), Spec: ProtoSpec(&j.Spec), Result: j.Result, Checkpoint: j.Checkpoint}
	m.Spec.Id = ""
	if j.State.Policy != nil && *j.State.Policy != j.Spec.Policy {
		m.State.Policy = ProtoPolicy(j.State.Policy)
	}
	if !j.Metadata.Equal(j.Spec.Metadata) {
		m.Metadata = protoMetadata(&j.Metadata)
		if m.Metadata == nil {
			m.Metadata = &pb.Metadata{}
		}
	}
	return m
}

// JobFromProto reads a job.
func JobFromProto(m *pb.Job) (gq.Job, error) {
	var r protoReader
	j := r.jobOf("", m)
	return j, r.err()
}

func (r *protoReader) jobOf(at string, m *pb.Job) gq.Job {
	j := gq.Job{
		Spec:  r.spec(at+"spec.", m.GetSpec(), gq.Default()),
		State: r.state(at+"state.", m.GetState()), Result: m.GetResult(), Checkpoint: m.GetCheckpoint(),
	}
	j.Spec.ID = j.State.ID
	if j.State.Policy == nil {
		j.State.Policy = kept(&j.Spec.Policy)
	}
	j.Metadata = j.Spec.Metadata
	if m.Metadata != nil {
		j.Metadata = r.metadata(at+"metadata.", m.Metadata)
	}
	j.Metadata.Tags = labels(j.Metadata.Tags)
	return j
}

// kept is a policy that outlives the value it came in, shared where it can be.
func kept(p *gq.Policy) *gq.Policy {
	if shared := p.Shared(); shared != nil {
		return shared
	}
	c := *p
	return &c
}

// ProtoJobs are jobs with all that was read of them.
func ProtoJobs(jobs []gq.Job) []*pb.Job {
	out := make([]*pb.Job, len(jobs))
	for i := range jobs {
		out[i] = ProtoJob(&jobs[i])
	}
	return out
}

// JobsFromProto reads jobs.
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

// number puts the place in a list before the faults since a mark.
func (r *protoReader) number(list string, i, mark int) {
	for k := mark; k < len(r.faults); k++ {
		r.faults[k].Field = fmt.Sprintf("%s[%d].%s", list, i, r.faults[k].Field)
	}
}

// ProtoState is a state with its policy.
func ProtoState(s *gq.State) *pb.State {
	m := protoState(s)
	if s.Policy != nil {
		m.Policy = ProtoPolicy(s.Policy)
	}
	return m
}

// protoState is a state without its policy. What a store remembers to answer a
// repeated call stays there.
func protoState(s *gq.State) *pb.State {
	m := &pb.State{
		Id:                protoID(s.ID),
		Status:            pb.Status(s.Status),
		Detail:            pb.Detail(s.Detail),
		Priority:          pb.Priority(s.Own),
		InheritedPriority: pb.Priority(s.Inherited),
		Sequence:          s.Sequence,
		Turn:              s.Turn,
		Attempt:           int64(s.Attempt),
		Bound:             int64(s.Bound),
		Faults:            int64(s.Faults),
		Losses:            int64(s.Losses),
		Waits:             int64(s.Waits),
		AnyOpen:           s.AnyOpen,
		Depth:             int64(s.Depth),
		CreatedAt:         protoTime(s.CreatedAt),
		UpdatedAt:         protoTime(s.UpdatedAt),
		RunAt:             protoTime(s.RunAt),
		ScheduledAt:       protoTime(s.ScheduledAt),
		StartedAt:         protoTime(s.StartedAt),
		FirstStartedAt:    protoTime(s.FirstStartedAt),
		CompletedAt:       protoTime(s.CompletedAt),
		Version:           uint64(s.Version),
		Progress:          s.Progress,
		Note:              prose(s.Note),
		Cancellation:      protoCancellation(&s.Cancellation),
		Reason:            prose(s.Reason),
		ResultBytes:       int64(s.ResultBytes),
		CheckpointBytes:   int64(s.CheckpointBytes),
		Checkpoints:       int64(s.Checkpoints),
	}
	if s.Lease != nil {
		m.Lease = protoLease(s.Lease)
	}
	if s.Failure != nil {
		m.Failure = protoFailure(s.Failure)
	}
	return m
}

// StateFromProto reads a state. It has no policy where the message has none.
func StateFromProto(m *pb.State) (gq.State, error) {
	var r protoReader
	s := r.state("state.", m)
	return s, r.err()
}

func (r *protoReader) state(at string, m *pb.State) gq.State {
	s := gq.State{
		ID:              r.id(at, "id", m.GetId()),
		Sequence:        m.GetSequence(),
		Turn:            m.GetTurn(),
		Status:          readEnum(r, at, "status", m.GetStatus(), gq.Cancelled),
		Detail:          readEnum(r, at, "detail", m.GetDetail(), gq.Assigned),
		Own:             readEnum(r, at, "priority", m.GetPriority(), gq.Bulk),
		Inherited:       readEnum(r, at, "inherited_priority", m.GetInheritedPriority(), gq.Bulk),
		Depth:           r.int(at, "depth", m.GetDepth()),
		Waits:           r.int(at, "waits", m.GetWaits()),
		AnyOpen:         m.GetAnyOpen(),
		Attempt:         r.int(at, "attempt", m.GetAttempt()),
		Bound:           r.int(at, "bound", m.GetBound()),
		Faults:          r.int(at, "faults", m.GetFaults()),
		Losses:          r.int(at, "losses", m.GetLosses()),
		CreatedAt:       r.time(at, "created_at", m.GetCreatedAt()),
		UpdatedAt:       r.time(at, "updated_at", m.GetUpdatedAt()),
		RunAt:           r.time(at, "run_at", m.GetRunAt()),
		ScheduledAt:     r.time(at, "scheduled_at", m.GetScheduledAt()),
		StartedAt:       r.time(at, "started_at", m.GetStartedAt()),
		FirstStartedAt:  r.time(at, "first_started_at", m.GetFirstStartedAt()),
		CompletedAt:     r.time(at, "completed_at", m.GetCompletedAt()),
		Version:         gq.LeaseVersion(m.GetVersion()),
		Progress:        m.GetProgress(),
		Note:            m.GetNote(),
		Reason:          m.GetReason(),
		ResultBytes:     r.int(at, "result_bytes", m.GetResultBytes()),
		CheckpointBytes: r.int(at, "checkpoint_bytes", m.GetCheckpointBytes()),
		Checkpoints:     r.int(at, "checkpoints", m.GetCheckpoints()),
	}
	if l := m.GetLease(); l != nil {
		s.Lease = r.lease(at+"lease.", l)
	}
	if f := m.GetFailure(); f != nil {
		failure := r.failure(at+"failure.", f)
		s.Failure = &failure
	}
	if c := m.GetCancellation(); c != nil {
		at += "cancellation."
		s.Cancellation = gq.Cancellation{
			RequestedAt: r.time(at, "requested_at", c.GetRequestedAt()),
			DeliveredAt: r.time(at, "delivered_at", c.GetDeliveredAt()),
			HonouredAt:  r.time(at, "honoured_at", c.GetHonouredAt()), Reason: c.GetReason(),
		}
	}
	if p := m.GetPolicy(); p != nil {
		policy := r.policy(at+"policy.", p, gq.Default())
		s.Policy = kept(&policy)
	}
	return s
}

func protoCancellation(c *gq.Cancellation) *pb.Cancellation {
	if *c == (gq.Cancellation{}) {
		return nil
	}
	return &pb.Cancellation{
		RequestedAt: protoTime(c.RequestedAt), DeliveredAt: protoTime(c.DeliveredAt),
		HonouredAt: protoTime(c.HonouredAt), Reason: prose(c.Reason),
	}
}

func protoLease(l *gq.Lease) *pb.Lease {
	return &pb.Lease{
		Id: string(l.ID), Version: uint64(l.Version), State: pb.LeaseState(l.State), Worker: l.Worker,
		Attempt: int64(l.Attempt), Previous: string(l.Previous),
		GrantedAt: protoTime(l.GrantedAt), HeartbeatAt: protoTime(l.HeartbeatAt), ExpiresAt: protoTime(l.ExpiresAt),
		Ttl: protoDuration(l.TTL), Renewals: int64(l.Renewals), CostUnits: l.CostUnits,
	}
}

func (r *protoReader) lease(at string, m *pb.Lease) *gq.Lease {
	return &gq.Lease{
		ID: gq.LeaseID(m.GetId()), Version: gq.LeaseVersion(m.GetVersion()),
		State: readEnum(r, at, "state", m.GetState(), gq.LeaseCancelled), Worker: m.GetWorker(),
		Attempt: r.int(at, "attempt", m.GetAttempt()), Previous: gq.LeaseID(m.GetPrevious()),
		GrantedAt:   r.time(at, "granted_at", m.GetGrantedAt()),
		HeartbeatAt: r.time(at, "heartbeat_at", m.GetHeartbeatAt()),
		ExpiresAt:   r.time(at, "expires_at", m.GetExpiresAt()),
		TTL:         r.duration(at, "ttl", m.GetTtl()),
		Renewals:    r.int(at, "renewals", m.GetRenewals()), CostUnits: m.GetCostUnits(),
	}
}

func protoFailure(f *gq.Failure) *pb.Failure {
	return &pb.Failure{
		Category: pb.Category(f.Category), Code: prose(f.Code), Message: prose(f.Message), RetryAfter: protoDuration(f.RetryAfter),
	}
}

func (r *protoReader) failure(at string, m *pb.Failure) gq.Failure {
	return gq.Failure{
		Category: readEnum(r, at, "category", m.GetCategory(), gq.CategorySystem),
		Code:     m.GetCode(), Message: m.GetMessage(), RetryAfter: r.duration(at, "retry_after", m.GetRetryAfter()),
	}
}

// ProtoLeaseRef names a lease.
func ProtoLeaseRef(l gq.LeaseRef) *pb.LeaseRef {
	return &pb.LeaseRef{Id: string(l.ID), Version: uint64(l.Version), Worker: l.Worker}
}

// LeaseRefFromProto reads the name of a lease. Whether there is such a lease is
// for the store to say.
func LeaseRefFromProto(m *pb.LeaseRef) gq.LeaseRef {
	return gq.LeaseRef{ID: gq.LeaseID(m.GetId()), Version: gq.LeaseVersion(m.GetVersion()), Worker: m.GetWorker()}
}

// ProtoQuery is what a query selects by, without its page.
func ProtoQuery(q *gq.Query) *pb.Query {
	m := &pb.Query{
		Queue: q.Queue, CreatedAfter: protoTime(q.CreatedAfter), CreatedBefore: protoTime(q.CreatedBefore), OldestFirst: q.OldestFirst,
	}
	for _, s := range q.Statuses {
		m.Statuses = append(m.Statuses, pb.Status(s))
	}
	return m
}

// QueryFromProto reads what a query selects by. A status must be named to be
// asked for.
func QueryFromProto(m *pb.Query) (gq.Query, error) {
	var r protoReader
	q := gq.Query{
		Queue:         m.GetQueue(),
		CreatedAfter:  r.time("", "created_after", m.GetCreatedAfter()),
		CreatedBefore: r.time("", "created_before", m.GetCreatedBefore()),
		OldestFirst:   m.GetOldestFirst(),
	}
	if len(m.GetStatuses()) > 0 {
		q.Statuses = make([]gq.Status, len(m.GetStatuses()))
	}
	for i, s := range m.GetStatuses() {
		mark := len(r.faults)
		q.Statuses[i] = readEnum(&r, "", "status", s, gq.Cancelled)
		for k := mark; k < len(r.faults); k++ {
			r.faults[k].Field = fmt.Sprintf("statuses[%d]", i)
		}
	}
	return q, r.err()
}

// ProtoUpdate is a change of metadata.
func ProtoUpdate(id gq.JobID, p *gq.MetadataPatch) *pb.UpdateRequest {
	return &pb.UpdateRequest{
		Id: protoID(id), Priority: pb.Priority(p.Priority), SetTags: p.SetTags, DropTags: slices.Clone(p.DropTags),
		CorrelationId: p.CorrelationID, CallbackUrl: p.CallbackURL,
	}
}

// UpdateFromProto reads a change of metadata.
func UpdateFromProto(m *pb.UpdateRequest) (gq.JobID, gq.MetadataPatch, error) {
	var r protoReader
	id := r.job("", "id", m.GetId())
	p := gq.MetadataPatch{
		Priority: readEnum(&r, "", "priority", m.GetPriority(), gq.Bulk), SetTags: m.GetSetTags(), DropTags: m.GetDropTags(),
		CorrelationID: m.CorrelationId, CallbackURL: m.CallbackUrl,
	}
	return id, p, r.err()
}
