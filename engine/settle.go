package engine

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/internal/errs"
	"github.com/gopherqueue/gq/machine"
	"github.com/gopherqueue/gq/store"
)

// Every call here names a lease. If that is not the newest lease of its job, or has expired,
// the call fails with [gq.ErrStaleLease] and changes nothing: no state, no checkpoint, no
// capacity.

// Prepare reports what a worker is doing before it starts a claimed job, and renews its hold.
func (e *Engine) Prepare(ctx context.Context, lease gq.LeaseRef, d gq.Detail) (gq.State, error) {
	return e.held(ctx, "prepare", lease, func(s gq.State, now time.Time) (gq.State, []gq.Event, error) {
		return machine.Prepare(s, lease, d, now)
	})
}

// Start begins to execute a claimed job. A ttl of 0 is the policy's.
func (e *Engine) Start(ctx context.Context, lease gq.LeaseRef, ttl time.Duration) (gq.State, error) {
	return e.held(ctx, "start", lease, func(s gq.State, now time.Time) (gq.State, []gq.Event, error) {
		return machine.Start(s, lease, ttl, now)
	})
}

func (e *Engine) held(ctx context.Context, verb string, lease gq.LeaseRef, apply store.Apply) (gq.State, error) {
	answers, err := e.fenced(ctx, e.store, []string{verb}, []gq.LeaseRef{lease}, []store.Update{{Apply: apply}})
	if err != nil {
		return gq.State{}, err
	}
	if answers[0].Err == nil {
		e.workers.alive(&answers[0].State, throughStream(ctx))
	}
	return answers[0].State, answers[0].Err
}

// Heartbeat renews leases and stores progress and checkpoints, in as few commits as possible.
// The state in each result has a pending cancel request ([gq.Cancellation.Requested]), which
// then counts as delivered.
//
// Child jobs are inserted in the same commit as the checkpoint. They get a FAN_OUT dependency
// on the job that spawned them.
func (e *Engine) Heartbeat(ctx context.Context, beats []gq.Heartbeat) ([]gq.LeaseResult, error) {
	leases := make([]gq.LeaseRef, len(beats))
	updates := make([]store.Update, len(beats))
	for i := range beats {
		b := &beats[i]
		leases[i] = b.Lease
		report := machine.Report{Progress: b.Progress, Note: b.Note, CheckpointBytes: len(b.Checkpoint)}
		lease := b.Lease
		updates[i] = store.Update{
			Apply: func(s gq.State, now time.Time) (gq.State, []gq.Event, error) {
				return machine.Heartbeat(s, lease, report, now)
			},
			Checkpoint: b.Checkpoint,
			Spawn:      b.Spawn,
			Mint:       e.random.mint(),
		}
	}
	answers, err := e.fenced(ctx, e.store, []string{"heartbeat"}, leases, updates)
	if err != nil {
		return nil, err
	}
	var told []*gq.State
	for i := range answers {
		if answers[i].Err == nil {
			e.workers.alive(&answers[i].State, throughStream(ctx))
			if beats[i].Progress >= 0 || beats[i].Note != "" {
				told = append(told, &answers[i].State)
			}
		}
	}
	e.reported(ctx, told)
	return answers, nil
}

// Settle ends leases: each job completes, fails or is released. Repeating the same call returns
// the same result, so a caller can retry after a lost reply.
//
// Child jobs of a completed job are inserted in the same commit. An outcome with Begin also
// starts a held job in that commit.
func (e *Engine) Settle(ctx context.Context, outcomes []gq.Outcome) ([]gq.LeaseResult, error) {
	answers, err := e.settleInto(ctx, e.store, outcomes)
	if err != nil {
		return nil, err
	}
	for i := range answers {
		if err := answers[i].Err; err == nil || errors.Is(err, gq.ErrStaleLease) {
			e.workers.settled(outcomes[i].Lease, &answers[i].State)
		}
	}
	return answers, nil
}

func (e *Engine) settleInto(ctx context.Context, into store.Writer, outcomes []gq.Outcome) ([]gq.LeaseResult, error) {
	leases := make([]gq.LeaseRef, len(outcomes))
	verbs := make([]string, len(outcomes))
	updates := make([]store.Update, len(outcomes))
	for i := range outcomes {
		leases[i], verbs[i] = outcomes[i].Lease, "settle"
		if outcomes[i].Verdict.Valid() {
			verbs[i] = outcomes[i].Verdict.String()
		}
		updates[i] = e.settling(outcomes[i])
	}
	return e.fenced(ctx, into, verbs, leases, updates)
}

