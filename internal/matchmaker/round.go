package matchmaker

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/machine"
	"github.com/gopherqueue/gq/match"
	"github.com/gopherqueue/gq/store"
)

// Round is what a round decided, and on what.
type Round struct {
	Number uint64 // 0 where it assigned nothing and was not recorded
	At     match.Beacon
	Now    int64
	match.Result
	SetAside []Aside
}

// Aside is jobs that nobody in the snapshot could ever serve, so that no round
// looks at them.
type Aside struct {
	Like match.Job `json:"like"` // one of them, as far as its demands go
	Jobs int       `json:"jobs"`
}

// newName is a name for a process.
func newName() string { return rand.Text() }

// at is where the chain stands.
func (d *Dispatcher) at(now int64) match.Beacon {
	if d.beacon != nil {
		return *d.beacon
	}
	b := match.Beacon{Chain: d.settings.Clock.Chain}
	b.Epoch, b.Height = d.settings.Clock.At(now)
	return b
}

// join lets a provider take part in rounds, or no longer.
func (d *Dispatcher) join(p *provider, member bool) {
	if p.member == member {
		return
	}
	p.member = member
	by := -1
	if member {
		by = 1
	}
	for _, s := range d.backlog.shapes {
		if d.settings.Serves(&p.Provider, &s.sample) {
			s.servers += by
			d.backlog.settle(s)
		}
	}
}

// view is a provider as a round sees it.
func (d *Dispatcher) view(p *provider, epoch, now int64) match.Provider {
	v := p.Provider
	v.LastHeartbeatAt, v.LeasesActive = p.beat, int64(len(p.open))
	p.Standing.Enter(&v, &d.settings.Health, epoch, now)
	return v
}

// snapshot finds out who takes part at an instant, by id.
func (d *Dispatcher) snapshot(ctx context.Context, epoch, now int64) ([]match.Provider, error) {
	if err := d.freshen(ctx, now); err != nil {
		return nil, err
	}
	members := make([]match.Provider, 0, len(d.providers))
	for _, p := range d.byID() {
		v := d.view(p, epoch, now)
		eligible := d.settings.Eligible(&v, now)
		d.join(p, eligible)
		if eligible {
			members = append(members, v)
		}
	}
	return members, nil
}

// byID is all providers in the order of their ids.
func (d *Dispatcher) byID() []*provider {
	if d.ordered == nil {
		d.ordered = slices.Collect(maps.Values(d.providers))
		slices.SortFunc(d.ordered, func(a, b *provider) int { return strings.Compare(a.ID, b.ID) })
	}
	return d.ordered
}

// freshen looks for signs of life that other nodes were given, where one is
// about to be missed here.
func (d *Dispatcher) freshen(ctx context.Context, now int64) error {
	timeout := d.settings.Eligibility.HeartbeatTimeout
	if time.Since(d.beatsRead) < max(time.Second, time.Duration(timeout)*time.Second/6) {
		return nil
	}
	for _, p := range d.providers {
		if p.Status == match.Active && now-p.beat > timeout-timeout/3 {
			return d.readBeats(ctx)
		}
	}
	return nil
}

// What one commit, and the books of one provider, have room for. More than these there
// is in no round, whatever the policy allows.
const (
	MaxBatch = 512  // jobs of a round
	MaxOpen  = 4096 // leases of a provider
)

// policy is that of a round held now.
func (d *Dispatcher) policy() match.Policy {
	p := d.settings.Policy
	p.BatchSize = min(p.BatchSize, MaxBatch)
	p.Quotas.LeasesMax = min(p.Quotas.LeasesMax, MaxOpen)
	return p
}

