package client

import (
	"context"
	"errors"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/gopherqueue/gq"
	pb "github.com/gopherqueue/gq/api/gopherqueue/v1"
	"github.com/gopherqueue/gq/internal/pbconv"
	"github.com/gopherqueue/gq/internal/retry"
)

// Events returns up to limit events after a sequence number, oldest first. It requires read
// access to all queues.
func (c *Client) Events(ctx context.Context, after uint64, limit int) ([]gq.Event, error) {
	m, err := invoke(ctx, c, repeat, c.events.ListEvents, &pb.ListEventsRequest{After: after, Limit: int64(limit)})
	if err != nil {
		return nil, err
	}
	return read("list events", m.GetEvents(), pbconv.EventsFromProto)
}

// LastEvent returns the sequence number of the newest event; 0 if there is none.
func (c *Client) LastEvent(ctx context.Context) (uint64, error) {
	m, err := invoke(ctx, c, repeat, c.events.LastEvent, &pb.LastEventRequest{})
	return m.GetSeq(), err
}

// Follow calls f with every event after a sequence number, oldest first, and then with new
// events. It returns nil when the context ends, or the error of f. It reconnects for up to
// Options.RetryFor when the server is lost or drops a slow subscriber. If events after the
// number have already been deleted, the error is [gq.ErrGone].
func (c *Client) Follow(ctx context.Context, after uint64, f func([]gq.Event) error) error {
	until := time.Now().Add(c.options.RetryFor)
	for failures := 0; ; {
		c.connected(ctx, until, failures == 0)
		before, began := after, time.Now()
		sent, err := c.followOnce(ctx, &after, f)
		var stop stopFollowing
		switch {
		case errors.As(err, &stop):
			return stop.error
		case ctx.Err() != nil:
			return nil
		case c.life.Err() != nil:
			return errClosed
		case after > before || sent && time.Since(began) > followed: // a stream without events counts too
			failures, until = 0, time.Now().Add(c.options.RetryFor)
		}
		again := passing(err) || status.Code(err) == codes.ResourceExhausted
		if !again || !time.Now().Before(until) {
			return pbconv.ErrorFromStatus(err)
		}
		failures++
		retry.Pause(ctx, retry.Delay(failures, retryFirst, retryMost))
	}
}

// followed is how long a stream lasts at least if the server has accepted it.
const followed = time.Second

// stopFollowing is an error that ends Follow without a retry.
type stopFollowing struct{ error }

// followOnce follows over one stream and advances after. It reports whether the request was sent.
func (c *Client) followOnce(ctx context.Context, after *uint64, f func([]gq.Event) error) (sent bool, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(c.life, cancel)()
	var server peer.Peer
	stream, err := c.events.Subscribe(ctx, &pb.SubscribeRequest{After: new(*after)}, grpc.Peer(&server))
	for err == nil {
		var m *pb.SubscribeResponse
		if m, err = stream.Recv(); err != nil {
			break
		}
		if len(m.GetEvents()) > 0 {
			events, err := read("follow events", m.GetEvents(), pbconv.EventsFromProto)
			if err != nil {
				return true, stopFollowing{err}
			}
			if err := f(events); err != nil {
				return true, stopFollowing{err}
			}
		}
		*after = max(*after, m.GetPosition())
	}
	return !bool(unsent(&server)), err
}
