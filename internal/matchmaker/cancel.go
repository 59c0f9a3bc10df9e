package matchmaker

import (
	"context"
	"fmt"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/internal/matchmaker/audit"
	"github.com/gopherqueue/gq/internal/matchmaker/ledger"
	"github.com/gopherqueue/gq/machine"
	"github.com/gopherqueue/gq/store"
)

// Reasons of leases that an operator cancelled. The operator's own text follows a colon.
const (
	reasonLeaseCancelled = "lease_cancelled"
	reasonRoundCancelled = "round_cancelled"
)

// withText adds the operator's text to the reason of a cancelled lease. The reason goes
// first, so that no text can be taken for another reason.
func withText(reason, text string) string {
	if text != "" {
		reason += ": " + text
	}
	return machine.Truncate(reason, gq.MaxReasonBytes)
}

func checkReason(text string) error {
	if len(text) > gq.MaxReasonBytes {
		return &gq.InvalidError{Faults: []gq.Fault{{Field: "reason", Problem: fmt.Sprintf("has %d bytes, and %d are allowed", len(text), gq.MaxReasonBytes)}}}
	}
	return nil
}

// CancelJob ends a job. If a provider holds it, its lease is cancelled in the same commit:
// providers have no call that would tell them of a request to stop. Cancelling a cancelled
// job changes nothing; for any other ended job the error is [gq.ErrIllegalMove].
func (d *Dispatcher) CancelJob(ctx context.Context, id gq.JobID, reason string) (Job, error) {
	if err := checkReason(reason); err != nil {
		return Job{}, err
	}
	before, err := d.Job(ctx, id) // also rejects jobs of other queues
	if err != nil {
		return Job{}, err
	}
	began := time.Now()
	updated, err := d.store.Update(ctx, []store.Update{{Ref: store.Ref{Job: id}, Apply: cancelling(reason)}})
	if err == nil {
		err = updated[0].Err
	}
	if err != nil {
		return Job{}, fmt.Errorf("cancel job %s: %w", id, err)
	}
	if before.Lease != "" && !before.Tombstoned {
		d.options.Meter.Ended(updated[0].State, time.Since(began))
	}
	d.wake()
	return d.Job(ctx, id)
}

// cancelling cancels a job, and its lease if it is held.
func cancelling(reason string) store.Apply {
	return func(s gq.State, now time.Time) (gq.State, []gq.Event, error) {
		s, due, err := machine.Advance(s, machine.Draw{}, now)
		if err != nil {
			return s, nil, err
		}
		next, events, err := machine.Cancel(s, reason, now)
		if err != nil || !next.Status.Held() {
			return next, append(due, events...), err
		}
		ended, more, err := machine.Revoke(next, next.Lease.Ref(), reason, now)
		return ended, append(append(due, events...), more...), err
	}
}

// CancelLease takes a job away from its provider. The job can be assigned again at once, as
// the same attempt, and the provider is not at fault.
func (d *Dispatcher) CancelLease(ctx context.Context, r Ref, reason string) (Lease, error) {
	if err := checkReason(reason); err != nil {
		return Lease{}, err
	}
	return d.act(ctx, "cancel", r, func(s gq.State, now time.Time) (gq.State, []gq.Event, error) {
		return machine.Revoke(s, r.ref(), withText(reasonLeaseCancelled, reason), now)
	})
}

// RoundCancelled is the result of cancelling a round.
type RoundCancelled struct {
	Round     uint64
	Cancelled []gq.LeaseID // in the order of the round
	Ended     int          // leases of the round that had ended before
}

// CancelRound cancels the leases of a round that have not ended, all in one commit, as
// [Dispatcher.CancelLease] does. The record of the round stays. Repeating the call cancels
// nothing more.
func (d *Dispatcher) CancelRound(ctx context.Context, n uint64, reason string) (RoundCancelled, error) {
	if err := checkReason(reason); err != nil {
		return RoundCancelled{}, err
	}
	assigned, err := audit.ReadAssignments(ctx, d.store, n)
	if err != nil {
		return RoundCancelled{}, err
	}
	out := RoundCancelled{Round: n}
	err = d.underHead(ctx, func(time.Time) (*draft, func(), error) {
		var t draft
		var ends []func()
		out.Cancelled = nil
		changed := make(map[*ledger.Account]*ledger.Statement)
		for _, a := range assigned {
			l := d.ledger.Lease(a.Lease)
			if l == nil {
				continue
			}
			s := changed[l.Account]
			if s == nil {
				s = l.Account.Statement()
				changed[l.Account] = s
			}
			ends = append(ends, d.withdraw(&t, s, []ledger.Entry{l.Entry}, withText(reasonRoundCancelled, reason)))
			out.Cancelled = append(out.Cancelled, a.Lease)
		}
		if len(changed) == 0 {
			return nil, nil, nil
		}
		for account, s := range changed {
			t.putStatement(account, s)
		}
		return &t, func() {
			for _, done := range ends {
				done()
			}
		}, nil
	})
	if err != nil {
		return RoundCancelled{}, fmt.Errorf("cancel round %d: %w", n, err)
	}
	out.Ended = len(assigned) - len(out.Cancelled)
	d.wake()
	return out, nil
}
