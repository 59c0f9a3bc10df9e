package main

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"sync"

	"github.com/gopherqueue/gq"
	gqclient "github.com/gopherqueue/gq/client"
)

// serverQueue is GopherQueue on a server, called through the Go client. The worker has a
// Work stream on a connection of its own.
type serverQueue struct {
	submitter, worker *gqclient.Client
	cancel            context.CancelFunc
	wg                sync.WaitGroup
	ran               error
}

// serveGopherQueue starts the server with its store in a directory.
func serveGopherQueue(p programs) daemon {
	return daemon{func(dir string, port int) (*exec.Cmd, error) {
		return p.command("gq", "serve", "--data", dir, "--http", "127.0.0.1:0", "--grpc", fmt.Sprintf("127.0.0.1:%d", port), "--log-level", "warn"), nil
	}}
}

func openServer(_ context.Context, t task) (client, error) {
	submitter, err := gqclient.New(t.URL, gqclient.Options{})
	if err != nil {
		return nil, err
	}
	w, err := gqclient.New(t.URL, gqclient.Options{})
	return &serverQueue{submitter: submitter, worker: w}, err
}

func (q *serverQueue) submit(ctx context.Context, i int) error {
	_, err := q.submitter.Submit(ctx, noop(i))
	return err
}

func (q *serverQueue) submitMany(ctx context.Context, from, count int) error {
	return submitMany(ctx, q.submitter, from, count)
}

func (q *serverQueue) work(ctx context.Context, handle func(i int)) error {
	w := newWorker(q.worker, localSlots, handle)
	ctx, q.cancel = context.WithCancel(ctx)
	q.wg.Go(func() { q.ran = w.Run(ctx) })
	return nil
}

func (q *serverQueue) left(ctx context.Context) (int, error) {
	counts, err := q.submitter.Counts(ctx, gq.DefaultQueue)
	return live(counts), err
}

func (q *serverQueue) close() error {
	if q.cancel != nil {
		q.cancel()
	}
	q.wg.Wait()
	return errors.Join(q.ran, q.worker.Close(), q.submitter.Close())
}
