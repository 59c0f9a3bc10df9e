//go:build unix

package compare_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	publicpb "github.com/gopherqueue/gq/api/taskqueue/v1"
	"github.com/gopherqueue/gq/internal/taskwork"
	"github.com/gopherqueue/gq/internal/testing/spec"
	"github.com/gopherqueue/gq/services/internal/compare"
	"github.com/gopherqueue/gq/services/internal/load"
	"github.com/gopherqueue/gq/services/internal/rpc"
	"github.com/gopherqueue/gq/services/internal/servicetest"
)

// victim is a cluster under fault injection.
type victim struct {
	*testing.T
	*compare.Cluster
	client publicpb.TaskQueuePublicServiceClient // of the first public node
}

func hurt(t *testing.T, design string) *victim {
	t.Helper()
	c := up(t, design)
	return &victim{t, c, dial(t, c.Public[0])}
}

func dial(t *testing.T, addr string) publicpb.TaskQueuePublicServiceClient {
	t.Helper()
	conn, err := rpc.DialPatiently(addr, "test", patience)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return publicpb.NewTaskQueuePublicServiceClient(conn)
}

func (v *victim) must(err error) {
	v.Helper()
	if err != nil {
		v.Fatal(err)
	}
}

// answered repeats a call until it returns a code. On a slow machine nodes time out on
// each other first, and a restarted node needs a moment.
func (v *victim) answered(what string, want codes.Code, call func(context.Context) error) {
	v.Helper()
	ctx, cancel := context.WithTimeout(v.Context(), patience)
	defer cancel()
	for {
		err := call(ctx)
		code := status.Code(err)
		if code == want {
			return
		}
		if code != codes.Unavailable && code != codes.DeadlineExceeded || !rpc.Wait(ctx, 20*time.Millisecond) {
			v.Fatalf("%s: %v, want %v", what, err, want)
		}
	}
}

// submit submits jobs until all are accepted, in design B by the first node.
func (v *victim) submit(n int, ms uint32) (ids []string) {
	v.Helper()
	for range n {
		key := rand.Text() // makes it safe to repeat
		for taskwork.Owner(key, len(v.Public)) != 0 {
			key = rand.Text()
		}
		v.answered("submit", codes.OK, func(ctx context.Context) error {
			answer, err := v.client.SubmitJob(ctx, &publicpb.SubmitJobRequest{Spec: &publicpb.JobSpec{JobType: "x", WorkDurationMs: ms}, ClientRequestId: key})
			if err == nil {
				ids = append(ids, answer.GetJobId())
			}
			return err
		})
	}
	return ids
}

// wait waits until all jobs have a status.
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

// ends waits until a job has ended in any status.
func (v *victim) ends(id string) {
	v.Helper()
	v.until(id+" does not end", func() bool {
		now, err := v.client.GetJobStatus(v.Context(), &publicpb.GetJobStatusRequest{JobId: id})
		return err == nil && now.GetStatus() > publicpb.JobStatus_RUNNING
	})
}

// patience is the time limit for what must happen eventually.
const patience = 2 * time.Minute

// until waits for a condition.
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

// running starts jobs that are long enough for most of their time to be left when all
// of them run, however slow the machine is.
func (v *victim) running(n int) (ids []string, each time.Duration) {
	v.Helper()
	ids, each, _ = v.begin(n)
	return ids, each
}

// begin is running, and returns until when no job can have ended.
func (v *victim) begin(n int) (ids []string, each time.Duration, sure time.Time) {
	v.Helper()
	for each = 1600 * time.Millisecond; each < time.Minute; each *= 2 {
		begin := time.Now()
		ids = v.submit(n, uint32(each.Milliseconds()))
		for time.Since(begin) < each/4 {
			if v.allRun(ids) && time.Since(begin) < each/4 {
				return ids, each, begin.Add(each)
			}
			rpc.Wait(v.Context(), 10*time.Millisecond)
		}
		v.wait(ids, publicpb.JobStatus_DONE)
	}
	v.Fatal("the machine is too slow for jobs to be seen running")
	return nil, 0, time.Time{}
}

