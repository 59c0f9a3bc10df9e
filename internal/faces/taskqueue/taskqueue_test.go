package taskqueue_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/gopherqueue/gq"
	publicpb "github.com/gopherqueue/gq/api/taskqueue/v1"
	"github.com/gopherqueue/gq/engine"
	"github.com/gopherqueue/gq/internal/faces/native"
	"github.com/gopherqueue/gq/internal/faces/taskqueue"
	"github.com/gopherqueue/gq/internal/testing/pgtest"
	"github.com/gopherqueue/gq/internal/testing/spec"
	"github.com/gopherqueue/gq/internal/testing/taskqueuetest"
	"github.com/gopherqueue/gq/store"
	"github.com/gopherqueue/gq/store/local"
	"github.com/gopherqueue/gq/store/postgres"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

func newEngine(t *testing.T, s store.Store) *engine.Engine {
	t.Helper()
	e, err := engine.New(s, engine.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return e
}

func memory(t *testing.T) store.Store {
	t.Helper()
	s, err := local.OpenMemory(local.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// serve serves an engine as gq serve does and returns its address.
func serve(t *testing.T, e *engine.Engine, slots int) string {
	t.Helper()
	g := native.NewGRPC(e, native.GRPCOptions{Register: func(r grpc.ServiceRegistrar) {
		publicpb.RegisterTaskQueuePublicServiceServer(r, taskqueue.New(e))
	}})
	listener := taskqueuetest.Listen(t)
	taskqueuetest.Go(t, e.Run)
	if slots > 0 {
		taskqueuetest.Go(t, taskqueue.NewWorkers(e, slots, slog.New(slog.DiscardHandler)).Run)
	}
	taskqueuetest.Go(t, func(ctx context.Context) error {
		stop := context.AfterFunc(ctx, g.Stop)
		defer stop()
		return g.Serve(listener)
	})
	return listener.Addr().String()
}

func client(t *testing.T, addr string) publicpb.TaskQueuePublicServiceClient {
	t.Helper()
	return publicpb.NewTaskQueuePublicServiceClient(taskqueuetest.Dial(t, addr))
}

// One server with a store on disk.
func TestDesignC(t *testing.T) {
	s, err := local.Open(t.TempDir(), local.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	taskqueuetest.Run(t, taskqueuetest.Target{Addresses: []string{serve(t, newEngine(t, s), 6)}, Slots: 6})
}

// Servers that share a database: any of them serves any job.
func TestCluster(t *testing.T) {
	url := pgtest.Database(t)
	var addrs []string
	for _, slots := range []int{2, 1} {
		s, err := postgres.Open(t.Context(), url, store.Config{})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		})
		addrs = append(addrs, serve(t, newEngine(t, s), slots))
	}
	taskqueuetest.Run(t, taskqueuetest.Target{Addresses: addrs, Slots: 3})
}

func TestInvalidSubmits(t *testing.T) {
	c := client(t, serve(t, newEngine(t, memory(t)), 0))
	for name, test := range map[string]struct {
		request *publicpb.SubmitJobRequest
		field   string
	}{
		"long type":    {&publicpb.SubmitJobRequest{Spec: &publicpb.JobSpec{JobType: strings.Repeat("x", gq.MaxNameBytes+1)}}, "spec.job_type"},
		"control type": {&publicpb.SubmitJobRequest{Spec: &publicpb.JobSpec{JobType: "a\nb"}}, "spec.job_type"},
		"long key":     {&publicpb.SubmitJobRequest{Spec: &publicpb.JobSpec{JobType: "a"}, ClientRequestId: strings.Repeat("k", gq.MaxKeyRunes+1)}, "client_request_id"},
		"large labels": {&publicpb.SubmitJobRequest{Spec: &publicpb.JobSpec{JobType: "a", Labels: map[string]string{"l": strings.Repeat("x", 2<<20)}}}, "spec"},
	} {
		_, err := c.SubmitJob(t.Context(), test.request)
		if status.Code(err) != codes.InvalidArgument || !strings.Contains(err.Error(), test.field+":") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Jobs of other queues do not exist for the service.
func TestForeignJobs(t *testing.T) {
	e := newEngine(t, memory(t))
	c := client(t, serve(t, e, 0))
	id, err := e.Enqueue(t.Context(), gq.Spec{Type: "other"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.GetJobStatus(t.Context(), &publicpb.GetJobStatusRequest{JobId: id.String()}); status.Code(err) != codes.NotFound {
		t.Errorf("status: %v", err)
	}
	if _, err := c.CancelJob(t.Context(), &publicpb.CancelJobRequest{JobId: id.String()}); status.Code(err) != codes.NotFound {
		t.Errorf("cancel: %v", err)
	}
	if list, err := c.ListJobs(t.Context(), &publicpb.ListJobsRequest{}); err != nil || len(list.GetJobs()) > 0 {
		t.Errorf("list: %v, %v", list, err)
	}
	if job, err := e.Get(t.Context(), id, 0); err != nil || job.State.Status.Terminal() {
		t.Errorf("the job is %v, %v", job.State.Status, err)
	}
}

// A job whose holders all go silent stays RUNNING for clients, and finally fails.
func TestLostWorkers(t *testing.T) {
	spec.Covers(t, "T-45", "T-200")
	synctest.Test(t, func(t *testing.T) {
		e := newEngine(t, memory(t))
		s := taskqueue.New(e)
		submitted, err := s.SubmitJob(t.Context(), &publicpb.SubmitJobRequest{Spec: &publicpb.JobSpec{JobType: "x"}})
		if err != nil {
			t.Fatal(err)
		}
		get := func() *publicpb.GetJobStatusResponse {
			t.Helper()
			now, err := s.GetJobStatus(t.Context(), &publicpb.GetJobStatusRequest{JobId: submitted.GetJobId()})
			if err != nil {
				t.Fatal(err)
			}
			return now
		}
		var started int64
		for range gq.PresetTaskQueue.Policy().MaxAttempts {
			jobs, err := e.Claim(t.Context(), gq.ClaimRequest{Worker: "silent", Queues: []string{taskqueue.Queue}, N: 1})
			if err != nil || len(jobs) != 1 {
				t.Fatalf("claim: %d jobs, %v", len(jobs), err)
			}
			now := get()
			if started == 0 {
				started = now.GetStartedAtMs()
			}
			if now.GetStatus() != publicpb.JobStatus_RUNNING || now.GetStartedAtMs() != started || started == 0 {
				t.Errorf("status %v", now)
			}
			time.Sleep(4001 * time.Millisecond)
			if _, err := e.Sweep(t.Context(), time.Now()); err != nil {
				t.Fatal(err)
			}
		}
		if end := get(); end.GetStatus() != publicpb.JobStatus_FAILED || end.GetFailureReason() != "WORKER_LOST" {
			t.Errorf("status %v", end)
		}
		got, err := s.GetJobResult(t.Context(), &publicpb.GetJobResultRequest{JobId: submitted.GetJobId()})
		if err != nil || !got.GetResultReady() || !strings.HasPrefix(got.GetOutputSummary(), "WORKER_LOST: worker silent") {
			t.Errorf("result %v, %v", got, err)
		}
	})
}

// Workers that stop release their jobs at once, without using up an attempt.
func TestWorkersStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newEngine(t, memory(t))
		s := taskqueue.New(e)
		submitted, err := s.SubmitJob(t.Context(), &publicpb.SubmitJobRequest{Spec: &publicpb.JobSpec{JobType: "x", WorkDurationMs: 60_000}})
		if err != nil {
			t.Fatal(err)
		}
		id, err := gq.ParseJobID(submitted.GetJobId())
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- taskqueue.NewWorkers(e, 2, nil).Run(ctx) }()
		time.Sleep(10 * time.Second) // longer than a lease without heartbeats
		if job, err := e.Get(t.Context(), id, 0); err != nil || job.State.Status != gq.StatusRunning || job.State.Attempt != 1 {
			t.Errorf("after ten seconds the job is %v, attempt %d, %v", job.State.Status, job.State.Attempt, err)
		}
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		job, err := e.Get(t.Context(), id, 0)
		if err != nil || job.State.Status != gq.StatusScheduled || job.State.Bound != 4 {
			t.Errorf("the job is %v of %d attempts, %v", job.State.Status, job.State.Bound, err)
		}
	})
}

// flaky fails occasionally, and rejects large results.
type flaky struct {
	*engine.Engine
	claims, settles int
}

var errFlaky = errors.New("try again")

func (f *flaky) Claim(ctx context.Context, r gq.ClaimRequest) ([]gq.Job, error) {
	if f.claims++; f.claims%2 == 1 {
		return nil, errFlaky
	}
	return f.Engine.Claim(ctx, r)
}

func (f *flaky) Settle(ctx context.Context, outcomes []gq.Outcome) ([]gq.LeaseResult, error) {
	if f.settles++; f.settles%2 == 1 {
		return nil, errFlaky
	}
	answers := make([]gq.LeaseResult, len(outcomes))
	for i, o := range outcomes {
		if len(o.Result) > 100 {
			answers[i].Err = &gq.InvalidError{}
			continue
		}
		one, err := f.Engine.Settle(ctx, []gq.Outcome{o})
		if err != nil {
			return nil, err
		}
		answers[i] = one[0]
	}
	return answers, nil
}

func TestWorkersGoOnThroughErrors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newEngine(t, memory(t))
		s := taskqueue.New(e)
		var ids []gq.JobID
		for _, size := range []uint32{1, 101, 2} {
			submitted, err := s.SubmitJob(t.Context(), &publicpb.SubmitJobRequest{Spec: &publicpb.JobSpec{JobType: "x", PayloadSizeBytes: size}})
			if err != nil {
				t.Fatal(err)
			}
			id, err := gq.ParseJobID(submitted.GetJobId())
			if err != nil {
				t.Fatal(err)
			}
			ids = append(ids, id)
		}
		bad, err := e.Enqueue(t.Context(), gq.Spec{Queue: taskqueue.Queue, Type: "x", Payload: gq.Payload{Data: []byte(`"text"`)}})
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- taskqueue.NewWorkers(&flaky{Engine: e}, 1, nil).Run(ctx) }()
		time.Sleep(5 * time.Second)
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		ids = append(ids, bad)
		for i, reason := range []string{"", "OUTPUT_TOO_LARGE", "", "invalid_payload"} {
			want := publicpb.JobStatus_FAILED
			if reason == "" {
				want = publicpb.JobStatus_DONE
			}
			now, err := s.GetJobStatus(t.Context(), &publicpb.GetJobStatusRequest{JobId: ids[i].String()})
			if err != nil || now.GetStatus() != want || now.GetFailureReason() != reason {
				t.Errorf("job %d: %v, %v", i, now, err)
			}
		}
	})
}

