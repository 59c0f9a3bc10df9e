package store

import "context"

type impatient struct{}

// Impatient returns a context for reads whose caller has something else to go on with: they are
// not retried if the store cannot be reached.
func Impatient(ctx context.Context) context.Context {
	return context.WithValue(ctx, impatient{}, true)
}

// IsImpatient reports whether a context is from [Impatient].
func IsImpatient(ctx context.Context) bool { return ctx.Value(impatient{}) != nil }
