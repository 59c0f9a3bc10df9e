package main

import (
	"regexp"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	publicpb "github.com/gopherqueue/gq/api/taskqueue/v1"
	"github.com/gopherqueue/gq/internal/rpc"
)

var serving = regexp.MustCompile(`^listening http=\S+ grpc=(127\.0\.0\.1:\d+)\n$`)

// beginServe runs a server in memory and returns the address of its gRPC API.
func beginServe(t *testing.T, env map[string]string, args ...string) string {
	t.Helper()
	r := begin(t, env, append([]string{"serve", "--store", "memory:", "--http", "127.0.0.1:0", "--grpc", "127.0.0.1:0", "--log-format", "json"}, args...)...)
	m := serving.FindStringSubmatch(r.line)
	if m == nil {
		t.Fatalf("first line %q, and %v", r.line, r.stderr.Lines(t, ""))
	}
	t.Cleanup(func() {
		if status := r.end(); status != 0 {
			t.Errorf("ended with %d", status)
		}
	})
	return m[1]
}

func TestServeTaskQueue(t *testing.T) {
	addr := beginServe(t, nil, "--taskqueue-slots", "2")
	idle := func(stdout string) bool { return strings.Contains(stdout, " 0 jobs accepted") }
	got := loadUntilNot(t, idle, "--target", addr)
	if got.status != 0 || !strings.Contains(got.stdout, " 0 wrong answers") || idle(got.stdout) {
		t.Errorf("status %d\n%s%s", got.status, got.stdout, got.stderr)
	}
}

// The service is there without workers too, and asks who calls where that is
// asked. Its own workers need no token.
func TestServeTaskQueueAsksWhoCalls(t *testing.T) {
	const token = "0123456789abcdef0123456789abcdef"
	for _, slots := range []string{"0", "1"} {
		addr := beginServe(t, map[string]string{"GQ_ADMIN_TOKEN": token}, "--auth-required", "--taskqueue-slots", slots)
		conn, err := rpc.DialPatiently(addr, "test", patience)
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
