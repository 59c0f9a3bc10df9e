package scheduler

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/internal/httpx"
	"github.com/gopherqueue/gq/internal/projection"
	"github.com/gopherqueue/gq/machine"
)

// leaseRequest asks for capacity. Everything in it besides the job's id must agree with
// the job's record.
type leaseRequest struct {
	JobID       *string      `json:"job_id" format:"uuid"`
	AddonID     *string      `json:"addon_id,omitempty"`
	JobType     *string      `json:"job_type,omitempty"`
	CostUnits   *int64       `json:"cost_units,omitempty"`
	Priority    *string      `json:"priority,omitempty" enum:"URGENT,HIGH,NORMAL,LOW"`
	Constraints *Constraints `json:"constraints,omitempty"`
	TTLSec      *int64       `json:"ttl_sec,omitempty" doc:"Without it the lease has the configured time to live." minimum:"1" maximum:"86400"`
	WorkerID    *string      `json:"worker_id,omitempty" doc:"Checked where it is given."`
}

// maxTTL is the longest time to live of a lease, in seconds.
const maxTTL = 24 * 60 * 60

type leaseVerdict struct {
	Approved      bool   `json:"approved"`
	Lease         *Lease `json:"lease,omitempty" doc:"Where it was approved."`
	RetryAfterSec int64  `json:"retry_after_sec,omitempty" doc:"Where it was denied: when to ask again."`
	Reason        string `json:"reason,omitempty" doc:"Where it was denied: why."`
}

func (r *leaseRequest) check() (id gq.JobID, ttl time.Duration, err error) {
	var wrong faults
	id = bodyJobID(r.JobID, &wrong)
	if r.TTLSec != nil {
		if *r.TTLSec < 1 || *r.TTLSec > maxTTL {
			wrong.add("ttl_sec", "%d is not between 1 and %d", *r.TTLSec, maxTTL)
		}
		ttl = time.Duration(*r.TTLSec) * time.Second
	}
	if r.CostUnits != nil && *r.CostUnits <= 0 {
		wrong.add("cost_units", "%d is not above 0", *r.CostUnits)
	}
	if r.Priority != nil {
		if _, known := parsePriority(*r.Priority); !known {
			wrong.add("priority", "%.64q is not %s", *r.Priority, oneOf(priorityNames()))
		}
	}
	return id, ttl, wrong.err()
}

func bodyJobID(given *string, wrong *faults) gq.JobID {
	if given == nil {
		wrong.add("job_id", "is required")
		return gq.JobID{}
	}
	id, err := gq.ParseJobID(*given)
	if err != nil {
		wrong.add("job_id", "%.64q is not the id of a job", *given)
	}
	return id
}

// agrees rejects a request that contradicts the job's record.
func (r *leaseRequest) agrees(job *gq.Job) error {
	var wrong faults
	differ := func(field string, given *string, is string) {
		if given != nil && *given != is {
			wrong.add(field, "%.64q is not what the job has, %q", *given, is)
		}
	}
	differ("addon_id", r.AddonID, job.Spec.Queue)
	differ("job_type", r.JobType, job.Spec.Type)
	differ("priority", r.Priority, priorityName(job.Metadata.Priority))
	if r.CostUnits != nil && *r.CostUnits != job.Spec.CostUnits {
		wrong.add("cost_units", "%d is not what the job has, %d", *r.CostUnits, job.Spec.CostUnits)
	}
	if is := constraintsOf(&job.Spec); r.Constraints != nil && !r.Constraints.same(&is) {
		wrong.add("constraints", "are not those of the job")
	}
	return wrong.err()
}

func (f *Face) requestLease(ctx context.Context, _ *httpx.None, r *leaseRequest) (*httpx.Answer[leaseVerdict], error) {
	id, ttl, err := r.check()
	if err != nil {
		return nil, err
	}
	job, err := f.engine.Get(ctx, id, 0)
	if err != nil {
		return nil, or(err, CodeJobNotFound)
	}
	if err := r.agrees(&job); err != nil {
		return nil, err
	}
	switch state := stateOf(&job.State); {
	case !job.State.Live():
		return nil, problem(CodeJobFinished, "job %s is %s", id, state)
	case job.State.Status == gq.StatusRunning:
		if err := f.judged(ctx, &job); err != nil {
			return nil, err
		}
		return nil, problem(CodeTransition, "job %s is %s and has its lease", id, stateOf(&job.State))
	case job.State.Status != gq.StatusClaimed:
		return nil, problem(CodeJobNotClaimed, "job %s is %s; claim it first", id, state)
	}
	if err := heldBy(&job, r.WorkerID); err != nil {
		return nil, err
	}
	if err := f.addon(ctx, job.Spec.Queue); err != nil {
		return nil, err
	}
	job.State, err = f.engine.Admit(ctx, job.State.Lease.Ref(), ttl, denialRetry)
	if full, denied := errors.AsType[*machine.CapacityError](err); denied {
		return httpx.OK(leaseVerdict{
			RetryAfterSec: seconds(denialRetry),
			Reason:        fmt.Sprintf("Capacity exceeded: used=%d, requested=%d, capacity=%d", full.Used, full.Requested, full.Capacity),
		}), nil
	}
	if errors.Is(err, gq.ErrStaleLease) {
		return nil, f.lost(ctx, id, problem(CodeClaimExpired, "the claim of job %s has run out", id))
	}
	if err != nil {
		return nil, err
	}
	return httpx.OK(leaseVerdict{Approved: true, Lease: leaseOf(&job, job.State.Lease)}), nil
}

