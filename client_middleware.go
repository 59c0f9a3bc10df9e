package gq

import (
	"bytes"
	"context"
	"fmt"
)

// The calls that a client with middleware changes.

func (c *Client) plain() bool { return len(c.middleware) == 0 }

// SubmitBatch stores independent jobs. Each has its own result.
func (c *Client) SubmitBatch(ctx context.Context, specs []Spec) ([]SubmitResult, error) {
	if c.plain() {
		return c.Driver.SubmitBatch(ctx, specs)
	}
	return submitting{to: c.Driver, client: c}.SubmitBatch(ctx, specs)
}

// SubmitGraph stores jobs that depend on each other: all of them or none.
func (c *Client) SubmitGraph(ctx context.Context, jobs []GraphJob) ([]SubmitResult, error) {
	if c.plain() {
		return c.Driver.SubmitGraph(ctx, jobs)
	}
	return submitting{to: c.Driver, client: c}.SubmitGraph(ctx, jobs)
}

// SubmitWorkflow stores the jobs of a workflow and its record: all of it or nothing.
func (c *Client) SubmitWorkflow(ctx context.Context, f *Flow) (WorkflowID, error) {
	if c.plain() {
		return c.Driver.SubmitWorkflow(ctx, f)
	}
	return submitting{to: c.Driver, client: c}.SubmitWorkflow(ctx, f)
}

// AddToWorkflow adds the jobs of a flow to a workflow that has not ended.
func (c *Client) AddToWorkflow(ctx context.Context, id WorkflowID, f *Flow) (w Workflow, err error) {
	if c.plain() {
		return c.Driver.AddToWorkflow(ctx, id, f)
	}
	err = submitting{to: c.Driver, client: c}.flow(ctx, f, func(ctx context.Context, f *Flow) error {
		w, err = c.Driver.AddToWorkflow(ctx, id, f)
		return err
	})
	return w, err
}

// Edit replaces a waiting job by a copy with another payload, queue or run time, in one commit,
// and returns the copy.
func (c *Client) Edit(ctx context.Context, id JobID, change JobEdit) (SubmitResult, error) {
	if c.plain() || change.Payload == nil {
		return c.Driver.Edit(ctx, id, change)
	}
	j, err := c.Driver.Get(ctx, id, 0)
	if err != nil {
		return SubmitResult{Err: err}, err
	}
	j.Spec.Payload = *change.Payload
	if err := c.sealSpec(ctx, &j.Spec, false); err != nil {
		err = fmt.Errorf("seal the payload of %.80q: %w", j.Spec.Type, err)
		return SubmitResult{Err: err}, err
	}
	change.Payload = &j.Spec.Payload
	return c.Driver.Edit(ctx, id, change)
}

// Signal completes the job of a workflow that waits for the signal with this name; see
// [Driver.Signal].
func (c *Client) Signal(ctx context.Context, id WorkflowID, name string, value any) (State, error) {
	if c.plain() {
		return c.Driver.Signal(ctx, id, name, value)
	}
	data, err := Encode(value)
	if err != nil {
		return State{}, &InvalidError{Faults: []Fault{{"value", err.Error()}}}
	}
	w, err := c.Driver.Workflow(ctx, id)
	if err != nil {
		return State{}, err
	}
	if j, ok := w.Job(name); ok {
		d, err := c.Seal(ctx, Data{Part: WithResult, Job: j.ID, Bytes: data, Repeatable: true})
		if err != nil {
			return State{}, fmt.Errorf("seal the value of signal %.80q: %w", name, err)
		}
		data = d.Bytes
	}
	return c.Driver.Signal(ctx, id, name, data)
}

// PutSchedule creates or replaces a schedule.
func (c *Client) PutSchedule(ctx context.Context, s Schedule) (Schedule, error) {
	if err := c.prepareSchedule(ctx, &s); err != nil {
		return Schedule{}, err
	}
	return c.unsealSchedule(ctx)(c.Driver.PutSchedule(ctx, s))
}

