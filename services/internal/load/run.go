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
	"github.com/gopherqueue/gq/internal/taskwork"
	"github.com/gopherqueue/gq/services/internal/rpc"
)

// run is one measurement.
type run struct {
	Settings
	client *client
	jobs   *tracker
	output string // expected of every job

	begin, start, end time.Time // of the warm-up, of the measurement, of both
	arrival           atomic.Int64
	heldBack          atomic.Int64

	mu         sync.Mutex
	violations int               // guarded by mu
	examples   []string          // guarded by mu
	errors     map[string]int    // guarded by mu
	messages   map[string]string // guarded by mu
}

// Run measures. It returns an error if it could not measure or was interrupted; wrong
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
	r := &run{Settings: s, client: c, errors: make(map[string]int), messages: make(map[string]string)}
	if s.Payload <= taskwork.MaxOutputBytes {
		r.output = string(taskwork.Output(jobType, s.Payload))
	}
	r.begin = time.Now()
	r.start = r.begin.Add(s.Warmup)
	r.end = r.start.Add(s.Duration)
	r.jobs = newTracker(s.MaxTracked, r.start, r.end)

	report := &Report{Settings: s, StartedAt: r.start, Seconds: s.Duration.Seconds()}
	r.load(ctx, report)
	begin := time.Now()
	r.drain(ctx, begin)
	report.DrainSeconds = time.Since(begin).Seconds()
	r.jobs.censor(time.Now())
	r.cancelRest(ctx)
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	report.Jobs, report.JobSamples = r.jobs.report, r.jobs.samples
	report.Jobs.Unfinished = r.jobs.left()
	report.Jobs.HeldBack = int(r.heldBack.Load())
	report.Violations, report.Examples, report.Errors, report.ErrorExamples = r.violations, r.examples, r.errors, r.messages
	report.summarise()
	return report, nil
}

// inWindow reports whether a request due at that time is measured.
func (r *run) inWindow(due time.Time) bool { return !due.Before(r.start) && due.Before(r.end) }

// load makes requests until the end and reports those of the measured time.
func (r *run) load(ctx context.Context, report *Report) {
	ctx, cancel := context.WithDeadline(ctx, r.end.Add(overrun))
	defer cancel()
	var clients sync.WaitGroup
	each := make([]sender, r.Concurrency)
	for i := range each {
		each[i] = sender{run: r, random: rand.New(rand.NewPCG(r.Seed, uint64(i)))}
		clients.Go(func() { each[i].loop(ctx) })
	}
	clients.Wait()
	for _, s := range each {
		report.Samples = append(report.Samples, s.samples...)
		for m := range methods {
			report.answered[m] += s.answered[m]
		}
		report.Truncated = report.Truncated || s.truncated
	}
	slices.SortFunc(report.Samples, func(a, b Sample) int { return int(int64(a.Start) - int64(b.Start)) })
	r.countUnsent(report)
}

// countUnsent counts the requests of an open loop that were due in the measured time
// but never sent. It divides them according to the mix.
func (r *run) countUnsent(report *Report) {
	if r.Rate <= 0 || report.Truncated {
		return
	}
	before := func(t time.Time) int64 { // arrivals due before t
		n := int64(t.Sub(r.begin).Seconds() * r.Rate)
		for r.due(n).Before(t) {
			n++
		}
		for n > 0 && !r.due(n-1).Before(t) {
			n--
		}
		return n
	}
	missing := max(0, int(before(r.end)-before(r.start))-len(report.Samples))
	random := rand.New(rand.NewPCG(r.Seed, uint64(r.Concurrency)))
	for range missing {
		report.unsent[r.Mix.pick(random.Float64())]++
	}
}

// due returns when an arrival of an open loop is due.
func (r *run) due(arrival int64) time.Time {
	return r.begin.Add(time.Duration(float64(arrival) / r.Rate * float64(time.Second)))
}

// overrun is how long an open loop continues with overdue requests: a service that fell
// behind must show as latency, not as missing requests.
const overrun = 10 * time.Second

