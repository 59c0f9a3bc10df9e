package rpc

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/gopherqueue/gq/internal/retry"
)

// internalDeadline is the deadline of calls that are not in deadlines.
const internalDeadline = 1000 * time.Millisecond

// deadlines is how long a call may take, including retries, unless the caller's own
// deadline is earlier.
var deadlines = map[string]time.Duration{
	"SubmitJob":    3000 * time.Millisecond,
	"CancelJob":    3000 * time.Millisecond,
	"GetJobStatus": 1000 * time.Millisecond,
	"GetJobResult": 1000 * time.Millisecond,
	"ListJobs":     1000 * time.Millisecond,

	"FetchWork":       1500 * time.Millisecond,
	"WorkerHeartbeat": 1000 * time.Millisecond,
}

// DeadlineOf returns how long a call of a method may take.
func DeadlineOf(fullMethod string) time.Duration {
	if d, ok := deadlines[baseName(fullMethod)]; ok {
		return d
	}
	return internalDeadline
}

// reconnect makes clients find a restarted service quickly.
var reconnect = grpc.ConnectParams{
	Backoff:           backoff.Config{BaseDelay: 100 * time.Millisecond, Multiplier: 2, Jitter: 0.2, MaxDelay: time.Second},
	MinConnectTimeout: time.Second,
}

// Dial prepares calls to a service on behalf of caller. The first call connects, and
// reconnects after a loss. Calls get their deadline and are retried according to
// [Retry].
func Dial(addr, caller string) (*grpc.ClientConn, error) {
	return dial(addr, caller, DeadlineOf, mayRepeat)
}

// DialPatiently is Dial with one deadline for all calls, and for connecting, for tests
// that check answers and not timing.
func DialPatiently(addr, caller string, deadline time.Duration) (*grpc.ClientConn, error) {
	slowly := reconnect
	slowly.MinConnectTimeout = deadline
	return dial(addr, caller, func(string) time.Duration { return deadline }, mayRepeat,
		grpc.WithConnectParams(slowly), grpc.WithDefaultCallOptions(grpc.WaitForReady(true)))
}

// DialOnce is Dial without retries, for callers that count failures. The additional
// options override its own.
func DialOnce(addr, caller string, more ...grpc.DialOption) (*grpc.ClientConn, error) {
	never := func(codes.Code) bool { return false }
	return dial(addr, caller, DeadlineOf, func(string, any) func(codes.Code) bool { return never }, more...)
}

func dial(addr, caller string, deadline func(method string) time.Duration, repeat func(method string, req any) func(codes.Code) bool, more ...grpc.DialOption) (*grpc.ClientConn, error) {
	options := []grpc.DialOption{
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithConnectParams(reconnect),
		grpc.WithUnaryInterceptor(func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
			ctx, cancel := context.WithTimeout(withIdentity(ctx, caller), deadline(method))
			defer cancel()
			return Retry(ctx, repeat(method, req), func() error { return invoke(ctx, method, req, reply, cc, opts...) })
		}),
	}
	conn, err := grpc.NewClient("passthrough:///"+addr, append(options, more...)...)
	if err != nil {
		return nil, fmt.Errorf("dial %s: %w", addr, err)
	}
	return conn, nil
}

// The locked retry profile: exponential backoff with full jitter.
const (
	MaxAttempts     = 4 // including the first
	InitialDelay    = 100 * time.Millisecond
	DelayMultiplier = 2
	MaxDelay        = 1000 * time.Millisecond
)

// RetryDelay returns how long to wait before retry n, counted from 1, for u drawn
// uniformly from [0,1).
func RetryDelay(n int, u float64) time.Duration {
	bound := InitialDelay
	for range n - 1 {
		bound = min(bound*DelayMultiplier, MaxDelay)
	}
	return time.Duration(u * float64(bound))
}

// Retry calls attempt until it succeeds, fails with a code that must not be retried,
// MaxAttempts is reached, or ctx leaves no time for another attempt.
func Retry(ctx context.Context, repeat func(codes.Code) bool, attempt func() error) error {
	for n := 1; ; n++ {
		err := attempt()
		if err == nil || n == MaxAttempts || !repeat(status.Code(err)) {
			return err
		}
		delay := RetryDelay(n, rand.Float64())
		if end, ok := ctx.Deadline(); ok && time.Until(end) <= delay {
			return err
		}
		if !Wait(ctx, delay) {
			return err
		}
	}
}

// Wait pauses. It returns false if ctx has ended.
func Wait(ctx context.Context, d time.Duration) bool { return retry.Pause(ctx, d) && ctx.Err() == nil }

// mayRepeat returns after which codes a call may be retried. Fetching work is never
// retried here: the worker polls anyway. After a deadline it is unknown whether a call
// took effect, so a submit without a key is not retried then.
func mayRepeat(method string, req any) func(codes.Code) bool {
	never := baseName(method) == "FetchWork"
	r, submits := req.(interface{ GetClientRequestId() string })
	once := submits && r.GetClientRequestId() == ""
	return func(code codes.Code) bool {
		switch code {
		case codes.Unavailable, codes.ResourceExhausted:
			return !never
		case codes.DeadlineExceeded:
			return !never && !once
		default:
			return false
		}
	}
}
