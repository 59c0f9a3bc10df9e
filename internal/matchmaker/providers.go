package matchmaker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/machine"
	"github.com/gopherqueue/gq/match"
	"github.com/gopherqueue/gq/store"
)

// Provider is one that is registered, as it stands.
type Provider struct {
	match.Provider
	Reason       string // of its status
	RegisteredAt int64
	UpdatedAt    int64
	Fails        int64 // in a row
	Findings     int64 // invalid proofs
	Slashed      int64 // stake it has lost
	Eligible     bool  // in the snapshot of a round at this moment
	New          bool  // made known by the very call that returns it
}

// owned are members of a provider that only the queue may set.
var owned = []string{"cooldown_until", "leases_active", "ai_units_used", "quantum_units_used"}

// Owned are the members of a provider that only the queue may set.
func Owned() []string { return slices.Clone(owned) }

// Register makes a provider known, or takes over what it says anew. Its first
// status is the one it gives; later ones go through SetStatus. Registering is a
// sign of life. Members that were given are named in given.
func (d *Dispatcher) Register(ctx context.Context, p match.Provider, given map[string]bool) (Provider, error) {
	var faults []gq.Fault
	for _, name := range owned {
		if given[name] {
			faults = append(faults, gq.Fault{Field: name, Problem: "is for the queue to count"})
		}
	}
	if len(faults) > 0 {
		return Provider{}, fmt.Errorf("register provider %.80q: %w", p.ID, &gq.InvalidError{Faults: faults})
	}
	isNew := false
	err := d.underHead(ctx, func(now time.Time) (*draft, func(), error) {
		known := d.providers[p.ID]
		isNew = known == nil
		made := profile{Provider: p, RegisteredAt: now.Unix(), UpdatedAt: now.Unix()}
		made.Health, made.LastHeartbeatAt = 0, 0
		var version uint64
		if known != nil {
			switch {
			case known.Status == match.Retired:
				return nil, nil, because(gq.ErrConflict, "it is %s, and who has retired does not come back", known.Status)
			case given["status"] && known.Status != p.Status:
				return nil, nil, because(gq.ErrConflict, "it is %s: registering again does not change that, setting its status does", known.Status)
			}
			made.Status, made.Reason, made.RegisteredAt, version = known.Status, known.Reason, known.RegisteredAt, known.version
		}
		var t draft
		t.put(kindProvider, p.ID, version, made, func(v uint64) {
			if d.adopt(made, v) {
				d.backlog.rebuild(&d.settings.Policy, now)
			}
		})
		if known == nil || given["health_ppb"] {
			b := &books{Standing: match.NewStanding(now.Unix())}
			var booked uint64
			if known != nil {
				b, booked = known.books(), known.booked
			}
			if given["health_ppb"] {
				b.Health, b.HealthAt = p.Health, now.Unix()
			}
			t.put(kindBooks, p.ID, booked, b, func(v uint64) {
				q := d.providers[p.ID]
				q.Standing, q.booked, q.dirty = b.Standing, v, false
			})
		}
		at := beat{now.Unix()}
		if given["last_heartbeat_at"] {
			at.At = p.LastHeartbeatAt
		}
		var beats uint64
		if known != nil {
			beats = known.beats
		} else if err := d.unusedBeat(ctx, p.ID, &beats); err != nil {
			return nil, nil, err
		}
		t.put(kindBeat, p.ID, beats, at, func(v uint64) {
			q := d.providers[p.ID]
			q.beat, q.beats = at.At, v
		})
		return &t, nil, nil
	})
	if err != nil {
		return Provider{}, fmt.Errorf("register provider %.80q: %w", p.ID, err)
	}
	d.poke()
	out, err := d.Provider(ctx, p.ID)
	out.New = isNew
	return out, err
}

// unusedBeat finds the version of a sign of life whose provider is not known.
func (d *Dispatcher) unusedBeat(ctx context.Context, id string, version *uint64) (err error) {
	var b beat
	*version, err = d.find(ctx, kindBeat, id, &b)
	return err
}

