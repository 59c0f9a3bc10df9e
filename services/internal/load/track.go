package load

import (
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	publicpb "github.com/gopherqueue/gq/api/taskqueue/v1"
)

// job is an accepted job. It is owned by the goroutine that took it from the tracker.
type job struct {
	id       string
	due      time.Time     // when its submit was due, by the generator's clock
	late     time.Duration // from due until the submit was sent
	measured bool          // the submit was due in the measured time
	canceled bool          // the generator requested its cancellation

	status                     publicpb.JobStatus // newest seen
	created, started, finished int64              // known once status reports the end
	verified                   bool               // its result was read and was right
}

// endToEnd returns the time from submit to end in milliseconds: by the service's clock,
// plus how late the submit was sent.
func (j *job) endToEnd() int64 { return j.late.Milliseconds() + j.finished - j.created }

// tracker holds the accepted jobs that were not yet followed to their end: until both
// status and result have reported it.
type tracker struct {
	most       int
	start, end int64 // of the measured time, epoch milliseconds

	mu       sync.Mutex // guards what follows
	known    map[string]*job
	open     fifo // neither has reported the end
	ended    fifo // status has
	settled  fifo // result has
	censored bool // the drain is over: the jobs still known have been counted
	report   JobsReport
	samples  []JobSample
}

func newTracker(most int, start, end time.Time) *tracker {
	return &tracker{most: most, start: start.UnixMilli(), end: end.UnixMilli(), known: make(map[string]*job)}
}

func (t *tracker) full() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.known) >= t.most
}

// left returns how many jobs are still to be followed.
func (t *tracker) left() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.known)
}

func (t *tracker) add(j *job) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.known[j.id] != nil {
		return false
	}
	t.known[j.id] = j
	t.report.Accepted++
	if j.measured {
		t.report.Window.Accepted++
	}
	t.open.push(j)
	return true
}

// take returns the job to ask about next, nil if there is none.
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

// takeAny returns the job nearest to its end, and the call to make.
func (t *tracker) takeAny() (Method, *job) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if j := t.settled.pop(); j != nil {
		return Status, j
	}
	if j := t.ended.pop(); j != nil {
		return Result, j
	}
	return Status, t.open.pop()
}

// put returns a job to the tracker after a call about it.
func (t *tracker) put(j *job, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch told := j.finished > 0; {
	case status.Code(err) == codes.NotFound:
		t.report.Lost++
		if j.measured && !t.censored {
			t.report.Window.Lost++
			t.sampleLocked(j, Lost, time.Since(j.due).Milliseconds())
		}
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

func (t *tracker) sampleLocked(j *job, o Outcome, endToEnd int64) {
	if len(t.samples) >= maxSamples {
		return
	}
	s := JobSample{Created: j.created, EndToEnd: endToEnd, Outcome: o}
	if s.Created == 0 {
		s.Created = j.due.UnixMilli()
	}
	if j.started > 0 {
		s.TimeToWork = j.started - j.created
	}
	t.samples = append(t.samples, s)
}

func (t *tracker) settleLocked(j *job) {
	delete(t.known, j.id)
	switch j.status {
	case publicpb.JobStatus_DONE:
		t.report.Done++
	case publicpb.JobStatus_FAILED:
		t.report.Failed++
	default:
		t.report.Canceled++
	}
	if !t.censored {
		t.endedLocked(j)
	}
}

// endedLocked measures a job that has ended. The generator has not canceled it: if it
// is CANCELED, the service did that by itself.
func (t *tracker) endedLocked(j *job) {
	done := j.status == publicpb.JobStatus_DONE
	if done && j.finished >= t.start && j.finished <= t.end {
		t.report.Finished++
	}
	if !j.measured {
		return
	}
	outcome := Done
	switch w := &t.report.Window; {
	case !done:
		w.Failed++
		outcome = Failed
	case j.finished <= t.end:
		w.EndedInWindow++
	default:
		w.EndedAfter++
	}
	t.sampleLocked(j, outcome, j.endToEnd())
}

// censor counts the jobs that have not ended by the end of the drain. Later answers
// about them are checked but no longer measured. All jobs must be in the tracker then.
func (t *tracker) censor(now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.censored = true
	for _, j := range t.known {
		switch {
		case j.finished > 0:
			t.endedLocked(j) // only its result was not read yet
		case j.measured:
			t.report.Window.Censored++
			t.sampleLocked(j, Censored, now.Sub(j.due).Milliseconds())
		}
	}
}

// canceled counts a job that the generator canceled.
func (t *tracker) canceled(j *job) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if j.canceled {
		return
	}
	j.canceled = true
	t.report.CanceledByLoad++
	if j.measured {
		t.report.Window.Canceled++
	}
}

// fifo is a queue that frees what was taken.
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
