package bench

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/engine"
	"github.com/gopherqueue/gq/store"
	"github.com/gopherqueue/gq/worker"
)

// Remote is a server to measure. Package client implements it.
type Remote interface {
	queueToMove

	Submit(ctx context.Context, s gq.Spec) (gq.SubmitResult, error)
}

// queueToMove is a local or remote queue through which jobs are passed in batches.
type queueToMove interface {
	worker.Queue

	SubmitBatch(ctx context.Context, specs []gq.Spec) ([]gq.SubmitResult, error)
	Counts(ctx context.Context, queues ...string) ([]gq.Count, error)
}

// Sizes of scenario server. Measurements to be compared alternate, so that other load on
// the machine affects both alike.
const (
	serverTurns   = 4
	serverCallers = 64   // concurrent unary callers
	serverSlots   = 1000 // of the worker
	serverFeeders = 2    // goroutines that submit batches
	serverAhead   = 20   // batches of each that may be pending

	serverStall = 30 * time.Second // without progress for this long, jobs count as lost
)

// server measures a server and its baselines.
func (b *bench) server(ctx context.Context) (r ServerResult, err error) {
	r.Batch, r.Slots, r.Callers = b.Batch, serverSlots, serverCallers
	live, _, err := standing(ctx, b.Remote)
	if err != nil {
		return r, err
	}
	if live > 0 {
		return r, fmt.Errorf("the server's queue %q has %d jobs that are not ours: %w", queueName, live, gq.ErrConflict)
	}
	for _, part := range []func(context.Context, *ServerResult) error{b.serverRate, b.serverCalls, b.serverLatency} {
		if err := part(ctx, &r); err != nil {
			return r, err
		}
	}
	return r, nil
}

// standing counts the unfinished and the completed jobs of a queue.
func standing(ctx context.Context, q queueToMove) (live, completed int64, err error) {
	counts, err := q.Counts(ctx, queueName)
	for i := range counts {
		live, completed = live+counts[i].Live(), completed+counts[i].By[gq.StatusCompleted]
	}
	return live, completed, err
}

// share returns the size of one turn.
func (b *bench) share() (jobs int, d time.Duration) {
	return (b.Jobs + serverTurns - 1) / serverTurns, b.Duration / serverTurns
}

// total accumulates turns.
type total struct {
	n       int64
	elapsed time.Duration
}

func (t *total) add(n int64, elapsed time.Duration) { t.n, t.elapsed = t.n+n, t.elapsed+elapsed }
func (t *total) rate() float64                      { return rate(t.n, t.elapsed) }

// serverRate passes jobs through a worker over the network, and through one on a store in
// this process.
func (b *bench) serverRate(ctx context.Context, r *ServerResult) error {
	return b.with(ctx, Server, "rate", nil, func(ctx context.Context, s store.Store) (err error) {
		e, err := engine.New(s, engine.Options{})
		if err != nil {
			return err
		}
		running, stop := context.WithCancel(ctx)
		ran := make(chan error, 1)
		go func() { ran <- e.Run(running) }()
		defer func() {
			stop()
			err = errors.Join(err, <-ran)
		}()
		var near, far total
		jobs, d := b.share()
		for range serverTurns {
			for _, side := range []struct {
				queue queueToMove
				sum   *total
			}{{e, &near}, {b.Remote, &far}} {
				n, elapsed, err := b.move(ctx, side.queue, newQuota(jobs, d, nil))
				if err != nil {
					return err
				}
				side.sum.add(n, elapsed)
			}
		}
		r.NearJobs, r.NearJobsPerSecond = near.n, near.rate()
		r.Jobs, r.JobsPerSecond = far.n, far.rate()
		r.Ratio = r.JobsPerSecond / r.NearJobsPerSecond
		return verify(ctx, s, 0, near.n)
	})
}

