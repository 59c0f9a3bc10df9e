package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"
)

// riverQueue is River with its fastest settings.
type riverQueue struct{ workers int }

func (riverQueue) name() string    { return "River" }
func (riverQueue) can(string) bool { return true }

const (
	riverCooldown = 2 * time.Millisecond
	riverPoll     = 20 * time.Millisecond
)

type riverArgs struct {
	N int `json:"n"`
}

func (riverArgs) Kind() string { return "noop" }

type riverWorker struct {
	river.WorkerDefaults[riverArgs]
	handle func(i int)
}

func (w *riverWorker) Work(_ context.Context, j *river.Job[riverArgs]) error {
	w.handle(j.Args.N)
	return nil
}

// claimTracer times River's claims, which River does not expose otherwise.
type claimTracer struct{ claims *times }

type traceKey struct{}

func (c *claimTracer) TraceQueryStart(ctx context.Context, _ *pgx.Conn, q pgx.TraceQueryStartData) context.Context {
	if !strings.Contains(q.SQL, "-- name: JobGetAvailable") {
		return ctx
	}
	return context.WithValue(ctx, traceKey{}, time.Now())
}

func (c *claimTracer) TraceQueryEnd(ctx context.Context, _ *pgx.Conn, q pgx.TraceQueryEndData) {
	if start, ok := ctx.Value(traceKey{}).(time.Time); ok && q.CommandTag.RowsAffected() > 0 {
		c.claims.add(time.Since(start))
	}
}

func (r riverQueue) run(ctx context.Context, t task) (out outcome, err error) {
	claims := new(times)
	settings, err := pgxpool.ParseConfig(t.URL)
	if err != nil {
		return out, err
	}
	settings.MaxConns = 16
	if t.Row == "single" {
		settings.MaxConns = int32(t.Callers)
	}
	if t.Row == "pinned" {
		settings.ConnConfig.Tracer = &claimTracer{claims}
	}
	pool, err := pgxpool.NewWithConfig(ctx, settings)
	if err != nil {
		return out, err
	}
	defer pool.Close()
	driver := riverpgxv5.New(pool)
	log := slog.New(slog.DiscardHandler)
	migrator, err := rivermigrate.New(driver, &rivermigrate.Config{Logger: log})
	if err != nil {
		return out, err
	}
	if _, err := migrator.Migrate(ctx, rivermigrate.DirectionUp, nil); err != nil {
		return out, err
	}
	w := &riverWorker{handle: func(int) {}}
	workers := river.NewWorkers()
	river.AddWorker(workers, w)
	config := &river.Config{Logger: log, Workers: workers}
	if t.Row != "bulk" && t.Row != "single" {
		config.Queues = map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: r.workers}}
		config.FetchCooldown, config.FetchPollInterval = riverCooldown, riverPoll
	}
	client, err := river.NewClient(driver, config)
	if err != nil {
		return out, err
	}
	begin := func() error { return client.Start(ctx) }
	defer func() {
		if config.Queues != nil {
			stopping, cancel := context.WithTimeout(ctx, 30*time.Second)
			defer cancel()
			if stop := client.StopAndCancel(stopping); !errors.Is(stop, context.Canceled) {
				err = errors.Join(err, stop)
			}
		}
	}()
	many := func(from, count int) error {
		jobs := make([]river.InsertManyParams, count)
		for i := range jobs {
			jobs[i].Args = riverArgs{from + i}
		}
		_, err := client.InsertManyFast(ctx, jobs)
		return err
	}
	one := func(i int) error {
		_, err := client.Insert(ctx, riverArgs{i}, nil)
		return err
	}
	switch t.Row {
	case "bulk":
		t.begin()
		start := time.Now()
		err := t.inBatches(many)
		return outcome{Jobs: t.Jobs, Seconds: time.Since(start).Seconds()}, err
	case "single":
		return t.singles(one)
	case "drain", "backlog":
		if err := t.inBatches(many); err != nil {
			return out, err
		}
		if err := settle(ctx, t.URL); err != nil {
			return out, err
		}
		m := newMeter(t.Jobs, t.Step)
		w.handle = func(int) { m.hit() }
		t.begin()
		m.start()
		if err := begin(); err != nil {
			return out, err
		}
		if err := m.wait(ctx); err != nil {
			return out, err
		}
		for n := 0; n < t.Jobs; time.Sleep(5 * time.Millisecond) {
			if err := pool.QueryRow(ctx, "SELECT count(*) FROM river_job WHERE state = 'completed'").Scan(&n); err != nil {
				return out, err
			}
		}
		out = outcome{Jobs: t.Jobs, Seconds: time.Since(m.begin).Seconds()}
		out.First, out.Last = m.ends()
		return out, nil
	case "latency":
		l := newLatencies(t.Jobs)
		w.handle = l.started
		if err := begin(); err != nil {
			return out, err
		}
		time.Sleep(time.Second)
		return l.measure(t, one)
	case "pinned":
		if err := begin(); err != nil {
			return out, err
		}
		return t.steady(ctx, claims, func(k int) error { return many(0, k) })
	case "idle":
		err := begin()
		time.Sleep(seconds(t.Seconds))
		return out, err
	}
	return out, fmt.Errorf("row %q is unknown", t.Row)
}