// killWhileRunning calls before and then kills a node while jobs run. If the jobs may
// have ended by then, it tries again with a new node and new jobs.
func (v *victim) killWhileRunning(name string, n int, before func()) (ids []string, each time.Duration) {
	v.Helper()
	for range 5 {
		var sure time.Time
		ids, each, sure = v.begin(n)
		before()
		v.must(v.Signal(name, syscall.SIGKILL))
		if time.Now().Before(sure) {
			return ids, each
		}
		v.must(v.Restart(v.Context(), name))
	}
	v.Fatal("the machine is too slow for a node to be killed while jobs run")
	return nil, 0
}

func (v *victim) allRun(ids []string) bool {
	v.Helper()
	found := 0
	v.answered("list", codes.OK, func(ctx context.Context) error {
		list, err := v.client.ListJobs(ctx, &publicpb.ListJobsRequest{StatusFilter: []publicpb.JobStatus{publicpb.JobStatus_RUNNING}})
		for _, j := range list.GetJobs() {
			if slices.Contains(ids, j.GetJobId()) {
				found++
			}
		}
		return err
	})
	return found == len(ids)
}

func (v *victim) killAndRestart(name string) {
	v.Helper()
	v.must(v.Signal(name, syscall.SIGKILL))
	v.must(v.Restart(v.Context(), name))
}

// works requires a short load without a wrong answer or a lost job. It repeats the
// load, since reconnecting takes a moment.
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

// lines returns the complete log lines of a node about an event.
func (v *victim) lines(name, event string) []servicetest.Line {
	v.Helper()
	text, err := os.ReadFile(v.LogFile(name))
	v.must(err)
	return servicetest.ParseLines(v, text[:bytes.LastIndexByte(text, '\n')+1], event)
}

// logs waits until a node has logged an event about one of the jobs.
func (v *victim) logs(name, event, kind string, ids []string) {
	v.Helper()
	v.until(name+" logs no "+event+" "+kind, func() bool { return v.logged(name, event, kind, ids) })
}

