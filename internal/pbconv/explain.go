package pbconv

import (
	"fmt"

	"github.com/gopherqueue/gq"
	pb "github.com/gopherqueue/gq/api/gopherqueue/v1"
)

// ProtoExplanation encodes an explanation.
func ProtoExplanation(x *gq.Explanation) *pb.Explanation {
	m := &pb.Explanation{
		JobId: protoID(x.Job), Queue: x.Queue, Type: x.Type, Status: pb.Status(x.Status), Attempt: int64(x.Attempt), Bound: int64(x.Bound),
		Reason: protoReason(&x.Reason), Ahead: int64(x.Ahead), Timeline: ProtoEvents(x.Timeline),
	}
	for i := range x.Also {
		m.Also = append(m.Also, protoReason(&x.Also[i]))
	}
	return m
}

func protoReason(r *gq.Reason) *pb.Reason {
	m := &pb.Reason{
		Cause: pb.Cause(r.Cause), Summary: Prose(r.Summary), Remedy: Prose(r.Remedy), Until: protoTime(r.Until), Never: r.Never, More: int64(r.More),
	}
	for _, j := range r.Jobs {
		m.Jobs = append(m.Jobs, &pb.Related{
			JobId: protoID(j.Job), Status: pb.Status(j.Status), Kind: pb.DependencyKind(j.Kind),
			Worker: j.Worker, Since: protoTime(j.Since), CostUnits: j.Cost,
		})
	}
	return m
}

// ExplanationFromProto decodes an explanation.
func ExplanationFromProto(m *pb.Explanation) (gq.Explanation, error) {
	var r protoReader
	x := gq.Explanation{
		Job: r.id("", "job_id", m.GetJobId()), Queue: m.GetQueue(), Type: m.GetType(),
		Status:  readEnum(&r, "", "status", m.GetStatus(), gq.StatusCancelled),
		Attempt: r.int("", "attempt", m.GetAttempt()), Bound: r.int("", "bound", m.GetBound()),
		Reason: r.reason("reason.", m.GetReason()), Ahead: r.int("", "ahead", m.GetAhead()),
	}
	for i, also := range m.GetAlso() {
		mark := len(r.faults)
		x.Also = append(x.Also, r.reason("", also))
		r.number("also", i, mark)
	}
	var err error
	x.Timeline, err = EventsFromProto(m.GetTimeline())
	r.nested("timeline.", err)
	return x, r.err()
}

func (r *protoReader) reason(at string, m *pb.Reason) gq.Reason {
	out := gq.Reason{
		Cause: readEnum(r, at, "cause", m.GetCause(), gq.CauseFinished), Summary: m.GetSummary(), Remedy: m.GetRemedy(),
		Until: r.time(at, "until", m.GetUntil()), Never: m.GetNever(), More: r.int(at, "more", m.GetMore()),
	}
	for i, j := range m.GetJobs() {
		at := fmt.Sprintf("%sjobs[%d].", at, i)
		out.Jobs = append(out.Jobs, gq.Related{
			Job:    r.id(at, "job_id", j.GetJobId()),
			Status: readEnum(r, at, "status", j.GetStatus(), gq.StatusCancelled), Kind: readEnum(r, at, "kind", j.GetKind(), gq.DependencyFanIn),
			Worker: j.GetWorker(), Since: r.time(at, "since", j.GetSince()), Cost: j.GetCostUnits(),
		})
	}
	return out
}

// ProtoEvents encodes events.
func ProtoEvents(events []gq.Event) []*pb.Event {
	if len(events) == 0 {
		return nil
	}
	out := make([]*pb.Event, len(events))
	for i := range events {
		e := &events[i]
		out[i] = &pb.Event{
			Seq: e.Seq, Time: protoTime(e.Time), Queue: e.Queue, JobId: protoID(e.Job),
			Type: pb.EventType(e.Type), Status: pb.Status(e.Status), Attempt: int64(e.Attempt),
			LeaseId: string(e.Lease), Version: uint64(e.Version), LeaseState: pb.LeaseState(e.LeaseState), Worker: e.Worker,
			CostUnits: e.CostUnits, Until: protoTime(e.Until), Detail: pb.Detail(e.Detail), Reason: Prose(e.Reason),
			Traceparent: e.TraceParent, Elapsed: protoDuration(e.Elapsed),
			JobType: e.JobType, Progress: e.Progress, Note: Prose(e.Note),
		}
		if e.Failure != nil {
			out[i].Failure = protoFailure(e.Failure)
		}
	}
	return out
}

// EventsFromProto decodes events.
func EventsFromProto(all []*pb.Event) ([]gq.Event, error) {
	if len(all) == 0 {
		return nil, nil
	}
	var r protoReader
	events := make([]gq.Event, len(all))
	for i, m := range all {
		mark := len(r.faults)
		events[i] = r.event(m)
		r.number("events", i, mark)
	}
	return events, r.err()
}

func (r *protoReader) event(m *pb.Event) gq.Event {
	e := gq.Event{
		Seq: m.GetSeq(), Time: r.time("", "time", m.GetTime()), Queue: m.GetQueue(), Job: r.id("", "job_id", m.GetJobId()),
		Type:   readEnum(r, "", "type", m.GetType(), gq.EventProviderSlashed),
		Status: readEnum(r, "", "status", m.GetStatus(), gq.StatusCancelled), Attempt: r.int("", "attempt", m.GetAttempt()),
		Lease: gq.LeaseID(m.GetLeaseId()), Version: gq.LeaseVersion(m.GetVersion()),
		LeaseState: readEnum(r, "", "lease_state", m.GetLeaseState(), gq.LeaseCancelled), Worker: m.GetWorker(),
		CostUnits: m.GetCostUnits(), Until: r.time("", "until", m.GetUntil()),
		Detail: readEnum(r, "", "detail", m.GetDetail(), gq.DetailAssigned), Reason: m.GetReason(),
		TraceParent: m.GetTraceparent(), Elapsed: r.duration("", "elapsed", m.GetElapsed()),
		JobType: m.GetJobType(), Progress: m.GetProgress(), Note: m.GetNote(),
	}
	if m.GetFailure() != nil {
		f := r.failure("failure.", m.GetFailure())
		e.Failure = &f
	}
	return e
}
