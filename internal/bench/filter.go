package bench

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/store"
)

// filterCase is a claim that skips the jobs of the backlog for exactly one reason.
type filterCase struct {
	name   string
	filter store.Filter
	match  func(*gq.Spec) // makes a job of the backlog match
}

// ahead returns a job of the backlog. Each filter differs from it in one respect.
func ahead() gq.Spec {
	s := plainJob()
	s.Type, s.Requires, s.CostUnits = "other", []string{"gpu"}, 1000
	return s
}

func filters() []filterCase {
	queues := []string{queueName}
	return []filterCase{
		{
			"type",
			store.Filter{Queues: queues, Types: []string{"wanted"}, Offers: []string{"gpu"}},
			func(s *gq.Spec) { s.Type = "wanted" },
		},
		{
			"capability",
			store.Filter{Queues: queues, Offers: []string{"arm"}},
			func(s *gq.Spec) { s.Requires = []string{"arm"} },
		},
		{
			"cost",
			store.Filter{Queues: queues, Offers: []string{"gpu"}, MaxCost: 10},
			func(s *gq.Spec) { s.CostUnits = 10 },
		},
	}
}

func (f filterCase) job() gq.Spec {
	s := ahead()
	f.match(&s)
	return s
}

// allows reports whether a claim may return this job.
func (f filterCase) allows(s *gq.Spec) bool {
	return s.Type == f.job().Type && s.CostUnits == f.job().CostUnits && slices.Equal(s.Requires, f.job().Requires)
}

// Matching jobs are submitted before they are claimed: few in the first round, then as
// many as the remaining time should need.
const (
	firstRound   = 500
	largestRound = 50_000
)

// filterShare divides a row's duration: claims are measured for that part of it.
const filterShare = 4

// filterCallers returns the smallest number of callers, whose latency is the cost of a
// claim and its sync, and the largest, whose rate is the cost of the claim alone.
func (b *bench) filterCallers() []int {
	return slices.Compact([]int{slices.Min(b.Callers), b.mostCallers()})
}

// filter measures filtered claims, first on a queue without other jobs.
func (b *bench) filter(ctx context.Context) (rows []FilterRow, err error) {
	for _, f := range filters() {
		for _, callers := range b.filterCallers() {
			rows = append(rows, FilterRow{Filter: f.name, Callers: callers, Ahead: b.Backlog})
		}
	}
	for _, queued := range []int{0, b.Backlog} {
		err = b.with(ctx, Filter, "", nil, func(ctx context.Context, s store.Store) error {
			if _, err := fill(ctx, s, ahead(), b.Payload, queued); err != nil {
				return fmt.Errorf("fill: %w", err)
			}
			if err := calm(ctx); err != nil {
				return err
			}
			return b.filtered(ctx, s, queued, rows)
		})
		if err != nil {
			return rows, err
		}
	}
	for i := range rows {
		rows[i].Ratio = rows[i].With / rows[i].Without
	}
	return rows, ctx.Err()
}

func (b *bench) filtered(ctx context.Context, s store.Store, queued int, rows []FilterRow) error {
	completed := int64(0)
	for i, f := range filters() {
		for k, callers := range b.filterCallers() {
			row := &rows[i*len(b.filterCallers())+k]
			found, done, err := b.claims(ctx, s, f, callers)
			if err != nil {
				return fmt.Errorf("by %s: %w", f.name, err)
			}
			completed += done
			if queued == 0 {
				row.Without, row.CPUWithout, row.ClaimWithout = found.rate, found.cpu, found.latency
			} else {
				row.With, row.CPUWith, row.ClaimWith = found.rate, found.cpu, found.latency
			}
		}
	}
	return verify(ctx, s, int64(queued), completed)
}

type claimSpeed struct {
	speed
	latency *Latency
}

// claims measures single-job claims alone: matching jobs are submitted before the clock
// starts and completed after it stops, until enough time was measured.
func (b *bench) claims(ctx context.Context, s store.Store, f filterCase, callers int) (found claimSpeed, done int64, err error) {
	jobs, left := firstRound, b.Duration/filterShare
	if b.Jobs > 0 {
		jobs, left = b.Jobs, 0
	}
	times := new(calls)
	var claimed int64
	var measured time.Duration
	var used span
	for enough := false; !enough; enough = b.Jobs > 0 || left <= 0 {
		if _, err := fill(ctx, s, f.job(), b.Payload, jobs); err != nil {
			return found, done, err
		}
		before := readMachine()
		holds, elapsed, err := b.claimRound(ctx, s, f, callers, newQuota(jobs, 0, nil), left, times)
		if err != nil {
			return found, done, err
		}
		used.add(before.until(readMachine()))
		claimed += int64(len(holds))
		measured += elapsed
		left -= elapsed
		if err := b.clear(ctx, s, f, holds, jobs-len(holds)); err != nil {
			return found, done, err
		}
		done += int64(jobs)
		jobs = min(max(int(rate(claimed, measured)*left.Seconds()), firstRound), largestRound)
	}
	return claimSpeed{speed{rate(claimed, measured), used.perJob(claimed)}, times.claim.latency()}, done, nil
}

// claimRound claims matching jobs until all are claimed or the time is up.
func (b *bench) claimRound(
	ctx context.Context, s store.Store, f filterCase, callers int, q *quota, most time.Duration, times *calls,
) (holds []held, elapsed time.Duration, err error) {
	var mu sync.Mutex
	begin := func() {
		if b.Jobs == 0 {
			q.until = time.Now().Add(most)
		}
	}
	elapsed, err = together(ctx, callers, begin, func() func(context.Context) error {
		c := newCaller(s, times, plainJob(), 0, 1)
		c.claims[0].Filter = f.filter
		return func(ctx context.Context) error {
			var mine []held
			defer func() {
				mu.Lock()
				defer mu.Unlock()
				holds = append(holds, mine...)
			}()
			for q.take(1) > 0 {
				jobs, err := c.claim(ctx, 1)
				if err != nil {
					return err
				}
				if !f.allows(&jobs[0].Spec) {
					return fmt.Errorf("a claim by %s got a job that does not match: %w", f.name, errWrong)
				}
				mine = append(mine, hold(&jobs[0]))
			}
			return nil
		}
	})
	return holds, elapsed, err
}

// clear completes the claimed jobs, and the matching jobs that were not claimed.
func (b *bench) clear(ctx context.Context, s store.Store, f filterCase, holds []held, rest int) error {
	c := newCaller(s, new(calls), plainJob(), 0, 1)
	c.claims[0].Filter = f.filter
	for rest > 0 {
		jobs, err := c.claim(ctx, min(rest, fillBatch))
		if err != nil {
			return err
		}
		for i := range jobs {
			holds = append(holds, hold(&jobs[i]))
		}
		rest -= len(jobs)
	}
	for chunk := range slices.Chunk(holds, fillBatch) {
		updates := make([]store.Update, len(chunk))
		for i := range chunk {
			updates[i] = chunk[i].completion()
		}
		answers, err := s.Update(ctx, updates)
		if err := checkCompleted(answers, err, len(updates)); err != nil {
			return err
		}
	}
	return nil
}
