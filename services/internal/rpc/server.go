package rpc

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"runtime/debug"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/reflection"
	"google.golang.org/grpc/status"
)

// A Server is a gRPC server with health and reflection. Register services with
// it, then call Run.
type Server struct {
	*grpc.Server
	health *health.Server
}

// NewServer returns a server that writes to a log.
func NewServer(log *Log) *Server {
	s := &Server{
		Server: grpc.NewServer(grpc.ChainUnaryInterceptor(log.observe)),
		health: health.NewServer(),
	}
	grpc_health_v1.RegisterHealthServer(s.Server, s.health)
	reflection.Register(s.Server)
	return s
}

// stopTime is how long calls in progress may take once the server stops.
const stopTime = 2 * time.Second

// Run serves until ctx ends, then waits for calls in progress. It closes the listener.
func (s *Server) Run(ctx context.Context, listener net.Listener) error {
	served := make(chan error, 1)
	go func() { served <- s.Serve(listener) }()
	select {
	case err := <-served:
		return fmt.Errorf("serve %s: %w", listener.Addr(), err)
	case <-ctx.Done():
	}
	s.health.Shutdown() // informs health watchers
	hurry := time.AfterFunc(stopTime, s.Stop)
	s.GracefulStop()
	hurry.Stop()
	<-served
	return nil
}

// observe turns panics into INTERNAL and logs each answer that is not OK.
func (l *Log) observe(ctx context.Context, req any, info *grpc.UnaryServerInfo, next grpc.UnaryHandler) (reply any, err error) {
	start := time.Now()
	ctx = withRequestID(ctx)
	reply, err = recovered(ctx, req, next)
	if err != nil {
		shown := outward(err)
		l.failed(ctx, req, info.FullMethod, time.Since(start), err, status.Code(shown))
		return nil, shown
	}
	return reply, nil
}

func recovered(ctx context.Context, req any, next grpc.UnaryHandler) (reply any, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v\n%s", p, debug.Stack())
		}
	}()
	return next(ctx, req)
}

func (l *Log) failed(ctx context.Context, req any, fullMethod string, took time.Duration, err error, code codes.Code) {
	attrs := []slog.Attr{
		slog.String("grpc_code", CodeName(code)),
		slog.Int64("latency_ms", took.Milliseconds()),
	}
	if caller := callerOf(ctx); caller != "" {
		attrs = append(attrs, slog.String("caller", caller))
	}
	if r, ok := req.(interface{ GetJobId() string }); ok && r.GetJobId() != "" {
		attrs = append(attrs, JobID(r.GetJobId()))
	}
	if r, ok := req.(interface{ GetWorkerId() string }); ok && r.GetWorkerId() != "" {
		attrs = append(attrs, WorkerID(r.GetWorkerId()))
	}
	message := err.Error()
	if s, ok := status.FromError(err); ok {
		message = s.Message()
	}
	level := slog.LevelWarn
	if code == codes.Internal {
		level = slog.LevelError
	}
	l.write(ctx, level, baseName(fullMethod), "rpc_error", message, attrs)
}

// CodeName returns a code's name in the protocol, such as NOT_FOUND.
func CodeName(code codes.Code) string {
	if int(code) < len(codeNames) {
		return codeNames[code]
	}
	return fmt.Sprintf("CODE_%d", uint32(code))
}

var codeNames = [...]string{
	codes.OK: "OK", codes.Canceled: "CANCELLED", codes.Unknown: "UNKNOWN", codes.InvalidArgument: "INVALID_ARGUMENT",
	codes.DeadlineExceeded: "DEADLINE_EXCEEDED", codes.NotFound: "NOT_FOUND", codes.AlreadyExists: "ALREADY_EXISTS",
	codes.PermissionDenied: "PERMISSION_DENIED", codes.ResourceExhausted: "RESOURCE_EXHAUSTED",
	codes.FailedPrecondition: "FAILED_PRECONDITION", codes.Aborted: "ABORTED", codes.OutOfRange: "OUT_OF_RANGE",
	codes.Unimplemented: "UNIMPLEMENTED", codes.Internal: "INTERNAL", codes.Unavailable: "UNAVAILABLE",
	codes.DataLoss: "DATA_LOSS", codes.Unauthenticated: "UNAUTHENTICATED",
}
