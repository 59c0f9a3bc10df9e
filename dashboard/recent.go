package dashboard

import (
	"slices"
	"time"

	"github.com/gopherqueue/gq"
)

// sampleSize is the number of finished jobs that the figures of a queue come from.
const sampleSize = 200

// recent has figures of a queue, measured on the newest jobs that have finished.
type recent struct {
	Jobs      int           // that were measured
	Span      time.Duration // since the first of them ended
	PerSecond float64       // that ended
	Failures  float64       // share that did not succeed
	Wait, Run percentiles
}

// percentiles of durations.
type percentiles struct{ P50, P95, P99 time.Duration }

// Known reports whether there were enough jobs to say something.
func (r recent) Known() bool { return r.Jobs >= 2 && r.Span > 0 }

// recent measures a queue.
func (v *visit) recent(queue string) (recent, error) {
	page, err := v.d.queue.List(v.ctx, gq.Query{
		Queue: queue, Limit: sampleSize, MaxScan: maxSearched,
		Statuses: []gq.Status{gq.StatusCompleted, gq.StatusFailed, gq.StatusDeadLetter, gq.StatusCancelled},
	})
	if err != nil {
		return recent{}, err
	}
	return measure(page.Jobs, v.d.now()), nil
}

// measure computes the figures of finished jobs.
func measure(jobs []gq.Job, now time.Time) (r recent) {
	var waits, runs []time.Duration
	var first time.Time
	failed := 0
	for i := range jobs {
		s := &jobs[i].State
		if s.CompletedAt.IsZero() || s.Status == gq.StatusCancelled {
			continue
		}
		r.Jobs++
		if first.IsZero() || s.CompletedAt.Before(first) {
			first = s.CompletedAt
		}
		if s.Status != gq.StatusCompleted {
			failed++
		}
		if !s.StartedAt.IsZero() {
			runs = append(runs, max(0, s.CompletedAt.Sub(s.StartedAt)))
			if !s.ScheduledAt.IsZero() {
				waits = append(waits, max(0, s.StartedAt.Sub(s.ScheduledAt)))
			}
		}
	}
	if r.Jobs == 0 {
		return r
	}
	r.Span = now.Sub(first)
	if r.Span > 0 {
		r.PerSecond = float64(r.Jobs) / r.Span.Seconds()
	}
	r.Failures = float64(failed) / float64(r.Jobs)
	r.Wait, r.Run = percentilesOf(waits), percentilesOf(runs)
	return r
}

func percentilesOf(list []time.Duration) percentiles {
	if len(list) == 0 {
		return percentiles{}
	}
	slices.Sort(list)
	at := func(p int) time.Duration { return list[min(len(list)-1, len(list)*p/100)] }
	return percentiles{at(50), at(95), at(99)}
}

// pace returns how fast a queue has been lately.
func (v *visit) pace(queue string) (pace, error) {
	r, err := v.recent(queue)
	if err != nil || !r.Known() {
		return pace{}, err
	}
	return pace{Starts: r.PerSecond, Span: r.Span, Run: r.Run.P50}, nil
}
