package storetest

import (
	"bytes"
	"errors"
	"reflect"
	"slices"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/store"
)

// plainState returns a comparable form of a state: times in one representation, without
// fields that only stores use or that nobody reads.
func plainState(s gq.State) gq.State {
	for _, t := range []*time.Time{
		&s.CreatedAt, &s.UpdatedAt, &s.RunAt, &s.ScheduledAt, &s.StartedAt, &s.FirstStartedAt, &s.CompletedAt,
		&s.Cancellation.RequestedAt, &s.Cancellation.DeliveredAt, &s.Cancellation.HonouredAt,
	} {
		*t = plainTime(*t)
	}
	if s.Lease != nil {
		l := *s.Lease
		l.GrantedAt, l.HeartbeatAt, l.ExpiresAt = plainTime(l.GrantedAt), plainTime(l.HeartbeatAt), plainTime(l.ExpiresAt)
		s.Lease = &l
	}
	s.Settled, s.PreviousDigest, s.Turn = 0, 0, 0
	if s.Status != gq.StatusPending {
		s.Waits, s.AnyOpen = 0, false
	}
	return s
}

func plainTime(t time.Time) time.Time {
	if t.IsZero() {
		return time.Time{}
	}
	return time.Unix(0, t.UnixNano()).UTC()
}

func sameState(model, got gq.State) bool {
	a, b := plainState(model), plainState(got)
	same := equalTo(a.Policy, b.Policy) && equalTo(a.Lease, b.Lease) && equalTo(a.Failure, b.Failure)
	a.Policy, a.Lease, a.Failure = b.Policy, b.Lease, b.Failure
	return same && a == b
}

// equalTo compares the targets of two pointers.
func equalTo[T comparable](a, b *T) bool {
	return a == b || a != nil && b != nil && *a == *b
}

// state returns a job's state with the dependencies it waits for.
func (j *modelJob) state() gq.State {
	s := j.s
	if s.Status == gq.StatusPending {
		s.Waits, s.AnyOpen = j.waits()
	}
	return s
}

// differs ends the story and reports the difference.
func (m *model) differs(what string, j *modelJob, got gq.State) {
	m.Helper()
	if j == nil {
		m.Fatalf("%s: job %s is %s, which it cannot be", what, got.ID, got.Status)
	}
	m.Fatalf("%s: job %s (-model +store):\n%s", what, got.ID, cmp.Diff(plainState(j.state()), plainState(got)))
}

// reachable lists the states that a job may have: the one in the model, and those in which
// it knows that some of its dependencies have ended, learned at any time since then.
func (m *model) reachable(j *modelJob) []*modelJob {
	all := []*modelJob{j}
	if j.s.Status != gq.StatusPending {
		return all
	}
	for i, e := range j.edges {
		if e.told {
			continue
		}
		for _, parent := range m.ends(e.ahead()) {
			for _, t := range m.times {
				if t.Before(parent.s.CompletedAt) || t.Before(j.s.CreatedAt) {
					continue
				}
				next := j.clone()
				next.tell(i, parent, t)
				all = append(all, m.reachable(next)...)
			}
		}
	}
	return all
}

// ends lists how a job may have ended. During a claim that includes an end that is due.
func (m *model) ends(j *modelJob) (ends []*modelJob) {
	for _, o := range m.reachable(j) {
		if m.claiming && !m.certain && come(o.due(), m.now) {
			o = o.clone()
			o.advance(m.now)
		}
		if o.terminal() {
			ends = append(ends, o)
		}
	}
	return ends
}

// explain reports whether a job may have the state got. If so, the model adopts it.
func (m *model) explain(j *modelJob, got gq.State) bool {
	for _, o := range m.reachable(j) {
		if sameState(o.state(), got) {
			m.become(j, o)
			return true
		}
		// A read may show a run time that has passed as SCHEDULED.
		seen := o.s
		if (seen.Status == gq.StatusDelayed || seen.Status == gq.StatusRetrying) && come(seen.RunAt, m.now) {
			seen.Status = gq.StatusScheduled
			if seen.Lease == nil || seen.Lease.Attempt > 0 {
				seen.ScheduledAt = seen.RunAt
			}
			if sameState(seen, got) {
				m.become(j, o)
				return true
			}
		}
		// A claim may have recorded what was due.
		if m.claiming && come(o.due(), m.now) {
			next := o.clone()
			next.advance(m.now)
			if sameState(next.state(), got) {
				m.become(j, next)
				return true
			}
		}
	}
	return false
}

