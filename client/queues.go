package client

import (
	"context"
	"errors"
	"slices"

	"github.com/gopherqueue/gq"
	pb "github.com/gopherqueue/gq/api/gopherqueue/v1"
	"github.com/gopherqueue/gq/internal/pbconv"
)

// Queues lists every queue that is configured or ever had a job, sorted by name. It reads them
// one page at a time.
func (c *Client) Queues(ctx context.Context) ([]gq.Queue, error) {
	return c.QueuesAfter(ctx, "", 0)
}

// QueuesAfter lists up to limit queues with names greater than name, sorted by name. A limit of
// 0 is no limit.
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
		page, err := readAll("list queues", m.GetQueues(), pbconv.QueueFromProto)
		if err != nil {
			return nil, err
		}
		// A server without paging ignores the limit and sends all queues.
		all = append(all, slices.DeleteFunc(page, func(q gq.Queue) bool { return q.Name <= name })...)
		if limit > 0 && len(all) > limit {
			all = all[:limit]
		}
		if name = m.GetNextCursor(); name == "" || len(all) == limit {
			return all, nil
		}
	}
}

// queuePage is the number of queues per request.
const queuePage = 1000

func readQueue(m *pb.Queue, err error) (gq.Queue, error) {
	if err != nil {
		return gq.Queue{}, err
	}
	return read("queue", m, pbconv.QueueFromProto)
}

// Queue returns the configuration of a queue. If the queue is not configured and never had a job,
// the error is [gq.ErrNotFound].
func (c *Client) Queue(ctx context.Context, name string) (gq.Queue, error) {
	return readQueue(invoke(ctx, c, repeat, c.queues.GetQueue, &pb.GetQueueRequest{Name: name}))
}

// DeleteQueue removes the configuration of a queue. If it has live jobs, the error is
// [gq.ErrQueueInUse].
func (c *Client) DeleteQueue(ctx context.Context, name string) error {
	_, err := invoke(ctx, c, once, c.queues.DeleteQueue, &pb.DeleteQueueRequest{Name: name})
	return err
}

// SetQueueKey gives one limit key of a queue other limits than the rest.
func (c *Client) SetQueueKey(ctx context.Context, k gq.QueueKey) (gq.QueueKey, error) {
	m, err := invoke(ctx, c, once, c.queues.SetQueueKey, pbconv.ProtoSetQueueKey(&k))
	if err != nil {
		return gq.QueueKey{}, err
	}
	return read("limit key", m, pbconv.QueueKeyFromProto)
}

// UnsetQueueKey gives a limit key the limits of its queue again.
func (c *Client) UnsetQueueKey(ctx context.Context, queue, key string) error {
	_, err := invoke(ctx, c, once, c.queues.UnsetQueueKey, &pb.UnsetQueueKeyRequest{Queue: queue, Key: key})
	return err
}

// QueueKeys lists up to limit keys of a queue that have limits of their own, sorted by name.
func (c *Client) QueueKeys(ctx context.Context, queue, after string, limit int) ([]gq.QueueKey, error) {
	m, err := invoke(ctx, c, repeat, c.queues.ListQueueKeys, &pb.ListQueueKeysRequest{Queue: queue, Cursor: after, Limit: int64(limit)})
	if err != nil {
		return nil, err
	}
	return readAll("list limit keys", m.GetKeys(), pbconv.QueueKeyFromProto)
}

// QueueHistory returns what happened in queues over time.
func (c *Client) QueueHistory(ctx context.Context, q gq.HistoryQuery) ([]gq.HistoryPoint, error) {
	m, err := invoke(ctx, c, repeat, c.queues.QueueHistory, pbconv.ProtoHistoryQuery(&q))
	if err != nil {
		return nil, err
	}
	return pbconv.HistoryFromProto(m)
}

// QueueActivity returns what happened in the last 60 minutes in each of the named queues, or in
// each queue where anything did.
func (c *Client) QueueActivity(ctx context.Context, queues ...string) ([]gq.QueueActivity, error) {
	m, err := invoke(ctx, c, repeat, c.queues.QueueActivity, &pb.QueueActivityRequest{Queues: queues})
	if err != nil {
		return nil, err
	}
	return pbconv.ActivityFromProto(m)
}

// PutQueue replaces the configuration of a queue. It takes effect with the next claim or
// submission. A zero policy is the default one.
func (c *Client) PutQueue(ctx context.Context, q gq.Queue) (gq.Queue, error) {
	return readQueue(invoke(ctx, c, once, c.queues.SetQueue, pbconv.ProtoSetQueue(&q)))
}

// DeclareQueue configures a queue at program start. It keeps settings that an operator has
// changed since the last declaration.
func (c *Client) DeclareQueue(ctx context.Context, q gq.Queue) (gq.Queue, error) {
	m := pbconv.ProtoSetQueue(&q)
	m.Declare = true
	return readQueue(invoke(ctx, c, repeat, c.queues.SetQueue, m))
}

// DeclareQueueSettings is DeclareQueue for the settings that change sets. The others are the
// server's defaults, also those of the policy.
func (c *Client) DeclareQueueSettings(ctx context.Context, name string, change func(*gq.Queue)) (gq.Queue, error) {
	return readQueue(invoke(ctx, c, repeat, c.queues.SetQueue, pbconv.ProtoDeclareQueue(name, change)))
}

// ChangeQueue applies change to the queue's configuration. It sends only the changed settings, so
// concurrent changes of other settings stay. A queue that does not exist yet starts with the
// defaults of the server. The client does not know these, so in this case it calls change several
// times, with different policies, to find out what it sets.
func (c *Client) ChangeQueue(ctx context.Context, name string, change func(*gq.Queue)) (gq.Queue, error) {
	before, err := c.Queue(ctx, name)
	if errors.Is(err, gq.ErrNotFound) {
		return readQueue(invoke(ctx, c, once, c.queues.SetQueue, pbconv.ProtoNewQueue(name, change)))
	}
	if err != nil {
		return gq.Queue{}, err
	}
	after := before
	change(&after)
	after.Name = name
	return readQueue(invoke(ctx, c, once, c.queues.SetQueue, pbconv.ProtoChangeQueue(&before, &after)))
}

// Pause stops claims from a queue.
func (c *Client) Pause(ctx context.Context, queue string) (gq.Queue, error) {
	return readQueue(invoke(ctx, c, once, c.queues.PauseQueue, &pb.PauseQueueRequest{Name: queue}))
}

// Resume ends a pause.
func (c *Client) Resume(ctx context.Context, queue string) (gq.Queue, error) {
	return readQueue(invoke(ctx, c, once, c.queues.ResumeQueue, &pb.ResumeQueueRequest{Name: queue}))
}

// Pools lists all pools, sorted by name.
func (c *Client) Pools(ctx context.Context) ([]gq.Pool, error) {
	m, err := invoke(ctx, c, repeat, c.queues.ListPools, &pb.ListPoolsRequest{})
	if err != nil {
		return nil, err
	}
	return readAll("list pools", m.GetPools(), pbconv.PoolFromProto)
}

// PutPool creates or replaces a pool. It takes effect with the next claim.
func (c *Client) PutPool(ctx context.Context, p gq.Pool) error {
	_, err := invoke(ctx, c, once, c.queues.SetPool, &pb.SetPoolRequest{Name: p.Name, Capacity: p.Capacity})
	return err
}
