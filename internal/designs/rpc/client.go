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

// internalDeadline bounds every call that deadlines does not name.
const internalDeadline = 1000 * time.Millisecond

// deadlines is how long a call may take, all of its attempts together, unless
// the caller's own deadline is sooner.
var deadlines = map[string]time.Duration{
	"SubmitJob":    3000 * time.Millisecond,
	"CancelJob":    3000 * time.Millisecond,
	"GetJobStatus": 1000 * time.Millisecond,
	"GetJobResult": 1000 * time.Millisecond,
	"ListJobs":     1000 * time.Millisecond,

	"FetchWork":       1500 * time.Millisecond,
	"WorkerHeartbeat": 1000 * time.Millisecond,
}

// DeadlineOf is how long a call of a method may take.
func DeadlineOf(fullMethod string) time.Duration {
	if d, ok := deadlines[baseName(fullMethod)]; ok {
		return d
	}
	return internalDeadline
}

// reconnect keeps a service that came back from being overlooked for long.
var reconnect = grpc.ConnectParams{
	Backoff:           backoff.Config{BaseDelay: 100 * time.Millisecond, Multiplier: 2, Jitter: 0.2, MaxDelay: time.Second},
	MinConnectTimeout: time.Second,
}

// Dial prepares calls to a service in the name of a caller. The connection is
// made by the first call, and again after a loss. Calls get their deadline and
// are retried as [Retry] says.
func Dial(addr, caller string) (*grpc.ClientConn, error) {
	return dial(addr, caller, DeadlineOf, mayRepeat)
}

// DialPatiently is Dial with one deadline for all calls, which a connection may take
// as well, for those who judge what is answered and not when.
func DialPatiently(addr, caller string, deadline time.Duration) (*grpc.ClientConn, error) {
	slowly := reconnect
	slowly.MinConnectTimeout = deadline
	return dial(addr, caller, func(string) time.Duration { return deadline }, mayRepeat,
		grpc.WithConnectParams(slowly), grpc.WithDefaultCallOptions(grpc.WaitForReady(true)))
}

// DialOnce is Dial without retries, for those who count what fails. More options
// come after its own and win over them.
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
	MaxAttempts     = 4 // the first included
	InitialDelay    = 100 * time.Millisecond
	DelayMultiplier = 2
	MaxDelay        = 1000 * time.Millisecond
)

// RetryDelay is how long to wait before retry n, which counts from 1, for u
// drawn uniformly from [0,1).
func RetryDelay(n int, u float64) time.Duration {
	bound := InitialDelay
	for range n - 1 {
		bound = min(bound*DelayMultiplier, MaxDelay)
	}
	return time.Duration(u * float64(bound))
}

// Retry calls attempt until it succeeds, fails with a code that may not be
// repeated, MaxAttempts is reached, or ctx leaves no time for another one.
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

// mayRepeat tells after which codes a call may be made again. Fetching work is
// never repeated by itself: the worker asks again in its own time. A deadline
// leaves open whether a call had its effect, so a submit without a key is not
// repeated after one.
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
