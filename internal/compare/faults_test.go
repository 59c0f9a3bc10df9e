//go:build unix

package compare_test

import (
	"context"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	publicpb "github.com/gopherqueue/gq/api/taskqueue/v1"
	"github.com/gopherqueue/gq/internal/compare"
	"github.com/gopherqueue/gq/internal/load"
	"github.com/gopherqueue/gq/internal/rpc"
	"github.com/gopherqueue/gq/internal/spec"
	"github.com/gopherqueue/gq/internal/taskqueuetest"
)

// victim is a cluster that is being hurt.
type victim struct {
	*testing.T
	*compare.Cluster
	client publicpb.TaskQueuePublicServiceClient // of the first public node
}

func hurt(t *testing.T, design string) *victim {
	t.Helper()
	c := up(t, design)
	conn, err := rpc.DialPatiently(c.Public[0], "test", 20*time.Second) // for a machine that is busy
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return &victim{t, c, publicpb.NewTaskQueuePublicServiceClient(conn)}
}

func (v *victim) must(err error) {
	v.Helper()
	if err != nil {
		v.Fatal(err)
	}
}

// submit makes jobs that all nodes have accepted.
func (v *victim) submit(n int, ms uint32) (ids []string) {
	v.Helper()
	for range n {
		answer, err := v.client.SubmitJob(v.Context(), &publicpb.SubmitJobRequest{Spec: &publicpb.JobSpec{JobType: "x", WorkDurationMs: ms}})
		v.must(err)
		ids = append(ids, answer.GetJobId())
	}
	return ids
}

// wait waits for all jobs to have a status.
func (v *victim) wait(ids []string, want publicpb.JobStatus) {
	v.Helper()
	ctx, cancel := context.WithTimeout(v.Context(), patience)
	defer cancel()
	for _, id := range ids {
		for {
			now, err := v.client.GetJobStatus(ctx, &publicpb.GetJobStatusRequest{JobId: id})
			if err == nil && now.GetStatus() == want {
				break
			}
			if !rpc.Wait(ctx, 20*time.Millisecond) {
				v.Fatalf("%s: %v, %v; want %v", id, now, err, want)
			}
		}
	}
}

// patience is how long something may take that happens in the end.
const patience = 2 * time.Minute

// until waits for something to be so.
func (v *victim) until(what string, so func() bool) {
	v.Helper()
	ctx, cancel := context.WithTimeout(v.Context(), patience)
	defer cancel()
	for !so() {
		if !rpc.Wait(ctx, 20*time.Millisecond) {
			v.Fatal(what)
		}
	}
}

// running makes jobs that take so long that most of that time is left when all of them
// run, however slow the machine is.
func (v *victim) running(n int) (ids []string, each time.Duration) {
	v.Helper()
	for each = 1600 * time.Millisecond; each < 30*time.Second; each *= 2 {
		begin := time.Now()
		ids = v.submit(n, uint32(each.Milliseconds()))
		for time.Since(begin) < each/4 {
			if v.allRun(ids) && time.Since(begin) < each/4 {
				return ids, each
			}
			rpc.Wait(v.Context(), 10*time.Millisecond)
		}
		v.wait(ids, publicpb.JobStatus_DONE)
	}
	v.Fatal("the machine is too slow for jobs to be seen running")
	return nil, 0
}

func (v *victim) allRun(ids []string) bool {
	v.Helper()
	list, err := v.client.ListJobs(v.Context(), &publicpb.ListJobsRequest{StatusFilter: []publicpb.JobStatus{publicpb.JobStatus_RUNNING}})
	v.must(err)
	found := 0
	for _, j := range list.GetJobs() {
		if slices.Contains(ids, j.GetJobId()) {
			found++
		}
	}
	return found == len(ids)
}

func (v *victim) killAndRestart(name string) {
	v.Helper()
	v.must(v.Signal(name, syscall.SIGKILL))
	v.must(v.Restart(v.Context(), name))
}

