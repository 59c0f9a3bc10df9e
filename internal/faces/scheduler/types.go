package scheduler

import (
	"encoding/base64"
	"encoding/json"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/internal/projection"
)

// Constraints say what a job needs or uses heavily. Absent members are false. Only
// gpu_required restricts who may claim the job.
type Constraints struct {
	CPUHeavy       *bool `json:"cpu_heavy,omitempty"`
	GPURequired    *bool `json:"gpu_required,omitempty"`
	NetworkHeavy   *bool `json:"network_heavy,omitempty"`
	DiskWriteHeavy *bool `json:"disk_write_heavy,omitempty"`
}

// gpu is the capability that gpu_required asks for and gpu_available offers.
const gpu = "gpu"

func (c *Constraints) each(visit func(name string, value **bool)) {
	visit("cpu_heavy", &c.CPUHeavy)
	visit("gpu_required", &c.GPURequired)
	visit("network_heavy", &c.NetworkHeavy)
	visit("disk_write_heavy", &c.DiskWriteHeavy)
}

// attributes returns the constraints as job attributes, as they were given.
func (c *Constraints) attributes() map[string]string {
	kept := map[string]string{}
	c.each(func(name string, value **bool) {
		if *value == nil {
			return
		}
		kept[name] = "false"
		if **value {
			kept[name] = "true"
		}
	})
	if len(kept) == 0 {
		return nil
	}
	return kept
}

func constraintsOf(s *gq.Spec) (c Constraints) {
	c.each(func(name string, value **bool) {
		if kept, given := s.Attributes[name]; given {
			is := kept == "true"
			*value = &is
		}
	})
	for _, needs := range s.Requires { // submitted through another face
		if needs == gpu && c.GPURequired == nil {
			is := true
			c.GPURequired = &is
		}
	}
	return c
}

// same reports whether two constraints are equivalent.
func (c *Constraints) same(o *Constraints) bool {
	is := func(b *bool) bool { return b != nil && *b }
	return is(c.CPUHeavy) == is(o.CPUHeavy) && is(c.GPURequired) == is(o.GPURequired) &&
		is(c.NetworkHeavy) == is(o.NetworkHeavy) && is(c.DiskWriteHeavy) == is(o.DiskWriteHeavy)
}

// JobIntent is a job. The last three fields are present only if set.
type JobIntent struct {
	JobID          string          `json:"job_id" format:"uuid"`
	AddonID        string          `json:"addon_id" doc:"The addon whose workers run it."`
	JobType        string          `json:"job_type"`
	Priority       string          `json:"priority" enum:"URGENT,HIGH,NORMAL,LOW"`
	CostUnits      int64           `json:"cost_units" doc:"Capacity that its lease occupies."`
	Constraints    Constraints     `json:"constraints"`
	Payload        json.RawMessage `json:"payload" doc:"As it was submitted."`
	State          string          `json:"state" enum:"QUEUED,CLAIMED,PREPARING,LEASE_PENDING,RUNNING,DONE,FAILED,CANCELED,TIMEOUT"`
	CreatedAt      stamp           `json:"created_at"`
	UpdatedAt      stamp           `json:"updated_at" doc:"Last change, or sign of life of its holder."`
	ClaimedBy      *string         `json:"claimed_by" doc:"The worker that has it, or had it when it ended."`
	ClaimExpiresAt *stamp          `json:"claim_expires_at" doc:"While it is claimed and not running: when it is queued again."`
	LeaseID        *string         `json:"lease_id" doc:"The lease under which it runs, or ended."`
	Attempts       int             `json:"attempts" doc:"Runs that began."`
	NextRetryAt    *stamp          `json:"next_retry_at" doc:"After a denied lease: when to ask again."`

	CancelRequested bool     `json:"cancel_requested,omitempty" doc:"Its worker should stop."`
	Progress        *float64 `json:"progress,omitempty" doc:"As its worker last told, 0 to 1."`
	Note            string   `json:"note,omitempty" doc:"As its worker last told."`
}

func intentOf(j *gq.Job) *JobIntent {
	s, l := &j.State, j.State.Lease
	out := &JobIntent{
		JobID: s.ID.String(), AddonID: j.Spec.Queue, JobType: j.Spec.Type,
		Priority: priorityName(j.Metadata.Priority), CostUnits: j.Spec.CostUnits,
		Constraints: constraintsOf(&j.Spec), Payload: payloadOf(&j.Spec.Payload),
		State: stateOf(s), CreatedAt: stamp(s.CreatedAt), UpdatedAt: stamp(updatedAt(s)),
		Attempts: s.Attempt, Note: s.Note,
		CancelRequested: s.Cancellation.Requested() && s.Live(),
	}
	if s.Progress > 0 {
		out.Progress = &s.Progress
	}
	if holder := holderOf(s); holder != nil {
		out.ClaimedBy = &holder.Worker
		if holder.Attempt > 0 {
			out.LeaseID = text(string(holder.ID))
		}
	}
	switch s.Status {
	case gq.StatusClaimed:
		out.ClaimExpiresAt = at(l.ExpiresAt)
		if s.RunAt.After(l.GrantedAt) { // see machine.Ask
			out.NextRetryAt = at(s.RunAt)
		}
	case gq.StatusDelayed, gq.StatusRetrying:
		out.NextRetryAt = at(s.RunAt)
	default: // not waiting
	}
	return out
}

