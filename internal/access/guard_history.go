package access

import (
	"context"
	"fmt"
	"slices"

	"github.com/gopherqueue/gq"
)

// QueueHistory needs read on the queues that it names; without names it covers those that the
// caller may read.
func (g *Guard) QueueHistory(ctx context.Context, q gq.HistoryQuery) ([]gq.HistoryPoint, error) {
	c, err := g.enter(ctx, Read)
	if err != nil {
		return nil, err
	}
	for _, name := range q.Queues {
		if err := c.on(Read, name); err != nil {
			return nil, err
		}
	}
	if len(q.Queues) == 0 && !c.MayEverywhere(Read) {
		queues, err := g.Queues(ctx)
		if err != nil {
			return nil, err
		}
		if len(queues) == 0 {
			return g.emptyHistory(ctx, q)
		}
		if len(queues) > gq.MaxHistoryQueues {
			return nil, &gq.InvalidError{Faults: []gq.Fault{{
				Field: "queues", Problem: fmt.Sprintf("name up to %d of the %d queues that you may read", gq.MaxHistoryQueues, len(queues)),
			}}}
		}
		for i := range queues {
			q.Queues = append(q.Queues, queues[i].Name)
		}
	}
	return g.engine.QueueHistory(ctx, q)
}

// emptyHistory is the history of no queue.
func (g *Guard) emptyHistory(ctx context.Context, q gq.HistoryQuery) ([]gq.HistoryPoint, error) {
	points, err := g.engine.QueueHistory(ctx, q)
	for i := range points {
		points[i] = gq.HistoryPoint{Time: points[i].Time}
	}
	return points, err
}

// QueueActivity needs read on the queues that it names; without names it covers those that the
// caller may read.
func (g *Guard) QueueActivity(ctx context.Context, queues ...string) ([]gq.QueueActivity, error) {
	c, err := g.enter(ctx, Read)
	if err != nil {
		return nil, err
	}
	for _, name := range queues {
		if err := c.on(Read, name); err != nil {
			return nil, err
		}
	}
	list, err := g.engine.QueueActivity(ctx, queues...)
	if err != nil || c.MayEverywhere(Read) {
		return list, err
	}
	return slices.DeleteFunc(list, func(a gq.QueueActivity) bool { return !c.May(Read, a.Queue) }), nil
}
