package main

import (
	"context"
	"errors"
	"io"
	"log"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"
)

// Settings of Asynq. A server takes one task at a time from Redis, so several in one
// process are faster than one. It looks for tasks once a second by default.
const (
	asynqServers     = 4
	asynqConcurrency = 20 // of each
	asynqCheck       = time.Millisecond
)

type asynqQueue struct {
	address string
	client  *asynq.Client
	redis   *redis.Client
	servers []*asynq.Server
}

func openAsynq(_ context.Context, t task) (client, error) {
	return &asynqQueue{
		address: t.URL,
		client:  asynq.NewClient(asynq.RedisClientOpt{Addr: t.URL, PoolSize: t.Callers}),
		redis:   redis.NewClient(&redis.Options{Addr: t.URL}),
	}, nil
}

func (q *asynqQueue) submit(ctx context.Context, i int) error {
	_, err := q.client.EnqueueContext(ctx, asynq.NewTask("noop", payload(i)))
	return err
}

func (q *asynqQueue) work(_ context.Context, handle func(i int)) error {
	for range asynqServers {
		s := asynq.NewServer(asynq.RedisClientOpt{Addr: q.address, PoolSize: asynqConcurrency + 10}, asynq.Config{
			Concurrency: asynqConcurrency, TaskCheckInterval: asynqCheck, LogLevel: asynq.FatalLevel, Logger: quiet{},
		})
		err := s.Start(asynq.HandlerFunc(func(_ context.Context, t *asynq.Task) error {
			i, err := number(t.Payload())
			if err == nil {
				handle(i)
			}
			return err
		}))
		if err != nil {
			return err
		}
		q.servers = append(q.servers, s)
	}
	return nil
}

// left reads the lists of Asynq, as its inspector does at a higher price.
func (q *asynqQueue) left(ctx context.Context) (int, error) {
	pending, err := q.redis.LLen(ctx, "asynq:{default}:pending").Result()
	if err != nil {
		return 0, err
	}
	active, err := q.redis.LLen(ctx, "asynq:{default}:active").Result()
	return int(pending + active), err
}

func (q *asynqQueue) close() error {
	for _, s := range q.servers {
		s.Shutdown()
	}
	return errors.Join(q.client.Close(), q.redis.Close())
}

// quiet is a logger for Asynq that discards everything.
type quiet struct{}

var discard = log.New(io.Discard, "", 0)

func (quiet) Debug(a ...any) { discard.Print(a...) }
func (quiet) Info(a ...any)  { discard.Print(a...) }
func (quiet) Warn(a ...any)  { discard.Print(a...) }
func (quiet) Error(a ...any) { discard.Print(a...) }
func (quiet) Fatal(a ...any) { log.Fatal(a...) }
