package scheduler

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"slices"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/internal/errs"
	"github.com/gopherqueue/gq/internal/httpx"
	"github.com/gopherqueue/gq/machine"
)

// submitRequest submits a job. Only client_request_id and constraints are optional.
type submitRequest struct {
	AddonID         *string         `json:"addon_id" doc:"Letters, digits and - _ . : /; at most 240 bytes."`
	JobType         *string         `json:"job_type"`
	Priority        *string         `json:"priority" enum:"URGENT,HIGH,NORMAL,LOW"`
	CostUnits       *int64          `json:"cost_units" minimum:"1"`
	Constraints     *Constraints    `json:"constraints,omitempty"`
	Payload         json.RawMessage `json:"payload" doc:"Any JSON; it is never looked into."`
	ClientRequestID *string         `json:"client_request_id,omitempty" doc:"Makes the submission idempotent for its addon."`
}

type jobAnswer struct {
	Job *JobIntent `json:"job"`
}

// maxAddon limits addon names, to leave room in the scope of idempotency keys.
const maxAddon = 240

func (r *submitRequest) spec(f *Face) (gq.Spec, error) {
	var wrong faults
	s := gq.Spec{Policy: f.policy, Payload: gq.Payload{Data: r.Payload, ContentType: gq.JSON}}
	s.Queue = addonID(r.AddonID, &wrong)
	s.Type = required("job_type", r.JobType, &wrong)
	if name := required("priority", r.Priority, &wrong); name != "" {
		p, known := parsePriority(name)
		if !known {
			wrong.add("priority", "%.64q is not %s", name, oneOf(priorityNames()))
		}
		s.Metadata.Priority = p
	}
	switch {
	case r.CostUnits == nil:
		wrong.add("cost_units", "is required")
	case *r.CostUnits <= 0:
		wrong.add("cost_units", "%d is not above 0", *r.CostUnits)
	default:
		s.CostUnits = *r.CostUnits
	}
	if r.Payload == nil {
		wrong.add("payload", "is required; it may be null")
	}
	if c := r.Constraints; c != nil {
		s.Attributes = c.attributes()
		if c.GPURequired != nil && *c.GPURequired {
			s.Requires = []string{gpu}
		}
	}
	if r.ClientRequestID != nil && *r.ClientRequestID != "" && !f.options.NoIdempotency {
		s.Key = gq.IdempotencyKey{Scope: "scheduler:" + s.Queue, Name: *r.ClientRequestID}
	}
	return s, wrong.err()
}

func required(field string, value *string, wrong *faults) string {
	if value == nil {
		wrong.add(field, "is required")
		return ""
	}
	if err := machine.CheckName(field, *value); err != nil {
		*wrong = append(*wrong, errs.FaultsOf(err)...)
		return ""
	}
	return *value
}

// reserved are the queues of matching and of the task queue, whose jobs have their own
// claim rules.
var reserved = []string{"matching", "taskqueue"}

func addonID(value *string, wrong *faults) string {
	name := required("addon_id", value, wrong)
	if name == "" {
		return ""
	}
	if slices.Contains(reserved, name) {
		wrong.add("addon_id", "%s is the queue of another interface; choose another name", name)
		return ""
	}
	if len(name) > maxAddon {
		wrong.add("addon_id", "%d bytes are more than %d", len(name), maxAddon)
	} else if err := machine.CheckQueueName(name); err != nil {
		*wrong = append(*wrong, errs.FaultsOf(err)...)
	}
	return name
}

func (f *Face) submit(ctx context.Context, _ *httpx.None, r *submitRequest) (*httpx.Answer[jobAnswer], error) {
	s, err := r.spec(f)
	if err != nil {
		return nil, err
	}
	if err := f.addon(ctx, s.Queue); err != nil {
		return nil, err
	}
	made, err := f.engine.Submit(ctx, s)
	if err != nil {
		return nil, err
	}
	if made.Existing {
		return nil, &Problem{
			Code: CodeDuplicate, JobID: made.ID().String(),
			Detail: "client_request_id was used before, for job " + made.ID().String(),
		}
	}
	return httpx.OK(jobAnswer{intentOf(&gq.Job{Spec: s, State: made.State, Metadata: s.Metadata})}), nil
}