// settling returns the update for an outcome.
func (e *Engine) settling(o gq.Outcome) store.Update {
	u := e.ending(o)
	u.Settles = true
	if o.Begin && o.Verdict != gq.VerdictRelease {
		end := u.Apply
		u.Apply = func(s gq.State, now time.Time) (gq.State, []gq.Event, error) {
			if s.Status != gq.StatusClaimed {
				return end(s, now)
			}
			started, events, err := machine.Start(s, o.Lease, 0, now)
			if err != nil {
				return s, nil, err
			}
			ended, more, err := end(started, now)
			if err != nil {
				return s, nil, err
			}
			return ended, append(events, more...), nil
		}
	}
	return u
}

// ending returns the update that ends an execution.
func (e *Engine) ending(o gq.Outcome) store.Update {
	switch o.Verdict {
	case gq.VerdictComplete:
		return store.Update{
			Apply: func(s gq.State, now time.Time) (gq.State, []gq.Event, error) {
				return machine.Complete(s, o.Lease, o.Result, now)
			},
			Result: o.Result,
			Spawn:  o.Spawn,
			Mint:   e.random.mint(),
		}
	case gq.VerdictFail:
		draw := e.draw()
		return store.Update{
			Apply: func(s gq.State, now time.Time) (gq.State, []gq.Event, error) {
				return machine.Fail(s, o.Lease, o.Failure, draw, now)
			},
			Result: o.Result,
		}
	case gq.VerdictRelease:
		return store.Update{Apply: func(s gq.State, now time.Time) (gq.State, []gq.Event, error) {
			return machine.Release(s, o.Lease, o.Delay, o.Reason, now)
		}}
	default:
		return store.Update{}
	}
}

// Complete ends one job with success.
func (e *Engine) Complete(ctx context.Context, lease gq.LeaseRef, result []byte) (gq.State, error) {
	return e.settle(ctx, gq.Outcome{Lease: lease, Verdict: gq.VerdictComplete, Result: result})
}

// Fail ends one attempt without success. The category of the failure and the job's policy
// decide whether to retry.
func (e *Engine) Fail(ctx context.Context, lease gq.LeaseRef, f gq.Failure) (gq.State, error) {
	return e.settle(ctx, gq.Outcome{Lease: lease, Verdict: gq.VerdictFail, Failure: f})
}

// Release returns one job to its queue without using up an attempt. It is claimable after the
// delay.
func (e *Engine) Release(ctx context.Context, lease gq.LeaseRef, delay time.Duration, reason string) (gq.State, error) {
	return e.settle(ctx, gq.Outcome{Lease: lease, Verdict: gq.VerdictRelease, Delay: delay, Reason: reason})
}

func (e *Engine) settle(ctx context.Context, o gq.Outcome) (gq.State, error) {
	answers, err := e.Settle(ctx, []gq.Outcome{o})
	if err != nil {
		return gq.State{}, err
	}
	return answers[0].State, answers[0].Err
}

// fenced applies updates under leases. verbs has one entry for all updates or one per update.
// Updates without a function are invalid.
func (e *Engine) fenced(ctx context.Context, into store.Writer, verbs []string, leases []gq.LeaseRef, updates []store.Update) ([]gq.LeaseResult, error) {
	answers := make([]gq.LeaseResult, len(updates))
	for i := range updates {
		switch {
		case updates[i].Apply == nil:
			answers[i].Err = &gq.InvalidError{Faults: []gq.Fault{{Field: "verdict", Problem: "must be one of complete, fail, release"}}}
		case leases[i].ID == "":
			answers[i].Err = fmt.Errorf("lease id is missing: %w", gq.ErrStaleLease)
		default:
			updates[i].Ref = store.Ref{Lease: leases[i].ID}
		}
	}
	authorizeUpdates(ctx, updates)
	if err := e.adopt(ctx, updates, answers); err != nil {
		return nil, fmt.Errorf("%s: %w", verbs[0], err)
	}
	at := make([]int, 0, len(updates)) // indices of the updates for the store
	for i := range updates {
		if answers[i].Err == nil {
			updates[len(at)] = updates[i]
			at = append(at, i)
		}
	}
	if len(at) > 0 {
		updated, err := into.Update(ctx, updates[:len(at)])
		if err != nil {
			return nil, fmt.Errorf("%s: %w", verbs[0], err)
		}
		for k, i := range at {
			answers[i] = gq.LeaseResult{State: updated[k].State, Err: updated[k].Err}
			for _, p := range updated[k].Spawned {
				answers[i].Spawned = append(answers[i].Spawned, submitted(p))
			}
		}
	}
	for i := range answers {
		if refused, ok := unwrapRefusal(answers[i].Err); ok {
			answers[i] = gq.LeaseResult{Err: refused}
		} else if answers[i].Err != nil {
			answers[i].Err = fmt.Errorf("%s under lease %.80q: %w", verbs[min(i, len(verbs)-1)], leases[i].ID, answers[i].Err)
		}
	}
	return answers, nil
}

