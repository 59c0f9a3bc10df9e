package taskqueuetest

import (
	"slices"
	"testing"

	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/descriptorpb"

	publicpb "github.com/gopherqueue/gq/api/taskqueue/v1"
)

var surfaceCases = []testCase{
	{
		name: "Reflection", clause: "every node serves taskqueue.v1.TaskQueuePublicService with exactly its five methods, and tells so",
		Covers: []string{"T-09", "T-10", "T-40", "T-70", "T-105", "T-258", "T-260"},
		run:    reflects,
	},
	{
		name: "Health", clause: "every node answers health checks",
		Covers: []string{"T-70", "T-258"},
		run:    healthy,
	},
	{
		name: "EveryNode", clause: "any node answers for any job, and lists with the same message",
		Covers: []string{"T-20", "T-21", "T-109", "T-261"},
		run:    everyNode,
	},
}

func reflects(t *testing.T, s *system) {
	const service = "taskqueue.v1.TaskQueuePublicService"
	for i, conn := range s.conns {
		stream, err := grpc_reflection_v1.NewServerReflectionClient(conn).ServerReflectionInfo(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		err = stream.Send(&grpc_reflection_v1.ServerReflectionRequest{
			MessageRequest: &grpc_reflection_v1.ServerReflectionRequest_FileContainingSymbol{FileContainingSymbol: service},
		})
		if err != nil {
			t.Fatal(err)
		}
		answer, err := stream.Recv()
		if err != nil {
			t.Fatal(err)
		}
		var methods []string
		for _, raw := range answer.GetFileDescriptorResponse().GetFileDescriptorProto() {
			var file descriptorpb.FileDescriptorProto
			if err := proto.Unmarshal(raw, &file); err != nil {
				t.Fatal(err)
			}
			if file.GetPackage() != "taskqueue.v1" {
				continue
			}
			for _, svc := range file.GetService() {
				for _, m := range svc.GetMethod() {
					methods = append(methods, svc.GetName()+"/"+m.GetName())
				}
			}
		}
		want := []string{
			"TaskQueuePublicService/SubmitJob", "TaskQueuePublicService/GetJobStatus", "TaskQueuePublicService/GetJobResult",
			"TaskQueuePublicService/CancelJob", "TaskQueuePublicService/ListJobs",
		}
		if !slices.Equal(methods, want) {
			t.Errorf("node %d has the methods %v, want %v", i, methods, want)
		}
		if err := stream.CloseSend(); err != nil {
			t.Fatal(err)
		}
	}
}

func healthy(t *testing.T, s *system) {
	for i, conn := range s.conns {
		answer, err := grpc_health_v1.NewHealthClient(conn).Check(t.Context(), &grpc_health_v1.HealthCheckRequest{})
		if err != nil || answer.GetStatus() != grpc_health_v1.HealthCheckResponse_SERVING {
			t.Errorf("node %d: %v, %v", i, answer, err)
		}
	}
}

func everyNode(t *testing.T, s *system) {
	for i, accepting := range s.nodes {
		id := submit(t, accepting, work(0, 10), "").GetJobId()
		for j, asked := range s.nodes {
			if _, err := asked.GetJobStatus(t.Context(), &publicpb.GetJobStatusRequest{JobId: id}); err != nil {
				t.Errorf("accepted by node %d, status from node %d: %v", i, j, err)
			}
			if _, err := asked.GetJobResult(t.Context(), &publicpb.GetJobResultRequest{JobId: id}); err != nil {
				t.Errorf("accepted by node %d, result from node %d: %v", i, j, err)
			}
		}
		if _, err := s.nodes[(i+1)%len(s.nodes)].CancelJob(t.Context(), &publicpb.CancelJobRequest{JobId: id}); err != nil {
			t.Errorf("accepted by node %d, canceled by the next: %v", i, err)
		}
		list, err := accepting.ListJobs(t.Context(), &publicpb.ListJobsRequest{})
		if err != nil || len(list.GetJobs()) == 0 {
			t.Errorf("node %d lists %v, %v", i, list, err)
		}
	}
}
