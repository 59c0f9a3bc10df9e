package native

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"net"
	"sync"
	"time"

	"google.golang.org/grpc"
	grpchealth "google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/reflection"
	"google.golang.org/protobuf/proto"

	"github.com/gopherqueue/gq"
	pb "github.com/gopherqueue/gq/api/gopherqueue/v1"
	"github.com/gopherqueue/gq/engine"
	"github.com/gopherqueue/gq/internal/errs"
	"github.com/gopherqueue/gq/internal/feed"
	"github.com/gopherqueue/gq/machine"
)

// What the gRPC face accepts.
const (
	MaxItems    = 1000             // beats, outcomes or submissions of one request; jobs of one claim
	MaxGRPCWait = 10 * time.Minute // for a job to end, in one call

	minMessageBytes = 4 << 20 // room for a batch whatever the limits of single items are
	messageSlack    = 1 << 20 // beside the largest item
)

// GRPCOptions are what the gRPC face can be told. The zero value is the default.
type GRPCOptions struct {
	Log    *slog.Logger // nil is silence
	Limits gq.Limits    // of the store; the largest message follows from them; zero is machine.DefaultLimits

	MaxStreams uint32        // calls under way on one connection; 0 is 4096
	Credits    int           // open credits of one Work stream; 0 is 64
	Requests   int           // heartbeats and settles under way on one Work stream; 0 is 32
	Hello      time.Duration // in which a Work stream must say hello; 0 is 10 s

	// Unary and Stream run after the face's own interceptors, so that every call
	// has its request id, is logged and cannot bring the server down. They are
	// for finding out who calls.
	Unary  []grpc.UnaryServerInterceptor
	Stream []grpc.StreamServerInterceptor

	// Authorize decides about every request: of unary calls, and each one on a
	// Work stream, where a refusal is the answer to that request alone. nil
	// allows everything.
	Authorize func(ctx context.Context, method string, request proto.Message) error

	// Failed is told of errors that mean that the store has failed for good.
	Failed func(error)

	Feed   *feed.Feed  // of events; nil serves none
	Events EventLimits // of its subscribers
	Admin  Admin       // nil serves none of it

	// Register adds other services to the same server. Their calls pass the same
	// interceptors and Authorize, and their errors become statuses the same way.
	Register func(grpc.ServiceRegistrar)

	Server []grpc.ServerOption // more of them, such as credentials
}

func (o GRPCOptions) withDefaults() GRPCOptions {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Limits == (gq.Limits{}) {
		o.Limits = machine.DefaultLimits()
	}
	if o.MaxStreams == 0 {
		o.MaxStreams = 4096
	}
	if o.Credits == 0 {
		o.Credits = 64
	}
	if o.Requests == 0 {
		o.Requests = 32
	}
	if o.Hello == 0 {
		o.Hello = 10 * time.Second
	}
	return o
}

// messageBytes is the largest message that is read.
func (o *GRPCOptions) messageBytes() int {
	return max(minMessageBytes, max(o.Limits.PayloadBytes, o.Limits.ResultBytes, o.Limits.CheckpointBytes)+messageSlack)
}

// GRPC is the native face over gRPC: gopherqueue.v1, with health and reflection.
// It is a gRPC server that [GRPC.Drain] prepares for a graceful stop.
type GRPC struct {
	*grpc.Server

	engine  engine.API
	options GRPCOptions
	health  *grpchealth.Server

	draining context.Context // ends when long waits should
	drain    context.CancelFunc
	reported sync.Once
}

