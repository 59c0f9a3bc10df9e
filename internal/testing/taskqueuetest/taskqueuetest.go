// Package taskqueuetest is the public contract of the task queue as a test suite. It
// uses a design only through its public addresses, so that the same cases require the
// same behaviour of every design. Each case names its clause.
package taskqueuetest

import (
	"context"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	publicpb "github.com/gopherqueue/gq/api/taskqueue/v1"
	"github.com/gopherqueue/gq/internal/retry"
	"github.com/gopherqueue/gq/internal/taskwork"
	"github.com/gopherqueue/gq/internal/testing/spec"
)

// A Target is a running design. It may have other jobs.
type Target struct {
	Addresses []string // public, in the order of their nodes
	Slots     int      // jobs that run at the same time, on all nodes together
}

type testCase struct {
	name   string
	clause string
	Covers []string // requirements that the case pins
	run    func(*testing.T, *system)
}

// Run runs every case on one target. The cases run one after the other, since some need
// all worker slots.
func Run(t *testing.T, target Target) {
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			spec.Covers(t, c.Covers...)
			defer func() {
				if t.Failed() {
					t.Logf("clause: %s", c.clause)
				}
			}()
			c.run(t, connect(t, target))
		})
	}
}

var cases = slicesOf(surfaceCases, submitCases, lifeCases, cancelCases, listCases, errorCases)

func slicesOf(groups ...[]testCase) (all []testCase) {
	for _, g := range groups {
		all = append(all, g...)
	}
	return all
}

// system is a client of a target.
type system struct {
	Target
	conns []*grpc.ClientConn
	nodes []publicpb.TaskQueuePublicServiceClient
}

func connect(t *testing.T, target Target) *system {
	s := &system{Target: target}
	for _, addr := range target.Addresses {
		conn := Dial(t, addr)
		s.conns = append(s.conns, conn)
		s.nodes = append(s.nodes, publicpb.NewTaskQueuePublicServiceClient(conn))
	}
	return s
}

// first returns the node that gets all unkeyed submits of cases that list jobs.
func (s *system) first() publicpb.TaskQueuePublicServiceClient { return s.nodes[0] }

// owner returns the node to ask about a job.
func (s *system) owner(id string) publicpb.TaskQueuePublicServiceClient {
	return s.nodes[taskwork.Owner(id, len(s.nodes))]
}

func work(ms, bytes uint32) *publicpb.JobSpec {
	return &publicpb.JobSpec{JobType: "contract", WorkDurationMs: ms, PayloadSizeBytes: bytes}
}

func submit(t *testing.T, node publicpb.TaskQueuePublicServiceClient, job *publicpb.JobSpec, key string) *publicpb.SubmitJobResponse {
	t.Helper()
	answer, err := node.SubmitJob(t.Context(), &publicpb.SubmitJobRequest{Spec: job, ClientRequestId: key})
	if err != nil {
		t.Fatalf("submit: %v", err)
	}
	return answer
}

func (s *system) status(t *testing.T, id string) *publicpb.GetJobStatusResponse {
	t.Helper()
	answer, err := s.owner(id).GetJobStatus(t.Context(), &publicpb.GetJobStatusRequest{JobId: id})
	if err != nil {
		t.Fatalf("status of %s: %v", id, err)
	}
	return answer
}

func (s *system) result(t *testing.T, id string) *publicpb.GetJobResultResponse {
	t.Helper()
	answer, err := s.owner(id).GetJobResult(t.Context(), &publicpb.GetJobResultRequest{JobId: id})
	if err != nil {
		t.Fatalf("result of %s: %v", id, err)
	}
	return answer
}

func (s *system) cancel(t *testing.T, id, reason string) *publicpb.CancelJobResponse {
	t.Helper()
	answer, err := s.owner(id).CancelJob(t.Context(), &publicpb.CancelJobRequest{JobId: id, Reason: reason})
	if err != nil {
		t.Fatalf("cancel %s: %v", id, err)
	}
	return answer
}

// until waits until a job satisfies a condition and returns its status then.
func (s *system) until(t *testing.T, id string, condition func(*publicpb.GetJobStatusResponse) bool) *publicpb.GetJobStatusResponse {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for {
		answer := s.status(t, id)
		if condition(answer) {
			return answer
		}
		if !retry.Pause(ctx, 10*time.Millisecond) {
			t.Fatalf("%s stays %v", id, answer)
		}
	}
}

func is(want publicpb.JobStatus) func(*publicpb.GetJobStatusResponse) bool {
	return func(s *publicpb.GetJobStatusResponse) bool { return s.GetStatus() == want }
}

func ended(s *publicpb.GetJobStatusResponse) bool { return s.GetStatus() > publicpb.JobStatus_RUNNING }

// AwaitEnd waits until a job of a target has ended.
func AwaitEnd(t *testing.T, target Target, id string) {
	t.Helper()
	connect(t, target).until(t, id, ended)
}

// occupy fills every slot that jobs of the first node could get, until the test ends:
// later jobs there stay QUEUED. It submits twice as many jobs as there are slots, in
// case a job is lost in transit to one.
func (s *system) occupy(t *testing.T) {
	t.Helper()
	var ids []string
	for range 2 * s.Slots {
		ids = append(ids, submit(t, s.first(), work(60_000, 0), "").GetJobId())
	}
	t.Cleanup(func() {
		for _, id := range ids {
			// The test's own context has ended.
			if _, err := s.owner(id).CancelJob(context.Background(), &publicpb.CancelJobRequest{JobId: id, Reason: "end of test"}); err != nil {
				t.Errorf("release a slot: %v", err)
			}
		}
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		for _, id := range ids {
			for retry.Pause(ctx, 10*time.Millisecond) {
				answer, err := s.owner(id).GetJobStatus(ctx, &publicpb.GetJobStatusRequest{JobId: id})
				if err == nil && ended(answer) {
					break
				}
			}
		}
	})
	s.until(t, ids[0], is(publicpb.JobStatus_RUNNING))
}

func wantCode(t *testing.T, what string, err error, want codes.Code) {
	t.Helper()
	if status.Code(err) != want {
		t.Errorf("%s: %v, want code %v", what, err, want)
	}
}