// works wants a short load without a wrong answer or a lost job. Reconnecting
// takes a moment.
func (v *victim) works() {
	v.Helper()
	s := load.DefaultSettings()
	s.Targets, s.Concurrency, s.Warmup, s.Duration, s.Drain, s.Payload = v.Public, 4, 100*time.Millisecond, 200*time.Millisecond, 3*time.Second, 16
	v.until("no load was ever done with", func() bool {
		report, err := load.Run(v.Context(), s)
		v.must(err)
		if report.Violations > 0 || report.Jobs.Lost > 0 {
			v.Fatalf("report %+v %v", report.Jobs, report.Examples)
		}
		return report.Correct() && report.Jobs.Done > 0
	})
}

// logged tells whether a node wrote a line with an event about one of the jobs.
func (v *victim) logged(name, event, kind string, ids []string) bool {
	v.Helper()
	text, err := os.ReadFile(v.LogFile(name))
	v.must(err)
	for _, l := range taskqueuetest.ParseLines(v, text, event) {
		if (kind == "" || l.Text("anomaly") == kind) && strings.Contains(strings.Join(ids, " "), l.Text("job_id")) {
			return true
		}
	}
	return false
}

func TestKillWorker(t *testing.T) {
	t.Parallel()
	spec.Covers(t, "T-45", "T-46", "T-265")
	v := hurt(t, "A")
	ids, _ := v.running(6)
	v.must(v.Signal("worker", syscall.SIGKILL))
	queued := v.submit(3, 0)
	v.must(v.Restart(t.Context(), "worker"))
	v.wait(ids, publicpb.JobStatus_DONE) // handed out again
	v.wait(queued, publicpb.JobStatus_DONE)
	if !v.logged("coordinator", "job_redelivery", "", ids) {
		t.Error("no job was handed out again")
	}
	v.works()
}

func TestPauseWorker(t *testing.T) {
	t.Parallel()
	spec.Covers(t, "T-45", "T-265")
	v := hurt(t, "A")
	ids, _ := v.running(6)
	v.must(v.Signal("worker", syscall.SIGSTOP))
	v.until("the worker was not found missing", func() bool {
		return v.logged("coordinator", "worker_unavailable", "", []string{""})
	})
	v.must(v.Signal("worker", syscall.SIGCONT))
	v.wait(ids, publicpb.JobStatus_DONE)
	v.works()
}

func TestKillCoordinator(t *testing.T) {
	t.Parallel()
	spec.Covers(t, "T-46")
	v := hurt(t, "A")
	running, _ := v.running(6)
	waiting := v.submit(6, 0)
	v.killAndRestart("coordinator")
	v.wait(running, publicpb.JobStatus_DONE) // outcomes are accepted by the next one
	v.wait(waiting, publicpb.JobStatus_DONE)
	v.works()
}

func TestKillGateway(t *testing.T) {
	t.Parallel()
	spec.Covers(t, "T-46", "T-50")
	v := hurt(t, "A")
	ids := v.submit(12, 200)
	v.killAndRestart("gateway")
	v.wait(ids, publicpb.JobStatus_DONE)
	v.works()
}

// A queue that dies forgets who waits. Nothing can bring that back, but it is
// noticed.
func TestKillQueue(t *testing.T) {
	t.Parallel()
	spec.Covers(t, "T-94", "T-95", "T-267")
	v := hurt(t, "A")
	running, _ := v.running(6)
	lost := v.submit(2, 0)
	v.killAndRestart("queue")
	v.wait(running, publicpb.JobStatus_DONE)
	v.works()
	v.wait(lost, publicpb.JobStatus_QUEUED)
	answer, err := v.client.CancelJob(t.Context(), &publicpb.CancelJobRequest{JobId: lost[0]})
	if err != nil || !answer.GetAccepted() || answer.GetCurrentStatus() != publicpb.JobStatus_QUEUED {
		t.Errorf("cancel: %v, %v", answer, err)
	}
	if !v.logged("gateway", rpc.EventAnomaly, "queued_not_in_queue", lost[:1]) {
		t.Error("no anomaly was logged")
	}
}

