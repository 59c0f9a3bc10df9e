package main

import (
	"context"
	"io"
	"log/slog"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync/atomic"

	"go.temporal.io/api/workflowservice/v1"
	temporal "go.temporal.io/sdk/client"
	"go.temporal.io/sdk/log"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"
)

// temporalServer is the newest version whose development server go install can build.
const temporalServer = "github.com/temporalio/cli/cmd/temporal@v1.5.1"

// serveTemporal starts Temporal's development server with its database in a file.
func serveTemporal(p programs) daemon {
	return daemon{func(dir string, port int) (*exec.Cmd, error) {
		return p.command("temporal", "server", "start-dev", "--headless", "--port", strconv.Itoa(port),
			"--db-filename", filepath.Join(dir, "temporal.db"), "--sqlite-pragma", "journal_mode=WAL", "--sqlite-pragma", "synchronous=FULL", "--log-level", "never"), nil
	}}
}

// temporalQueue runs each job as a workflow without activities, which is the least that
// Temporal can run.
type temporalQueue struct {
	client    temporal.Client
	worker    worker.Worker
	submitted atomic.Int64
}

const (
	temporalQueueName = "jobs"
	temporalPollers   = 16
)

func openTemporal(ctx context.Context, t task) (client, error) {
	logger := log.NewStructuredLogger(slog.New(slog.NewTextHandler(io.Discard, nil)))
	c, err := temporal.DialContext(ctx, temporal.Options{HostPort: t.URL, Logger: logger})
	if err != nil {
		return nil, err
	}
	return &temporalQueue{client: c}, nil
}

func (q *temporalQueue) submit(ctx context.Context, i int) error {
	_, err := q.client.ExecuteWorkflow(ctx, temporal.StartWorkflowOptions{TaskQueue: temporalQueueName}, "noop", i)
	q.submitted.Add(1)
	return err
}

func (q *temporalQueue) work(_ context.Context, handle func(i int)) error {
	q.worker = worker.New(q.client, temporalQueueName, worker.Options{
		MaxConcurrentWorkflowTaskPollers: temporalPollers, DisableRegistrationAliasing: true,
	})
	q.worker.RegisterWorkflowWithOptions(func(_ workflow.Context, i int) error {
		handle(i)
		return nil
	}, workflow.RegisterOptions{Name: "noop"})
	return q.worker.Start()
}

func (q *temporalQueue) close() error {
	if q.worker != nil {
		q.worker.Stop()
	}
	q.client.Close()
	return nil
}

// left counts the workflows that have not ended, as far as the server's list knows.
func (q *temporalQueue) left(ctx context.Context) (int, error) {
	ended, err := q.client.CountWorkflow(ctx, &workflowservice.CountWorkflowExecutionsRequest{
		Namespace: temporal.DefaultNamespace, Query: `ExecutionStatus = "Completed"`,
	})
	return int(q.submitted.Load() - ended.GetCount()), err
}
