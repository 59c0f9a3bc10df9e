package server

import (
	"context"
	"log/slog"

	"google.golang.org/grpc"

	publicpb "github.com/gopherqueue/gq/api/taskqueue/v1"
	"github.com/gopherqueue/gq/internal/access"
	"github.com/gopherqueue/gq/internal/faces/taskqueue"
)

// taskQueueService registers the task queue's public service.
func taskQueueService(e taskqueue.Engine) func(grpc.ServiceRegistrar) {
	return func(r grpc.ServiceRegistrar) { publicpb.RegisterTaskQueuePublicServiceServer(r, taskqueue.New(e)) }
}

// taskQueueWorkers runs jobs of that service, without access checks.
func taskQueueWorkers(work taskqueue.Work, slots int, log *slog.Logger) func(context.Context) error {
	workers := taskqueue.NewWorkers(work, slots, log)
	return func(running context.Context) error { return workers.Run(access.With(running, access.Everyone())) }
}
