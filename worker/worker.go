package worker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/internal/tracing"
)

// Worker claims jobs and runs their handlers.
//
//	w := worker.New(client, worker.Config{Slots: 50})
//	worker.Handle(w, SendEmail, send)
//	err := w.Run(ctx)
type Worker struct {
	mux

	queue    Queue
	config   Config
	tracer   trace.Tracer // nil without Config.TracerProvider
	log      *slog.Logger
	handlers map[string]Handler
	types    []string

	slots      *slots
	pool       pool
	launch     func(*Run) // starts a handler: pool.run, or execute in RunOne
	keeper     keeper
	settler    settler
	reporter   reporter
	heartbeats outage
	settles    outage
	calls      calls
	failures   calls // of these, those that returned an error

	started    atomic.Bool
	single     bool               // RunOne runs the jobs
	stopping   chan struct{}      // closed when no more jobs are claimed
	stop       context.CancelFunc // of Start
	done       chan struct{}      // closed when the worker that Start ran has ended
	err        error              // why; set before done is closed
	background sync.WaitGroup     // calls in flight
	values     context.Context    // has the values of Run's context but does not end; the parent of handlers' contexts
	life       context.Context    // of calls; ends when Run gives up
}

// calls counts calls to the queue.
type calls struct{ claims, heartbeats, settles atomic.Uint64 }

// New creates a worker. Register handlers next, then call Run, which reports all faults of the
// configuration and the registrations.
func New(q Queue, c Config) *Worker {
	c = c.withDefaults()
	w := &Worker{queue: q, config: c, tracer: tracerOf(c.TracerProvider), log: c.Logger, stopping: make(chan struct{}), done: make(chan struct{})}
	w.pool.execute = w.execute
	w.keeper = keeper{worker: w, wake: make(chan struct{}, 1)}
	w.settler.worker, w.reporter.worker = w, w
	w.heartbeats.log, w.heartbeats.call = w.log, "heartbeat"
	w.settles.log, w.settles.call = w.log, "settle"
	return w
}

// begin ends registration and reports all faults.
func (w *Worker) begin() error {
	if len(w.config.QueueSets) == 0 {
		queues := w.queues
		if len(queues) == 0 {
			queues = []string{gq.DefaultQueue}
		}
		w.config.QueueSets = []QueueSet{{Queues: queues, Slots: w.config.Slots}}
	}
	faults := w.config.faults()
	if w.queue == nil {
		faults = append(faults, gq.Fault{Field: "queue", Problem: "is required"})
	}
	if len(w.mux.handlers) == 0 {
		faults = append(faults, gq.Fault{Field: "handlers", Problem: "no handler is registered"})
	}
	w.handlers, w.types = w.mux.seal()
	if faults = append(faults, w.mux.faults...); len(faults) > 0 {
		return fmt.Errorf("start the worker: %w", &gq.InvalidError{Faults: faults})
	}
	for _, k := range w.mux.kinds {
		if !w.config.claims(k.queue) {
			w.log.Warn("no queue set has the queue of a kind with a handler; its jobs wait for another worker",
				slog.String("type", k.typ), slog.String("queue", k.queue))
		}
	}
	types, gathered, room := w.mux.split(w.types)
	w.slots = newSlots(w.config, types, gathered, room)
	return nil
}

// Name returns the worker's name.
func (w *Worker) Name() string { return w.config.Name }

