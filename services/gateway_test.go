package services_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	publicpb "github.com/gopherqueue/gq/api/taskqueue/v1"
	"github.com/gopherqueue/gq/internal/testing/spec"
	internalpb "github.com/gopherqueue/gq/services/api/taskqueueinternal/v1"
	"github.com/gopherqueue/gq/services/coordinator"
	"github.com/gopherqueue/gq/services/internal/rpc"
	"github.com/gopherqueue/gq/services/queue"
)

func wantCalls(t *testing.T, p *tap, want ...string) {
	t.Helper()
	if got := p.taken(); !slices.Equal(got, want) {
		t.Errorf("calls %v, want %v", got, want)
	}
}

func bare(key string) *publicpb.SubmitJobRequest {
	return &publicpb.SubmitJobRequest{Spec: &publicpb.JobSpec{JobType: "x"}, ClientRequestId: key}
}

func TestSubmitCreatesThenEnqueues(t *testing.T) {
	spec.Covers(t, "T-78", "T-84", "T-256")
	w := wire(t)
	if _, err := w.gateway.SubmitJob(t.Context(), bare("")); err != nil {
		t.Fatal(err)
	}
	wantCalls(t, w.fromGateway, "CreateJob", "EnqueueJob")
}

func TestSubmitTakesBackWhatCannotBeQueued(t *testing.T) {
	spec.Covers(t, "T-78", "T-84", "T-85", "T-86", "T-256")
	w := wire(t)
	w.fromGateway.set("EnqueueJob", errDown)
	_, err := w.gateway.SubmitJob(t.Context(), bare("key"))
	if status.Code(err) != codes.Unavailable {
		t.Fatalf("submit: %v", err)
	}
	wantCalls(t, w.fromGateway, "CreateJob", "EnqueueJob", "DeleteJobIfStatus")
	list, err := w.gateway.ListJobs(t.Context(), &publicpb.ListJobsRequest{})
	if err != nil || len(list.GetJobs()) > 0 {
		t.Errorf("jobs are left: %v, %v", list, err)
	}
	w.fromGateway.set("EnqueueJob", nil) // the key is free again
	if id := w.submit("key"); id == "" {
		t.Error("no job")
	}
	if lines := w.journal.Lines(t, rpc.EventAnomaly); len(lines) > 0 {
		t.Errorf("anomalies: %v", lines)
	}
}

func TestSubmitReportsWhatCannotBeTakenBack(t *testing.T) {
	spec.Covers(t, "T-87", "T-94")
	w := wire(t)
	w.fromGateway.set("EnqueueJob", errDown)
	w.fromGateway.set("DeleteJobIfStatus", errDown)
	_, err := w.gateway.SubmitJob(t.Context(), bare(""))
	if status.Code(err) != codes.Unavailable {
		t.Fatalf("submit: %v", err)
	}
	list, err := w.gateway.ListJobs(t.Context(), &publicpb.ListJobsRequest{})
	if err != nil || len(list.GetJobs()) != 1 {
		t.Fatalf("list: %v, %v", list, err)
	}
	w.logged(rpc.EventAnomaly, "queued_not_in_queue", list.GetJobs()[0].GetJobId())
}

func TestSubmitIsAcceptedIfTheAnswerWasLost(t *testing.T) {
	w := wire(t)
	w.beat("w")
	w.fromGateway.setLost("EnqueueJob", errDown)
	w.fromGateway.before("DeleteJobIfStatus", func() { w.fetch("w") }) // it was queued, and is fetched
	answer, err := w.gateway.SubmitJob(t.Context(), bare(""))
	if err != nil {
		t.Fatalf("submit: %v", err)
	}
	w.stands(answer.GetJobId(), running)
}

func TestSubmitToAFullQueue(t *testing.T) {
	spec.Covers(t, "T-213")
	w := wire(t, func(_ *coordinator.Config, q *queue.Config) { q.MaxJobs = 2 })
	w.submit("")
	w.submit("")
	_, err := w.gateway.SubmitJob(t.Context(), bare(""))
	if status.Code(err) != codes.ResourceExhausted {
		t.Errorf("submit to a full queue: %v", err)
	}
	list, err := w.gateway.ListJobs(t.Context(), &publicpb.ListJobsRequest{})
	if err != nil || len(list.GetJobs()) != 2 {
		t.Errorf("list: %v, %v", list, err)
	}
}

func TestRepeatedSubmitEnqueuesOnlyWhatIsQueued(t *testing.T) {
	w := wire(t)
	id := w.submit("key")
	w.beat("w")
	w.given("w", id)
	if again := w.submit("key"); again != id {
		t.Errorf("repeat answers %s", again)
	}
	if answer := w.fetch("w"); answer.GetAssigned() {
		t.Errorf("a running job was queued again: %v", answer)
	}
}

