// Package scheduler is the scheduler API: jobs that workers claim, prepare, ask
// capacity for and run under leases, over HTTP below /api/scheduler.
//
// It translates. An addon is a queue; a claim is a claim with a hold; a lease is
// the same lease once the job has started; capacity is a pool that all addons
// share, occupied from the start of a job on. What a job may do next, who holds
// it and whether there is room is decided by the engine and its store, in the
// commit that it is about.
//
// # Time
//
// What has expired has expired for every reader, whether or not a sweep has run:
// a read that could show a job in the hands of a lost holder records the loss
// first.
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

// Base is where the API begins.
const Base = "/api/scheduler"

// Pool is the pool whose capacity the addons share.
const Pool = "scheduler"

// Options are what the face can be told. The zero value is the default.
type Options struct {
	Log           *slog.Logger  // nil is silence
	Version       string        // of the program, for the API's description
	Capacity      *int64        // cost units that running jobs may occupy together; nil is 70
	ClaimHold     time.Duration // how long a claim without a lease keeps its job; 0 is 60 s
	LeaseTTL      time.Duration // of a lease that asks for none; 0 is 30 s
	Requeue       bool          // a job whose lease ran out is queued again; otherwise it ends as TIMEOUT
	NoIdempotency bool          // a repeated client_request_id is a new job
	MaxBody       int64         // largest body in bytes; 0 is 16 MiB
	BodyTimeout   time.Duration // in which a body must have come; 0 is 30 s

	// Identify finds out who calls and puts that into the context of the request.
	// nil asks nobody.
	Identify func(*http.Request) (context.Context, error)

	// Failed is told once that the store has failed for good.
	Failed func(error)
}

// Face is the scheduler API over a queue. It is an [http.Handler].
type Face struct {
	*httpx.API

	engine   engine.API
	options  Options
	policy   gq.Policy // of the jobs that are submitted here
	capacity int64     // as configured

	addons sync.Map // queues that are known to share the pool
	setup  sync.Mutex
	ready  bool // the pool is there; guarded by setup
}

// The numbers of the document that no configuration changes, and its default
// capacity.
const (
	DefaultCapacity = 70               // cost units that running jobs may occupy together
	denialRetry     = 10 * time.Second // after a denied lease, ask again in this long
	listLimit       = 50               // jobs on a page that names no limit
	listLimitMax    = 200              // jobs on a page at most
)

// New makes the face over a queue. It starts nothing.
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

// Setup makes the pool whose capacity the addons share, as configured. Requests
// see to it themselves where nobody called it.
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

// Run keeps samples for time series until the context ends, which is a clean
// stop. It goes on through errors.
func (f *Face) Run(ctx context.Context) error {
	tick := time.NewTicker(engine.SampleEvery)
	defer tick.Stop()
	for {
		err := f.Setup(ctx)
		if err == nil {
			err = f.engine.Sample(ctx, Pool)
		}
		if err != nil && ctx.Err() == nil {
			f.options.Log.Warn("sample the scheduler's pool", "error", err)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
	}
}

// addon sees to it that a queue shares the pool. One that an operator has put
// into another pool stays there.
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

// judged lets time do its work on a job that someone holds, before it is shown.
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
