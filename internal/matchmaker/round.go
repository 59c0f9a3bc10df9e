package matchmaker

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/internal/errs"
	"github.com/gopherqueue/gq/internal/matchmaker/audit"
	"github.com/gopherqueue/gq/internal/matchmaker/backlog"
	"github.com/gopherqueue/gq/internal/matchmaker/ledger"
	"github.com/gopherqueue/gq/machine"
	"github.com/gopherqueue/gq/match"
	"github.com/gopherqueue/gq/store"
)

// Round is a round's result and its input.
type Round struct {
	Number uint64 // 0 if it assigned nothing and so was not recorded
	At     match.Beacon
	Now    int64
	match.Result
	Unserved []Unserved
}

// Unserved describes jobs that no provider in the snapshot could ever serve.
type Unserved = backlog.Unserved

// at returns the position of the chain: the beacon's, or that of the settings' clock.
func (d *Dispatcher) at(now int64) match.Beacon {
	if d.beacon != nil {
		return d.beacon.Beacon
	}
	b := match.Beacon{Chain: d.settings.Clock.Chain}
	b.Epoch, b.Height = d.settings.Clock.At(now)
	return b
}

// snapshot lists the providers that take part in a round, by id.
func (d *Dispatcher) snapshot(ctx context.Context, epoch, now int64) ([]match.Provider, error) {
	if err := d.refreshHeartbeats(ctx, now); err != nil {
		return nil, err
	}
	members := make([]match.Provider, 0, d.registry.Len())
	for _, p := range d.registry.ByID() {
		v := p.View(&d.settings.Health, epoch, now)
		eligible := d.settings.Eligible(&v, now)
		d.setMember(p, eligible)
		if eligible {
			members = append(members, v)
		}
	}
	return members, nil
}

// input collects the input of a round.
func (d *Dispatcher) input(ctx context.Context, now time.Time) (match.Input, []*backlog.Job, error) {
	secs := now.Unix()
	at := d.at(secs)
	in := match.Input{
		Chain: at.Chain, Epoch: at.Epoch, Height: at.Height, Beacon: at.Beacon, Now: secs,
		Matches: d.head.Matches, Policy: d.settings.Policy,
	}
	seed := in.Seed()
	if d.head.Seed == seed {
		in.Rotation = d.head.Under
	}
	var err error
	if in.Providers, err = d.snapshot(ctx, at.Epoch, secs); err != nil {
		return in, nil, err
	}
	listed, err := d.listWaiting(ctx, in.Policy.BatchSize)
	if err != nil {
		return in, nil, err
	}
	jobs := d.backlog.Select(now, in.Policy.BatchSize, listed)
	if len(jobs) > 0 {
		q, err := d.engine.Queue(ctx, d.queue)
		if err != nil && !errors.Is(err, gq.ErrNotFound) {
			return in, nil, err
		}
		if q.Paused {
			jobs = nil
		}
	}
	in.Jobs = make([]match.Job, len(jobs))
	for i, w := range jobs {
		in.Jobs[i] = w.Job
		in.Jobs[i].Excluded = excluded(w, seed)
	}
	weighTiers(&in)
	in.Grants, err = d.granted(ctx, jobs, secs)
	return in, jobs, err
}

// jobIndex is implemented by a store that lists waiting jobs by an index in the order of rounds.
type jobIndex interface {
	// WaitingJobs returns the first n waiting jobs of each kind. ok is false if the store has no
	// index for these weights.
	WaitingJobs(ctx context.Context, p *match.Priority, n int) (ids []gq.JobID, ok bool, err error)
}

