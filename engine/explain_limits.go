package engine

import (
	"context"
	"fmt"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/internal/quantity"
	"github.com/gopherqueue/gq/machine"
	"github.com/gopherqueue/gq/store"
)

// limits adds a reason for each limit of the queue that blocks the job now.
func (x *inquiry) limits(ctx context.Context) error {
	q := &x.queue
	if q.MaxRunning == 0 && !machine.LimitsKeys(q) && q.Pool == "" && !q.Rate.Limited() {
		return nil
	}
	held, err := x.heldIn(ctx, q.Name)
	if err != nil {
		return err
	}
	if q.MaxRunning > 0 && len(held) >= q.MaxRunning {
		r := gq.Reason{
			Cause:   gq.CauseConcurrency,
			Summary: fmt.Sprintf("queue %s has reached max_running: %d running", q.Name, len(held)),
			Remedy:  fmt.Sprintf("wait for a job to end, or raise max_running of queue %s", q.Name),
		}
		x.add(holders(r, held))
	}
	if err := x.key(ctx, held); err != nil {
		return err
	}
	if err := x.pool(ctx, held); err != nil {
		return err
	}
	return x.rate(ctx)
}

// heldIn lists the jobs of a queue that workers hold.
func (x *inquiry) heldIn(ctx context.Context, queue string) (held []gq.Job, err error) {
	q := gq.Query{Queue: queue, Statuses: []gq.Status{gq.StatusClaimed, gq.StatusRunning}, OldestFirst: true, Limit: store.MaxPage}
	for range 10 { // ignore jobs beyond the first ten thousand
		page, err := x.engine.store.List(ctx, q)
		if err != nil {
			return nil, err
		}
		for i := range page.Jobs {
			if l := page.Jobs[i].State.Lease; l != nil && !l.Expired(x.now) {
				held = append(held, page.Jobs[i])
			}
		}
		if q.Cursor = page.Next; q.Cursor == "" {
			break
		}
	}
	return held, nil
}

// holders adds held jobs to a reason.
func holders(r gq.Reason, held []gq.Job) gq.Reason {
	for i := range held[:min(len(held), shown)] {
		r.Jobs = append(r.Jobs, related(&held[i]))
	}
	r.More = len(held) - len(r.Jobs)
	return r
}

func related(j *gq.Job) gq.Related {
	l := j.State.Lease
	return gq.Related{Job: j.State.ID, Status: j.State.Status, Worker: l.Worker, Since: l.GrantedAt, Cost: l.CostUnits}
}

// key adds a reason for each limit of the job's limit key that blocks it.
func (x *inquiry) key(ctx context.Context, held []gq.Job) error {
	name := x.job.Spec.LimitKey
	if name == "" || !machine.LimitsKeys(&x.queue) {
		return nil
	}
	keys, err := x.engine.store.Keys(ctx, store.KeyQuery{Queue: x.queue.Name, Names: []string{name}})
	if err != nil {
		return err
	}
	limit, rate := machine.KeyLimits(&x.queue, &keys[0])
	x.keyLimit(held, limit)
	if until := keys[0].FreeAt; until.After(x.now) {
		x.add(gq.Reason{
			Cause: gq.CauseKeyRate, Until: until,
			Summary: fmt.Sprintf("key %s of queue %s has reached its rate of %d per %v; its next job starts at %s",
				name, x.queue.Name, rate.Count, rate.Per, until.UTC().Format(time.RFC3339Nano)),
			Remedy: fmt.Sprintf("wait, raise key_rate of queue %s, or give the key a higher one: gq queue key set", x.queue.Name),
		})
	}
	return nil
}

func (x *inquiry) keyLimit(held []gq.Job, limit int) {
	key := x.job.Spec.LimitKey
	if limit == 0 {
		return
	}
	var same []gq.Job
	for i := range held {
		if held[i].Spec.LimitKey == key {
			same = append(same, held[i])
		}
	}
	if len(same) < limit {
		return
	}
	x.add(holders(gq.Reason{
		Cause:   gq.CauseKeyLimit,
		Summary: fmt.Sprintf("queue %s has reached key_limit for key %s: %d running", x.queue.Name, key, len(same)),
		Remedy:  fmt.Sprintf("wait for a job to end, or raise key_limit of queue %s", x.queue.Name),
	}, same))
}