// underHead changes something that rounds depend on: change says what to write on
// the state of affairs it is called on, and what to do when it is written. It is
// called again where someone was faster.
func (d *Dispatcher) underHead(ctx context.Context, change func(now time.Time) (*draft, func(), error)) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	for n := 0; ; n++ {
		if err := d.catchUp(ctx); err != nil {
			return err
		}
		t, done, err := change(d.now())
		if err != nil || t == nil {
			return err
		}
		_, err = d.commit(ctx, t, d.head)
		switch {
		case err == nil:
			if done != nil {
				done()
			}
			return nil
		case !overtaken(err) || n >= tries:
			return err
		}
	}
}

// Heartbeat notes a sign of life.
func (d *Dispatcher) Heartbeat(ctx context.Context, id string) (Provider, error) {
	for n := 0; ; n++ {
		err := d.beat(ctx, id)
		if errors.Is(err, gq.ErrConflict) && n < tries {
			continue
		}
		if err != nil {
			return Provider{}, fmt.Errorf("heartbeat of provider %.80q: %w", id, err)
		}
		return d.Provider(ctx, id)
	}
}

func (d *Dispatcher) beat(ctx context.Context, id string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.catchUp(ctx); err != nil {
		return err
	}
	p := d.providers[id]
	if p == nil {
		return gq.ErrNotFound
	}
	now := d.now().Unix()
	if p.beat >= now {
		return nil
	}
	at := beat{now}
	written, err := doc(kindBeat, id, p.beats, at)
	if err != nil {
		return err
	}
	versions, err := d.store.PutDocs(ctx, []store.Doc{written})
	if errors.Is(err, gq.ErrConflict) { // given to another node
		return errors.Join(err, d.readBeats(ctx))
	}
	if err != nil {
		return err
	}
	silent := now-p.beat > d.settings.Eligibility.HeartbeatTimeout
	p.beat, p.beats = now, versions[0]
	if silent {
		d.poke()
	}
	return nil
}

// statusReasons are why leases of a provider are cancelled.
var statusReasons = map[match.Status]string{
	match.Jailed: "provider_jailed", match.Suspended: "provider_suspended", match.Retired: "provider_retired",
}

// SetStatus changes the standing of a provider. One that is no longer active
// loses its leases in the same commit, and their jobs may go to others at once.
// Who has retired does not come back.
func (d *Dispatcher) SetStatus(ctx context.Context, id string, s match.Status, reason string) (Provider, error) {
	err := d.underHead(ctx, func(now time.Time) (*draft, func(), error) {
		p := d.providers[id]
		switch {
		case p == nil:
			return nil, nil, gq.ErrNotFound
		case !s.Valid():
			return nil, nil, &gq.InvalidError{Faults: []gq.Fault{{Field: "status", Problem: fmt.Sprintf("must be one of %v", match.Statuses())}}}
		case len(reason) > gq.MaxReasonBytes:
			return nil, nil, &gq.InvalidError{Faults: []gq.Fault{{Field: "reason", Problem: fmt.Sprintf("has %d bytes, and %d are allowed", len(reason), gq.MaxReasonBytes)}}}
		case p.Status == match.Retired && s != match.Retired:
			return nil, nil, because(gq.ErrConflict, "it is %s, and who has retired does not come back", p.Status)
		case p.Status == s && p.Reason == reason:
			return nil, nil, nil
		}
		var t draft
		d.restate(&t, p, now, func(next *profile) { next.Status, next.Reason = s, reason })
		if s == match.Active {
			return &t, nil, nil
		}
		b := p.books()
		done := d.withdraw(&t, b, b.Open, statusReasons[s])
		d.writeBooks(&t, p, b)
		return &t, done, nil
	})
	if err != nil {
		return Provider{}, fmt.Errorf("set status of provider %.80q: %w", id, err)
	}
	d.poke()
	return d.Provider(ctx, id)
}

