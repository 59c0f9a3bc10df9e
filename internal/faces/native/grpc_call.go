package native

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding"
	grpcproto "google.golang.org/grpc/encoding/proto"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/gopherqueue/gq"
	pb "github.com/gopherqueue/gq/api/gopherqueue/v1"
	"github.com/gopherqueue/gq/internal/wire"
	"github.com/gopherqueue/gq/machine"
)

// requestHeader carries the client's own name for its request.
const requestHeader = "x-request-id"

// rpc is one call, and its context.
type rpc struct {
	context.Context // it is one
	method          string
	once            sync.Once
	name            string
}

type rpcKey struct{}

// Value finds the call itself, so that a context of its own is not needed.
func (c *rpc) Value(key any) any {
	if key == (rpcKey{}) {
		return c
	}
	return c.Context.Value(key)
}

func rpcOf(ctx context.Context) *rpc {
	c, _ := ctx.Value(rpcKey{}).(*rpc)
	if c == nil {
		c = &rpc{Context: ctx}
	}
	return c
}

// request is the id under which the log knows the call: the client's, where it
// is harmless, or one that is drawn when it is first needed.
func (c *rpc) request() string {
	c.once.Do(func() {
		if c.name = givenName(c.Context); c.name == "" {
			c.name = rand.Text()
		}
	})
	return c.name
}

// givenName is the client's own name for its call, empty for none that is harmless.
func givenName(ctx context.Context) string {
	for _, name := range metadata.ValueFromIncomingContext(ctx, requestHeader) {
		if len(name) > 0 && len(name) <= 128 && machine.CheckName(requestHeader, name) == nil {
			return name
		}
	}
	return ""
}

// timeLimit bounds how long a call may take. A standard of 0 is the engine's.
type timeLimit struct{ standard, most time.Duration }

// limitOf is the time limit of a method: what holds for calls that name no
// deadline, and what no deadline may exceed.
func limitOf(method string) timeLimit {
	switch method {
	case pb.WorkersService_Claim_FullMethodName:
		return timeLimit{time.Hour + time.Minute, time.Hour + time.Minute} // the request has a wait of its own
	case pb.JobsService_Wait_FullMethodName, pb.JobsService_CancelWhere_FullMethodName, pb.JobsService_PurgeWhere_FullMethodName:
		return timeLimit{MaxGRPCWait + time.Minute, MaxGRPCWait + time.Minute}
	case pb.JobsService_Submit_FullMethodName, pb.JobsService_SubmitBatch_FullMethodName, pb.JobsService_SubmitGraph_FullMethodName:
		return timeLimit{0, 5 * time.Minute}
	default:
		return timeLimit{30 * time.Second, 5 * time.Minute}
	}
}

func (l timeLimit) apply(ctx context.Context) (context.Context, context.CancelFunc) {
	within := l.standard
	if deadline, ok := ctx.Deadline(); ok {
		if time.Until(deadline) <= l.most {
			return ctx, func() {}
		}
		within = l.most
	} else if within == 0 {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, within)
}

