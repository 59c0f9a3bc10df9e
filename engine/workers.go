package engine

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/internal/wake"
	"github.com/gopherqueue/gq/store"
)

// registry lists the workers that this engine has seen lately. Leases decide who holds a job; the
// registry only says who is there, and which workers are gone.
type registry struct {
	memory time.Duration
	news   chan struct{} // buffered; a worker has appeared, connected or left
	broken chan struct{} // buffered; the last stream of a worker has broken

	mu    *sync.Mutex
	known map[string]*seen // by name; guarded by mu
	swept time.Time        // when silent workers were last removed; guarded by mu
}

// seen has the data of one worker.
type seen struct {
	asked   []*asked // its latest claims, the newest last; a worker may have several kinds
	version string   // of its client library; "" if it did not say
	waiting int
	streams int       // open ones
	outside time.Time // last call that was not through a stream
	stopped bool      // it said so, and has not called since
	last    time.Time
	broke   time.Time // when its last stream broke; zero if that needs no check
	leases  map[gq.LeaseID]heldLease
}

// asked is the claims of a worker that have the same filter, such as those of one queue set.
type asked struct {
	store.Filter
	waiting int
	last    time.Time
}

// maxAsked is how many different filters of a worker are remembered.
const maxAsked = 100

// asks returns the entry of a filter and makes it the newest. Claims that the worker has not
// repeated since the given time are forgotten.
func (w *seen) asks(f *store.Filter, since time.Time) *asked {
	if n := len(w.asked); n == 1 && sameFilter(&w.asked[0].Filter, f) {
		return w.asked[0]
	}
	w.forget(since)
	i := slices.IndexFunc(w.asked, func(a *asked) bool { return sameFilter(&a.Filter, f) })
	a := &asked{Filter: *f}
	if i >= 0 {
		a = w.asked[i]
		w.asked = slices.Delete(w.asked, i, i+1)
	}
	w.asked = append(w.asked, a)
	w.asked = slices.Delete(w.asked, 0, max(len(w.asked)-maxAsked, 0))
	return a
}

// forget removes claims that ended before a time, except for the newest.
func (w *seen) forget(before time.Time) {
	if len(w.asked) < 2 {
		return
	}
	newest := w.asked[len(w.asked)-1]
	w.asked = slices.DeleteFunc(w.asked, func(a *asked) bool { return a != newest && a.waiting == 0 && a.last.Before(before) })
}

// filter returns one filter that admits everything the worker's latest claims do.
func (w *seen) filter() (f store.Filter) {
	for i, a := range w.asked {
		if i == 0 {
			f = store.Filter{Queues: slices.Clone(a.Queues), Types: slices.Clone(a.Types), Offers: slices.Clone(a.Offers), MaxCost: a.MaxCost}
			continue
		}
		f.Queues, f.Offers = union(f.Queues, a.Queues), union(f.Offers, a.Offers)
		if len(f.Types) == 0 || len(a.Types) == 0 { // none is any
			f.Types = nil
		} else {
			f.Types = union(f.Types, a.Types)
		}
		if f.MaxCost == 0 || a.MaxCost == 0 { // 0 is any
			f.MaxCost = 0
		} else {
			f.MaxCost = max(f.MaxCost, a.MaxCost)
		}
	}
	return f
}

// union appends the names that a does not have.
func union(a, names []string) []string {
	for _, name := range names {
		if !slices.Contains(a, name) {
			a = append(a, name)
		}
	}
	return a
}

func sameFilter(a, b *store.Filter) bool {
	return a.MaxCost == b.MaxCost && slices.Equal(a.Queues, b.Queues) && slices.Equal(a.Types, b.Types) && slices.Equal(a.Offers, b.Offers)
}

// heldLease is a lease of a worker.
type heldLease struct {
	until    time.Time // expiry, by our clock
	streamed bool      // claimed through a stream
}

// drop removes expired leases.
func (w *seen) drop(now time.Time) {
	maps.DeleteFunc(w.leases, func(_ gq.LeaseID, l heldLease) bool { return !now.Before(l.until) })
}

func newRegistry(memory time.Duration) registry {
	return registry{memory: memory, news: make(chan struct{}, 1), broken: make(chan struct{}, 1), mu: new(sync.Mutex), known: map[string]*seen{}}
}

// atLocked returns the entry of a worker and creates it if needed. The caller holds mu.
func (r *registry) atLocked(name string) *seen {
	now := time.Now()
	if now.Sub(r.swept) > r.memory {
		r.swept = now
		for name, w := range r.known {
			if r.over(w, now) {
				delete(r.known, name)
			}
		}
	}
	w := r.known[name]
	if w == nil {
		w = &seen{leases: map[gq.LeaseID]heldLease{}}
		r.known[name] = w
		wake.Up(r.news)
	}
	if w.stopped {
		wake.Up(r.news) // it is back
	}
	w.last, w.broke, w.stopped = now, time.Time{}, false
	return w
}

