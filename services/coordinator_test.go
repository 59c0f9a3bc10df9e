package services_test

import (
	"context"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	publicpb "github.com/gopherqueue/gq/api/taskqueue/v1"
	"github.com/gopherqueue/gq/internal/taskwork"
	"github.com/gopherqueue/gq/internal/testing/spec"
	internalpb "github.com/gopherqueue/gq/services/api/taskqueueinternal/v1"
	"github.com/gopherqueue/gq/services/coordinator"
	"github.com/gopherqueue/gq/services/internal/rpc"
	"github.com/gopherqueue/gq/services/queue"
)

func TestDispatchDequeuesStartsThenAssigns(t *testing.T) {
	spec.Covers(t, "T-39", "T-74", "T-79", "T-88", "T-118", "T-119", "T-180", "T-258")
	w := wire(t)
	id := w.submit("")
	w.beat("w")
	answer := w.fetch("w")
	if !answer.GetAssigned() || answer.GetJobId() != id || answer.GetSpec().GetJobType() != "x" || answer.GetSpec().GetWorkDurationMs() != 5 {
		t.Errorf("fetch answers %v", answer)
	}
	wantCalls(t, w.fromCoordinator, "DequeueJob", "TransitionJobStatus", "GetJobRecord")
	w.stands(id, running)
	for _, l := range w.journal.Lines(t, "transition") {
		if l.Text("actor") != "coordinator" || l.Text("to_status") != "RUNNING" {
			t.Errorf("transition %v", l)
		}
	}
}

func TestDispatchLosesToCancel(t *testing.T) {
	spec.Covers(t, "T-79", "T-89", "T-258")
	w := wire(t)
	id := w.submit("")
	w.beat("w")
	w.fromCoordinator.before("TransitionJobStatus", func() { // after the job was dequeued
		if _, err := w.results.StoreResult(t.Context(), &internalpb.StoreResultRequest{JobId: id, TerminalStatus: canceled}); err != nil {
			t.Error(err)
		}
		if _, err := w.jobs.TransitionJobStatus(t.Context(), &internalpb.TransitionJobStatusRequest{JobId: id, ExpectedFromStatus: queued, ToStatus: canceled, Actor: "gateway"}); err != nil {
			t.Error(err)
		}
	})
	if answer := w.fetch("w"); answer.GetAssigned() {
		t.Errorf("a canceled job is handed out: %v", answer)
	}
	w.logged("dispatch_race", "", id)
	w.stands(id, canceled)
}

// A job is never forgotten because a service did not answer.
func TestDispatchKeepsWhatItCouldNotStart(t *testing.T) {
	spec.Covers(t, "T-46")
	for _, broken := range []string{"DequeueJob", "TransitionJobStatus", "GetJobRecord"} {
		for _, lost := range []bool{false, true} {
			w := wire(t)
			id := w.submit("")
			w.beat("w")
			breakIt := w.fromCoordinator.set
			if lost {
				breakIt = w.fromCoordinator.setLost
			}
			breakIt(broken, errDown)
			_, err := w.coordinator.FetchWork(t.Context(), &internalpb.FetchWorkRequest{WorkerId: "w"})
			if status.Code(err) != codes.Unavailable {
				t.Fatalf("fetch while %s fails: %v", broken, err)
			}
			if broken != "DequeueJob" { // it returned no job
				w.logged("dispatch_postponed", "", id)
			}
			breakIt(broken, nil)
			w.given("w", id)
			w.stands(id, running)
			if again := w.fetch("w"); again.GetAssigned() {
				t.Errorf("handed out twice: %v", again)
			}
		}
	}
}

func TestDispatchKeepsWhatNobodyWaitsFor(t *testing.T) {
	w := wire(t)
	id := w.submit("")
	w.beat("w")
	ctx, cancel := context.WithCancel(t.Context())
	w.fromCoordinator.before("GetJobRecord", cancel)
	if _, err := w.coordinator.FetchWork(ctx, &internalpb.FetchWorkRequest{WorkerId: "w"}); status.Code(err) != codes.Canceled {
		t.Fatalf("fetch: %v", err)
	}
	w.given("w", id)
}

