package client

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/internal/errs"
	"github.com/gopherqueue/gq/internal/pbconv"
	"github.com/gopherqueue/gq/internal/retry"
	"github.com/gopherqueue/gq/internal/tracing"
)

// connectParams sets how the client reconnects: soon at first, with jitter. The connect timeout
// is long enough for a busy server; callers that cannot wait set a deadline.
var connectParams = grpc.ConnectParams{
	Backoff:           backoff.Config{BaseDelay: 50 * time.Millisecond, Multiplier: 1.6, Jitter: 0.3, MaxDelay: 3 * time.Second},
	MinConnectTimeout: 20 * time.Second,
}

// silence says when a server without a sign of life counts as lost: after 15 seconds, half of the
// leases that workers ask for, so that they can renew them at another server.
var silence = keepalive.ClientParameters{Time: 10 * time.Second, Timeout: 5 * time.Second}

const (
	retryFirst = 20 * time.Millisecond
	retryMost  = time.Second
)

// safety says whether a request can be sent again when its outcome is unknown.
type safety bool

const (
	once   safety = false
	repeat safety = true
)

func safeIf(ok bool) safety { return safety(ok) }

// attempts calls f until it succeeds or a retry is pointless. f returns whether it can be
// repeated, and a gRPC status or an error of package gq.
func (c *Client) attempts(ctx context.Context, f func(ctx context.Context) (safety, error)) error {
	until := time.Now().Add(c.options.RetryFor)
	late := ctx.Err() != nil
	for failures := 0; ; {
		c.connected(ctx, until, failures == 0)
		connected := c.conn.GetState() == connectivity.Ready
		again, err := f(ctx)
		if err == nil {
			if c.failure.Load() != nil {
				c.failure.Store(nil)
			}
			return nil
		}
		if failures == 0 && connected { // the time with a server does not count
			until = time.Now().Add(c.options.RetryFor)
		}
		if c.life.Err() != nil {
			return errClosed
		}
		if speaksHTTP(err) {
			return &gq.InvalidError{Faults: []gq.Fault{{
				Field: "address", Problem: fmt.Sprintf("%s is an HTTP port; give the gRPC address (default %s)", c.address, DefaultAddress),
			}}}
		}
		if passing(err) {
			c.failure.Store(&err)
		}
		if ctx.Err() != nil && !late && (passing(err) || c.conn.GetState() != connectivity.Ready) {
			return c.ended(ctx)
		}
		if !bool(again) || !passing(err) || !time.Now().Before(until) {
			return withOutcome(again, err)
		}
		failures++
		retry.Pause(ctx, retry.Delay(failures, retryFirst, retryMost))
	}
}

// withOutcome returns the error of a call that is not repeated: if it may have reached a server
// whose answer was lost, its outcome is unknown.
func withOutcome(again safety, err error) error {
	if bool(again) || !passing(err) || !errors.Is(pbconv.ErrorFromStatus(err), ErrUnreachable) {
		return err
	}
	why := err.Error()
	if s, ok := status.FromError(err); ok {
		why = s.Message()
	}
	unreachable := ErrUnreachable.Error()
	why = strings.TrimPrefix(strings.ReplaceAll(why, ": "+unreachable, ""), unreachable+": ")
	return fmt.Errorf("%w: %s", ErrOutcomeUnknown, why)
}

// ended returns the error of a call whose context ended while no server was reachable, with the
// reason of the last failure.
func (c *Client) ended(ctx context.Context) error {
	why := fmt.Errorf("%w at %s so far", ErrUnreachable, c.address)
	if last := c.failure.Load(); last != nil {
		why = pbconv.ErrorFromStatus(*last)
	}
	return status.Errorf(status.FromContextError(ctx.Err()).Code(), "%v: %v", ctx.Err(), why)
}

// passing reports whether an error only means that no server was reachable.
func passing(err error) bool {
	return !errors.Is(err, errClosed) && (status.Code(err) == codes.Unavailable || errs.KindOf(err) == gq.KindUnavailable)
}

