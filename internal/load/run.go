package load

import (
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	publicpb "github.com/gopherqueue/gq/api/taskqueue/v1"
	"github.com/gopherqueue/gq/internal/rpc"
	"github.com/gopherqueue/gq/internal/taskwork"
)

// run is one measurement.
type run struct {
	Settings
	client *client
	jobs   *tracker
	output string // of every job

	begin, start, end time.Time // of the warm-up, of the measurement, of both
	arrival           atomic.Int64

	mu         sync.Mutex
	violations int      // guarded by mu
	examples   []string // guarded by mu
}

// Run measures. It returns an error if it could not, or was interrupted; wrong
// answers are in the report.
func Run(ctx context.Context, s Settings) (*Report, error) {
	if err := s.Validate(); err != nil {
		return nil, err
	}
	c, err := dial(s)
	if err != nil {
		return nil, err
	}
	defer c.close()
	r := &run{Settings: s, client: c}
	if s.Payload <= taskwork.MaxOutputBytes {
		r.output = string(taskwork.Output(jobType, s.Payload))
	}
	r.begin = time.Now()
	r.start = r.begin.Add(s.Warmup)
	r.end = r.start.Add(s.Duration)
	r.jobs = newTracker(s.MaxTracked, func(j *job) bool {
		return j.finished >= r.start.UnixMilli() && j.finished <= r.end.UnixMilli()
	})

	samples := r.load(ctx)
	r.drain(ctx)
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	report := &Report{
		Settings: s, StartedAt: r.start, Seconds: s.Duration.Seconds(), Jobs: r.jobs.report,
		Violations: r.violations, Examples: r.examples, Truncated: len(samples) >= maxSamples,
		Samples: samples, JobSamples: r.jobs.samples,
	}
	report.Jobs.Unfinished = r.jobs.left()
	report.summarise()
	return report, nil
}

// load makes requests until the end and returns those of the measured time.
func (r *run) load(ctx context.Context) (all []Sample) {
	ctx, cancel := context.WithDeadline(ctx, r.end.Add(overrun))
	defer cancel()
	var clients sync.WaitGroup
	each := make([][]Sample, r.Concurrency)
	for i := range r.Concurrency {
		random := rand.New(rand.NewPCG(r.Seed, uint64(i)))
		clients.Go(func() { each[i] = r.loop(ctx, random) })
	}
	clients.Wait()
	all = slices.Concat(each...)
	slices.SortFunc(all, func(a, b Sample) int { return int(int64(a.Start) - int64(b.Start)) })
	return all
}

// overrun is how long an open loop may go on with requests that were due: a
// service that fell behind shows as latency, not as requests that were not made.
const overrun = 10 * time.Second

// loop is one client: the next request follows the answer to the last one, or in
// an open loop is the next one that is due.
func (r *run) loop(ctx context.Context, random *rand.Rand) (samples []Sample) {
	most := maxSamples / r.Concurrency
	for ctx.Err() == nil {
		due := time.Now()
		if r.Rate > 0 {
			due = r.begin.Add(time.Duration(float64(r.arrival.Add(1)-1) / r.Rate * float64(time.Second)))
			if due.Before(r.end) && !rpc.Wait(ctx, time.Until(due)) {
				return samples
			}
		}
		if !due.Before(r.end) {
			return samples
		}
		method, err := r.perform(ctx, r.Mix.pick(random.Float64()))
		took := time.Since(due)
		if !due.Before(r.start) && len(samples) < most {
			samples = append(samples, Sample{uint32(due.Sub(r.start).Microseconds()), uint32(took.Microseconds()), method, status.Code(err)})
		}
		if err != nil && status.Code(err) != codes.NotFound {
			rpc.Wait(ctx, rpc.RetryDelay(1, random.Float64())) // a client in trouble does not hammer
		}
	}
	return samples
}

// patience is how long the jobs that run when the load ends may take beyond
// their work: more than a machine that is busy with other things needs.
const patience = 2 * time.Minute

// drain follows all accepted jobs to their end. What still waits when Drain is
// over is canceled, so that a long backlog does not have to be worked off.
func (r *run) drain(ctx context.Context) {
	begin := time.Now()
	ctx, cancel := context.WithDeadline(ctx, begin.Add(r.Drain+r.Work+patience))
	defer cancel()
	var clients sync.WaitGroup
	for range min(r.Concurrency, 32) {
		clients.Go(func() {
			for ctx.Err() == nil && r.jobs.left() > 0 {
				r.follow(ctx, time.Since(begin) > r.Drain)
			}
		})
	}
	clients.Wait()
}

// follow takes one job a step further.
func (r *run) follow(ctx context.Context, cancel bool) {
	for _, m := range []Method{Result, Status} {
		j := r.jobs.take(m)
		if j == nil {
			continue
		}
		before := j.status
		if cancel && before < publicpb.JobStatus_RUNNING {
			r.cancel(ctx, j)
		}
		err := r.ask(ctx, m, j)
		if err != nil || before == publicpb.JobStatus_RUNNING {
			rpc.Wait(ctx, 5*time.Millisecond)
		}
		return
	}
	rpc.Wait(ctx, 5*time.Millisecond) // others have all that is left
}

func (r *run) cancel(ctx context.Context, j *job) {
	answer, err := r.client.owner(j.id).CancelJob(ctx, &publicpb.CancelJobRequest{JobId: j.id, Reason: "the measurement is over"})
	if err != nil {
		return // the next round tries again
	}
	if !answer.GetAccepted() || answer.GetJobId() != j.id {
		r.violation("cancel of %s answered %v", j.id, answer)
	}
	j.status = max(j.status, answer.GetCurrentStatus())
}
