package client_test

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/client"
	"github.com/gopherqueue/gq/engine"
	"github.com/gopherqueue/gq/internal/faces/native"
	"github.com/gopherqueue/gq/store"
	"github.com/gopherqueue/gq/store/local"
	"github.com/gopherqueue/gq/worker"
)

// The benchmarks use loopback, with client and server in one process. Those on a durable
// store write below TMPDIR.

func benchStore(b *testing.B, durable bool) store.Store {
	b.Helper()
	var s *local.Store
	var err error
	if durable {
		s, err = local.Open(b.TempDir(), local.Options{})
	} else {
		s, err = local.OpenMemory(local.Options{})
	}
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = s.Close() })
	return s
}

func listen(b *testing.B) net.Listener {
	b.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	return l
}

func benchEngine(b *testing.B, durable bool) *engine.Engine {
	b.Helper()
	e, err := engine.New(benchStore(b, durable), engine.Options{})
	if err != nil {
		b.Fatal(err)
	}
	return e
}

func benchClient(b *testing.B, e *engine.Engine) *client.Client {
	b.Helper()
	l := listen(b)
	server := native.NewGRPC(e, native.GRPCOptions{})
	go func() { _ = server.Serve(l) }()
	c, err := client.New(l.Addr().String(), client.Options{})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		_ = c.Close()
		server.Drain()
		server.GracefulStop()
	})
	return c
}

const benchCallers = 64

