package worker_test

import (
	"cmp"
	"context"
	"encoding/binary"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/machine"
)

// memory is an in-memory queue that follows the rules of the domain. Its clock is the
// machine's, set forward by skew.
type memory struct {
	skew    time.Duration
	results int // largest result

	mu      sync.Mutex
	changed chan struct{} // closed at every change
	jobs    []*gq.Job     // in order of submission
	leases  map[gq.LeaseID]*gq.Job
	serial  uint64
}

func newMemory() *memory {
	return &memory{changed: make(chan struct{}), leases: make(map[gq.LeaseID]*gq.Job), results: 1 << 20}
}

func (m *memory) now() time.Time { return time.Now().Add(m.skew) }

func (m *memory) random() (b [16]byte) {
	m.serial++
	binary.BigEndian.PutUint64(b[8:], m.serial)
	return b
}

func (m *memory) changedLocked() {
	close(m.changed)
	m.changed = make(chan struct{})
}

// submit stores a job and returns its id.
func (m *memory) submit(s gq.Spec) gq.JobID {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.submitLocked(s).ID
}

func (m *memory) submitLocked(s gq.Spec) gq.State {
	s = s.WithDefaults()
	s.ID = machine.NewJobID(m.random())
	policy := s.Policy
	state, _ := machine.Submit(machine.Submission{ID: s.ID, Sequence: m.serial, Policy: &policy, Own: s.Metadata.Priority, RunAt: machine.FirstRun(&s, m.now())}, m.now())
	m.jobs = append(m.jobs, &gq.Job{Spec: s, State: state, Metadata: s.Metadata})
	m.changedLocked()
	return state
}

// job reads a job.
func (m *memory) job(id gq.JobID) gq.Job {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.sweepLocked()
	for _, j := range m.jobs {
		if j.Spec.ID == id {
			return *j
		}
	}
	return gq.Job{}
}

// counts returns the number of jobs in each status.
func (m *memory) counts() map[gq.Status]int {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.sweepLocked()
	counts := make(map[gq.Status]int)
	for _, j := range m.jobs {
		counts[j.State.Status]++
	}
	return counts
}

// ask requests the cancellation of a job.
func (m *memory) ask(id gq.JobID, reason string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, j := range m.jobs {
		if j.Spec.ID == id {
			j.State, _, _ = machine.Cancel(j.State, reason, m.now())
		}
	}
	m.changedLocked()
}

// sweepLocked does what is due, and returns when to sweep again.
func (m *memory) sweepLocked() (next time.Time) {
	now := m.now()
	for _, j := range m.jobs {
		if j.State.Status.Terminal() {
			continue
		}
		for due := machine.Due(&j.State); !due.IsZero() && !now.Before(due); due = machine.Due(&j.State) {
			j.State, _, _ = machine.Advance(j.State, machine.Draw{}, now)
		}
		if due := machine.Due(&j.State); !due.IsZero() && (next.IsZero() || due.Before(next)) {
			next = due
		}
	}
	return next
}

func (m *memory) Claim(ctx context.Context, req gq.ClaimRequest) ([]gq.Job, error) {
	until := m.now().Add(req.Wait)
	for {
		m.mu.Lock()
		next := m.sweepLocked()
		jobs, err := m.claimLocked(req)
		changed := m.changed
		m.mu.Unlock()
		if err != nil || len(jobs) > 0 || !m.now().Before(until) {
			return jobs, err
		}
		if next.IsZero() || until.Before(next) {
			next = until
		}
		timer := time.NewTimer(next.Sub(m.now()))
		select {
		case <-ctx.Done():
			timer.Stop()
			return nil, ctx.Err()
		case <-changed:
		case <-timer.C:
		}
		timer.Stop()
	}
}

func (m *memory) claimLocked(req gq.ClaimRequest) (jobs []gq.Job, err error) {
	now := m.now()
	for _, j := range m.jobs {
		if len(jobs) == cmp.Or(req.N, 1) {
			break
		}
		if !machine.Claimable(&j.State, now) || !slices.Contains(req.Queues, j.Spec.Queue) || !slices.Contains(req.Types, j.Spec.Type) {
			continue
		}
		grant := machine.Grant{Lease: machine.NewLeaseID(m.random()), Worker: req.Worker, Start: true, TTL: req.TTL, DefaultTTL: req.DefaultTTL}
		if j.State, _, err = machine.Claim(j.State, grant, now); err != nil {
			return nil, err
		}
		m.leases[grant.Lease] = j
		jobs = append(jobs, *j)
	}
	return jobs, nil
}

func (m *memory) Heartbeat(_ context.Context, beats []gq.Heartbeat) ([]gq.LeaseResult, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	answers := make([]gq.LeaseResult, len(beats))
	for i, b := range beats {
		answers[i] = m.apply(b.Lease, func(j *gq.Job, now time.Time) error {
			next, _, err := machine.Heartbeat(j.State, b.Lease, machine.Report{Progress: b.Progress, Note: b.Note, CheckpointBytes: len(b.Checkpoint)}, now)
			if err == nil && b.Checkpoint != nil {
				j.Checkpoint = b.Checkpoint
			}
			j.State = next
			return err
		}, b.Spawn)
	}
	return answers, nil
}