// speaksHTTP reports whether the address is that of a web server, so retrying is pointless.
func speaksHTTP(err error) bool {
	text := err.Error()
	return strings.Contains(text, "looked like an HTTP/1.1 header") ||
		strings.Contains(text, "unexpected HTTP status code received from server") && strings.Contains(text, "unexpected content-type")
}

// connected waits until there is a connection or the time is over; the call itself then returns
// the reason. If first is set, it returns after one failure, which may be permanent.
func (c *Client) connected(ctx context.Context, until time.Time, first bool) {
	state := c.conn.GetState()
	if state == connectivity.Ready {
		c.reached(true)
		return
	}
	if !time.Now().Before(until) {
		return
	}
	ctx, cancel := context.WithDeadline(ctx, until)
	defer cancel()
	late := time.AfterFunc(reachedWithin, func() { c.reached(false) })
	defer late.Stop()
	for state != connectivity.Ready && state != connectivity.Shutdown {
		switch state {
		case connectivity.Idle:
			c.conn.Connect()
		case connectivity.TransientFailure:
			c.reached(false)
			if first {
				return
			}
		case connectivity.Connecting, connectivity.Ready, connectivity.Shutdown:
		}
		if !c.conn.WaitForStateChange(ctx, state) {
			return
		}
		state = c.conn.GetState()
	}
	c.reached(state == connectivity.Ready)
}

// reachedWithin is how long connecting may take before the server counts as unreachable.
const reachedWithin = time.Second

// reached calls Options.Reached when the server becomes unreachable or reachable again.
func (c *Client) reached(yes bool) {
	if c.options.Reached != nil && c.lost.Load() == yes && c.lost.CompareAndSwap(yes, !yes) {
		c.options.Reached(yes)
	}
}

// method is a unary method of a service.
type method[Q, A proto.Message] func(context.Context, Q, ...grpc.CallOption) (A, error)

// invoke calls a method.
func invoke[Q, A proto.Message](ctx context.Context, c *Client, s safety, m method[Q, A], request Q) (answer A, err error) {
	ctx = withTrace(ctx)
	err = c.attempts(ctx, func(ctx context.Context) (safety, error) {
		var server peer.Peer
		var err error
		answer, err = m(ctx, request, grpc.Peer(&server))
		return s || unsent(&server), err
	})
	if err != nil {
		return answer, translated(err, request)
	}
	return answer, nil
}

// withTrace sends the trace context of the caller along, unless the caller set it.
func withTrace(ctx context.Context) context.Context {
	fields := tracing.Fields(ctx)
	if fields == nil {
		return ctx
	}
	if sent, _ := metadata.FromOutgoingContext(ctx); len(sent.Get(gq.AttributeTraceParent)) > 0 {
		return ctx
	}
	for name, value := range fields {
		ctx = metadata.AppendToOutgoingContext(ctx, name, value)
	}
	return ctx
}

// unsent reports whether a call was never sent: gRPC sets the peer address of every call
// it sent.
func unsent(server *peer.Peer) safety { return server.Addr == nil }

// translated converts a gRPC status. A request that cannot be encoded gets the same error as one
// that the server rejects.
func translated(err error, request proto.Message) error {
	if s, ok := status.FromError(err); ok && s.Code() == codes.Internal && strings.Contains(s.Message(), "marshaling") {
		if fault := pbconv.CheckText(request); fault != nil {
			return fault
		}
	}
	return pbconv.ErrorFromStatus(err)
}

// read decodes an answer. An answer that cannot be decoded comes from a newer server and is not
// the caller's fault.
func read[M, V any](verb string, m M, decode func(M) (V, error)) (V, error) {
	v, err := decode(m)
	if err != nil {
		return v, undecodable(verb, err)
	}
	return v, nil
}

func undecodable(verb string, err error) error {
	return fmt.Errorf("%s: cannot decode the server's answer: %v", verb, err) //nolint:errorlint // its kind would blame the caller
}

// readAll decodes the items of an answer.
func readAll[M, V any](verb string, items []M, decode func(M) (V, error)) ([]V, error) {
	out := make([]V, len(items))
	for i, m := range items {
		var err error
		if out[i], err = read(verb, m, decode); err != nil {
			return nil, err
		}
	}
	return out, nil
}