// counted counts the calls that commit something.
type counted struct {
	*engine.Engine
	calls atomic.Int64
}

func (c *counted) Claim(ctx context.Context, r gq.ClaimRequest) ([]gq.Job, error) {
	c.calls.Add(1)
	return c.Engine.Claim(ctx, r)
}

func (c *counted) Settle(ctx context.Context, outcomes []gq.Outcome) ([]gq.LeaseResult, error) {
	c.calls.Add(1)
	return c.Engine.Settle(ctx, outcomes)
}

// Jobs that take no time share commits; each still runs once.
func TestShortJobsShareCommits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newEngine(t, memory(t))
		s := taskqueue.New(e)
		const jobs = 500
		ids := submitAll(t, s, jobs, 0)
		q := &counted{Engine: e}
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- taskqueue.NewWorkers(q, 1, nil).Run(ctx) }()
		time.Sleep(time.Second)
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		for _, id := range ids {
			job, err := e.Get(t.Context(), id, gq.WithResult)
			if err != nil || job.State.Status != gq.StatusCompleted || job.State.Attempt != 1 || job.State.StartedAt.IsZero() {
				t.Fatalf("%v is %v after %d attempts, %v", id, job.State.Status, job.State.Attempt, err)
			}
		}
		if calls := q.calls.Load(); calls > jobs/10 {
			t.Errorf("%d calls for %d jobs", calls, jobs)
		}
	})
}

