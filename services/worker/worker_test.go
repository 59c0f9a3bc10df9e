package worker_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	publicpb "github.com/gopherqueue/gq/api/taskqueue/v1"
	"github.com/gopherqueue/gq/internal/taskwork"
	"github.com/gopherqueue/gq/internal/testing/spec"
	internalpb "github.com/gopherqueue/gq/services/api/taskqueueinternal/v1"
	"github.com/gopherqueue/gq/services/internal/servicetest"
	"github.com/gopherqueue/gq/services/worker"
)

// boss is a coordinator that gives out its jobs and records its calls.
type boss struct {
	mu      sync.Mutex // guards what follows
	jobs    []*internalpb.FetchWorkResponse
	cancel  []string
	hint    uint32 // milliseconds, if there is no job
	broken  error  // error of reports
	beats   []time.Time
	fetches []time.Time
	workers map[string]bool
	reports []*internalpb.ReportWorkOutcomeRequest
}

func (b *boss) seen(worker string) {
	if b.workers == nil {
		b.workers = make(map[string]bool)
	}
	b.workers[worker] = true
}

func (b *boss) WorkerHeartbeat(_ context.Context, r *internalpb.WorkerHeartbeatRequest, _ ...grpc.CallOption) (*internalpb.WorkerHeartbeatResponse, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.seen(r.GetWorkerId())
	b.beats = append(b.beats, time.Now())
	return &internalpb.WorkerHeartbeatResponse{Accepted: true, NextHeartbeatInMs: 1000, CancelJobIds: b.cancel}, nil
}

func (b *boss) FetchWork(_ context.Context, r *internalpb.FetchWorkRequest, _ ...grpc.CallOption) (*internalpb.FetchWorkResponse, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.seen(r.GetWorkerId())
	b.fetches = append(b.fetches, time.Now())
	if len(b.jobs) == 0 {
		return &internalpb.FetchWorkResponse{RetryAfterMs: b.hint}, nil
	}
	job := b.jobs[0]
	b.jobs = b.jobs[1:]
	return job, nil
}

func (b *boss) ReportWorkOutcome(_ context.Context, r *internalpb.ReportWorkOutcomeRequest, _ ...grpc.CallOption) (*internalpb.ReportWorkOutcomeResponse, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.broken != nil {
		return nil, b.broken
	}
	b.seen(r.GetWorkerId())
	b.reports = append(b.reports, r)
	return &internalpb.ReportWorkOutcomeResponse{Accepted: true}, nil
}

func work(id string, ms, size uint32) *internalpb.FetchWorkResponse {
	return &internalpb.FetchWorkResponse{Assigned: true, JobId: id, Spec: &publicpb.JobSpec{JobType: "t", WorkDurationMs: ms, PayloadSizeBytes: size}}
}

// during runs a worker for some virtual time.
func during(t *testing.T, b *boss, slots int, d time.Duration, meanwhile func()) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	defer cancel()
	var journal servicetest.Journal
	w := worker.New(worker.Config{ID: "w", Slots: slots, Log: journal.Log("worker"), Coordinator: b})
	if meanwhile != nil {
		go meanwhile()
	}
	if err := w.Run(ctx); err != nil {
		t.Error(err)
	}
	synctest.Wait()
}

