package engine

import (
	"context"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/store"
)

// registry lists the workers that this engine has seen lately. It is informative only; leases
// decide who holds a job.
type registry struct {
	memory time.Duration

	mu    *sync.Mutex
	known map[string]*seen // by name; guarded by mu
	swept time.Time        // when silent workers were last removed; guarded by mu
}

// seen has the data of one worker.
type seen struct {
	filter  store.Filter
	waiting int
	last    time.Time
	leases  map[gq.LeaseID]time.Time // expiry, by our clock
}

// drop removes expired leases.
func (w *seen) drop(now time.Time) {
	maps.DeleteFunc(w.leases, func(_ gq.LeaseID, until time.Time) bool { return !now.Before(until) })
}

func newRegistry(memory time.Duration) registry {
	return registry{memory: memory, mu: new(sync.Mutex), known: map[string]*seen{}}
}

// atLocked returns the entry of a worker and creates it if needed. The caller holds mu.
func (r *registry) atLocked(name string) *seen {
	now := time.Now()
	if now.Sub(r.swept) > r.memory {
		r.swept = now
		for name, w := range r.known {
			if w.drop(now); r.forgotten(w, now) {
				delete(r.known, name)
			}
		}
	}
	w := r.known[name]
	if w == nil {
		w = &seen{leases: map[gq.LeaseID]time.Time{}}
		r.known[name] = w
	}
	w.last = now
	return w
}

func (r *registry) forgotten(w *seen, now time.Time) bool {
	return w.waiting == 0 && now.Sub(w.last) > r.memory
}

// asks records a claim. The worker is live while the claim waits, until the returned function is
// called.
func (r *registry) asks(c *store.Claim, waits bool) (done func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	w := r.atLocked(c.Worker)
	w.filter = c.Filter
	if !waits {
		return func() {}
	}
	w.waiting++
	return func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		w.waiting--
		w.last = time.Now()
	}
}

// got records the leases of claimed jobs.
func (r *registry) got(worker string, jobs []gq.Job) {
	r.mu.Lock()
	defer r.mu.Unlock()
	w := r.atLocked(worker)
	for i := range jobs {
		l := jobs[i].State.Lease
		w.leases[l.ID] = w.last.Add(l.TTL)
	}
}

// alive records a call of a lease's holder.
func (r *registry) alive(s *gq.State) {
	if s.Lease == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	w := r.atLocked(s.Lease.Worker)
	if s.Lease.State == gq.LeaseActive {
		w.leases[s.Lease.ID] = w.last.Add(s.Lease.TTL)
	} else {
		delete(w.leases, s.Lease.ID)
	}
}

// settled records that a holder has ended its lease. The state can already have the next lease.
func (r *registry) settled(ref gq.LeaseRef, s *gq.State) {
	worker := ref.Worker
	if worker == "" && s.Lease != nil && s.Lease.ID == ref.ID {
		worker = s.Lease.Worker
	}
	if worker == "" {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.atLocked(worker).leases, ref.ID)
}

// Workers lists the workers that claimed jobs from this engine or sent it heartbeats in the last
// minute, sorted by name.
func (e *Engine) Workers(context.Context) ([]gq.LiveWorker, error) { return e.liveWorkers(), nil }

func (e *Engine) liveWorkers() []gq.LiveWorker {
	r := &e.workers
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	out := make([]gq.LiveWorker, 0, len(r.known))
	for name, w := range r.known {
		if r.forgotten(w, now) {
			continue
		}
		w.drop(now)
		live := gq.LiveWorker{
			Name:   name,
			Queues: slices.Clone(w.filter.Queues), Types: slices.Clone(w.filter.Types), Offers: slices.Clone(w.filter.Offers),
			MaxCost: w.filter.MaxCost, Waiting: w.waiting, Running: len(w.leases), LastSeen: w.last,
		}
		if w.waiting > 0 {
			live.LastSeen = now
		}
		out = append(out, live)
	}
	slices.SortFunc(out, func(a, b gq.LiveWorker) int { return strings.Compare(a.Name, b.Name) })
	return out
}
