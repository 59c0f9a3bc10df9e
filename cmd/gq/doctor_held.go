package main

import (
	"context"
	"fmt"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/internal/faces/matching"
	"github.com/gopherqueue/gq/internal/quantity"
)

const (
	quietAfter  = time.Minute     // without a heartbeat, and without a call of the worker
	silentAfter = 5 * time.Minute // as quietAfter; its jobs are then a problem
	heldSample  = 1000            // held jobs that are read at once, the oldest first
	heldMost    = 20 * heldSample // that are looked at
	dearSample  = 1000            // waiting jobs of a queue that are looked at for the cheapest
)

// overdue reports whether a worker has been silent for so long that it is taken for gone. A worker
// renews its leases after a third of their length, so two heartbeats of a long one are missing.
func overdue(l *gq.Lease) bool {
	return time.Since(l.HeartbeatAt) >= max(silentAfter, 2*l.TTL/3)
}

// silence is jobs that are held by workers that are not heard of any more.
type silence struct {
	jobs    int
	overdue int   // of them
	units   int64 // capacity that they occupy
	longest gq.Lease
	example gq.JobID
}

func (s *silence) add(job *gq.Job, units int64) {
	lease := job.State.Lease
	if s.jobs++; s.jobs == 1 || lease.HeartbeatAt.Before(s.longest.HeartbeatAt) {
		s.longest, s.example = *lease, job.State.ID
	}
	s.units += units
	if overdue(lease) {
		s.overdue++
	}
}

// held finds jobs whose workers are gone, and pools that such jobs fill. Their leases end by
// themselves, but some are long. Providers of matching hold jobs without being workers.
func (f *findings) held(ctx context.Context, q queue, queues []gq.Queue, stats *gq.Stats, workers []gq.LiveWorker) error {
	if stats.Total.Held() == 0 {
		return nil
	}
	jobs, more, err := holding(ctx, q)
	if err != nil {
		return err
	}
	if more {
		f.add("note", "leases", "only %d of %s were looked at for silent workers", len(jobs), quantity.Of(stats.Total.Held(), "running job"))
	}
	asking, claims, pool := map[string]bool{}, map[string]bool{}, map[string]string{}
	for i := range workers {
		asking[workers[i].Name] = true
	}
	for i := range queues {
		claims[queues[i].Name], pool[queues[i].Name] = queues[i].Name != matching.Queue, queues[i].Pool
	}
	quiet, gone, filled := &silence{}, &silence{}, map[string]*silence{}
	for i := range jobs {
		job := &jobs[i]
		lease := job.State.Lease
		if lease == nil || !claims[job.Spec.Queue] || time.Since(lease.HeartbeatAt) < quietAfter {
			continue
		}
		switch {
		case asking[lease.Worker]:
		case overdue(lease):
			gone.add(job, lease.CostUnits)
		default:
			quiet.add(job, lease.CostUnits)
		}
		if time.Since(lease.HeartbeatAt) < silentAfter {
			continue
		}
		if name := pool[job.Spec.Queue]; name != "" {
			if filled[name] == nil {
				filled[name] = &silence{}
			}
			filled[name].add(job, lease.CostUnits)
		}
	}
	f.silent(quiet, gone, more)
	if len(filled) == 0 {
		return nil
	}
	return f.pools(ctx, q, queues, filled)
}

// holding lists the jobs that workers hold; more says that there are others.
func holding(ctx context.Context, q queue) (jobs []gq.Job, more bool, err error) {
	query := gq.Query{Statuses: []gq.Status{gq.StatusClaimed, gq.StatusRunning}, OldestFirst: true, Limit: heldSample}
	for {
		page, err := q.List(ctx, query)
		if err != nil {
			return nil, false, err
		}
		jobs = append(jobs, page.Jobs...)
		if query.Cursor = page.Next; query.Cursor == "" || len(jobs) >= heldMost {
			return jobs, query.Cursor != "", nil
		}
	}
}

// cheapest returns the lowest cost of the jobs that wait for capacity of a pool, 1 if none does or if
// it cannot tell. It looks no further than for a job that needs no more than is free.
func cheapest(ctx context.Context, q queue, queues []gq.Queue, pool string, free int64) (int64, error) {
	lowest := int64(0)
	for i := range queues {
		if queues[i].Pool != pool || queues[i].Paused {
			continue
		}
		page, err := q.List(ctx, gq.Query{Queue: queues[i].Name, Statuses: []gq.Status{gq.StatusScheduled}, OldestFirst: true, Limit: dearSample})
		if err != nil {
			return 0, err
		}
		for j := range page.Jobs {
			if cost := page.Jobs[j].Spec.CostUnits; cost > 0 && (lowest == 0 || cost < lowest) {
				lowest = cost
			}
		}
		if page.Next != "" || lowest > 0 && lowest <= free {
			return 1, nil // there may be cheaper ones behind these
		}
	}
	return max(lowest, 1), nil
}

// silent tells about jobs whose workers are not heard of; more says that there may be others.
func (f *findings) silent(quiet, gone *silence, more bool) {
	some := ""
	if more {
		some = "at least "
	}
	if quiet.jobs > 0 {
		f.add("note", "leases", "silent workers hold %s%s, the longest %s, whose last sign of life was %s; gq job explain %s",
			some, quantity.Of(quiet.jobs, "running job"), clean(quiet.longest.Worker), ago(quiet.longest.HeartbeatAt), quiet.example)
	}
	if gone.jobs > 0 {
		f.add("fail", "leases", "workers that are gone hold %s%s, the longest %s, whose last sign of life was %s; other workers get its job %s; gq job explain %s",
			some, quantity.Of(gone.jobs, "running job"), clean(gone.longest.Worker), ago(gone.longest.HeartbeatAt), ago(gone.longest.ExpiresAt), gone.example)
	}
}

// pools tells about pools that silent workers occupy and that have no room for any job that waits.
func (f *findings) pools(ctx context.Context, q queue, queues []gq.Queue, filled map[string]*silence) error {
	pools, err := q.Pools(ctx)
	if err != nil {
		return err
	}
	var full, between group
	for i := range pools {
		p, by := &pools[i], filled[pools[i].Name]
		if by == nil || by.units == 0 {
			continue
		}
		free, cost := p.Capacity-p.Used, int64(1)
		if free > 0 {
			if cost, err = cheapest(ctx, q, queues, p.Name, free); err != nil {
				return err
			}
		}
		if free >= cost {
			continue
		}
		state := "is full"
		if free > 0 {
			state = fmt.Sprintf("has no room for the jobs that wait (%d free, and the cheapest needs %d)", free, cost)
		}
		to := &between
		if by.overdue > 0 {
			to = &full
		}
		to.add(by.units, "pool %s %s, and workers without a sign of life hold %d of its %s, the longest %s since %s; gq job explain %s",
			p.Name, state, by.units, quantity.Of(p.Capacity, "unit"), clean(by.longest.Worker), roundly(time.Since(by.longest.HeartbeatAt)), by.example)
	}
	f.group("fail", "pool", "pools", full)
	f.group("note", "pool", "pools", between)
	return nil
}