// unary is around every unary call.
func (g *GRPC) unary(ctx context.Context, request any, info *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (answer any, err error) {
	c := &rpc{method: info.FullMethod, Context: ctx}
	began := time.Now()
	if name := givenName(ctx); name != "" {
		_ = grpc.SetHeader(ctx, metadata.Pairs(requestHeader, name)) // nothing was sent yet
	}
	ctx, cancel := limitOf(c.method).apply(c)
	defer cancel()
	defer func() {
		if p := recover(); p != nil {
			g.panicked(c, p)
			answer, err = nil, errPanicked
		}
		err = g.finish(ctx, c, began, err)
	}()
	return handle(ctx, request)
}

// stream is around every stream.
func (g *GRPC) stream(server any, s grpc.ServerStream, info *grpc.StreamServerInfo, handle grpc.StreamHandler) (err error) {
	c := &rpc{method: info.FullMethod, Context: s.Context()}
	if c.method == healthpb.Health_Watch_FullMethodName { // its watchers would have a graceful stop wait
		serving, done := g.whileServing(c.Context)
		defer done()
		c.Context = serving
	}
	began := time.Now()
	if name := givenName(c); name != "" {
		_ = s.SetHeader(metadata.Pairs(requestHeader, name)) // nothing was sent yet
	}
	defer func() {
		if p := recover(); p != nil {
			g.panicked(c, p)
			err = errPanicked
		}
		err = g.finish(c, c, began, err)
	}()
	return handle(server, &lenientStream{ServerStream: s, ctx: c})
}

var errPanicked = errors.New("panic")

func (g *GRPC) panicked(c *rpc, p any) {
	g.options.Log.Error("panic in a call", slog.String("method", c.method), slog.String("request", c.request()),
		slog.String("panic", fmt.Sprint(p)), slog.String("stack", string(debug.Stack())))
}

// finish logs a call and makes its error a status.
func (g *GRPC) finish(ctx context.Context, c *rpc, began time.Time, err error) error {
	s := wire.StatusOf(err, "")
	if err != nil {
		s = wire.StatusOf(err, c.request())
		g.note(c, err)
		if ctx.Err() != nil && s.Code() == codes.Internal {
			s = status.FromContextError(ctx.Err()) // nobody is there to read more
		}
	}
	if g.options.Log.Enabled(ctx, slog.LevelDebug) {
		g.options.Log.Debug("call", slog.String("method", c.method), slog.String("request", c.request()),
			slog.String("code", s.Code().String()), slog.Duration("took", time.Since(began)))
	}
	var report *pb.CancelReport
	if brokeOff, ok := errors.AsType[*brokenOffError](err); ok {
		report = wire.ProtoCancelReport(brokeOff.report)
		if detailed, e := s.WithDetails(report); e == nil {
			s = detailed
		}
	}
	return s.Err()
}

// note logs what the client is not told, and tells of a store that has failed.
func (g *GRPC) note(c *rpc, err error) {
	if wire.IsInternal(err) && !errors.Is(err, errPanicked) {
		if _, own := status.FromError(err); !own {
			g.options.Log.Error("call ended with an internal error",
				slog.String("method", c.method), slog.String("request", c.request()), slog.Any("error", err))
		}
	}
	if g.options.Failed != nil && errors.Is(err, gq.ErrStoreFailed) {
		g.reported.Do(func() { g.options.Failed(err) })
	}
}

// registerService adds a service whose requests may be unreadable: those are answered
// like every other invalid request, behind the interceptors.
func registerService[S authorizer](s *grpc.Server, d grpc.ServiceDesc, impl S) {
	registerGuarded(s, d, impl, impl)
}

func registerGuarded(s *grpc.Server, d grpc.ServiceDesc, impl any, guard authorizer) {
	methods := make([]grpc.MethodDesc, len(d.Methods))
	for i, m := range d.Methods {
		methods[i] = lenient(d.ServiceName, m, guard)
	}
	d.Methods = methods
	s.RegisterService(&d, impl)
}

// registrar takes services of other faces.
type registrar struct{ *GRPC }

// RegisterService adds a service.
func (r registrar) RegisterService(d *grpc.ServiceDesc, impl any) {
	registerGuarded(r.Server, *d, impl, r.GRPC)
}

// authorizer is every service.
type authorizer interface {
	authorize(ctx context.Context, method string, request proto.Message) error
}

func (g *GRPC) authorize(ctx context.Context, method string, request proto.Message) error {
	if g.options.Authorize == nil {
		return nil
	}
	return g.options.Authorize(ctx, method, request)
}

func lenient(service string, m grpc.MethodDesc, guard authorizer) grpc.MethodDesc {
	handle, method := m.Handler, "/"+service+"/"+m.MethodName
	m.Handler = func(server any, ctx context.Context, decode func(any) error, interceptor grpc.UnaryServerInterceptor) (any, error) {
		var fault error
		read := func(v any) error {
			f := frame{message: v.(proto.Message)}
			if err := decode(&f); err != nil {
				return err
			}
			fault = f.fault
			return nil
		}
		checked := func(ctx context.Context, request any, info *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
			return interceptor(ctx, request, info, func(ctx context.Context, request any) (any, error) {
				if fault != nil {
					return nil, fault
				}
				if err := guard.authorize(ctx, method, request.(proto.Message)); err != nil {
					return nil, err
				}
				return next(ctx, request)
			})
		}
		return handle(server, ctx, read, checked)
	}
	return m
}

// frame is a message on its way in, or what is wrong with it.
type frame struct {
	message proto.Message
	fault   error
}

// lenientCodec is the protobuf codec, except that what it cannot read into a
// frame is told there: gRPC itself would call that an internal error.
type lenientCodec struct{}

var protoCodec = encoding.GetCodecV2(grpcproto.Name)

func (lenientCodec) Name() string { return grpcproto.Name }

func (lenientCodec) Marshal(v any) (mem.BufferSlice, error) { return protoCodec.Marshal(v) }

func (lenientCodec) Unmarshal(data mem.BufferSlice, v any) error {
	f, ok := v.(*frame)
	if !ok {
		return protoCodec.Unmarshal(data, v)
	}
	if err := protoCodec.Unmarshal(data, f.message); err != nil {
		f.fault = wire.Malformed(data.Materialize(), f.message.ProtoReflect().Descriptor())
	}
	return nil
}

// lenientStream answers an unreadable message as an invalid one.
type lenientStream struct {
	grpc.ServerStream
	ctx context.Context // a stream has one
}

func (s *lenientStream) Context() context.Context { return s.ctx }

func (s *lenientStream) RecvMsg(m any) error {
	message, ok := m.(proto.Message)
	if !ok {
		return s.ServerStream.RecvMsg(m)
	}
	f := frame{message: message}
	if err := s.ServerStream.RecvMsg(&f); err != nil {
		return err
	}
	return f.fault
}
