package matchmaker

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/match"
)

// Settings are those in force.
func (d *Dispatcher) Settings(ctx context.Context) (match.Settings, error) {
	found, err := d.store.Doc(ctx, kindState, nameSettings)
	if errors.Is(err, gq.ErrNotFound) {
		return d.options.Settings.Clone(), nil
	}
	if err != nil {
		return match.Settings{}, fmt.Errorf("policy: %w", err)
	}
	if known := d.known.Load(); known != nil && known.version == found.Version {
		return known.settings.Clone(), nil
	}
	now := knownSettings{version: found.Version}
	if err := read(found, &now.settings); err != nil {
		return match.Settings{}, fmt.Errorf("policy: %w", err)
	}
	d.known.Store(&now)
	return now.settings.Clone(), nil
}

// knownSettings are settings that were read, so that an unchanged document is
// decoded once.
type knownSettings struct {
	version  uint64
	settings match.Settings
}

// ChangeSettings lets change have the settings and puts what it makes of them in
// force. Jobs that were submitted keep the terms they were submitted under; a
// smaller quota takes the newest leases away until it is kept.
func (d *Dispatcher) ChangeSettings(ctx context.Context, change func(*match.Settings) error) (match.Settings, error) {
	var put match.Settings
	for first := true; ; first = false {
		more := false
		err := d.underHead(ctx, func(now time.Time) (*draft, func(), error) {
			var t draft
			if first {
				put = d.settings.Clone()
				if err := change(&put); err != nil {
					return nil, nil, err
				}
				if err := put.Validate(); err != nil {
					return nil, nil, err
				}
				set := put.Clone()
				t.put(kindState, nameSettings, d.setting, set, func(v uint64) {
					d.settings, d.setting, d.grants = set, v, window{} // the window may be a longer one
					d.backlog.rebuild(&d.settings.Policy, now)
				})
			}
			epoch := d.at(now.Unix()).Epoch
			ends := []func(){}
			more = false
			for _, p := range d.providers {
				b, done := d.reduce(&t, p, &put, epoch)
				if b == nil {
					continue
				}
				ends = append(ends, done)
				d.writeBooks(&t, p, b)
				if more = len(t.docs) >= maxBooks; more {
					break
				}
			}
			if len(t.docs) == 0 {
				return nil, nil, nil
			}
			return &t, func() {
				for _, done := range ends {
					done()
				}
			}, nil
		})
		if err != nil {
			return match.Settings{}, fmt.Errorf("set policy: %w", err)
		}
		if !more {
			break
		}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.guard(ctx); err != nil {
		return match.Settings{}, fmt.Errorf("set policy: %w", err)
	}
	d.poke()
	return put, nil
}

// reduce takes leases away that a provider may not have under some settings, the
// newest first. Units of leases that it loses are its own again. The books are
// nil where there is nothing to take.
func (d *Dispatcher) reduce(t *draft, p *provider, set *match.Settings, epoch int64) (*books, func()) {
	b := p.books()
	var taken []entry
	over := func(e *entry) bool {
		return int64(len(b.Open)-len(taken)) > set.Quotas.LeasesMax ||
			e.Epoch == epoch && b.Units(e.Kind, epoch) > set.Quotas.UnitsMax(e.Kind)
	}
	for _, e := range newest(b.Open) {
		if !over(&e) {
			continue
		}
		taken = append(taken, e)
		if e.Epoch == epoch {
			b.Spend(e.Kind, epoch, -e.Units)
		}
	}
	if len(taken) == 0 {
		return nil, nil
	}
	return b, d.withdraw(t, b, taken, match.ReasonQuotaReduced)
}

// PutBeacon says where the chain stands. It never goes back, and never says two
// things about one height.
func (d *Dispatcher) PutBeacon(ctx context.Context, b match.Beacon) error {
	err := d.underHead(ctx, func(time.Time) (*draft, func(), error) {
		if old := d.beacon; old != nil && old.Chain == b.Chain {
			switch {
			case old.Epoch == b.Epoch && old.Height == b.Height && old.Seed() == b.Seed():
				return nil, nil, nil
			case b.Epoch < old.Epoch || b.Epoch == old.Epoch && b.Height <= old.Height:
				return nil, nil, because(gq.ErrConflict, "chain %.80q stands at epoch %d, height %d, and neither goes back nor says two things there", old.Chain, old.Epoch, old.Height)
			}
		}
		var t draft
		t.put(kindState, nameBeacon, d.beaconed, b, func(v uint64) { d.beacon, d.beaconed = &b, v })
		return &t, nil, nil
	})
	if err != nil {
		return fmt.Errorf("beacon: %w", err)
	}
	d.poke()
	return nil
}

// Beacon is where the chain stands.
func (d *Dispatcher) Beacon(ctx context.Context) (match.Beacon, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.catchUp(ctx); err != nil {
		return match.Beacon{}, fmt.Errorf("beacon: %w", err)
	}
	return d.at(d.now().Unix()), nil
}