// DeclareSchedule sets up a schedule at program start. It keeps settings that an operator has
// changed since the last declaration, such as a pause.
func (c *Client) DeclareSchedule(ctx context.Context, s Schedule) (Schedule, error) {
	if err := c.prepareSchedule(ctx, &s); err != nil {
		return Schedule{}, err
	}
	return c.unsealSchedule(ctx)(c.Driver.DeclareSchedule(ctx, s))
}

// prepareSchedule makes the template of a draft, and seals it if there is middleware.
func (c *Client) prepareSchedule(ctx context.Context, s *Schedule) error {
	if err := s.useDraft(); err != nil {
		return fmt.Errorf("set schedule %.80q: %w", s.Name, err)
	}
	if c.plain() {
		return nil
	}
	return c.sealSchedule(ctx, s)
}

func (c *Client) sealSchedule(ctx context.Context, s *Schedule) error {
	plain := s.Template.Payload
	if err := c.sealSpec(ctx, &s.Template, true); err != nil { // a declaration that is repeated changes nothing
		return fmt.Errorf("seal the payload of schedule %.80q: %w", s.Name, err)
	}
	if slotPlaceholder(plain) && !slotPlaceholder(s.Template.Payload) {
		return fmt.Errorf("set schedule %.80q: %w", s.Name, &InvalidError{Faults: []Fault{{"template.payload",
			"the queue cannot replace {{slot}} or {{slot_date}} in a payload that middleware seals; leave it out and let the handler read its job's Slot"}}})
	}
	return nil
}

// slotPlaceholder reports whether the queue replaces something in the payload of a template.
func slotPlaceholder(p Payload) bool {
	return p.IsJSON() && (bytes.Contains(p.Data, []byte("{{slot}}")) || bytes.Contains(p.Data, []byte("{{slot_date}}")))
}

// Schedule returns a schedule.
func (c *Client) Schedule(ctx context.Context, name string) (Schedule, error) {
	return c.unsealSchedule(ctx)(c.Driver.Schedule(ctx, name))
}

// Schedules lists all schedules, sorted by name.
func (c *Client) Schedules(ctx context.Context) ([]Schedule, error) {
	all, err := c.Driver.Schedules(ctx)
	for i := 0; i < len(all) && err == nil; i++ {
		all[i], err = c.unsealSchedule(ctx)(all[i], nil)
	}
	return all, err
}

func (c *Client) unsealSchedule(ctx context.Context) func(Schedule, error) (Schedule, error) {
	return func(s Schedule, err error) (Schedule, error) {
		if err == nil && !c.plain() {
			err = c.unsealSpec(ctx, &s.Template)
		}
		return s, err
	}
}

// Get returns a job, with its payload, result and checkpoint if parts asks for them. If
// middleware cannot unseal one of them, the error comes with the job as it is stored.
func (c *Client) Get(ctx context.Context, id JobID, parts Parts) (Job, error) {
	j, err := c.Driver.Get(ctx, id, parts)
	if err != nil || c.plain() {
		return j, err
	}
	return c.unsealed(ctx, j)
}

// Wait blocks until a job has ended and returns it with its result.
func (c *Client) Wait(ctx context.Context, id JobID) (Job, error) {
	j, err := c.Driver.Wait(ctx, id)
	if err != nil || c.plain() {
		return j, err
	}
	return c.unsealed(ctx, j)
}

// unsealed returns a job whose parts were unsealed, or the job as it is and the first error.
func (c *Client) unsealed(ctx context.Context, stored Job) (Job, error) {
	j := stored
	if err := c.unsealSpec(ctx, &j.Spec); err != nil {
		return stored, fmt.Errorf("unseal the payload of job %s: %w", j.State.ID, err)
	}
	for _, part := range []struct {
		name string
		part Parts
		data *[]byte
	}{{"result", WithResult, &j.Result}, {"checkpoint", WithCheckpoint, &j.Checkpoint}} {
		d, err := c.Unseal(ctx, Data{Part: part.part, Job: j.State.ID, Bytes: *part.data})
		if err != nil {
			return stored, fmt.Errorf("unseal the %s of job %s: %w", part.name, j.State.ID, err)
		}
		*part.data = d.Bytes
	}
	return j, nil
}
