package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync/atomic"
	"time"
)

// client is a queue with a worker, as the rows of the servers need it.
type client interface {
	// submit submits job i and returns when the side promises to keep it.
	submit(ctx context.Context, i int) error

	// work starts workers that call handle with the number of each job. They end with
	// close.
	work(ctx context.Context, handle func(i int)) error

	// left returns how many jobs the side does not yet know as done.
	left(ctx context.Context) (int, error)

	close() error
}

// batcher is a client that submits several jobs in one call.
type batcher interface {
	submitMany(ctx context.Context, from, count int) error
}

// clientSide is a side that is measured through a client.
type clientSide struct {
	title string
	bulk  bool // the client is a batcher
	open  func(ctx context.Context, t task) (client, error)
}

func (s clientSide) name() string        { return s.title }
func (s clientSide) can(row string) bool { return row != "bulk" || s.bulk }

func (s clientSide) run(ctx context.Context, t task) (out outcome, err error) {
	c, err := s.open(ctx, t)
	if err != nil {
		return out, err
	}
	defer func() { err = errors.Join(err, c.close()) }()
	defer t.end() // closing takes no part
	switch t.Row {
	case "bulk":
		t.begin()
		start := time.Now()
		n, err := t.fill(ctx, c, t.Seconds)
		return outcome{Jobs: n, Seconds: time.Since(start).Seconds()}, err
	case "single":
		return t.singles(func(i int) error { return c.submit(ctx, i) })
	case "drain":
		return t.drain(ctx, c)
	case "cycle":
		return t.cycle(ctx, c)
	case "half":
		return t.half(ctx, c)
	}
	return out, fmt.Errorf("row %q is unknown", t.Row)
}

// fill submits the jobs of a task, in batches if the client can. It stops after a number
// of seconds, unless that is 0, and returns how many jobs it has submitted.
func (t task) fill(ctx context.Context, c client, limit float64) (int, error) {
	end := time.Now().Add(seconds(limit))
	return t.submitAll(ctx, c, func(submitted int) bool {
		return submitted < t.Jobs && (limit == 0 || time.Now().Before(end))
	})
}

// submitAll submits jobs, in batches if the client can, for as long as more says so.
func (t task) submitAll(ctx context.Context, c client, more func(submitted int) bool) (int, error) {
	callers, step, submit := t.Callers, 1, func(from, _ int) error { return c.submit(ctx, from) }
	if b, ok := c.(batcher); ok {
		callers, step, submit = t.Inserters, t.Batch, func(from, count int) error { return b.submitMany(ctx, from, count) }
	}
	var next, done atomic.Int64
	err := together(callers, func(int) error {
		for {
			from := int(next.Add(int64(step))) - step
			if !more(from) {
				return nil
			}
			count := step
			if t.Jobs > 0 {
				count = min(step, t.Jobs-from)
			}
			if err := submit(from, count); err != nil {
				return err
			}
			done.Add(int64(count))
		}
	})
	return int(done.Load()), err
}

// settled polls until a client has no jobs left or the time is over, and returns how many
// are left.
func settled(ctx context.Context, c client, end time.Time) (int, error) {
	for {
		n, err := c.left(ctx)
		if err != nil || n == 0 || time.Now().After(end) {
			return n, err
		}
		time.Sleep(2 * time.Millisecond)
	}
}

// drain fills a queue and measures until everything in it is done, or for a while.
func (t task) drain(ctx context.Context, c client) (out outcome, err error) {
	n, err := t.fill(ctx, c, t.Fill)
	if err != nil {
		return out, err
	}
	time.Sleep(300 * time.Millisecond)
	var ran atomic.Int64
	all := make(chan struct{})
	t.begin()
	start := time.Now()
	end := start.Add(seconds(t.Seconds))
	err = c.work(ctx, func(int) {
		if ran.Add(1) == int64(n) {
			close(all)
		}
	})
	if err != nil {
		return out, err
	}
	select {
	case <-all:
	case <-time.After(time.Until(end)):
	case <-ctx.Done():
		return out, context.Cause(ctx)
	}
	left, err := settled(ctx, c, end)
	out = outcome{Jobs: n - left, Seconds: time.Since(start).Seconds()}
	t.end()
	return out, err
}

