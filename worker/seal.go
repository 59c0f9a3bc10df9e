package worker

import (
	"context"
	"fmt"
	"slices"

	"github.com/gopherqueue/gq"
)

// sealer returns the middleware of the client that the worker uses; nil if it has none.
func (w *Worker) sealer() gq.Sealer {
	s, _ := w.queue.(gq.Sealer)
	return s
}

// unseal applies the client's middleware to what the handler reads: payload, checkpoint and the
// results of dependencies.
func (r *Run) unseal() error {
	s := r.worker.sealer()
	if s == nil {
		return nil
	}
	spec := &r.job.Spec
	d, err := s.Unseal(r.Context(), gq.Data{Part: gq.WithPayload, Type: spec.Type, Bytes: spec.Payload.Data, ContentType: spec.Payload.ContentType})
	if err != nil {
		return fmt.Errorf("unseal the payload: %w", err)
	}
	spec.Payload = gq.Payload{Data: d.Bytes, ContentType: d.ContentType}
	if d, err = s.Unseal(r.Context(), gq.Data{Part: gq.WithCheckpoint, Job: r.ID(), Bytes: r.job.Checkpoint}); err != nil {
		return fmt.Errorf("unseal the checkpoint: %w", err)
	}
	r.job.Checkpoint = d.Bytes
	if len(r.job.Inputs) > 0 {
		r.job.Inputs = slices.Clone(r.job.Inputs)
	}
	for i := range r.job.Inputs {
		in := &r.job.Inputs[i]
		if d, err = s.Unseal(r.Context(), gq.Data{Part: gq.WithResult, Job: in.Job, Bytes: in.Result}); err != nil {
			return fmt.Errorf("unseal the result of %q: %w", in.Ref, err)
		}
		in.Result = d.Bytes
	}
	return nil
}

// Sealed returns the stored form of a result, as the client's middleware makes it, for programs
// that complete the job in a transaction of their own ([gq.Client.In]). Without middleware that
// is the encoded result.
func (r *Run) Sealed(result any) ([]byte, error) {
	data, err := encode(result)
	if err != nil {
		return nil, err
	}
	return r.seal(r.Context(), gq.WithResult, data)
}

// seal applies the client's middleware to a result or a checkpoint.
func (r *Run) seal(ctx context.Context, part gq.Parts, data []byte) ([]byte, error) {
	s := r.worker.sealer()
	if s == nil {
		return data, nil
	}
	d, err := s.Seal(ctx, gq.Data{Part: part, Job: r.ID(), Bytes: data})
	return d.Bytes, err
}

// submitChildren applies the client's middleware to the submission of child jobs.
func (w *Worker) submitChildren(ctx context.Context, children []gq.Spec, submit gq.SubmitFunc) ([]gq.SubmitResult, error) {
	s := w.sealer()
	if s == nil || len(children) == 0 {
		return submit(ctx, children)
	}
	return s.SubmitWith(ctx, children, submit)
}

// complete returns the outcome of an execution that succeeded.
func (w *Worker) complete(r *Run, e ended) gq.Outcome {
	result, err := r.seal(w.values, gq.WithResult, e.result)
	var children []gq.Spec
	if err == nil {
		_, err = w.submitChildren(w.values, e.children, func(_ context.Context, specs []gq.Spec) ([]gq.SubmitResult, error) {
			children = specs
			return make([]gq.SubmitResult, len(specs)), nil
		})
	}
	switch {
	case err != nil:
		return failing(r, w.classify(r, fmt.Errorf("seal the result: %w", err)))
	case len(result) > gq.MaxPayloadBytes:
		return failing(r, resultTooLarge(len(result)))
	}
	return gq.Outcome{Lease: r.ref, Verdict: gq.VerdictComplete, Result: result, Spawn: children}
}
