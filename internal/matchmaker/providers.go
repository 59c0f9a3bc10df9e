package matchmaker

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/internal/matchmaker/ledger"
	"github.com/gopherqueue/gq/internal/matchmaker/registry"
	"github.com/gopherqueue/gq/machine"
	"github.com/gopherqueue/gq/match"
	"github.com/gopherqueue/gq/store"
)

// Provider is the current state of a registered provider.
type Provider struct {
	match.Provider
	Reason       string // of its status
	RegisteredAt int64
	UpdatedAt    int64
	Fails        int64 // consecutive failures
	Findings     int64 // invalid proofs
	Slashed      int64 // stake lost so far
	Eligible     bool  // a round now would include it in its snapshot
	New          bool  // registered by the call that returned it
}

// Owned lists the members of a provider that only the queue may set.
func Owned() []string { return registry.Owned() }

// Register adds a provider, or replaces its profile. The first registration sets its
// status; later changes go through SetStatus. Registering counts as a heartbeat. given
// names the members that the provider sent.
func (d *Dispatcher) Register(ctx context.Context, p match.Provider, given map[string]bool) (Provider, error) {
	isNew := false
	err := registry.CheckGiven(given)
	if err == nil {
		err = d.underHead(ctx, func(now time.Time) (*draft, func(), error) {
			known := d.registry.Get(p.ID)
			isNew = known == nil
			t, err := d.registration(ctx, known, p, given, now)
			return t, nil, err
		})
	}
	if err != nil {
		return Provider{}, fmt.Errorf("register provider %.80q: %w", p.ID, err)
	}
	d.wake()
	out, err := d.Provider(ctx, p.ID)
	out.New = isNew
	return out, err
}

// registration writes the profile of a provider, its heartbeat and, if it is new or sent
// its health, its account. known is nil for a new provider.
func (d *Dispatcher) registration(ctx context.Context, known *registry.Provider, p match.Provider, given map[string]bool, now time.Time) (*draft, error) {
	made, err := registry.Register(known, p, given["status"], now.Unix())
	if err != nil {
		return nil, err
	}
	was := registry.Provider{Account: ledger.NewAccount(p.ID, now.Unix())}
	if known != nil {
		was = *known
	} else if was.HeartbeatVersion, err = d.find(ctx, kindHeartbeat, p.ID, &registry.Heartbeat{}); err != nil {
		return nil, err
	}
	var t draft
	if known == nil {
		t.tellStatus(d.queue, p.ID, made.Status.String(), made.Reason)
	}
	t.put(kindProvider, p.ID, was.Version, made, func(v uint64) {
		if d.adopt(made, v) {
			d.backlog.Rebuild(&d.settings.Policy, now)
		}
	})
	if known == nil || given["health_ppb"] {
		s := was.Account.Statement()
		if given["health_ppb"] {
			s.Health, s.HealthAt = p.Health, now.Unix()
		}
		t.put(kindLedger, p.ID, was.Account.Version, s, func(v uint64) { d.registry.Get(p.ID).Account.Written(s, v) })
	}
	heartbeat := registry.Heartbeat{At: now.Unix()}
	if given["last_heartbeat_at"] {
		heartbeat.At = p.LastHeartbeatAt
	}
	t.put(kindHeartbeat, p.ID, was.HeartbeatVersion, heartbeat, func(v uint64) {
		q := d.registry.Get(p.ID)
		q.Heartbeat, q.HeartbeatVersion = heartbeat.At, v
	})
	return &t, nil
}

// underHead changes something that rounds depend on. change returns what to write, or
// nil, and a function to call after the commit; it runs again if another node was faster.
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
		case !overtaken(err) || n >= maxRetries:
			return err
		}
	}
}

// Heartbeat records that a provider is alive.
func (d *Dispatcher) Heartbeat(ctx context.Context, id string) (Provider, error) {
	for n := 0; ; n++ {
		err := d.heartbeat(ctx, id)
		if errors.Is(err, gq.ErrConflict) && n < maxRetries {
			continue
		}
		if err != nil {
			return Provider{}, fmt.Errorf("heartbeat of provider %.80q: %w", id, err)
		}
		return d.Provider(ctx, id)
	}
}

func (d *Dispatcher) heartbeat(ctx context.Context, id string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.catchUp(ctx); err != nil {
		return err
	}
	p := d.registry.Get(id)
	if p == nil {
		return gq.ErrNotFound
	}
	now := d.now().Unix()
	if p.Heartbeat >= now {
		return nil
	}
	made, err := doc(kindHeartbeat, id, p.HeartbeatVersion, registry.Heartbeat{At: now})
	if err != nil {
		return err
	}
	versions, err := d.store.PutDocs(ctx, []store.Doc{made})
	if errors.Is(err, gq.ErrConflict) { // another node received one
		return errors.Join(err, d.readHeartbeats(ctx))
	}
	if err != nil {
		return err
	}
	wasSilent := now-p.Heartbeat > d.settings.Eligibility.HeartbeatTimeout
	p.Heartbeat, p.HeartbeatVersion = now, versions[0]
	if wasSilent {
		d.wake()
	}
	return nil
}

// statusReasons has the reason for which each status cancels a provider's leases.
var statusReasons = map[match.Status]string{
	match.Jailed: "provider_jailed", match.Suspended: "provider_suspended", match.Retired: "provider_retired",
}