func TestDispatchReportsUnknownJobs(t *testing.T) {
	spec.Covers(t, "T-46")
	w := wire(t)
	if _, err := w.queue.EnqueueJob(t.Context(), &internalpb.EnqueueJobRequest{JobId: "ghost"}); err != nil {
		t.Fatal(err)
	}
	w.beat("w")
	if answer := w.fetch("w"); answer.GetAssigned() {
		t.Errorf("fetch answers %v", answer)
	}
	w.logged(rpc.EventAnomaly, "queued_but_unknown", "ghost")
}

func TestDispatchOfAJobQueuedTwice(t *testing.T) {
	w := wire(t)
	id := w.submit("")
	w.beat("w")
	w.given("w", id)
	if _, err := w.queue.EnqueueJob(t.Context(), &internalpb.EnqueueJobRequest{JobId: id}); err != nil {
		t.Fatal(err)
	}
	if answer := w.fetch("w"); answer.GetAssigned() {
		t.Errorf("handed out twice: %v", answer)
	}
	w.logged("dispatch_race", "", id)
}

func TestOutcomesStoreThenMark(t *testing.T) {
	spec.Covers(t, "T-57", "T-80", "T-81", "T-90", "T-147", "T-152", "T-183", "T-235", "T-260")
	for outcome, want := range map[internalpb.JobOutcome]publicpb.JobStatus{
		internalpb.JobOutcome_SUCCEEDED: done, internalpb.JobOutcome_FAILED: failed, internalpb.JobOutcome_CANCELED: canceled,
	} {
		w := wire(t)
		id := w.submit("")
		w.beat("w")
		w.given("w", id)
		w.fromCoordinator.taken()
		if !w.report("w", id, outcome) {
			t.Errorf("%v is refused", outcome)
		}
		wantCalls(t, w.fromCoordinator, "GetJobRecord", "StoreResult", "TransitionJobStatus")
		end := w.stands(id, want)
		got, err := w.gateway.GetJobResult(t.Context(), &publicpb.GetJobResultRequest{JobId: id})
		if err != nil || got.GetRuntimeMs() != 7 || string(got.GetOutputBytes()) != "w" {
			t.Errorf("result %v, %v", got, err)
		}
		if want == failed && (end.GetFailureReason() != "broken" || got.GetOutputSummary() != "broken") || want != failed && end.GetFailureReason() != "" {
			t.Errorf("failure %q, summary %q", end.GetFailureReason(), got.GetOutputSummary())
		}
		if !w.report("w", id, outcome) {
			t.Errorf("a repeat of %v is refused", outcome)
		}
		w.stands(id, want)
	}
}

func TestConflictingOutcomes(t *testing.T) {
	spec.Covers(t, "T-91", "T-96", "T-97", "T-235", "T-256")
	w := wire(t)
	id := w.submit("")
	w.beat("w")
	w.given("w", id)
	if !w.report("w", id, internalpb.JobOutcome_SUCCEEDED) || w.report("other", id, internalpb.JobOutcome_FAILED) {
		t.Error("the first outcome must be accepted, the second not")
	}
	w.logged("terminal_race", "", id)
	w.stands(id, done)
}

// Another terminal status may win between the coordinator's read and its write.
func TestOutcomeLosesTheLastRace(t *testing.T) {
	spec.Covers(t, "T-91", "T-97")
	w := wire(t)
	id := w.submit("")
	w.beat("w")
	w.given("w", id)
	w.fromCoordinator.before("TransitionJobStatus", func() {
		if _, err := w.jobs.TransitionJobStatus(t.Context(), &internalpb.TransitionJobStatusRequest{JobId: id, ExpectedFromStatus: running, ToStatus: failed}); err != nil {
			t.Error(err)
		}
	})
	if w.report("w", id, internalpb.JobOutcome_SUCCEEDED) {
		t.Error("accepted")
	}
	w.logged("terminal_race", "", id)
	w.logged("terminal_conflict", "", id)
	if now, err := w.gateway.GetJobStatus(t.Context(), &publicpb.GetJobStatusRequest{JobId: id}); err != nil || now.GetStatus() != failed {
		t.Errorf("status %v, %v", now, err)
	}
}

