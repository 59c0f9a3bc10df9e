package bench

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/engine"
	"github.com/gopherqueue/gq/store"
)

// plain returns callers that cycle through one queue.
func (r *scaleRun) plain(s store.Store) load {
	l := load{times: new(calls)}
	l.work = func() func(context.Context, int) error {
		return newCaller(s, l.times, plainJob(), r.Payload, r.Batch).cycle
	}
	return l
}

func loadBacklog(ctx context.Context, r *scaleRun, s store.Store, size int) (load, error) {
	l := r.plain(s)
	l.claimable = int64(size)
	_, err := fill(ctx, s, plainJob(), r.Payload, size)
	return l, err
}

// copied is the longest history that is made by running jobs, if the place can multiply it.
const copied = 1_000_000

// loadHistory completes jobs as fast as the store allows, and copies them if they are many. The measurement adds to the
// history too. It is as long as at other sizes, though, or small sizes would end before the
// store has to flush and compact anything.
func loadHistory(ctx context.Context, r *scaleRun, s store.Store, size int) (load, error) {
	l := r.plain(s)
	l.completed = int64(size)
	m, ok := r.place.(Multiplier)
	if !ok || size <= copied {
		return l, r.complete(ctx, s, size)
	}
	factor := size / copied
	if err := r.complete(ctx, s, size/factor); err != nil {
		return l, err
	}
	if err := m.Multiply(ctx, stepName(AxisHistory, size), factor); err != nil {
		return l, fmt.Errorf("copy finished jobs: %w", err)
	}
	return l, r.complete(ctx, s, size%factor)
}

// complete submits, claims and completes jobs.
func (r *scaleRun) complete(ctx context.Context, s store.Store, jobs int) error {
	if jobs == 0 {
		return nil
	}
	q := newQuota(jobs, 0, nil)
	_, err := together(ctx, fillCallers, func() {}, func() func(context.Context) error {
		c := newCaller(s, new(calls), plainJob(), r.Payload, fillBatch)
		return func(ctx context.Context) error {
			for k := q.take(fillBatch); k > 0; k = q.take(fillBatch) {
				if err := c.cycle(ctx, k); err != nil {
					return err
				}
			}
			return nil
		}
	})
	return err
}

// fillEach submits size jobs, after change has made each its own.
func (r *scaleRun) fillEach(ctx context.Context, s store.Store, size int, change func(spec *gq.Spec, i int)) error {
	q := newQuota(size, 0, nil)
	var mu sync.Mutex
	next := 0 // guarded by mu
	_, err := together(ctx, fillCallers, func() {}, func() func(context.Context) error {
		c := newCaller(s, new(calls), plainJob(), r.Payload, fillBatch)
		return func(ctx context.Context) error {
			for k := q.take(fillBatch); k > 0; k = q.take(fillBatch) {
				mu.Lock()
				first := next
				next += k
				mu.Unlock()
				for i := range k {
					change(&c.specs[i], first+i)
				}
				if err := c.enqueue(ctx, k); err != nil {
					return err
				}
			}
			return nil
		}
	})
	return err
}

func scaleQueue(i int) string { return queueName + "-" + strconv.Itoa(i) }

// loadQueues puts a job into each of many queues. Every call is about one of them.
func loadQueues(ctx context.Context, r *scaleRun, s store.Store, size int) (load, error) {
	l := load{times: new(calls), claimable: int64(size)}
	err := r.fillEach(ctx, s, size, func(spec *gq.Spec, i int) { spec.Queue = scaleQueue(i) })
	l.work = func() func(context.Context, int) error {
		c := newCaller(s, l.times, plainJob(), r.Payload, r.Batch)
		return func(ctx context.Context, n int) error {
			queue := scaleQueue(rand.IntN(size))
			for i := range n {
				c.specs[i].Queue = queue
			}
			c.claims[0].Filter.Queues[0] = queue
			return c.cycle(ctx, n)
		}
	}
	return l, err
}

// loadKeys puts a job of each of many limit keys into one queue that limits them. The
// limit is above what the callers can hold, so that it is checked but never reached.
func loadKeys(ctx context.Context, r *scaleRun, s store.Store, size int) (load, error) {
	l := load{times: new(calls), claimable: int64(size)}
	err := s.PutQueue(ctx, gq.Queue{Name: queueName, Policy: plainJob().Policy, KeyLimit: 10 * r.Callers * r.Batch})
	if err == nil {
		err = r.fillEach(ctx, s, size, func(spec *gq.Spec, i int) { spec.LimitKey = strconv.Itoa(i) })
	}
	l.work = func() func(context.Context, int) error {
		c := newCaller(s, l.times, plainJob(), r.Payload, r.Batch)
		return func(ctx context.Context, n int) error {
			for i := range n {
				c.specs[i].LimitKey = strconv.Itoa(rand.IntN(size))
			}
			return c.cycle(ctx, n)
		}
	}
	return l, err
}