// A job service that dies forgets all jobs and keys. Those that others still
// hold are reported when they turn up.
func TestKillJob(t *testing.T) {
	t.Parallel()
	spec.Covers(t, "T-226", "T-267")
	v := hurt(t, "A")
	request := &publicpb.SubmitJobRequest{Spec: &publicpb.JobSpec{JobType: "x"}, ClientRequestId: "key"}
	before, err := v.client.SubmitJob(t.Context(), request)
	v.must(err)
	v.wait([]string{before.GetJobId()}, publicpb.JobStatus_DONE)
	running, _ := v.running(6)
	waiting := v.submit(2, 0)
	v.killAndRestart("job")
	if _, err := v.client.GetJobStatus(t.Context(), &publicpb.GetJobStatusRequest{JobId: running[0]}); status.Code(err) != codes.NotFound {
		t.Errorf("status of a job that was forgotten: %v", err)
	}
	after, err := v.client.SubmitJob(t.Context(), request)
	v.must(err)
	if after.GetJobId() == before.GetJobId() {
		t.Error("a key outlived the process")
	}
	v.wait([]string{after.GetJobId()}, publicpb.JobStatus_DONE)
	v.until("what turned up was not reported", func() bool {
		return v.logged("coordinator", rpc.EventAnomaly, "outcome_of_unknown_job", running) && v.logged("coordinator", rpc.EventAnomaly, "queued_but_unknown", waiting)
	})
	v.works()
}

func TestKillResult(t *testing.T) {
	t.Parallel()
	spec.Covers(t, "T-154", "T-215", "T-267")
	v := hurt(t, "A")
	ids := v.submit(2, 0)
	v.wait(ids, publicpb.JobStatus_DONE)
	running, each := v.running(6)
	v.must(v.Signal("result", syscall.SIGKILL))
	rpc.Wait(t.Context(), each) // outcomes are reported meanwhile, in vain
	v.wait(running, publicpb.JobStatus_RUNNING)
	v.must(v.Restart(t.Context(), "result"))
	v.wait(running, publicpb.JobStatus_DONE)
	if _, err := v.client.GetJobResult(t.Context(), &publicpb.GetJobResultRequest{JobId: ids[0]}); status.Code(err) != codes.Unavailable {
		t.Errorf("a result that was forgotten: %v", err)
	}
	if !v.logged("gateway", rpc.EventAnomaly, "terminal_without_result", ids) {
		t.Error("no anomaly was logged")
	}
	v.works()
}

// A service that pauses loses nothing.
func TestPauseEachService(t *testing.T) {
	t.Parallel()
	spec.Covers(t, "T-46", "T-216")
	v := hurt(t, "A")
	for _, name := range []string{"gateway", "job", "queue", "coordinator", "result"} {
		ids := v.submit(12, 50)
		v.must(v.Signal(name, syscall.SIGSTOP))
		wait, want := 20*time.Second, codes.OK
		if name == "gateway" || name == "job" { // which have to answer
			wait, want = 300*time.Millisecond, codes.DeadlineExceeded
		}
		ctx, cancel := context.WithTimeout(t.Context(), wait)
		_, err := v.client.GetJobStatus(ctx, &publicpb.GetJobStatusRequest{JobId: ids[0]})
		cancel()
		if status.Code(err) != want {
			t.Errorf("status while %s is paused: %v, want %v", name, err, want)
		}
		v.must(v.Signal(name, syscall.SIGCONT))
		v.wait(ids, publicpb.JobStatus_DONE)
	}
	v.works()
	for _, name := range v.Names() {
		text, err := os.ReadFile(v.LogFile(name))
		v.must(err)
		if lines := taskqueuetest.ParseLines(t, text, rpc.EventAnomaly); len(lines) > 0 {
			t.Errorf("%s logged anomalies: %v", name, lines)
		}
	}
}

