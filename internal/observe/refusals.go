package observe

import (
	"context"
	"errors"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/internal/errs"
)

// callAccess is the call of refusals by the access check, which comes before every call.
const callAccess = "access"

// accessRefusals are the reasons of refusals by the access check.
var accessRefusals = []*gq.Error{gq.ErrDenied, gq.ErrUnauthenticated, gq.ErrRateLimited}

// refusals counts what the queue refused: whole calls, and single items of calls.
type refusals struct{ by *prometheus.CounterVec }

func newRefusals(registry *prometheus.Registry) refusals {
	r := refusals{prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "gq_refused_total", Help: "Refused jobs, claims, heartbeats and outcomes, and as access calls without the rights they need, by the code of the error.",
	}, []string{"call", "reason"})}
	registry.MustRegister(r.by)
	for _, name := range callNames { // so that the first refusal is an increase
		r.by.WithLabelValues(name, gq.ErrDiskFull.Code)
	}
	for _, reason := range accessRefusals {
		r.by.WithLabelValues(callAccess, reason.Code)
	}
	return r
}

// add counts a refusal. A call that its caller gave up was not refused.
func (r refusals) add(which int, err error) {
	if err == nil || errs.KindOf(err) == gq.KindInternal && (errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)) {
		return
	}
	r.by.WithLabelValues(callNames[which], errs.CodeOf(err)).Inc()
}

// access counts a refusal by the access check. Other errors are those of the store.
func (r refusals) access(err error) {
	for _, reason := range accessRefusals {
		if errors.Is(err, reason) {
			r.by.WithLabelValues(callAccess, reason.Code).Inc()
		}
	}
}

// leases counts those that a call about leases refused.
func (r refusals) leases(which int, answers []gq.LeaseResult, err error) {
	r.add(which, err)
	for i := range answers {
		r.add(which, answers[i].Err)
	}
}