// SetStatus changes the status of a provider. One that is no longer active loses its
// leases in the same commit, and other providers can get the jobs at once. Retirement is
// final.
func (d *Dispatcher) SetStatus(ctx context.Context, id string, s match.Status, reason string) (Provider, error) {
	err := d.underHead(ctx, func(now time.Time) (*draft, func(), error) {
		p := d.registry.Get(id)
		if p == nil {
			return nil, nil, gq.ErrNotFound
		}
		if err := registry.CheckStatus(p, s, reason); err != nil {
			return nil, nil, err
		}
		if p.Status == s && p.Reason == reason {
			return nil, nil, nil
		}
		var t draft
		d.putProfile(&t, p, now, func(next *registry.Profile) { next.Status, next.Reason = s, reason })
		t.tellStatus(d.queue, id, s.String(), reason)
		if s == match.Active {
			return &t, nil, nil
		}
		account := p.Account.Statement()
		done := d.withdraw(&t, account, account.Open, statusReasons[s])
		t.putStatement(p.Account, account)
		return &t, done, nil
	})
	if err != nil {
		return Provider{}, fmt.Errorf("set status of provider %.80q: %w", id, err)
	}
	d.wake()
	return d.Provider(ctx, id)
}

// removed is what the log of events says of a provider that was removed, in place of a status.
const removed = "REMOVED"

// Remove removes a retired provider: its profile, account and heartbeat. The records of
// rounds and the history of its leases stay. Removing one that is not retired is
// [gq.ErrConflict]. The id can be registered again, as a new provider.
func (d *Dispatcher) Remove(ctx context.Context, id string) error {
	err := d.underHead(ctx, func(now time.Time) (*draft, func(), error) {
		p := d.registry.Get(id)
		if p == nil {
			return nil, nil, gq.ErrNotFound
		}
		if p.Status != match.Retired {
			return nil, nil, gq.ErrConflict.Errorf("it is %s, and only retired providers are removed: retire it first", p.Status)
		}
		var heartbeat registry.Heartbeat
		version, err := d.find(ctx, kindHeartbeat, id, &heartbeat) // another node may have written it
		if err != nil {
			return nil, nil, err
		}
		var t draft
		t.tellStatus(d.queue, id, removed, "")
		t.remove(kindProvider, id, p.Version)
		t.remove(kindLedger, id, p.Account.Version)
		t.remove(kindHeartbeat, id, version)
		return &t, func() {
			if d.forgetProvider(p) {
				d.backlog.Rebuild(&d.settings.Policy, now)
			}
		}, nil
	})
	if err != nil {
		return fmt.Errorf("remove provider %.80q: %w", id, err)
	}
	return nil
}

// putProfile writes the changed profile of a provider.
func (d *Dispatcher) putProfile(t *draft, p *registry.Provider, now time.Time, change func(*registry.Profile)) {
	next := p.Profile
	change(&next)
	next.UpdatedAt = now.Unix()
	t.put(kindProvider, p.ID, p.Version, next, func(v uint64) { d.adopt(next, v) })
}

// withdraw revokes leases: it removes them from the account and requeues their jobs. The
// caller calls done after the commit.
func (d *Dispatcher) withdraw(t *draft, s *ledger.Statement, entries []ledger.Entry, reason string) (done func()) {
	leases := make([]gq.LeaseID, len(entries))
	for i, e := range entries {
		leases[i] = e.Lease
		t.updates = append(t.updates, store.Update{Ref: store.Ref{Job: e.Job}, Apply: revoke(e.Lease, reason)})
	}
	s.Remove(leases...)
	return func() {
		for _, id := range leases {
			if l := d.ledger.Lease(id); l != nil {
				d.ledger.Close(l)
			}
		}
	}
}

// revoke cancels a lease that is still active. An expired lease ends as it would have
// without this call.
func revoke(id gq.LeaseID, reason string) store.Apply {
	return func(s gq.State, now time.Time) (gq.State, []gq.Event, error) {
		switch l := s.Lease; {
		case l == nil || l.ID != id || l.State != gq.LeaseActive:
			return s, nil, nil
		case l.Expired(now):
			return machine.Advance(s, machine.Draw{}, now)
		}
		next, events, err := machine.Revoke(s, gq.LeaseRef{ID: id}, reason, now)
		if errors.Is(err, gq.ErrStaleLease) { // its lifetime is over
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
	p := d.registry.Get(id)
	if p == nil {
		return Provider{}, fmt.Errorf("provider %.80q: %w", id, gq.ErrNotFound)
	}
	now := d.now().Unix()
	if now > p.Heartbeat { // another node may have received one
		var b registry.Heartbeat
		version, err := d.find(ctx, kindHeartbeat, id, &b)
		if err != nil {
			return Provider{}, fmt.Errorf("provider %.80q: %w", id, err)
		}
		p.NoteHeartbeat(b, version)
	}
	return d.providerOf(p, now), nil
}

func (d *Dispatcher) providerOf(p *registry.Provider, now int64) Provider {
	v := p.View(&d.settings.Health, d.at(now).Epoch, now)
	return Provider{
		Provider: v, Reason: p.Reason, RegisteredAt: p.RegisteredAt, UpdatedAt: p.UpdatedAt,
		Fails: p.Account.Fails, Findings: p.Account.Findings, Slashed: p.Account.Slashed, Eligible: d.settings.Eligible(&v, now),
	}
}

// Providers lists up to limit providers after an id, by id.
func (d *Dispatcher) Providers(ctx context.Context, after string, limit int) ([]Provider, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	err := d.catchUp(ctx)
	if err == nil {
		err = d.refreshHeartbeats(ctx, d.now().Unix())
	}
	if err != nil {
		return nil, fmt.Errorf("list providers: %w", err)
	}
	now := d.now().Unix()
	some := d.registry.After(after, limit)
	list := make([]Provider, len(some))
	for i, p := range some {
		list[i] = d.providerOf(p, now)
	}
	return list, nil
}
