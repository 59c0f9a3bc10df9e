package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"sync/atomic"

	faktory "github.com/contribsys/faktory/client"
)

// faktoryWorkers is the number of connections that fetch jobs.
const faktoryWorkers = 64

// faktoryPlace is a daemon that leaves a file behind.
type faktoryPlace struct{ daemon }

// faktoryRedis is the configuration of Redis that Faktory writes if there is none.
const faktoryRedis = "/tmp/redis.conf"

func (p faktoryPlace) use(ctx context.Context, f func(string, int) error) error {
	if _, err := os.Stat(faktoryRedis); errors.Is(err, fs.ErrNotExist) {
		defer os.Remove(faktoryRedis) //nolint:errcheck // a temporary file
	}
	return p.daemon.use(ctx, f)
}

// serveFaktory starts Faktory, which starts a Redis of its own with snapshots.
func serveFaktory(p programs) place {
	return faktoryPlace{daemon{func(dir string, port int) (*exec.Cmd, error) {
		web, err := freePort()
		if err != nil {
			return nil, err
		}
		return p.command("faktory", "-b", fmt.Sprintf("127.0.0.1:%d", port), "-w", fmt.Sprintf("127.0.0.1:%d", web),
			"-d", filepath.Join(dir, "db"), "-c", filepath.Join(dir, "conf"), "-l", "error"), nil
	}}}
}

type faktoryQueue struct {
	address string
	idle    chan *faktory.Client // connections that submit
	pushed  atomic.Int64
	ending  atomic.Bool
	workers []*faktory.Client
	wg      sync.WaitGroup
	mu      sync.Mutex
	err     error // of workers; guarded by mu
}

func openFaktory(_ context.Context, t task) (client, error) {
	faktory.RandomProcessWid = "bench" // without one a client may not fetch
	q := &faktoryQueue{address: t.URL, idle: make(chan *faktory.Client, t.Callers)}
	for range t.Callers {
		c, err := q.dial()
		if err != nil {
			return nil, errors.Join(err, q.close())
		}
		q.idle <- c
	}
	return q, nil
}

func (q *faktoryQueue) dial() (*faktory.Client, error) {
	s := faktory.DefaultServer()
	s.Network, s.Address = "tcp", q.address
	return faktory.Dial(s, "")
}

func (q *faktoryQueue) submit(_ context.Context, i int) error {
	c := <-q.idle
	err := c.Push(faktory.NewJob("noop", i))
	q.idle <- c
	q.pushed.Add(1)
	return err
}

func (q *faktoryQueue) submitMany(_ context.Context, from, count int) error {
	jobs := make([]*faktory.Job, count)
	for i := range jobs {
		jobs[i] = faktory.NewJob("noop", from+i)
	}
	c := <-q.idle
	refused, err := c.PushBulk(jobs)
	q.idle <- c
	q.pushed.Add(int64(count))
	if err == nil && len(refused) > 0 {
		err = fmt.Errorf("%d jobs were refused", len(refused))
	}
	return err
}

func (q *faktoryQueue) work(_ context.Context, handle func(i int)) error {
	for range faktoryWorkers {
		c, err := q.dial()
		if err != nil {
			return err
		}
		q.workers = append(q.workers, c)
		q.wg.Go(func() {
			if err := q.fetch(c, handle); err != nil && !q.ending.Load() {
				q.mu.Lock()
				defer q.mu.Unlock()
				q.err = errors.Join(q.err, err)
			}
		})
	}
	return nil
}

// fetch runs one job after the other until the connection is closed.
func (q *faktoryQueue) fetch(c *faktory.Client, handle func(i int)) error {
	for !q.ending.Load() {
		job, err := c.Fetch("default")
		if err != nil {
			return err
		}
		if job == nil {
			continue
		}
		i, ok := job.Args[0].(float64)
		if !ok {
			return fmt.Errorf("job %s has the argument %v", job.Jid, job.Args[0])
		}
		handle(int(i))
		if err := c.Ack(job.Jid); err != nil {
			return err
		}
	}
	return nil
}

func (q *faktoryQueue) left(context.Context) (int, error) {
	c := <-q.idle
	state, err := c.CurrentState()
	q.idle <- c
	if err != nil {
		return 0, err
	}
	return int(q.pushed.Load()) - int(state.Data.TotalProcessed), nil //nolint:gosec // small
}

func (q *faktoryQueue) close() error {
	q.ending.Store(true)
	q.wg.Wait() // a fetch takes at most two seconds
	for _, c := range q.workers {
		_ = c.Close()
	}
	for len(q.idle) > 0 {
		_ = (<-q.idle).Close()
	}
	return q.err
}
