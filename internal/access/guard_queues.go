package access

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/internal/errs"
)

// Queues lists the queues that the caller may read.
func (g *Guard) Queues(ctx context.Context) ([]gq.Queue, error) {
	c, err := g.enter(ctx, Read)
	if err != nil {
		return nil, err
	}
	queues, err := g.engine.Queues(ctx)
	if err != nil || c.MayEverywhere(Read) {
		return queues, err
	}
	return slices.DeleteFunc(queues, func(q gq.Queue) bool { return !c.May(Read, q.Name) }), nil
}

// QueuesAfter returns a page of the queues that the caller may read.
func (g *Guard) QueuesAfter(ctx context.Context, name string, limit int) (page []gq.Queue, err error) {
	c, err := g.enter(ctx, Read)
	if err != nil {
		return nil, err
	}
	for {
		queues, err := g.engine.QueuesAfter(ctx, name, limit)
		if err != nil {
			return nil, err
		}
		for i := range queues {
			if name = queues[i].Name; c.MayEverywhere(Read) || c.May(Read, name) {
				page = append(page, queues[i])
			}
			if limit > 0 && len(page) == limit {
				return page, nil
			}
		}
		if limit <= 0 || len(queues) < limit {
			return page, nil
		}
	}
}

// administers rejects callers without admin on a queue.
func (g *Guard) administers(ctx context.Context, queue string) (*caller, error) {
	c, err := g.enter(ctx, Admin)
	if err != nil {
		return nil, err
	}
	return c, c.on(Admin, queue)
}

// DeclareQueue needs admin on the queue. Putting it into a pool, which other queues
// share, needs admin on all queues.
func (g *Guard) DeclareQueue(ctx context.Context, q gq.Queue) (gq.Queue, error) {
	c, err := g.administers(ctx, q.Name)
	if err != nil {
		return gq.Queue{}, err
	}
	if q.Pool != "" && !c.MayEverywhere(Admin) {
		return gq.Queue{}, fmt.Errorf("put queue %.80q into a pool: %w", q.Name, c.everywhere(Admin))
	}
	return g.engine.DeclareQueue(ctx, q)
}

// PutQueue needs admin on the queue. Putting it into a pool, which other queues share,
// needs admin on all queues.
func (g *Guard) PutQueue(ctx context.Context, q gq.Queue) (gq.Queue, error) {
	return g.ChangeQueue(ctx, q.Name, func(old *gq.Queue) {
		*old = q
	})
}

// SetQueueKey needs admin on the queue.
func (g *Guard) SetQueueKey(ctx context.Context, k gq.QueueKey) (gq.QueueKey, error) {
	if _, err := g.administers(ctx, k.Queue); err != nil {
		return gq.QueueKey{}, err
	}
	return g.engine.SetQueueKey(ctx, k)
}

// ChangeQueue needs admin on the queue. Putting it into a pool, which other queues share,
// needs admin on all queues.
func (g *Guard) ChangeQueue(ctx context.Context, name string, change func(*gq.Queue)) (gq.Queue, error) {
	c, err := g.administers(ctx, name)
	if err != nil {
		return gq.Queue{}, err
	}
	if c.MayEverywhere(Admin) {
		return g.engine.ChangeQueue(ctx, name, change)
	}
	denied := func() error { return fmt.Errorf("put queue %.80q into another pool: %w", name, c.everywhere(Admin)) }
	old, err := g.engine.Queue(ctx, name)
	if err != nil && !errors.Is(err, gq.ErrNotFound) {
		return gq.Queue{}, err
	}
	pool := old.Pool
	if change(&old); old.Pool != pool {
		return gq.Queue{}, denied() // before anything is written
	}
	refused := false
	q, err := g.engine.ChangeQueue(ctx, name, func(q *gq.Queue) {
		before := *q
		change(q)
		if refused = q.Pool != before.Pool; refused { // the pool was changed meanwhile
			*q = before
		}
	})
	if err == nil && refused {
		return gq.Queue{}, denied()
	}
	return q, err
}

// Counts needs read on the queues that it names; without names it counts those that the
// caller may read.
func (g *Guard) Counts(ctx context.Context, queues ...string) ([]gq.Count, error) {
	c, err := g.enter(ctx, Read)
	if err != nil {
		return nil, err
	}
	for _, q := range queues {
		if err := c.on(Read, q); err != nil {
			return nil, err
		}
	}
	counts, err := g.engine.Counts(ctx, queues...)
	if err != nil || c.MayEverywhere(Read) {
		return counts, err
	}
	return slices.DeleteFunc(counts, func(n gq.Count) bool { return !c.May(Read, n.Queue) }), nil
}

// Stats covers the queues that the caller may read. The store's own numbers and the nodes
// need read on all queues.
func (g *Guard) Stats(ctx context.Context) (gq.Stats, error) {
	c, err := g.enter(ctx, Read)
	if err != nil {
		return gq.Stats{}, err
	}
	stats, err := g.engine.Stats(ctx)
	if err != nil || c.MayEverywhere(Read) {
		return stats, err
	}
	seen := gq.Stats{}
	for _, n := range stats.Queues {
		if c.May(Read, n.Queue) {
			seen.Queues = append(seen.Queues, n)
			seen.Total.Add(n)
		}
	}
	workers, err := g.engine.Workers(ctx)
	if err != nil {
		return gq.Stats{}, err
	}
	for i := range workers {
		if slices.ContainsFunc(workers[i].Queues, func(q string) bool { return c.May(Read, q) }) {
			seen.Workers++
		}
	}
	return seen, nil
}

