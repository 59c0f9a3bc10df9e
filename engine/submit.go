package engine

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/internal/errs"
	"github.com/gopherqueue/gq/internal/tracing"
	"github.com/gopherqueue/gq/machine"
	"github.com/gopherqueue/gq/match"
	"github.com/gopherqueue/gq/store"
	"github.com/gopherqueue/gq/store/codec"
)

// Submit stores a job. It fills in defaults: the policy of the queue, and the rest as in
// [gq.Spec.WithDefaults]. It assigns the id and rejects a spec that has one.
//
// If another job holds the key, Submit returns that job, and Same reports whether it has the
// same content; a unique job can do something else ([gq.OnCollision]). A key without a
// fingerprint gets the fingerprint of the whole spec.
//
// Errors: [gq.ErrInvalid] with every fault, [gq.ErrNotUnique], [gq.ErrQueueFull], [gq.ErrDiskFull],
// [gq.ErrTimeout].
func (e *Engine) Submit(ctx context.Context, s gq.Spec) (gq.SubmitResult, error) {
	return e.submit(ctx, &s, e.acceptOne)
}

// submit completes a spec and stores the job.
func (e *Engine) submit(ctx context.Context, s *gq.Spec, complete completion) (gq.SubmitResult, error) {
	ctx, explain, cancel := e.limited(ctx)
	defer cancel()
	err := complete(ctx, s, nil)
	if err != nil && errs.KindOf(err) == gq.KindInvalid {
		return refused(s.Type, err)
	}
	if err == nil {
		var placed store.Inserted
		if placed, err = e.insert(ctx, s); err == nil {
			return e.answer(s, &placed)
		}
	}
	return gq.SubmitResult{}, fmt.Errorf("submit: %w", explain(err))
}

// insert stores one job. If a claim waits for it, the store may serve the claim in the same
// commit. The caller may leave meanwhile; the claim still gets its job.
func (e *Engine) insert(ctx context.Context, job *gq.Spec) (store.Inserted, error) {
	group := store.Group{Jobs: []gq.Spec{*job}, Mint: e.random.mint(), Authorize: authorizing(ctx)}
	call := func() (store.Inserted, error) {
		placed, err := e.store.Insert(ctx, []store.Group{group})
		if err != nil {
			return store.Inserted{}, err
		}
		return placed[0], nil
	}
	if ctx.Err() != nil {
		return call() // which refuses it
	}
	r := e.claims.reserve(job)
	if r == nil {
		return call()
	}
	claim := r.w.claim
	group.Jobs[0], group.Claim = store.CopySpec(*job), &claim // the caller may reuse its memory once it has left
	type result struct {
		placed store.Inserted
		err    error
	}
	answer := make(chan result, 1)
	go func() {
		asked := time.Now()
		placed, err := call()
		var claimed store.Claimed
		if placed.Claimed != nil {
			claimed = *placed.Claimed
		}
		orphans := e.claims.served(r, claimed, asked)
		answer <- result{placed, err}
		e.giveBack(orphans)
	}()
	select {
	case got := <-answer:
		return got.placed, got.err
	case <-ctx.Done():
		return store.Inserted{}, context.Cause(ctx)
	}
}

// answer converts the store's result for one job.
func (e *Engine) answer(s *gq.Spec, in *store.Inserted) (gq.SubmitResult, error) {
	if in.Err != nil {
		e.counters.collided(s, nil, in.Err)
		return refused(s.Type, in.Err)
	}
	e.counters.collided(s, &in.Jobs[0], nil)
	out := submitted(in.Jobs[0])
	if !out.Existing {
		e.clock.observe(out.State.CreatedAt)
	}
	return out, nil
}

func refused(typ string, err error) (gq.SubmitResult, error) {
	err = refusedError(typ, err)
	return gq.SubmitResult{Err: err}, err
}

func refusedError(typ string, err error) error {
	if refused, ok := unwrapRefusal(err); ok {
		return refused
	}
	return fmt.Errorf("submit %.80q: %w", typ, err)
}

// Enqueue submits a job and returns only its id. If the idempotency key belongs to a job with
// different content, it returns the id of that job and [gq.ErrKeyReused].
func (e *Engine) Enqueue(ctx context.Context, s gq.Spec) (gq.JobID, error) {
	out, err := e.Submit(ctx, s)
	if err == nil {
		err = out.KeyReused()
	}
	return out.ID(), err
}