// sender is one client.
type sender struct {
	*run
	random    *rand.Rand
	samples   []Sample     // of requests due in the measured time
	answered  [methods]int // without error within the measured time
	truncated bool
}

// loop makes the next request after the answer to the last one, or in an open loop the
// next one that is due.
func (s *sender) loop(ctx context.Context) {
	most := maxSamples / s.Concurrency
	for ctx.Err() == nil {
		due := time.Now()
		if s.Rate > 0 {
			due = s.due(s.arrival.Add(1) - 1)
			if due.Before(s.end) && !rpc.Wait(ctx, time.Until(due)) {
				return
			}
		}
		if !due.Before(s.end) {
			return
		}
		method, err := s.perform(ctx, s.Mix.pick(s.random.Float64()), due)
		now := time.Now()
		if err == nil && !now.Before(s.start) && !now.After(s.end) {
			s.answered[method]++
		}
		if s.inWindow(due) && len(s.samples) < most {
			s.samples = append(s.samples, Sample{uint32(due.Sub(s.start).Microseconds()), uint32(now.Sub(due).Microseconds()), method, status.Code(err)})
		} else if s.inWindow(due) {
			s.truncated = true
		}
		if err != nil {
			s.failed(err)
		}
		if err != nil && status.Code(err) != codes.NotFound {
			rpc.Wait(ctx, rpc.RetryDelay(1, s.random.Float64())) // back off after an error
		}
	}
}

// failed records an error.
func (r *run) failed(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	name := rpc.CodeName(status.Code(err))
	r.errors[name]++
	if _, ok := r.messages[name]; !ok {
		r.messages[name] = status.Convert(err).Message()
	}
}

// patience is how long jobs that run at the end of the drain may take in addition to
// their work: more than a busy machine needs.
const patience = 2 * time.Minute

// drain follows all accepted jobs to their end, for up to Drain.
func (r *run) drain(ctx context.Context, begin time.Time) {
	ctx, cancel := context.WithDeadline(ctx, begin.Add(r.Drain))
	defer cancel()
	r.followAll(ctx, false)
}

// cancelRest cancels the jobs that still wait after Drain, and follows these and the
// running ones to the end, so that this measurement does not disturb the next.
func (r *run) cancelRest(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, r.Work+patience)
	defer cancel()
	r.followAll(ctx, true)
}

// followers is how many clients follow jobs after the load. They are few, and pause
// after each job that has not ended, so that they do not slow down the work.
const followers = 8

func (r *run) followAll(ctx context.Context, cancel bool) {
	var clients sync.WaitGroup
	for range followers {
		clients.Go(func() {
			for ctx.Err() == nil && r.jobs.left() > 0 {
				r.follow(ctx, cancel)
			}
		})
	}
	clients.Wait()
}

// follow makes the next call about one job.
func (r *run) follow(ctx context.Context, cancel bool) {
	m, j := r.jobs.takeAny()
	if j == nil { // other followers have the rest
		rpc.Wait(ctx, 5*time.Millisecond)
		return
	}
	if cancel && j.status < publicpb.JobStatus_RUNNING {
		r.cancel(ctx, j)
	}
	err := r.query(ctx, m, j)
	open := j.status <= publicpb.JobStatus_RUNNING
	r.jobs.put(j, err)
	if err != nil || open {
		rpc.Wait(ctx, 5*time.Millisecond)
	}
}

func (r *run) cancel(ctx context.Context, j *job) {
	r.jobs.canceled(j)
	answer, err := r.client.owner(j.id).CancelJob(ctx, &publicpb.CancelJobRequest{JobId: j.id, Reason: "the measurement is over"})
	if err != nil {
		return // the next round tries again
	}
	if !answer.GetAccepted() || answer.GetJobId() != j.id {
		r.violation("cancel of %s answered %v", j.id, answer)
	}
	j.status = max(j.status, answer.GetCurrentStatus())
}
