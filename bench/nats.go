package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// serveNATS starts a NATS server with JetStream that syncs at every write.
func serveNATS(p programs) daemon {
	return daemon{func(dir string, port int) (*exec.Cmd, error) {
		file := filepath.Join(dir, "nats.conf")
		text := fmt.Sprintf("listen: \"127.0.0.1:%d\"\njetstream { store_dir: %q, sync_interval: always }\n", port, filepath.Join(dir, "data"))
		return p.command("nats-server", "-c", file), os.WriteFile(file, []byte(text), 0o600)
	}}
}

const (
	natsPending = 20_000 // messages that a consumer may hold
	natsAhead   = 2_000  // messages that a worker requests at a time
)

// natsQueue is a work-queue stream on disk with one pull consumer.
type natsQueue struct {
	conn     *nats.Conn
	js       jetstream.JetStream
	stream   jetstream.Stream
	consumer jetstream.Consumer
	running  jetstream.ConsumeContext
}

func openNATS(ctx context.Context, t task) (_ client, err error) {
	q := new(natsQueue)
	if q.conn, err = nats.Connect("nats://" + t.URL); err != nil {
		return nil, err
	}
	// All batches that are under way fit, so that no publication has to wait for its turn.
	if q.js, err = jetstream.New(q.conn, jetstream.WithPublishAsyncMaxPending(2*t.Batch*max(t.Inserters, t.Callers))); err != nil {
		return nil, err
	}
	q.stream, err = q.js.CreateStream(ctx, jetstream.StreamConfig{
		Name: "JOBS", Subjects: []string{"jobs"}, Retention: jetstream.WorkQueuePolicy, Storage: jetstream.FileStorage,
	})
	if err != nil {
		return nil, err
	}
	q.consumer, err = q.stream.CreateConsumer(ctx, jetstream.ConsumerConfig{
		Durable: "worker", AckPolicy: jetstream.AckExplicitPolicy, MaxAckPending: natsPending, AckWait: time.Minute,
	})
	return q, err
}

func (q *natsQueue) submit(ctx context.Context, i int) error {
	_, err := q.js.Publish(ctx, "jobs", payload(i))
	return err
}

// submitMany publishes without waiting and then waits for all acknowledgements.
func (q *natsQueue) submitMany(ctx context.Context, from, count int) error {
	acks := make([]jetstream.PubAckFuture, count)
	for i := range acks {
		ack, err := q.js.PublishAsync("jobs", payload(from+i))
		if err != nil {
			return err
		}
		acks[i] = ack
	}
	for _, ack := range acks {
		select {
		case <-ack.Ok():
		case err := <-ack.Err():
			return err
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}

// work acknowledges each job without waiting for an answer, which is faster.
func (q *natsQueue) work(_ context.Context, handle func(i int)) (err error) {
	q.running, err = q.consumer.Consume(func(m jetstream.Msg) {
		if i, err := number(m.Data()); err == nil {
			handle(i)
			_ = m.Ack() // without it the job is left
		}
	}, jetstream.PullMaxMessages(natsAhead))
	return err
}

func (q *natsQueue) left(ctx context.Context) (int, error) {
	info, err := q.stream.Info(ctx)
	if err != nil {
		return 0, err
	}
	return int(info.State.Msgs), nil
}

func (q *natsQueue) close() error {
	if q.running != nil {
		q.running.Stop()
		<-q.running.Closed()
	}
	q.conn.Close()
	return nil
}
