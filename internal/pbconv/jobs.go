package pbconv

import (
	"math"
	"slices"
	"time"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/gopherqueue/gq"
	pb "github.com/gopherqueue/gq/api/gopherqueue/v1"
	"github.com/gopherqueue/gq/machine"
)

// Most bytes of a Work stream are jobs. This file encodes and decodes them without generated
// messages, whose allocations and reflection cost more CPU time than the rest of the stream.
// It covers the fields that most jobs have. A job with others, and everything that the
// decoder does not expect, goes through the generated messages.

// JobsResponse is a WorkResponse with jobs of a credit.
type JobsResponse struct {
	ID   uint64
	Jobs []gq.Job
	More bool
	Err  error // a job has values that are not known here
}

// Append appends the encoded message to b. It fails if a job has text that is not UTF-8.
func (m *JobsResponse) Append(b []byte) ([]byte, error) {
	b = appendUint(b, 1, m.ID)
	b, jobs := openMessage(b, 3)
	for i := range m.Jobs {
		var err error
		if b, err = appendJob(b, 1, &m.Jobs[i]); err != nil {
			return nil, err
		}
	}
	b = appendUint(b, 2, protowire.EncodeBool(m.More))
	return closeMessage(b, jobs), nil
}

// Decode decodes a WorkResponse. It returns a response without jobs as it is. The error means
// that data is not a message.
func (m *JobsResponse) Decode(data []byte) (*pb.WorkResponse, error) {
	*m = JobsResponse{}
	if m.decode(data) {
		return nil, nil
	}
	*m = JobsResponse{}
	response := new(pb.WorkResponse)
	if err := proto.Unmarshal(data, response); err != nil || response.GetJobs() == nil {
		return response, err
	}
	m.ID, m.More = response.GetId(), response.GetJobs().GetMore()
	m.Jobs, m.Err = JobsFromProto(response.GetJobs().GetJobs())
	return nil, nil
}

// decode reports whether the response has jobs and is as expected.
func (m *JobsResponse) decode(data []byte) bool {
	var r fieldReader
	var jobs []byte
	for len(data) > 0 {
		data = r.next(data)
		switch r.field {
		case 1:
			m.ID = r.uint()
		case 3:
			jobs = r.message(jobs)
		default:
			return false
		}
	}
	if r.odd || jobs == nil {
		return false
	}
	d := jobDecoder{policy: machine.DefaultPolicy()}
	m.Jobs = make([]gq.Job, countFields(jobs, 1))
	for len(jobs) > 0 {
		jobs = r.next(jobs)
		switch r.field {
		case 1:
			if !d.decode(&m.Jobs[d.n], r.bytes()) {
				return false
			}
			d.n++
		case 2:
			m.More = r.uint() != 0
		default:
			return false
		}
	}
	m.Err = d.err()
	return !r.odd
}

// countFields returns how often a field occurs in a message.
func countFields(data []byte, field protowire.Number) (n int) {
	for len(data) > 0 {
		var r fieldReader
		if data = r.next(data); r.field == field {
			n++
		}
	}
	return n
}

func appendJob(b []byte, field protowire.Number, j *gq.Job) ([]byte, error) {
	b, job := openMessage(b, field)
	if !isPlain(j) {
		b, err := proto.MarshalOptions{}.MarshalAppend(b, ProtoJob(j))
		if err != nil {
			return nil, err
		}
		return closeMessage(b, job), nil
	}
	b = appendState(b, 1, &j.State)
	b = appendSpec(b, 2, &j.Spec, machine.ShownKey(&j.Spec))
	if j.Result != nil {
		b = appendData(b, 4, j.Result)
	}
	if j.Checkpoint != nil {
		b = appendData(b, 5, j.Checkpoint)
	}
	return closeMessage(b, job), nil
}

// isPlain reports whether appendJob can encode every field of a job.
func isPlain(j *gq.Job) bool {
	s, state := &j.Spec, &j.State
	return s.Policy.Preset == gq.PresetJobModel && s.Policy.IsPreset() && (state.Policy == nil || *state.Policy == s.Policy) &&
		s.Metadata.Equal(gq.Metadata{Priority: gq.PriorityNormal}) && j.Metadata.Equal(s.Metadata) &&
		s.Workflow.IsZero() && s.Ref == "" && s.Gate == 0 && state.Gate == 0 && len(j.Inputs) == 0 && j.WorkflowOutcome == 0 &&
		s.Unique.IsZero() && s.Replaces.IsZero() && state.ReplacedBy.IsZero() && s.OrderKey == "" && state.OrderedAfter.IsZero() && state.TraceParent == "" && state.SubmittedAt.IsZero() &&
		s.Overrides.IsZero() && s.RunAt.IsZero() && s.Delay == 0 && len(s.DependsOn) == 0 && len(s.Requires) == 0 && len(s.Attributes) == 0 &&
		state.Failure == nil && state.Cancellation == gq.Cancellation{}
}

