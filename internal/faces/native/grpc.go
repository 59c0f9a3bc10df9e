package native

import (
	"cmp"
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
	"github.com/gopherqueue/gq/internal/access"
	"github.com/gopherqueue/gq/internal/errs"
	"github.com/gopherqueue/gq/internal/feed"
	"github.com/gopherqueue/gq/machine"
)

// Limits of the gRPC face.
const (
	MaxItems    = 1000             // heartbeats, outcomes or submissions in one request; jobs in one claim
	MaxGRPCWait = 10 * time.Minute // longest wait for a job to end, in one call

	minMessageBytes = 4 << 20 // room for a batch, however small the limits of single items are
	messageSlack    = 1 << 20 // added to the largest item
)

// GRPCOptions configure the gRPC face. The zero value selects the defaults.
type GRPCOptions struct {
	DefaultPreset gq.Preset    // fills the gaps in the policy of a job whose queue does not exist yet; 0 is PresetJobModel
	Log           *slog.Logger // nil discards
	Limits        gq.Limits    // of the store; they determine the largest message; zero is machine.DefaultLimits

	MaxStreams uint32        // concurrent calls on one connection; 0 is 4096
	Credits    int           // open credits on one Work stream; 0 is 64
	Requests   int           // concurrent heartbeats and settles on one Work stream; 0 is 32
	Hello      time.Duration // deadline for the hello of a Work stream; 0 is 10 s

	// CancelRequests calls a function with running jobs that are asked to stop, for Work
	// streams; nil turns that off. See [engine.Engine.CancelRequests].
	CancelRequests func(func(jobs []gq.JobID)) (stop func())

	Streams *access.Places // of Work streams on this server; nil is no limit

	// Unary and Stream run after the face's own interceptors, so calls already have a
	// request id, logging and panic recovery. They authenticate the caller.
	Unary  []grpc.UnaryServerInterceptor
	Stream []grpc.StreamServerInterceptor

	// Authorize checks every unary request and every request on a Work stream, where a
	// refusal affects only that request. nil allows everything.
	Authorize func(ctx context.Context, method string, request proto.Message) error

	// Ready returns why the server is not ready, or nil. Without it the server is ready until it
	// drains.
	Ready func(ctx context.Context) error

	// Failed is called when the store has failed permanently.
	Failed func(error)

	Feed   *feed.Feed  // of events; nil turns them off
	Events EventLimits // for its subscribers
	Admin  Admin       // nil turns the admin service off

	// Register adds other services to the same server. They share the interceptors,
	// Authorize and the translation of errors to statuses.
	Register func(grpc.ServiceRegistrar)

	Server []grpc.ServerOption // further options, such as credentials
}

