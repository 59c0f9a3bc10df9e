package worker_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/worker"
)

// distant is a queue whose claims take a while. It counts those under way, by queue, and the
// slots that they and the running handlers need.
type distant struct {
	*memory

	mu      sync.Mutex
	claims  map[string]int
	most    int // claims of a queue at once
	needed  int
	mostAll int // slots needed at once
}

func (q *distant) Claim(ctx context.Context, req gq.ClaimRequest) ([]gq.Job, error) {
	q.mu.Lock()
	q.claims[req.Queues[0]]++
	q.most = max(q.most, q.claims[req.Queues[0]])
	q.mu.Unlock()
	q.need(req.N)
	time.Sleep(10 * time.Millisecond)
	jobs, err := q.memory.Claim(ctx, req)
	q.need(len(jobs) - req.N)
	q.mu.Lock()
	q.claims[req.Queues[0]]--
	q.mu.Unlock()
	return jobs, err
}

func (q *distant) need(n int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.needed += n
	q.mostAll = max(q.mostAll, q.needed)
}

func TestASecondClaimStartsOnlyForALargeBacklog(t *testing.T) {
	for name, c := range map[string]struct {
		config worker.Config
		jobs   int
		want   int // claims of a queue at once
	}{
		"large":                {worker.Config{Slots: 3000}, 9000, 2},
		"few jobs":             {worker.Config{Slots: 3000}, 900, 1},
		"few slots":            {worker.Config{Slots: 1000}, 3000, 1},
		"competing queue sets": {worker.Config{Slots: 3000, QueueSets: []worker.QueueSet{{Queues: []string{"default"}}, {Queues: []string{"other"}}}}, 9000, 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				q, mux := &distant{memory: newMemory(), claims: map[string]int{}}, worker.NewMux()
				mux.HandleFunc("work", func(context.Context, *worker.Run) error {
					time.Sleep(5 * time.Millisecond)
					q.need(-1)
					return nil
				})
				for range c.jobs {
					q.submit(gq.Spec{Type: "work", Queue: "default"})
				}
				c.config.Logger = discard()
				w, err := worker.NewWith(q, mux, c.config)
				if err != nil {
					t.Fatal(err)
				}
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				if err := w.Run(ctx); err != nil {
					t.Error(err)
				}
				if n := q.counts()[gq.StatusCompleted]; n != c.jobs {
					t.Errorf("%d completed", n)
				}
				if q.most != c.want || q.mostAll > c.config.Slots {
					t.Errorf("%d claims at once, want %d; %d of %d slots needed", q.most, c.want, q.mostAll, c.config.Slots)
				}
			})
		})
	}
}
