package native

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/proto"

	"github.com/gopherqueue/gq"
	pb "github.com/gopherqueue/gq/api/gopherqueue/v1"
	"github.com/gopherqueue/gq/engine"
)

// hall is the gRPC face over an engine on an in-memory store, with a raw connection to
// it.
type hall struct {
	*testing.T
	engine *engine.Engine
	face   *GRPC
	conn   *grpc.ClientConn
	log    *logBuffer
	pipe   atomic.Pointer[net.Conn] // the client's end

	jobs      pb.JobsServiceClient
	workers   pb.WorkersServiceClient
	queues    pb.QueuesServiceClient
	schedules pb.SchedulesServiceClient
}

// serveGRPC serves an engine that wrap may modify.
func serveGRPC(t *testing.T, o GRPCOptions, wrap func(engine.API) engine.API) *hall {
	t.Helper()
	h := &hall{T: t, engine: newEngine(t), log: &logBuffer{}}
	o.Log = slog.New(slog.NewJSONHandler(h.log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	var e engine.API = h.engine
	if wrap != nil {
		e = wrap(e)
	}
	h.face = NewGRPC(e, o)
	listener := bufconn.Listen(1 << 20)
	served := make(chan error, 1)
	go func() { served <- h.face.Serve(listener) }()
	conn, err := grpc.NewClient("passthrough:///test", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
			c, err := listener.DialContext(ctx)
			if err == nil {
				h.pipe.Store(&c)
			}
			return c, err
		}))
	if err != nil {
		t.Fatal(err)
	}
	h.conn, h.jobs, h.workers = conn, pb.NewJobsServiceClient(conn), pb.NewWorkersServiceClient(conn)
	h.queues, h.schedules = pb.NewQueuesServiceClient(conn), pb.NewSchedulesServiceClient(conn)
	t.Cleanup(func() {
		_ = conn.Close()
		h.face.Drain()
		h.face.GracefulStop()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	return h
}

// cut breaks the connection abruptly.
func (h *hall) cut() { _ = (*h.pipe.Load()).Close() }

// submit submits a job of type "work".
func (h *hall) submit() gq.JobID {
	h.Helper()
	id, err := h.engine.Enqueue(h.Context(), gq.Spec{Type: "work"})
	if err != nil {
		h.Fatal(err)
	}
	return id
}

func (h *hall) job(id gq.JobID) gq.Job {
	h.Helper()
	job, err := h.engine.Get(h.Context(), id, 0)
	if err != nil {
		h.Fatal(err)
	}
	return job
}

// until waits for a condition.
func (h *hall) until(what string, ok func() bool) {
	h.Helper()
	for deadline := time.Now().Add(time.Minute); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			h.Fatalf("not within a minute: %s", what)
		}
	}
}

// raw is a codec that sends bytes unchanged.
type raw struct{}

func (raw) Name() string { return "proto" }

func (raw) Marshal(v any) (mem.BufferSlice, error) {
	if b, ok := v.([]byte); ok {
		return mem.BufferSlice{mem.SliceBuffer(b)}, nil
	}
	return protoCodec.Marshal(v)
}

func (raw) Unmarshal(data mem.BufferSlice, v any) error { return protoCodec.Unmarshal(data, v) }

// invokeRaw calls a method with arbitrary bytes as its request.
func (h *hall) invokeRaw(method string, request []byte, answer proto.Message) error {
	return h.conn.Invoke(h.Context(), method, request, answer, grpc.ForceCodecV2(raw{}))
}

// named returns a context that sets the request id.
func named(ctx context.Context, id string) context.Context {
	return metadata.AppendToOutgoingContext(ctx, requestHeader, id)
}

// altered is an engine with replaceable methods.
type altered struct {
	engine.API
	get       func(context.Context, gq.JobID, gq.Parts) (gq.Job, error)
	wait      func(context.Context, gq.JobID) (gq.Job, error)
	claim     func(context.Context, gq.ClaimRequest) ([]gq.Job, error)
	settle    func(context.Context, []gq.Outcome) ([]gq.LeaseResult, error)
	heartbeat func(context.Context, []gq.Heartbeat) ([]gq.LeaseResult, error)
}

func (b *altered) Get(ctx context.Context, id gq.JobID, parts gq.Parts) (gq.Job, error) {
	if b.get != nil {
		return b.get(ctx, id, parts)
	}
	return b.API.Get(ctx, id, parts)
}

func (b *altered) Wait(ctx context.Context, id gq.JobID) (gq.Job, error) {
	if b.wait != nil {
		return b.wait(ctx, id)
	}
	return b.API.Wait(ctx, id)
}

func (b *altered) Claim(ctx context.Context, r gq.ClaimRequest) ([]gq.Job, error) {
	if b.claim != nil {
		return b.claim(ctx, r)
	}
	return b.API.Claim(ctx, r)
}

func (b *altered) Settle(ctx context.Context, outcomes []gq.Outcome) ([]gq.LeaseResult, error) {
	if b.settle != nil {
		return b.settle(ctx, outcomes)
	}
	return b.API.Settle(ctx, outcomes)
}

func (b *altered) Heartbeat(ctx context.Context, beats []gq.Heartbeat) ([]gq.LeaseResult, error) {
	if b.heartbeat != nil {
		return b.heartbeat(ctx, beats)
	}
	return b.API.Heartbeat(ctx, beats)
}

var errSecret = errors.New("the password is hunter2")

// waiting returns how many claims wait for a job.
func (h *hall) waiting() (n int) {
	h.Helper()
	workers, err := h.engine.Workers(h.Context())
	if err != nil {
		h.Fatal(err)
	}
	for _, w := range workers {
		n += w.Waiting
	}
	return n
}