func (o GRPCOptions) withDefaults() GRPCOptions {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	o.DefaultPreset = cmp.Or(o.DefaultPreset, gq.PresetJobModel)
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

// messageBytes returns the size limit of received messages.
func (o *GRPCOptions) messageBytes() int {
	return max(minMessageBytes, max(o.Limits.PayloadBytes, o.Limits.ResultBytes, o.Limits.CheckpointBytes)+messageSlack)
}

// GRPC is the native face over gRPC: gopherqueue.v1, health and reflection. Call
// [GRPC.Drain] before its graceful stop.
type GRPC struct {
	*grpc.Server

	engine  engine.API
	options GRPCOptions
	health  *grpchealth.Server

	holders  holders         // of jobs, by Work stream
	draining context.Context // ends when long waits should
	drain    context.CancelFunc
	reported sync.Once
}

// NewGRPC creates the face for a queue. Call Serve to start it.
func NewGRPC(e engine.API, o GRPCOptions) *GRPC {
	o = o.withDefaults()
	g := &GRPC{engine: e, options: o, health: grpchealth.NewServer()}
	g.draining, g.drain = context.WithCancel(context.Background())
	if o.CancelRequests != nil {
		g.holders.streams = make(map[gq.JobID]*workStream)
		context.AfterFunc(g.draining, o.CancelRequests(g.holders.tell))
	}
	g.Server = grpc.NewServer(append([]grpc.ServerOption{
		grpc.ForceServerCodecV2(lenientCodec{}),
		grpc.ChainUnaryInterceptor(append([]grpc.UnaryServerInterceptor{g.unary}, o.Unary...)...),
		grpc.ChainStreamInterceptor(append([]grpc.StreamServerInterceptor{g.stream}, o.Stream...)...),

		grpc.MaxRecvMsgSize(o.messageBytes()),
		grpc.RPCDecompressor(refuseGzip{}), //nolint:staticcheck // there is no other way to keep it from one server
		grpc.MaxSendMsgSize(math.MaxInt32), // results are bounded by what the store holds
		grpc.MaxConcurrentStreams(o.MaxStreams),
		grpc.MaxHeaderListSize(16 << 10),
		grpc.ConnectionTimeout(10 * time.Second),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: 5 * time.Second, PermitWithoutStream: true}),
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: 20 * time.Second, Timeout: 10 * time.Second}),

		// Static windows avoid the bandwidth-probing pings of grpc-go.
		grpc.StaticStreamWindowSize(1 << 20),
		grpc.StaticConnWindowSize(4 << 20),
		grpc.NumStreamWorkers(128), // reuses goroutines whose stacks have already grown
	}, o.Server...)...)

	jobs := jobsService()
	if o.Authorize != nil {
		jobs = pb.JobsService_ServiceDesc // it reads every message
	}
	registerService(g.Server, jobs, &jobsServer{GRPC: g})
	registerService(g.Server, pb.WorkersService_ServiceDesc, &workersServer{GRPC: g})
	registerService(g.Server, pb.QueuesService_ServiceDesc, &queuesServer{GRPC: g})
	registerService(g.Server, pb.SchedulesService_ServiceDesc, &schedulesServer{GRPC: g})
	registerService(g.Server, pb.WorkflowsService_ServiceDesc, &workflowsServer{GRPC: g})
	registerService(g.Server, pb.InboxService_ServiceDesc, &inboxServer{GRPC: g})
	if o.Feed != nil {
		registerService(g.Server, pb.EventsService_ServiceDesc, &eventsServer{GRPC: g})
	}
	if o.Admin != nil {
		registerService(g.Server, pb.AdminService_ServiceDesc, &adminServer{GRPC: g})
	}
	if o.Register != nil {
		o.Register(registrar{g})
	}
	healthpb.RegisterHealthServer(g.Server, liveHealth{g.health, o.Ready})
	for name := range g.GetServiceInfo() {
		g.health.SetServingStatus(name, healthpb.HealthCheckResponse_SERVING)
	}
	reflection.Register(g.Server)
	return g
}

// Serve serves a listener until the server is stopped, which may happen before it starts.
func (g *GRPC) Serve(l net.Listener) error {
	if err := g.Server.Serve(l); !errors.Is(err, grpc.ErrServerStopped) {
		return err
	}
	return nil
}

// Drain ends waits and Work streams: a claim returns no job, a wait for a job returns its
// current state, and a stream ends once its open requests are answered. Health reports
// not serving. Call Drain before GracefulStop, which waits for every call.
func (g *GRPC) Drain() {
	g.health.Shutdown()
	g.drain()
}

// whileServing returns a context that ends with ctx or when the server drains.
func (g *GRPC) whileServing(ctx context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(g.draining, cancel)
	return ctx, func() {
		stop()
		cancel()
	}
}

// base returns the policy of a queue, which fills the gaps in a job's policy.
func (g *GRPC) base(ctx context.Context) func(queue string) (gq.Policy, error) {
	return func(queue string) (gq.Policy, error) {
		q, err := g.engine.Queue(ctx, queue)
		switch {
		case err == nil:
			return q.Policy, nil
		case errs.KindOf(err) == gq.KindNotFound || errs.KindOf(err) == gq.KindInvalid:
			return g.options.DefaultPreset.Policy(), nil // an invalid name is reported with the other faults of the submission
		default:
			return gq.Policy{}, err
		}
	}
}

// checkItems rejects a batch that is too large.
func checkItems(field string, n int) error {
	if n > MaxItems {
		return &gq.InvalidError{Faults: []gq.Fault{{Field: field, Problem: fmt.Sprintf("%d items are more than %d", n, MaxItems)}}}
	}
	return nil
}

// refuseGzip rejects compressed messages, so a small message cannot expand before its
// sender is authenticated. The trace exporters register gzip for the whole process.
type refuseGzip struct{}

// Do implements [grpc.Decompressor].
func (refuseGzip) Do(io.Reader) ([]byte, error) {
	return nil, errors.New("compressed messages are not accepted; send them as they are")
}

// Type implements [grpc.Decompressor].
func (refuseGzip) Type() string { return "gzip" }