// A repeat that cannot be queued deletes nothing: the job was accepted before, and
// keeps its place.
func TestRepeatedSubmitNeverTakesBack(t *testing.T) {
	spec.Covers(t, "T-46")
	w := wire(t)
	first, err := w.gateway.SubmitJob(t.Context(), bare("key"))
	if err != nil {
		t.Fatal(err)
	}
	id := first.GetJobId()
	w.fromGateway.set("EnqueueJob", errDown)
	if _, err := w.gateway.SubmitJob(t.Context(), bare("key")); status.Code(err) != codes.Unavailable {
		t.Errorf("a repeat while the queue is down: %v", err)
	}
	w.stands(id, queued)
	w.fromGateway.set("EnqueueJob", nil)
	if again, err := w.gateway.SubmitJob(t.Context(), bare("key")); err != nil || again.GetJobId() != id {
		t.Errorf("a repeat afterwards answers %v, %v", again, err)
	}
	w.beat("w")
	w.given("w", id)
}

// A repeat waits for the submit that has its key, and gets a new job if that one was
// undone.
func TestSubmitsWithOneKeyFollowEachOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := wire(t)
		release := make(chan struct{})
		w.fromGateway.set("EnqueueJob", errDown)
		w.fromGateway.before("EnqueueJob", func() { <-release })
		first, second := make(chan error), make(chan error)
		go func() { _, err := w.gateway.SubmitJob(t.Context(), bare("key")); first <- err }()
		synctest.Wait()
		go func() { _, err := w.gateway.SubmitJob(t.Context(), bare("key")); second <- err }()
		synctest.Wait()
		wantCalls(t, w.fromGateway, "CreateJob", "EnqueueJob") // the second has done nothing yet
		impatient, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := w.gateway.SubmitJob(impatient, bare("key")); status.Code(err) != codes.Canceled {
			t.Errorf("a submit that was given up: %v", err)
		}
		close(release)
		if err := <-first; status.Code(err) != codes.Unavailable {
			t.Errorf("first: %v", err)
		}
		if err := <-second; status.Code(err) != codes.Unavailable {
			t.Errorf("second: %v", err)
		}
		w.fromGateway.set("EnqueueJob", nil)
		w.submit("key")
	})
}

func TestCancelQueuedRemovesStoresThenMarks(t *testing.T) {
	spec.Covers(t, "T-75", "T-82", "T-92", "T-117", "T-242")
	w := wire(t)
	id := w.submit("")
	if answer := w.cancel(id); answer.GetCurrentStatus() != canceled || answer.GetAlreadyTerminal() {
		t.Errorf("cancel answers %v", answer)
	}
	wantCalls(t, w.fromGateway, "GetJobRecord", "RemoveJobIfPresent", "StoreResult", "TransitionJobStatus")
	w.stands(id, canceled)
	w.beat("w")
	if answer := w.fetch("w"); answer.GetAssigned() {
		t.Errorf("a canceled job is handed out: %v", answer)
	}
}

func TestCancelThatLosesTheRaceFlags(t *testing.T) {
	spec.Covers(t, "T-101", "T-102", "T-245", "T-260")
	w := wire(t)
	id := w.submit("")
	w.beat("w")
	w.fromGateway.before("RemoveJobIfPresent", func() { w.given("w", id) }) // dequeued after the gateway looked
	answer := w.cancel(id)
	if !answer.GetAccepted() || answer.GetCurrentStatus() != running || answer.GetAlreadyTerminal() {
		t.Errorf("cancel answers %v", answer)
	}
	wantCalls(t, w.fromGateway, "GetJobRecord", "RemoveJobIfPresent", "SetCancelRequested")
	if !w.stands(id, running).GetCancelRequested() {
		t.Error("the flag is not set")
	}
	if !w.report("w", id, internalpb.JobOutcome_SUCCEEDED) {
		t.Error("the outcome was refused")
	}
	if end := w.stands(id, canceled); end.GetFailureReason() != "" {
		t.Errorf("end %v", end)
	}
}

