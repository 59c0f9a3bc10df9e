package store

import (
	"context"
	"sync/atomic"
	"time"
)

// Outage knows since when the calls of one context have not reached the store. A nil Outage knows
// nothing.
type Outage struct{ since atomic.Pointer[time.Time] }

type outageKey struct{}

// Together returns a context for the calls to a store that serve one call of a client. If the
// store cannot be reached, all of them together are retried for as long as one would be.
func Together(ctx context.Context) context.Context {
	if OutageOf(ctx) != nil {
		return ctx
	}
	return Afresh(ctx)
}

// Afresh is [Together] for calls that do not count with those before.
func Afresh(ctx context.Context) context.Context {
	return context.WithValue(ctx, outageKey{}, new(Outage))
}

// OutageOf returns the outage of a context from [Together], or nil.
func OutageOf(ctx context.Context) *Outage {
	o, _ := ctx.Value(outageKey{}).(*Outage)
	return o
}

// Since returns the beginning of an outage, or t outside one.
func (o *Outage) Since(t time.Time) time.Time {
	if o != nil {
		if since := o.since.Load(); since != nil {
			return *since
		}
	}
	return t
}

// Begin records that calls have not reached the store since t, or since an earlier time.
func (o *Outage) Begin(t time.Time) {
	if o != nil {
		o.since.CompareAndSwap(nil, &t)
	}
}

// End records that a call has reached the store.
func (o *Outage) End() {
	if o != nil && o.since.Load() != nil {
		o.since.Store(nil)
	}
}