// adopt completes the specs of child jobs and adds a FAN_OUT dependency on the job that spawned
// them. An invalid child fails its update.
func (e *Engine) adopt(ctx context.Context, updates []store.Update, answers []gq.LeaseResult) error {
	var refs []store.Ref
	var at []int
	for i := range updates {
		if len(updates[i].Spawn) > 0 && answers[i].Err == nil {
			refs, at = append(refs, updates[i].Ref), append(at, i)
		}
	}
	if len(at) == 0 {
		return nil
	}
	parents, err := e.store.Get(ctx, refs, 0)
	if err != nil {
		return err
	}
	for k, i := range at {
		if parents[k].Err != nil {
			answers[i].Err = gq.ErrStaleLease // no job has or had this lease
			continue
		}
		if answers[i].Err = updates[i].Authorized(parents[k].Spec.Queue, &parents[k].State); answers[i].Err != nil {
			continue
		}
		children, err := e.children(ctx, updates[i].Spawn, parents[k].State.ID)
		if err != nil && errs.KindOf(err) != gq.KindInvalid {
			return err
		}
		updates[i].Spawn, answers[i].Err = children, err
	}
	return nil
}

// children completes the specs of child jobs. They may depend on each other by [gq.Spec.Ref].
func (e *Engine) children(ctx context.Context, given []gq.Spec, parent gq.JobID) ([]gq.Spec, error) {
	var faults []gq.Fault
	fault := func(i int, field, format string, args ...any) {
		faults = append(faults, gq.Fault{Field: fmt.Sprintf("spawn[%d].%s", i, field), Problem: fmt.Sprintf(format, args...)})
	}
	children, nodes := make([]gq.Spec, len(given)), make([]machine.Node, len(given))
	needs, byRef := make([][]gq.Dependency, len(given)), make(map[string]int)
	for i, spec := range given {
		spawned := gq.Dependency{Kind: gq.DependencyFanOut, Job: parent}
		var deps []gq.Dependency
		for _, d := range spec.DependsOn {
			if d.Ref != "" && d.Job.IsZero() {
				needs[i] = append(needs[i], d)
			} else if d != spawned {
				deps = append(deps, d)
			}
		}
		if first, taken := byRef[spec.Ref]; taken && spec.Ref != "" {
			fault(i, "ref", "%.80q is already used by spawn[%d]", spec.Ref, first)
		} else {
			byRef[spec.Ref] = i
		}
		spec.Ref, spec.DependsOn = "", append(deps, spawned)
		children[i] = spec
		err := e.acceptOne(ctx, &children[i], needs[i])
		if err != nil && errs.KindOf(err) != gq.KindInvalid {
			return nil, err
		}
		for _, f := range errs.FaultsOf(err) {
			fault(i, f.Field, "%s", f.Problem)
		}
	}
	for i := range children {
		for k, n := range needs[i] {
			other, known := byRef[n.Ref]
			switch at := fmt.Sprintf("needs[%d].ref", k); {
			case !known:
				fault(i, at, "%.80q is not a job of this call; give the job that has this name as its ref", n.Ref)
			case other == i:
				fault(i, at, "%.80q depends on itself; remove it", n.Ref)
			default:
				children[i].DependsOn = append(children[i].DependsOn, gq.Dependency{Kind: n.Kind, Job: children[other].ID})
			}
		}
		nodes[i] = machine.Node{ID: children[i].ID, Priority: children[i].Metadata.Priority, Dependencies: children[i].DependsOn}
	}
	if len(faults) == 0 {
		// The store checks dependencies on existing jobs; assume here that they exist.
		_, err := machine.CheckGraph(nodes, func(gq.JobID) (machine.Ancestor, bool) { return machine.Ancestor{}, true })
		for _, f := range errs.FaultsOf(err) {
			if len(nodes) == 1 {
				f.Field = "jobs[0]." + f.Field // CheckGraph omits the index for a single job
			}
			f.Field, f.Problem = "spawn"+strings.TrimPrefix(f.Field, "jobs"), strings.ReplaceAll(f.Problem, "jobs[", "spawn[")
			faults = append(faults, f)
		}
	}
	if len(faults) > 0 {
		return nil, &gq.InvalidError{Faults: faults}
	}
	return children, nil
}
