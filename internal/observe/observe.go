// Package observe has a server's observability: Prometheus metrics, OpenTelemetry traces
// and log lines.
//
// [Observed] wraps an engine and has the same methods. It measures calls and batch sizes,
// and traces each job from its submission through its attempts. [Metrics] is the page
// that Prometheus scrapes.
package observe

import (
	"context"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/engine"
)

// Observed is an engine with measured and traced calls.
type Observed struct {
	engine.API
	measured *measurements
	traces   *traces
	server   func() gq.ServerState // nil knows nothing
}

// New wraps an engine. The tracer may be nil.
func New(e engine.API, t trace.Tracer) *Observed {
	return &Observed{API: e, measured: newMeasurements(), traces: newTraces(t)}
}

// Describe sets what Stats tells about the server. Call it before the first call of the engine.
func (o *Observed) Describe(server func() gq.ServerState) { o.server = server }

// Stats adds the state of the server.
func (o *Observed) Stats(ctx context.Context) (gq.Stats, error) {
	stats, err := o.API.Stats(ctx)
	if err == nil && o.server != nil {
		state := o.server()
		stats.Server = &state
	}
	return stats, err
}

// Refused counts a refusal by the access check.
func (o *Observed) Refused(err error) { o.measured.refusals.access(err) }

// Assigned measures a matching round that assigned jobs.
func (o *Observed) Assigned(states []gq.State, took time.Duration) {
	o.measured.took(callClaim, len(states), took)
	for i := range states {
		o.measured.claimed(&states[i])
	}
}

// Renewed measures the renewal of a matching lease.
func (o *Observed) Renewed(_ gq.State, took time.Duration) { o.measured.took(callHeartbeat, 1, took) }

// Ended measures the end of a matching attempt.
func (o *Observed) Ended(s gq.State, took time.Duration) {
	o.measured.took(callSettle, 1, took)
	o.measured.settled(&s)
}

// Submit submits a job and starts its trace.
func (o *Observed) Submit(ctx context.Context, s gq.Spec) (gq.SubmitResult, error) {
	defer o.measured.call(callSubmit, 1)()
	ctx, end := o.traces.submits(ctx, &s)
	out, err := o.API.Submit(ctx, s)
	end(out, err)
	o.measured.submitted(err)
	return out, err
}

// SubmitBatch submits jobs and starts a trace for each.
func (o *Observed) SubmitBatch(ctx context.Context, specs []gq.Spec) ([]gq.SubmitResult, error) {
	defer o.measured.call(callSubmit, len(specs))()
	if !o.traces.touches(ctx, specs) {
		out, err := o.API.SubmitBatch(ctx, specs)
		for i := range specs {
			if err != nil {
				o.measured.submitted(err)
			} else {
				o.measured.submitted(out[i].Err)
			}
		}
		return out, err
	}
	traced := make([]gq.Spec, len(specs))
	ends := make([]func(gq.SubmitResult, error), len(specs))
	for i := range specs {
		traced[i] = specs[i]
		_, ends[i] = o.traces.submits(ctx, &traced[i])
	}
	out, err := o.API.SubmitBatch(ctx, traced)
	for i := range ends {
		if err != nil {
			ends[i](gq.SubmitResult{}, err)
			o.measured.submitted(err)
			continue
		}
		ends[i](out[i], out[i].Err)
		o.measured.submitted(out[i].Err)
	}
	return out, err
}

// SubmitGraph submits a graph and starts a trace for each job.
func (o *Observed) SubmitGraph(ctx context.Context, drafts []gq.GraphJob) ([]gq.SubmitResult, error) {
	defer o.measured.call(callSubmit, len(drafts))()
	traced := make([]gq.GraphJob, len(drafts))
	ends := make([]func(gq.SubmitResult, error), len(drafts))
	for i := range drafts {
		traced[i] = drafts[i]
		_, ends[i] = o.traces.submits(ctx, &traced[i].Spec)
	}
	out, err := o.API.SubmitGraph(ctx, traced)
	for i := range ends {
		var s gq.SubmitResult
		if err == nil {
			s = out[i]
		}
		ends[i](s, err)
		o.measured.submitted(err)
	}
	return out, err
}

// Claim claims jobs and starts an attempt span for each.
func (o *Observed) Claim(ctx context.Context, r gq.ClaimRequest) ([]gq.Job, error) {
	began := time.Now()
	jobs, err := o.API.Claim(ctx, r)
	o.measured.refusals.add(callClaim, err)
	if err != nil || len(jobs) == 0 {
		return jobs, err
	}
	if r.Wait == 0 {
		o.measured.duration[callClaim].Observe(time.Since(began).Seconds())
	}
	o.measured.batch[callClaim].Observe(float64(len(jobs)))
	for i := range jobs {
		o.measured.claimed(&jobs[i].State)
		o.traces.claimed(&jobs[i])
	}
	return jobs, nil
}

// Heartbeat renews leases.
func (o *Observed) Heartbeat(ctx context.Context, beats []gq.Heartbeat) ([]gq.LeaseResult, error) {
	defer o.measured.call(callHeartbeat, len(beats))()
	answers, err := o.API.Heartbeat(ctx, beats)
	o.measured.refusals.leases(callHeartbeat, answers, err)
	for i := range answers {
		if answers[i].Err == nil {
			o.traces.alive(&answers[i].State)
		}
	}
	return answers, err
}

// Settle settles leases and ends their attempt spans.
func (o *Observed) Settle(ctx context.Context, outcomes []gq.Outcome) ([]gq.LeaseResult, error) {
	defer o.measured.call(callSettle, len(outcomes))()
	answers, err := o.API.Settle(ctx, outcomes)
	o.measured.refusals.leases(callSettle, answers, err)
	for i := range answers {
		o.settled(outcomes[i].Lease, answers[i].State, answers[i].Err)
	}
	return answers, err
}

func (o *Observed) settled(lease gq.LeaseRef, s gq.State, err error) {
	if err == nil {
		o.measured.settled(&s)
	}
	o.traces.settled(lease.ID, &s, err)
}

// Complete completes a job and ends its attempt span.
func (o *Observed) Complete(ctx context.Context, lease gq.LeaseRef, result []byte) (gq.State, error) {
	defer o.measured.call(callSettle, 1)()
	s, err := o.API.Complete(ctx, lease, result)
	o.measured.refusals.add(callSettle, err)
	o.settled(lease, s, err)
	return s, err
}

// Fail fails an attempt and ends its span.
func (o *Observed) Fail(ctx context.Context, lease gq.LeaseRef, f gq.Failure) (gq.State, error) {
	defer o.measured.call(callSettle, 1)()
	s, err := o.API.Fail(ctx, lease, f)
	o.measured.refusals.add(callSettle, err)
	o.settled(lease, s, err)
	return s, err
}

// Release releases a job and ends its attempt span.
func (o *Observed) Release(ctx context.Context, lease gq.LeaseRef, delay time.Duration, reason string) (gq.State, error) {
	defer o.measured.call(callSettle, 1)()
	s, err := o.API.Release(ctx, lease, delay, reason)
	o.measured.refusals.add(callSettle, err)
	o.settled(lease, s, err)
	return s, err
}
