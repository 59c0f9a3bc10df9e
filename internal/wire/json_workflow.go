package wire

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/internal/errs"
)

// Flow is a workflow to be submitted.
type Flow struct {
	ID   gq.WorkflowID `json:"id,omitzero" doc:"A version 7 UUID that makes the request idempotent. Without it the server chooses one."`
	Name string        `json:"name,omitzero" doc:"For people."`
	Jobs []FlowJob     `json:"jobs" doc:"At most 10,000."`
}

// FlowJobs are jobs to be added to a workflow.
type FlowJobs struct {
	Jobs []FlowJob `json:"jobs" doc:"Each with a ref. They may need jobs of the workflow."`
}

// FlowJob is a job of a workflow.
type FlowJob struct {
	Type string `json:"type,omitzero" doc:"Which handler runs it; left out with signal_within."`
	Draft

	Final        gq.Final  `json:"final,omitzero" doc:"It waits for all others and runs on EITHER end, on SUCCESS or on FAILURE."`
	SignalWithin *Duration `json:"signal_within,omitempty" doc:"No worker runs it: it waits for a signal with its ref, for that long after its dependencies have ended; 0s is for ever."`
}

// Domain converts a flow, in the view of the job model or not. Errors are those of its jobs.
func (f *Flow) Domain(queuePolicy func(queue string) (gq.Policy, error), inView bool) (*gq.Flow, error) {
	out := &gq.Flow{ID: f.ID, Name: f.Name, Jobs: make([]gq.GraphJob, len(f.Jobs))}
	var faults []gq.Fault
	for i := range f.Jobs {
		j := &f.Jobs[i]
		j.Draft.Type = j.Type
		spec, err := j.domain(queuePolicy, inView)
		if err != nil && errs.KindOf(err) != gq.KindInvalid {
			return nil, err
		}
		for _, x := range errs.FaultsOf(err) {
			faults = append(faults, gq.Fault{Field: at("jobs", i, x.Field), Problem: x.Problem})
		}
		if j.SignalWithin != nil {
			if spec.Type == "" {
				spec.Type = gq.SignalType
			}
			if j.Timeouts != nil {
				faults = append(faults, gq.Fault{Field: at("jobs", i, "timeouts"), Problem: "a job that waits for a signal has signal_within instead; leave them out"})
			}
			spec.Gate = gq.GateSignal
			spec.Overrides.ExecutionTimeout, spec.Overrides.Lifetime = time.Duration(*j.SignalWithin), gq.Unlimited
			switch {
			case *j.SignalWithin == 0:
				spec.Overrides.ExecutionTimeout = gq.Unlimited
			case *j.SignalWithin < 0:
				faults = append(faults, gq.Fault{Field: at("jobs", i, "signal_within"), Problem: "must not be negative; 0s waits for ever"})
			}
		}
		out.Jobs[i] = gq.GraphJob{Spec: spec, Ref: j.Ref, Final: j.Final}
		for _, n := range j.Needs {
			out.Jobs[i].Needs = append(out.Jobs[i].Needs, gq.Dependency{Kind: kindOf(n.Kind), Ref: n.Ref})
		}
	}
	if len(faults) > 0 {
		return nil, &gq.InvalidError{Faults: faults[:min(len(faults), maxFaults)]}
	}
	return out, nil
}

// Workflow is a workflow as all APIs show it.
type Workflow struct {
	ID        gq.WorkflowID     `json:"id"`
	Name      string            `json:"name,omitzero"`
	CreatedAt time.Time         `json:"created_at"`
	Status    gq.WorkflowStatus `json:"status" doc:"RUNNING, SUCCEEDED, FAILED or CANCELLED; computed from the jobs."`
	Outcome   gq.WorkflowStatus `json:"outcome,omitzero" doc:"The status of the jobs that are not final, by which a final job can decide."`
	Jobs      []WorkflowJob     `json:"jobs"`
	Text      string            `json:"text,omitzero" doc:"A picture: one line for each job."`
}

// WorkflowJob is a job of a workflow.
type WorkflowJob struct {
	Ref   string   `json:"ref" doc:"Its name in the workflow."`
	Final gq.Final `json:"final,omitzero" doc:"It waits for all others."`
	ID    gq.JobID `json:"id"`
	Job   *Job     `json:"job,omitempty" doc:"Absent once retention has removed it."`
}

// WorkflowCreated is the answer to a submission.
type WorkflowCreated struct {
	ID gq.WorkflowID `json:"id"`
}

// Workflows is a page of workflows.
type Workflows struct {
	Workflows  []Workflow `json:"workflows"`
	NextCursor string     `json:"next_cursor,omitzero" doc:"Of the next page; absent on the last. A page may be short without being the last."`
}

// Signal is the value of a signal.
type Signal struct {
	Value       json.RawMessage `json:"value,omitempty" doc:"Any JSON; becomes the result of the job."`
	ValueBase64 *[]byte         `json:"value_base64,omitempty" doc:"Instead: any bytes."`
}

// Input is the result of a job that another one depends on.
type Input struct {
	Ref          string          `json:"ref" doc:"Its name in the workflow."`
	Job          gq.JobID        `json:"job"`
	State        gq.Status       `json:"state"`
	Result       json.RawMessage `json:"result,omitempty"`
	ResultBase64 []byte          `json:"result_base64,omitempty"`
	Omitted      bool            `json:"omitted,omitzero" doc:"The result is too large to come along; read the job."`
}

func inputsOf(inputs []gq.Input) (out []Input) {
	for i := range inputs {
		in := &inputs[i]
		one := Input{Ref: in.Ref, Job: in.Job, State: in.Status, Omitted: in.Omitted}
		one.Result, one.ResultBase64 = embedded(in.Result)
		out = append(out, one)
	}
	return out
}

// InputsByRef converts inputs to an object with their names.
func InputsByRef(inputs []gq.Input) map[string]Input {
	out := make(map[string]Input, len(inputs))
	for _, in := range inputsOf(inputs) {
		out[in.Ref] = in
	}
	return out
}

// WorkflowOf converts a workflow, with its picture.
func WorkflowOf(w *gq.Workflow) Workflow {
	out := WorkflowBrief(w)
	out.Text = w.Text()
	return out
}

// WorkflowBrief converts a workflow without its picture.
func WorkflowBrief(w *gq.Workflow) Workflow {
	out := Workflow{ID: w.ID, Name: w.Name, CreatedAt: utc(w.Created), Status: w.Status, Outcome: w.Outcome, Jobs: make([]WorkflowJob, len(w.Jobs))}
	for i := range w.Jobs {
		j := &w.Jobs[i]
		out.Jobs[i] = WorkflowJob{Ref: j.Ref, Final: j.Final, ID: j.ID}
		if !j.Job.State.ID.IsZero() {
			out.Jobs[i].Job = new(JobOf(&j.Job))
		}
	}
	return out
}

// ParseWorkflowID parses the id in a path.
func ParseWorkflowID(text string) (id gq.WorkflowID, err error) {
	if err = id.UnmarshalText([]byte(text)); err == nil && id.IsZero() {
		err = fault("id", "is missing")
	}
	if err != nil {
		return id, fault("id", "%s", fmt.Sprint(errs.FaultsOf(err)[0].Problem))
	}
	return id, nil
}
