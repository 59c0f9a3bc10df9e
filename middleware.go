package gq

import (
	"context"
	"fmt"
	"runtime/debug"
	"slices"
)

// SubmitFunc submits jobs and returns their results in the same order.
type SubmitFunc func(ctx context.Context, specs []Spec) ([]SubmitResult, error)

// Middleware is code around what a program submits and what it stores of its jobs: for
// encryption, compression, redaction, defaults or measurements. A client has a list of them
// ([Use], [Client.With]). Each field may be nil. Middleware around the execution of jobs is
// worker.Middleware.
//
// The functions must be safe for concurrent use. They replace slices and maps of what they are
// given, and do not modify them. A panic becomes the error of the call.
type Middleware struct {
	// Submit wraps the submissions of a client, also those in transactions, of workflows and of
	// children that handlers spawn. It may change the specs but not their number or order, and
	// may reject them all with an error. The results of a workflow, and of children that are
	// submitted with the success of their parent, have no states. The first middleware is the
	// outermost.
	Submit func(next SubmitFunc) SubmitFunc

	// Seal returns what is stored instead of data that a program sends: payloads, results,
	// checkpoints and the values of signals. It runs after all Submit functions. The first
	// middleware is applied first.
	Seal func(ctx context.Context, d Data) (Data, error)

	// Unseal reverses Seal for data that a program reads or a worker is about to handle. The
	// last middleware is applied first. A worker judges its error like one of the handler:
	// [Temporary] tries the job again, [Permanent] does not.
	Unseal func(ctx context.Context, d Data) (Data, error)
}

// Data is the content of a part of a job, for [Middleware].
type Data struct {
	Part        Parts  // WithPayload, WithResult or WithCheckpoint
	Type        string // of the job, with a payload
	Job         JobID  // with a result or a checkpoint; the id of a payload's job is not known when it is sealed
	Bytes       []byte // never empty: an empty part is not sealed
	ContentType string // of a payload
	Repeatable  bool   // of a schedule, or of a submission with an idempotency key or a workflow with an id: sealing the same data again must return the same bytes
}

// Sealer applies the middleware of a client to data and to submissions. [Client] implements it;
// package worker uses it for the jobs that it handles.
type Sealer interface {
	Seal(ctx context.Context, d Data) (Data, error)
	Unseal(ctx context.Context, d Data) (Data, error)
	SubmitWith(ctx context.Context, specs []Spec, submit SubmitFunc) ([]SubmitResult, error)
}

// SubmitWith calls submit within the client's middleware, for jobs that are submitted in another
// way than by a call of the client, such as the children of a job.
func (c *Client) SubmitWith(ctx context.Context, specs []Spec, submit SubmitFunc) ([]SubmitResult, error) {
	if c.plain() {
		return submit(ctx, specs)
	}
	return submitting{client: c}.around(ctx, specs, submit)
}

// Use adds middleware to a client.
func Use(middleware ...Middleware) OpenOption {
	return func(o *OpenOptions) { o.Middleware = append(slices.Clip(o.Middleware), middleware...) }
}

// With returns a client of the same queue with more middleware. Closing one closes both.
func (c *Client) With(middleware ...Middleware) *Client {
	return &Client{c.Driver, append(slices.Clip(c.middleware), middleware...)}
}

// Seal applies the Seal functions of the client's middleware.
func (c *Client) Seal(ctx context.Context, d Data) (Data, error) {
	return c.apply(ctx, d, slices.All(c.middleware), func(m Middleware) func(context.Context, Data) (Data, error) { return m.Seal })
}

// Unseal applies the Unseal functions of the client's middleware.
func (c *Client) Unseal(ctx context.Context, d Data) (Data, error) {
	return c.apply(ctx, d, slices.Backward(c.middleware), func(m Middleware) func(context.Context, Data) (Data, error) { return m.Unseal })
}

func (c *Client) apply(ctx context.Context, d Data, order func(func(int, Middleware) bool), which func(Middleware) func(context.Context, Data) (Data, error)) (_ Data, err error) {
	if len(d.Bytes) == 0 || len(c.middleware) == 0 {
		return d, nil
	}
	defer contain(&err)
	for _, m := range order {
		if f := which(m); f != nil {
			if d, err = f(ctx, d); err != nil {
				return d, err
			}
		}
	}
	return d, nil
}

// contain turns a panic of middleware into an error.
func contain(err *error) {
	if p := recover(); p != nil {
		*err = fmt.Errorf("middleware panicked: %v\n\n%s", p, debug.Stack())
	}
}

// submitting is a transaction or the queue, with the middleware of a client.
type submitting struct {
	to         Submitter
	client     *Client
	repeatable bool // the submission as a whole is idempotent
}

