package matchmaker

import (
	"context"

	"github.com/gopherqueue/gq/match"
)

// Levels are the current numbers of matching, for metrics.
type Levels struct {
	Waiting   int // jobs that wait, those before their run time included
	Leases    int
	Statuses  map[match.Status]int // providers of each status
	Eligible  int                  // providers that a round now would include
	Providers []ProviderLevel      // the first by id
	Others    int                  // leases of the providers that Providers leaves out
	Sinks     []SinkLevel          // those that are on
}

// ProviderLevel has the numbers of one provider.
type ProviderLevel struct {
	ID     string
	Leases int
	Health float64 // from 0 to 1
}

// SinkLevel has the numbers of one sink since the start of the process.
type SinkLevel struct {
	Name      string // claims, sla or rounds
	Delivered uint64 // records
	Failed    uint64 // attempts
	Up        bool   // the last attempt did not fail
}

// Levels returns the current numbers, with up to most providers by name. While a round or a
// call is in progress they are those of the last time, so that a reader never waits; before
// the first time they are zero.
func (d *Dispatcher) Levels(ctx context.Context, most int) Levels {
	var out Levels
	if d.mu.TryLock() {
		out = d.levels(ctx, most)
		d.last.Store(&out)
		d.mu.Unlock()
	} else if last := d.last.Load(); last != nil {
		out = *last
	}
	out.Sinks = nil
	for _, v := range d.deliveries() {
		out.Sinks = append(out.Sinks, SinkLevel{Name: v.name, Delivered: v.sent.Load(), Failed: v.failed.Load(), Up: !v.stuck.Load()})
	}
	return out
}

// levels counts. The caller holds mu.
func (d *Dispatcher) levels(ctx context.Context, most int) Levels {
	out := Levels{Statuses: map[match.Status]int{}}
	for _, s := range match.Statuses() {
		out.Statuses[s] = 0
	}
	if !d.loaded { // the first round reads everything; a reader of metrics does not wait for that
		return out
	}
	if err := d.catchUp(ctx); err != nil && !d.loaded {
		return out // else the numbers are those before
	}
	now := d.now().Unix()
	epoch := d.at(now).Epoch
	out.Waiting, out.Leases = d.backlog.Len(), d.ledger.Len()
	for i, p := range d.registry.ByID() {
		v := p.View(&d.settings.Health, epoch, now)
		out.Statuses[p.Status]++
		if d.settings.Eligible(&v, now) {
			out.Eligible++
		}
		if i >= most {
			out.Others += p.Account.Len()
			continue
		}
		out.Providers = append(out.Providers, ProviderLevel{ID: p.ID, Leases: p.Account.Len(), Health: float64(v.Health) / 1e9})
	}
	return out
}
