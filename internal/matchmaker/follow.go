package matchmaker

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/internal/matchmaker/audit"
	"github.com/gopherqueue/gq/internal/matchmaker/ledger"
	"github.com/gopherqueue/gq/machine"
	"github.com/gopherqueue/gq/match"
	"github.com/gopherqueue/gq/store"
)

// page is the most events or jobs that one call reads.
const page = 1000

// tooFar is how many events, most of them of other queues, are read before it is cheaper
// to reread the jobs of this queue.
const tooFar = 100_000

// catchUp reads what has changed: documents that other nodes wrote, and the jobs and
// leases of new events. The caller holds mu.
func (d *Dispatcher) catchUp(ctx context.Context) error {
	if err := d.readClock(ctx); err != nil {
		return err
	}
	if !d.loaded {
		return d.load(ctx)
	}
	if err := d.catchUpDocs(ctx); err != nil {
		return err
	}
	newest, err := d.store.LastEvent(ctx)
	if err != nil {
		return err
	}
	if newest-d.after > tooFar && int(newest-d.after) > 4*(d.backlog.Len()+d.ledger.Len()) {
		return d.load(ctx)
	}
	for d.after < newest {
		events, err := d.store.Events(ctx, d.after, page)
		if errors.Is(err, gq.ErrGone) {
			return d.load(ctx)
		}
		if err != nil {
			return err
		}
		if len(events) == 0 {
			return nil
		}
		if err := d.follow(ctx, events); err != nil {
			d.loaded = false // some of them may have been applied
			return err
		}
		d.after = events[len(events)-1].Seq
	}
	return nil
}

// catchUpDocs rereads the documents if another node has changed the head.
func (d *Dispatcher) catchUpDocs(ctx context.Context) error {
	var h head
	version, err := d.find(ctx, kindState, nameHead, &h)
	if err != nil {
		return err
	}
	if version == d.headVersion && !d.stale {
		return nil
	}
	d.loaded = false // until everything is read
	if err := d.readSettings(ctx); err != nil {
		return err
	}
	unknown, err := d.readProviders(ctx)
	if err != nil {
		return err
	}
	if err := d.inspect(ctx, unknown); err != nil {
		return err
	}
	if h.Round != d.head.Round {
		d.audit, d.grants = audit.Log{}, ledger.Grants{} // another node recorded a round
	}
	d.head, d.headVersion, d.stale, d.loaded = h, version, false, true
	return nil
}

// inspect reads the jobs of leases that another node granted.
func (d *Dispatcher) inspect(ctx context.Context, leases []*ledger.Lease) error {
	held := make(map[gq.LeaseID]*gq.State)
	for some := range slices.Chunk(leases, page) {
		refs := make([]store.Ref, len(some))
		for i, l := range some {
			refs[i] = store.Ref{Job: l.Job}
		}
		found, err := d.store.Get(ctx, refs, 0)
		if err != nil {
			return err
		}
		for i := range found {
			if found[i].Err == nil {
				if err := d.job(ctx, &found[i].Job, held); err != nil {
					return err
				}
			}
		}
	}
	return d.reconcile(ctx, leases, held)
}

// job applies the current state of a job. If the job is held, it is added to held.
func (d *Dispatcher) job(ctx context.Context, j *gq.Job, held map[gq.LeaseID]*gq.State) error {
	defer d.ledger.ForgetPast(j.State.ID)
	switch s := &j.State; {
	case s.Status.Held():
		d.backlog.Drop(s.ID)
		if held != nil {
			held[s.Lease.ID] = s
		}
		if l := d.ledger.Lease(s.Lease.ID); l != nil {
			d.ledger.SetExpiry(l, s.Lease.ExpiresAt)
		}
		return nil
	case s.Status.Terminal(), s.Status == gq.StatusPending: // pending: it waits for another job
		d.backlog.Drop(s.ID)
		return nil
	default:
		return d.enqueue(ctx, j)
	}
}

// follow applies events: leases that ended, and jobs that changed.
func (d *Dispatcher) follow(ctx context.Context, events []gq.Event) error {
	var changed []store.Ref
	seen := make(map[gq.JobID]bool)
	for i := range events {
		e := &events[i]
		if e.Queue != d.queue {
			continue
		}
		if l := d.ledger.Lease(e.Lease); l != nil {
			if o := match.OutcomeOf(e); o != 0 {
				d.ledger.Settle(l, o, e.Time, &d.settings)
			}
		}
		if !seen[e.Job] {
			seen[e.Job] = true
			changed = append(changed, store.Ref{Job: e.Job})
		}
	}
	if len(changed) == 0 {
		return nil
	}
	found, err := d.store.Get(ctx, changed, 0)
	if err != nil {
		return err
	}
	for i := range found {
		switch {
		case errors.Is(found[i].Err, gq.ErrNotFound):
			d.backlog.Drop(changed[i].Job)
			d.ledger.ForgetPast(changed[i].Job)
		case found[i].Err != nil:
			return found[i].Err
		default:
			if err := d.job(ctx, &found[i].Job, nil); err != nil {
				return err
			}
		}
	}
	return nil
}

// enqueue adds a waiting job to the backlog.
func (d *Dispatcher) enqueue(ctx context.Context, j *gq.Job) error {
	w, err := waitingOf(j, d.reader)
	if err != nil {
		d.log.Warn("ignoring an invalid job in the matching queue", "job", j.State.ID, "error", err)
		return nil
	}
	s := &j.State
	if past, known := d.ledger.Past(s.ID, s.Version); known {
		w.Past = past
	} else if int(s.Version) > s.Faults { // it had a lease that cost no attempt
		history, err := d.store.History(ctx, s.ID)
		if err != nil {
			return fmt.Errorf("history of job %s: %w", s.ID, err)
		}
		w.Past = pastLeases(history, s.Faults)
	}
	d.backlog.Put(w, d.now())
	return nil
}

// pastLeases lists the leases that a job had since its last fault.
func pastLeases(history []gq.Event, faults int) (leases []ledger.PastLease) {
	failed := 0
	for i := range history {
		e := &history[i]
		if e.Type == gq.EventClaimed && failed == faults {
			leases = append(leases, ledger.PastLease{Provider: e.Worker, Lease: e.Lease})
		}
		if e.Failure != nil && match.FaultOf(e.Failure.Code) != 0 {
			failed++
		}
	}
	return leases
}

// sweep expires leases and makes jobs available whose run time has come.
func (d *Dispatcher) sweep(ctx context.Context, now time.Time) error {
	for {
		expired := d.ledger.TakeExpired(now, page)
		if len(expired) == 0 {
			break
		}
		updates := make([]store.Update, len(expired))
		for i, l := range expired {
			updates[i] = store.Update{Ref: store.Ref{Job: l.Job}, Apply: advance, Yield: true}
		}
		if _, err := d.store.Update(ctx, updates); err != nil {
			d.loaded = false
			return err
		}
		if err := d.catchUp(ctx); err != nil {
			return err
		}
		for _, l := range expired {
			if d.ledger.Lease(l.Lease) == l && !l.Timed() { // the store's clock is behind ours
				d.ledger.SetExpiry(l, now.Add(minPause))
			}
		}
	}
	d.backlog.Advance(now)
	return nil
}

// advance applies to a job what time has made due. Delays of matching have no jitter.
func advance(s gq.State, now time.Time) (gq.State, []gq.Event, error) {
	return machine.Advance(s, machine.Draw{}, now)
}