// capacity adds a reason if a claimed job waits for capacity.
func (x *inquiry) capacity(ctx context.Context) (err error) {
	if x.state.Detail != gq.DetailLeasePending {
		return nil
	}
	if x.queue, _, err = x.engine.findQueue(ctx, x.job.Spec.Queue); err != nil || x.queue.Pool == "" {
		return err
	}
	held, err := x.heldIn(ctx, x.queue.Name)
	if err != nil {
		return err
	}
	return x.pool(ctx, held)
}

func (x *inquiry) pool(ctx context.Context, held []gq.Job) error {
	cost := x.job.Spec.CostUnits
	if x.queue.Pool == "" || cost == 0 {
		return nil
	}
	pools, err := x.engine.store.Pools(ctx)
	if err != nil {
		return err
	}
	var pool gq.Pool
	for _, p := range pools {
		if p.Name == x.queue.Pool {
			pool = p
		}
	}
	queues, err := x.engine.store.Queues(ctx, store.QueueQuery{Pool: pool.Name})
	if err != nil {
		return err
	}
	all := held
	for _, q := range queues {
		if q.Name != x.queue.Name {
			others, err := x.heldIn(ctx, q.Name)
			if err != nil {
				return err
			}
			all = append(all, others...)
		}
	}
	used, dear := int64(0), all[:0:0]
	for i := range all {
		if c := all[i].State.Lease.CostUnits; c > 0 && machine.CountsInPool(pool, all[i].State.Status) {
			used += c
			dear = append(dear, all[i])
		}
	}
	switch {
	case cost > pool.Capacity:
		x.add(gq.Reason{
			Cause: gq.CausePool, Never: true,
			Summary: fmt.Sprintf("costs %s, more than the whole capacity of pool %s (%d)", quantity.Of(cost, "unit"), pool.Name, pool.Capacity),
			Remedy:  fmt.Sprintf("raise the capacity of pool %s, or submit a cheaper job", pool.Name),
		})
	case used+cost > pool.Capacity:
		x.add(holders(gq.Reason{
			Cause:   gq.CausePool,
			Summary: fmt.Sprintf("costs %s; pool %s has %d of %d left", quantity.Of(cost, "unit"), pool.Name, pool.Capacity-used, pool.Capacity),
			Remedy:  fmt.Sprintf("wait for other jobs to end, or raise the capacity of pool %s", pool.Name),
		}, dear))
	}
	return nil
}

// rate adds a reason if only the rate limit blocks the queue. The next claim is then allowed
// within one interval.
func (x *inquiry) rate(ctx context.Context) error {
	q := &x.queue
	if !q.Rate.Limited() || len(x.reasons) > 0 {
		return nil
	}
	next, err := x.engine.store.Peek(ctx, store.Filter{
		Queues: []string{q.Name}, Types: []string{x.job.Spec.Type}, Offers: x.job.Spec.Requires,
	}, 1)
	if err != nil || len(next) > 0 {
		return err
	}
	until := x.now.Add(q.Rate.Per / time.Duration(q.Rate.Count))
	when := "no later than"
	if known, ok := x.engine.rates.Load(q.Name); ok && known.(time.Time).After(x.now) {
		until, when = known.(time.Time), "at"
	}
	x.add(gq.Reason{
		Cause: gq.CauseRate, Until: until,
		Summary: fmt.Sprintf("queue %s has reached its rate of %s per %v; the next one starts %s %s",
			q.Name, quantity.Of(q.Rate.Count, "job"), q.Rate.Per, when, until.UTC().Format(time.RFC3339Nano)),
		Remedy: fmt.Sprintf("wait, or raise the rate of queue %s", q.Name),
	})
	return nil
}
