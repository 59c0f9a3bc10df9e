package native

import (
	"fmt"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/gopherqueue/gq"
	pb "github.com/gopherqueue/gq/api/gopherqueue/v1"
	"github.com/gopherqueue/gq/internal/errs"
	"github.com/gopherqueue/gq/internal/pbconv"
	"github.com/gopherqueue/gq/internal/view"
	"github.com/gopherqueue/gq/internal/wire"
	"github.com/gopherqueue/gq/view/jobmodel"
	"github.com/gopherqueue/gq/view/semantics"
)

// answerIn answers with a job in a view, and as it is if that is nil.
func answerIn(v *view.View, job gq.Job, err error) (*pb.Job, error) {
	if v == nil || err != nil {
		return answerJob(job, err)
	}
	return protoViewed(v, &job), nil
}

func protoViewed(v *view.View, j *gq.Job) *pb.Job {
	switch shown := v.Job(j).(type) {
	case semantics.Job:
		return &pb.Job{Semantics: protoSemantics(&shown)}
	case jobmodel.Job:
		m := protoJobModel(&shown)
		m.Payload, m.Result = j.Spec.Payload.Data, j.Result // as they are, JSON or not
		return &pb.Job{Jobmodel: m}
	default:
		panic("no message for the view " + v.Name)
	}
}

func protoJobsIn(v *view.View, jobs []gq.Job) []*pb.Job {
	all := make([]*pb.Job, len(jobs))
	for i := range jobs {
		all[i] = protoViewed(v, &jobs[i])
	}
	return all
}

// checkViewStates refuses states of the queue together with a view, and states of a view without
// one.
func checkViewStates(v *view.View, r *pb.ListRequest) error {
	var p parameters
	switch {
	case v == nil && len(r.GetStates()) > 0:
		p.fault("states", "name a view, or use query.statuses")
	case v != nil && len(r.GetQuery().GetStatuses()) > 0:
		p.fault("query.statuses", "are not those of the view %s; use states", v.Name)
	}
	return p.err()
}

func protoSemantics(j *semantics.Job) *pb.SemanticsJob {
	return &pb.SemanticsJob{
		Id: j.ID.String(), Queue: j.Queue, State: string(j.State), Reason: j.Reason,
		Retries: int64(j.Retries), MaxRetries: int64(j.MaxRetries), RetryAt: pbconv.ProtoTime(j.RetryAt),
		LeaseToken: string(j.LeaseToken), LeaseVersion: j.LeaseVersion, LeaseExpiresAt: pbconv.ProtoTime(j.LeaseExpiresAt),
		LeaseTtl: viewDuration(j.LeaseTTL), ExecutionTimeout: viewDuration(j.ExecutionTimeout), Redacted: j.Redacted,
	}
}

func protoJobModel(j *jobmodel.Job) *pb.JobModelJob {
	out := &pb.JobModelJob{
		Id: j.ID.String(), State: string(j.State), Attempt: int64(j.Attempt), Type: j.Type, Priority: j.Priority.String(),
		CreatedAt: pbconv.ProtoTime(j.CreatedAt), UpdatedAt: pbconv.ProtoTime(j.UpdatedAt), ScheduledAt: pbconv.ProtoTime(j.ScheduledAt),
		StartedAt: pbconv.ProtoTime(j.StartedAt), CompletedAt: pbconv.ProtoTime(j.CompletedAt),
		Tags: j.Tags, CorrelationId: j.CorrelationID, CallbackUrl: j.CallbackURL, IdempotencyKey: j.IdempotencyKey,
		Timeouts: &pb.JobModelTimeouts{
			Execution: viewDuration(j.Timeouts.Execution), Visibility: viewDuration(j.Timeouts.Visibility), Lifetime: viewDuration(j.Timeouts.Lifetime),
		},
		PreviousAttemptId: string(j.PreviousAttemptID), Failure: protoViewFailure(j.Failure), Redacted: j.Redacted,
	}
	for _, d := range j.Dependencies {
		out.Dependencies = append(out.Dependencies, &pb.JobModelDependency{Type: d.Type.String(), JobId: d.JobID.String()})
	}
	return out
}

