package engine

import (
	"context"
	"errors"

	"github.com/gopherqueue/gq/store"
)

// authorizeKey is the key under which a context carries an authorisation hook.
type authorizeKey struct{}

// WithAuthorize returns a context for one call of an engine on behalf of a caller that may
// not do everything. The engine asks allow with the queue of each job that the call names
// by id or lease, once it has found the job and before it changes or returns anything. An
// error of allow is the answer to the call, or to that item of it. A job or lease that does
// not exist is answered without asking.
//
// It is for calls that name jobs or leases: Get, ByLease, Wait, Explain, History,
// UpdateMetadata, Cancel, Replay, Purge, Advance, and those of lease holders. The others ignore
// it. allow may be called more than once and by several goroutines.
func WithAuthorize(ctx context.Context, allow func(queue string) error) context.Context {
	return context.WithValue(ctx, authorizeKey{}, allow)
}

// authorizing is the hook of a context, nil if it has none.
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

// authorize asks the hook of a context about a job that was read.
func authorize(ctx context.Context, queue string) error {
	if allow := authorizing(ctx); allow != nil {
		return allow(queue)
	}
	return nil
}

// refusal is the error of a hook. Its caller gets that error as it is, without the words
// of the layers it has passed.
type refusal struct{ error }

func (r *refusal) Unwrap() error { return r.error }

// unwrapRefusal is the hook's own error if err contains one.
func unwrapRefusal(err error) (error, bool) {
	var r *refusal
	if errors.As(err, &r) {
		return r.error, true
	}
	return err, false
}

// authorizeUpdates has a store ask the hook of a context about each job before it changes.
func authorizeUpdates(ctx context.Context, updates []store.Update) []store.Update {
	if allow := authorizing(ctx); allow != nil {
		for i := range updates {
			updates[i].Authorize = allow
		}
	}
	return updates
}