// listWaiting returns the jobs that come first by the index of the store; nil if there is none.
// Some of them are not due or cannot be served, so it asks for more than a round takes.
func (d *Dispatcher) listWaiting(ctx context.Context, batch int64) ([]gq.JobID, error) {
	index, ok := d.store.(jobIndex)
	if !ok || d.queue != DefaultQueue || !d.backlog.HasServable() {
		return nil, nil
	}
	listed, _, err := index.WaitingJobs(ctx, &d.settings.Priority, 2*int(batch))
	if err != nil && ctx.Err() == nil && errs.KindOf(err) != gq.KindUnavailable {
		d.log.Warn("rounds read no index of waiting jobs", "error", err)
		return nil, nil
	}
	return listed, err
}

// weighTiers gives every tier of the jobs a weight in the policy: 0 for a tier that was
// removed from the configuration after the job was submitted.
func weighTiers(in *match.Input) {
	own := false
	for i := range in.Jobs {
		tier := in.Jobs[i].Tier
		if _, known := in.Policy.Priority.Tiers[tier]; known || tier == "" {
			continue
		}
		if !own {
			own, in.Policy = true, in.Policy.Clone()
		}
		in.Policy.Priority.Tiers[tier] = 0
	}
}

// excluded lists the providers that already had a lease for this attempt of the job under
// this seed, since a second one would get the same lease id.
func excluded(w *backlog.Job, seed match.Seed) (ids []string) {
	for _, l := range w.Past {
		if seed.Lease(w.ID, l.Provider, w.Attempt) == l.Lease && !slices.Contains(ids, l.Provider) {
			ids = append(ids, l.Provider)
		}
	}
	slices.Sort(ids)
	return ids
}

// run runs a round and measures it. The caller holds mu.
func (d *Dispatcher) run(ctx context.Context, now time.Time, asked bool) (Round, error) {
	began := time.Now()
	r, ran, err := d.compute(ctx, now, asked)
	if !ran && err == nil {
		return r, nil
	}
	outcome := "empty"
	switch {
	case err != nil && overtaken(err):
		outcome = "overtaken"
	case err != nil:
		outcome = "failed"
	case r.Number > 0:
		outcome = "assigned"
	}
	assigned := len(r.Assignments)
	if err != nil {
		assigned = 0
	}
	d.options.Meter.Round(outcome, assigned, time.Since(began))
	return r, err
}

// compute computes a round and writes it. ran is false if there was nothing to decide.
func (d *Dispatcher) compute(ctx context.Context, now time.Time, asked bool) (r Round, ran bool, err error) {
	in, jobs, err := d.input(ctx, now)
	if err != nil {
		return Round{}, true, err
	}
	r = Round{At: match.Beacon{Chain: in.Chain, Epoch: in.Epoch, Height: in.Height, Beacon: in.Beacon}, Now: in.Now}
	if len(in.Jobs) == 0 && !asked {
		return r, false, nil
	}
	if r.Result, err = match.Match(&in); err != nil {
		return Round{}, true, fmt.Errorf("decide: %w", err)
	}
	r.Unserved = d.backlog.Unserved()
	if len(r.Assignments) == 0 {
		return r, true, nil
	}
	r.Number = d.head.Round + 1
	return r, true, d.assign(ctx, &in, &r, jobs)
}

