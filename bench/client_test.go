package main

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"
)

// memory is a client whose jobs are in a channel.
type memory struct {
	jobs   chan int
	mu     sync.Mutex
	open   int // guarded by mu
	calls  int // guarded by mu
	cancel context.CancelFunc
	wg     sync.WaitGroup
	fault  error
}

func (m *memory) submit(_ context.Context, i int) error {
	m.mu.Lock()
	m.open++
	m.calls++
	m.mu.Unlock()
	m.jobs <- i
	return m.fault
}

func (m *memory) work(ctx context.Context, handle func(i int)) error {
	ctx, m.cancel = context.WithCancel(ctx)
	m.wg.Go(func() {
		for {
			select {
			case i := <-m.jobs:
				handle(i)
				m.mu.Lock()
				m.open--
				m.mu.Unlock()
			case <-ctx.Done():
				return
			}
		}
	})
	return nil
}

func (m *memory) left(context.Context) (int, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.open, nil
}

func (m *memory) close() error {
	if m.cancel != nil {
		m.cancel()
	}
	m.wg.Wait()
	return nil
}

// batches is a memory with a call for many jobs.
type batches struct{ *memory }

func (m batches) submitMany(ctx context.Context, from, count int) error {
	for i := range count {
		if err := m.submit(ctx, from+i); err != nil {
			return err
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.calls -= count - 1
	return nil
}

func TestRowsOfClients(t *testing.T) {
	for _, bulk := range []bool{false, true} {
		for _, row := range []string{"single", "bulk", "drain", "cycle", "half"} {
			size := servers.quick
			job := size.task(row)
			job.Seconds, job.Rate = 0.1, 5000
			begun, ended := 0, 0
			job.begin, job.end = func() { begun++ }, func() { ended++ }
			m := &memory{jobs: make(chan int, 1e7)}
			s := clientSide{"memory", bulk, func(context.Context, task) (client, error) {
				if bulk {
					return batches{m}, nil
				}
				return m, nil
			}}
			out, err := s.run(t.Context(), job)
			if err != nil {
				t.Fatalf("%s: %v", row, err)
			}
			if begun != 1 || ended == 0 {
				t.Errorf("%s: the clock began %d times and ended %d times", row, begun, ended)
			}
			if out.Jobs == 0 || out.Seconds <= 0 {
				t.Errorf("%s measured nothing: %+v", row, out)
			}
			if row == "half" && (out.Jobs != 500 || out.P50 <= 0 || out.P99 < out.P50) {
				t.Errorf("half: %+v", out)
			}
			if row == "drain" && out.Jobs != size.Drain {
				t.Errorf("drain ran %d of %d jobs", out.Jobs, size.Drain)
			}
			if row != "single" && row != "half" && bulk && m.calls > out.Jobs/50 {
				t.Errorf("%s: %d jobs in %d calls", row, out.Jobs, m.calls)
			}
		}
	}
}

func TestFillStops(t *testing.T) {
	m := &memory{jobs: make(chan int, 1e7)}
	job := task{Jobs: 1e7, Callers: 2}
	start := time.Now()
	n, err := job.fill(t.Context(), m, 0.05)
	if err != nil || n == 0 || n == job.Jobs || time.Since(start) > 5*time.Second {
		t.Errorf("%d jobs in %v: %v", n, time.Since(start), err)
	}
	m.fault = errors.New("refused")
	if _, err := job.fill(t.Context(), m, 0.05); !errors.Is(err, m.fault) {
		t.Errorf("a refused job gave %v", err)
	}
}
