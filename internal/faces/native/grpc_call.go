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
	"github.com/gopherqueue/gq/internal/pbconv"
	"github.com/gopherqueue/gq/internal/wire"
	"github.com/gopherqueue/gq/machine"
)

// requestHeader carries the client's own request id.
const requestHeader = "x-request-id"

// rpc is one call and also its context.
type rpc struct {
	context.Context // rpc is a context
	method          string
	once            sync.Once
	name            string
}

type rpcKey struct{}

// Value returns the call itself for rpcKey, which saves a context.WithValue.
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

// request returns the call's id for the log: the client's if it is valid, or else a
// random one, generated on first use.
func (c *rpc) request() string {
	c.once.Do(func() {
		if c.name = givenName(c.Context); c.name == "" {
			c.name = rand.Text()
		}
	})
	return c.name
}

// givenName returns the client's own request id, or "" if there is no valid one.
func givenName(ctx context.Context) string {
	for _, name := range metadata.ValueFromIncomingContext(ctx, requestHeader) {
		if len(name) > 0 && len(name) <= 128 && machine.CheckName(requestHeader, name) == nil {
			return name
		}
	}
	return ""
}

// timeLimit bounds the duration of a call. If standard is 0, the engine sets the limit.
type timeLimit struct{ standard, most time.Duration }

// limitOf returns a method's time limit: the default for calls without a deadline, and
// the maximum for calls with one.
func limitOf(method string) timeLimit {
	switch method {
	case pb.WorkersService_Claim_FullMethodName:
		return timeLimit{time.Hour + time.Minute, time.Hour + time.Minute} // the request has its own wait
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

// unary intercepts every unary call.
func (g *GRPC) unary(ctx context.Context, request any, info *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (answer any, err error) {
	c := &rpc{method: info.FullMethod, Context: ctx}
	began := time.Now()
	if name := givenName(ctx); name != "" {
		_ = grpc.SetHeader(ctx, metadata.Pairs(requestHeader, name)) // cannot fail before the first message
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

// stream intercepts every stream.
func (g *GRPC) stream(server any, s grpc.ServerStream, info *grpc.StreamServerInfo, handle grpc.StreamHandler) (err error) {
	c := &rpc{method: info.FullMethod, Context: s.Context()}
	if c.method == healthpb.Health_Watch_FullMethodName { // open watches would block a graceful stop
		serving, done := g.whileServing(c.Context)
		defer done()
		c.Context = serving
	}
	began := time.Now()
	if name := givenName(c); name != "" {
		_ = s.SetHeader(metadata.Pairs(requestHeader, name)) // cannot fail before the first message
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

// finish logs a call and converts its error to a status.
func (g *GRPC) finish(ctx context.Context, c *rpc, began time.Time, err error) error {
	s := pbconv.StatusOf(err, "")
	if err != nil {
		s = pbconv.StatusOf(err, c.request())
		g.note(c, err)
		if ctx.Err() != nil && s.Code() == codes.Internal {
			s = status.FromContextError(ctx.Err()) // the client has gone and cannot read more
		}
	}
	if g.options.Log.Enabled(ctx, slog.LevelDebug) {
		g.options.Log.Debug("call", slog.String("method", c.method), slog.String("request", c.request()),
			slog.String("code", s.Code().String()), slog.Float64("took_ms", float64(time.Since(began).Microseconds())/1000))
	}
	if brokeOff, ok := errors.AsType[*brokenOffError](err); ok {
		if detailed, e := s.WithDetails(brokeOff.report); e == nil {
			s = detailed
		}
	}
	return s.Err()
}

// note logs errors that the client does not see, and reports a failed store.
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

// registerService adds a service. A malformed request gets the same response as any other
// invalid request, after the interceptors have run.
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

// registrar registers services of other faces.
type registrar struct{ *GRPC }

// RegisterService adds a service.
func (r registrar) RegisterService(d *grpc.ServiceDesc, impl any) {
	registerGuarded(r.Server, *d, impl, r.GRPC)
}

// authorizer is implemented by every service.
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

// frame is a received message, or the fault in it.
type frame struct {
	message proto.Message
	fault   error
}

// lenientCodec is the protobuf codec, with two exceptions. It records a decoding error in the
// frame; gRPC itself would report an internal error. And it encodes the jobs of a Work stream
// and decodes most batches of submissions directly.
type lenientCodec struct{}

var protoCodec = encoding.GetCodecV2(grpcproto.Name)

func (lenientCodec) Name() string { return grpcproto.Name }

func (lenientCodec) Marshal(v any) (mem.BufferSlice, error) {
	jobs, ok := v.(*pbconv.JobsResponse)
	if !ok {
		return protoCodec.Marshal(v)
	}
	buffer := jobBuffers.Get(0)
	data, err := jobs.Append(*buffer)
	if err != nil {
		jobBuffers.Put(buffer)
		return nil, err
	}
	*buffer = data
	return mem.BufferSlice{mem.NewBuffer(buffer, jobBuffers)}, nil
}

// jobBuffers has buffers for the jobs of Work streams. The pool of gRPC itself would clear
// 1 MiB for every message above 32 KiB.
var jobBuffers = new(bufferPool)

// bufferPool implements [mem.BufferPool].
type bufferPool struct{ pool sync.Pool }

func (p *bufferPool) Get(n int) *[]byte {
	b, _ := p.pool.Get().(*[]byte)
	if b == nil || cap(*b) < n {
		b = new(make([]byte, max(n, 4<<10)))
	}
	*b = (*b)[:n]
	return b
}

func (p *bufferPool) Put(b *[]byte) {
	if cap(*b) <= 4*partBytes {
		p.pool.Put(b)
	}
}

func (lenientCodec) Unmarshal(data mem.BufferSlice, v any) error {
	f, ok := v.(*frame)
	if !ok {
		return protoCodec.Unmarshal(data, v)
	}
	unmarshal := func(data mem.BufferSlice) error { return protoCodec.Unmarshal(data, f.message) }
	if batch, ok := f.message.(*batchRequest); ok {
		unmarshal = batch.unmarshal
	}
	if err := unmarshal(data); err != nil {
		f.fault = pbconv.Malformed(data.Materialize(), f.message.ProtoReflect().Descriptor())
	}
	return nil
}

// lenientStream reports a malformed message as an invalid request.
type lenientStream struct {
	grpc.ServerStream
	ctx context.Context // returned by Context
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