func TestCancelOfAJobOutsideTheQueueIsAnAnomaly(t *testing.T) {
	spec.Covers(t, "T-94", "T-95")
	synctest.Test(t, func(t *testing.T) {
		w := wire(t)
		id := w.submit("")
		if _, err := w.queue.DequeueJob(t.Context(), &internalpb.DequeueJobRequest{}); err != nil { // and lost
			t.Fatal(err)
		}
		answer := w.cancel(id)
		if !answer.GetAccepted() || answer.GetCurrentStatus() != queued {
			t.Errorf("cancel answers %v", answer)
		}
		w.logged(rpc.EventAnomaly, "queued_not_in_queue", id)
		if now := w.stands(id, queued); !now.GetCancelRequested() { // reported, not repaired
			t.Errorf("status %v", now)
		}
	})
}

func TestCancelBetweenCreateAndEnqueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := wire(t)
		var id string
		w.fromGateway.before("EnqueueJob", func() {
			list, err := w.gateway.ListJobs(t.Context(), &publicpb.ListJobsRequest{})
			if err != nil {
				t.Error(err)
				return
			}
			id = list.GetJobs()[0].GetJobId()
			if _, err := w.jobs.SetCancelRequested(t.Context(), &internalpb.SetCancelRequestedRequest{JobId: id, CancelRequested: true, Reason: "early"}); err != nil {
				t.Error(err)
			}
		})
		if _, err := w.gateway.SubmitJob(t.Context(), bare("")); err != nil {
			t.Fatal(err)
		}
		w.beat("w")
		if answer := w.fetch("w"); answer.GetAssigned() {
			t.Errorf("a job whose cancellation was asked for is handed out: %v", answer)
		}
		w.stands(id, canceled)
	})
}

// A partial cancellation can be repeated and then ends the job; otherwise the
// coordinator ends it.
func TestCancelSurvivesPartialFailure(t *testing.T) {
	for _, broken := range []string{"StoreResult", "TransitionJobStatus"} {
		for _, repeated := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s/%t", broken, repeated), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					w := wire(t)
					id := w.submit("")
					w.fromGateway.set(broken, errDown)
					w.cancelInVain(id)
					w.fromGateway.set(broken, nil)
					if repeated {
						w.cancel(id)
					} else {
						w.beat("w")
						w.fetch("w")
					}
					w.stands(id, canceled)
				})
			})
		}
	}
}

// A job that may be out of the queue is put back when the queue answers again.
func TestCancelPutsBackLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		spec.Covers(t, "T-46")
		w := wire(t)
		id := w.submit("")
		w.fromGateway.setLost("RemoveJobIfPresent", errDown)
		w.fromGateway.set("EnqueueJob", errDown)
		w.cancelInVain(id)
		time.Sleep(time.Minute)
		w.stands(id, queued)
		w.fromGateway.set("EnqueueJob", nil)
		time.Sleep(2 * time.Second)
		w.beat("w")
		if answer := w.fetch("w"); answer.GetAssigned() {
			t.Errorf("a canceled job is handed out: %v", answer)
		}
		w.stands(id, canceled)
	})
}

// A job that has ended meanwhile is not put back.
func TestCancelPutsBackNothingThatHasEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := wire(t)
		id := w.submit("")
		w.fromGateway.set("StoreResult", errDown)
		w.fromGateway.set("EnqueueJob", errDown)
		w.cancelInVain(id)
		if _, err := w.jobs.TransitionJobStatus(t.Context(), &internalpb.TransitionJobStatusRequest{JobId: id, ExpectedFromStatus: queued, ToStatus: canceled}); err != nil {
			t.Fatal(err)
		}
		w.fromGateway.set("EnqueueJob", nil)
		time.Sleep(2 * time.Second)
		if answer, err := w.queue.DequeueJob(t.Context(), &internalpb.DequeueJobRequest{WorkerId: "w"}); err != nil || answer.GetFound() {
			t.Errorf("the queue has %v, %v", answer, err)
		}
	})
}

func TestCancelThatCannotPutBackIsAnAnomaly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		spec.Covers(t, "T-94")
		w := wire(t)
		id := w.submit("")
		w.fromGateway.set("StoreResult", errDown)
		w.fromGateway.set("EnqueueJob", errDown)
		w.cancelInVain(id)
		time.Sleep(11 * time.Minute)
		w.logged(rpc.EventAnomaly, "queued_not_in_queue", id)
	})
}

func TestResultThatIsMissing(t *testing.T) {
	spec.Covers(t, "T-93", "T-154", "T-215", "T-260", "T-261")
	w := wire(t)
	id := w.submit("")
	w.beat("w")
	w.given("w", id)
	// End the job without storing its result.
	if _, err := w.jobs.TransitionJobStatus(t.Context(), &internalpb.TransitionJobStatusRequest{JobId: id, ExpectedFromStatus: running, ToStatus: done}); err != nil {
		t.Fatal(err)
	}
	_, err := w.gateway.GetJobResult(t.Context(), &publicpb.GetJobResultRequest{JobId: id})
	if status.Code(err) != codes.Unavailable || !strings.Contains(err.Error(), "missing") {
		t.Errorf("result: %v", err)
	}
	w.logged(rpc.EventAnomaly, "terminal_without_result", id)
}

