package matchmaker

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/internal/matchmaker/audit"
	"github.com/gopherqueue/gq/internal/matchmaker/registry"
	"github.com/gopherqueue/gq/machine"
	"github.com/gopherqueue/gq/match"
	"github.com/gopherqueue/gq/store"
)

// settingsSLA judges by the settings.
type settingsSLA match.SLA

func (s settingsSLA) Judge(_ context.Context, f match.Finding) (match.Judgement, error) {
	return match.Judgement{
		Penalty: match.PartOf(f.Stake, s.Slash), Reason: match.ProofInvalid.String(),
		Jail: s.JailAfter > 0 && f.Before+1 >= s.JailAfter,
	}, nil
}

// ReportProof reports that the proof of a lease is invalid. An active lease fails; if it
// has ended, only the provider is judged.
func (d *Dispatcher) ReportProof(ctx context.Context, lease gq.LeaseID, flaw string) error {
	l, err := d.Lease(ctx, lease)
	if err == nil && l.Status == gq.LeaseActive.String() && !l.Acked {
		err = gq.ErrIllegalMove.Errorf("it is not acknowledged yet, so there is none")
	}
	if err == nil {
		err = d.refuse(ctx, Ref{Lease: lease}, match.Finding{Provider: l.Provider, Job: l.Job, Lease: lease, Flaw: flaw})
	}
	if err != nil {
		return fmt.Errorf("report the proof of lease %.80q: %w", lease, err)
	}
	return nil
}

// refuse fails the attempt of a finding, if its lease is still active, and judges the
// provider, in one commit.
func (d *Dispatcher) refuse(ctx context.Context, r Ref, f match.Finding) error {
	if len(f.Flaw) > gq.MaxReasonBytes {
		f.Flaw = f.Flaw[:gq.MaxReasonBytes]
	}
	verdict, err := d.judge(ctx, &f)
	if err != nil {
		return err
	}
	err = d.underHead(ctx, func(now time.Time) (*draft, func(), error) {
		p := d.registry.Get(f.Provider)
		if p == nil {
			return nil, nil, fmt.Errorf("provider %.80q: %w", f.Provider, gq.ErrNotFound)
		}
		var t draft
		next := d.head
		s, done := p.Account.Statement(), func() {}
		if l := d.ledger.Lease(f.Lease); l != nil {
			t.updates = []store.Update{{Ref: store.Ref{Job: f.Job}, Apply: disprove(r, f.Flaw)}}
			done = func() { d.ledger.Close(l) }
			s.Remove(f.Lease)
		}
		s.Note(match.ProofInvalid, 0, now.Unix(), &d.settings)
		penalty := min(verdict.Penalty, p.Stake)
		if penalty > 0 {
			s.Slashed += penalty
			d.putProfile(&t, p, now, func(next *registry.Profile) { next.Stake -= penalty })
			t.tell(d.queue, gq.EventProviderSlashed, p.ID, verdict.Reason, penalty)
		}
		if d.options.Hooks.Rulings != nil {
			next.Rulings++
			record := match.Ruling{Number: next.Rulings, Finding: f, Judgement: verdict, At: now.UTC()}
			record.Penalty = max(0, penalty)
			t.put(kindRuling, audit.Name(next.Rulings), 0, record, nil)
		}
		t.head = func(h *head) { h.Rulings = next.Rulings }
		t.putStatement(p.Account, s)
		return &t, done, nil
	})
	if err != nil {
		return err
	}
	d.rulings.wake()
	if verdict.Jail {
		_, err = d.SetStatus(ctx, f.Provider, match.Jailed, verdict.Reason)
	}
	return err
}

// judge completes a finding and asks the SLA engine about it. No lock is held meanwhile, so
// that rounds go on while an engine elsewhere takes its time.
func (d *Dispatcher) judge(ctx context.Context, f *match.Finding) (match.Judgement, error) {
	p, err := d.Provider(ctx, f.Provider)
	if err != nil {
		return match.Judgement{}, err
	}
	f.Stake, f.Before = p.Stake, p.Findings
	sla := d.options.Hooks.SLA
	if sla == nil {
		set, err := d.Settings(ctx)
		if err != nil {
			return match.Judgement{}, err
		}
		sla = settingsSLA(set.SLA)
	}
	verdict, err := sla.Judge(ctx, *f)
	if err != nil {
		d.log.Warn("judge a finding", "provider", f.Provider, "lease", f.Lease, "error", err)
		return match.Judgement{}, errUnchecked.Errorf("the SLA engine cannot judge now; repeat the call later")
	}
	if len(verdict.Reason) > gq.MaxReasonBytes {
		verdict.Reason = verdict.Reason[:gq.MaxReasonBytes]
	}
	return verdict, nil
}

// disprove fails an attempt because of its proof, unless it ended meanwhile.
func disprove(r Ref, flaw string) store.Apply {
	fail := failing(r, match.CodeProofInvalid, flaw)
	return func(s gq.State, now time.Time) (gq.State, []gq.Event, error) {
		if !held(&s, r) {
			return s, nil, nil
		}
		next, events, err := fail(s, now)
		if errors.Is(err, gq.ErrStaleLease) {
			return machine.Advance(s, machine.Draw{}, now)
		}
		return next, events, err
	}
}