// protoLimits sets the limits of a job that is submitted in a view, nil for none.
func protoLimits(s *gq.Spec, v *view.View, m *pb.JobModelTimeouts, policy *pb.Policy) (*wire.TimeoutsBody, []gq.Fault) {
	if m == nil {
		return nil, nil
	}
	var p parameters
	given := func(name string, d *durationpb.Duration) *wire.Duration {
		if d == nil {
			return nil
		}
		if err := d.CheckValid(); err != nil {
			p.fault("timeouts."+name, "is not a valid duration")
			return nil
		}
		return new(wire.Duration(d.AsDuration()))
	}
	own := func(d *durationpb.Duration) *wire.Duration { return given("", d) } // valid, as the spec was decoded
	t := &wire.TimeoutsBody{Execution: given("execution", m.GetExecution()), Visibility: given("visibility", m.GetVisibility()), Lifetime: given("lifetime", m.GetLifetime())}
	faults := t.Limit(s, &wire.Policy{
		ExecutionTimeout: own(policy.GetExecutionTimeout()), LeaseTTL: own(policy.GetLeaseTtl()), Lifetime: own(policy.GetLifetime()),
	}, v == view.JobModel)
	return t, append(p.faults, faults...)
}

// draftLimits sets the limits of jobs that are submitted together in a view.
func draftLimits(named string, drafts []*pb.Draft, jobs []gq.GraphJob) (limits, error) {
	v, err := view.Named(named)
	faults, all := errs.FaultsOf(err), limits{}
	for i, d := range drafts {
		at := fmt.Sprintf("jobs[%d].", i)
		t, wrong := protoLimits(&jobs[i].Spec, v, d.GetTimeouts(), d.GetSpec().GetPolicy())
		for _, f := range wrong {
			faults = append(faults, gq.Fault{Field: at + f.Field, Problem: f.Problem})
		}
		if t != nil {
			all[at] = t
		}
	}
	if len(faults) > 0 {
		return nil, &gq.InvalidError{Faults: faults}
	}
	return all, nil
}

func protoViewFailure(f *jobmodel.Failure) *pb.JobModelFailure {
	if f == nil {
		return nil
	}
	return &pb.JobModelFailure{Category: f.Category.String(), Message: f.Message, Code: f.Code}
}

func viewDuration[D ~int64](d D) *durationpb.Duration { return pbconv.ProtoDuration(time.Duration(d)) }

// protoEventsIn encodes events in a view, and as they are if that is nil.
func protoEventsIn(v *view.View, events []gq.Event) []*pb.Event {
	if v == nil {
		return pbconv.ProtoEvents(events)
	}
	history := v.History(events)
	all := make([]*pb.Event, len(history))
	for i := range history {
		switch e := history[i].Shown.(type) {
		case *semantics.Event:
			all[i] = &pb.Event{Semantics: &pb.SemanticsEvent{
				Time: timestamppb.New(e.Time), Id: e.ID.String(), Queue: e.Queue, State: string(e.State), Trigger: e.Trigger, Reason: e.Reason,
				RetryAt: pbconv.ProtoTime(e.RetryAt), LeaseToken: string(e.LeaseToken), LeaseVersion: e.LeaseVersion, LeaseExpiresAt: pbconv.ProtoTime(e.LeaseExpiresAt),
			}}
		case *jobmodel.Event:
			all[i] = &pb.Event{Jobmodel: &pb.JobModelEvent{
				Id: e.ID.String(), State: string(e.State), UpdatedAt: timestamppb.New(e.UpdatedAt), Attempt: int64(e.Attempt), Failure: protoViewFailure(e.Failure),
			}}
		default:
			panic("no message for the view " + v.Name)
		}
	}
	return all
}