// SubmitBatch stores many jobs. Each has its own result. If the call itself returns an error,
// it is unknown which jobs were stored.
func (e *Engine) SubmitBatch(ctx context.Context, specs []gq.Spec) ([]gq.SubmitResult, error) {
	ctx, explain, cancel := e.limited(ctx)
	defer cancel()
	out, err := e.submitBatch(ctx, e.store, specs)
	if err != nil {
		return nil, fmt.Errorf("submit: %w", explain(err))
	}
	return out, nil
}

func (e *Engine) submitBatch(ctx context.Context, into store.Writer, specs []gq.Spec) ([]gq.SubmitResult, error) {
	out := make([]gq.SubmitResult, len(specs))
	groups := make([]store.Group, 0, len(specs))
	jobs := make([]gq.Spec, len(specs)) // one array for all groups
	at := make([]int, 0, len(specs))    // index in out of each group
	mint, authorize := e.random.mint(), authorizing(ctx)
	for i := range specs {
		jobs[i] = specs[i]
		if err := e.acceptOne(ctx, &jobs[i], nil); err != nil {
			if errs.KindOf(err) != gq.KindInvalid {
				return nil, err
			}
			out[i].Err = fmt.Errorf("submit %.80q: %w", specs[i].Type, err)
			continue
		}
		groups = append(groups, store.Group{Jobs: jobs[i : i+1 : i+1], Mint: mint, Authorize: authorize})
		at = append(at, i)
	}
	if len(groups) == 0 {
		return out, nil
	}
	placed, err := into.Insert(ctx, groups)
	if err != nil {
		return nil, err
	}
	for k, i := range at {
		if placed[k].Err != nil {
			e.counters.collided(&jobs[i], nil, placed[k].Err)
			out[i].Err = refusedError(specs[i].Type, placed[k].Err)
			continue
		}
		e.counters.collided(&jobs[i], &placed[k].Jobs[0], nil)
		out[i] = submitted(placed[k].Jobs[0])
	}
	if last := &out[at[len(at)-1]]; last.Err == nil && !last.Existing {
		e.clock.observe(last.State.CreatedAt)
	}
	return out, nil
}

// SubmitGraph stores jobs that depend on each other: all of them or none. They refer to each
// other by Ref and to existing jobs by id. If a reference is repeated or unknown, the graph has
// a cycle, or a spec is invalid, the error is [gq.ErrInvalid] with every fault.
func (e *Engine) SubmitGraph(ctx context.Context, drafts []gq.GraphJob) ([]gq.SubmitResult, error) {
	ctx, explain, cancel := e.limited(ctx)
	defer cancel()
	out, err := e.submitGraph(ctx, e.store, drafts)
	if err != nil {
		return nil, fmt.Errorf("submit graph: %w", explain(err))
	}
	return out, nil
}

func (e *Engine) submitGraph(ctx context.Context, into store.Writer, drafts []gq.GraphJob) ([]gq.SubmitResult, error) {
	jobs, err := e.resolve(ctx, drafts, gq.WorkflowID{})
	if err != nil {
		return nil, err
	}
	placed, err := into.Insert(ctx, []store.Group{{Jobs: jobs, Mint: e.random.mint(), Authorize: authorizing(ctx)}})
	if err == nil {
		err, _ = unwrapRefusal(placed[0].Err)
	}
	if err != nil {
		return nil, err
	}
	out := make([]gq.SubmitResult, len(jobs))
	for i, p := range placed[0].Jobs {
		e.counters.collided(&jobs[i], &p, nil)
		out[i] = submitted(p)
	}
	return out, nil
}

