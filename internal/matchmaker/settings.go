package matchmaker

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/match"
)

// Settings returns the settings in force.
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
	now := knownSettings{found.Version, storedSettings()}
	if err := read(found, &now.settings); err != nil {
		return match.Settings{}, fmt.Errorf("policy: %w", err)
	}
	now.settings.Bound()
	d.known.Store(&now)
	return now.settings.Clone(), nil
}

// storedSettings is what stored settings are decoded into: keys that they do not have yet keep
// their defaults.
func storedSettings() match.Settings {
	s := match.DefaultSettings()
	s.Priority.Tiers = nil
	return s
}

// knownSettings caches decoded settings, so that an unchanged document is decoded once.
type knownSettings struct {
	version  uint64
	settings match.Settings
}

// ChangeSettings applies change to the settings and puts them in force. Submitted jobs
// keep their policy. Under a smaller quota, providers lose their newest leases.
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
				t.put(kindState, nameSettings, d.settingsVersion, set, func(v uint64) { d.putInForce(set, v, now) })
			}
			epoch := d.at(now.Unix()).Epoch
			ends := []func(){}
			more = false
			for _, p := range d.registry.ByID() {
				s := p.Account.Statement()
				excess := s.Excess(&put.Quotas, epoch)
				if len(excess) == 0 {
					continue
				}
				ends = append(ends, d.withdraw(&t, s, excess, match.ReasonQuotaReduced))
				t.putStatement(p.Account, s)
				if more = len(t.docs) >= maxStatements; more {
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
	if err := d.limitDepth(ctx); err != nil {
		return match.Settings{}, fmt.Errorf("set policy: %w", err)
	}
	d.wake()
	return put, nil
}

// PutBeacon sets the position of the chain. A chain never goes back, and has one beacon
// per height.
func (d *Dispatcher) PutBeacon(ctx context.Context, b match.Beacon) error {
	err := d.underHead(ctx, func(now time.Time) (*draft, func(), error) {
		if old := d.beacon; old != nil && old.Chain == b.Chain {
			switch {
			case old.Epoch == b.Epoch && old.Height == b.Height && old.Seed() == b.Seed():
				return nil, nil, nil
			case b.Epoch < old.Epoch || b.Epoch == old.Epoch && b.Height <= old.Height:
				return nil, nil, gq.ErrConflict.Errorf("chain %.80q stands at epoch %d, height %d, and neither goes back nor says two things there", old.Chain, old.Epoch, old.Height)
			}
		}
		var t draft
		next := posted{b, now.Unix()}
		t.put(kindState, nameBeacon, d.beaconVersion, next, func(v uint64) { d.beacon, d.beaconVersion = &next, v })
		return &t, nil, nil
	})
	if err != nil {
		return fmt.Errorf("beacon: %w", err)
	}
	d.wake()
	return nil
}

// Beacon returns the position of the chain.
func (d *Dispatcher) Beacon(ctx context.Context) (match.Beacon, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.catchUp(ctx); err != nil {
		return match.Beacon{}, fmt.Errorf("beacon: %w", err)
	}
	return d.at(d.now().Unix()), nil
}
