package engine

import (
	"context"

	"github.com/gopherqueue/gq"
)

// contentKey is the key under which a context says whose content may be shown.
type contentKey struct{}

// WithoutContent returns a context for a call on behalf of a caller who may see the content of jobs
// only in the queues that may allows. For jobs of other queues an explanation does not quote
// messages of failures, and the calls that would carry content elsewhere are denied: Edit to another
// queue, UpdateMetadata with a callback URL, and AddToWorkflow with a job that gets their results.
func WithoutContent(ctx context.Context, may func(queue string) bool) context.Context {
	return context.WithValue(ctx, contentKey{}, may)
}

// mayCarry refuses to carry the content of a job elsewhere for a caller who may not see it.
func mayCarry(ctx context.Context, queue, what string) error {
	may, _ := ctx.Value(contentKey{}).(func(string) bool)
	if may == nil || may(queue) {
		return nil
	}
	return &refusal{gq.ErrDenied.Errorf("this token lacks the scope read on queue %s, which %s needs", queue, what)}
}

// hideContent removes what an explanation must not quote.
func hideContent(ctx context.Context, j *gq.Job) {
	may, _ := ctx.Value(contentKey{}).(func(string) bool)
	if may == nil || may(j.Spec.Queue) || j.State.Failure == nil {
		return
	}
	f := *j.State.Failure
	f.Message = "redacted"
	j.State.Failure = &f
}