// around calls submit within all middleware.
func (s submitting) around(ctx context.Context, specs []Spec, submit SubmitFunc) (results []SubmitResult, err error) {
	defer contain(&err)
	n := len(specs)
	next := func(ctx context.Context, specs []Spec) ([]SubmitResult, error) {
		if len(specs) != n {
			return nil, ErrInvalid.Errorf("middleware made %d jobs of %d; it may not change their number", len(specs), n)
		}
		specs = slices.Clone(specs)
		for i := range specs {
			if err := s.client.sealSpec(ctx, &specs[i], s.repeatable); err != nil {
				return nil, fmt.Errorf("seal the payload of %.80q: %w", specs[i].Type, err)
			}
		}
		return submit(ctx, specs)
	}
	for _, m := range slices.Backward(s.client.middleware) {
		if m.Submit != nil {
			next = m.Submit(next)
		}
	}
	results, err = next(ctx, slices.Clone(specs))
	if err == nil && len(results) != n {
		err = fmt.Errorf("middleware returned %d results for %d jobs", len(results), n)
	}
	return results, err
}

func (c *Client) sealSpec(ctx context.Context, s *Spec, repeatable bool) error {
	if len(s.Payload.Data) == 0 {
		return nil
	}
	d := payloadData(s)
	d.Repeatable = d.Repeatable || repeatable
	d, err := c.Seal(ctx, d)
	s.Payload = Payload{Data: d.Bytes, ContentType: d.ContentType}
	return err
}

func (c *Client) unsealSpec(ctx context.Context, s *Spec) error {
	d, err := c.Unseal(ctx, payloadData(s))
	if err == nil {
		s.Payload = Payload{Data: d.Bytes, ContentType: d.ContentType}
	}
	return err
}

func payloadData(s *Spec) Data {
	d := Data{Part: WithPayload, Type: s.Type, Bytes: s.Payload.Data, ContentType: s.Payload.ContentType, Repeatable: s.Key.Name != ""}
	if d.ContentType == "" {
		d.ContentType = JSON
	}
	return d
}

// Submit submits a job.
func (s submitting) Submit(ctx context.Context, spec Spec) (SubmitResult, error) {
	results, err := s.around(ctx, []Spec{spec}, func(ctx context.Context, specs []Spec) ([]SubmitResult, error) {
		r, err := s.to.Submit(ctx, specs[0])
		return []SubmitResult{r}, err
	})
	if len(results) != 1 {
		return SubmitResult{Err: err}, err
	}
	return results[0], err
}

// SubmitBatch submits jobs.
func (s submitting) SubmitBatch(ctx context.Context, specs []Spec) ([]SubmitResult, error) {
	return s.around(ctx, specs, s.to.SubmitBatch)
}

// SubmitGraph submits jobs that depend on each other.
func (s submitting) SubmitGraph(ctx context.Context, jobs []GraphJob) ([]SubmitResult, error) {
	return s.around(ctx, specsOf(jobs), func(ctx context.Context, specs []Spec) ([]SubmitResult, error) {
		return s.to.SubmitGraph(ctx, withSpecs(jobs, specs))
	})
}

// SubmitWorkflow submits a workflow.
func (s submitting) SubmitWorkflow(ctx context.Context, f *Flow) (id WorkflowID, err error) {
	err = s.flow(ctx, f, func(ctx context.Context, f *Flow) error {
		id, err = s.to.SubmitWorkflow(ctx, f)
		return err
	})
	return id, err
}

// flow calls submit with a flow as the middleware made it.
func (s submitting) flow(ctx context.Context, f *Flow, submit func(ctx context.Context, f *Flow) error) error {
	if err := f.Check(); err != nil {
		return err
	}
	s.repeatable = !f.ID.IsZero()
	_, err := s.around(ctx, specsOf(f.Jobs), func(ctx context.Context, specs []Spec) ([]SubmitResult, error) {
		changed := *f
		changed.Jobs = withSpecs(f.Jobs, specs)
		return make([]SubmitResult, len(specs)), submit(ctx, &changed)
	})
	return err
}

// Complete ends a lease. Its result must be sealed already: see worker.Run.Sealed.
func (s submitting) Complete(ctx context.Context, lease LeaseRef, result []byte) (State, error) {
	return s.to.Complete(ctx, lease, result)
}

func specsOf(jobs []GraphJob) []Spec {
	specs := make([]Spec, len(jobs))
	for i := range jobs {
		specs[i] = jobs[i].Spec
	}
	return specs
}

func withSpecs(jobs []GraphJob, specs []Spec) []GraphJob {
	jobs = slices.Clone(jobs)
	for i := range jobs {
		jobs[i].Spec = specs[i]
	}
	return jobs
}
