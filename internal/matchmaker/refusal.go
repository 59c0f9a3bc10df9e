package matchmaker

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/gopherqueue/gq"
)

// refusedError says in its own words why a call is refused. What programs react to,
// kind and code, is that of the sentinel.
type refusedError struct {
	sentinel *gq.Error
	text     string
}

func (e *refusedError) Error() string { return e.text }
func (e *refusedError) Unwrap() error { return e.sentinel }

func because(sentinel *gq.Error, format string, args ...any) error {
	return &refusedError{sentinel, fmt.Sprintf(format, args...)}
}

// leaseRefused is why a call about a lease was refused. The job alone does not
// know: it remembers its newest lease, and not how that ended for the provider.
func (d *Dispatcher) leaseRefused(ctx context.Context, verb string, r Ref, err error) error {
	if why := d.leaseTells(ctx, verb, r, err); why != nil {
		err = why
	}
	return fmt.Errorf("%s lease %.80q: %w", verb, r.Lease, err)
}

// leaseTells is what the lease itself has to say about a refusal, nil if nothing.
func (d *Dispatcher) leaseTells(ctx context.Context, verb string, r Ref, err error) error {
	illegal := errors.Is(err, gq.ErrIllegalMove)
	if !illegal && !errors.Is(err, gq.ErrStaleLease) {
		return nil
	}
	l, unread := d.readLease(ctx, r.Lease)
	switch {
	case errors.Is(unread, gq.ErrNotFound):
		return unread
	case unread != nil:
		return nil //nolint:nilerr // the refusal is told as it is
	case r.Provider != "" && r.Provider != l.Provider:
		return because(gq.ErrStaleLease, "provider %.80q does not hold it: it was given to another", r.Provider)
	case !l.EndedAt.IsZero():
		return because(gq.ErrStaleLease, "it has ended: %s", l.end())
	case illegal && !l.Acked:
		return because(gq.ErrIllegalMove, "it is not acknowledged yet: do that first, before %s", l.AckBy.UTC().Format(time.RFC3339))
	case illegal && verb == "decline":
		return because(gq.ErrIllegalMove, "it was acknowledged: what was begun can fail, but not be declined")
	case illegal && verb == "renew":
		return because(gq.ErrIllegalMove, "it was renewed %d times, which is as often as its terms allow: its deadline stays %s",
			l.Renewals, l.Deadline.UTC().Format(time.RFC3339))
	default:
		return nil
	}
}

// end is how and when a lease ended.
func (l *Lease) end() string {
	how := l.Status
	if l.Reason != "" {
		how += " (" + l.Reason + ")"
	}
	return how + " at " + l.EndedAt.UTC().Format(time.RFC3339)
}