func TestWorkerRunsWhatItIsGiven(t *testing.T) {
	spec.Covers(t, "T-15", "T-57", "T-69", "T-120", "T-198", "T-201", "T-202", "T-203", "T-260")
	synctest.Test(t, func(t *testing.T) {
		b := &boss{jobs: []*internalpb.FetchWorkResponse{
			work("a", 100, 10), work("b", 100, 0), work("c", 100, taskwork.MaxOutputBytes), work("d", 100, taskwork.MaxOutputBytes+1), work("e", 100, 1), work("f", 100, 1),
		}}
		start := time.Now()
		during(t, b, 6, time.Second, func() {
			time.Sleep(150 * time.Millisecond)
			b.mu.Lock()
			defer b.mu.Unlock()
			if len(b.reports) != 6 { // all six at the same time
				t.Errorf("%d reports after %v", len(b.reports), time.Since(start))
			}
		})
		if len(b.reports) != 6 || len(b.workers) != 1 || !b.workers["w"] {
			t.Fatalf("%d reports by %v", len(b.reports), b.workers)
		}
		for _, r := range b.reports {
			size := map[string]uint32{"a": 10, "b": 0, "c": taskwork.MaxOutputBytes, "e": 1, "f": 1}[r.GetJobId()]
			if r.GetJobId() == "d" {
				if r.GetOutcome() != internalpb.JobOutcome_FAILED || r.GetFailureReason() != taskwork.TooLarge || len(r.GetOutputBytes()) > 0 {
					t.Errorf("too large: %v", r.GetOutcome())
				}
				continue
			}
			if r.GetOutcome() != internalpb.JobOutcome_SUCCEEDED || !taskwork.Matches(r.GetOutputBytes(), "t", size) ||
				r.GetChecksum() != taskwork.Checksum(r.GetOutputBytes()) || r.GetRuntimeMs() != 100 {
				t.Errorf("%s: %v after %d ms", r.GetJobId(), r.GetOutcome(), r.GetRuntimeMs())
			}
		}
	})
}

func TestWorkerBeatsOnceASecond(t *testing.T) {
	spec.Covers(t, "T-199", "T-262")
	synctest.Test(t, func(t *testing.T) {
		b := &boss{}
		during(t, b, 1, 5500*time.Millisecond, nil)
		if len(b.beats) != 6 {
			t.Fatalf("%d heartbeats", len(b.beats))
		}
		for i, at := range b.beats[1:] {
			if gap := at.Sub(b.beats[i]); gap != time.Second {
				t.Errorf("gap of %v", gap)
			}
		}
	})
}

func TestIdleWorkerDoesNotSpin(t *testing.T) {
	spec.Covers(t, "T-258", "T-259")
	const slots, seconds = 6, 4
	for hint, each := range map[uint32]int{0: 20, 1: 20, 50: 20, 200: 5, 1000: 1} { // fetches per second; no hint makes more than 20
		synctest.Test(t, func(t *testing.T) {
			b := &boss{hint: hint}
			during(t, b, slots, seconds*time.Second-time.Millisecond, nil)
			if len(b.fetches) != slots*seconds*each {
				t.Errorf("told to wait %d ms: %d fetches in %d s, want %d by each of %d slots a second", hint, len(b.fetches), seconds, each, slots)
			}
		})
	}
}

func TestWorkerStopsEarly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &boss{jobs: []*internalpb.FetchWorkResponse{work("long", 60_000, 0), work("other", 60_000, 0)}, cancel: []string{"long", "unknown"}}
		during(t, b, 2, 3*time.Second, nil)
		if len(b.reports) != 1 || b.reports[0].GetJobId() != "long" || b.reports[0].GetOutcome() != internalpb.JobOutcome_CANCELED {
			t.Errorf("reports %v", b.reports)
		}
	})
}

// A worker reports an outcome until it is accepted, and its slot fetches nothing
// before.
func TestWorkerReportsUntilHeard(t *testing.T) {
	spec.Covers(t, "T-46")
	synctest.Test(t, func(t *testing.T) {
		b := &boss{jobs: []*internalpb.FetchWorkResponse{work("a", 0, 0), work("b", 0, 0)}, broken: status.Error(codes.Unavailable, "down")}
		during(t, b, 1, 20*time.Second, func() {
			time.Sleep(10 * time.Second)
			b.mu.Lock()
			defer b.mu.Unlock()
			if len(b.fetches) != 1 {
				t.Errorf("%d fetches while the outcome is not heard", len(b.fetches))
			}
			b.broken = nil
		})
		ids := make([]string, 0, 2)
		for _, r := range b.reports {
			ids = append(ids, r.GetJobId())
		}
		if !slices.Equal(ids, []string{"a", "b"}) {
			t.Errorf("reported %v", ids)
		}
	})
}
