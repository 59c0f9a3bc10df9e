package engine

import (
	"context"

	"github.com/gopherqueue/gq"
)

// contentKey is the key under which a context says whose content may be shown.
type contentKey struct{}

// WithoutContent returns a context for a call of [Engine.Explain] on behalf of a caller who may see
// the content of jobs only in the queues that may allows. An explanation of another job does not
// quote the messages of its failures.
func WithoutContent(ctx context.Context, may func(queue string) bool) context.Context {
	return context.WithValue(ctx, contentKey{}, may)
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
