package monolith

import (
	"context"

	"google.golang.org/grpc"

	pb "github.com/gopherqueue/gq/services/api/taskqueueinternal/v1"
)

// The services of a node call each other directly. They share messages without copying:
// no service changes a message after it has passed it on.
type (
	localJobs        struct{ pb.JobInternalServiceServer }
	localQueue       struct{ pb.QueueInternalServiceServer }
	localResults     struct{ pb.ResultInternalServiceServer }
	localCoordinator struct {
		pb.CoordinatorInternalServiceServer
	}
)

func (l localJobs) CreateJob(ctx context.Context, r *pb.CreateJobRequest, _ ...grpc.CallOption) (*pb.CreateJobResponse, error) {
	return l.JobInternalServiceServer.CreateJob(ctx, r)
}

func (l localJobs) DeleteJobIfStatus(ctx context.Context, r *pb.DeleteJobIfStatusRequest, _ ...grpc.CallOption) (*pb.DeleteJobIfStatusResponse, error) {
	return l.JobInternalServiceServer.DeleteJobIfStatus(ctx, r)
}

func (l localJobs) GetJobRecord(ctx context.Context, r *pb.GetJobRecordRequest, _ ...grpc.CallOption) (*pb.GetJobRecordResponse, error) {
	return l.JobInternalServiceServer.GetJobRecord(ctx, r)
}

func (l localJobs) ListJobRecords(ctx context.Context, r *pb.ListJobRecordsRequest, _ ...grpc.CallOption) (*pb.ListJobRecordsResponse, error) {
	return l.JobInternalServiceServer.ListJobRecords(ctx, r)
}

func (l localJobs) TransitionJobStatus(ctx context.Context, r *pb.TransitionJobStatusRequest, _ ...grpc.CallOption) (*pb.TransitionJobStatusResponse, error) {
	return l.JobInternalServiceServer.TransitionJobStatus(ctx, r)
}

func (l localJobs) SetCancelRequested(ctx context.Context, r *pb.SetCancelRequestedRequest, _ ...grpc.CallOption) (*pb.SetCancelRequestedResponse, error) {
	return l.JobInternalServiceServer.SetCancelRequested(ctx, r)
}

func (l localQueue) EnqueueJob(ctx context.Context, r *pb.EnqueueJobRequest, _ ...grpc.CallOption) (*pb.EnqueueJobResponse, error) {
	return l.QueueInternalServiceServer.EnqueueJob(ctx, r)
}

func (l localQueue) DequeueJob(ctx context.Context, r *pb.DequeueJobRequest, _ ...grpc.CallOption) (*pb.DequeueJobResponse, error) {
	return l.QueueInternalServiceServer.DequeueJob(ctx, r)
}

func (l localQueue) RemoveJobIfPresent(ctx context.Context, r *pb.RemoveJobIfPresentRequest, _ ...grpc.CallOption) (*pb.RemoveJobIfPresentResponse, error) {
	return l.QueueInternalServiceServer.RemoveJobIfPresent(ctx, r)
}

func (l localResults) StoreResult(ctx context.Context, r *pb.StoreResultRequest, _ ...grpc.CallOption) (*pb.StoreResultResponse, error) {
	return l.ResultInternalServiceServer.StoreResult(ctx, r)
}

func (l localResults) GetResult(ctx context.Context, r *pb.GetResultRequest, _ ...grpc.CallOption) (*pb.GetResultResponse, error) {
	return l.ResultInternalServiceServer.GetResult(ctx, r)
}

func (l localCoordinator) WorkerHeartbeat(ctx context.Context, r *pb.WorkerHeartbeatRequest, _ ...grpc.CallOption) (*pb.WorkerHeartbeatResponse, error) {
	return l.CoordinatorInternalServiceServer.WorkerHeartbeat(ctx, r)
}

func (l localCoordinator) FetchWork(ctx context.Context, r *pb.FetchWorkRequest, _ ...grpc.CallOption) (*pb.FetchWorkResponse, error) {
	return l.CoordinatorInternalServiceServer.FetchWork(ctx, r)
}

func (l localCoordinator) ReportWorkOutcome(ctx context.Context, r *pb.ReportWorkOutcomeRequest, _ ...grpc.CallOption) (*pb.ReportWorkOutcomeResponse, error) {
	return l.CoordinatorInternalServiceServer.ReportWorkOutcome(ctx, r)
}