func (v *victim) logged(name, event, kind string, ids []string) bool {
	v.Helper()
	for _, l := range v.lines(name, event) {
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
	redelivered := false
	for i := 0; i < 5 && !redelivered; i++ {
		ids, _ := v.killWhileRunning("worker", 6, func() {})
		queued := v.submit(3, 0)
		v.must(v.Restart(t.Context(), "worker"))
		v.wait(ids, publicpb.JobStatus_DONE) // dispatched again
		v.wait(queued, publicpb.JobStatus_DONE)
		for _, id := range ids {
			// A job is RUNNING before it has reached the worker. Those that had not stay with the coordinator.
			v.until("coordinator does not log that it dispatches "+id+" again", func() bool {
				back := v.logged("coordinator", "job_redelivery", "", []string{id})
				redelivered = redelivered || back
				return back || v.logged("coordinator", "dispatch_postponed", "", []string{id})
			})
		}
	}
	if !redelivered {
		t.Error("no job was ever taken back from the worker")
	}
	v.works()
}

func TestPauseWorker(t *testing.T) {
	t.Parallel()
	spec.Covers(t, "T-45", "T-265")
	v := hurt(t, "A")
	ids, _ := v.running(6)
	v.must(v.Signal("worker", syscall.SIGSTOP))
	v.logs("coordinator", "worker_unavailable", "", []string{""})
	v.must(v.Signal("worker", syscall.SIGCONT))
	v.wait(ids, publicpb.JobStatus_DONE)
	v.works()
}

func TestKillCoordinator(t *testing.T) {
	t.Parallel()
	spec.Covers(t, "T-46")
	v := hurt(t, "A")
	var waiting []string // submitted while no slot is free: a job in transit to a slot would be lost
	running, _ := v.killWhileRunning("coordinator", 6, func() { waiting = v.submit(6, 0) })
	v.must(v.Restart(t.Context(), "coordinator"))
	v.wait(running, publicpb.JobStatus_DONE) // the restarted coordinator accepts outcomes
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

// A killed queue forgets the waiting jobs. They cannot be recovered, but their loss is
// reported.
func TestKillQueue(t *testing.T) {
	t.Parallel()
	spec.Covers(t, "T-94", "T-95", "T-267")
	v := hurt(t, "A")
	var lost []string
	running, _ := v.killWhileRunning("queue", 6, func() { lost = v.submit(2, 0) })
	v.must(v.Restart(t.Context(), "queue"))
	v.wait(running, publicpb.JobStatus_DONE)
	v.works()
	v.wait(lost, publicpb.JobStatus_QUEUED)
	v.answered("cancel", codes.OK, func(ctx context.Context) error {
		answer, err := v.client.CancelJob(ctx, &publicpb.CancelJobRequest{JobId: lost[0]})
		if err == nil && (!answer.GetAccepted() || answer.GetCurrentStatus() != publicpb.JobStatus_QUEUED) {
			t.Errorf("cancel: %v", answer)
		}
		return err
	})
	v.logs("gateway", rpc.EventAnomaly, "queued_not_in_queue", lost[:1])
}

// A killed job service forgets all jobs and keys. Jobs that other services still hold
// are reported when they turn up.
func TestKillJob(t *testing.T) {
	t.Parallel()
	spec.Covers(t, "T-226", "T-261", "T-267")
	v := hurt(t, "A")
	request := &publicpb.SubmitJobRequest{Spec: &publicpb.JobSpec{JobType: "x"}, ClientRequestId: "key"}
	submit := func() (id string) {
		t.Helper()
		v.answered("submit", codes.OK, func(ctx context.Context) error {
			answer, err := v.client.SubmitJob(ctx, request)
			id = answer.GetJobId()
			return err
		})
		return id
	}
	before := submit()
	v.wait([]string{before}, publicpb.JobStatus_DONE)
	var waiting []string
	running, _ := v.killWhileRunning("job", 6, func() { waiting = v.submit(2, 0) })
	v.must(v.Restart(t.Context(), "job"))
	v.answered("status of a job that was forgotten", codes.NotFound, func(ctx context.Context) error {
		_, err := v.client.GetJobStatus(ctx, &publicpb.GetJobStatusRequest{JobId: running[0]})
		return err
	})
	after := submit()
	if after == before {
		t.Error("a key outlived the process")
	}
	v.wait([]string{after}, publicpb.JobStatus_DONE)
	v.logs("coordinator", rpc.EventAnomaly, "outcome_of_unknown_job", running)
	v.logs("coordinator", rpc.EventAnomaly, "queued_but_unknown", waiting)
	v.works()
}

func TestKillResult(t *testing.T) {
	t.Parallel()
	spec.Covers(t, "T-154", "T-215", "T-261", "T-267")
	v := hurt(t, "A")
	ids := v.submit(2, 0)
	v.wait(ids, publicpb.JobStatus_DONE)
	running, each := v.killWhileRunning("result", 6, func() {})
	rpc.Wait(t.Context(), each) // workers report outcomes meanwhile, without success
	v.wait(running, publicpb.JobStatus_RUNNING)
	v.must(v.Restart(t.Context(), "result"))
	v.wait(running, publicpb.JobStatus_DONE)
	v.answered("a result that was forgotten", codes.Unavailable, func(ctx context.Context) error {
		_, err := v.client.GetJobResult(ctx, &publicpb.GetJobResultRequest{JobId: ids[0]})
		return err
	})
	v.logs("gateway", rpc.EventAnomaly, "terminal_without_result", ids)
	v.works()
}

// Pausing a service loses nothing.
func TestPauseEachService(t *testing.T) {
	t.Parallel()
	spec.Covers(t, "T-46", "T-216")
	v := hurt(t, "A")
	for _, name := range []string{"gateway", "job", "queue", "coordinator", "result"} {
		ids := v.submit(12, 50)
		v.must(v.Signal(name, syscall.SIGSTOP))
		wait, want := patience, codes.OK
		if name == "gateway" || name == "job" { // these must answer the call
			wait, want = 300*time.Millisecond, codes.DeadlineExceeded
		}
		v.answered("status while "+name+" is paused", want, func(ctx context.Context) error {
			ctx, cancel := context.WithTimeout(ctx, wait)
			defer cancel()
			_, err := v.client.GetJobStatus(ctx, &publicpb.GetJobStatusRequest{JobId: ids[0]})
			return err
		})
		v.must(v.Signal(name, syscall.SIGCONT))
		v.wait(ids, publicpb.JobStatus_DONE)
	}
	v.works()
	for _, name := range v.Names() {
		for _, l := range v.lines(name, rpc.EventAnomaly) {
			if l.Text("method") == "CancelJob" && l.Text("anomaly") == "queued_not_in_queue" {
				v.ends(l.Text("job_id")) // it was in transit to a worker for longer than the cancel retried
				continue
			}
			t.Errorf("%s logged an anomaly: %v", name, l)
		}
	}
}

// A queue paused for longer than a call's deadline loses nothing either: neither jobs
// fetched by calls that timed out, nor a job that is being canceled.
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
	v.wait(ids, publicpb.JobStatus_DONE) // and their slots fetch more
	rpc.Wait(t.Context(), 2*time.Second)
	v.must(v.Signal("queue", syscall.SIGCONT))
	v.wait(waiting, publicpb.JobStatus_DONE)
	v.wait(canceled, publicpb.JobStatus_CANCELED)
	v.works()
}

// A killed node of design B loses its own jobs, and no others.
func TestKillNode(t *testing.T) {
	t.Parallel()
	spec.Covers(t, "T-20", "T-267")
	v := hurt(t, "B")
	kept := v.submit(1, 0) // owned by node 0
	other := dial(t, v.Public[3])
	lost := &publicpb.GetJobStatusRequest{}
	v.answered("submit", codes.OK, func(ctx context.Context) error {
		answer, err := other.SubmitJob(ctx, &publicpb.SubmitJobRequest{Spec: &publicpb.JobSpec{JobType: "x"}})
		lost.JobId = answer.GetJobId()
		return err
	})
	status := func(ctx context.Context) error { _, err := v.client.GetJobStatus(ctx, lost); return err }
	v.must(v.Signal("node-3", syscall.SIGKILL))
	v.answered("status of a job whose owner is gone", codes.Unavailable, status)
	v.wait(kept, publicpb.JobStatus_DONE)
	v.must(v.Restart(t.Context(), "node-3"))
	v.answered("status of a job that its owner forgot", codes.NotFound, status)
	v.works()
}

// Design C loses nothing it has accepted: waiting, running or ended jobs, or the keys
// of submits.
func TestKillServer(t *testing.T) {
	t.Parallel()
	v := hurt(t, "C")
	done := v.submit(3, 0)
	v.wait(done, publicpb.JobStatus_DONE)
	keyed := &publicpb.SubmitJobRequest{Spec: &publicpb.JobSpec{JobType: "x", PayloadSizeBytes: 7}, ClientRequestId: "once"}
	submit := func() (answer *publicpb.SubmitJobResponse) {
		t.Helper()
		v.answered("submit", codes.OK, func(ctx context.Context) (err error) {
			answer, err = v.client.SubmitJob(ctx, keyed)
			return err
		})
		return answer
	}
	first := submit()
	running, _ := v.running(6)
	waiting := v.submit(10, 0)
	v.killAndRestart("server")
	v.wait(done, publicpb.JobStatus_DONE)
	v.wait(append(running, waiting...), publicpb.JobStatus_DONE)
	again := submit()
	if again.GetJobId() != first.GetJobId() || again.GetAcceptedAtMs() != first.GetAcceptedAtMs() {
		t.Errorf("after a restart a repeat answers %v, before %v", again, first)
	}
	v.works()
}
