package job_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	publicpb "github.com/gopherqueue/gq/api/taskqueue/v1"
	"github.com/gopherqueue/gq/internal/taskwork"
	"github.com/gopherqueue/gq/internal/testing/spec"
	internalpb "github.com/gopherqueue/gq/services/api/taskqueueinternal/v1"
	"github.com/gopherqueue/gq/services/internal/rpc"
	"github.com/gopherqueue/gq/services/internal/servicetest"
	"github.com/gopherqueue/gq/services/job"
)

const (
	queued   = publicpb.JobStatus_QUEUED
	running  = publicpb.JobStatus_RUNNING
	done     = publicpb.JobStatus_DONE
	failed   = publicpb.JobStatus_FAILED
	canceled = publicpb.JobStatus_CANCELED
)

var statuses = []publicpb.JobStatus{queued, running, done, failed, canceled}

// fixture is a service whose clock stands still.
type fixture struct {
	*testing.T
	*job.Service
	journal servicetest.Journal
	now     time.Time
}

func open(t *testing.T, adjust func(*job.Config)) *fixture {
	f := &fixture{T: t, now: time.UnixMilli(1_700_000_000_000)}
	c := job.Config{Log: f.journal.Log("job"), Now: func() time.Time { return f.now }}
	if adjust != nil {
		adjust(&c)
	}
	f.Service = job.New(c)
	return f
}

func (f *fixture) create(key string) string {
	f.Helper()
	answer, err := f.CreateJob(f.Context(), &internalpb.CreateJobRequest{Spec: &publicpb.JobSpec{JobType: "x"}, ClientRequestId: key})
	if err != nil {
		f.Fatalf("create: %v", err)
	}
	return answer.GetJobId()
}

func (f *fixture) move(id string, from, to publicpb.JobStatus, actor string) (bool, publicpb.JobStatus) {
	f.Helper()
	answer, err := f.TransitionJobStatus(f.Context(), &internalpb.TransitionJobStatusRequest{JobId: id, ExpectedFromStatus: from, ToStatus: to, Actor: actor, Reason: "because"})
	if err != nil {
		f.Fatalf("transition: %v", err)
	}
	return answer.GetApplied(), answer.GetCurrentStatus()
}

// bring creates a job and moves it to a status.
func (f *fixture) bring(to publicpb.JobStatus) string {
	f.Helper()
	id := f.create("")
	switch to {
	case queued:
	case canceled:
		f.move(id, queued, canceled, "gateway")
	default:
		f.move(id, queued, running, "coordinator")
		if to != running {
			f.move(id, running, to, "coordinator")
		}
	}
	return id
}

func (f *fixture) get(id string) *internalpb.GetJobRecordResponse {
	f.Helper()
	answer, err := f.GetJobRecord(f.Context(), &internalpb.GetJobRecordRequest{JobId: id})
	if err != nil {
		f.Fatalf("get: %v", err)
	}
	return answer
}

func TestTransitionTable(t *testing.T) {
	spec.Covers(t, "T-71", "T-72", "T-103", "T-220", "T-231")
	legal := map[[2]publicpb.JobStatus]bool{
		{queued, running}: true, {queued, canceled}: true, {running, done}: true, {running, failed}: true, {running, canceled}: true,
	}
	for _, current := range statuses {
		for _, from := range statuses {
			for _, to := range statuses {
				f := open(t, nil)
				id := f.bring(current)
				before := len(f.journal.Lines(t, "invalid_transition"))
				applied, after := f.move(id, from, to, "")
				want := legal[[2]publicpb.JobStatus{from, to}] && current == from
				if applied != want || after != f.get(id).GetSummary().GetStatus() || !want && after != current || want && after != to {
					t.Errorf("at %v, %v to %v: applied %v, then %v", current, from, to, applied, after)
				}
				if logged := len(f.journal.Lines(t, "invalid_transition")) > before; logged != !legal[[2]publicpb.JobStatus{from, to}] {
					t.Errorf("%v to %v: logged as invalid: %v", from, to, logged)
				}
			}
		}
	}
}