func (m *memory) Settle(_ context.Context, outcomes []gq.Outcome) ([]gq.LeaseResult, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	answers := make([]gq.LeaseResult, len(outcomes))
	for i, o := range outcomes {
		answers[i] = m.apply(o.Lease, func(j *gq.Job, now time.Time) (err error) {
			var next gq.State
			switch o.Verdict {
			case gq.VerdictComplete:
				if len(o.Result) > m.results {
					return &gq.InvalidError{Faults: []gq.Fault{{Field: "result", Problem: "is too large"}}}
				}
				if next, _, err = machine.Complete(j.State, o.Lease, o.Result, now); err == nil {
					j.Result = o.Result
				}
			case gq.VerdictFail:
				next, _, err = machine.Fail(j.State, o.Lease, o.Failure, machine.Draw{}, now)
			case gq.VerdictRelease:
				next, _, err = machine.Release(j.State, o.Lease, o.Delay, o.Reason, now)
			default:
				return fmt.Errorf("verdict %v: %w", o.Verdict, gq.ErrInvalid)
			}
			j.State = next
			return err
		}, o.Spawn)
	}
	m.changedLocked()
	return answers, nil
}

func (m *memory) apply(ref gq.LeaseRef, f func(*gq.Job, time.Time) error, children []gq.Spec) (a gq.LeaseResult) {
	j := m.leases[ref.ID]
	if j == nil {
		return gq.LeaseResult{Err: gq.ErrStaleLease}
	}
	for _, c := range children {
		c = c.WithDefaults()
		c.ID = machine.NewJobID([16]byte{1})
		if err := machine.CheckSpec(&c, machine.DefaultLimits()); err != nil {
			return gq.LeaseResult{Err: err}
		}
	}
	if a.Err = f(j, m.now()); a.Err == nil {
		for _, c := range children {
			a.Spawned = append(a.Spawned, gq.SubmitResult{State: m.submitLocked(c)})
		}
	}
	a.State = j.State
	return a
}

// call is one call to the queue.
type call struct {
	verb   string
	at     time.Time
	claim  gq.ClaimRequest
	beats  []gq.Heartbeat
	ends   []gq.Outcome
	failed bool
}

// link is the connection from a worker to the queue. It records every call, and it can be
// cut: before a call takes effect, or before its answer arrives.
type link struct {
	*memory

	mu     sync.Mutex
	cut    map[string]error // by verb; "" is all of them
	broken chan struct{}    // closed by the next cut, which ends waiting claims
	mute   map[string]error // the call takes effect, but returns this error
	calls  []call
	during func(call) // called during a call
}

func linkTo(m *memory) *link {
	return &link{memory: m, cut: make(map[string]error), mute: make(map[string]error), broken: make(chan struct{})}
}

func (l *link) setCut(verb string, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.cut[verb] = err
	if err != nil {
		close(l.broken)
		l.broken = make(chan struct{})
	}
}

func (l *link) setMute(verb string, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mute[verb] = err
}

func (l *link) begin(c call) (cut, mute error) {
	l.mu.Lock()
	c.at = time.Now()
	cut, mute = cmp.Or(l.cut[""], l.cut[c.verb]), l.mute[c.verb]
	c.failed = cut != nil || mute != nil
	l.calls = append(l.calls, c)
	during := l.during
	l.mu.Unlock()
	if during != nil {
		during(c)
	}
	return cut, mute
}

// made lists the calls of a verb so far.
func (l *link) made(verb string) (calls []call) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range l.calls {
		if c.verb == verb {
			calls = append(calls, c)
		}
	}
	return calls
}

func (l *link) Claim(ctx context.Context, req gq.ClaimRequest) ([]gq.Job, error) {
	cut, mute := l.begin(call{verb: "claim", claim: req})
	if cut != nil {
		return nil, cut
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	l.mu.Lock()
	broken := l.broken
	l.mu.Unlock()
	go func() {
		select {
		case <-broken:
			cancel()
		case <-ctx.Done():
		}
	}()
	jobs, err := l.memory.Claim(ctx, req)
	if mute != nil {
		return nil, mute
	}
	return jobs, err
}

func (l *link) Heartbeat(ctx context.Context, beats []gq.Heartbeat) ([]gq.LeaseResult, error) {
	cut, mute := l.begin(call{verb: "heartbeat", beats: beats})
	if cut != nil {
		return nil, cut
	}
	answers, err := l.memory.Heartbeat(ctx, beats)
	if mute != nil {
		return nil, mute
	}
	return answers, err
}

func (l *link) Settle(ctx context.Context, outcomes []gq.Outcome) ([]gq.LeaseResult, error) {
	cut, mute := l.begin(call{verb: "settle", ends: outcomes})
	if cut != nil {
		return nil, cut
	}
	answers, err := l.memory.Settle(ctx, outcomes)
	if mute != nil {
		return nil, mute
	}
	return answers, err
}
