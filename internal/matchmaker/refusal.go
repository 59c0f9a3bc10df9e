package matchmaker

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/gopherqueue/gq"
)

// leaseRefused says why a call about a lease was rejected. The job's state is not enough:
// it has only the newest lease, and not how that ended for the provider.
func (d *Dispatcher) leaseRefused(ctx context.Context, verb string, r Ref, err error) error {
	if why := d.refusalOf(ctx, verb, r, err); why != nil {
		err = why
	}
	return fmt.Errorf("%s lease %.80q: %w", verb, r.Lease, err)
}

// refusalOf finds the reason of a rejection in the lease's history, nil if there is none.
func (d *Dispatcher) refusalOf(ctx context.Context, verb string, r Ref, err error) error {
	illegal := errors.Is(err, gq.ErrIllegalMove)
	if !illegal && !errors.Is(err, gq.ErrStaleLease) {
		return nil
	}
	l, unread := d.readLease(ctx, r.Lease)
	switch {
	case errors.Is(unread, gq.ErrNotFound):
		return unread
	case unread != nil:
		return nil //nolint:nilerr // the caller returns the refusal itself
	case r.Provider != "" && r.Provider != l.Provider:
		return gq.ErrStaleLease.Errorf("provider %.80q does not hold it: it was given to another", r.Provider)
	case !l.EndedAt.IsZero():
		return gq.ErrStaleLease.Errorf("it has ended: %s", l.end())
	case illegal && !l.Acked:
		return gq.ErrIllegalMove.Errorf("it is not acknowledged yet: do that first, before %s", l.AckBy.UTC().Format(time.RFC3339))
	case illegal && verb == "decline":
		return gq.ErrIllegalMove.Errorf("it was acknowledged: what was begun can fail, but not be declined")
	case illegal && verb == "renew":
		return gq.ErrIllegalMove.Errorf("it was renewed %d times, which is as often as its terms allow: its deadline stays %s",
			l.Renewals, l.Deadline.UTC().Format(time.RFC3339))
	default:
		return nil
	}
}

// end describes how and when a lease ended.
func (l *Lease) end() string {
	how := l.Status
	if l.Reason != "" {
		how += " (" + l.Reason + ")"
	}
	return how + " at " + l.EndedAt.UTC().Format(time.RFC3339)
}
