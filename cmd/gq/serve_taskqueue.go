package main

import (
	"context"

	"google.golang.org/grpc"

	publicpb "github.com/gopherqueue/gq/api/taskqueue/v1"
	"github.com/gopherqueue/gq/internal/auth"
	"github.com/gopherqueue/gq/internal/taskqueue"
)

// taskQueueService adds the task queue's public service to a server.
func taskQueueService(e taskqueue.Engine) func(grpc.ServiceRegistrar) {
	return func(r grpc.ServiceRegistrar) { publicpb.RegisterTaskQueuePublicServiceServer(r, taskqueue.New(e)) }
}

// startTaskQueueWorkers runs jobs of that service, in nobody's name.
func startTaskQueueWorkers(running context.Context, s *server, work taskqueue.Work, slots int) {
	if slots == 0 {
		return
	}
	workers := taskqueue.NewWorkers(work, slots, s.log)
	s.start(func() error { return workers.Run(auth.With(running, auth.Everyone())) })
}
