package bench

import (
	"context"
	crand "crypto/rand"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/machine"
	"github.com/gopherqueue/gq/store"
)

// queueName is the queue that all callers share.
const queueName = "bench"

// errWrong means that a store violated its contract.
var errWrong = errors.New("the store broke its contract")

// calls has the latencies of a row.
type calls struct{ enqueue, claim, complete histogram }

// caller makes calls one after the other and times them. It allocates its buffers once,
// so that most garbage is the store's.
type caller struct {
	store   store.Store
	times   *calls
	random  *rand.ChaCha8
	specs   []gq.Spec
	groups  []store.Group
	claims  [1]store.Claim
	updates []store.Update
}

// newCaller creates a caller that handles up to batch jobs at a time. Jobs follow the
// template, each with its own id and an incompressible random payload.
func newCaller(s store.Store, times *calls, template gq.Spec, payload, batch int) *caller {
	c := &caller{
		store: s, times: times, random: newRandom(),
		specs: make([]gq.Spec, batch), groups: make([]store.Group, batch), updates: make([]store.Update, batch),
	}
	data := make([]byte, batch*payload)
	for i := range c.specs {
		c.specs[i] = template
		c.specs[i].Payload.Data = data[i*payload : (i+1)*payload : (i+1)*payload]
		c.groups[i] = store.Group{Jobs: c.specs[i : i+1 : i+1], Mint: true} // as the engine submits them
	}
	c.claims[0] = store.Claim{Filter: store.Filter{Queues: []string{queueName}}, Worker: "bench", Parts: gq.WithPayload}
	return c
}

func newRandom() *rand.ChaCha8 {
	var seed [32]byte
	crand.Read(seed[:]) // never fails
	return rand.NewChaCha8(seed)
}

// plainJob returns the job that most scenarios submit.
func plainJob() gq.Spec {
	return gq.Spec{Queue: queueName, Type: "bench", Payload: gq.Payload{Data: []byte{}, ContentType: gq.OctetStream}}.WithDefaults()
}

// enqueue submits n independent jobs in one call.
func (c *caller) enqueue(ctx context.Context, n int) error {
	for i := range n {
		var id [16]byte
		c.fill(id[:])
		c.specs[i].ID = machine.NewJobID(id)
		c.fill(c.specs[i].Payload.Data)
	}
	start := time.Now()
	answers, err := c.store.Insert(ctx, c.groups[:n])
	c.times.enqueue.add(time.Since(start))
	if err != nil {
		return err
	}
	if len(answers) != n {
		return fmt.Errorf("insert of %d jobs got %d answers: %w", n, len(answers), errWrong)
	}
	for i := range answers {
		if answers[i].Err != nil {
			return answers[i].Err
		}
	}
	return nil
}

func (c *caller) fill(b []byte) {
	c.random.Read(b) //nolint:errcheck // never fails
}

// claim claims exactly n jobs, which must be available. A store may return fewer and a time to
// look again, if another transaction has locked some for long: then it claims the rest.
func (c *caller) claim(ctx context.Context, n int) ([]gq.Job, error) {
	jobs, again, err := c.claimOnce(ctx, n)
	for err == nil && len(jobs) < n {
		if again.IsZero() {
			return nil, fmt.Errorf("claim of %d jobs got %d while so many were claimable: %w", n, len(jobs), errWrong)
		}
		time.Sleep(time.Millisecond)
		var more []gq.Job
		more, again, err = c.claimOnce(ctx, n-len(jobs))
		jobs = append(jobs, more...)
	}
	return jobs, err
}

func (c *caller) claimUpTo(ctx context.Context, n int) ([]gq.Job, error) {
	jobs, _, err := c.claimOnce(ctx, n)
	return jobs, err
}

// claimOnce claims up to n jobs and returns when to claim again, if the store told.
func (c *caller) claimOnce(ctx context.Context, n int) (jobs []gq.Job, again time.Time, err error) {
	c.claims[0].N = n
	start := time.Now()
	answers, err := c.store.Claim(ctx, c.claims[:])
	c.times.claim.add(time.Since(start))
	if err != nil {
		return nil, time.Time{}, err
	}
	if len(answers) != 1 || len(answers[0].Jobs) > n {
		return nil, time.Time{}, fmt.Errorf("claim of %d jobs got %d answers: %w", n, len(answers), errWrong)
	}
	return answers[0].Jobs, answers[0].RetryAt, answers[0].Err
}

// held is a claimed job.
type held struct {
	job   gq.JobID
	lease gq.LeaseRef
}

func hold(j *gq.Job) held { return held{j.State.ID, j.State.Lease.Ref()} }

// complete completes claimed jobs in one call.
func (c *caller) complete(ctx context.Context, jobs []gq.Job) error {
	for i := range jobs {
		c.updates[i] = hold(&jobs[i]).completion()
	}
	start := time.Now()
	answers, err := c.store.Update(ctx, c.updates[:len(jobs)])
	c.times.complete.add(time.Since(start))
	return checkCompleted(answers, err, len(jobs))
}

