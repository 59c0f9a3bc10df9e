package compare

import (
	"context"
	"net"

	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"

	publicpb "github.com/gopherqueue/gq/api/taskqueue/v1"
)

// echo answers submits without doing anything.
type echo struct {
	publicpb.UnimplementedTaskQueuePublicServiceServer
}

func (echo) SubmitJob(context.Context, *publicpb.SubmitJobRequest) (*publicpb.SubmitJobResponse, error) {
	return &publicpb.SubmitJobResponse{JobId: echoID, InitialStatus: publicpb.JobStatus_QUEUED, AcceptedAtMs: 1}, nil
}

const echoID = "00000000-0000-4000-8000-000000000000"

// Echo serves the floor on a listener until ctx ends: plain gRPC without interceptors.
func Echo(ctx context.Context, listener net.Listener) error {
	server := grpc.NewServer()
	publicpb.RegisterTaskQueuePublicServiceServer(server, echo{})
	grpc_health_v1.RegisterHealthServer(server, health.NewServer())
	stop := context.AfterFunc(ctx, server.Stop)
	defer stop()
	return server.Serve(listener)
}