// stops records that a worker has stopped.
func (r *registry) stops(name string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.atLocked(name).stopped = true
	wake.Up(r.news)
}

// forgotten reports whether a worker is no longer listed.
func (r *registry) forgotten(w *seen, now time.Time) bool {
	return w.waiting == 0 && now.Sub(w.last) > r.memory
}

// called records whether the call that made an entry the newest was through a stream.
func (w *seen) called(streamed bool) {
	if !streamed {
		w.outside = w.last
	}
}

// over reports whether nothing about a worker needs to be remembered.
func (r *registry) over(w *seen, now time.Time) bool {
	w.drop(now)
	return r.forgotten(w, now) && w.streams == 0 && len(w.leases) == 0
}

// asks records a claim. The worker is live while the claim waits, until the returned function is
// called.
func (r *registry) asks(c *store.Claim, waits, streamed bool) (done func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	w := r.atLocked(c.Worker)
	w.called(streamed)
	a := w.asks(&c.Filter, w.last.Add(-r.memory))
	a.last = w.last
	if !waits {
		return func() {}
	}
	w.waiting++
	a.waiting++
	return func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		w.waiting--
		a.waiting--
		w.last = time.Now()
		w.called(streamed)
		a.last = w.last
	}
}

// got records the leases of claimed jobs.
func (r *registry) got(worker string, jobs []gq.Job, streamed bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	w := r.atLocked(worker)
	w.called(streamed)
	for i := range jobs {
		l := jobs[i].State.Lease
		w.leases[l.ID] = heldLease{w.last.Add(l.TTL), streamed}
	}
}

