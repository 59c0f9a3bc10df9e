package load

import (
	"sync"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	publicpb "github.com/gopherqueue/gq/api/taskqueue/v1"
)

// job is an accepted job. Whoever took it from the tracker owns it.
type job struct {
	id                         string
	status                     publicpb.JobStatus // newest that was seen
	created, started, finished int64              // known once it ended, by status
	verified                   bool               // its result was seen and right
}

// tracker holds the accepted jobs that were not yet followed to their end, which
// means that both status and result have told so.
type tracker struct {
	most int
	keep func(*job) bool // tells whether an ended job was measured

	mu      sync.Mutex // guards what follows
	known   map[string]bool
	open    fifo // neither has told yet
	ended   fifo // status has
	settled fifo // result has
	report  JobsReport
	samples []JobSample
}

func newTracker(most int, measured func(*job) bool) *tracker {
	return &tracker{most: most, keep: measured, known: make(map[string]bool)}
}

func (t *tracker) full() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.known) >= t.most
}

// left is how many jobs are still to be followed.
func (t *tracker) left() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.known)
}

func (t *tracker) add(j *job) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.known[j.id] {
		return false
	}
	t.known[j.id] = true
	t.report.Accepted++
	t.open.push(j)
	return true
}

// take returns the job that should be asked for next, nil if there is none.
func (t *tracker) take(m Method) *job {
	t.mu.Lock()
	defer t.mu.Unlock()
	first := &t.settled
	if m == Result {
		first = &t.ended
	}
	if j := first.pop(); j != nil {
		return j
	}
	return t.open.pop()
}

// put gives a job back after it was asked for.
func (t *tracker) put(j *job, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch told := j.finished > 0; {
	case status.Code(err) == codes.NotFound:
		t.report.Lost++
		delete(t.known, j.id)
	case told && j.verified:
		t.settleLocked(j)
	case told:
		t.ended.push(j)
	case j.verified:
		t.settled.push(j)
	default:
		t.open.push(j)
	}
}

// maxSamples bounds the memory of a long run.
const maxSamples = 8 << 20

func (t *tracker) settleLocked(j *job) {
	delete(t.known, j.id)
	switch j.status {
	case publicpb.JobStatus_DONE:
		t.report.Done++
		if t.keep(j) && len(t.samples) < maxSamples {
			t.samples = append(t.samples, JobSample{j.created, j.finished - j.created, j.started - j.created})
		}
	case publicpb.JobStatus_FAILED:
		t.report.Failed++
	default:
		t.report.Canceled++
	}
}

// fifo is a queue that forgets what was taken.
type fifo struct {
	jobs  []*job
	first int
}

func (f *fifo) push(j *job) { f.jobs = append(f.jobs, j) }

func (f *fifo) pop() *job {
	if f.first == len(f.jobs) {
		return nil
	}
	j := f.jobs[f.first]
	f.jobs[f.first] = nil
	f.first++
	if f.first > 256 && f.first > len(f.jobs)/2 {
		f.jobs = append([]*job(nil), f.jobs[f.first:]...)
		f.first = 0
	}
	return j
}