const (
	warmUp  = 300 * time.Millisecond // for workers to connect
	stalled = 20 * time.Second       // jobs that take longer are lost
)

// cycle submits jobs while workers run them, at most a window ahead of them, and measures
// until everything is done.
func (t task) cycle(ctx context.Context, c client) (out outcome, err error) {
	var ran atomic.Int64
	if err := c.work(ctx, func(int) { ran.Add(1) }); err != nil {
		return out, err
	}
	time.Sleep(warmUp)
	t.begin()
	start := time.Now()
	end := start.Add(seconds(t.Seconds))
	n, err := t.submitAll(ctx, c, func(from int) bool {
		for int64(from)-ran.Load() > int64(t.Window) && time.Now().Before(end) {
			time.Sleep(200 * time.Microsecond)
		}
		return time.Now().Before(end)
	})
	if err != nil {
		return out, err
	}
	for limit := time.Now().Add(stalled); ran.Load() < int64(n); time.Sleep(200 * time.Microsecond) {
		if time.Now().After(limit) {
			return out, fmt.Errorf("%d of %d jobs were run", ran.Load(), n)
		}
	}
	left, err := settled(ctx, c, time.Now().Add(stalled))
	out = outcome{Jobs: n, Seconds: time.Since(start).Seconds()}
	t.end()
	if err == nil && left > 0 {
		err = fmt.Errorf("%d of %d jobs are not done", left, n)
	}
	return out, err
}

// pace is the time between two calls of a paced submission.
const pace = 2 * time.Millisecond

// half submits jobs at a rate, whatever the answers, and measures how long after the time
// at which its call was due each job starts. The first fifth does not count.
func (t task) half(ctx context.Context, c client) (out outcome, err error) {
	total := int(float64(t.Rate) * t.Seconds)
	due := make([]atomic.Int64, total) // nanoseconds after the start; 0 after the job has started
	var ran atomic.Int64
	var took times
	var start time.Time
	all := make(chan struct{})
	err = c.work(ctx, func(i int) {
		at := due[i].Swap(0)
		if at == 0 {
			return // a second delivery
		}
		if i >= total/5 {
			took.add(time.Since(start) - time.Duration(at))
		}
		if ran.Add(1) == int64(total) {
			close(all)
		}
	})
	if err != nil {
		return out, err
	}
	time.Sleep(warmUp)
	t.begin()
	start = time.Now()
	sent := make(chan error, 1)
	go func() { sent <- t.paced(ctx, c, start, due) }()
	select {
	case <-all:
	case <-time.After(seconds(t.Seconds) + stalled):
		err = fmt.Errorf("%d of %d jobs have started", ran.Load(), total)
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	elapsed := time.Since(start)
	t.end()
	if err = errors.Join(err, <-sent); err != nil {
		return out, err
	}
	durations := took.cut()
	return outcome{Jobs: total, Seconds: elapsed.Seconds(), P50: percentile(durations, 0.50), P99: percentile(durations, 0.99)}, nil
}

// paced makes the calls of half and waits for their answers.
func (t task) paced(ctx context.Context, c client, start time.Time, due []atomic.Int64) error {
	type call struct{ from, count int }
	calls := make(chan call, len(due)) // never full
	step := 1
	if _, ok := c.(batcher); ok {
		step = t.Batch
	}
	go func() {
		defer close(calls)
		for from, k := 0, 1; from < len(due); k++ {
			at := time.Duration(k) * pace
			time.Sleep(time.Until(start.Add(at)))
			to := min(int(at.Seconds()*float64(t.Rate)), len(due))
			for i := from; i < to; i++ {
				due[i].Store(int64(at))
			}
			for from < to {
				count := min(step, to-from)
				calls <- call{from, count}
				from += count
			}
		}
	}()
	return together(t.Callers, func(int) error {
		for next := range calls {
			var err error
			if b, ok := c.(batcher); ok {
				err = b.submitMany(ctx, next.from, next.count)
			} else {
				err = c.submit(ctx, next.from)
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
}

// payload and number are what every job carries.
func payload(i int) []byte { return fmt.Appendf(nil, `{"n":%d}`, i) }

func number(data []byte) (int, error) {
	var p struct{ N int }
	err := json.Unmarshal(data, &p)
	return p.N, err
}