// The envelope stored first decides, even if its writer never wrote the status.
func TestFirstEnvelopeWins(t *testing.T) {
	w := wire(t)
	id := w.submit("")
	w.beat("w")
	w.given("w", id)
	if _, err := w.results.StoreResult(t.Context(), &internalpb.StoreResultRequest{JobId: id, TerminalStatus: failed, OutputSummary: "first"}); err != nil {
		t.Fatal(err)
	}
	w.report("w", id, internalpb.JobOutcome_SUCCEEDED)
	w.stands(id, failed)
	w.logged("result_conflict", "", id)
}

func TestDoubleOutcomeRace(t *testing.T) {
	spec.Covers(t, "T-96", "T-235", "T-256")
	for range 20 {
		w := wire(t)
		id := w.submit("")
		w.beat("w")
		w.given("w", id)
		outcomes := []internalpb.JobOutcome{internalpb.JobOutcome_SUCCEEDED, internalpb.JobOutcome_FAILED}
		accepted := make([]bool, len(outcomes))
		var all sync.WaitGroup
		for i, outcome := range outcomes {
			all.Go(func() { accepted[i] = w.report("w", id, outcome) })
		}
		all.Wait()
		now, err := w.gateway.GetJobStatus(t.Context(), &publicpb.GetJobStatusRequest{JobId: id})
		if err != nil {
			t.Fatal(err)
		}
		w.stands(id, now.GetStatus())
		for i, want := range []publicpb.JobStatus{done, failed} {
			if accepted[i] != (now.GetStatus() == want) {
				t.Errorf("the job is %v, and outcome %v accepted: %v", now.GetStatus(), outcomes[i], accepted[i])
			}
		}
	}
}

func TestOutcomeIsRetriedUntilItIsWritten(t *testing.T) {
	for _, broken := range []string{"GetJobRecord", "StoreResult", "TransitionJobStatus"} {
		w := wire(t)
		id := w.submit("")
		w.beat("w")
		w.given("w", id)
		w.fromCoordinator.setLost(broken, errDown)
		_, err := w.coordinator.ReportWorkOutcome(t.Context(), &internalpb.ReportWorkOutcomeRequest{WorkerId: "w", JobId: id, Outcome: internalpb.JobOutcome_SUCCEEDED})
		if status.Code(err) != codes.Unavailable {
			t.Errorf("report while %s fails: %v", broken, err)
		}
		w.fromCoordinator.setLost(broken, nil)
		if !w.report("w", id, internalpb.JobOutcome_SUCCEEDED) && broken != "StoreResult" { // there the output differs
			t.Errorf("%s: the repeat is refused", broken)
		}
		w.stands(id, done)
	}
}

func TestOutcomeTooLarge(t *testing.T) {
	spec.Covers(t, "T-203")
	w := wire(t)
	id := w.submit("")
	w.beat("w")
	w.given("w", id)
	_, err := w.coordinator.ReportWorkOutcome(t.Context(), &internalpb.ReportWorkOutcomeRequest{
		WorkerId: "w", JobId: id, Outcome: internalpb.JobOutcome_SUCCEEDED, OutputBytes: make([]byte, taskwork.MaxOutputBytes+1),
	})
	if err != nil {
		t.Fatal(err)
	}
	if end := w.stands(id, failed); end.GetFailureReason() != taskwork.TooLarge {
		t.Errorf("end %v", end)
	}
	got, err := w.results.GetResult(t.Context(), &internalpb.GetResultRequest{JobId: id})
	if err != nil || len(got.GetOutputBytes()) > 0 || !strings.Contains(got.GetOutputSummary(), taskwork.TooLarge) {
		t.Errorf("result %v, %v", got, err)
	}
}

func TestOutcomeOfAnUnknownJob(t *testing.T) {
	w := wire(t)
	if w.report("w", "ghost", internalpb.JobOutcome_SUCCEEDED) {
		t.Error("accepted")
	}
	w.logged(rpc.EventAnomaly, "outcome_of_unknown_job", "ghost")
}

