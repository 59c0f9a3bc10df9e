package e2e_test

import (
	"strconv"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	publicpb "github.com/gopherqueue/gq/api/taskqueue/v1"
	"github.com/gopherqueue/gq/internal/taskwork"
	"github.com/gopherqueue/gq/internal/testing/taskqueuetest"
)

// The service runs the jobs of several clients at once, and each gets what its own produced.
func TestServeTaskQueue(t *testing.T) {
	s := startServer(t, nil, "--store", "memory:", "--taskqueue-slots", "2")
	for client := range 4 {
		t.Run(strconv.Itoa(client), func(t *testing.T) {
			t.Parallel()
			c := publicpb.NewTaskQueuePublicServiceClient(taskqueuetest.Dial(t, s.grpc))
			ids := make([]string, 25)
			size := func(i int) uint32 { return uint32(100*client + i) }
			for i := range ids {
				answer, err := c.SubmitJob(t.Context(), &publicpb.SubmitJobRequest{Spec: &publicpb.JobSpec{JobType: "x", PayloadSizeBytes: size(i)}})
				if err != nil {
					t.Fatal(err)
				}
				ids[i] = answer.GetJobId()
			}
			for i, id := range ids {
				var got *publicpb.GetJobResultResponse
				for !got.GetResultReady() {
					var err error
					if got, err = c.GetJobResult(t.Context(), &publicpb.GetJobResultRequest{JobId: id}); err != nil {
						t.Fatal(err)
					}
				}
				if got.GetTerminalStatus() != publicpb.JobStatus_DONE || !taskwork.Matches(got.GetOutputBytes(), "x", size(i)) {
					t.Errorf("the job of %d bytes is %v with %d bytes", size(i), got.GetTerminalStatus(), len(got.GetOutputBytes()))
				}
			}
		})
	}
}

// The service works without workers too, and authenticates callers if required. Its own
// workers need no token.
func TestServeTaskQueueAsksWhoCalls(t *testing.T) {
	const token = "0123456789abcdef0123456789abcdef"
	for _, slots := range []string{"0", "1"} {
		s := startServer(t, []string{"GQ_ADMIN_TOKEN=" + token}, "--store", "memory:", "--auth-required", "--taskqueue-slots", slots)
		c := publicpb.NewTaskQueuePublicServiceClient(taskqueuetest.Dial(t, s.grpc))
		request := &publicpb.SubmitJobRequest{Spec: &publicpb.JobSpec{JobType: "x"}}
		if _, err := c.SubmitJob(t.Context(), request); status.Code(err) != codes.Unauthenticated {
			t.Errorf("without a token: %v", err)
		}
		ctx := metadata.AppendToOutgoingContext(t.Context(), "authorization", "Bearer "+token)
		answer, err := c.SubmitJob(ctx, request)
		if err != nil {
			t.Fatal(err)
		}
		want := publicpb.JobStatus_QUEUED
		if slots != "0" {
			want = publicpb.JobStatus_DONE
		}
		for now := publicpb.JobStatus_JOB_STATUS_UNSPECIFIED; now != want; {
			got, err := c.GetJobStatus(ctx, &publicpb.GetJobStatusRequest{JobId: answer.GetJobId()})
			if err != nil {
				t.Fatal(err)
			}
			now = got.GetStatus()
		}
	}
}