// restate has another version of a provider's profile written.
func (d *Dispatcher) restate(t *draft, p *provider, now time.Time, change func(*profile)) {
	next := p.profile
	change(&next)
	next.UpdatedAt = now.Unix()
	t.put(kindProvider, p.ID, p.version, next, func(v uint64) { d.adopt(next, v) })
}

// withdraw takes leases away: out of the books, and their jobs back to the
// queue. What it returns is to be called when that is written.
func (d *Dispatcher) withdraw(t *draft, b *books, taken []entry, reason string) (done func()) {
	taken = slices.Clone(taken)
	b.Open = slices.DeleteFunc(b.Open, func(e entry) bool {
		return slices.ContainsFunc(taken, func(x entry) bool { return x.Lease == e.Lease })
	})
	for _, e := range taken {
		t.updates = append(t.updates, store.Update{Ref: store.Ref{Job: e.Job}, Apply: revoke(e.Lease, reason)})
	}
	return func() {
		for _, e := range taken {
			if l := d.leases[e.Lease]; l != nil {
				d.forget(l)
			}
		}
	}
}

// revoke takes a lease away if it still is one. One that has run out ends as it
// would have by itself.
func revoke(id gq.LeaseID, reason string) store.Apply {
	return func(s gq.State, now time.Time) (gq.State, []gq.Event, error) {
		switch l := s.Lease; {
		case l == nil || l.ID != id || l.State != gq.LeaseActive:
			return s, nil, nil
		case l.Expired(now):
			return machine.Advance(s, machine.Draw{}, now)
		}
		next, events, err := machine.Revoke(s, gq.LeaseRef{ID: id}, reason, now)
		if errors.Is(err, gq.ErrStaleLease) { // its life is over
			return machine.Advance(s, machine.Draw{}, now)
		}
		return next, events, err
	}
}

// Provider reads one provider.
func (d *Dispatcher) Provider(ctx context.Context, id string) (Provider, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.catchUp(ctx); err != nil {
		return Provider{}, fmt.Errorf("provider %.80q: %w", id, err)
	}
	p := d.providers[id]
	if p == nil {
		return Provider{}, fmt.Errorf("provider %.80q: %w", id, gq.ErrNotFound)
	}
	now := d.now().Unix()
	if now > p.beat { // another node may have been told
		var b beat
		version, err := d.find(ctx, kindBeat, id, &b)
		if err != nil {
			return Provider{}, fmt.Errorf("provider %.80q: %w", id, err)
		}
		p.beat, p.beats = max(p.beat, b.At), version
	}
	return d.shown(p, now), nil
}

func (d *Dispatcher) shown(p *provider, now int64) Provider {
	v := d.view(p, d.at(now).Epoch, now)
	return Provider{
		Provider: v, Reason: p.Reason, RegisteredAt: p.RegisteredAt, UpdatedAt: p.UpdatedAt,
		Fails: p.Fails, Findings: p.Findings, Slashed: p.Slashed, Eligible: d.settings.Eligible(&v, now),
	}
}

// Providers lists those after an id, by id, up to a limit.
func (d *Dispatcher) Providers(ctx context.Context, after string, limit int) ([]Provider, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.catchUp(ctx); err != nil {
		return nil, fmt.Errorf("list providers: %w", err)
	}
	if err := d.freshen(ctx, d.now().Unix()); err != nil {
		return nil, fmt.Errorf("list providers: %w", err)
	}
	some := d.byID()
	first, found := slices.BinarySearchFunc(some, after, func(p *provider, id string) int { return strings.Compare(p.ID, id) })
	if found {
		first++
	}
	some = some[first:]
	now := d.now().Unix()
	list := make([]Provider, 0, min(limit, len(some)))
	for _, p := range some[:min(limit, len(some))] {
		list = append(list, d.shown(p, now))
	}
	return list, nil
}

// newest sorts entries, the last one given first.
func newest(open []entry) []entry {
	sorted := slices.Clone(open)
	slices.SortFunc(sorted, func(a, b entry) int { return cmp.Compare(b.Place, a.Place) })
	return sorted
}
