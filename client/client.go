package client

import (
	"context"
	"crypto/tls"
	"fmt"
	"math"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/gopherqueue/gq"
	pb "github.com/gopherqueue/gq/api/gopherqueue/v1"
	"github.com/gopherqueue/gq/internal/wire"
)

// DefaultAddress is the default gRPC address of a server.
const DefaultAddress = "127.0.0.1:8790"

// ErrUnreachable means that no server answered, or the connection broke before one did. The call
// may have taken effect. Its kind is [gq.KindUnavailable].
var ErrUnreachable = wire.ErrUnreachable

// ErrOutcomeUnknown means that the connection broke after the request was sent, and that the call
// cannot be repeated safely. It may have taken effect. It wraps [ErrUnreachable].
var ErrOutcomeUnknown error = unknownError{}

type unknownError struct{}

func (unknownError) Error() string {
	return "the outcome is unknown, because the connection to the server broke before its answer"
}
func (unknownError) Unwrap() error { return ErrUnreachable }

// errClosed is the error of calls on a closed client.
var errClosed error = closedError{}

type closedError struct{}

func (closedError) Error() string { return "the client is closed" }
func (closedError) Unwrap() error { return gq.ErrClosed }

// RequestID returns the id of the failed call in the server's log, or "".
func RequestID(err error) string { return wire.RequestOf(err) }

// Options configure a client. The zero value has all defaults.
type Options struct {
	TLS   *tls.Config // nil is no encryption
	Token string      // sent with every call; requires TLS or a server on this machine

	RetryFor time.Duration // how long to retry calls while no server is reachable; 0 is 10 s, negative is no retries

	// SendOnce does not repeat submissions without an idempotency key. Otherwise the client gives
	// them keys of its own, which make that safe and cost the server some time.
	SendOnce bool

	// Reached is called when no server is reachable and calls have to wait, and when one is
	// reachable again. It runs on the goroutine of a call and must not block.
	Reached func(yes bool)

	Dial []grpc.DialOption // additional options
}

// Client is a queue on a server. Its methods are safe for concurrent use.
type Client struct {
	address string
	options Options
	conn    *grpc.ClientConn

	jobs      pb.JobsServiceClient
	workers   pb.WorkersServiceClient
	queues    pb.QueuesServiceClient
	schedules pb.SchedulesServiceClient
	flows     pb.WorkflowsServiceClient
	inbox     pb.InboxServiceClient
	events    pb.EventsServiceClient
	work      workLink
	cancels   listeners // of cancel requests
	gatherer  gatherer

	life context.Context // of the stream and background work
	die  context.CancelFunc

	lost    atomic.Bool           // last argument of Options.Reached, negated
	failure atomic.Pointer[error] // of the last call that found no server; nil after one that did

	mu         sync.Mutex
	closed     bool // no new background work; guarded by mu
	background sync.WaitGroup
}

// later runs f in the background, unless the client is closed. It reports whether it does.
func (c *Client) later(f func()) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.closed {
		c.background.Go(f)
	}
	return !c.closed
}

// New creates a client for the server at an address; "" is [DefaultAddress]. Several addresses,
// separated by commas, are servers on the same store: the client uses the first that it can
// connect to, and another one when it loses that connection. It connects with the first call.
// All faults of the address and the options are reported at once as [gq.ErrInvalid].
func New(address string, o Options) (*Client, error) {
	if address == "" {
		address = DefaultAddress
	}
	if o.RetryFor == 0 {
		o.RetryFor = 10 * time.Second
	}
	transport := insecure.NewCredentials()
	if o.TLS != nil {
		transport = credentials.NewTLS(o.TLS)
	}
	options := []grpc.DialOption{
		grpc.WithTransportCredentials(transport),
		grpc.WithUserAgent("gq-client"),
		grpc.WithDisableServiceConfig(), // the client decides about retries
		grpc.WithDisableRetry(),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(math.MaxInt32)),
		grpc.WithKeepaliveParams(silence),
		grpc.WithConnectParams(connectParams),
		grpc.WithStaticStreamWindowSize(1 << 20),
		grpc.WithStaticConnWindowSize(4 << 20),
	}
	var faults []gq.Fault
	if o.Token != "" {
		if o.TLS == nil && !allLocal(address) {
			faults = append(faults, gq.Fault{Field: "token", Problem: fmt.Sprintf("would be sent in the clear to %.80q: set TLS", address)})
		}
		if strings.ContainsFunc(o.Token, func(r rune) bool { return r <= ' ' || r > '~' }) {
			faults = append(faults, gq.Fault{Field: "token", Problem: "has characters that cannot be sent"})
		}
		options = append(options, grpc.WithPerRPCCredentials(token{o.Token, o.TLS != nil}))
	}
	target, more, err := targetOf(address)
	if err != nil {
		faults = append(faults, gq.Fault{Field: "address", Problem: err.Error()})
	}
	if len(faults) > 0 {
		return nil, fmt.Errorf("make a client: %w", &gq.InvalidError{Faults: faults})
	}
	conn, err := grpc.NewClient(target, slices.Concat(options, more, o.Dial)...)
	if err != nil {
		return nil, fmt.Errorf("make a client: %w", &gq.InvalidError{Faults: []gq.Fault{{Field: "address", Problem: err.Error()}}})
	}
	c := &Client{
		address: address, options: o, conn: conn,
		jobs: pb.NewJobsServiceClient(conn), workers: pb.NewWorkersServiceClient(conn),
		queues: pb.NewQueuesServiceClient(conn), schedules: pb.NewSchedulesServiceClient(conn), flows: pb.NewWorkflowsServiceClient(conn),
		inbox:  pb.NewInboxServiceClient(conn),
		events: pb.NewEventsServiceClient(conn),
	}
	c.life, c.die = context.WithCancel(context.Background())
	c.gatherer.within, c.gatherer.shared = gatherWithin, sharedWithin
	c.work = workLink{client: c, gate: make(chan struct{}, 1)}
	c.work.life, c.work.stop = context.WithCancel(c.life)
	return c, nil
}

// closeWithin is how long Close waits for requests on the stream, and then for jobs that are
// being released.
const closeWithin = 5 * time.Second

// Close closes the connection. It waits for requests on the stream; other calls end with an
// error. When it returns, nothing that the client started still runs. Closing twice has no
// effect.
func (c *Client) Close() error {
	c.work.close(closeWithin)
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	late := time.AfterFunc(closeWithin, c.die)
	c.background.Wait()
	late.Stop()
	c.die()
	c.work.wait()
	_ = c.conn.Close() // fails only if it was closed before
	return nil
}

// local reports whether an address is on this machine.
func local(address string) bool {
	if strings.HasPrefix(address, "unix:") || strings.HasPrefix(address, "unix-abstract:") {
		return true
	}
	if _, rest, found := strings.Cut(address, ":///"); found {
		address = rest
	}
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		host = address
	}
	if host == "localhost" {
		return true
	}
	ip, err := netip.ParseAddr(host)
	return err == nil && ip.IsLoopback()
}

// token is sent with every call.
type token struct {
	text   string
	secure bool // only over TLS
}

func (t token) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	return map[string]string{"authorization": "Bearer " + t.text}, nil
}

func (t token) RequireTransportSecurity() bool { return t.secure }
