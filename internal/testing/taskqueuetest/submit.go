package taskqueuetest

import (
	"crypto/rand"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	publicpb "github.com/gopherqueue/gq/api/taskqueue/v1"
)

var submitCases = []testCase{
	{
		name: "Submit/Answer", clause: "a submit answers a UUIDv4, QUEUED, and the server's time",
		Covers: []string{"T-107", "T-139", "T-192", "T-262"},
		run:    submitAnswer,
	},
	{
		name: "Submit/Unique", clause: "every unkeyed submit is a job of its own",
		Covers: []string{"T-34", "T-142", "T-258"},
		run:    submitUnique,
	},
	{
		name: "Submit/Key", clause: "a key with the same payload answers the first job, with another one FAILED_PRECONDITION",
		Covers: []string{"T-138", "T-140", "T-141", "T-144", "T-212", "T-222", "T-262"},
		run:    submitKey,
	},
	{
		name: "Submit/KeyAfterEnd", clause: "a repeat answers as the first submit did, whatever became of the job",
		Covers: []string{"T-140"},
		run:    submitKeyAfterEnd,
	},
	{
		name: "Submit/KeyRace", clause: "concurrent submits with one key make one job",
		Covers: []string{"T-140", "T-222"},
		run:    submitKeyRace,
	},
}

var uuid4 = regexp.MustCompile(`^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$`)

// near reports whether a time of the server, on this machine, is about now, within
// twice the patience.
func near(ms int64) bool { return time.Since(time.UnixMilli(ms)).Abs() < 2*patience }

func submitAnswer(t *testing.T, s *system) {
	for _, node := range s.nodes {
		answer := submit(t, node, work(0, 0), "")
		if !uuid4.MatchString(answer.GetJobId()) || answer.GetInitialStatus() != publicpb.JobStatus_QUEUED || !near(answer.GetAcceptedAtMs()) {
			t.Errorf("submit answers %v", answer)
		}
	}
}

func submitUnique(t *testing.T, s *system) {
	const jobs = 300
	seen := make(map[string]bool)
	for _, id := range s.submitMany(t, jobs, func(i int) publicpb.TaskQueuePublicServiceClient { return s.nodes[i%len(s.nodes)] }) {
		if seen[id] {
			t.Fatalf("%s was answered twice", id)
		}
		seen[id] = true
	}
	if len(seen) != jobs {
		t.Errorf("%d ids", len(seen))
	}
}

// submitMany submits jobs that take no time, several concurrently.
func (s *system) submitMany(t *testing.T, n int, node func(i int) publicpb.TaskQueuePublicServiceClient) []string {
	t.Helper()
	const clients = 16
	ids := make([]string, n)
	var all sync.WaitGroup
	for c := range clients {
		all.Go(func() {
			for i := c; i < n; i += clients {
				answer, err := node(i).SubmitJob(t.Context(), &publicpb.SubmitJobRequest{Spec: work(0, 0)})
				if err != nil {
					t.Errorf("submit: %v", err)
				}
				ids[i] = answer.GetJobId()
			}
		})
	}
	all.Wait()
	if t.Failed() {
		t.FailNow()
	}
	return ids
}

func submitKey(t *testing.T, s *system) {
	key := "key-" + rand.Text()
	base := func() *publicpb.JobSpec {
		j := work(1, 2)
		j.Labels = map[string]string{"a": "1", "b": "2", "c": "3"}
		return j
	}
	first := submit(t, s.first(), base(), key)
	for i := range 10 { // maps are encoded in any order
		if again := submit(t, s.nodes[i%len(s.nodes)], base(), key); again.GetJobId() != first.GetJobId() || again.GetAcceptedAtMs() != first.GetAcceptedAtMs() {
			t.Fatalf("repeat answers %v, the first submit %v", again, first)
		}
	}
	for name, change := range map[string]func(*publicpb.JobSpec){
		"job_type":           func(j *publicpb.JobSpec) { j.JobType = "other" },
		"work_duration_ms":   func(j *publicpb.JobSpec) { j.WorkDurationMs++ },
		"payload_size_bytes": func(j *publicpb.JobSpec) { j.PayloadSizeBytes++ },
		"a label's value":    func(j *publicpb.JobSpec) { j.Labels["a"] = "2" },
		"a label more":       func(j *publicpb.JobSpec) { j.Labels["d"] = "" },
		"a label less":       func(j *publicpb.JobSpec) { delete(j.Labels, "c") },
	} {
		other := base()
		change(other)
		for _, node := range s.nodes {
			_, err := node.SubmitJob(t.Context(), &publicpb.SubmitJobRequest{Spec: other, ClientRequestId: key})
			wantCode(t, "key with another "+name, err, codes.FailedPrecondition)
			if !strings.HasSuffix(status.Convert(err).Message(), "was used with another payload") {
				t.Errorf("key with another %s: %v", name, err)
			}
		}
	}
	if other := submit(t, s.first(), base(), "key-"+rand.Text()); other.GetJobId() == first.GetJobId() {
		t.Error("another key answers the same job")
	}
}

func submitKeyAfterEnd(t *testing.T, s *system) {
	key := "key-" + rand.Text()
	first := submit(t, s.first(), work(0, 0), key)
	s.until(t, first.GetJobId(), is(publicpb.JobStatus_DONE))
	again := submit(t, s.first(), work(0, 0), key)
	if again.GetJobId() != first.GetJobId() || again.GetInitialStatus() != publicpb.JobStatus_QUEUED || again.GetAcceptedAtMs() != first.GetAcceptedAtMs() {
		t.Errorf("repeat answers %v, the first submit %v", again, first)
	}
	if now := s.status(t, first.GetJobId()); now.GetStatus() != publicpb.JobStatus_DONE {
		t.Errorf("the repeat made the job %v", now.GetStatus())
	}
}

func submitKeyRace(t *testing.T, s *system) {
	for range 5 {
		key := "key-" + rand.Text()
		var mu sync.Mutex
		ids := make(map[string]bool)
		var all sync.WaitGroup
		for i := range 24 {
			all.Go(func() {
				answer, err := s.nodes[i%len(s.nodes)].SubmitJob(t.Context(), &publicpb.SubmitJobRequest{Spec: work(0, 0), ClientRequestId: key})
				mu.Lock()
				defer mu.Unlock()
				if err != nil {
					t.Errorf("submit: %v", err)
				}
				ids[answer.GetJobId()] = true
			})
		}
		all.Wait()
		if len(ids) != 1 {
			t.Errorf("one key made the jobs %v", ids)
		}
	}
}