// assign writes a round's result in one commit: jobs, ledger, record and head.
func (d *Dispatcher) assign(ctx context.Context, in *match.Input, r *Round, jobs []*backlog.Job) error {
	byID := make(map[string]*backlog.Job, len(jobs))
	for _, j := range jobs {
		byID[j.ID] = j
	}
	next := d.head
	next.Round, next.Matches = r.Number, next.Matches+int64(len(r.Assignments))
	if next.Seed != r.Seed {
		next.Seed, next.Under = r.Seed, 0
	}
	next.Under += int64(len(r.Assignments))

	var t draft
	changed := make(map[*ledger.Account]*ledger.Statement)
	entries := make([]ledger.Entry, len(r.Assignments))
	for i, a := range r.Assignments {
		j, account := byID[a.Job], d.registry.Get(a.Provider).Account
		s := changed[account]
		if s == nil {
			s = account.Statement()
			changed[account] = s
		}
		entries[i] = ledger.Entry{
			Lease: a.Lease, Job: j.JobID, Kind: j.Kind, Units: j.Units, Epoch: in.Epoch,
			At: in.Now * int64(time.Second), Match: d.head.Matches + int64(i) + 1,
		}
		s.Open = append(s.Open, entries[i])
		s.Spend(j.Kind, in.Epoch, j.Units)
		t.updates = append(t.updates, store.Update{Ref: store.Ref{Job: j.JobID}, Apply: claim(a, j.Units)})
	}
	for _, p := range d.registry.ByID() {
		if len(changed) >= maxStatements {
			break
		}
		if p.Account.Dirty && changed[p.Account] == nil {
			changed[p.Account] = p.Account.Statement()
		}
	}
	for account, s := range changed {
		t.putStatement(account, s)
	}
	record := audit.Round{Round: r.Number, Input: *in, Result: r.Result, Unserved: r.Unserved}
	docs, base, recorded, err := d.audit.Record(&record, func(id string) uint64 { return d.registry.Get(id).Version })
	if err != nil {
		return err
	}
	next.Base = base
	for _, written := range docs {
		t.add(written, nil)
	}
	began := time.Now()
	states, err := d.commit(ctx, &t, next)
	if err != nil {
		d.postpone(err, jobs, r.Assignments)
		return err
	}
	recorded()
	d.rounds.wake()
	d.options.Meter.Assigned(states, time.Since(began))
	for i, e := range entries {
		j := byID[r.Assignments[i].Job]
		l := d.ledger.Open(d.registry.Get(r.Assignments[i].Provider).Account, e)
		l.Version, l.Before = states[i].Lease.Version, j.Past
		d.ledger.SetExpiry(l, states[i].Lease.ExpiresAt)
		d.backlog.Drop(j.JobID)
		d.grants.Add(j.Requester, in.Now)
	}
	return nil
}

// maxStatements is the most accounts that one commit writes.
const maxStatements = 512

// claim assigns an attempt of a job to a provider.
func claim(a match.Assignment, units int64) store.Apply {
	return func(s gq.State, now time.Time) (gq.State, []gq.Event, error) {
		if int64(s.Faults) != a.Attempt {
			return s, nil, fmt.Errorf("job %s is at attempt %d, not %d: %w", s.ID, s.Faults, a.Attempt, gq.ErrConflict)
		}
		return machine.Claim(s, machine.Grant{Lease: a.Lease, Worker: a.Provider, CostUnits: units}, now)
	}
}

// postpone briefly delays a job that made the commit of a round fail because its state
// was not the expected one.
func (d *Dispatcher) postpone(err error, jobs []*backlog.Job, assignments []match.Assignment) {
	refusal, ok := errors.AsType[*store.ChangeError](err)
	if !ok {
		return
	}
	id := assignments[refusal.Update].Job
	for _, j := range jobs {
		if j.ID == id {
			j.RunAt = d.now().Add(5 * minPause)
			d.backlog.Put(j, d.now())
		}
	}
}

// Recorded is a recorded round.
type Recorded = audit.Round

// RoundRecord returns a round that assigned something, or [gq.ErrNotFound] if it is older
// than the horizon.
func (d *Dispatcher) RoundRecord(ctx context.Context, n uint64) (Recorded, error) {
	return audit.Read(ctx, d.store, n)
}

// forgetEvery is how often old records are deleted.
const forgetEvery = time.Minute

// forgetRounds deletes records older than the horizon.
func (d *Dispatcher) forgetRounds(ctx context.Context, now time.Time) error {
	if now.Sub(d.forgot) < forgetEvery {
		return nil
	}
	d.forgot = now
	more, err := audit.Forget(ctx, d.store, now.Unix()-d.settings.TTL.GCHorizon)
	if more {
		d.forgot = time.Time{}
	}
	return err
}