type leaseInput struct {
	ID string `path:"lease_id" format:"uuid"`
}

// leased returns the job of the lease named in the path, and that lease in its current
// state.
func (f *Face) leased(ctx context.Context, in *leaseInput, parts gq.Parts) (job gq.Job, run leaseRun, err error) {
	id := gq.LeaseID(strings.ToLower(in.ID)) // ids are in lower case
	unknown := problem(CodeLeaseNotFound, "there is no lease %.64q", string(id))
	job, err = f.engine.ByLease(ctx, id, parts)
	if errors.Is(err, gq.ErrNotFound) {
		return job, run, unknown
	}
	if err != nil {
		return job, run, err
	}
	if l := job.State.Lease; l != nil && l.ID == id {
		if l.Attempt == 0 {
			return job, run, unknown // a claim, not a lease
		}
		return job, leaseRun{lease: *l}, nil // without the history, which workers may not read
	}
	runs, err := f.runsOf(ctx, &job)
	if err != nil {
		return job, run, err
	}
	i := slices.IndexFunc(runs, func(r leaseRun) bool { return r.lease.ID == id })
	if i < 0 {
		return job, run, unknown
	}
	return job, runs[i], nil
}

// holder checks that the caller names the job and the worker of the lease.
func holder(job *gq.Job, run *leaseRun, jobID *string, worker string) error {
	var wrong faults
	id := bodyJobID(jobID, &wrong)
	if err := wrong.err(); err != nil {
		return err
	}
	if id != job.State.ID {
		return problem(CodeJobMismatch, "lease %s belongs to another job than %s", run.lease.ID, id)
	}
	if worker != run.lease.Worker {
		return problem(CodeWorkerMismatch, "lease %s belongs to another worker than %.80q", run.lease.ID, worker)
	}
	return nil
}

// notActive returns the error for a holder whose lease is no longer active.
func notActive(run *leaseRun) error {
	if run.lease.State == gq.LeaseActive { // nobody has recorded it yet
		return problem(CodeLeaseNotActive, "lease %s has expired or was released", run.lease.ID)
	}
	return problem(CodeLeaseNotActive, "lease %s is %s", run.lease.ID, projection.SchedulerLease(run.lease.State))
}

type heartbeatRequest struct {
	JobID    *string  `json:"job_id" format:"uuid"`
	WorkerID *string  `json:"worker_id"`
	Progress *float64 `json:"progress,omitempty" minimum:"0" maximum:"1"`
	Message  *string  `json:"message,omitempty"`
}

type heartbeatAnswer struct {
	Lease *Lease     `json:"lease"`
	Job   *JobIntent `json:"job"`
}

func (f *Face) heartbeat(ctx context.Context, in *leaseInput, r *heartbeatRequest) (*httpx.Answer[heartbeatAnswer], error) {
	var wrong faults
	bodyJobID(r.JobID, &wrong)
	worker := required("worker_id", r.WorkerID, &wrong)
	checkProgress(r.Progress, &wrong)
	if err := wrong.err(); err != nil {
		return nil, err
	}
	job, run, err := f.leased(ctx, in, gq.WithPayload)
	if err != nil {
		return nil, err
	}
	if err := holder(&job, &run, r.JobID, worker); err != nil {
		return nil, err
	}
	beaten, err := f.beat(ctx, run.lease.Ref(), reportOf(r.Progress, r.Message))
	if errors.Is(err, gq.ErrStaleLease) {
		return nil, f.lost(ctx, job.State.ID, notActive(&run))
	}
	if err != nil {
		return nil, err
	}
	job.State = beaten
	return httpx.OK(heartbeatAnswer{leaseOf(&job, job.State.Lease), intentOf(&job)}), nil
}

// beat renews a lease.
func (f *Face) beat(ctx context.Context, lease gq.LeaseRef, r machine.Report) (gq.State, error) {
	answers, err := f.engine.Heartbeat(ctx, []gq.Heartbeat{{Lease: lease, Progress: r.Progress, Note: r.Note}})
	if err != nil {
		return gq.State{}, err
	}
	return answers[0].State, answers[0].Err
}

