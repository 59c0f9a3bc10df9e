package client

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/gopherqueue/gq"
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

	// sharedWithin is how long it waits for a request that it shares. One of the others may wait
	// for a lock.
	sharedWithin = 2 * time.Second
)

// gatherer lets concurrent calls of Submit share requests.
type gatherer struct {
	within  time.Duration // how long a submission waits for a request
	shared  time.Duration // and how long for the answer to one that it shares
	mu      sync.Mutex
	calls   int           // requests on their way
	waiting []*submission // in the order of their calls
}

// submission is a call of Submit that waits for others to return.
type submission struct {
	spec   []byte // encoded for the request
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

// shares reports whether nothing goes with a request for this submission alone.
func shares(ctx context.Context) bool {
	sent, _ := metadata.FromOutgoingContext(ctx)
	return len(sent) == 0 && !tracing.Traced(ctx)
}

// submitShared sends a submission, alone if few others are on their way. The submission must
// have a key that only this call knows, so that it can be sent again whatever became of the
// request that it shared.
func (c *Client) submitShared(ctx context.Context, s *gq.Spec) (gq.SubmitResult, error) {
	g := &c.gatherer
	g.mu.Lock()
	if g.calls < submitCalls {
		g.calls++
		g.mu.Unlock()
		defer c.sendWaiting()
		return c.submitAlone(ctx, s)
	}
	spec, err := pbconv.AppendSubmission(nil, s)
	if err != nil {
		g.mu.Unlock()
		return c.submitAlone(ctx, s) // which says what is wrong with it
	}
	own := &submission{spec: spec, done: make(chan struct{})}
	g.waiting = append(g.waiting, own)
	g.mu.Unlock()

	late := time.NewTimer(g.within)
	defer late.Stop()
	for sent := false; ; sent = true {
		select {
		case <-own.done:
			if own.alone {
				return c.submitAlone(ctx, s)
			}
			return own.result, own.err
		case <-late.C:
			if shared := g.leave(own); shared != nil && !sent {
				late.Reset(g.shared)
				continue
			} else if shared != nil {
				shared.left()
			}
			return c.submitAlone(ctx, s)
		case <-ctx.Done():
			if shared := g.leave(own); shared != nil {
				shared.left()
			}
			return c.abandoned(ctx)
		}
	}
}

// left cancels a request that nobody waits for any more.
func (g *group) left() {
	if g.callers.Add(-1) == 0 {
		g.cancel()
	}
}

// abandoned returns the result of a submission whose context has ended.
func (c *Client) abandoned(ctx context.Context) (gq.SubmitResult, error) {
	err := status.FromContextError(ctx.Err()).Err()
	if c.conn.GetState() != connectivity.Ready {
		err = c.ended(ctx)
	}
	err = pbconv.ErrorFromStatus(err)
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
	for n < min(len(g.waiting), maxItems) && (n == 0 || size+len(g.waiting[n].spec) <= maxBytes) {
		size += len(g.waiting[n].spec)
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
	var specs []byte
	for _, s := range g.members {
		specs = append(specs, s.spec...)
	}
	answers, err := c.submitSome(g.ctx, repeat, specs, len(g.members))
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