// NewGRPC makes the face over a queue. It serves once Serve is called.
func NewGRPC(e engine.API, o GRPCOptions) *GRPC {
	o = o.withDefaults()
	g := &GRPC{engine: e, options: o, health: grpchealth.NewServer()}
	g.draining, g.drain = context.WithCancel(context.Background())
	g.Server = grpc.NewServer(append([]grpc.ServerOption{
		grpc.ForceServerCodecV2(lenientCodec{}),
		grpc.ChainUnaryInterceptor(append([]grpc.UnaryServerInterceptor{g.unary}, o.Unary...)...),
		grpc.ChainStreamInterceptor(append([]grpc.StreamServerInterceptor{g.stream}, o.Stream...)...),

		grpc.MaxRecvMsgSize(o.messageBytes()),
		grpc.RPCDecompressor(refuseGzip{}), //nolint:staticcheck // there is no other way to keep it from one server
		grpc.MaxSendMsgSize(math.MaxInt32), // what is sent is what was stored
		grpc.MaxConcurrentStreams(o.MaxStreams),
		grpc.MaxHeaderListSize(16 << 10),
		grpc.ConnectionTimeout(10 * time.Second),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: 10 * time.Second, PermitWithoutStream: true}),
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: 20 * time.Second, Timeout: 10 * time.Second}),

		// Static windows spare the pings that grpc-go measures bandwidth with.
		grpc.StaticStreamWindowSize(1 << 20),
		grpc.StaticConnWindowSize(4 << 20),
		grpc.NumStreamWorkers(128), // their stacks have grown
	}, o.Server...)...)

	registerService(g.Server, pb.JobsService_ServiceDesc, &jobsServer{GRPC: g})
	registerService(g.Server, pb.WorkersService_ServiceDesc, &workersServer{GRPC: g})
	registerService(g.Server, pb.QueuesService_ServiceDesc, &queuesServer{GRPC: g})
	registerService(g.Server, pb.SchedulesService_ServiceDesc, &schedulesServer{GRPC: g})
	if o.Feed != nil {
		registerService(g.Server, pb.EventsService_ServiceDesc, &eventsServer{GRPC: g})
	}
	if o.Admin != nil {
		registerService(g.Server, pb.AdminService_ServiceDesc, &adminServer{GRPC: g})
	}
	if o.Register != nil {
		o.Register(registrar{g})
	}
	healthpb.RegisterHealthServer(g.Server, g.health)
	for name := range g.GetServiceInfo() {
		g.health.SetServingStatus(name, healthpb.HealthCheckResponse_SERVING)
	}
	reflection.Register(g.Server)
	return g
}

// Serve serves a listener until the server is stopped, which may be before it begins.
func (g *GRPC) Serve(l net.Listener) error {
	if err := g.Server.Serve(l); !errors.Is(err, grpc.ErrServerStopped) {
		return err
	}
	return nil
}

// Drain ends waits and Work streams: claims answer with no job, waits for a job
// with the job as it stands, and streams end once what is under way on them has
// been answered. Health says that nothing is served any more. It is called
// before GracefulStop, which waits for every call.
func (g *GRPC) Drain() {
	g.health.Shutdown()
	g.drain()
}

// whileServing is a context that ends with ctx or when the server drains.
func (g *GRPC) whileServing(ctx context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(g.draining, cancel)
	return ctx, func() {
		stop()
		cancel()
	}
}

// base is what an incomplete policy of a job of a queue starts from.
func (g *GRPC) base(ctx context.Context) func(queue string) (gq.Policy, error) {
	return func(queue string) (gq.Policy, error) {
		q, err := g.engine.Queue(ctx, queue)
		switch {
		case err == nil:
			return q.Policy, nil
		case errs.KindOf(err) == gq.KindNotFound || errs.KindOf(err) == gq.KindInvalid:
			return machine.DefaultPolicy(), nil // an invalid name is reported with the rest of the submission
		default:
			return gq.Policy{}, err
		}
	}
}

// checkItems refuses a batch that is too large.
func checkItems(field string, n int) error {
	if n > MaxItems {
		return &gq.InvalidError{Faults: []gq.Fault{{Field: field, Problem: fmt.Sprintf("%d items are more than %d", n, MaxItems)}}}
	}
	return nil
}

// refuseGzip refuses compressed messages, so that nothing small becomes large before it is known
// who sent it. The exporters of traces register gzip for the whole process.
type refuseGzip struct{}

// Do implements [grpc.Decompressor].
func (refuseGzip) Do(io.Reader) ([]byte, error) {
	return nil, errors.New("compressed messages are not accepted; send them as they are")
}

// Type implements [grpc.Decompressor].
func (refuseGzip) Type() string { return "gzip" }