func TestTransitionsBelongToActors(t *testing.T) {
	spec.Covers(t, "T-74", "T-75", "T-115")
	for _, test := range []struct {
		actor    string
		from, to publicpb.JobStatus
		want     bool
	}{
		{"gateway", queued, canceled, true},
		{"gateway", queued, running, false},
		{"gateway", running, canceled, false},
		{"gateway", running, done, false},
		{"gateway", running, failed, false},
		{"coordinator", queued, running, true},
		{"coordinator", running, canceled, true},
		{"coordinator", running, done, true},
		{"coordinator", running, failed, true},
		{"coordinator", queued, canceled, false},
		{"worker", running, done, false},
	} {
		f := open(t, nil)
		id := f.bring(test.from)
		if applied, _ := f.move(id, test.from, test.to, test.actor); applied != test.want {
			t.Errorf("%s, %v to %v: applied %v", test.actor, test.from, test.to, applied)
		}
	}
}

func TestTransitionNeedsStatuses(t *testing.T) {
	spec.Covers(t, "T-173", "T-262")
	f := open(t, nil)
	id := f.create("")
	for _, r := range []*internalpb.TransitionJobStatusRequest{
		{JobId: id, ToStatus: running}, {JobId: id, ExpectedFromStatus: 6, ToStatus: running}, {JobId: id, ExpectedFromStatus: queued}, {ExpectedFromStatus: queued, ToStatus: running},
	} {
		if _, err := f.TransitionJobStatus(t.Context(), r); status.Code(err) != codes.InvalidArgument {
			t.Errorf("%v: %v", r, err)
		}
	}
	if f.get(id).GetSummary().GetStatus() != queued {
		t.Error("it moved")
	}
	if _, err := f.TransitionJobStatus(t.Context(), &internalpb.TransitionJobStatusRequest{JobId: "ghost", ExpectedFromStatus: queued, ToStatus: running}); status.Code(err) != codes.NotFound {
		t.Errorf("unknown job: %v", err)
	}
}

func TestFirstTerminalWins(t *testing.T) {
	spec.Covers(t, "T-96", "T-97", "T-231", "T-256")
	for range 20 {
		f := open(t, nil)
		id := f.bring(running)
		var mu sync.Mutex
		applied := 0
		var all sync.WaitGroup
		for i := range 100 {
			all.Go(func() {
				if ok, _ := f.move(id, running, []publicpb.JobStatus{done, failed, canceled}[i%3], "coordinator"); ok {
					mu.Lock()
					applied++
					mu.Unlock()
				}
			})
		}
		all.Wait()
		if applied != 1 {
			t.Errorf("%d transitions were applied", applied)
		}
		if n := len(f.journal.Lines(t, "terminal_conflict")); n != 99 {
			t.Errorf("%d lines about those that lost", n)
		}
	}
}

func TestRecordsKeepTheirStory(t *testing.T) {
	spec.Covers(t, "T-125", "T-146", "T-167", "T-237", "T-258")
	f := open(t, nil)
	id := f.create("")
	f.now = f.now.Add(-time.Hour) // clocks may be set back; times never decrease
	f.move(id, queued, running, "coordinator")
	f.now = f.now.Add(2 * time.Hour)
	f.move(id, running, failed, "coordinator")
	got := f.get(id)
	s := got.GetSummary()
	if s.GetCreatedAtMs() != 1_700_000_000_000 || s.GetStartedAtMs() != 1_700_000_000_000 || s.GetFinishedAtMs() != 1_700_003_600_000 {
		t.Errorf("times of %v", s)
	}
	if got.GetFailureReason() != "because" || got.GetSpec().GetJobType() != "x" || s.GetJobType() != "x" || s.GetCancelRequested() {
		t.Errorf("record %v", got)
	}
	if again := f.get(id); again.String() != got.String() {
		t.Errorf("read again: %v", again)
	}
}