// input is what a round is decided on.
func (d *Dispatcher) input(ctx context.Context, now time.Time) (match.Input, []*waiting, error) {
	secs := now.Unix()
	at := d.at(secs)
	in := match.Input{
		Chain: at.Chain, Epoch: at.Epoch, Height: at.Height, Beacon: at.Beacon, Now: secs,
		Matches: d.head.Matches, Policy: d.policy(),
	}
	seed := in.Seed()
	if d.head.Seed == seed {
		in.Rotation = d.head.Under
	}
	var err error
	if in.Providers, err = d.snapshot(ctx, at.Epoch, secs); err != nil {
		return in, nil, err
	}
	jobs := d.backlog.take(now, in.Policy.BatchSize)
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

// weighTiers has the policy of an input name every tier of its jobs. One that was taken
// out of the configuration since a job was submitted weighs nothing.
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

// excluded are the providers whose lease of this attempt under this seed the job
// has had: its id would repeat.
func excluded(w *waiting, seed match.Seed) (ids []string) {
	for _, l := range w.leases {
		if seed.Lease(w.ID, l.provider, w.Attempt) == l.lease && !slices.Contains(ids, l.provider) {
			ids = append(ids, l.provider)
		}
	}
	slices.Sort(ids)
	return ids
}

// hold decides a round and writes it. The caller holds mu.
func (d *Dispatcher) hold(ctx context.Context, now time.Time, asked bool) (Round, error) {
	in, jobs, err := d.input(ctx, now)
	if err != nil {
		return Round{}, err
	}
	r := Round{At: match.Beacon{Chain: in.Chain, Epoch: in.Epoch, Height: in.Height, Beacon: in.Beacon}, Now: in.Now}
	if len(in.Jobs) == 0 && !asked {
		return r, nil
	}
	if r.Result, err = match.Match(&in); err != nil {
		return Round{}, fmt.Errorf("a round of what is registered: %w", err)
	}
	r.SetAside = d.backlog.aside()
	if len(r.Assignments) == 0 {
		return r, nil
	}
	r.Number = d.head.Round + 1
	return r, d.assign(ctx, &in, &r, jobs)
}

// assign writes what a round decided: jobs, books, record and head, at once.
func (d *Dispatcher) assign(ctx context.Context, in *match.Input, r *Round, jobs []*waiting) error {
	byID := make(map[string]*waiting, len(jobs))
	for _, w := range jobs {
		byID[w.ID] = w
	}
	next := d.head
	next.Round, next.Matches = r.Number, next.Matches+int64(len(r.Assignments))
	if next.Seed != r.Seed {
		next.Seed, next.Under = r.Seed, 0
	}
	next.Under += int64(len(r.Assignments))

	var t draft
	changed := make(map[*provider]*books)
	given := make([]*lease, len(r.Assignments))
	for i, a := range r.Assignments {
		w, p := byID[a.Job], d.providers[a.Provider]
		b := changed[p]
		if b == nil {
			b = p.books()
			changed[p] = b
		}
		e := entry{
			Lease: a.Lease, Job: w.id, Kind: w.Kind, Units: w.Units, Epoch: in.Epoch,
			At: in.Now * int64(time.Second), Place: d.head.Matches + int64(i) + 1,
		}
		b.Open = append(b.Open, e)
		b.Spend(w.Kind, in.Epoch, w.Units)
		given[i] = &lease{entry: e, provider: p, inTimers: -1}
		t.updates = append(t.updates, store.Update{Ref: store.Ref{Job: w.id}, Apply: claim(a, w.Units)})
	}
	for _, p := range d.providers {
		if len(changed) >= maxBooks {
			break
		}
		if p.dirty && changed[p] == nil {
			changed[p] = p.books()
		}
	}
	for p, b := range changed {
		d.writeBooks(&t, p, b)
	}
	d.ledger.record(&t, in, r, &next, func(id string) uint64 { return d.providers[id].version })
	began := time.Now()
	states, err := d.commit(ctx, &t, next)
	if err != nil {
		d.postpone(err, jobs, r.Assignments)
		return err
	}
	if len(r.Assignments) > 0 {
		d.options.Meter.Assigned(states, time.Since(began))
	}
	for i, l := range given {
		w := byID[r.Assignments[i].Job]
		l.version, l.before = states[i].Lease.Version, w.leases
		d.backlog.drop(w.id)
		d.leases[l.Lease], l.provider.open[l.Lease] = l, l
		d.lasts(l, states[i].Lease.ExpiresAt)
		d.grants.add(w.Requester, in.Now)
	}
	return nil
}

// maxBooks is how many books one commit writes at most.
const maxBooks = 512

// claim gives an attempt of a job to a provider.
func claim(a match.Assignment, units int64) store.Apply {
	return func(s gq.State, now time.Time) (gq.State, []gq.Event, error) {
		if int64(s.Faults) != a.Attempt {
			return s, nil, fmt.Errorf("job %s is at attempt %d, not %d: %w", s.ID, s.Faults, a.Attempt, gq.ErrConflict)
		}
		return machine.Claim(s, machine.Grant{Lease: a.Lease, Worker: a.Provider, CostUnits: units}, now)
	}
}

// postpone leaves a job out for a moment that is not what it was believed to be.
func (d *Dispatcher) postpone(err error, jobs []*waiting, assignments []match.Assignment) {
	refusal, ok := errors.AsType[*store.ChangeError](err)
	if !ok {
		return
	}
	id := assignments[refusal.Update].Job
	for _, w := range jobs {
		if w.ID == id {
			w.runAt = d.now().Add(5 * shortest)
			d.backlog.put(w, d.now())
		}
	}
}

// books is a copy of a provider's books.
func (p *provider) books() *books {
	b := &books{Standing: p.Standing, Open: make([]entry, 0, len(p.open)+1)}
	for _, l := range p.open {
		b.Open = append(b.Open, l.entry)
	}
	slices.SortFunc(b.Open, func(a, b entry) int { return cmp.Compare(a.Place, b.Place) })
	return b
}

// writeBooks has books written, and taken over when they are.
func (d *Dispatcher) writeBooks(t *draft, p *provider, b *books) {
	t.put(kindBooks, p.ID, p.booked, b, func(v uint64) { p.Standing, p.booked, p.dirty = b.Standing, v, false })
}

// shownAside is how many shapes a record lists.
const shownAside = 20

// aside lists the shapes that nobody serves, the most wanted first.
func (b *backlog) aside() (list []Aside) {
	if !b.waits() {
		return nil
	}
	for _, s := range b.shapes {
		if s.servers <= 0 && s.queue.len() > 0 {
			like := s.sample
			like.ID, like.EnqueuedAt, like.Attempt, like.MaxFee, like.SizeBytes, like.Tier = "", 0, 0, 0, 0, ""
			list = append(list, Aside{like, s.queue.len()})
		}
	}
	slices.SortFunc(list, func(a, b Aside) int {
		return cmp.Or(cmp.Compare(b.Jobs, a.Jobs), cmp.Compare(a.Like.Kind, b.Like.Kind), strings.Compare(a.Like.Spec.Model, b.Like.Spec.Model))
	})
	return list[:min(len(list), shownAside)]
}
