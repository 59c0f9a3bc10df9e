package main

import (
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	publicpb "github.com/gopherqueue/gq/api/taskqueue/v1"
	"github.com/gopherqueue/gq/internal/designs/load"
	"github.com/gopherqueue/gq/internal/designs/rpc"
)

func TestServeTaskQueue(t *testing.T) {
	s := startServer(t, nil, "--store", "memory:", "--taskqueue-slots", "2")
	settings := load.DefaultSettings()
	settings.Targets, settings.Concurrency = []string{s.grpc}, 2
	settings.Warmup, settings.Duration = 50*time.Millisecond, 300*time.Millisecond
	for ; ; settings.Duration *= 5 { // a machine may be busy for all of a short run
		report, err := load.Run(t.Context(), settings)
		if err != nil {
			t.Fatal(err)
		}
		if !report.Correct() || settings.Duration > time.Minute {
			t.Fatalf("%d jobs accepted, %d wrong answers: %v", report.Jobs.Accepted, report.Violations, report.Examples)
		}
		if report.Jobs.Done > 0 && len(report.Errors) == 0 {
			break
		}
	}
}

// The service works without workers too, and authenticates callers if required. Its own
// workers need no token.
func TestServeTaskQueueAsksWhoCalls(t *testing.T) {
	const token = "0123456789abcdef0123456789abcdef"
	for _, slots := range []string{"0", "1"} {
		s := startServer(t, []string{"GQ_ADMIN_TOKEN=" + token}, "--store", "memory:", "--auth-required", "--taskqueue-slots", slots)
		conn, err := rpc.DialPatiently(s.grpc, "test", patience)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		c := publicpb.NewTaskQueuePublicServiceClient(conn)
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