// alive records a call of a lease's holder.
func (r *registry) alive(s *gq.State, streamed bool) {
	if s.Lease == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	w := r.atLocked(s.Lease.Worker)
	w.called(streamed)
	if s.Lease.State != gq.LeaseActive {
		delete(w.leases, s.Lease.ID)
		return
	}
	if l, known := w.leases[s.Lease.ID]; known {
		streamed = l.streamed
	}
	w.leases[s.Lease.ID] = heldLease{w.last.Add(s.Lease.TTL), streamed}
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

// worker is what one engine knows about a worker.
type worker struct {
	gq.LiveWorker
	streams int
	stopped bool // LastSeen is when it said so
}

// list returns the workers that this engine has seen or is connected to, sorted by name. Their
// times are those of the store.
func (r *registry) list(node string, c *clock) []worker {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	out := make([]worker, 0, len(r.known))
	for name, w := range r.known {
		w.drop(now)
		if r.forgotten(w, now) && w.streams == 0 {
			continue
		}
		w.forget(now.Add(-r.memory))
		filter := w.filter()
		live := gq.LiveWorker{
			Name: name, Node: node, Version: w.version,
			Queues: filter.Queues, Types: filter.Types, Offers: filter.Offers,
			MaxCost: filter.MaxCost, Waiting: w.waiting, Running: len(w.leases), LastSeen: c.at(w.last),
		}
		if w.waiting > 0 && !w.stopped {
			live.LastSeen = c.at(now)
		}
		if len(w.leases) > 0 {
			live.Leases = slices.Sorted(maps.Keys(w.leases))
			live.Leases = slices.Clip(live.Leases[:min(len(live.Leases), gq.MaxListedLeases)])
		}
		out = append(out, worker{live, w.streams, w.stopped})
	}
	slices.SortFunc(out, func(a, b worker) int { return strings.Compare(a.Name, b.Name) })
	return out
}

// Workers lists the workers that claimed jobs or sent heartbeats in the last minute, sorted by
// name: those of this engine, those of other processes on the store, and the providers of a
// queue that is delegated.
func (e *Engine) Workers(ctx context.Context) ([]gq.LiveWorker, error) {
	_, workers, err := e.cluster(ctx)
	if err != nil {
		return nil, fmt.Errorf("list workers: %w", err)
	}
	return e.withDelegated(ctx, workers), nil
}

// withDelegated adds the workers of delegates to a list that is sorted by name.
func (e *Engine) withDelegated(ctx context.Context, workers []gq.LiveWorker) []gq.LiveWorker {
	more := e.delegates.workers(ctx)
	if len(more) == 0 {
		return workers
	}
	workers = append(slices.Clip(workers), more...)
	slices.SortStableFunc(workers, func(a, b gq.LiveWorker) int { return strings.Compare(a.Name, b.Name) })
	return workers
}

// WorkerStopped removes a worker that has stopped from the list of workers, on all servers. The
// error is [gq.ErrConflict] if it holds jobs.
func (e *Engine) WorkerStopped(ctx context.Context, worker string) error {
	if err := checkWorker(worker); err != nil {
		return fmt.Errorf("stop worker %.80q: %w", worker, err)
	}
	_, workers, err := e.cluster(ctx)
	if err != nil {
		return fmt.Errorf("stop worker %.80q: %w", worker, err)
	}
	for i := range workers {
		if workers[i].Name != worker {
			continue
		}
		for _, queue := range workers[i].Queues {
			if err := authorize(ctx, queue); err != nil {
				err, _ = unwrapRefusal(err)
				return err
			}
		}
		switch held, err := e.countHeld(ctx, workers[i].Leases); {
		case err != nil:
			if refused, ok := unwrapRefusal(err); ok {
				return refused
			}
			return fmt.Errorf("stop worker %.80q: %w", worker, err)
		case held > 0:
			return fmt.Errorf("stop worker %.80q: %w", worker, gq.ErrConflict.Errorf("it still holds jobs (%d); complete, fail or release them first", held))
		}
	}
	e.workers.stops(worker)
	return nil
}

// countHeld returns how many leases still hold their jobs, if the caller may know. A server does not know which of its
// workers' leases were ended through another one.
func (e *Engine) countHeld(ctx context.Context, leases []gq.LeaseID) (n int, err error) {
	if len(leases) == 0 {
		return 0, nil
	}
	refs := make([]store.Ref, len(leases))
	for i, id := range leases {
		refs[i] = store.Ref{Lease: id}
	}
	found, err := e.store.Get(ctx, refs, 0)
	for i := range found {
		if l := found[i].State.Lease; found[i].Err == nil && l != nil && l.ID == leases[i] && l.State == gq.LeaseActive {
			if err := authorize(ctx, found[i].Spec.Queue); err != nil {
				return 0, err
			}
			n++
		}
	}
	return n, err
}

// checkWorker checks the name of a worker.
func checkWorker(name string) error {
	if name == "" || len(name) > gq.MaxNameBytes {
		return &gq.InvalidError{Faults: []gq.Fault{{Field: "worker", Problem: fmt.Sprintf("must have 1 to %d bytes", gq.MaxNameBytes)}}}
	}
	return nil
}

// listed reports whether a worker is shown: it has called lately, and not only connected.
func (e *Engine) listed(w *gq.LiveWorker) bool {
	return e.clock.now().Sub(w.LastSeen) <= e.options.Memory && (len(w.Queues) > 0 || w.Running > 0)
}

// stoppedSlack is how much later than a worker's stop another node may have heard of it. Clocks
// differ, and a server notices some time later that the caller of a waiting claim has left.
const stoppedSlack = time.Second

// mergeWorkers combines what several nodes know about the same workers and sorts them by name. A
// worker that has changed to another server is known to both for a while: the newer view tells
// what it does now. A worker that has stopped is left out.
func mergeWorkers(seen []worker) []gq.LiveWorker {
	by := make(map[string][]worker, len(seen))
	for _, w := range seen {
		by[w.Name] = append(by[w.Name], w)
	}
	out := make([]gq.LiveWorker, 0, len(by))
	for _, views := range by {
		slices.SortFunc(views, func(a, b worker) int {
			if c := b.LastSeen.Compare(a.LastSeen); c != 0 {
				return c
			}
			return strings.Compare(a.Node, b.Node)
		})
		if i := slices.IndexFunc(views, func(v worker) bool { return v.stopped }); i >= 0 {
			at := views[i].LastSeen
			views = slices.DeleteFunc(views, func(v worker) bool {
				since := v.LastSeen.Sub(at)
				return v.stopped || since <= 0 || since <= stoppedSlack && v.Running == 0
			})
		}
		if len(views) == 0 {
			continue
		}
		w := views[0].LiveWorker
		for _, older := range views[1:] {
			if w.LastSeen.Sub(older.LastSeen) > nodeFresh {
				break
			}
			if len(w.Queues) == 0 { // it has only connected there
				w.Queues, w.Types, w.Offers, w.MaxCost = older.Queues, older.Types, older.Offers, older.MaxCost
			}
			w.Waiting += older.Waiting
			leases := slices.Concat(w.Leases, older.Leases)
			slices.Sort(leases)
			leases = slices.Compact(leases)
			w.Running = max(w.Running, older.Running, len(leases))
			w.Leases = leases[:min(len(leases), gq.MaxListedLeases)]
			if w.Version == "" {
				w.Version = older.Version
			}
		}
		out = append(out, w)
	}
	slices.SortFunc(out, func(a, b gq.LiveWorker) int { return strings.Compare(a.Name, b.Name) })
	return out
}