func TestCoordinatorRefusesNonsense(t *testing.T) {
	w := wire(t)
	for _, r := range []*internalpb.ReportWorkOutcomeRequest{
		{}, {WorkerId: "w"}, {WorkerId: "w", JobId: "j"}, {WorkerId: "w", JobId: "j", Outcome: 9}, {JobId: "j", Outcome: 1}, {WorkerId: strings.Repeat("w", 1000), JobId: "j", Outcome: 1},
	} {
		if _, err := w.coordinator.ReportWorkOutcome(t.Context(), r); status.Code(err) != codes.InvalidArgument {
			t.Errorf("report %v: %v", r, err)
		}
	}
	if _, err := w.coordinator.FetchWork(t.Context(), &internalpb.FetchWorkRequest{}); status.Code(err) != codes.InvalidArgument {
		t.Errorf("fetch: %v", err)
	}
	if _, err := w.coordinator.WorkerHeartbeat(t.Context(), &internalpb.WorkerHeartbeatRequest{}); status.Code(err) != codes.InvalidArgument {
		t.Errorf("heartbeat: %v", err)
	}
}

func TestFetchIsNotIdempotent(t *testing.T) {
	spec.Covers(t, "T-177", "T-234", "T-262")
	w := wire(t)
	first, second := w.submit(""), w.submit("")
	w.beat("w")
	w.given("w", first) // in the order of submission
	w.given("w", second)
	if answer := w.fetch("w"); answer.GetAssigned() {
		t.Errorf("fetch answers %v", answer)
	}
}

func TestIdleHint(t *testing.T) {
	spec.Covers(t, "T-184", "T-185", "T-258")
	for configured, want := range map[time.Duration]uint32{0: 200, 10 * time.Millisecond: 50, 200 * time.Millisecond: 200, 700 * time.Millisecond: 700, 5 * time.Second: 1000} {
		w := wire(t, func(c *coordinator.Config, _ *queue.Config) { c.IdleHint = configured })
		w.beat("w")
		if answer := w.fetch("w"); answer.GetAssigned() || answer.GetRetryAfterMs() != want {
			t.Errorf("configured %v: %v, want %d", configured, answer, want)
		}
	}
}

func TestHeartbeats(t *testing.T) {
	spec.Covers(t, "T-45", "T-64", "T-179", "T-199", "T-200", "T-233", "T-259", "T-262")
	synctest.Test(t, func(t *testing.T) {
		w := wire(t, ticking)
		id := w.submit("")
		if answer := w.fetch("w"); answer.GetAssigned() {
			t.Fatalf("a worker nobody has heard of gets %v", answer)
		}
		if answer := w.beat("w"); answer.GetNextHeartbeatInMs() != 1000 {
			t.Errorf("heartbeat answers %v", answer)
		}
		time.Sleep(3 * time.Second)
		w.beat("w") // the timeout starts here
		time.Sleep(3999 * time.Millisecond)
		w.coordinator.Sweep(t.Context())
		w.given("w", id)
		other := w.submit("")
		time.Sleep(2 * time.Millisecond)
		if answer := w.fetch("w"); answer.GetAssigned() {
			t.Errorf("a worker that timed out gets %v", answer)
		}
		if lines := w.journal.Lines(t, "worker_unavailable"); len(lines) > 0 {
			t.Errorf("unavailable before any sweep: %v", lines)
		}
		w.coordinator.Sweep(t.Context())
		if lines := w.journal.Lines(t, "worker_unavailable"); len(lines) != 1 || lines[0].Text("worker_id") != "w" {
			t.Errorf("lines %v", lines)
		}
		w.beat("w")
		w.given("w", id) // dispatched again, before the other
		w.given("w", other)
	})
}

func TestLostWorker(t *testing.T) {
	spec.Covers(t, "T-46", "T-265")
	synctest.Test(t, func(t *testing.T) {
		w := wire(t, ticking)
		id := w.submit("")
		for i := range 3 {
			w.beat("w")
			w.given("w", id)
			w.stands(id, running)
			time.Sleep(5 * time.Second)
			if i == 2 {
				w.fromCoordinator.set("StoreResult", errDown)
				w.coordinator.Sweep(t.Context())
				w.stands(id, running) // not forgotten
				w.fromCoordinator.set("StoreResult", nil)
			}
			w.coordinator.Sweep(t.Context())
		}
		if end := w.stands(id, failed); end.GetFailureReason() != coordinator.WorkerLost {
			t.Errorf("end %v", end)
		}
		if n := len(w.journal.Lines(t, "job_redelivery")); n != 3 {
			t.Errorf("%d redeliveries", n)
		}
	})
}