type claimRequest struct {
	AddonID   *string       `json:"addon_id"`
	WorkerID  *string       `json:"worker_id"`
	Limit     *int          `json:"limit,omitempty" doc:"Accepted; the answer is one job, whatever it is." minimum:"1"`
	Types     *[]string     `json:"accept_job_types,omitempty" doc:"None is any."`
	MaxCost   *int64        `json:"max_cost_units,omitempty" minimum:"1"`
	Abilities *capabilities `json:"constraints_capabilities,omitempty" doc:"What the worker has. Only gpu_available decides about a claim."`
}

// capabilities are what a worker says it has. The contract leaves open what may be among them.
type capabilities map[string]json.RawMessage

const gpuAvailable = "gpu_available"

var capabilitiesForm = httpx.Schema{
	Type:                 "object",
	Properties:           map[string]*httpx.Schema{gpuAvailable: {Type: "boolean", Description: "Whether jobs that require a GPU may be claimed."}},
	AdditionalProperties: &httpx.Schema{},
}

// offers returns the capabilities that jobs can require.
func (c capabilities) offers(wrong *faults) []string {
	switch said := string(c[gpuAvailable]); said {
	case "true":
		return []string{gpu}
	case "false", "null", "":
	default:
		wrong.add("constraints_capabilities."+gpuAvailable, "%.64s is neither true nor false", said)
	}
	return nil
}

func (r *claimRequest) claim() (gq.ClaimRequest, error) {
	var wrong faults
	out := gq.ClaimRequest{
		Queues: []string{addonID(r.AddonID, &wrong)}, Worker: required("worker_id", r.WorkerID, &wrong),
		N: 1, Hold: true,
	}
	if r.Types != nil {
		out.Types = *r.Types
	}
	if r.Limit != nil && *r.Limit < 1 {
		wrong.add("limit", "%d is not above 0", *r.Limit)
	}
	if r.MaxCost != nil {
		if out.MaxCost = *r.MaxCost; out.MaxCost < 1 {
			wrong.add("max_cost_units", "%d is not above 0", out.MaxCost)
		}
	}
	if r.Abilities != nil {
		out.Offers = r.Abilities.offers(&wrong)
	}
	return out, wrong.err()
}

func (f *Face) claim(ctx context.Context, _ *httpx.None, r *claimRequest) (*httpx.Answer[jobAnswer], error) {
	ask, err := r.claim()
	if err != nil {
		return nil, err
	}
	jobs, err := f.engine.Claim(ctx, ask)
	if err != nil {
		return nil, err
	}
	if len(jobs) == 0 {
		return &httpx.Answer[jobAnswer]{Status: http.StatusNoContent}, nil
	}
	return httpx.OK(jobAnswer{intentOf(&jobs[0])}), nil
}

type getAnswer struct {
	Job    *JobIntent `json:"job"`
	Result *JobResult `json:"result"`
}

type jobInput struct {
	ID string `path:"job_id" format:"uuid"`
}

// job reads the job named in the path.
func (f *Face) job(ctx context.Context, in *jobInput, parts gq.Parts) (gq.Job, error) {
	id, err := gq.ParseJobID(in.ID)
	if err != nil {
		return gq.Job{}, problem(CodeJobNotFound, "%.64q is not the id of a job", in.ID)
	}
	job, err := f.engine.Get(ctx, id, parts)
	if err == nil {
		err = f.judged(ctx, &job)
	}
	return job, or(err, CodeJobNotFound)
}

func (f *Face) get(ctx context.Context, in *jobInput, _ *httpx.None) (*httpx.Answer[getAnswer], error) {
	job, err := f.job(ctx, in, gq.WithPayload|gq.WithResult)
	if err != nil {
		return nil, err
	}
	return httpx.OK(getAnswer{intentOf(&job), resultOf(&job)}), nil
}

type statusRequest struct {
	State    *string  `json:"state" enum:"QUEUED,CLAIMED,PREPARING,LEASE_PENDING,RUNNING,DONE,FAILED,CANCELED,TIMEOUT"`
	Note     *string  `json:"note,omitempty"`
	Progress *float64 `json:"progress,omitempty" minimum:"0" maximum:"1"`
	WorkerID *string  `json:"worker_id,omitempty" doc:"Checked where it is given."`
}