// reconcile reads every job and compares it with the model.
func (m *model) reconcile() {
	m.Helper()
	m.happened("step")
	jobs := m.sorted()
	refs := make([]store.Ref, len(jobs))
	for i, j := range jobs {
		refs[i] = byID(j.spec.ID)
	}
	found, err := m.s.Get(m.Context(), refs, allParts)
	m.ok("Get", err)
	read := make([]reading, len(jobs))
	for i, f := range found {
		if f.Err != nil {
			m.Fatalf("Get %s: %v", refs[i].Job, f.Err)
		}
		read[i] = reading{jobs[i], f.State}
	}
	m.compare("Get", read)
	for i, f := range found {
		m.turned(jobs[i], f.State)
		m.content("Get", jobs[i], f.Job, allParts)
	}
}

// reading is a job with the state that the store returned.
type reading struct {
	job *modelJob
	got gq.State
}

// compare fails unless each reading can be explained. The end of one job may explain the
// state of another.
func (m *model) compare(what string, left []reading) {
	m.Helper()
	for _, m.certain = range []bool{true, false} { // first without guesses
		for progress := true; progress; {
			progress = false
			left = slices.DeleteFunc(left, func(r reading) bool {
				explained := m.explain(r.job, r.got)
				progress = progress || explained
				return explained
			})
		}
	}
	if len(left) > 0 {
		m.differs(what, left[0].job, left[0].got)
	}
}

// content compares a job's parts other than its state.
func (m *model) content(call string, j *modelJob, got gq.Job, parts gq.Parts) {
	m.Helper()
	want := gq.Job{Spec: j.spec, Metadata: j.metadata, Result: j.result, Checkpoint: j.checkpoint}
	if parts&gq.WithPayload == 0 {
		want.Spec.Payload.Data = nil
	}
	same := got.Spec.Queue == want.Spec.Queue && got.Spec.Type == want.Spec.Type && got.Spec.Policy == want.Spec.Policy &&
		got.Spec.Key == want.Spec.Key && got.Spec.Replaces == want.Spec.Replaces && got.Spec.Unique.While == want.Spec.Unique.While && got.Spec.CostUnits == want.Spec.CostUnits && slices.Equal(got.Spec.Requires, want.Spec.Requires) &&
		bytes.Equal(got.Spec.Payload.Data, want.Spec.Payload.Data) && len(got.Spec.DependsOn) == len(want.Spec.DependsOn) &&
		reflect.DeepEqual(plainMetadata(got.Metadata), plainMetadata(want.Metadata)) &&
		bytes.Equal(got.Result, want.Result) && bytes.Equal(got.Checkpoint, want.Checkpoint)
	if !same {
		got.State = gq.State{}
		m.Fatalf("%s: what belongs to job %s (-model +store):\n%s", call, j.spec.ID, cmp.Diff(want, got, cmpopts.EquateEmpty()))
	}
}

func plainMetadata(d gq.Metadata) gq.Metadata {
	if len(d.Tags) == 0 {
		d.Tags = nil
	}
	return d
}

// get reads jobs by lease, including old leases.
func (m *model) get(r *rapid.T) {
	lease := gq.LeaseID("unknown")
	if j := m.anyJob(r, "job", func(j *modelJob) bool { return j.s.Lease != nil }); j != nil {
		lease = j.s.Lease.ID
		if j.s.PreviousLease != "" && rapid.Bool().Draw(r, "previous") {
			lease = j.s.PreviousLease
		}
	}
	found, err := m.s.Get(m.Context(), []store.Ref{byLease(lease), byID(m.id())}, 0)
	m.ok("Get", err)
	if j := m.leases[lease]; j == nil && !errors.Is(found[0].Err, gq.ErrNotFound) || j != nil && found[0].State.ID != j.spec.ID {
		m.Fatalf("Get by lease %s found %s, %v", lease, found[0].State.ID, found[0].Err)
	}
	if !errors.Is(found[1].Err, gq.ErrNotFound) {
		m.Fatalf("Get of an unknown job: %v, want ErrNotFound", found[1].Err)
	}
}