// move submits jobs in batches and runs a worker on them, until every outcome is settled.
func (b *bench) move(ctx context.Context, q queueToMove, left *quota) (n int64, elapsed time.Duration, err error) {
	_, before, err := standing(ctx, q)
	if err != nil {
		return 0, 0, err
	}
	var submitted, handled atomic.Int64
	waiting := make(chan struct{}, serverAhead*serverFeeders*b.Batch)
	progress := make(chan struct{}, 1)
	start := time.Now()
	err = withHandler(ctx, q, serverSlots, func(context.Context, *worker.Run) error {
		<-waiting
		handled.Add(1)
		select {
		case progress <- struct{}{}:
		default:
		}
		return nil
	}, func(ctx context.Context, _ *worker.Worker) error {
		_, err := together(ctx, serverFeeders, func() {}, func() func(context.Context) error {
			specs, random := make([]gq.Spec, b.Batch), newRandom()
			for i := range specs {
				specs[i] = b.remoteJob()
			}
			return func(ctx context.Context) error {
				for k := left.take(b.Batch); k > 0; k = left.take(b.Batch) {
					for i := range specs[:k] {
						random.Read(specs[i].Payload.Data) //nolint:errcheck // never fails
						select {
						case waiting <- struct{}{}:
						case <-ctx.Done():
							return context.Cause(ctx)
						}
					}
					answers, err := q.SubmitBatch(ctx, specs[:k])
					if err != nil {
						return err
					}
					for i := range answers {
						if answers[i].Err != nil {
							return answers[i].Err
						}
					}
					submitted.Add(int64(k))
				}
				return nil
			}
		})
		for err == nil && handled.Load() < submitted.Load() {
			select {
			case <-progress:
			case <-time.After(serverStall):
				err = fmt.Errorf("of %d jobs %d have come back, and no more for %v: %w", submitted.Load(), handled.Load(), serverStall, errWrong)
			case <-ctx.Done():
				err = context.Cause(ctx)
			}
		}
		return err
	})
	elapsed = time.Since(start)
	if err != nil {
		return 0, 0, err
	}
	live, after, err := standing(ctx, q)
	if n = submitted.Load(); err == nil && (live != 0 || after-before != n) {
		err = fmt.Errorf("of %d jobs %d were completed and %d are left: %w", n, after-before, live, errWrong)
	}
	return n, elapsed, err
}

// remoteJob returns a job that leaves defaults to the server.
func (b *bench) remoteJob() gq.Spec {
	return gq.Spec{Queue: queueName, Type: "bench", Payload: gq.Payload{Data: make([]byte, b.Payload), ContentType: gq.OctetStream}}
}

// withHandler runs a function while a worker runs. When it returns, every outcome of the
// worker is settled.
func withHandler(ctx context.Context, q worker.Queue, slots int, h func(context.Context, *worker.Run) error, use func(context.Context, *worker.Worker) error) error {
	w := worker.New(q, worker.Config{
		Slots: slots, QueueSets: []worker.QueueSet{{Queues: []string{queueName}}}, Logger: slog.New(slog.DiscardHandler),
	})
	w.HandleFunc("bench", h)
	running, stop := context.WithCancel(ctx)
	ran := make(chan error, 1)
	go func() { ran <- w.Run(running) }()
	err := use(ctx, w)
	stop()
	return errors.Join(err, <-ran)
}

// serverCalls alternates unary submissions and calls of a bare echo server, with as many
// callers. The submitted jobs run at the end, unmeasured.
func (b *bench) serverCalls(ctx context.Context, r *ServerResult) error {
	echo, closing, err := startEcho()
	if err != nil {
		return err
	}
	defer closing()
	var bare, submit total
	var bareTimes, submitTimes histogram
	jobs, d := b.share()
	for range serverTurns {
		n, elapsed, err := unary(ctx, newQuota(jobs, d, nil), &bareTimes, func() func(context.Context) error {
			request := &wrapperspb.BytesValue{Value: make([]byte, b.Payload)}
			return func(ctx context.Context) error { return echo(ctx, request) }
		})
		if err != nil {
			return fmt.Errorf("echo: %w", err)
		}
		bare.add(n, elapsed)
		n, elapsed, err = unary(ctx, newQuota(jobs, d, nil), &submitTimes, func() func(context.Context) error {
			spec, random := b.remoteJob(), newRandom()
			return func(ctx context.Context) error {
				random.Read(spec.Payload.Data) //nolint:errcheck // never fails
				_, err := b.Remote.Submit(ctx, spec)
				return err
			}
		})
		if err != nil {
			return err
		}
		submit.add(n, elapsed)
	}
	r.EchoCalls, r.EchoCallsPerSecond, r.Echo = bare.n, bare.rate(), bareTimes.latency()
	r.SubmitCalls, r.SubmitCallsPerSecond, r.Submit = submit.n, submit.rate(), submitTimes.latency()
	r.SubmitRatio = r.SubmitCallsPerSecond / r.EchoCallsPerSecond
	return b.runRest(ctx)
}