func (r *statusRequest) check() error {
	var wrong faults
	if r.State == nil {
		wrong.add("state", "is required")
	} else if statusesOf(*r.State) == nil {
		wrong.add("state", "%.64q is not %s", *r.State, oneOf(jobStateNames()))
	}
	checkProgress(r.Progress, &wrong)
	return wrong.err()
}

func checkProgress(p *float64, wrong *faults) {
	if p != nil && (*p < 0 || *p > 1) {
		wrong.add("progress", "%v is not between 0 and 1", *p)
	}
}

func reportOf(progress *float64, note *string) machine.Report {
	r := machine.Report{Progress: -1}
	if progress != nil {
		r.Progress = *progress
	}
	if note != nil {
		r.Note = *note
	}
	return r
}

// details are the states that a worker may report before it has a lease.
var details = map[string]gq.Detail{
	stateClaimed: gq.DetailClaimed, statePreparing: gq.DetailPreparing, stateLeasePending: gq.DetailLeasePending,
}

func (f *Face) status(ctx context.Context, in *jobInput, r *statusRequest) (*httpx.Answer[jobAnswer], error) {
	if err := r.check(); err != nil {
		return nil, err
	}
	job, err := f.job(ctx, in, gq.WithPayload)
	if err != nil {
		return nil, err
	}
	detail, before := details[*r.State]
	switch now := stateOf(&job.State); {
	case before && job.State.Status == gq.StatusClaimed, *r.State == stateRunning && now == stateRunning:
	default:
		return nil, noTransition(&job.State, *r.State)
	}
	if err := heldBy(&job, r.WorkerID); err != nil {
		return nil, err
	}
	ref, about := job.State.Lease.Ref(), reportOf(r.Progress, r.Note)
	var moved gq.State
	if before {
		about.Progress = -1 // not started yet
		moved, err = f.engine.Report(ctx, ref, detail, about)
	} else {
		moved, err = f.beat(ctx, ref, about)
	}
	switch {
	case errors.Is(err, gq.ErrStaleLease):
		return nil, f.lost(ctx, job.State.ID, problem(CodeClaimExpired, "the claim of job %s has run out", job.State.ID))
	case errs.KindOf(err) == gq.KindConflict:
		return nil, noTransition(&job.State, *r.State)
	case err != nil:
		return nil, err
	}
	job.State = moved
	return httpx.OK(jobAnswer{intentOf(&job)}), nil
}

func noTransition(s *gq.State, to string) error {
	return problem(CodeTransition, "job %s is %s and cannot become %s by a status report", s.ID, stateOf(s), to)
}

// heldBy rejects a worker that is not the holder.
func heldBy(job *gq.Job, worker *string) error {
	if worker == nil || *worker == job.State.Lease.Worker {
		return nil
	}
	return problem(CodeWorkerMismatch, "job %s is held by another worker than %.80q", job.State.ID, *worker)
}

// lost records the loss of a lease if nobody has yet, and returns told as the holder's
// error.
func (f *Face) lost(ctx context.Context, id gq.JobID, told error) error {
	if _, failed := f.engine.Advance(ctx, id); failed != nil {
		return failed
	}
	return told
}

type cancelRequest struct {
	Reason *string `json:"reason,omitempty"`
}

func (f *Face) cancel(ctx context.Context, in *jobInput, r *cancelRequest) (*httpx.Answer[jobAnswer], error) {
	job, err := f.job(ctx, in, gq.WithPayload)
	if err != nil {
		return nil, err
	}
	reason := ""
	if r.Reason != nil {
		reason = *r.Reason
	}
	canceled, err := f.engine.Cancel(ctx, job.State.ID, reason)
	if errs.KindOf(err) == gq.KindConflict {
		return nil, problem(CodeJobFinished, "job %s has ended and cannot be canceled", job.State.ID)
	}
	if err != nil {
		return nil, or(err, CodeJobNotFound)
	}
	job.State = canceled
	return httpx.OK(jobAnswer{intentOf(&job)}), nil
}
