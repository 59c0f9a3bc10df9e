package gq

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
)

// None is the argument type of a [Kind] without arguments, and the result type of one
// without a result.
type None struct{}

// Kind is a kind of job. It has a name, the type A of its arguments, the type R of its
// result, and options that apply to all its jobs. A program defines it once and uses it to
// submit, handle and wait for jobs:
//
//	var SendEmail = gq.NewKind[Email, gq.None]("email.send", gq.InQueue("mail"))
//
//	id, err := SendEmail.Submit(ctx, client, Email{To: "ada@example.org"})
//
// Arguments and results are stored as JSON, except that []byte and [json.RawMessage] are
// stored unchanged.
type Kind[A, R any] struct {
	name    string
	options []Option
}

// NewKind defines a kind of job.
func NewKind[A, R any](name string, options ...Option) Kind[A, R] {
	return Kind[A, R]{name, options}
}

// Name returns the job type, as other programs and the command line use it.
func (k Kind[A, R]) Name() string { return k.name }

// Queue returns the queue that its jobs go to, unless a submission names another one.
func (k Kind[A, R]) Queue() string {
	s := Spec{Queue: DefaultQueue}
	for _, set := range k.options {
		set(&s)
	}
	return s.Queue
}

// Spec returns the spec of a job of this kind, for a batch, a graph or a schedule.
func (k Kind[A, R]) Spec(args A, options ...Option) (Spec, error) {
	s := Spec{Type: k.name}
	var err error
	if s.Payload, err = payloadOf(args); err != nil {
		return s, fmt.Errorf("arguments of %s: %w", k.name, err)
	}
	for _, set := range k.options {
		set(&s)
	}
	for _, set := range options {
		set(&s)
	}
	return s, nil
}

// Submit stores a job and returns its id. If the idempotency key belongs to a job with
// different content, Submit returns the id of that job and [ErrKeyReused].
func (k Kind[A, R]) Submit(ctx context.Context, to Submitter, args A, options ...Option) (JobID, error) {
	s, err := k.Spec(args, options...)
	if err != nil {
		return JobID{}, err
	}
	r, err := to.Submit(ctx, s)
	if err == nil {
		err = r.KeyReused()
	}
	return r.ID(), err
}

// SubmitMany stores many jobs in few commits and returns their ids in the order of args. A
// rejected job has a zero id and does not affect the others; the error is that of the first
// rejected job. The options apply to all jobs; the function [SubmitMany] gives each its own.
func (k Kind[A, R]) SubmitMany(ctx context.Context, to Submitter, args []A, options ...Option) ([]JobID, error) {
	jobs := make([]Draft, len(args))
	for i := range args {
		jobs[i] = k.With(args[i], options...)
	}
	return SubmitMany(ctx, to, jobs)
}

// SubmitMany stores many jobs, each with its own kind and options, in few commits:
//
//	var jobs []gq.Draft
//	for _, row := range rows {
//		jobs = append(jobs, Import.With(row, gq.Key(row.ID), gq.LimitKey(row.Customer)))
//	}
//	ids, err := gq.SubmitMany(ctx, client, jobs)
//
// It returns their ids in the order of jobs. A rejected job has a zero id and does not affect the
// others; the error is that of the first rejected job. If the arguments of a job cannot be
// encoded, none is stored.
func SubmitMany(ctx context.Context, to Submitter, jobs []Draft) ([]JobID, error) {
	specs := make([]Spec, len(jobs))
	for i := range jobs {
		if jobs[i].Err != nil {
			return nil, fmt.Errorf("job %d: %w", i, jobs[i].Err)
		}
		specs[i] = jobs[i].Spec
	}
	const atOnce = 1000
	ids := make([]JobID, 0, len(jobs))
	var first error
	for len(specs) > 0 {
		n := min(len(specs), atOnce)
		results, err := to.SubmitBatch(ctx, specs[:n])
		if err != nil {
			return ids, fmt.Errorf("jobs from %d on: %w", len(ids), err)
		}
		for _, r := range results {
			err := r.Err
			if err == nil {
				err = r.KeyReused()
			}
			if err != nil && first == nil {
				first = fmt.Errorf("job %d: %w", len(ids), err)
			}
			ids = append(ids, r.ID())
		}
		specs = specs[n:]
	}
	return ids, first
}

// Wait blocks until a job has ended and returns its result, or a [*JobError] if the job did
// not complete.
func (k Kind[A, R]) Wait(ctx context.Context, d Driver, id JobID) (R, error) {
	j, err := d.Wait(ctx, id)
	if err != nil {
		return *new(R), err
	}
	return k.Result(j)
}

// Args decodes the arguments of a job that was read with [WithPayload].
func (k Kind[A, R]) Args(j Job) (args A, err error) {
	if err := read(j.Spec.Payload.Data, &args); err != nil {
		switch {
		case len(j.Spec.Payload.Data) > 0:
		case j.Redacted:
			err = errRedacted
		default:
			err = errors.New("the job was read without its payload, or has none; read it with gq.WithPayload")
		}
		return args, fmt.Errorf("arguments of job %s: %w", j.State.ID, err)
	}
	return args, nil
}

// Result decodes the result of a job that was read with [WithResult]. It returns a
// [*JobError] if the job did not complete.
func (k Kind[A, R]) Result(j Job) (result R, err error) {
	if j.State.Status != StatusCompleted {
		return result, &JobError{Job: j.State.ID, Status: j.State.Status, Failure: j.State.Failure, Reason: j.State.Reason}
	}
	if err := read(j.Result, &result); err != nil {
		switch {
		case len(j.Result) > 0:
		case j.Redacted:
			err = errRedacted
		case j.State.ResultBytes > 0:
			err = errors.New("the job was read without it; read it with gq.WithResult")
		default:
			err = errors.New("there is none; let the handler return it (worker.HandleResult) or set it (Run.SetResult)")
		}
		return result, fmt.Errorf("result of job %s: %w", j.State.ID, err)
	}
	return result, nil
}

var errRedacted = errors.New("the caller may not see the contents of jobs")

func payloadOf(v any) (Payload, error) {
	switch v := v.(type) {
	case None:
		return Payload{}, nil
	case []byte:
		return Payload{Data: v, ContentType: OctetStream}, nil
	case json.RawMessage:
		return Payload{Data: v, ContentType: JSON}, nil
	}
	data, err := json.Marshal(v)
	return Payload{Data: data, ContentType: JSON}, err
}

func read(data []byte, into any) error {
	switch v := into.(type) {
	case *None:
		return nil
	case *[]byte:
		*v = data
		return nil
	case *json.RawMessage:
		*v = data
		return nil
	}
	return json.Unmarshal(data, into)
}

// JobError reports that a job ended without success.
type JobError struct {
	Job     JobID
	Status  Status   // StatusFailed, StatusDeadLetter or StatusCancelled; any other status means that the job has not ended
	Failure *Failure // of the last failed attempt; nil if no attempt failed
	Reason  string   // why the job ended, unless its handler ended it
}

// Error has only the first line of the failure's message: the others are a stack, or what a
// program wrote.
func (e *JobError) Error() string {
	text := fmt.Sprintf("job %s is %s", e.Job, e.Status)
	switch {
	case e.Failure != nil && e.Failure.Message != "":
		first, _, _ := strings.Cut(e.Failure.Message, "\n")
		return text + ": " + first
	case e.Reason != "":
		return text + ": " + e.Reason
	}
	return text
}