type releaseRequest struct {
	JobID      *string         `json:"job_id" format:"uuid"`
	WorkerID   *string         `json:"worker_id"`
	Status     *string         `json:"status" enum:"SUCCEEDED,FAILED,CANCELED,TIMEOUT"`
	ResultData json.RawMessage `json:"result_data,omitempty" doc:"An object."`
	Error      *string         `json:"error,omitempty" doc:"Why it failed, or a warning of a success."`
	Metrics    json.RawMessage `json:"metrics,omitempty" doc:"An object."`
}

type releaseAnswer struct {
	Lease  *Lease     `json:"lease"`
	Job    *JobIntent `json:"job"`
	Result *JobResult `json:"result"`
}

// categories maps a final status to a failure category.
var categories = map[string]gq.Category{
	finalFailed: gq.CategoryPermanent, finalCanceled: gq.CategoryCancelled, finalTimeout: gq.CategoryTimeout,
}

// outcome converts a release to an outcome.
func (r *releaseRequest) outcome() (o gq.Outcome, worker string, err error) {
	var wrong faults
	bodyJobID(r.JobID, &wrong)
	worker = required("worker_id", r.WorkerID, &wrong)
	said := report{ResultData: given(r.ResultData), Metrics: given(r.Metrics)}
	for _, v := range []struct {
		field string
		is    json.RawMessage
	}{{"result_data", said.ResultData}, {"metrics", said.Metrics}} {
		if v.is != nil && v.is[0] != '{' {
			wrong.add(v.field, "is not an object")
		}
	}
	message := ""
	if r.Error != nil {
		message = *r.Error
	}
	succeeded := r.Status != nil && *r.Status == finalSucceeded
	if message != "" && (succeeded || len(message) > gq.MaxMessageBytes) { // no failure keeps it, or not all of it
		said.Error = r.Error
	}
	switch {
	case r.Status == nil:
		wrong.add("status", "is required")
	case succeeded:
		o.Verdict = gq.VerdictComplete
	default:
		category, known := categories[*r.Status]
		if !known {
			wrong.add("status", "%.64q is not %s", *r.Status, oneOf(finalNames()))
		}
		o.Verdict, o.Failure = gq.VerdictFail, gq.Failure{Category: category, Code: "released", Message: message}
	}
	o.Result = said.encode()
	return o, worker, wrong.err()
}

// tooLong names the longest member of a release that is kept as the result of the job, if that is
// too long.
func (r *releaseRequest) tooLong(err error) error {
	invalid, is := errors.AsType[*gq.InvalidError](err)
	if !is || r.Error == nil || len(*r.Error) <= max(len(r.ResultData), len(r.Metrics)) {
		return err
	}
	named := slices.Clone(invalid.Faults)
	for i := range named {
		if named[i].Field == "result" {
			named[i].Field = "error"
		}
	}
	return &gq.InvalidError{Faults: named}
}

// given returns nil for a JSON null.
func given(raw json.RawMessage) json.RawMessage {
	if string(raw) == "null" {
		return nil
	}
	return raw
}

func (f *Face) release(ctx context.Context, in *leaseInput, r *releaseRequest) (*httpx.Answer[releaseAnswer], error) {
	outcome, worker, err := r.outcome()
	if err != nil {
		return nil, err
	}
	job, run, err := f.leased(ctx, in, gq.WithPayload)
	if err != nil {
		return nil, err
	}
	if err := holder(&job, &run, r.JobID, worker); err != nil {
		return nil, err
	}
	ended := !job.State.Live()
	outcome.Lease = run.lease.Ref()
	answers, err := f.engine.Settle(ctx, []gq.Outcome{outcome})
	if err == nil {
		err = answers[0].Err
	}
	if errors.Is(err, gq.ErrStaleLease) {
		return nil, f.lost(ctx, job.State.ID, notActive(&run))
	}
	if err != nil {
		return nil, r.tooLong(err)
	}
	job.State, job.Result = answers[0].State, outcome.Result
	if ended || job.State.Live() || outcome.Verdict == gq.VerdictFail { // the answer may repeat an earlier one: compare the reports
		if job, err = f.engine.Get(ctx, job.Spec.ID, gq.WithPayload|gq.WithResult); err != nil {
			return nil, err
		}
		if !slices.Equal(job.Result, outcome.Result) {
			return nil, problem(CodeLeaseNotActive, "lease %s was released with another report", run.lease.ID)
		}
	}
	return httpx.OK(releaseAnswer{leaseOf(&job, job.State.Lease), intentOf(&job), resultOf(&job)}), nil
}

type leaseAnswer struct {
	Lease *Lease `json:"lease"`
}

func (f *Face) getLease(ctx context.Context, in *leaseInput, _ *httpx.None) (*httpx.Answer[leaseAnswer], error) {
	job, run, err := f.leased(ctx, in, 0)
	if err != nil {
		return nil, err
	}
	if run.lease.State == gq.LeaseActive {
		if err := f.judged(ctx, &job); err != nil {
			return nil, err
		}
		if l := job.State.Lease; l.ID == run.lease.ID {
			run.lease = *l
		}
	}
	return httpx.OK(leaseAnswer{leaseOf(&job, &run.lease)}), nil
}