// withEngine starts an engine on a store. It ends with the load.
func withEngine(ctx context.Context, s store.Store) (e *engine.Engine, wg *sync.WaitGroup, running context.Context, stop func() error, err error) {
	if e, err = engine.New(s, engine.Options{}); err != nil {
		return nil, nil, nil, nil, err
	}
	running, cancel := context.WithCancel(ctx)
	wg = new(sync.WaitGroup)
	var ran error
	wg.Go(func() { ran = e.Run(running) })
	return e, wg, running, func() error {
		cancel()
		wg.Wait()
		return ran
	}, nil
}

// scaleWait is how long a waiting claim waits before it asks again.
const scaleWait = time.Minute

// loadWorkers lets many workers wait for single jobs. The callers submit batches and wait
// until as many jobs have been completed.
func loadWorkers(ctx context.Context, r *scaleRun, s store.Store, size int) (load, error) {
	e, wg, running, stop, err := withEngine(ctx, s)
	if err != nil {
		return load{}, err
	}
	l := load{times: new(calls)}
	completed := make(chan error, r.Callers*r.Batch)
	tell := func(err error) {
		select {
		case completed <- err:
		case <-running.Done():
		}
	}
	for i := range size {
		claim := gq.ClaimRequest{Worker: "bench-" + strconv.Itoa(i), Queues: []string{queueName}, N: 1, Wait: scaleWait}
		wg.Go(func() {
			for running.Err() == nil {
				jobs, err := e.Claim(running, claim)
				for i := range jobs {
					_, failed := e.Complete(running, jobs[i].State.Lease.Ref(), nil)
					tell(failed)
				}
				if err != nil && running.Err() == nil {
					tell(err)
					return
				}
			}
		})
	}
	l.stop = stop
	l.work = func() func(context.Context, int) error {
		specs := make([]gq.Spec, r.Batch)
		for i := range specs {
			specs[i] = plainJob()
			specs[i].Payload.Data = make([]byte, r.Payload)
		}
		return func(ctx context.Context, n int) error {
			answers, err := e.SubmitBatch(ctx, specs[:n])
			for i := range answers {
				err = errors.Join(err, answers[i].Err)
			}
			for range n {
				if err != nil {
					return err
				}
				select {
				case err = <-completed:
				case <-ctx.Done():
					return context.Cause(ctx)
				}
			}
			return err
		}
	}
	return l, nil
}

// loadGraph submits graphs in which one job waits for size others, as many as fit a batch
// and at least one, and works off those of its own queue.
func loadGraph(ctx context.Context, r *scaleRun, s store.Store, size int) (load, error) {
	e, _, _, stop, err := withEngine(ctx, s)
	if err != nil {
		return load{}, err
	}
	l := load{times: new(calls), stop: stop}
	var mu sync.Mutex
	callers := 0 // guarded by mu
	l.work = func() func(context.Context, int) error {
		mu.Lock()
		queue := scaleQueue(callers)
		callers++
		mu.Unlock()
		return func(ctx context.Context, n int) error { return r.graphs(ctx, e, l.times, queue, size, n) }
	}
	l.unit = max(r.Batch/(size+1), 1) * (size + 1)
	return l, nil
}

// graphs passes n jobs through the queue, in graphs of the given width. n is a multiple of
// their size.
func (r *scaleRun) graphs(ctx context.Context, e *engine.Engine, times *calls, queue string, width, n int) error {
	drafts := make([]gq.GraphJob, 0, n)
	for g := 0; g < n; g += width + 1 {
		last := gq.GraphJob{Spec: plainJob(), Ref: fmt.Sprint(g)}
		for i := 1; i <= width; i++ {
			ref := fmt.Sprint(g + i)
			drafts = append(drafts, gq.GraphJob{Spec: plainJob(), Ref: ref})
			last.Needs = append(last.Needs, gq.Dependency{Kind: gq.DependencyFanIn, Ref: ref})
		}
		drafts = append(drafts, last)
	}
	for i := range drafts {
		drafts[i].Spec.Queue = queue
		drafts[i].Spec.Payload.Data = make([]byte, r.Payload)
	}
	if _, err := e.SubmitGraph(ctx, drafts); err != nil {
		return err
	}
	claim := gq.ClaimRequest{Worker: queue, Queues: []string{queue}, N: r.Batch, Wait: scaleWait}
	for done := 0; done < n; {
		start := time.Now()
		jobs, err := e.Claim(ctx, claim)
		times.claim.add(time.Since(start))
		if err != nil {
			return err
		}
		outcomes := make([]gq.Outcome, len(jobs))
		for i := range jobs {
			outcomes[i] = gq.Outcome{Lease: jobs[i].State.Lease.Ref(), Verdict: gq.VerdictComplete}
		}
		answers, err := e.Settle(ctx, outcomes)
		for i := range answers {
			err = errors.Join(err, answers[i].Err)
		}
		if err != nil {
			return err
		}
		done += len(jobs)
	}
	return nil
}