// unary makes all callers call in a loop.
func unary(ctx context.Context, left *quota, times *histogram, prepare func() func(context.Context) error) (n int64, elapsed time.Duration, err error) {
	var calls atomic.Int64
	elapsed, err = together(ctx, serverCallers, func() {}, func() func(context.Context) error {
		call := prepare()
		return func(ctx context.Context) error {
			for left.take(1) > 0 {
				start := time.Now()
				if err := call(ctx); err != nil {
					return err
				}
				times.add(time.Since(start))
				calls.Add(1)
			}
			return nil
		}
	})
	return calls.Load(), elapsed, err
}

// runRest runs the remaining jobs of the server's queue.
func (b *bench) runRest(ctx context.Context) error {
	return withHandler(ctx, b.Remote, serverSlots, func(context.Context, *worker.Run) error { return nil }, func(ctx context.Context, _ *worker.Worker) error {
		for {
			live, _, err := standing(ctx, b.Remote)
			if err != nil || live == 0 {
				return err
			}
			if err := wait(ctx, 10*time.Millisecond); err != nil {
				return err
			}
		}
	})
}

// startEcho starts a gRPC server that only echoes, to measure the cost of gRPC itself.
func startEcho() (call func(context.Context, *wrapperspb.BytesValue) error, closing func(), err error) {
	l, err := new(net.ListenConfig).Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, nil, err
	}
	server := grpc.NewServer()
	server.RegisterService(&grpc.ServiceDesc{
		ServiceName: "echo.Echo", HandlerType: (*any)(nil),
		Methods: []grpc.MethodDesc{{MethodName: "Echo", Handler: func(_ any, _ context.Context, decode func(any) error, _ grpc.UnaryServerInterceptor) (any, error) {
			m := new(wrapperspb.BytesValue)
			return m, decode(m)
		}}},
	}, nil)
	var serving sync.WaitGroup
	serving.Go(func() { _ = server.Serve(l) }) // ends with Stop
	stop := func() {
		server.Stop()
		serving.Wait()
	}
	conn, err := grpc.NewClient(l.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		stop()
		return nil, nil, err
	}
	return func(ctx context.Context, m *wrapperspb.BytesValue) error {
			return conn.Invoke(ctx, "/echo.Echo/Echo", m, new(wrapperspb.BytesValue))
		}, func() {
			_ = conn.Close()
			stop()
		}, nil
}

// serverLatency submits one job at a time to an idle queue.
func (b *bench) serverLatency(ctx context.Context, r *ServerResult) error {
	jobs := b.atMost(latencyJobs)
	var toStart, submit histogram
	started := make(chan time.Time, 1)
	err := withHandler(ctx, b.Remote, 2, func(context.Context, *worker.Run) error { started <- time.Now(); return nil }, func(ctx context.Context, w *worker.Worker) error {
		for i := range jobs {
			start := time.Now()
			if _, err := b.Remote.Submit(ctx, b.remoteJob()); err != nil {
				return err
			}
			submit.add(time.Since(start))
			select {
			case at := <-started:
				toStart.add(at.Sub(start))
			case <-ctx.Done():
				return context.Cause(ctx)
			}
			for w.Stats().Succeeded <= uint64(i) {
				if err := wait(ctx, time.Millisecond); err != nil {
					return err
				}
			}
		}
		return nil
	})
	r.ToStart, r.ToStartSubmit = toStart.latency(), submit.latency()
	return err
}
