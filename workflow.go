package gq

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"
)

// Ref is the name of a job within its workflow, as [Flow.Add] returns it.
type Ref string

// Draft is a job that is not submitted yet, for a workflow, a schedule or [SubmitMany]: [Kind.With]
// makes one.
type Draft struct {
	Spec Spec
	Err  error // why there is no spec
}

// With returns a job of this kind for a workflow, a schedule or [SubmitMany].
func (k Kind[A, R]) With(args A, options ...Option) Draft {
	s, err := k.Spec(args, options...)
	return Draft{s, err}
}

// Final says when a job runs that ends a workflow. The zero value is a job that does not.
type Final uint8

const (
	OnEither  Final = iota + 1 // when all other jobs have ended, with or without success
	OnSuccess                  // when all other jobs have completed
	OnFailure                  // when all other jobs have ended and at least one did not complete; otherwise it is cancelled
	finalEnd
)

var finalNames = [...]string{"", "EITHER", "SUCCESS", "FAILURE"}

func (f Final) String() string {
	if f == 0 {
		return ""
	}
	return nameOf(finalNames[:], int(f))
}

// Valid reports whether f is zero or one of the three values.
func (f Final) Valid() bool { return f < finalEnd }

// MarshalText returns the name.
func (f Final) MarshalText() ([]byte, error) { return []byte(f.String()), nil }

// UnmarshalText parses a name.
func (f *Final) UnmarshalText(text []byte) error {
	if len(text) == 0 {
		*f = 0
		return nil
	}
	if i, ok := indexOf(finalNames[:], string(text)); ok {
		*f = Final(i)
		return nil
	}
	return &InvalidError{Faults: []Fault{{"final", fmt.Sprintf("%.64q is not one of %v", text, finalNames[1:])}}}
}

// SignalType is the type of jobs that wait for a signal.
const SignalType = "gq.signal"

// Flow is a workflow that is not submitted yet: jobs with names that depend on each other.
//
//	flow := gq.NewWorkflow("order " + order.ID)
//	charge := flow.Add("charge", Charge.With(order))
//	pack := flow.Add("pack", Pack.With(order), gq.After(charge))
//	flow.Finally("notify", SendEmail.With(mail))
//	id, err := client.SubmitWorkflow(ctx, flow)
//
// Jobs of a workflow have no idempotency keys. Submitting a flow again is safe if ID is set
// ([NewWorkflow] leaves it to the queue).
type Flow struct {
	ID   WorkflowID // chosen by the caller to make the submission idempotent; zero lets the queue choose
	Name string     // for people; up to MaxNameBytes
	Jobs []GraphJob // Needs names jobs of this flow or, with AddToWorkflow, of the workflow

	faults []Fault
}

// NewWorkflow returns a workflow without jobs.
func NewWorkflow(name string) *Flow { return &Flow{Name: name} }

// NewBatch returns a workflow of independent jobs, up to 9999, and a last job that runs when all
// of them have ended. Their references are "1", "2" and so on, and "done".
func NewBatch(name string, jobs []Draft, done Draft, when ...Final) *Flow {
	f := NewWorkflow(name)
	for i, d := range jobs {
		f.Add(fmt.Sprint(i+1), d)
	}
	f.Finally("done", done, when...)
	return f
}

// Add adds a job. ref is its name in the workflow: its dependents read its result by it
// (worker.ResultOf), and signals and pictures use it. [After], [AfterEnd] and [AfterAny] with
// the returned Ref make another job wait for it. Submission reports errors.
func (f *Flow) Add(ref string, d Draft, options ...Option) Ref {
	f.add(GraphJob{Spec: d.Spec, Ref: ref}, d.Err, options)
	return Ref(ref)
}

// Finally adds a job that ends the workflow: it runs when all jobs except other final ones have
// ended. Without when it runs in any case ([OnEither]). Final jobs can follow each other: an option of
// the draft, such as AfterEnd(refund), names the one before.
func (f *Flow) Finally(ref string, d Draft, when ...Final) Ref {
	j := GraphJob{Spec: d.Spec, Ref: ref, Final: OnEither}
	if len(when) > 0 {
		j.Final = when[len(when)-1]
	}
	f.add(j, d.Err, nil)
	return Ref(ref)
}

// Signal adds a job that no worker runs: it waits for a signal ([Driver.Signal]) with its name,
// whose value becomes its result. If none comes within that time after its dependencies have
// ended, it fails. [Unlimited] waits for ever.
func (f *Flow) Signal(ref string, within time.Duration, options ...Option) Ref {
	s := Spec{Type: SignalType, Gate: GateSignal}
	s.Overrides.ExecutionTimeout, s.Overrides.Lifetime = within, Unlimited
	if within == 0 || within < Unlimited {
		f.faults = append(f.faults, Fault{fmt.Sprintf("jobs[%d].within", len(f.Jobs)), "must be above 0; gq.Unlimited waits for ever"})
	}
	f.add(GraphJob{Spec: s, Ref: ref}, nil, options)
	return Ref(ref)
}