// Run claims and runs jobs until ctx ends. Then it stops claiming and lets the handlers
// finish. After Config.DrainTimeout it ends their contexts, and after Config.Grace it releases
// the jobs of the handlers that still run, without using up an attempt. The contexts of
// handlers have the values of ctx, except for its span, but do not end with it.
//
// Run returns nil if every handler has returned and the queue has answered every outcome, and
// otherwise [ErrAbandoned], [ErrUndelivered] or both. When it returns, nothing that it started
// still runs, except for abandoned handlers. A worker runs only once.
//
// If the configuration or the handlers are invalid, Run reports all faults as one
// [gq.InvalidError] and does not start.
func (w *Worker) Run(ctx context.Context) error {
	if w.started.Swap(true) {
		return errors.New("worker: Run was called twice")
	}
	if w.slots == nil {
		if err := w.begin(); err != nil {
			return err
		}
	}
	if m := w.config.Metrics; m != nil {
		defer m.Attach(w.Stats)()
	}
	w.launch = w.pool.run
	w.values = context.WithoutCancel(tracing.Without(ctx))
	life, die := context.WithCancel(w.values)
	defer die()
	w.life = life

	var loops, fetchers sync.WaitGroup
	watching, unwatch := context.WithCancel(w.values)
	defer unwatch()
	loops.Go(func() { w.keeper.loop(watching) })
	defer w.cancelRequests()()
	w.log.Info("worker started", slog.String("worker", w.Name()), slog.Int("slots", w.config.Slots))
	for _, f := range w.slots.fetchers {
		fetchers.Go(func() { w.fetch(ctx, f) })
		if f.Slots > maxBatch && !w.slots.shared && !f.many { // queue sets that compete for slots get one claim each
			fetchers.Go(func() { w.fetchAhead(ctx, f) })
		}
	}
	fetchers.Wait()
	close(w.stopping)

	undelivered := w.settler.stats.undelivered.Load()
	abandoned := w.drain()
	w.pool.close()
	w.reporter.close()
	giveUp := time.AfterFunc(w.config.Grace, die)
	defer giveUp.Stop()
	unwatch()
	loops.Wait()
	w.background.Wait()
	err := w.stopError(abandoned, w.settler.stats.undelivered.Load()-undelivered)
	if err == nil {
		w.leave()
	}
	w.log.Info("worker stopped", slog.String("worker", w.Name()))
	return err
}

// cancelRequests has the keeper told of cancel requests, if the queue knows of them.
func (w *Worker) cancelRequests() (stop func()) {
	queue := any(w.queue)
	if c, ok := queue.(*gq.Client); ok {
		queue = c.Driver
	}
	q, ok := queue.(interface {
		CancelRequests(f func(jobs []gq.JobID)) (stop func())
	})
	if !ok {
		return func() {}
	}
	return q.CancelRequests(w.keeper.cancelRequested)
}

// leaveTimeout limits the last call of a worker.
const leaveTimeout = time.Second

// leave tells the queue that the worker has stopped. Otherwise the worker is listed for another
// minute.
func (w *Worker) leave() {
	q, ok := w.queue.(interface {
		WorkerStopped(ctx context.Context, worker string) error
	})
	if !ok {
		return
	}
	ctx, cancel := context.WithTimeout(w.life, leaveTimeout)
	defer cancel()
	if err := q.WorkerStopped(ctx, w.Name()); err != nil {
		w.log.Debug("could not tell the queue that the worker has stopped", slog.String("worker", w.Name()), slog.Any("error", err))
	}
}

// Start runs the worker in the background until ctx ends or Stop is called. A second Start does nothing.
//
// A worker whose configuration or handlers are invalid has ended when Start returns: check
// [Worker.Err]. The worker logs every error.
func (w *Worker) Start(ctx context.Context) *Worker {
	if w.stop != nil {
		return w
	}
	ctx, w.stop = context.WithCancel(ctx)
	if !w.started.Load() { // else Run refuses
		if err := w.begin(); err != nil {
			w.endWith(err)
			return w
		}
	}
	go func() { w.endWith(w.Run(ctx)) }()
	return w
}

// endWith ends what Start began.
func (w *Worker) endWith(err error) {
	if err != nil {
		w.log.Error("worker ended", slog.Any("error", err))
	}
	w.stop()
	w.err = err
	close(w.done)
}

// Done returns a channel that is closed when a worker that was started has ended: after Stop, the end of
// its context, or an error.
func (w *Worker) Done() <-chan struct{} { return w.done }

// Err returns why a worker that was started has ended, as [Worker.Run] does. It returns nil while the
// worker runs, and if it was not started.
func (w *Worker) Err() error {
	select {
	case <-w.done:
		return w.err
	default:
		return nil
	}
}

// Stop stops a worker, waits until it has ended and returns [Worker.Err]. It does nothing if the worker
// was not started.
func (w *Worker) Stop() error {
	if w.stop == nil {
		return nil
	}
	w.stop()
	<-w.done
	return w.err
}

// drain waits for the handlers and returns those it abandoned.
func (w *Worker) drain() []*Run {
	idle := w.keeper.whenIdle()
	if within(idle, w.config.DrainTimeout) {
		return nil
	}
	now := time.Now()
	left := w.keeper.stopAll(now)
	if within(idle, min(w.config.Grace, left)) {
		return nil
	}
	abandoned := w.keeper.abandon()
	for _, r := range abandoned {
		r.logged(slog.LevelError, "handler abandoned")
		if !r.lost {
			r.outcome.Outcome = gq.Outcome{Lease: r.ref, Verdict: gq.VerdictRelease, Reason: ErrDraining.Error()}
			w.settler.add(w.life, r)
		}
	}
	within(idle, w.config.Grace) // for handlers that returned just now
	return abandoned
}