func TestWorkerThatComesBackInTime(t *testing.T) {
	spec.Covers(t, "T-265")
	synctest.Test(t, func(t *testing.T) {
		w := wire(t, ticking)
		id := w.submit("")
		beat := func() {
			if _, err := w.coordinator.WorkerHeartbeat(t.Context(), &internalpb.WorkerHeartbeatRequest{WorkerId: "w", CapacityHint: 2}); err != nil {
				t.Fatal(err)
			}
		}
		beat()
		w.given("w", id)
		time.Sleep(1500 * time.Millisecond) // killed and restarted under its name
		beat()
		w.fetch("w")
		time.Sleep(50 * time.Millisecond)
		w.given("w", id) // both slots ask, so neither can be running it
		time.Sleep(1500 * time.Millisecond)
		beat()
		if answer := w.fetch("w"); answer.GetAssigned() {
			t.Errorf("one slot may still be running the job: %v", answer)
		}
	})
}

func TestOutcomeThatIsLongOverdue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := wire(t, ticking)
		id := w.submit("")
		w.beat("w")
		w.given("w", id)
		for range 40 {
			time.Sleep(time.Second)
			w.beat("w")
			w.coordinator.Sweep(t.Context())
		}
		w.given("w", id)
		if !w.report("w", id, internalpb.JobOutcome_SUCCEEDED) {
			t.Error("refused")
		}
	})
}

func TestLateOutcomeOfALostWorkerCounts(t *testing.T) {
	spec.Covers(t, "T-235")
	synctest.Test(t, func(t *testing.T) {
		w := wire(t, ticking)
		id := w.submit("")
		w.beat("slow")
		w.given("slow", id)
		time.Sleep(5 * time.Second)
		w.coordinator.Sweep(t.Context())
		w.beat("quick")
		w.given("quick", id)
		if !w.report("slow", id, internalpb.JobOutcome_SUCCEEDED) || !w.report("quick", id, internalpb.JobOutcome_SUCCEEDED) {
			t.Error("equal outcomes must be accepted")
		}
		got, err := w.results.GetResult(t.Context(), &internalpb.GetResultRequest{JobId: id})
		if err != nil || string(got.GetOutputBytes()) != "slow" {
			t.Errorf("result %v, %v: the first must stand", got, err)
		}
	})
}

func TestHeartbeatTellsWhatToStop(t *testing.T) {
	spec.Covers(t, "T-83", "T-179")
	synctest.Test(t, func(t *testing.T) {
		w := wire(t, ticking)
		id, other := w.submit(""), w.submit("")
		w.beat("w")
		w.given("w", id)
		w.given("w", other)
		w.cancel(id)
		time.Sleep(time.Second)
		if ids := w.beat("w").GetCancelJobIds(); len(ids) != 1 || ids[0] != id {
			t.Errorf("to stop: %v", ids)
		}
		if ids := w.beat("another").GetCancelJobIds(); len(ids) != 0 {
			t.Errorf("another worker is told to stop %v", ids)
		}
		w.report("w", id, internalpb.JobOutcome_CANCELED)
		w.stands(id, canceled)
		got, err := w.results.GetResult(t.Context(), &internalpb.GetResultRequest{JobId: id})
		if err != nil || !strings.Contains(got.GetOutputSummary(), "why") {
			t.Errorf("result %v, %v", got, err)
		}
	})
}

// The flag counts only if it is set before the coordinator reads the outcome.
func TestCancelAfterTheOutcomeIsTooLate(t *testing.T) {
	spec.Covers(t, "T-83", "T-243")
	w := wire(t)
	id := w.submit("")
	w.beat("w")
	w.given("w", id)
	w.fromCoordinator.before("StoreResult", func() { w.cancel(id) })
	w.report("w", id, internalpb.JobOutcome_SUCCEEDED)
	w.stands(id, done)
	if answer := w.cancel(id); !answer.GetAlreadyTerminal() || answer.GetCurrentStatus() != done {
		t.Errorf("cancel answers %v", answer)
	}
}