// Schedule needs read on the queue of its jobs.
func (g *Guard) Schedule(ctx context.Context, name string) (gq.Schedule, error) {
	c, err := g.enter(ctx, Read)
	if err != nil {
		return gq.Schedule{}, err
	}
	s, err := g.engine.Schedule(ctx, name)
	if err == nil {
		err = c.on(Read, s.Template.Queue)
	}
	if err != nil {
		return gq.Schedule{}, err
	}
	return s, nil
}

// Schedules lists the schedules whose jobs the caller may read.
func (g *Guard) Schedules(ctx context.Context) ([]gq.Schedule, error) {
	c, err := g.enter(ctx, Read)
	if err != nil {
		return nil, err
	}
	schedules, err := g.engine.Schedules(ctx)
	if err != nil || c.MayEverywhere(Read) {
		return schedules, err
	}
	return slices.DeleteFunc(schedules, func(s gq.Schedule) bool { return !c.May(Read, cmp.Or(s.Template.Queue, gq.DefaultQueue)) }), nil
}

// owns rejects changes of a schedule whose jobs go to a queue that the caller does not
// administer. A schedule that does not exist passes.
func (g *Guard) owns(ctx context.Context, name string) (*caller, error) {
	c, err := g.enter(ctx, Admin)
	if err != nil || c.MayEverywhere(Admin) {
		return c, err
	}
	s, err := g.engine.Schedule(ctx, name)
	if errs.KindOf(err) == gq.KindNotFound {
		return c, nil
	}
	if err != nil {
		return nil, err
	}
	return c, c.on(Admin, s.Template.Queue)
}

// PutSchedule needs admin on the queue of its jobs, both the old and the new one.
func (g *Guard) PutSchedule(ctx context.Context, s gq.Schedule) (gq.Schedule, error) {
	c, err := g.owns(ctx, s.Name)
	if err != nil {
		return gq.Schedule{}, err
	}
	if err := c.on(Admin, s.Template.Queue); err != nil {
		return gq.Schedule{}, err
	}
	return g.engine.PutSchedule(ctx, s)
}

// DeclareSchedule needs admin on the queue of its jobs, both the old and the new one.
func (g *Guard) DeclareSchedule(ctx context.Context, s gq.Schedule) (gq.Schedule, error) {
	c, err := g.owns(ctx, s.Name)
	if err != nil {
		return gq.Schedule{}, err
	}
	if err := c.on(Admin, s.Template.Queue); err != nil {
		return gq.Schedule{}, err
	}
	return g.engine.DeclareSchedule(ctx, s)
}

// PauseSchedule needs admin on the queue of its jobs.
func (g *Guard) PauseSchedule(ctx context.Context, name string) (gq.Schedule, error) {
	if _, err := g.owns(ctx, name); err != nil {
		return gq.Schedule{}, err
	}
	return g.engine.PauseSchedule(ctx, name)
}

// ResumeSchedule needs admin on the queue of its jobs.
func (g *Guard) ResumeSchedule(ctx context.Context, name string) (gq.Schedule, error) {
	if _, err := g.owns(ctx, name); err != nil {
		return gq.Schedule{}, err
	}
	return g.engine.ResumeSchedule(ctx, name)
}

// submitsFor rejects calls that submit jobs of a schedule to a queue where the caller may not
// submit. A schedule that does not exist passes.
func (g *Guard) submitsFor(ctx context.Context, name string) error {
	c, err := g.enter(ctx, Submit)
	if err != nil || c.MayEverywhere(Submit) {
		return err
	}
	s, err := g.engine.Schedule(ctx, name)
	if errs.KindOf(err) == gq.KindNotFound {
		return nil
	}
	if err != nil {
		return err
	}
	return c.on(Submit, s.Template.Queue)
}

// TriggerSchedule needs submit on the queue of its jobs.
func (g *Guard) TriggerSchedule(ctx context.Context, name string) (gq.Firing, error) {
	if err := g.submitsFor(ctx, name); err != nil {
		return gq.Firing{}, err
	}
	return g.engine.TriggerSchedule(ctx, name)
}

// BackfillSchedule needs submit on the queue of its jobs.
func (g *Guard) BackfillSchedule(ctx context.Context, b gq.Backfill) (gq.BackfillReport, error) {
	if err := g.submitsFor(ctx, b.Schedule); err != nil {
		return gq.BackfillReport{}, err
	}
	return g.engine.BackfillSchedule(ctx, b)
}

// DeleteSchedule needs admin on the queue of its jobs.
func (g *Guard) DeleteSchedule(ctx context.Context, name string) error {
	if _, err := g.owns(ctx, name); err != nil {
		return err
	}
	return g.engine.DeleteSchedule(ctx, name)
}