// resolve turns references between drafts into dependencies between jobs. They become parts of
// a workflow if there is one.
func (e *Engine) resolve(ctx context.Context, drafts []gq.GraphJob, in gq.WorkflowID) ([]gq.Spec, error) {
	var faults []gq.Fault
	fault := func(i int, field, format string, args ...any) {
		faults = append(faults, gq.Fault{Field: fmt.Sprintf("jobs[%d].%s", i, field), Problem: fmt.Sprintf(format, args...)})
	}
	if len(drafts) == 0 || len(drafts) > gq.MaxGroupJobs {
		return nil, &gq.InvalidError{Faults: []gq.Fault{{Field: "jobs", Problem: fmt.Sprintf("a graph has 1 to %d jobs, this one has %d", gq.MaxGroupJobs, len(drafts))}}}
	}
	jobs := make([]gq.Spec, len(drafts))
	byRef := make(map[string]int, len(drafts))
	for i := range drafts {
		d := &drafts[i]
		if first, taken := byRef[d.Ref]; taken && d.Ref != "" {
			fault(i, "ref", "%.80q is already used by jobs[%d]", d.Ref, first)
		} else {
			byRef[d.Ref] = i
		}
		given := d.Spec
		if !in.IsZero() {
			given.Gate = 0
		} else if d.Final != 0 {
			fault(i, "final", "only a workflow has final jobs")
		}
		if given.Type == gq.SignalType && (in.IsZero() || d.Spec.Gate != gq.GateSignal) {
			fault(i, "type", "%s", reservedType)
		}
		jobs[i] = given
		err := e.accept(ctx, &jobs[i], d.Needs)
		if !in.IsZero() {
			jobs[i].Workflow, jobs[i].Ref, jobs[i].Gate = in, d.Ref, d.Spec.Gate
			jobs[i].Policy.Retention = 0 // the status of a workflow and the inputs of its steps need its jobs
		}
		if err != nil {
			if errs.KindOf(err) != gq.KindInvalid {
				return nil, err
			}
			for _, f := range errs.FaultsOf(err) {
				fault(i, f.Field, "%s", f.Problem)
			}
		}
	}
	nodes := make([]machine.Node, len(drafts))
	for i := range drafts {
		given := drafts[i].Spec.DependsOn
		all := make([]gq.Dependency, len(given), len(given)+len(drafts[i].Needs))
		copy(all, given)
		for k, n := range drafts[i].Needs {
			other, known := byRef[n.Ref]
			if known && n.Ref != "" && other == i {
				fault(i, fmt.Sprintf("needs[%d].ref", k), "%.80q depends on itself; remove it", n.Ref)
				continue
			}
			if !known || n.Ref == "" {
				fault(i, fmt.Sprintf("needs[%d].ref", k), "%.80q is not a job of this graph", n.Ref)
				continue
			}
			all = append(all, gq.Dependency{Kind: n.Kind, Job: jobs[other].ID})
		}
		jobs[i].DependsOn = all
		nodes[i] = machine.Node{ID: jobs[i].ID, Priority: jobs[i].Metadata.Priority, Dependencies: all, Final: drafts[i].Final != 0}
	}
	// The store checks dependencies on existing jobs; assume here that they exist.
	_, err := machine.CheckGraph(nodes, func(gq.JobID) (machine.Ancestor, bool) { return machine.Ancestor{}, true })
	for _, f := range errs.FaultsOf(err) {
		if len(nodes) == 1 {
			f.Field = "jobs[0]." + f.Field // CheckGraph omits the index for a single job
		}
		faults = append(faults, f)
	}
	if len(faults) > 0 {
		return nil, &gq.InvalidError{Faults: faults}
	}
	return jobs, nil
}

// completion turns a submitted spec into the one to store, in place: specs are large.
type completion func(ctx context.Context, s *gq.Spec, needs []gq.Dependency) error

// acceptOne completes a new submission that is no part of a workflow.
func (e *Engine) acceptOne(ctx context.Context, s *gq.Spec, needs []gq.Dependency) error {
	if s.Type == gq.SignalType {
		return &gq.InvalidError{Faults: []gq.Fault{{Field: "type", Problem: reservedType}}}
	}
	return e.accept(ctx, s, needs)
}

const reservedType = "gq.signal is reserved for jobs of workflows that wait for a signal; choose another type, or add the job with Flow.Signal or signal_within"

// accept completes a new submission. It also checks the callback URL, which for schedules and
// replays was checked at the first submission.
func (e *Engine) accept(ctx context.Context, s *gq.Spec, needs []gq.Dependency) error {
	tracing.Adopt(ctx, s)
	err := e.fill(ctx, s, needs)
	if assigned := machine.CheckAssigned(s); len(assigned) > 0 && (err == nil || errs.KindOf(err) == gq.KindInvalid) {
		err = &gq.InvalidError{Faults: append(assigned, errs.FaultsOf(err)...)}
	}
	if machine.ForReplay(s.Key) && (err == nil || errs.KindOf(err) == gq.KindInvalid) {
		fault := gq.Fault{Field: "idempotency_scope", Problem: machine.ReplayScope + " is reserved for replays; choose another scope"}
		err = &gq.InvalidError{Faults: append(errs.FaultsOf(err), fault)}
	}
	if s.Delay > 0 && !s.RunAt.IsZero() && (err == nil || errs.KindOf(err) == gq.KindInvalid) {
		fault := gq.Fault{Field: "delay", Problem: "cannot be given together with run_at; give one of them"}
		err = &gq.InvalidError{Faults: append(errs.FaultsOf(err), fault)}
	}
	if err != nil {
		return err
	}
	return e.checkCallback("callback_url", s.Metadata.CallbackURL)
}

