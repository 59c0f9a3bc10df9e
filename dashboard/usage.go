package dashboard

import (
	"cmp"
	"slices"

	"github.com/gopherqueue/gq"
)

// Limits of what is said about who uses a queue.
const (
	usingJobs = 500  // leased jobs that are looked at
	ownKeys   = 1000 // keys with limits of their own that are looked at
	shownUses = 10   // workers and keys
)

// usage says who holds the jobs of a queue.
type usage struct {
	Holding []gq.Job // the newest jobs that workers hold
	Workers []holder // the largest first
	Keys    []keyUse // the largest first
	More    bool     // not all leased jobs were looked at
	own     map[string]gq.QueueKey
}

// keyUse is a limit key with jobs that workers hold.
type keyUse struct {
	Key   string
	Used  int
	Limit int // 0 is none
}

// ShownWorkers and ShownKeys are the largest ones.
func (u usage) ShownWorkers() []holder { return u.Workers[:min(len(u.Workers), shownUses)] }
func (u usage) ShownKeys() []keyUse    { return u.Keys[:min(len(u.Keys), shownUses)] }

// usage finds out who holds the jobs of a queue.
func (v *visit) usage(q *gq.Queue) (u usage, err error) {
	page, err := v.d.queue.List(v.ctx, gq.Query{Queue: q.Name, Statuses: []gq.Status{gq.StatusRunning, gq.StatusClaimed}, Limit: usingJobs, MaxScan: maxSearched})
	if err != nil {
		return u, err
	}
	u.More = page.Next != ""
	if q.OwnKeys > 0 {
		keys, err := v.d.queue.QueueKeys(v.ctx, q.Name, "", ownKeys)
		if err != nil {
			return u, err
		}
		u.own = make(map[string]gq.QueueKey, len(keys))
		for _, k := range keys {
			u.own[k.Key] = k
		}
	}
	u.add(q, page.Jobs)
	return u, nil
}

// add groups held jobs.
func (u *usage) add(q *gq.Queue, held []gq.Job) {
	u.Holding = held[:min(len(held), shownJobs)]
	workers, keys := make(map[string]*holder), make(map[string]int)
	for i := range held {
		if key := held[i].Spec.LimitKey; key != "" {
			keys[key]++
		}
		lease := held[i].State.Lease
		if lease == nil {
			continue
		}
		if workers[lease.Worker] == nil {
			workers[lease.Worker] = &holder{Worker: lease.Worker}
		}
		workers[lease.Worker].Jobs++
		workers[lease.Worker].Used += lease.CostUnits
	}
	for _, w := range workers {
		u.Workers = append(u.Workers, *w)
	}
	for key, n := range keys {
		u.Keys = append(u.Keys, keyUse{key, n, u.keyLimit(q, key)})
	}
	slices.SortFunc(u.Workers, func(a, b holder) int {
		return cmp.Or(cmp.Compare(b.Jobs, a.Jobs), cmp.Compare(a.Worker, b.Worker))
	})
	slices.SortFunc(u.Keys, func(a, b keyUse) int {
		return cmp.Or(cmp.Compare(b.Used, a.Used), cmp.Compare(a.Key, b.Key))
	})
}

// keyLimit returns the number of jobs with a key that may run at once.
func (u *usage) keyLimit(q *gq.Queue, key string) int {
	if own := u.own[key]; own.Limit > 0 {
		return own.Limit
	}
	return q.KeyLimit
}

// admits returns how many of the waiting jobs the limits of a queue let start now: of jobs that
// run at once, in all and by key.
func (u *usage) admits(q *gq.Queue, waiting []gq.Job) (n int) {
	held := 0
	for _, w := range u.Workers {
		held += w.Jobs
	}
	used := make(map[string]int, len(u.Keys))
	for _, k := range u.Keys {
		used[k.Key] = k.Used
	}
	for i := range waiting {
		if q.MaxRunning > 0 && held+n >= q.MaxRunning {
			break
		}
		if key := waiting[i].Spec.LimitKey; key != "" {
			if limit := u.keyLimit(q, key); limit > 0 && used[key] >= limit {
				continue
			}
			used[key]++
		}
		n++
	}
	return n
}
