package matchmaker

import (
	"context"
	"slices"
	"time"

	"github.com/gopherqueue/gq"
)

const (
	mostServing  = 1000             // the most providers that are listed as workers
	servingAfter = 30 * time.Second // how old what other nodes have changed may be in that list
)

// workers lists the providers that a round now would include, the first by id, as the workers
// of the queue. While a round or a call is in progress they are those of the last time, so that
// a reader rarely waits. Before the jobs
// are loaded it lists none.
func (d *Dispatcher) workers(ctx context.Context) []gq.LiveWorker {
	if !d.mu.TryLock() {
		if known := d.serving.Load(); known != nil {
			return copied(*known)
		}
		d.mu.Lock()
	}
	defer d.mu.Unlock()
	if !d.loaded { // a reader does not load all jobs
		return nil
	}
	if time.Since(d.looked) > servingAfter { // readers ask every few seconds, on idle servers too
		if err := d.catchUp(ctx); err != nil && !d.loaded {
			return nil
		}
		d.looked = time.Now()
	}
	now := d.now().Unix()
	if err := d.refreshHeartbeats(ctx, now); err != nil {
		d.log.Debug("read heartbeats", "error", err)
	}
	epoch := d.at(now).Epoch
	list := []gq.LiveWorker{}
	for _, p := range d.registry.ByID() {
		v := p.View(&d.settings.Health, epoch, now)
		if !d.settings.Eligible(&v, now) || len(v.Capabilities) == 0 {
			continue
		}
		if len(list) >= mostServing {
			break
		}
		w := gq.LiveWorker{
			Name: p.ID, Queues: []string{d.queue}, Offers: []string{Requirement}, Running: p.Account.Len(), LastSeen: time.Unix(p.Heartbeat, 0).UTC(),
		}
		for _, k := range v.Capabilities {
			w.Types = append(w.Types, k.String())
		}
		w.Leases = p.Account.Leases(gq.MaxListedLeases)
		list = append(list, w)
	}
	d.serving.Store(&list)
	return copied(list)
}

// copied copies workers deeply: callers remove queues that they may not see.
func copied(list []gq.LiveWorker) []gq.LiveWorker {
	list = slices.Clone(list)
	for i := range list {
		list[i].Queues = slices.Clone(list[i].Queues)
	}
	return list
}