func appendState(b []byte, field protowire.Number, s *gq.State) []byte {
	b, state := openMessage(b, field)
	b = appendID(b, 1, s.ID)
	b = appendUint(b, 2, uint64(s.Status))
	b = appendUint(b, 3, uint64(s.Detail))
	b = appendUint(b, 4, uint64(s.Own))
	b = appendUint(b, 5, uint64(s.Inherited))
	b = appendUint(b, 6, s.Sequence)
	b = appendUint(b, 7, s.Turn)
	b = appendUint(b, 8, uint64(s.Attempt))
	b = appendUint(b, 9, uint64(s.Bound))
	b = appendUint(b, 10, uint64(s.Faults))
	b = appendUint(b, 11, uint64(s.Losses))
	b = appendUint(b, 12, uint64(s.Waits))
	b = appendUint(b, 13, protowire.EncodeBool(s.AnyOpen))
	b = appendUint(b, 14, uint64(s.Depth))
	b = appendInstant(b, 15, s.CreatedAt)
	b = appendInstant(b, 16, s.UpdatedAt)
	b = appendInstant(b, 17, s.RunAt)
	b = appendInstant(b, 18, s.ScheduledAt)
	b = appendInstant(b, 19, s.StartedAt)
	b = appendInstant(b, 20, s.FirstStartedAt)
	b = appendInstant(b, 21, s.CompletedAt)
	b = appendUint(b, 22, uint64(s.Version))
	if s.Lease != nil {
		b = appendLease(b, 23, s.Lease)
	}
	b = appendFixed(b, 24, math.Float64bits(s.Progress))
	b = appendString(b, 25, Prose(s.Note))
	b = appendString(b, 28, Prose(s.Reason))
	b = appendUint(b, 29, uint64(s.ResultBytes))
	b = appendUint(b, 30, uint64(s.CheckpointBytes))
	b = appendUint(b, 31, uint64(s.Checkpoints))
	return closeMessage(b, state)
}

func appendLease(b []byte, field protowire.Number, l *gq.Lease) []byte {
	b, lease := openMessage(b, field)
	b = appendString(b, 1, string(l.ID))
	b = appendUint(b, 2, uint64(l.Version))
	b = appendUint(b, 3, uint64(l.State))
	b = appendString(b, 4, l.Worker)
	b = appendUint(b, 5, uint64(l.Attempt))
	b = appendString(b, 6, string(l.Previous))
	b = appendInstant(b, 7, l.GrantedAt)
	b = appendInstant(b, 8, l.HeartbeatAt)
	b = appendInstant(b, 9, l.ExpiresAt)
	b = appendUint(b, 10, uint64(l.TTL))
	b = appendUint(b, 11, uint64(l.Renewals))
	b = appendUint(b, 12, uint64(l.CostUnits))
	return closeMessage(b, lease)
}

// appendSpec encodes a spec with the key, without its id, which is the state's.
func appendSpec(b []byte, field protowire.Number, s *gq.Spec, key gq.IdempotencyKey) []byte {
	b, spec := openMessage(b, field)
	b = appendString(b, 2, s.Queue)
	b = appendString(b, 3, s.Type)
	if len(s.Payload.Data) > 0 {
		b = appendData(b, 4, s.Payload.Data)
	}
	b = appendString(b, 5, s.Payload.ContentType)
	b = appendString(b, 7, key.Name)
	b = appendString(b, 8, key.Scope)
	b = appendUint(b, 9, key.Fingerprint)
	b = appendUint(b, 13, uint64(s.CostUnits))
	b = appendString(b, 15, s.LimitKey)
	b = appendString(b, 16, s.FairKey)
	b = appendString(b, 17, s.Requester)
	b = appendString(b, 18, s.Tier)
	b = appendUint(b, 19, uint64(s.MaxFee))
	b = appendID(b, 21, s.ReplayOf)
	b = appendUint(b, 120, uint64(s.Weight))
	return closeMessage(b, spec)
}

// jobDecoder decodes the jobs of a message. Texts that are the same in consecutive jobs share
// their memory.
type jobDecoder struct {
	protoReader

	policy gq.Policy // of jobs that are sent without one
	n      int       // jobs decoded
	last   struct{ queue, typ, contentType, scope, worker string }
}

// decode decodes a job and reports whether data is a message.
func (d *jobDecoder) decode(j *gq.Job, data []byte) bool {
	if d.plain(j, data) {
		return true
	}
	m := new(pb.Job)
	if proto.Unmarshal(data, m) != nil {
		return false
	}
	mark := len(d.faults)
	*j = d.jobOf("", m)
	d.number("jobs", d.n, mark)
	return true
}

