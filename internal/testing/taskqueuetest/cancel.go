package taskqueuetest

import (
	"strings"
	"sync"
	"testing"

	"google.golang.org/protobuf/proto"

	publicpb "github.com/gopherqueue/gq/api/taskqueue/v1"
	"github.com/gopherqueue/gq/internal/taskwork"
)

var cancelCases = []testCase{
	{
		name: "Cancel/Queued", clause: "a queued job is CANCELED at once, and repeats are told that it had ended",
		Covers: []string{"T-37", "T-98", "T-100", "T-108", "T-145", "T-153", "T-155", "T-157", "T-158", "T-219", "T-224"},
		run:    cancelQueued,
	},
	{
		name: "Cancel/Running", clause: "canceling a running job is accepted; asked for before the outcome, it ends the job CANCELED",
		Covers: []string{"T-37", "T-83", "T-99", "T-145", "T-153", "T-156", "T-266"},
		run:    cancelRunning,
	},
	{
		name: "Cancel/Ended", clause: "canceling a job that has ended is no error and changes nothing",
		Covers: []string{"T-209", "T-219", "T-243", "T-244"},
		run:    cancelEnded,
	},
	{
		name: "Cancel/Race", clause: "however cancel and completion meet, status and result agree and stay",
		Covers: []string{"T-93", "T-96", "T-99", "T-243", "T-256", "T-260"},
		run:    cancelRace,
	},
}

func cancelQueued(t *testing.T, s *system) {
	s.occupy(t)
	id := submit(t, s.first(), work(0, 10), "").GetJobId()
	first := s.cancel(t, id, "changed my mind")
	if first.GetJobId() != id || !first.GetAccepted() || first.GetCurrentStatus() != publicpb.JobStatus_CANCELED || first.GetAlreadyTerminal() {
		t.Fatalf("cancel answers %v", first)
	}
	now := s.status(t, id)
	if now.GetJobId() != id || now.GetStatus() != publicpb.JobStatus_CANCELED || !now.GetCancelRequested() || now.GetStartedAtMs() != 0 || now.GetFinishedAtMs() == 0 || now.GetFailureReason() != "" {
		t.Errorf("status %v", now)
	}
	got := s.result(t, id)
	if !got.GetResultReady() || got.GetTerminalStatus() != publicpb.JobStatus_CANCELED || len(got.GetOutputBytes()) > 0 ||
		!strings.Contains(got.GetOutputSummary(), "changed my mind") || got.GetChecksum() != taskwork.EmptyChecksum {
		t.Errorf("result %v", got)
	}
	second := s.cancel(t, id, "again")
	if !second.GetAccepted() || second.GetCurrentStatus() != publicpb.JobStatus_CANCELED || !second.GetAlreadyTerminal() {
		t.Errorf("second cancel answers %v", second)
	}
	if third := s.cancel(t, id, "and again"); !proto.Equal(second, third) {
		t.Errorf("repeats answer %v and %v", second, third)
	}
}

func cancelRunning(t *testing.T, s *system) {
	id := submit(t, s.first(), work(60_000, 10), "").GetJobId() // it ends sooner, once its worker learns of the cancel
	if before := s.until(t, id, is(publicpb.JobStatus_RUNNING)); before.GetJobId() != id || before.GetCancelRequested() {
		t.Errorf("status before the request %v", before)
	}
	first := s.cancel(t, id, "no longer needed")
	if !first.GetAccepted() || first.GetAlreadyTerminal() || first.GetCurrentStatus() != publicpb.JobStatus_RUNNING {
		t.Fatalf("cancel answers %v", first)
	}
	// The second changes nothing. Its answer depends on whether the worker has stopped by then.
	second := s.cancel(t, id, "again")
	stopped := second.GetCurrentStatus() == publicpb.JobStatus_CANCELED
	if !second.GetAccepted() || second.GetAlreadyTerminal() != stopped || !stopped && second.GetCurrentStatus() != publicpb.JobStatus_RUNNING {
		t.Fatalf("second cancel answers %v", second)
	}
	if now := s.status(t, id); now.GetJobId() != id || !now.GetCancelRequested() || now.GetFailureReason() != "" {
		t.Errorf("status after the request %v", now)
	}
	end := s.until(t, id, ended)
	got := s.result(t, id)
	if end.GetStatus() != publicpb.JobStatus_CANCELED || !end.GetCancelRequested() || end.GetFailureReason() != "" {
		t.Errorf("status %v", end)
	}
	if got.GetTerminalStatus() != publicpb.JobStatus_CANCELED || len(got.GetOutputBytes()) > 0 || !strings.Contains(got.GetOutputSummary(), "no longer needed") {
		t.Errorf("result %v", got)
	}
}

func cancelEnded(t *testing.T, s *system) {
	for _, size := range []uint32{10, taskwork.MaxOutputBytes + 1} { // DONE and FAILED
		id := submit(t, s.first(), work(0, size), "").GetJobId()
		before := s.until(t, id, ended)
		for range 2 {
			answer := s.cancel(t, id, "too late")
			if !answer.GetAccepted() || !answer.GetAlreadyTerminal() || answer.GetCurrentStatus() != before.GetStatus() {
				t.Errorf("cancel of a job that is %v answers %v", before.GetStatus(), answer)
			}
		}
		if after := s.status(t, id); !proto.Equal(before, after) {
			t.Errorf("status %v, after a cancel %v", before, after)
		}
	}
}

func cancelRace(t *testing.T, s *system) {
	var all sync.WaitGroup
	for i := range 48 {
		all.Go(func() {
			node := s.nodes[i%len(s.nodes)]
			accepted, err := node.SubmitJob(t.Context(), &publicpb.SubmitJobRequest{Spec: work(uint32(i%4), 1)})
			if err != nil {
				t.Errorf("submit: %v", err)
				return
			}
			id := accepted.GetJobId()
			for range 3 {
				if _, err := s.owner(id).CancelJob(t.Context(), &publicpb.CancelJobRequest{JobId: id}); err != nil {
					t.Errorf("cancel: %v", err)
				}
			}
			end := s.until(t, id, ended)
			got := s.result(t, id)
			if end.GetStatus() == publicpb.JobStatus_FAILED || got.GetTerminalStatus() != end.GetStatus() {
				t.Errorf("%s is %v and its result %v", id, end, got.GetTerminalStatus())
			}
			if again := s.status(t, id); !proto.Equal(again, end) {
				t.Errorf("%s was %v and is %v", id, end, again)
			}
		})
	}
	all.Wait()
}
