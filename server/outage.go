package server

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/internal/errs"
)

// outageProbe is how often a server asks whether a store that was unreachable answers again.
const outageProbe = time.Second

// outage writes one line to the log when the store becomes unreachable, and one when it answers
// again, instead of one for everything that fails meanwhile.
type outage struct {
	log *slog.Logger // without the rule

	mu       sync.Mutex
	watching bool          // somebody finds out when it is over; guarded by mu
	since    time.Time     // zero while the store answers; guarded by mu
	began    chan struct{} // holds one
}

func newOutage(log *slog.Logger) *outage { return &outage{log: log, began: make(chan struct{}, 1)} }

// quiet returns the logger for everything that uses the store.
func (o *outage) quiet() *slog.Logger { return slog.New(outageHandler{o.log.Handler(), o}) }

// begin reports whether an error of the store is the first of an outage, and whether there is one.
func (o *outage) begin() (first, during bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.watching {
		return false, false
	}
	if first = o.since.IsZero(); first {
		o.since = time.Now()
		o.began <- struct{}{}
	}
	return first, true
}

// watch looks for the ends of outages until the context ends.
func (o *outage) watch(ctx context.Context, probe func(context.Context) error) error {
	set := func(on bool) {
		o.mu.Lock()
		defer o.mu.Unlock()
		o.watching = on
	}
	set(true)
	defer set(false)
	tick := time.NewTicker(outageProbe)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-o.began:
		}
		for over := false; !over; {
			select {
			case <-ctx.Done():
				return nil
			case <-tick.C:
			}
			within, cancel := context.WithTimeout(ctx, 5*outageProbe)
			err := probe(within)
			cancel()
			over = err == nil || ctx.Err() == nil && errs.KindOf(err) != gq.KindUnavailable && errs.KindOf(err) != gq.KindTimeout
		}
		o.mu.Lock()
		lasted := time.Since(o.since)
		o.since = time.Time{}
		o.mu.Unlock()
		o.log.Info("the store answers again", "event", "store_up", "outage_ms", lasted.Milliseconds())
	}
}

// outageHandler hides warnings about an unreachable store after the first.
type outageHandler struct {
	slog.Handler
	outage *outage
}

// Handle implements [slog.Handler].
func (h outageHandler) Handle(ctx context.Context, r slog.Record) error {
	if r.Level >= slog.LevelWarn && unreachable(r) {
		first, during := h.outage.begin()
		switch {
		case first:
			r.AddAttrs(slog.String("outage", "the store is unreachable; further failures are not logged until it answers"))
		case during:
			return nil
		}
	}
	return h.Handler.Handle(ctx, r)
}

// WithAttrs implements [slog.Handler].
func (h outageHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return outageHandler{h.Handler.WithAttrs(attrs), h.outage}
}

// WithGroup implements [slog.Handler].
func (h outageHandler) WithGroup(name string) slog.Handler {
	return outageHandler{h.Handler.WithGroup(name), h.outage}
}

// unreachable reports whether a line has an error of a store that cannot be reached.
func unreachable(r slog.Record) (found bool) {
	r.Attrs(func(a slog.Attr) bool {
		err, ok := a.Value.Any().(error)
		found = found || ok && errs.CodeOf(err) == gq.ErrUnavailable.Code
		return !found
	})
	return found
}