// plain decodes a job that has only fields of [appendJob] and reports whether it has.
func (d *jobDecoder) plain(j *gq.Job, data []byte) bool {
	var r fieldReader
	var state, spec []byte
	for len(data) > 0 {
		data = r.next(data)
		switch r.field {
		case 1:
			state = r.message(state)
		case 2:
			spec = r.message(spec)
		case 4:
			j.Result = slices.Clone(r.bytes())
		case 5:
			j.Checkpoint = slices.Clone(r.bytes())
		default:
			r.odd = true
		}
	}
	if r.odd || !d.state(&j.State, state) || !d.spec(&j.Spec, spec) {
		return false
	}
	j.Spec.ID, j.Spec.Policy, j.State.Policy = j.State.ID, d.policy, new(d.policy)
	j.Spec.Metadata.Priority = gq.PriorityNormal
	j.Metadata = j.Spec.Metadata
	return true
}

func (d *jobDecoder) state(s *gq.State, data []byte) bool {
	var r fieldReader
	for len(data) > 0 {
		data = r.next(data)
		switch r.field {
		case 1:
			s.ID = r.id()
		case 2:
			s.Status = enumOf(&r, gq.StatusCancelled)
		case 3:
			s.Detail = enumOf(&r, gq.DetailAssigned)
		case 4:
			s.Own = enumOf(&r, gq.PriorityBulk)
		case 5:
			s.Inherited = enumOf(&r, gq.PriorityBulk)
		case 6:
			s.Sequence = r.uint()
		case 7:
			s.Turn = r.uint()
		case 8:
			s.Attempt = r.int()
		case 9:
			s.Bound = r.int()
		case 10:
			s.Faults = r.int()
		case 11:
			s.Losses = r.int()
		case 12:
			s.Waits = r.int()
		case 13:
			s.AnyOpen = r.uint() != 0
		case 14:
			s.Depth = r.int()
		case 15:
			s.CreatedAt = r.time()
		case 16:
			s.UpdatedAt = r.time()
		case 17:
			s.RunAt = r.time()
		case 18:
			s.ScheduledAt = r.time()
		case 19:
			s.StartedAt = r.time()
		case 20:
			s.FirstStartedAt = r.time()
		case 21:
			s.CompletedAt = r.time()
		case 22:
			s.Version = gq.LeaseVersion(r.uint())
		case 23:
			if s.Lease != nil {
				return false
			}
			s.Lease = new(gq.Lease)
			if !d.lease(s.Lease, r.bytes()) {
				return false
			}
		case 24:
			s.Progress = math.Float64frombits(r.fixed())
		case 25:
			s.Note = r.text("")
		case 28:
			s.Reason = r.text("")
		case 29:
			s.ResultBytes = r.int()
		case 30:
			s.CheckpointBytes = r.int()
		case 31:
			s.Checkpoints = r.int()
		default:
			return false
		}
	}
	return !r.odd
}

func (d *jobDecoder) lease(l *gq.Lease, data []byte) bool {
	var r fieldReader
	for len(data) > 0 {
		data = r.next(data)
		switch r.field {
		case 1:
			l.ID = gq.LeaseID(r.text(""))
		case 2:
			l.Version = gq.LeaseVersion(r.uint())
		case 3:
			l.State = enumOf(&r, gq.LeaseCancelled)
		case 4:
			l.Worker = r.text(d.last.worker)
			d.last.worker = l.Worker
		case 5:
			l.Attempt = r.int()
		case 6:
			l.Previous = gq.LeaseID(r.text(""))
		case 7:
			l.GrantedAt = r.time()
		case 8:
			l.HeartbeatAt = r.time()
		case 9:
			l.ExpiresAt = r.time()
		case 10:
			l.TTL = time.Duration(r.uint())
		case 11:
			l.Renewals = r.int()
		case 12:
			l.CostUnits = int64(r.uint())
		default:
			return false
		}
	}
	return !r.odd
}

func (d *jobDecoder) spec(s *gq.Spec, data []byte) bool {
	var r fieldReader
	for len(data) > 0 {
		data = r.next(data)
		switch r.field {
		case 2:
			s.Queue = r.text(d.last.queue)
			d.last.queue = s.Queue
		case 3:
			s.Type = r.text(d.last.typ)
			d.last.typ = s.Type
		case 4:
			s.Payload.Data = slices.Clone(r.bytes())
		case 5:
			s.Payload.ContentType = r.text(d.last.contentType)
			d.last.contentType = s.Payload.ContentType
		case 7:
			s.Key.Name = r.text("")
		case 8:
			s.Key.Scope = r.text(d.last.scope)
			d.last.scope = s.Key.Scope
		case 9:
			s.Key.Fingerprint = r.uint()
		case 13:
			s.CostUnits = int64(r.uint())
		case 15:
			s.LimitKey = r.text("")
		case 16:
			s.FairKey = r.text("")
		case 17:
			s.Requester = r.text("")
		case 18:
			s.Tier = r.text("")
		case 19:
			s.MaxFee = int64(r.uint())
		case 21:
			s.ReplayOf = r.id()
		case 120:
			s.Weight = int(r.uint())
		default:
			return false
		}
	}
	return !r.odd
}