func (f *Flow) add(j GraphJob, err error, options []Option) {
	for _, set := range options {
		set(&j.Spec)
	}
	if err != nil {
		f.faults = append(f.faults, Fault{fmt.Sprintf("jobs[%d].payload", len(f.Jobs)), err.Error()})
	}
	given := j.Spec.DependsOn
	j.Spec.DependsOn = nil
	for _, d := range given {
		if d.Ref != "" {
			j.Needs = append(j.Needs, d)
		} else {
			j.Spec.DependsOn = append(j.Spec.DependsOn, d)
		}
	}
	f.Jobs = append(f.Jobs, j)
}

// Check returns the errors of the calls that built the flow, such as arguments that cannot be
// encoded. Submission calls it.
func (f *Flow) Check() error {
	if len(f.faults) > 0 {
		return &InvalidError{Faults: slices.Clone(f.faults)}
	}
	return nil
}

// WorkflowStatus says how far a workflow is. The queue computes it from the jobs.
type WorkflowStatus uint8

const (
	WorkflowRunning   WorkflowStatus = iota + 1 // some jobs have not ended
	WorkflowSucceeded                           // all jobs have ended; all that were to run completed
	WorkflowFailed                              // all jobs have ended; at least one failed or was dead-lettered
	WorkflowCancelled                           // all jobs have ended; none failed and at least one was cancelled
	workflowStatusEnd
)

var workflowStatusNames = [...]string{"", "RUNNING", "SUCCEEDED", "FAILED", "CANCELLED"}

func (s WorkflowStatus) String() string { return nameOf(workflowStatusNames[:], int(s)) }

// Valid reports whether s is a status.
func (s WorkflowStatus) Valid() bool { return s >= WorkflowRunning && s < workflowStatusEnd }

// Ended reports whether all jobs of the workflow have ended.
func (s WorkflowStatus) Ended() bool { return s > WorkflowRunning }

// MarshalText returns the name.
func (s WorkflowStatus) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText parses a name.
func (s *WorkflowStatus) UnmarshalText(text []byte) error {
	if i, ok := indexOf(workflowStatusNames[:], string(text)); ok {
		*s = WorkflowStatus(i)
		return nil
	}
	return &InvalidError{Faults: []Fault{{"status", fmt.Sprintf("%.64q is not one of %v", text, workflowStatusNames[1:])}}}
}

// Workflow is a submitted workflow and its jobs at one moment.
type Workflow struct {
	ID      WorkflowID
	Name    string
	Created time.Time
	Status  WorkflowStatus
	Outcome WorkflowStatus // of the jobs that are not final, by which a final job can decide
	Jobs    []WorkflowJob  // in the order of submission
}

// WorkflowJob is a job of a workflow. A job that was retried ([Driver.RetryWorkflow]) is the
// newest one with its name.
type WorkflowJob struct {
	Ref   string
	Final Final
	ID    JobID
	Job   Job // without payload, result and checkpoint; zero if retention has removed it
}

// Job returns the job with a name.
func (w *Workflow) Job(ref string) (WorkflowJob, bool) {
	i := slices.IndexFunc(w.Jobs, func(j WorkflowJob) bool { return j.Ref == ref })
	if i < 0 {
		return WorkflowJob{}, false
	}
	return w.Jobs[i], true
}

// WorkflowQuery selects workflows, newest first.
type WorkflowQuery struct {
	Statuses []WorkflowStatus // empty is any
	Cursor   string           // WorkflowPage.Next of the previous page
	Limit    int              // workflows per page; 0 is 20, the maximum is 100
}

// WorkflowPage is one page of a list. It can have fewer workflows than the limit, or none,
// without being the last.
type WorkflowPage struct {
	Workflows []Workflow
	Next      string // cursor of the next page; empty on the last
}

// Input is the result of a job that a job of a workflow depends on.
type Input struct {
	Ref     string // its name in the workflow
	Job     JobID
	Status  Status // how it ended
	Result  []byte // nil if it has none, or if Omitted
	Omitted bool   // the result is too large to come with the claim
}

// Limits of the inputs that come with a claim. What exceeds them is omitted, and
// worker.ResultOf reads it.
const (
	MaxInputs     = 100       // dependencies of one job
	MaxInputBytes = 256 << 10 // results for one job
)

// Encode returns the stored form of a result or of a signal's value: a []byte or
// [json.RawMessage] unchanged, any other value as JSON. A RawMessage that is not JSON is an error.
func Encode(v any) ([]byte, error) {
	switch v := v.(type) {
	case []byte:
		return v, nil
	case json.RawMessage:
		if len(v) > 0 && !json.Valid(v) {
			return nil, errors.New("is not JSON; text needs quotes, such as \"yes\"")
		}
		return v, nil
	}
	return json.Marshal(v)
}
