package worker_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/worker"
)

// endless is a queue without cost: it always has jobs and accepts every outcome, after
// the time of a commit.
type endless struct {
	commit time.Duration
	left   atomic.Int64
	open   atomic.Int64
	done   func()
	job    gq.Job
}

func (q *endless) wait() {
	if q.commit > 0 {
		<-time.After(q.commit)
	}
}

func (q *endless) Claim(ctx context.Context, req gq.ClaimRequest) ([]gq.Job, error) {
	n := int64(req.N)
	if left := q.left.Add(-n); left < 0 {
		n = max(n+left, 0)
	}
	if n == 0 {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	q.wait()
	jobs := make([]gq.Job, n)
	for i := range jobs {
		jobs[i] = q.job
	}
	return jobs, nil
}

func (q *endless) Heartbeat(_ context.Context, beats []gq.Heartbeat) ([]gq.LeaseResult, error) {
	return make([]gq.LeaseResult, len(beats)), nil
}

func (q *endless) Settle(_ context.Context, outcomes []gq.Outcome) ([]gq.LeaseResult, error) {
	q.wait()
	if q.open.Add(-int64(len(outcomes))) == 0 {
		q.done()
	}
	return make([]gq.LeaseResult, len(outcomes)), nil
}

// BenchmarkCycle measures what the worker adds to claiming and settling a job.
func BenchmarkCycle(b *testing.B) {
	for name, commit := range map[string]time.Duration{"free": 0, "commit of 2 ms": 2 * time.Millisecond} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			ctx, done := context.WithCancel(b.Context())
			q := &endless{commit: commit, done: done}
			q.left.Store(int64(b.N))
			q.open.Store(int64(b.N))
			m := newMemory()
			m.submit(gq.Spec{Type: "work", Payload: gq.Payload{Data: []byte(`{"to":"ann","n":1}`)}})
			jobs, err := m.Claim(ctx, gq.ClaimRequest{Queues: []string{gq.DefaultQueue}, Types: []string{"work"}, N: 1})
			if err != nil {
				b.Fatal(err)
			}
			q.job = jobs[0]
			mux := worker.NewMux()
			worker.Handle(mux, gq.NewKind[email, gq.None]("work"), func(context.Context, *worker.Job[email]) error { return nil })
			w, err := worker.NewWith(q, mux, worker.Config{Slots: 500, Logger: discard()})
			if err != nil {
				b.Fatal(err)
			}
			b.ResetTimer()
			if err := w.Run(ctx); err != nil {
				b.Fatal(err)
			}
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "jobs/s")
			b.ReportMetric(float64(b.N)/float64(w.Stats().Claims), "jobs/claim")
			b.ReportMetric(float64(b.N)/float64(w.Stats().Settles), "jobs/settle")
		})
	}
}