// within reports whether done is closed before d has passed.
func within(done <-chan struct{}, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-done:
		return true
	case <-timer.C:
		return false
	}
}

func (w *Worker) stopError(abandoned []*Run, undelivered uint64) error {
	var faults []error
	if n := len(abandoned); n > 0 {
		var ids []gq.JobID
		for _, r := range abandoned[:min(n, 10)] {
			ids = append(ids, r.ID())
		}
		faults = append(faults, fmt.Errorf("%d jobs, among them %v: %w", n, ids, ErrAbandoned))
	}
	if undelivered > 0 {
		faults = append(faults, fmt.Errorf("%d jobs: %w", undelivered, ErrUndelivered))
	}
	return errors.Join(faults...)
}

// newRun creates the execution of a claimed job. It returns nil if the job has no lease. The
// handler is nil if none is registered for the type.
func (w *Worker) newRun(f *fetcher, job *gq.Job) *Run {
	lease := job.State.Lease
	if lease == nil || lease.ID == "" {
		w.log.Error("the queue returned a job without a lease", slog.String("job", job.Spec.ID.String()))
		return nil
	}
	r := &Run{worker: w, fetcher: f, job: *job, ref: lease.Ref(), handler: w.handlers[job.Spec.Type]}
	r.policy = r.job.State.Policy
	if r.policy == nil {
		r.policy = &r.job.Spec.Policy
	}
	return r
}

// giveBack releases a job that the worker will not start.
func (w *Worker) giveBack(r *Run, now time.Time, delay time.Duration, reason string) {
	lease := r.job.State.Lease
	r.over = now.Add(lease.ExpiresAt.Sub(lease.GrantedAt))
	r.outcome.Outcome = gq.Outcome{Lease: r.ref, Verdict: gq.VerdictRelease, Delay: delay, Reason: reason}
	w.settler.add(w.life, r)
}

// start runs the handler of a job.
func (w *Worker) start(r *Run, asked, received time.Time) {
	inner, cancel := context.WithCancelCause(w.traced(r))
	r.context, r.cancel = runContext{Context: inner}, cancel
	if d := r.policy.ExecutionTimeout; d > 0 {
		r.context.deadline = received.Add(d)
	}
	if m := w.config.Metrics; m != nil {
		r.began = received
		m.Started(r.Type(), latencyOf(&r.job.State))
	}
	w.keeper.add(r, asked, received)
	w.launch(r)
}

// execute runs a handler until it returns, panics or exits its goroutine.
func (w *Worker) execute(r *Run) {
	err := error(errExited)
	defer func() { w.finish(r, err) }()
	err = r.invoke()
}

// invoke calls the handler. A panic becomes an error.
func (r *Run) invoke() (err error) {
	defer func() {
		if p := recover(); p != nil {
			caught := panicked(p)
			r.logged(slog.LevelError, "handler panicked", slog.String("error", r.quotable(caught.value)), slog.String("stack", string(caught.stack)))
			err = caught
		}
	}()
	if err := r.unseal(); err != nil {
		return err
	}
	return r.handler(&r.context, r)
}

// finish passes the outcome of an execution to the settler and frees its slot.
func (w *Worker) finish(r *Run, err error) {
	e, ok := w.keeper.remove(r)
	r.cancel(context.Canceled)
	switch {
	case !ok:
		w.observe(r, RunAbandoned, nil)
		r.logged(slog.LevelWarn, "abandoned handler returned; its job was released before")
	case e.lost || reached(e.over, time.Now()):
		w.observe(r, RunLost, nil)
		w.settler.stats.refused.Add(1)
		r.logged(slog.LevelWarn, "handler returned after its lease was lost; the outcome is not sent", slog.Bool("succeeded", err == nil))
	default:
		o := &r.outcome.Outcome
		*o = w.safely(r, e, err)
		w.observe(r, outcomeOf(o), o) // before the settler owns it
		w.settler.add(w.life, r)
	}
	if ok {
		w.slots.release(r)
		w.keeper.leave()
	}
}

// safely calls judge and recovers if a method of the error panics.
func (w *Worker) safely(r *Run, e ended, err error) (o gq.Outcome) {
	defer func() {
		if p := recover(); p != nil {
			o = failing(r, gq.Failure{Category: gq.CategorySystem, Code: "panic", Message: clip(panicked(p).Error())})
		}
	}()
	return w.judge(r, e, err)
}