// holderOf returns the lease of the job's holder, or of its last holder if it has ended.
func holderOf(s *gq.State) *gq.Lease {
	l := s.Lease
	switch {
	case l == nil:
		return nil
	case s.Status.Held(), s.Status.Terminal() && (l.Attempt > 0 || l.State == gq.LeaseCancelled):
		return l
	}
	return nil
}

// updatedAt returns when anything about a job last changed.
func updatedAt(s *gq.State) time.Time {
	last := s.UpdatedAt
	later := func(t time.Time) {
		if t.After(last) {
			last = t
		}
	}
	if s.Status.Held() {
		later(s.Lease.HeartbeatAt)
		later(s.Cancellation.RequestedAt)
	}
	return last
}

// payloadOf returns a payload as JSON. A payload that is not JSON, which other faces
// allow, becomes a base64 string.
func payloadOf(p *gq.Payload) json.RawMessage {
	switch {
	case len(p.Data) == 0:
		return json.RawMessage("null")
	case p.ContentType == gq.JSON || json.Valid(p.Data):
		return p.Data
	}
	return encoded(base64.StdEncoding.EncodeToString(p.Data))
}

// encoded encodes a value that is known to be valid.
func encoded(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		panic("scheduler: encode: " + err.Error())
	}
	return b
}

// Lease is the right to run a job, together with the capacity that it occupies.
type Lease struct {
	LeaseID         string `json:"lease_id" format:"uuid"`
	JobID           string `json:"job_id" format:"uuid"`
	AddonID         string `json:"addon_id"`
	CostUnits       int64  `json:"cost_units"`
	TTLSec          int64  `json:"ttl_sec" doc:"What a heartbeat grants."`
	State           string `json:"state" enum:"ACTIVE,EXPIRED,RELEASED"`
	GrantedAt       stamp  `json:"granted_at"`
	LastHeartbeatAt stamp  `json:"last_heartbeat_at" doc:"The grant counts as one."`
	ExpiresAt       stamp  `json:"expires_at"`
}

func leaseOf(j *gq.Job, l *gq.Lease) *Lease {
	return &Lease{
		LeaseID: string(l.ID), JobID: j.State.ID.String(), AddonID: j.Spec.Queue, CostUnits: l.CostUnits,
		TTLSec: seconds(l.TTL), State: projection.SchedulerLease(l.State),
		GrantedAt: stamp(l.GrantedAt), LastHeartbeatAt: stamp(l.HeartbeatAt), ExpiresAt: stamp(l.ExpiresAt),
	}
}

// seconds converts a duration to seconds, rounded up.
func seconds(d time.Duration) int64 { return int64((d + time.Second - 1) / time.Second) }

// JobResult is how a job ended.
type JobResult struct {
	JobID      string          `json:"job_id" format:"uuid"`
	Status     string          `json:"status" enum:"SUCCEEDED,FAILED,CANCELED,TIMEOUT"`
	ResultData json.RawMessage `json:"result_data" doc:"As its worker reported it."`
	Error      *string         `json:"error" doc:"Why it ended so, or a warning that came with a success."`
	StartedAt  *stamp          `json:"started_at" doc:"Of the last run; null if it never ran."`
	FinishedAt *stamp          `json:"finished_at"`
	Attempts   int             `json:"attempts"`
}

// resultOf returns how a job ended, or nil while it is live. The job must include its
// result.
func resultOf(j *gq.Job) *JobResult {
	s := &j.State
	if s.Live() {
		return nil
	}
	r := readReport(j.Result)
	return &JobResult{
		JobID: s.ID.String(), Status: finalOf(stateOf(s)), ResultData: r.ResultData, Error: errorOf(s, &r),
		StartedAt: at(s.StartedAt), FinishedAt: at(s.CompletedAt), Attempts: s.Attempt,
	}
}

func errorOf(s *gq.State, r *report) *string {
	switch {
	case r.Error != nil:
		return r.Error
	case s.Status == gq.StatusCompleted:
		return nil
	case s.Failure != nil && s.Failure.Message != "":
		return &s.Failure.Message
	default:
		return text(s.Reason)
	}
}

// report is what a worker submits when it releases a job. It is stored as the job's
// result; with result data alone, the result is just that data.
type report struct {
	ResultData json.RawMessage `json:"result_data,omitempty"`
	Error      *string         `json:"error,omitempty"` // of a success, or longer than a failure message may be
	Metrics    json.RawMessage `json:"metrics,omitempty"`
}

func (r *report) encode() []byte {
	if r.Error == nil && r.Metrics == nil && !looksLikeReport(r.ResultData) {
		return r.ResultData
	}
	return encoded(r)
}

// looksLikeReport reports whether a result could be mistaken for an encoded report.
func looksLikeReport(result []byte) bool {
	var members map[string]json.RawMessage
	if json.Unmarshal(result, &members) != nil || len(members) == 0 {
		return false
	}
	for name := range members {
		if name != "result_data" && name != "error" && name != "metrics" {
			return false
		}
	}
	return true
}

// readReport decodes a job's result. A result from another face is treated as result
// data.
func readReport(result []byte) (r report) {
	switch {
	case len(result) == 0:
	case looksLikeReport(result) && json.Unmarshal(result, &r) == nil:
	case json.Valid(result):
		r = report{ResultData: result}
	default:
		r.ResultData = encoded(base64.StdEncoding.EncodeToString(result))
	}
	if r.ResultData == nil {
		r.ResultData = json.RawMessage("null")
	}
	if string(r.Metrics) == "null" {
		r.Metrics = nil
	}
	return r
}
