package client

import (
	"context"
	"errors"
	"slices"

	"github.com/gopherqueue/gq"
	pb "github.com/gopherqueue/gq/api/gopherqueue/v1"
	"github.com/gopherqueue/gq/internal/wire"
	"github.com/gopherqueue/gq/machine"
)

// Queues lists every queue that has been configured or ever had a job, by name. It
// reads them a page at a time, and the pages as they are at that moment.
func (c *Client) Queues(ctx context.Context) ([]gq.Queue, error) {
	return c.QueuesAfter(ctx, "", 0)
}

// QueuesAfter lists up to limit queues whose names come after one, by name: a page of
// [Client.Queues]. A limit of 0 is no limit.
func (c *Client) QueuesAfter(ctx context.Context, name string, limit int) (all []gq.Queue, err error) {
	for {
		r := &pb.ListQueuesRequest{Cursor: name, Limit: queuePage}
		if limit > 0 {
			r.Limit = min(r.Limit, int64(limit-len(all)))
		}
		m, err := invoke(ctx, c, repeat, c.queues.ListQueues, r)
		if err != nil {
			return nil, err
		}
		page, err := readAll("list queues", m.GetQueues(), wire.QueueFromProto)
		if err != nil {
			return nil, err
		}
		// A server before pages sends all queues, whatever it is asked.
		all = append(all, slices.DeleteFunc(page, func(q gq.Queue) bool { return q.Name <= name })...)
		if limit > 0 && len(all) > limit {
			all = all[:limit]
		}
		if name = m.GetNextCursor(); name == "" || len(all) == limit {
			return all, nil
		}
	}
}

// queuePage is how many queues are read at a time.
const queuePage = 1000

func readQueue(m *pb.Queue, err error) (gq.Queue, error) {
	if err != nil {
		return gq.Queue{}, err
	}
	return read("queue", m, wire.QueueFromProto)
}

// Queue reads how a queue is configured. The error is [gq.ErrNotFound] for one
// that nobody has configured and that never had a job.
func (c *Client) Queue(ctx context.Context, name string) (gq.Queue, error) {
	return readQueue(invoke(ctx, c, repeat, c.queues.GetQueue, &pb.GetQueueRequest{Name: name}))
}

// PutQueue configures a queue, from the next claim or submission on. A zero
// policy is the default one.
func (c *Client) PutQueue(ctx context.Context, q gq.Queue) (gq.Queue, error) {
	return readQueue(invoke(ctx, c, once, c.queues.SetQueue, wire.ProtoSetQueue(&q)))
}

// DeclareQueue sets up a queue for a program that starts, and leaves alone what somebody else
// has changed since the program declared it last.
func (c *Client) DeclareQueue(ctx context.Context, q gq.Queue) (gq.Queue, error) {
	m := wire.ProtoSetQueue(&q)
	m.Declare = true
	return readQueue(invoke(ctx, c, repeat, c.queues.SetQueue, m))
}

// ChangeQueue reads a queue, lets change have it and sends what that has changed,
// and nothing else: what others set in the meantime stays. A queue that does not
// exist yet begins with the defaults.
func (c *Client) ChangeQueue(ctx context.Context, name string, change func(*gq.Queue)) (gq.Queue, error) {
	before, err := c.Queue(ctx, name)
	if errors.Is(err, gq.ErrNotFound) {
		before, err = machine.NewQueue(name), nil
	}
	if err != nil {
		return gq.Queue{}, err
	}
	after := before
	change(&after)
	after.Name = name
	return readQueue(invoke(ctx, c, once, c.queues.SetQueue, wire.ProtoChangeQueue(&before, &after)))
}

// Pause keeps jobs of a queue from being claimed.
func (c *Client) Pause(ctx context.Context, queue string) (gq.Queue, error) {
	return readQueue(invoke(ctx, c, once, c.queues.PauseQueue, &pb.PauseQueueRequest{Name: queue}))
}

// Resume ends a pause.
func (c *Client) Resume(ctx context.Context, queue string) (gq.Queue, error) {
	return readQueue(invoke(ctx, c, once, c.queues.ResumeQueue, &pb.ResumeQueueRequest{Name: queue}))
}

// Pools lists every pool by name.
func (c *Client) Pools(ctx context.Context) ([]gq.Pool, error) {
	m, err := invoke(ctx, c, repeat, c.queues.ListPools, &pb.ListPoolsRequest{})
	if err != nil {
		return nil, err
	}
	return readAll("list pools", m.GetPools(), wire.PoolFromProto)
}

// PutPool configures capacity that queues share, from the next claim on.
func (c *Client) PutPool(ctx context.Context, p gq.Pool) error {
	_, err := invoke(ctx, c, once, c.queues.SetPool, &pb.SetPoolRequest{Name: p.Name, Capacity: p.Capacity})
	return err
}
