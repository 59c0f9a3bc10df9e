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
	"google.golang.org/grpc/keepalive"

	"github.com/gopherqueue/gq"
	pb "github.com/gopherqueue/gq/api/gopherqueue/v1"
	"github.com/gopherqueue/gq/internal/wire"
)

// DefaultAddress is where a server listens that is told nothing else.
const DefaultAddress = "127.0.0.1:8790"

// ErrUnreachable is what a call can end with beside the errors of package gq: no
// server answered, or the connection broke before one did. In that case what was
// asked for may have happened. Its kind is [gq.KindUnavailable].
var ErrUnreachable = wire.ErrUnreachable

// errClosed: the client was closed.
var errClosed error = closedError{}

type closedError struct{}

func (closedError) Error() string { return "the client is closed" }
func (closedError) Unwrap() error { return gq.ErrClosed }

// RequestID is the id under which the server's log knows a call that ended with
// an error, "" where there is none.
func RequestID(err error) string { return wire.RequestOf(err) }

// Options are what a client can be told. The zero value is the default.
type Options struct {
	TLS   *tls.Config // nil is no encryption
	Token string      // goes along with every call; only with TLS, or to this machine

	RetryFor     time.Duration // how long calls that may be repeated are; 0 is 10 s, below 0 is not at all
	GenerateKeys bool          // submissions without an idempotency key get a random one, so that they can be repeated

	// Reached is told when calls have to wait because no server can be reached, and
	// when one can again. It is called by whoever makes a call, and must not block.
	Reached func(yes bool)

	Dial []grpc.DialOption // more of them
}

// Client is a queue elsewhere. Its methods may be called concurrently.
type Client struct {
	address string
	options Options
	conn    *grpc.ClientConn

	jobs      pb.JobsServiceClient
	workers   pb.WorkersServiceClient
	queues    pb.QueuesServiceClient
	schedules pb.SchedulesServiceClient
	events    pb.EventsServiceClient
	work      workLink

	life context.Context // of the stream and what is done in the background
	die  context.CancelFunc

	lost atomic.Bool // as Options.Reached was told

	mu         sync.Mutex
	closed     bool // nothing new is done in the background; guarded by mu
	background sync.WaitGroup
}

// later does something in the background, unless the client is closed.
func (c *Client) later(f func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.closed {
		c.background.Go(f)
	}
}

// New makes a client of the server at an address, such as [DefaultAddress],
// which is what "" stands for. Several addresses, separated by commas, are servers
// on the same store: the client uses the first that it can connect to, and another
// when it loses that one. It connects with the first call. Everything wrong with
// the address and the options is reported at once: [gq.ErrInvalid].
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
		grpc.WithDisableServiceConfig(), // what is repeated is decided here
		grpc.WithDisableRetry(),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(math.MaxInt32)),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: 30 * time.Second, Timeout: 10 * time.Second}),
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
		queues: pb.NewQueuesServiceClient(conn), schedules: pb.NewSchedulesServiceClient(conn),
		events: pb.NewEventsServiceClient(conn),
	}
	c.life, c.die = context.WithCancel(context.Background())
	c.work = workLink{client: c, gate: make(chan struct{}, 1)}
	return c, nil
}

// closeWithin is how long Close waits for what is under way on the stream, and then
// for jobs that are being given back.
const closeWithin = 5 * time.Second

// Close ends the connection. Requests that are under way on the stream are
// answered first; other calls end with an error. When it returns, nothing of
// the client runs any more. Closing twice is fine.
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
	_ = c.conn.Close() // only says that it was closed before
	return nil
}

// local reports whether an address is of this machine.
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

// token goes along with every call.
type token struct {
	text   string
	secure bool // only over TLS
}

func (t token) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	return map[string]string{"authorization": "Bearer " + t.text}, nil
}

func (t token) RequireTransportSecurity() bool { return t.secure }