// checkCallback rejects a callback URL if delivery to it is certain to fail.
func (e *Engine) checkCallback(field, url string) error {
	if url == "" || e.delivery == nil {
		return nil
	}
	if err := e.delivery.CheckURL(url); err != nil {
		return &gq.InvalidError{Faults: []gq.Fault{{Field: field, Problem: err.Error()}}}
	}
	return nil
}

// fill fills in the defaults of a spec and assigns an id. The store may assign another one: see
// [store.Group].
func (e *Engine) fill(ctx context.Context, s *gq.Spec, needs []gq.Dependency) error {
	given := s.Policy
	if given == (gq.Policy{}) && s.Overrides.Preset == 0 {
		queue := s.Queue
		if queue == "" {
			queue = gq.DefaultQueue
		}
		policy, err := e.queues.policy(ctx, e.store, queue)
		if err != nil {
			return err
		}
		s.Policy = policy
	}
	overrides := s.Overrides
	if !overrides.IsZero() {
		s.Policy, s.Overrides = overrides.Over(s.Policy), gq.Spec{}.Overrides
	}
	chosen := !s.ID.IsZero()
	s.ID = gq.JobID{}
	*s = s.WithDefaults()
	unnamed := e.nameUnique(s)
	if machine.ForRetry(s.Key) {
		s.Key.Fingerprint = 1 // the same submission has the same key
	} else if s.Key.Name != "" && s.Key.Fingerprint == 0 {
		s.Key.Fingerprint = fingerprint(*s, overrides.Over(given), needs)
	}
	if window := s.Policy.IdempotencyWindow; machine.OwnKey(s.Key) && window > 0 && window == s.Policy.Preset.Policy().IdempotencyWindow {
		s.Policy.IdempotencyWindow = e.options.KeyWindow // the spec does not set its own
	}
	if s.Metadata.CallbackURL != "" {
		if err := e.noteCallbacks(ctx); err != nil {
			return err
		}
	}
	machine.KeepKey(s)
	match.CountUnits(s)
	s.ID = e.random.jobID()
	faults := append(unnamed, e.unregistered("policy", &s.Policy)...)
	if !s.Workflow.IsZero() || s.Ref != "" || s.Gate != 0 {
		faults = append(faults, gq.Fault{Field: "workflow", Problem: "is set by SubmitWorkflow and AddToWorkflow; use one of them"})
	}
	if chosen {
		faults = append(faults, gq.Fault{Field: "id", Problem: "is assigned by the queue"})
	}
	if len(faults) > 0 {
		most := gq.Limits{PayloadBytes: gq.MaxPayloadBytes, ResultBytes: 1, CheckpointBytes: 1}
		for _, f := range errs.FaultsOf(machine.CheckSpec(s, most)) {
			if len(unnamed) == 0 || f.Field != "unique" { // it has no key for want of its fields
				faults = append(faults, f)
			}
		}
		return &gq.InvalidError{Faults: faults}
	}
	return nil
}

// nameUnique gives a job that is unique by fields of its payload its key, or returns the faults.
func (e *Engine) nameUnique(s *gq.Spec) []gq.Fault {
	if len(s.Unique.Fields) == 0 {
		return nil
	}
	name, err := machine.UniqueName(s)
	if err != nil {
		return errs.FaultsOf(err)
	}
	s.Key.Name = name
	if s.Key.Scope == "" {
		s.Key.Scope = s.Type
	}
	return nil
}

// unregistered returns a fault if a policy names a custom backoff that is not registered. Such
// a job would silently use another backoff.
func (e *Engine) unregistered(at string, p *gq.Policy) []gq.Fault {
	b := &p.Backoff
	if b.Strategy != gq.StrategyCustom || b.Custom == "" || e.config.Backoffs[b.Custom] != nil {
		return nil
	}
	return []gq.Fault{{
		Field:   at + ".backoff.custom",
		Problem: fmt.Sprintf("strategy %.64q is not registered; register it when opening the queue (gq.OpenOptions), or choose another strategy", b.Custom),
	}}
}