// callers divides n calls among 64 goroutines and returns how long they took.
func callers(b *testing.B, n int, call func() error) time.Duration {
	b.Helper()
	var left atomic.Int64
	left.Store(int64(n))
	var group sync.WaitGroup
	began := time.Now()
	for range benchCallers {
		group.Go(func() {
			for left.Add(-1) >= 0 {
				if err := call(); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	group.Wait()
	return time.Since(began)
}

// compare alternates two measurements, so that other load on the machine affects both
// alike. It reports the medians of their rates and of the ratio of the second to the
// first: by wall clock, and by CPU time, which other processes do not disturb.
func compare(b *testing.B, unit string, slice int, base, other func(n int) time.Duration) {
	b.Helper()
	measure := func(n int, f func(int) time.Duration) (rate, cpu float64) {
		began := cpuTime()
		d := f(n)
		return float64(n) / d.Seconds(), float64((cpuTime() - began).Microseconds()) / float64(n)
	}
	base(slice) // warm up
	other(slice)
	columns := make(map[string][]float64)
	b.ResetTimer()
	for done := 0; done < b.N; done += slice {
		n := min(slice, b.N-done)
		x, cpuX := measure(n, base)
		y, cpuY := measure(n, other)
		for name, v := range map[string]float64{
			"base-" + unit: x, unit: y, "ratio": y / x, "base-cpu-µs": cpuX, "cpu-µs": cpuY, "cpu-ratio": cpuX / cpuY,
		} {
			columns[name] = append(columns[name], v)
		}
	}
	for name, column := range columns {
		slices.Sort(column)
		b.ReportMetric(column[len(column)/2], name)
	}
	b.ReportMetric(0, "ns/op")
}

// echo returns a call of a bare gRPC server, to measure the cost of gRPC itself.
func echo(b *testing.B) func() error {
	b.Helper()
	l := listen(b)
	server := grpc.NewServer()
	server.RegisterService(&grpc.ServiceDesc{
		ServiceName: "echo.Echo", HandlerType: (*any)(nil),
		Methods: []grpc.MethodDesc{{MethodName: "Echo", Handler: func(_ any, _ context.Context, decode func(any) error, _ grpc.UnaryServerInterceptor) (any, error) {
			m := new(wrapperspb.BytesValue)
			return m, decode(m)
		}}},
	}, nil)
	go func() { _ = server.Serve(l) }()
	conn, err := grpc.NewClient(l.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		_ = conn.Close()
		server.Stop()
	})
	request := &wrapperspb.BytesValue{Value: make([]byte, 100)}
	return func() error {
		return conn.Invoke(context.Background(), "/echo.Echo/Echo", request, new(wrapperspb.BytesValue))
	}
}

// BenchmarkSubmit compares unary submissions of 64 callers with a bare echo.
func BenchmarkSubmit(b *testing.B) {
	for _, durable := range []bool{false, true} {
		b.Run(fmt.Sprintf("durable=%v", durable), func(b *testing.B) {
			bare := echo(b)
			c := benchClient(b, benchEngine(b, durable))
			spec := gq.Spec{Type: "work", Payload: gq.Payload{Data: []byte(`{"to":"someone@example.com","subject":"hello"}`)}}
			compare(b, "calls/s", 2500,
				func(n int) time.Duration { return callers(b, n, bare) },
				func(n int) time.Duration {
					return callers(b, n, func() error {
						_, err := c.Submit(b.Context(), spec)
						return err
					})
				})
		})
	}
}

// queue is what the engine and the client have in common here.
type queue interface {
	worker.Queue
	SubmitBatch(ctx context.Context, specs []gq.Spec) ([]gq.SubmitResult, error)
}

// BenchmarkWorker moves jobs through their whole life: submitted in batches, claimed, run
// by a handler that does nothing, and completed. It compares a remote worker with one in
// the server's process.
func BenchmarkWorker(b *testing.B) {
	for _, durable := range []bool{false, true} {
		b.Run(fmt.Sprintf("durable=%v", durable), func(b *testing.B) {
			e := benchEngine(b, durable)
			c := benchClient(b, e)
			compare(b, "jobs/s", 20_000,
				func(n int) time.Duration { return move(b, e, "near", n) },
				func(n int) time.Duration { return move(b, c, "far", n) })
		})
	}
}

// move moves n jobs and returns how long it took.
func move(b *testing.B, q queue, typ string, n int) time.Duration {
	b.Helper()
	const batch, slots = 250, 1000
	ctx, stop := context.WithCancel(b.Context())
	defer stop()
	var done atomic.Int64
	finished := make(chan struct{})
	w := worker.New(q, worker.Config{Slots: slots, Logger: slog.New(slog.DiscardHandler)})
	w.HandleFunc(typ, func(context.Context, *worker.Run) error {
		if done.Add(1) == int64(n) {
			close(finished)
		}
		return nil
	})
	specs := make([]gq.Spec, batch)
	for i := range specs {
		specs[i] = gq.Spec{Type: typ, Payload: gq.Payload{Data: []byte(`{"to":"someone@example.com","subject":"hello"}`)}}
	}
	began := time.Now()
	var group sync.WaitGroup
	group.Go(func() {
		if err := w.Run(ctx); err != nil {
			b.Error(err)
		}
	})
	var left atomic.Int64
	left.Store(int64(n))
	for range 2 {
		group.Go(func() {
			for {
				n := min(left.Add(-batch)+batch, batch)
				if n <= 0 {
					return
				}
				if _, err := q.SubmitBatch(b.Context(), specs[:n]); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	select {
	case <-finished:
	case <-time.After(time.Minute):
		b.Error("not done within a minute")
	}
	stop()
	group.Wait() // all outcomes are settled
	return time.Since(began)
}

// BenchmarkLatency measures the time from a submission to the start of its handler,
// through the server, on an otherwise idle queue.
func BenchmarkLatency(b *testing.B) {
	c := benchClient(b, benchEngine(b, true))
	started := make(chan time.Time, 1)
	w := newWorker(c, worker.Config{Slots: 10})
	w.HandleFunc("work", func(context.Context, *worker.Run) error {
		started <- time.Now()
		return nil
	})
	defer run(b, w)()
	var times []time.Duration
	for b.Loop() {
		began := time.Now()
		if _, err := c.Submit(b.Context(), gq.Spec{Type: "work"}); err != nil {
			b.Fatal(err)
		}
		times = append(times, (<-started).Sub(began))
	}
	slices.Sort(times)
	b.ReportMetric(float64(times[len(times)/2].Microseconds()), "p50-µs")
	b.ReportMetric(float64(times[len(times)*99/100].Microseconds()), "p99-µs")
}
