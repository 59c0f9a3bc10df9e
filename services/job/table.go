package job

import (
	"cmp"
	"slices"
	"strconv"
	"sync"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	publicpb "github.com/gopherqueue/gq/api/taskqueue/v1"
	"github.com/gopherqueue/gq/internal/taskwork"
	internalpb "github.com/gopherqueue/gq/services/api/taskqueueinternal/v1"
)

// record is one job. The table owns the spec, which never changes after creation.
type record struct {
	id       string
	spec     *publicpb.JobSpec
	key      string
	status   publicpb.JobStatus
	created  int64 // epoch milliseconds, like the other times
	started  int64
	finished int64
	cancel   bool
	reason   string // why it failed, or why its cancellation was requested
	bytes    int
	reported bool // by Audit
	deleted  bool
}

func (r *record) summary() *publicpb.JobSummary {
	return &publicpb.JobSummary{
		JobId: r.id, Status: r.status, JobType: r.spec.GetJobType(), CreatedAtMs: r.created,
		StartedAtMs: r.started, FinishedAtMs: r.finished, CancelRequested: r.cancel,
	}
}

// table holds all jobs.
type table struct {
	config Config

	mu    sync.Mutex // guards everything below
	clock int64      // newest time used, so that times never decrease
	jobs  map[string]*record
	bytes int
	keys  *keyCache

	order   []*record // by creation; deleted ones are skipped and removed in bulk
	dropped int       // deleted records in order
	ended   []*record // in the order of their end, starting at endedAt
	endedAt int

	frontier int64 // creation time of the youngest job that ever started
}

func newTable(c Config) *table {
	return &table{config: c, jobs: make(map[string]*record), keys: newKeyCache(taskwork.MaxDedupKeys)}
}

func (t *table) nowLocked() int64 {
	t.clock = max(t.clock, t.config.Now().UnixMilli())
	return t.clock
}

func (t *table) create(spec *publicpb.JobSpec, key string) (*internalpb.CreateJobResponse, error) {
	var mark fingerprint
	if key != "" {
		mark = fingerprintOf(spec)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if key != "" {
		if entry, ok := t.keys.get(key); ok {
			if entry.mark != mark {
				return nil, status.Errorf(codes.FailedPrecondition, "client_request_id %.64q was used with another payload", key)
			}
			return &internalpb.CreateJobResponse{JobId: entry.job.id, Status: entry.job.status, Deduplicated: true}, nil
		}
	}
	size := proto.Size(spec) + len(key)
	for len(t.jobs) >= t.config.MaxJobs || t.bytes+size > t.config.MaxBytes {
		if !t.forgetLocked() {
			return nil, status.Errorf(codes.ResourceExhausted, "limit of %d live jobs reached", len(t.jobs))
		}
	}
	r := &record{id: t.config.NewID(), spec: spec, key: key, status: publicpb.JobStatus_QUEUED, created: t.nowLocked(), bytes: size}
	t.jobs[r.id] = r
	t.bytes += size
	t.order = append(t.order, r)
	if key != "" {
		t.keys.put(key, keyEntry{mark, r})
	}
	return &internalpb.CreateJobResponse{JobId: r.id, Status: r.status}, nil
}

// forgetLocked removes the job that ended first. It returns false if none has ended.
func (t *table) forgetLocked() bool {
	for t.endedAt < len(t.ended) {
		r := t.ended[t.endedAt]
		t.ended[t.endedAt] = nil
		t.endedAt++
		if t.endedAt > 1024 && t.endedAt > len(t.ended)/2 {
			t.ended = append([]*record(nil), t.ended[t.endedAt:]...)
			t.endedAt = 0
		}
		if !r.deleted {
			t.dropLocked(r)
			return true
		}
	}
	return false
}

func (t *table) dropLocked(r *record) {
	r.deleted = true
	delete(t.jobs, r.id)
	t.bytes -= r.bytes
	if r.key != "" {
		t.keys.dropIf(r.key, r)
	}
	t.dropped++
	if t.dropped > 1024 && t.dropped > len(t.order)/2 {
		t.order = slices.DeleteFunc(t.order, func(r *record) bool { return r.deleted })
		t.dropped = 0
	}
}

func (t *table) deleteIf(id string, expected publicpb.JobStatus) (deleted bool, current publicpb.JobStatus) {
	t.mu.Lock()
	defer t.mu.Unlock()
	r, ok := t.jobs[id]
	switch {
	case !ok:
		return false, publicpb.JobStatus_JOB_STATUS_UNSPECIFIED
	case r.status != expected:
		return false, r.status
	}
	t.dropLocked(r)
	return true, r.status
}

func (t *table) get(id string) (record, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if r, ok := t.jobs[id]; ok {
		return *r, true
	}
	return record{}, false
}

func (t *table) transition(id string, from, to publicpb.JobStatus, actor, reason string) (verdict, publicpb.JobStatus) {
	t.mu.Lock()
	defer t.mu.Unlock()
	r, ok := t.jobs[id]
	if !ok {
		return missing, publicpb.JobStatus_JOB_STATUS_UNSPECIFIED
	}
	v := judge(move{from, to}, actor, r.status)
	if v != applied {
		return v, r.status
	}
	r.status = to
	now := t.nowLocked()
	if to == publicpb.JobStatus_RUNNING {
		r.started = now
		t.frontier = max(t.frontier, r.created)
		return v, to
	}
	r.finished = now
	t.ended = append(t.ended, r)
	switch to {
	case publicpb.JobStatus_FAILED:
		r.reason = reason
	case publicpb.JobStatus_CANCELED:
		r.cancel = true
		r.reason = cmp.Or(r.reason, reason)
	default:
		r.reason = ""
	}
	return v, to
}

func (t *table) setCancel(id string, on bool, reason string) (set bool, current publicpb.JobStatus, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	r, ok := t.jobs[id]
	if !ok {
		return false, publicpb.JobStatus_JOB_STATUS_UNSPECIFIED, false
	}
	if terminal(r.status) {
		return false, r.status, true
	}
	if on != r.cancel {
		r.cancel, r.reason = on, reason // the first reason is kept
	}
	return true, r.status, true
}

// list walks the jobs in the requested order. They are already in creation order; only
// those of the same millisecond must be sorted by id.
func (t *table) list(p page) (jobs []*publicpb.JobSummary, next string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	skipped, more := 0, false
	t.groupsLocked(p.ascending, func(group []*record) bool {
		for _, r := range group {
			switch {
			case !p.wanted[r.status]:
			case skipped < p.offset:
				skipped++
			case len(jobs) == p.size:
				more = true
				return false
			default:
				jobs = append(jobs, r.summary())
			}
		}
		return true
	})
	if more {
		next = strconv.Itoa(p.offset + len(jobs))
	}
	return jobs, next
}

// groupsLocked yields the jobs of each millisecond, ordered by id.
func (t *table) groupsLocked(ascending bool, yield func([]*record) bool) {
	n := len(t.order)
	at := func(i int) *record {
		if ascending {
			return t.order[i]
		}
		return t.order[n-1-i]
	}
	var group []*record
	flush := func() bool {
		slices.SortFunc(group, func(a, b *record) int { return cmp.Compare(a.id, b.id) })
		more := len(group) == 0 || yield(group)
		group = group[:0]
		return more
	}
	for i := range n {
		r := at(i)
		if r.deleted {
			continue
		}
		if len(group) > 0 && group[0].created != r.created && !flush() {
			return
		}
		group = append(group, r)
	}
	flush()
}