// noteCallbacks records in the store that jobs with callbacks exist.
func (e *Engine) noteCallbacks(ctx context.Context) error {
	if e.callbacks.Load() {
		return nil
	}
	_, err := e.store.PutDocs(ctx, []store.Doc{{Kind: store.KindCallbacks, Name: store.NameCallbacks, Data: []byte("{}")}})
	if err != nil && !errors.Is(err, gq.ErrConflict) { // a conflict means that the document exists
		return fmt.Errorf("note callbacks: %w", err)
	}
	e.callbacks.Store(true)
	return nil
}

// fingerprint distinguishes submissions with the same key. It covers everything that the
// client sent and nothing that the engine added. It leaves out the trace context and the start
// deadline, which differ each time a submission is repeated.
func fingerprint(s gq.Spec, given gq.Policy, needs []gq.Dependency) uint64 {
	s.Key, s.Policy = gq.IdempotencyKey{}, given
	s.Policy.StartWithin = 0 // with gq.StartBefore it differs each time
	if s.Attributes[gq.AttributeTraceParent] != "" {
		s.Attributes = maps.Clone(s.Attributes)
		delete(s.Attributes, gq.AttributeTraceParent)
		delete(s.Attributes, gq.AttributeTraceState)
		if len(s.Attributes) == 0 {
			s.Attributes = nil
		}
	}
	b, _ := codec.AppendSpec(&s, nil) // never fails
	for _, n := range needs {
		b = append(b, byte(n.Kind))
		b = binary.AppendUvarint(b, uint64(len(n.Ref)))
		b = append(b, n.Ref...)
	}
	sum := sha256.Sum256(b)
	return binary.BigEndian.Uint64(sum[:8]) | 1 // zero is none
}

// limited returns a context with the timeout of a submission. explain turns the store's error
// after that timeout into [gq.ErrTimeout]. A context with an earlier deadline is returned
// unchanged, and contexts that never end share a deadline.
func (e *Engine) limited(ctx context.Context) (limited context.Context, explain func(error) error, cancel func()) {
	if end, ok := ctx.Deadline(); ok && time.Until(end) <= e.options.Timeout {
		return ctx, func(err error) error { return err }, func() {}
	}
	late := e.late
	if ctx.Done() == nil {
		limited, cancel = &endless{values: ctx, Context: e.sharedDeadlineNow()}, func() {}
	} else {
		limited, cancel = context.WithTimeoutCause(ctx, e.options.Timeout, late)
	}
	return limited, func(err error) error {
		if err == nil || errors.Is(err, gq.ErrTimeout) || context.Cause(limited) != late { //nolint:errorlint // identity matters here
			return err
		}
		return fmt.Errorf("%w: %w", late, err)
	}, cancel
}

// sharedDeadline is the timeout of all submissions that begin within deadlineSlack and
// whose contexts never end, so that thousands of them share a timer.
type sharedDeadline struct {
	context.Context
	cancel func() // never called: the last user is unknown, and the timeout frees the timer

	until time.Time // later submissions need a new deadline
}

// deadlineSlack is by how much a submission can exceed its timeout.
const deadlineSlack = 100 * time.Millisecond

func (e *Engine) sharedDeadlineNow() context.Context {
	now := time.Now()
	t := e.deadline.Load()
	if t == nil || now.After(t.until) {
		t = &sharedDeadline{until: now.Add(deadlineSlack)}
		t.Context, t.cancel = context.WithTimeoutCause(context.Background(), e.options.Timeout+deadlineSlack, e.late)
		e.deadline.Store(t) // if another goroutine stores one too, either will do
	}
	return t
}

// endless has the values of a context that never ends and the deadline of another.
type endless struct {
	context.Context

	values context.Context
}

// Value returns the value of either context.
func (c *endless) Value(key any) any {
	if v := c.values.Value(key); v != nil {
		return v
	}
	return c.Context.Value(key)
}

func submitted(p store.Placed) gq.SubmitResult {
	return gq.SubmitResult{State: p.State, Existing: p.Existing, Same: p.Same, Replaces: p.Replaces}
}