// The job service keeps everything about a job: its spec, when it was created, its
// status and whether its cancellation was requested.
func TestRecordsAreWhole(t *testing.T) {
	spec.Covers(t, "T-51", "T-135", "T-167")
	f := open(t, nil)
	want := &publicpb.JobSpec{JobType: "render", WorkDurationMs: 12, PayloadSizeBytes: 34, Labels: map[string]string{"a": "1", "b": "2"}}
	given := proto.CloneOf(want)
	answer, err := f.CreateJob(t.Context(), &internalpb.CreateJobRequest{Spec: given})
	if err != nil {
		t.Fatal(err)
	}
	id := answer.GetJobId()
	given.JobType, given.Labels["a"] = "changed", "changed" // by the sender of the request
	created := f.now.UnixMilli()
	summary := &publicpb.JobSummary{JobId: id, Status: queued, JobType: "render", CreatedAtMs: created}
	check := func(when string) {
		t.Helper()
		got := f.get(id)
		if !proto.Equal(got.GetSpec(), want) || !proto.Equal(got.GetSummary(), summary) {
			t.Errorf("%s: %v, want %v and %v", when, got, want, summary)
		}
		got.Spec.JobType, got.Summary.Status, got.Spec.Labels["a"] = "scribbled", done, "scribbled" // by a reader
	}
	check("created")
	check("read again")
	f.now = f.now.Add(time.Second)
	f.move(id, queued, running, "coordinator")
	summary.Status, summary.StartedAtMs = running, created+1000
	check("started")
	if _, err := f.SetCancelRequested(t.Context(), &internalpb.SetCancelRequestedRequest{JobId: id, CancelRequested: true}); err != nil {
		t.Fatal(err)
	}
	summary.CancelRequested = true
	check("to be canceled")
	f.now = f.now.Add(time.Second)
	f.move(id, running, canceled, "coordinator")
	summary.Status, summary.FinishedAtMs = canceled, created+2000
	check("canceled")
}

func TestSetCancelRequested(t *testing.T) {
	spec.Covers(t, "T-172", "T-232")
	for _, at := range statuses {
		f := open(t, nil)
		id := f.bring(at)
		for range 3 {
			answer, err := f.SetCancelRequested(t.Context(), &internalpb.SetCancelRequestedRequest{JobId: id, CancelRequested: true, Reason: "r"})
			if err != nil || answer.GetCurrentStatus() != at || answer.GetApplied() != (at <= running) {
				t.Errorf("at %v: %v, %v", at, answer, err)
			}
		}
		if got := f.get(id).GetSummary(); got.GetCancelRequested() != (at <= running || at == canceled) || got.GetStatus() != at {
			t.Errorf("at %v: %v", at, got)
		}
	}
	f := open(t, nil)
	if _, err := f.SetCancelRequested(t.Context(), &internalpb.SetCancelRequestedRequest{JobId: "ghost", CancelRequested: true}); status.Code(err) != codes.NotFound {
		t.Errorf("unknown job: %v", err)
	}
}

func TestDeleteIfStatus(t *testing.T) {
	spec.Covers(t, "T-166", "T-221", "T-228")
	f := open(t, nil)
	remove := func(id string, expected publicpb.JobStatus) *internalpb.DeleteJobIfStatusResponse {
		answer, err := f.DeleteJobIfStatus(t.Context(), &internalpb.DeleteJobIfStatusRequest{JobId: id, ExpectedStatus: expected})
		if err != nil {
			t.Fatal(err)
		}
		return answer
	}
	id := f.bring(running)
	if answer := remove(id, queued); answer.GetDeleted() || answer.GetCurrentStatus() != running {
		t.Errorf("mismatch: %v", answer)
	}
	f.get(id)
	keyed := f.create("key")
	if answer := remove(keyed, queued); !answer.GetDeleted() {
		t.Errorf("match: %v", answer)
	}
	if answer := remove(keyed, queued); answer.GetDeleted() || answer.GetCurrentStatus() != 0 {
		t.Errorf("unknown: %v", answer)
	}
	if f.create("key") == keyed {
		t.Error("the key still belongs to the deleted job")
	}
	if _, err := f.DeleteJobIfStatus(t.Context(), &internalpb.DeleteJobIfStatusRequest{JobId: id}); status.Code(err) != codes.InvalidArgument {
		t.Errorf("without a status: %v", err)
	}
}

func TestKeys(t *testing.T) {
	spec.Covers(t, "T-143", "T-204", "T-205", "T-226", "T-227", "T-261")
	f := open(t, nil)
	first := f.create("key-0")
	for i := 1; i < taskwork.MaxDedupKeys; i++ {
		f.create(fmt.Sprintf("key-%d", i))
	}
	if f.create("key-0") != first {
		t.Error("the key was forgotten before it had to be")
	}
	f.create("one too many")
	evicted := f.create("key-0")
	if evicted == first {
		t.Error("more than 10000 keys are remembered")
	}
	if f.create("key-0") != evicted {
		t.Error("the new job does not own the key")
	}
	if taskwork.MaxDedupKeys != 10000 {
		t.Errorf("%d keys", taskwork.MaxDedupKeys)
	}
	if open(t, nil).create("key-0") == evicted { // a new process remembers nothing
		t.Error("keys outlive the service")
	}
}

