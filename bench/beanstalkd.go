package main

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strconv"
	"sync"
	"time"

	"github.com/beanstalkd/go-beanstalk"
)

// beanstalkWorkers is the number of connections that reserve jobs.
const beanstalkWorkers = 64

// serveBeanstalkd starts a server that syncs its log at every write.
func serveBeanstalkd(p programs) daemon {
	return daemon{func(dir string, port int) (*exec.Cmd, error) {
		return p.command("beanstalkd", "-l", "127.0.0.1", "-p", strconv.Itoa(port), "-b", dir, "-f", "0"), nil
	}}
}

type beanstalkQueue struct {
	address string
	idle    chan *beanstalk.Conn // connections that submit
	cancel  context.CancelFunc
	wg      sync.WaitGroup
	mu      sync.Mutex
	err     error // of workers; guarded by mu
}

func openBeanstalkd(_ context.Context, t task) (client, error) {
	q := &beanstalkQueue{address: t.URL, idle: make(chan *beanstalk.Conn, t.Callers)}
	for range t.Callers {
		c, err := beanstalk.Dial("tcp", t.URL)
		if err != nil {
			return nil, errors.Join(err, q.close())
		}
		q.idle <- c
	}
	return q, nil
}

func (q *beanstalkQueue) submit(_ context.Context, i int) error {
	c := <-q.idle
	_, err := c.Put(payload(i), 1024, 0, time.Minute)
	q.idle <- c
	return err
}

func (q *beanstalkQueue) work(ctx context.Context, handle func(i int)) error {
	ctx, q.cancel = context.WithCancel(ctx)
	for range beanstalkWorkers {
		c, err := beanstalk.Dial("tcp", q.address)
		if err != nil {
			return err
		}
		q.wg.Go(func() {
			err := errors.Join(reserve(ctx, c, handle), c.Close())
			q.mu.Lock()
			defer q.mu.Unlock()
			q.err = errors.Join(q.err, err)
		})
	}
	return nil
}

// reserve runs one job after the other until ctx ends.
func reserve(ctx context.Context, c *beanstalk.Conn, handle func(i int)) error {
	for ctx.Err() == nil {
		id, body, err := c.Reserve(time.Second)
		if errors.Is(err, beanstalk.ErrTimeout) {
			continue
		}
		if err != nil {
			return err
		}
		i, err := number(body)
		if err != nil {
			return err
		}
		handle(i)
		if err := c.Delete(id); err != nil {
			return err
		}
	}
	return nil
}

func (q *beanstalkQueue) left(context.Context) (int, error) {
	c := <-q.idle
	stats, err := c.Stats()
	q.idle <- c
	if err != nil {
		return 0, err
	}
	n := 0
	for _, name := range []string{"current-jobs-ready", "current-jobs-reserved"} {
		k, err := strconv.Atoi(stats[name])
		if err != nil {
			return 0, fmt.Errorf("%s: %w", name, err)
		}
		n += k
	}
	return n, nil
}

func (q *beanstalkQueue) close() error {
	if q.cancel != nil {
		q.cancel()
	}
	q.wg.Wait()
	for len(q.idle) > 0 {
		q.err = errors.Join(q.err, (<-q.idle).Close())
	}
	return q.err
}