func (h held) completion() store.Update {
	return store.Update{
		Ref: store.Ref{Job: h.job},
		Apply: func(s gq.State, now time.Time) (gq.State, []gq.Event, error) {
			return machine.Complete(s, h.lease, nil, now)
		},
	}
}

func checkCompleted(answers []store.Updated, err error, n int) error {
	if err != nil {
		return err
	}
	if len(answers) != n {
		return fmt.Errorf("update of %d jobs got %d answers: %w", n, len(answers), errWrong)
	}
	for i := range answers {
		switch a := &answers[i]; {
		case a.Err != nil:
			return a.Err
		case !a.Changed || a.State.Status != gq.StatusCompleted:
			return fmt.Errorf("job %s is %s after it was completed: %w", a.State.ID, a.State.Status, errWrong)
		}
	}
	return nil
}

// cycle submits n jobs, claims any n jobs and completes them. No caller claims more than
// it has submitted, so there are always enough.
func (c *caller) cycle(ctx context.Context, n int) error {
	if err := c.enqueue(ctx, n); err != nil {
		return err
	}
	jobs, err := c.claim(ctx, n)
	if err != nil {
		return err
	}
	return c.complete(ctx, jobs)
}

// quota hands out the jobs of a row until none are left or the time is up. The first
// caller always gets some, however late: a row without jobs has no result.
type quota struct {
	left  atomic.Int64
	until time.Time   // zero is never
	begun atomic.Bool // somebody has called take
	stop  func() bool
}

// newQuota limits the number of jobs or, if that is 0, the duration.
func newQuota(jobs int, d time.Duration, stop func() bool) *quota {
	q := &quota{stop: stop}
	q.left.Store(int64(jobs))
	if jobs == 0 {
		q.left.Store(1 << 62)
		q.until = time.Now().Add(d)
	}
	return q
}

// take returns how many jobs to do next, at most n; 0 means stop.
func (q *quota) take(n int) int {
	if q.stop != nil && q.stop() || q.begun.Swap(true) && !q.until.IsZero() && time.Now().After(q.until) {
		return 0
	}
	left := q.left.Add(-int64(n)) + int64(n)
	return int(max(min(int64(n), left), 0))
}

// together runs n callers concurrently and returns how long all of them took. The first
// error stops the others. Each prepares itself before the clock starts, and begin is
// called right after the start.
func together(ctx context.Context, n int, begin func(), prepare func() func(context.Context) error) (time.Duration, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	runs := make([]func(context.Context) error, n)
	for i := range runs {
		runs[i] = prepare()
	}
	var wg sync.WaitGroup
	ready := make(chan struct{})
	for _, run := range runs {
		wg.Go(func() {
			<-ready
			if err := run(ctx); err != nil {
				cancel(err)
			}
		})
	}
	start := time.Now() // before begin, which may set the end
	begin()
	close(ready)
	wg.Wait()
	return time.Since(start), context.Cause(ctx)
}

// fillCallers and fillBatch are chosen to fill a store as fast as possible.
const (
	fillCallers = 8
	fillBatch   = 500
)

// fill submits n jobs that follow the template.
func fill(ctx context.Context, s store.Store, template gq.Spec, payload, n int) (time.Duration, error) {
	if n == 0 {
		return 0, nil
	}
	times, q := new(calls), newQuota(n, 0, nil)
	return together(ctx, fillCallers, func() {}, func() func(context.Context) error {
		c := newCaller(s, times, template, payload, fillBatch)
		return func(ctx context.Context) error {
			for k := q.take(fillBatch); k > 0; k = q.take(fillBatch) {
				if err := c.enqueue(ctx, k); err != nil {
					return err
				}
			}
			return nil
		}
	})
}

// verify checks that the store has exactly this many claimable and completed jobs, and
// none in any other state.
func verify(ctx context.Context, s store.Store, claimable, completed int64) error {
	counts, err := s.Counts(ctx)
	if err != nil {
		return err
	}
	var got gq.Count
	for _, c := range counts {
		for status, n := range c.By {
			got.By[status] += n
		}
	}
	want := gq.Count{}
	want.By[gq.StatusScheduled], want.By[gq.StatusCompleted] = claimable, completed
	for status := range got.By {
		if got.By[status] != want.By[status] {
			return fmt.Errorf("%d jobs are %s, want %d: %w", got.By[status], gq.Status(status), want.By[status], errWrong)
		}
	}
	return nil
}

// lastEvent returns the number of the newest event. In a store that numbers events
// without gaps, that is their count. It finds the end by binary search, with few reads.
func lastEvent(ctx context.Context, s store.Store) (uint64, error) {
	after := func(seq uint64) (bool, error) {
		events, err := s.Events(ctx, seq, 1)
		return len(events) > 0, err
	}
	low, high := uint64(0), uint64(1) // the last event is at least low and, after the loop, at most high
	for {
		more, err := after(high)
		if err != nil {
			return 0, err
		}
		if !more {
			break
		}
		low, high = high+1, high*2
	}
	for low < high {
		middle := low + (high-low)/2
		more, err := after(middle)
		if err != nil {
			return 0, err
		}
		if more {
			low = middle + 1
		} else {
			high = middle
		}
	}
	return low, nil
}
