// Package scheduler is the scheduler API: workers claim jobs, prepare them, request
// capacity and run them under leases. It is served over HTTP below /api/scheduler.
//
// It only translates. An addon is a queue. A claim is a claim with a hold; a lease is
// that same lease after the job has started. Capacity is a pool that all addons share; a
// job occupies it from its start. The engine and its store decide state changes,
// ownership and capacity, in the commit of the change.
//
// # Time
//
// An expired lease is expired for every reader, whether or not a sweep has run: a read
// that might show a lost holder first records the loss.
package scheduler

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/engine"
	"github.com/gopherqueue/gq/internal/httpx"
	"github.com/gopherqueue/gq/machine"
)

// Base is the path prefix of the API.
const Base = "/api/scheduler"

// Pool is the pool whose capacity the addons share.
const Pool = "scheduler"

// Options configure the face. The zero value selects the defaults.
type Options struct {
	Log           *slog.Logger  // nil discards
	Version       string        // of the program, for the OpenAPI document
	Capacity      *int64        // cost units that all running jobs may occupy; nil is 70
	ClaimHold     time.Duration // how long a claim without a lease holds its job; 0 is 60 s
	LeaseTTL      time.Duration // of a lease request without one; 0 is 30 s
	Requeue       bool          // queue a job again when its lease expires; otherwise it ends as TIMEOUT
	NoIdempotency bool          // a repeated client_request_id creates a new job
	MaxBody       int64         // largest body in bytes; 0 is 16 MiB
	BodyTimeout   time.Duration // deadline for receiving a body; 0 is 30 s

	// Identify authenticates the caller and stores the identity in the request context.
	// nil turns authentication off.
	Identify func(*http.Request) (context.Context, error)

	// Failed is called once, when the store has failed permanently.
	Failed func(error)
}

// Face is the scheduler API of a queue, an [http.Handler].
type Face struct {
	*httpx.API

	engine   engine.API
	options  Options
	policy   gq.Policy // for jobs submitted here
	capacity int64     // as configured

	addons sync.Map // queues known to share the pool
	setup  sync.Mutex
	ready  bool // the pool exists; guarded by setup
}

// Numbers of the specification that cannot be configured, and the default capacity.
const (
	DefaultCapacity = 70               // cost units that all running jobs may occupy
	denialRetry     = 10 * time.Second // when to ask again after a denied lease
	listLimit       = 50               // page size without a limit
	listLimitMax    = 200              // largest page
)

// New creates the face for a queue. It starts nothing.
func New(e engine.API, o Options) (*Face, error) {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	f := &Face{engine: e, options: o, policy: gq.PresetScheduler.Policy(), capacity: DefaultCapacity}
	if o.Capacity != nil {
		f.capacity = *o.Capacity
	}
	if o.ClaimHold != 0 {
		f.policy.Hold = o.ClaimHold
	}
	if o.LeaseTTL != 0 {
		f.policy.LeaseTTL = o.LeaseTTL
	}
	if o.Requeue {
		f.policy.OnLoss = gq.LossCounts
	}
	if err := errors.Join(machine.CheckPolicy(f.policy), machine.CheckPool(f.pool())); err != nil {
		return nil, fmt.Errorf("new scheduler API: %w", err)
	}
	f.API = f.api()
	return f, nil
}

func (f *Face) pool() gq.Pool {
	return gq.Pool{Name: Pool, Capacity: f.capacity, AtStart: true}
}

// Setup creates the shared pool with the configured capacity. If it was not called, the
// first request does it.
func (f *Face) Setup(ctx context.Context) error {
	f.setup.Lock()
	defer f.setup.Unlock()
	if f.ready {
		return nil
	}
	if err := f.engine.ConfigurePool(ctx, f.pool()); err != nil {
		return fmt.Errorf("set up the scheduler API: %w", err)
	}
	f.ready = true
	return nil
}

// Run takes samples for the time series until the context ends, and then returns nil. It
// logs errors and continues.
func (f *Face) Run(ctx context.Context) error {
	tick := time.NewTicker(engine.SampleEvery)
	defer tick.Stop()
	for {
		err := f.Setup(ctx)
		if err == nil {
			err = f.engine.Sample(ctx, Pool)
		}
		if err != nil && ctx.Err() == nil {
			level := slog.LevelWarn
			if errors.Is(err, gq.ErrDiskFull) { // the store says so itself, once a minute
				level = slog.LevelDebug
			}
			f.options.Log.Log(ctx, level, "sample the scheduler's pool", "error", err)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
	}
}

// addon adds a queue to the shared pool, unless an operator has put it into another one.
func (f *Face) addon(ctx context.Context, name string) error {
	if _, known := f.addons.Load(name); known {
		return nil
	}
	if err := f.Setup(ctx); err != nil {
		return err
	}
	q, err := f.engine.Queue(ctx, name)
	unknown := errors.Is(err, gq.ErrNotFound)
	if err != nil && !unknown {
		return err
	}
	if q.Pool == "" {
		_, err = f.engine.ChangeQueue(ctx, name, func(q *gq.Queue) {
			if unknown {
				q.Policy = f.policy
			}
			if q.Pool == "" {
				q.Pool = Pool
			}
		})
		if err != nil {
			return err
		}
	}
	f.addons.Store(name, true)
	return nil
}

// judged records an expired lease of a held job before the job is shown.
func (f *Face) judged(ctx context.Context, job *gq.Job) error {
	if !job.State.Status.Held() {
		return nil
	}
	state, err := f.engine.Advance(ctx, job.State.ID)
	if err == nil {
		job.State = state
	}
	return err
}
