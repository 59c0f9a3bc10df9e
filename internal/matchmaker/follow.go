package matchmaker

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/machine"
	"github.com/gopherqueue/gq/match"
	"github.com/gopherqueue/gq/store"
)

// page is how many events and jobs are read at a time.
const page = 1000

// tooFar is how many events of other queues are read before it is cheaper to
// read the jobs of this one anew.
const tooFar = 100_000

// catchUp brings what is known up to the present: documents that others have
// changed, and what the events tell of jobs and leases. The caller holds mu.
func (d *Dispatcher) catchUp(ctx context.Context) error {
	if err := d.listen(ctx); err != nil {
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
	if newest-d.after > tooFar && int(newest-d.after) > 4*(len(d.backlog.jobs)+len(d.leases)) {
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
			d.loaded = false // some of it may be known by half
			return err
		}
		d.after = events[len(events)-1].Seq
	}
	return nil
}

// catchUpDocs reads documents anew that someone else may have changed.
func (d *Dispatcher) catchUpDocs(ctx context.Context) error {
	var h head
	version, err := d.find(ctx, kindState, nameHead, &h)
	if err != nil {
		return err
	}
	if version == d.headVersion && !d.stale {
		return nil
	}
	d.loaded = false // until it is known again
	if err := d.readSettings(ctx); err != nil {
		return err
	}
	var fresh []*lease
	if err := d.readProviders(ctx, &fresh); err != nil {
		return err
	}
	if err := d.inspect(ctx, fresh); err != nil {
		return err
	}
	if h.Round != d.head.Round {
		d.ledger, d.grants = ledger{}, window{} // the records of others are not known here
	}
	d.head, d.headVersion, d.stale, d.loaded = h, version, false, true
	return nil
}

// inspect reads the jobs of leases that someone else has given.
func (d *Dispatcher) inspect(ctx context.Context, fresh []*lease) error {
	held := make(map[gq.LeaseID]*gq.State)
	for from := 0; from < len(fresh); from += page {
		some := fresh[from:min(from+page, len(fresh))]
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
	return d.reconcile(ctx, fresh, held)
}

// job takes note of how a job stands.
func (d *Dispatcher) job(ctx context.Context, j *gq.Job, held map[gq.LeaseID]*gq.State) error {
	defer delete(d.ended, j.State.ID)
	switch s := &j.State; {
	case s.Status.Held():
		d.backlog.drop(s.ID)
		if held != nil {
			held[s.Lease.ID] = s
		}
		if l := d.leases[s.Lease.ID]; l != nil {
			d.lasts(l, s.Lease.ExpiresAt)
		}
		return nil
	case s.Status.Terminal(), s.Status == gq.StatusPending: // or it waits for another job
		d.backlog.drop(s.ID)
		return nil
	default:
		return d.enqueue(ctx, j)
	}
}

// follow takes in events: ends of leases, and jobs that changed.
func (d *Dispatcher) follow(ctx context.Context, events []gq.Event) error {
	var changed []store.Ref
	seen := make(map[gq.JobID]bool)
	for i := range events {
		e := &events[i]
		if e.Queue != d.queue {
			continue
		}
		if l := d.leases[e.Lease]; l != nil && e.Lease != "" {
			if o := match.OutcomeOf(e); o != 0 {
				d.settled(l, o, e.Time)
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
			d.backlog.drop(changed[i].Job)
			delete(d.ended, changed[i].Job)
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

// enqueue enters a job that waits.
func (d *Dispatcher) enqueue(ctx context.Context, j *gq.Job) error {
	w, err := waitingOf(j, d.reader)
	if err != nil {
		d.log.Warn("a job of the matching queue is not one of a round", "job", j.State.ID, "error", err)
		return nil
	}
	if s, e := &j.State, d.ended[j.State.ID]; e.version > 0 && e.version == s.Version {
		w.leases = e.leases
	} else if int(s.Version) > s.Faults { // it had a lease that cost no attempt
		history, err := d.store.History(ctx, s.ID)
		if err != nil {
			return fmt.Errorf("history of job %s: %w", s.ID, err)
		}
		w.leases = pastLeases(history, s.Faults)
	}
	d.backlog.put(w, d.now())
	return nil
}

// pastLeases are the leases of a job after so many faults that ended without
// another.
func pastLeases(history []gq.Event, faults int) (leases []past) {
	failed := 0
	for i := range history {
		e := &history[i]
		if e.Type == gq.EventClaimed && failed == faults {
			leases = append(leases, past{e.Worker, e.Lease})
		}
		if e.Failure != nil && match.FaultOf(e.Failure.Code) != 0 {
			failed++
		}
	}
	return leases
}

// sweep lets time have its due: leases that have run out end.
func (d *Dispatcher) sweep(ctx context.Context, now time.Time) error {
	for {
		var due []*lease
		for d.timers.len() > 0 && !d.timers.items[0].until.After(now) && len(due) < page {
			due = append(due, d.timers.items[0])
			d.timers.remove(0)
		}
		if len(due) == 0 {
			break
		}
		updates := make([]store.Update, len(due))
		for i, l := range due {
			updates[i] = store.Update{Ref: store.Ref{Job: l.Job}, Apply: advance, Yield: true}
		}
		if _, err := d.store.Update(ctx, updates); err != nil {
			d.loaded = false
			return err
		}
		if err := d.catchUp(ctx); err != nil {
			return err
		}
		for _, l := range due {
			if d.leases[l.Lease] == l && l.inTimers < 0 { // the store's clock is not there yet
				d.lasts(l, now.Add(shortest))
			}
		}
	}
	d.backlog.due(now)
	return nil
}

// advance is what time does to a job. Its delays depend on nothing drawn.
func advance(s gq.State, now time.Time) (gq.State, []gq.Event, error) {
	return machine.Advance(s, machine.Draw{}, now)
}
