package worker

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/internal/errs"
	"github.com/gopherqueue/gq/internal/steps"
)

// AnyJob is a [Job] of any kind, or a [Run].
type AnyJob interface{ run() *Run }

func (r *Run) run() *Run { return r }

// Step runs a part of a handler at most once per success: it calls fn and records its result
// under the lease, as a part of the job's checkpoint. In a later execution of the job Step
// returns the recorded result and does not call fn. So a retry goes on after the last recorded
// step.
//
//	receipt, err := worker.Step(ctx, job, "charge", func(ctx context.Context) (Receipt, error) {
//		return bank.Charge(ctx, job.Args.Card, job.ID().String())
//	})
//
// A crash after fn returned and before its result is durable repeats fn, so fn should be
// idempotent, for example by passing the job id to the system it calls. An error of fn is not
// recorded; Step returns it unchanged.
//
// name identifies the step within the job. A second call with the same name returns the result
// of the first; a loop needs a name for each turn. Steps with different names can run
// concurrently.
//
// Results are stored like those of jobs: as JSON, or unchanged if T is []byte or
// [json.RawMessage]. All recorded results and the handler's own checkpoint together can have
// [gq.Limits].CheckpointBytes (1 MiB by default). Beyond that Step returns a permanent failure
// with code steps_too_large. If the result cannot be recorded for another reason, Step returns
// an error like that of [Run.Checkpoint]; calling it again in the same execution does not call
// fn again but tries to record the result.
func Step[T any](ctx context.Context, job AnyJob, name string, fn func(ctx context.Context) (T, error)) (T, error) {
	result, err := step(ctx, job.run(), name, fn)
	if err != nil {
		return *new(T), err
	}
	return result, nil
}

func step[T any](ctx context.Context, r *Run, name string, fn func(ctx context.Context) (T, error)) (result T, err error) {
	if name == "" || len(name) > gq.MaxNameBytes {
		return result, &gq.PermanentError{Code: "invalid_step", Cause: &gq.InvalidError{Faults: []gq.Fault{{
			Field: "step", Problem: fmt.Sprintf("a name has 1 to %d bytes", gq.MaxNameBytes),
		}}}}
	}
	c := r.recording()
	data, recorded, err := c.begin(ctx, r, name)
	if err != nil {
		return result, err
	}
	if data == nil {
		defer func() { c.end(name, data) }() // also if fn panics
		if result, err = fn(ctx); err != nil {
			return result, err
		}
		if data, err = encode(result); err != nil {
			return result, err
		}
		if data == nil {
			data = []byte{}
		}
		return result, r.record(ctx, name, data)
	}
	if !recorded {
		if err = r.record(ctx, name, data); err != nil {
			return result, err
		}
	}
	if err = read(data, &result); err != nil {
		return result, &gq.PermanentError{Message: fmt.Sprintf("decode the recorded result of step %q", name), Cause: err, Code: "invalid_step"}
	}
	return result, nil
}

// read decodes a recorded result.
func read(data []byte, into any) error {
	switch v := into.(type) {
	case *[]byte:
		*v = bytes.Clone(data)
		return nil
	case *json.RawMessage:
		*v = bytes.Clone(data)
		return nil
	}
	return json.Unmarshal(data, into)
}

// recording is the checkpoint of a job as this execution knows it.
type recording struct {
	mu      sync.Mutex
	loaded  bool
	damaged error
	saved   steps.Checkpoint         // durable, as far as is known
	ran     map[string][]byte        // results that are not known to be durable
	active  map[string]chan struct{} // steps that run, closed when they end

	sending sync.Mutex // held while a checkpoint is sent, so that they are stored in order
}

// recording returns the record of the job's steps. Handlers that record nothing have none.
func (r *Run) recording() *recording {
	if c := r.steps.Load(); c != nil {
		return c
	}
	r.steps.CompareAndSwap(nil, new(recording))
	return r.steps.Load()
}

// loadLocked reads the checkpoint that earlier executions have left.
func (c *recording) loadLocked(r *Run) error {
	if !c.loaded {
		c.saved, c.damaged = steps.Parse(r.job.Checkpoint)
		c.loaded = true
	}
	return c.damaged
}

// begin returns the result of a step, nil if it must run, and then the caller must call end. It
// waits while another goroutine runs the same step.
func (c *recording) begin(ctx context.Context, r *Run, name string) (data []byte, recorded bool, err error) {
	for {
		c.mu.Lock()
		if err := c.loadLocked(r); err != nil {
			c.mu.Unlock()
			return nil, false, &gq.PermanentError{Message: "read the checkpoint", Cause: err, Code: "invalid_step"}
		}
		if i := slices.IndexFunc(c.saved.Steps, func(s steps.Step) bool { return s.Name == name }); i >= 0 {
			data = c.saved.Steps[i].Result
			c.mu.Unlock()
			return data, true, nil
		}
		data = c.ran[name]
		other := c.active[name]
		if data == nil && other == nil {
			if c.active == nil {
				c.active = make(map[string]chan struct{})
			}
			c.active[name] = make(chan struct{})
		}
		c.mu.Unlock()
		if other == nil || data != nil {
			return data, false, nil
		}
		select {
		case <-other:
		case <-ctx.Done():
			return nil, false, context.Cause(ctx)
		}
	}
}

// end says that a step has run, with its result if it succeeded.
func (c *recording) end(name string, data []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	close(c.active[name])
	delete(c.active, name)
	if data != nil && !slices.ContainsFunc(c.saved.Steps, func(s steps.Step) bool { return s.Name == name }) {
		if c.ran == nil {
			c.ran = make(map[string][]byte)
		}
		c.ran[name] = data
	}
}

// record makes the result of a step durable.
func (r *Run) record(ctx context.Context, name string, data []byte) error {
	_, size, err := r.save(ctx, gq.Heartbeat{}, func(c *steps.Checkpoint) {
		if !slices.ContainsFunc(c.Steps, func(s steps.Step) bool { return s.Name == name }) {
			c.Steps = append(c.Steps, steps.Step{Name: name, Result: data})
		}
	})
	for _, f := range errs.FaultsOf(err) {
		if f.Field == "checkpoint" {
			return &gq.PermanentError{
				Code: "steps_too_large", Cause: err,
				Message: fmt.Sprintf("record step %q: its result of %d bytes makes a checkpoint of %d bytes, more than Limits.CheckpointBytes", name, len(data), size),
			}
		}
	}
	if err != nil {
		return fmt.Errorf("record step %q: %w", name, err)
	}
	return nil
}

// save stores a changed checkpoint with a heartbeat and returns its size.
func (r *Run) save(ctx context.Context, b gq.Heartbeat, change func(*steps.Checkpoint)) (gq.LeaseResult, int, error) {
	c := r.recording()
	c.sending.Lock()
	defer c.sending.Unlock()
	c.mu.Lock()
	err := c.loadLocked(r)
	next := steps.Checkpoint{Own: c.saved.Own, Steps: slices.Clone(c.saved.Steps)}
	c.mu.Unlock()
	if err != nil {
		return gq.LeaseResult{}, 0, err
	}
	change(&next)
	if b.Checkpoint, err = r.seal(ctx, gq.WithCheckpoint, steps.Append(nil, next)); err != nil {
		return gq.LeaseResult{}, 0, fmt.Errorf("seal the checkpoint: %w", err)
	}
	answer, err := r.report(ctx, b)
	if err == nil {
		c.mu.Lock()
		c.saved = next
		for _, s := range next.Steps {
			delete(c.ran, s.Name)
		}
		c.mu.Unlock()
	}
	return answer, len(b.Checkpoint), err
}