// The status is what the job service says, and changes only there.
func TestStatusIsTheJobServices(t *testing.T) {
	spec.Covers(t, "T-62", "T-73")
	w := wire(t)
	id := w.submit("")
	for _, move := range [][2]publicpb.JobStatus{{queued, running}, {running, failed}} {
		w.stands(id, move[0])
		if _, err := w.jobs.TransitionJobStatus(t.Context(), &internalpb.TransitionJobStatusRequest{JobId: id, ExpectedFromStatus: move[0], ToStatus: move[1], Reason: "r"}); err != nil {
			t.Fatal(err)
		}
	}
	now, err := w.gateway.GetJobStatus(t.Context(), &publicpb.GetJobStatusRequest{JobId: id})
	if err != nil || now.GetStatus() != failed || now.GetFailureReason() != "r" {
		t.Errorf("status %v, %v", now, err)
	}
}

// A gateway returns every field as the job service has it now: it caches nothing, not
// even that a job has ended.
func TestEveryStatusReadAsksTheJobService(t *testing.T) {
	spec.Covers(t, "T-51", "T-62", "T-145")
	w := wire(t)
	var says *internalpb.GetJobRecordResponse
	w.fromGateway.serve["GetJobRecord"] = func(context.Context, any) (any, error) { return says, nil }
	w.fromGateway.serve["ListJobRecords"] = func(context.Context, any) (any, error) {
		return &internalpb.ListJobRecordsResponse{Jobs: []*publicpb.JobSummary{says.GetSummary()}}, nil
	}
	const id = "01234567-89ab-4cde-8f01-23456789abcd"
	for i, status := range []publicpb.JobStatus{queued, running, failed, done, canceled, queued, failed} {
		for _, cancel := range []bool{false, true} {
			now := int64(1000 * (i + 1))
			says = &internalpb.GetJobRecordResponse{
				Summary: &publicpb.JobSummary{
					JobId: id, Status: status, JobType: fmt.Sprintf("type %d", i), CancelRequested: cancel,
					CreatedAtMs: now + 1, StartedAtMs: now + 2, FinishedAtMs: now + 3,
				},
				FailureReason: fmt.Sprintf("reason %d", i),
			}
			want := &publicpb.GetJobStatusResponse{JobId: id, Status: status, CancelRequested: cancel, CreatedAtMs: now + 1, StartedAtMs: now + 2, FinishedAtMs: now + 3}
			if status == failed {
				want.FailureReason = says.GetFailureReason()
			}
			for range 2 {
				got, err := w.gateway.GetJobStatus(t.Context(), &publicpb.GetJobStatusRequest{JobId: id})
				if err != nil || !proto.Equal(got, want) {
					t.Errorf("status %v, %v; the job service says %v", got, err, want)
				}
				wantCalls(t, w.fromGateway, "GetJobRecord")
			}
			list, err := w.gateway.ListJobs(t.Context(), &publicpb.ListJobsRequest{})
			if err != nil || len(list.GetJobs()) != 1 || !proto.Equal(list.GetJobs()[0], says.GetSummary()) {
				t.Errorf("list %v, %v; the job service says %v", list, err, says)
			}
			w.fromGateway.taken()
		}
	}
}

// Every call whose service is down returns UNAVAILABLE.
func TestDownstreamIsDown(t *testing.T) {
	spec.Covers(t, "T-214")
	w := wire(t)
	id := w.submit("")
	for method, call := range map[string]func() error{
		"CreateJob":      func() error { _, err := w.gateway.SubmitJob(t.Context(), bare("")); return err },
		"ListJobRecords": func() error { _, err := w.gateway.ListJobs(t.Context(), &publicpb.ListJobsRequest{}); return err },
		"GetJobRecord": func() error {
			_, err := w.gateway.GetJobStatus(t.Context(), &publicpb.GetJobStatusRequest{JobId: id})
			return err
		},
		"RemoveJobIfPresent": func() error {
			_, err := w.gateway.CancelJob(t.Context(), &publicpb.CancelJobRequest{JobId: id})
			return err
		},
	} {
		w.fromGateway.set(method, errDown)
		if err := call(); status.Code(err) != codes.Unavailable {
			t.Errorf("%s is down: %v", method, err)
		}
		w.fromGateway.set(method, nil)
	}
}
