package client

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/gopherqueue/gq"
	pb "github.com/gopherqueue/gq/api/gopherqueue/v1"
	"github.com/gopherqueue/gq/internal/errs"
	"github.com/gopherqueue/gq/internal/pbconv"
	"github.com/gopherqueue/gq/internal/tracing"
)

const (
	// submitCalls is the number of calls of Submit that are sent at once. Further ones wait for
	// one of these to return and are then sent in one request, which costs a fraction.
	submitCalls = 4

	// gatherWithin is how long a call of Submit waits for that.
	gatherWithin = 250 * time.Millisecond
)

// gatherer lets concurrent calls of Submit share requests.
type gatherer struct {
	within  time.Duration // how long a submission waits
	mu      sync.Mutex
	calls   int           // requests on their way
	waiting []*submission // in the order of their calls
}

// submission is a call of Submit that waits for others to return.
type submission struct {
	spec   *pb.Spec
	size   int
	group  *group // set with the request; guarded by gatherer.mu
	done   chan struct{}
	result gq.SubmitResult // set when done is closed
	err    error
	alone  bool // only a request of its own can tell the outcome
}

// group is a request for several submissions.
type group struct {
	ctx     context.Context
	cancel  context.CancelFunc
	callers atomic.Int64 // that wait for it
	members []*submission
}

// shares reports whether a submission can share a request: it must be safe to repeat, and there
// must be nothing that goes with its request alone.
func shares(ctx context.Context, s *gq.Spec) bool {
	sent, _ := metadata.FromOutgoingContext(ctx)
	return repeatable(s) && len(sent) == 0 && !tracing.Traced(ctx)
}

// submitShared sends a submission, alone if few others are on their way.
func (c *Client) submitShared(ctx context.Context, s *gq.Spec) (gq.SubmitResult, error) {
	g := &c.gatherer
	g.mu.Lock()
	if g.calls < submitCalls {
		g.calls++
		g.mu.Unlock()
		defer c.sendWaiting()
		return c.submitAlone(ctx, s)
	}
	own := &submission{spec: pbconv.ProtoSpec(s), done: make(chan struct{})}
	own.size = proto.Size(own.spec)
	g.waiting = append(g.waiting, own)
	g.mu.Unlock()

	late := time.NewTimer(g.within)
	defer late.Stop()
	for {
		select {
		case <-own.done:
			if own.alone {
				return c.submitAlone(ctx, s)
			}
			return own.result, own.err
		case <-late.C:
			if g.leave(own) == nil {
				return c.submitAlone(ctx, s)
			}
		case <-ctx.Done():
			if sent := g.leave(own); sent != nil && sent.callers.Add(-1) == 0 {
				sent.cancel()
			}
			return c.abandoned(ctx)
		}
	}
}

// abandoned returns the result of a submission whose context has ended.
func (c *Client) abandoned(ctx context.Context) (gq.SubmitResult, error) {
	text := ctx.Err().Error()
	if c.conn.GetState() != connectivity.Ready {
		text = fmt.Sprintf("%v: %v", text, ErrUnreachable)
	}
	err := pbconv.ErrorFromStatus(status.Error(status.FromContextError(ctx.Err()).Code(), text))
	return gq.SubmitResult{Err: err}, err
}

// leave removes a submission from those that wait, or returns the request that it is part of.
func (g *gatherer) leave(s *submission) *group {
	g.mu.Lock()
	defer g.mu.Unlock()
	if i := slices.Index(g.waiting, s); i >= 0 {
		g.waiting = slices.Delete(g.waiting, i, i+1)
	}
	return s.group
}

// next takes submissions for a request, nil if none waits: then one request less is on its way.
func (c *Client) next() *group {
	g := &c.gatherer
	g.mu.Lock()
	defer g.mu.Unlock()
	n, size := 0, 0
	for n < min(len(g.waiting), maxItems) && (n == 0 || size+g.waiting[n].size <= maxBytes) {
		size += g.waiting[n].size
		n++
	}
	if n == 0 {
		g.calls--
		return nil
	}
	next := &group{members: slices.Clone(g.waiting[:n])}
	next.ctx, next.cancel = context.WithCancel(c.life)
	next.callers.Store(int64(n))
	for _, s := range next.members {
		s.group = next
	}
	g.waiting = slices.Delete(g.waiting, 0, n)
	return next
}

// sendWaiting follows a request that returned: it sends the submissions that wait, until none
// does.
func (c *Client) sendWaiting() {
	first := c.next()
	if first == nil {
		return
	}
	if !c.later(func() {
		for g := first; g != nil; g = c.next() {
			c.send(g)
		}
	}) {
		for g := first; g != nil; g = c.next() { // the client is closed, as they will find out
			g.each(func(_ int, s *submission) { s.alone = true })
		}
	}
}

// send makes the request of a group. Whoever it does not store a job for makes a request alone,
// which returns the reason, unless no server was reachable.
func (c *Client) send(g *group) {
	defer g.cancel()
	specs := make([]*pb.Spec, len(g.members))
	for i, s := range g.members {
		specs[i] = s.spec
	}
	answers, err := c.submitSome(g.ctx, repeat, specs)
	g.each(func(i int, s *submission) {
		switch {
		case err == nil && answers[i].Err == nil:
			s.result = answers[i]
		case errs.KindOf(err) == gq.KindUnavailable:
			s.result, s.err = gq.SubmitResult{Err: err}, err
		default:
			s.alone = true
		}
	})
}

// each gives every member its outcome.
func (g *group) each(set func(i int, s *submission)) {
	for i, s := range g.members {
		set(i, s)
		close(s.done)
	}
}