func TestCreateRefuses(t *testing.T) {
	f := open(t, nil)
	for name, r := range map[string]*internalpb.CreateJobRequest{
		"no spec": {}, "no type": {Spec: &publicpb.JobSpec{}},
		"large spec": {Spec: &publicpb.JobSpec{JobType: "x", Labels: map[string]string{"a": strings.Repeat("b", 70_000)}}},
		"large key":  {Spec: &publicpb.JobSpec{JobType: "x"}, ClientRequestId: strings.Repeat("k", 2000)},
	} {
		if _, err := f.CreateJob(t.Context(), r); status.Code(err) != codes.InvalidArgument {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A full table forgets the jobs that ended first, and rejects jobs if none has ended.
func TestMemoryIsBounded(t *testing.T) {
	spec.Covers(t, "T-213")
	f := open(t, func(c *job.Config) { c.MaxJobs = 5000 })
	var ended []string
	for range 4000 {
		id := f.bring(running)
		f.move(id, running, done, "coordinator")
		ended = append(ended, id)
	}
	for range 5000 {
		f.create("")
	}
	_, err := f.CreateJob(t.Context(), &internalpb.CreateJobRequest{Spec: &publicpb.JobSpec{JobType: "x"}})
	if status.Code(err) != codes.ResourceExhausted {
		t.Errorf("one more: %v", err)
	}
	if _, err := f.GetJobRecord(t.Context(), &internalpb.GetJobRecordRequest{JobId: ended[0]}); status.Code(err) != codes.NotFound {
		t.Errorf("the first to end: %v", err)
	}
	list, err := f.ListJobRecords(t.Context(), &internalpb.ListJobRecordsRequest{Page: &publicpb.PageRequest{PageToken: "4999"}})
	if err != nil || len(list.GetJobs()) != 1 {
		t.Errorf("list: %d jobs, %v", len(list.GetJobs()), err)
	}
}

func TestListOfEqualTimes(t *testing.T) {
	spec.Covers(t, "T-162", "T-168", "T-169", "T-260")
	f := open(t, nil)
	for i := range 300 {
		if i%100 == 0 {
			f.now = f.now.Add(time.Millisecond)
		}
		f.create("")
	}
	for _, sort := range []publicpb.JobSort{publicpb.JobSort_CREATED_AT_ASC, publicpb.JobSort_CREATED_AT_DESC} {
		var keys []string
		for offset := 0; offset < 300; offset += 100 {
			list, err := f.ListJobRecords(t.Context(), &internalpb.ListJobRecordsRequest{Sort: sort, Page: &publicpb.PageRequest{PageSize: 100, PageToken: fmt.Sprint(offset)}})
			if err != nil {
				t.Fatal(err)
			}
			for _, j := range list.GetJobs() {
				at := j.GetCreatedAtMs()
				if sort == publicpb.JobSort_CREATED_AT_DESC {
					at = 2_000_000_000_000 - at
				}
				keys = append(keys, fmt.Sprint(at, j.GetJobId()))
			}
		}
		if len(keys) != 300 || !slices.IsSorted(keys) {
			t.Errorf("%v: %d jobs, not in order", sort, len(keys))
		}
	}
}

func TestAuditReportsOnce(t *testing.T) {
	spec.Covers(t, "T-94", "T-95")
	f := open(t, nil)
	lost, stuck := f.create(""), f.bring(running)
	f.now = f.now.Add(29 * time.Second)
	f.move(f.create(""), queued, running, "coordinator")
	f.Audit(context.Background())
	if lines := f.journal.Lines(t, rpc.EventAnomaly); len(lines) > 0 {
		t.Fatalf("too early: %v", lines)
	}
	f.now = f.now.Add(32 * time.Second)
	young := f.create("")
	f.move(young, queued, running, "coordinator")
	for range 3 {
		f.Audit(context.Background())
	}
	found := make(map[string]string)
	lines := f.journal.Lines(t, rpc.EventAnomaly)
	for _, l := range lines {
		found[l.Text("job_id")] = l.Text("anomaly")
	}
	if len(lines) != 2 || found[lost] != "queued_overtaken" || found[stuck] != "running_overdue" {
		t.Errorf("anomalies %v", lines)
	}
	if f.get(lost).GetSummary().GetStatus() != queued || f.get(stuck).GetSummary().GetStatus() != running {
		t.Error("the audit changed something")
	}
}