// A queue that pauses for longer than a call may take loses nothing either: neither what
// is asked for meanwhile and answered to nobody, nor a job that is to be canceled.
func TestPauseQueueForLong(t *testing.T) {
	t.Parallel()
	spec.Covers(t, "T-46")
	v := hurt(t, "A")
	ids, _ := v.running(6)
	waiting := v.submit(8, 100)
	canceled := v.submit(1, 0)
	v.must(v.Signal("queue", syscall.SIGSTOP))
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	_, err := v.client.CancelJob(ctx, &publicpb.CancelJobRequest{JobId: canceled[0]})
	cancel()
	if status.Code(err) != codes.DeadlineExceeded {
		t.Errorf("cancel while the queue is paused: %v", err)
	}
	v.wait(ids, publicpb.JobStatus_DONE) // and their slots ask for more
	rpc.Wait(t.Context(), 2*time.Second)
	v.must(v.Signal("queue", syscall.SIGCONT))
	v.wait(waiting, publicpb.JobStatus_DONE)
	v.wait(canceled, publicpb.JobStatus_CANCELED)
	v.works()
}

// A node of design B that dies takes its own jobs along, and no others.
func TestKillNode(t *testing.T) {
	t.Parallel()
	spec.Covers(t, "T-20", "T-267")
	v := hurt(t, "B")
	kept := v.submit(1, 0) // of node 0
	conn, err := rpc.Dial(v.Public[3], "test")
	v.must(err)
	defer conn.Close()
	answer, err := publicpb.NewTaskQueuePublicServiceClient(conn).SubmitJob(t.Context(), &publicpb.SubmitJobRequest{Spec: &publicpb.JobSpec{JobType: "x"}})
	v.must(err)
	v.must(v.Signal("node-3", syscall.SIGKILL))
	lost := &publicpb.GetJobStatusRequest{JobId: answer.GetJobId()}
	if _, err := v.client.GetJobStatus(t.Context(), lost); status.Code(err) != codes.Unavailable {
		t.Errorf("status of a job whose owner is gone: %v", err)
	}
	v.wait(kept, publicpb.JobStatus_DONE)
	v.must(v.Restart(t.Context(), "node-3"))
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	for {
		_, err := v.client.GetJobStatus(ctx, lost)
		if status.Code(err) == codes.NotFound {
			break
		}
		if !rpc.Wait(ctx, 50*time.Millisecond) {
			t.Fatalf("status of a job that its owner forgot: %v", err)
		}
	}
	v.works()
}

// Design C loses nothing that it has accepted: not what waits, not what runs, not
// what has ended, not the keys of submits.
func TestKillServer(t *testing.T) {
	t.Parallel()
	v := hurt(t, "C")
	done := v.submit(3, 0)
	v.wait(done, publicpb.JobStatus_DONE)
	keyed := &publicpb.SubmitJobRequest{Spec: &publicpb.JobSpec{JobType: "x", PayloadSizeBytes: 7}, ClientRequestId: "once"}
	first, err := v.client.SubmitJob(t.Context(), keyed)
	v.must(err)
	running, _ := v.running(6)
	waiting := v.submit(10, 0)
	v.killAndRestart("server")
	v.wait(done, publicpb.JobStatus_DONE)
	v.wait(append(running, waiting...), publicpb.JobStatus_DONE)
	again, err := v.client.SubmitJob(t.Context(), keyed)
	v.must(err)
	if again.GetJobId() != first.GetJobId() || again.GetAcceptedAtMs() != first.GetAcceptedAtMs() {
		t.Errorf("after a restart a repeat answers %v, before %v", again, first)
	}
	v.works()
}
