package engine

import (
	"context"
	"errors"

	"github.com/gopherqueue/gq/store"
)

// authorizeKey is the key under which a context carries an authorisation hook.
type authorizeKey struct{}

// WithAuthorize returns a context for one call of an engine on behalf of a caller with
// limited rights. For each job that the call names by id or lease, the engine calls allow
// with the job's queue, after it has found the job and before it changes or returns
// anything. An error of allow fails the call, or that item of it. allow is not called for a
// job or lease that does not exist.
//
// It works for calls that name jobs or leases: Get, ByLease, Wait, Explain, History,
// UpdateMetadata, Cancel, Replay, Edit, Purge, Advance, those of lease holders, and those about
// workflows, for the queue of each of their jobs, WorkerStopped, for the queues that the worker
// claims from and those of the jobs it holds, and Connected, for the queues from which a worker that is known
// claims; the context that it returns has no hook. Submissions call it for existing jobs that
// they replace or postpone. Other calls ignore it. allow may be called more than once and by
// several goroutines.
func WithAuthorize(ctx context.Context, allow func(queue string) error) context.Context {
	return context.WithValue(ctx, authorizeKey{}, allow)
}

// authorizing returns the hook of a context, nil if it has none.
func authorizing(ctx context.Context) func(queue string) error {
	allow, _ := ctx.Value(authorizeKey{}).(func(string) error)
	if allow == nil {
		return nil
	}
	return func(queue string) error {
		if err := allow(queue); err != nil {
			return &refusal{err}
		}
		return nil
	}
}

// authorize calls the hook of a context for the queue of a job that was read.
func authorize(ctx context.Context, queue string) error {
	if allow := authorizing(ctx); allow != nil {
		return allow(queue)
	}
	return nil
}

// refusal is the error of a hook. The caller gets that error unchanged, without the context
// that other layers added.
type refusal struct{ error }

func (r *refusal) Unwrap() error { return r.error }

// unwrapRefusal returns the hook's own error if err contains one.
func unwrapRefusal(err error) (error, bool) {
	var r *refusal
	if errors.As(err, &r) {
		return r.error, true
	}
	return err, false
}

// authorizeUpdates makes the store call the hook of a context before it changes a job.
func authorizeUpdates(ctx context.Context, updates []store.Update) []store.Update {
	if allow := authorizing(ctx); allow != nil {
		for i := range updates {
			updates[i].Authorize = allow
		}
	}
	return updates
}