// Jobs that a slot holds without running are QUEUED: no more jobs are RUNNING than there
// are slots, and held ones can be canceled.
func TestHeldJobsWait(t *testing.T) {
	spec.Covers(t, "T-14", "T-98", "T-256")
	synctest.Test(t, func(t *testing.T) {
		e := newEngine(t, memory(t))
		s := taskqueue.New(e)
		submitAll(t, s, 40, 0)
		long := submitAll(t, s, 12, 10_000)
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- taskqueue.NewWorkers(e, 2, nil).Run(ctx) }()
		time.Sleep(5 * time.Second) // longer than a hold
		count := make(map[publicpb.JobStatus]int)
		var waits gq.JobID
		for _, id := range long {
			now, err := s.GetJobStatus(t.Context(), &publicpb.GetJobStatusRequest{JobId: id.String()})
			if err != nil {
				t.Fatal(err)
			}
			if count[now.GetStatus()]++; now.GetStatus() == publicpb.JobStatus_QUEUED {
				waits = id
			}
		}
		if count[publicpb.JobStatus_RUNNING] != 2 || count[publicpb.JobStatus_QUEUED] != 10 {
			t.Errorf("two slots have %v", count)
		}
		answer, err := s.CancelJob(t.Context(), &publicpb.CancelJobRequest{JobId: waits.String()})
		if err != nil || answer.GetCurrentStatus() != publicpb.JobStatus_CANCELED {
			t.Errorf("cancel: %v, %v", answer, err)
		}
		time.Sleep(time.Minute + 10*time.Second)
		for _, id := range long {
			job, err := e.Get(t.Context(), id, 0)
			if want := id != waits; err != nil || want != (job.State.Status == gq.StatusCompleted) || want != (job.State.Attempt == 1) {
				t.Errorf("%v is %v after %d attempts, %v", id, job.State.Status, job.State.Attempt, err)
			}
		}
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

func submitAll(t *testing.T, s *taskqueue.Service, n int, ms uint32) (ids []gq.JobID) {
	t.Helper()
	for range n {
		submitted, err := s.SubmitJob(t.Context(), &publicpb.SubmitJobRequest{Spec: &publicpb.JobSpec{JobType: "x", WorkDurationMs: ms, PayloadSizeBytes: 8}})
		if err != nil {
			t.Fatal(err)
		}
		id, err := gq.ParseJobID(submitted.GetJobId())
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, id)
	}
	return ids
}
