package machine_test

import (
	"errors"
	"math"
	"testing"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/internal/enum"
	"github.com/gopherqueue/gq/internal/testing/spec"
	"github.com/gopherqueue/gq/machine"
	"github.com/gopherqueue/gq/store/codec"
	"github.com/gopherqueue/gq/view/semantics"
)

// TestNack follows the four-state model: failures, three retries, the terminal status.
func TestNack(t *testing.T) {
	spec.Covers(t, "Q-23", "Q-32", "Q-33", "Q-51", "Q-52", "Q-53", "Q-70", "Q-71", "Q-77", "Q-78", "Q-79")
	j := submit(t, gq.PresetSemantics.Policy())
	for n := 1; n <= 4; n++ {
		ref := j.run()
		failure := gq.Failure{Category: gq.CategoryTemporary, Message: "no"}
		j.do(func(s gq.State, now time.Time) (gq.State, []gq.Event, error) {
			return machine.Fail(s, ref, failure, machine.Draw{U: 0.5}, now)
		})
		if j.s.Faults != n || j.s.Attempt != n || *j.s.Failure != failure {
			t.Errorf("after nack %d: %d faults, attempt %d, %+v", n, j.s.Faults, j.s.Attempt, j.s.Failure)
		}
		if n == 4 {
			break
		}
		j.is(gq.StatusRetrying)
		if view := semantics.StateOf(&j.s); view != "Ready" {
			t.Errorf("after nack %d the job reads %s", n, view)
		}
		delay := 250 * time.Millisecond << (n - 1) // half of 0.5 s, 1 s, 2 s
		if !j.s.RunAt.Equal(j.now.Add(delay)) || !j.last().Until.Equal(j.s.RunAt) {
			t.Errorf("after nack %d the retry is at %v, want %v", n, j.s.RunAt, j.now.Add(delay))
		}
		j.after(delay - time.Nanosecond)
		j.refuses(gq.ErrIllegalMove, map[string]verb{"Claim": claim})
		j.after(time.Nanosecond)
	}
	j.is(gq.StatusDeadLetter)
	if view := semantics.StateOf(&j.s); view != "Failed" || j.s.Reason != "attempts_exhausted" {
		t.Errorf("after the last nack the job reads %s for %q", view, j.s.Reason)
	}
	j.after(1000 * time.Hour).idle(advance)
	j.refuses(gq.ErrIllegalMove, map[string]verb{"Claim": claim})
}

// TestFailure has one row for each category, under policies that treat it differently.
func TestFailure(t *testing.T) {
	spec.Covers(t, "J-23", "J-24", "J-25", "J-31", "J-32", "J-33", "J-39", "J-100", "J-101", "J-102", "J-103", "J-104")
	as := gq.PresetJobModel
	plain := as.Policy()
	for _, c := range []struct {
		name     string
		policy   gq.Policy
		category gq.Category
		attempt  int // the failing attempt
		want     gq.Status
	}{
		{"temporary", plain, gq.CategoryTemporary, 1, gq.StatusRetrying},
		{"temporary, last attempt", plain, gq.CategoryTemporary, 3, gq.StatusDeadLetter},
		{"permanent", plain, gq.CategoryPermanent, 1, gq.StatusFailed},
		{"permanent, last attempt", plain, gq.CategoryPermanent, 3, gq.StatusFailed},
		{"timeout", plain, gq.CategoryTimeout, 1, gq.StatusRetrying},
		{"timeout, last attempt", plain, gq.CategoryTimeout, 3, gq.StatusDeadLetter},
		{"timeout that is final", policy(as, func(p *gq.Policy) { p.RetryTimeout = false }), gq.CategoryTimeout, 1, gq.StatusFailed},
		{"system", plain, gq.CategorySystem, 2, gq.StatusRetrying},
		{"system that is final", policy(as, func(p *gq.Policy) { p.RetrySystem = false }), gq.CategorySystem, 1, gq.StatusFailed},
		{"cancelled", plain, gq.CategoryCancelled, 1, gq.StatusCancelled},
		{"one attempt", policy(as, func(p *gq.Policy) { p.MaxAttempts = 1 }), gq.CategoryTemporary, 1, gq.StatusDeadLetter},
		{"retries disabled", policy(as, func(p *gq.Policy) { p.RetryNever = true }), gq.CategoryTemporary, 1, gq.StatusFailed},
		{"a verdict on the scheduler API", gq.PresetScheduler.Policy(), gq.CategoryTemporary, 1, gq.StatusFailed},
		{"a verdict on the task queue", gq.PresetTaskQueue.Policy(), gq.CategorySystem, 1, gq.StatusFailed},
	} {
		t.Run(c.name, func(t *testing.T) {
			j := submit(t, c.policy)
			for range c.attempt - 1 {
				j.do(failAs(j.run(), gq.Failure{Category: gq.CategoryTemporary}))
				j.after(time.Hour)
			}
			ref := j.run()
			j.do(fail(ref, c.category))
			j.is(c.want)
			if f := j.s.Failure; f.Category != c.category || f.Code != "code" || f.Message != "message" {
				t.Errorf("the failure that is remembered: %+v", f)
			}
			if e := j.last(); e.Failure == nil || e.Failure.Category != c.category || e.LeaseState != gq.LeaseCompleted {
				t.Errorf("the event: %+v", e)
			}
			if j.s.Status.Terminal() == j.s.CompletedAt.IsZero() {
				t.Errorf("%s, ended at %v", j.s.Status, j.s.CompletedAt)
			}
			j.idle(fail(ref, c.category))
		})
	}
}

func TestFailureIsValidated(t *testing.T) {
	j := submit(t, machine.DefaultPolicy())
	ref := j.run()
	j.refuses(gq.ErrInvalid, map[string]verb{"no category": fail(ref, 0), "another category": fail(ref, 200)})
	long := make([]byte, 1<<20)
	for i := range long {
		long[i] = 'x'
	}
	j.do(failAs(ref, gq.Failure{Category: gq.CategoryTemporary, Code: string(long), Message: string(long)}))
	if f := j.s.Failure; len(f.Code) != gq.MaxNameBytes || len(f.Message) != gq.MaxMessageBytes {
		t.Errorf("%d bytes of code and %d of message are kept", len(f.Code), len(f.Message))
	}
}

// TestRetryAfter: a handler's RetryAfter applies if it is longer than the backoff.
func TestRetryAfter(t *testing.T) {
	spec.Covers(t, "J-34", "J-38", "J-119")
	for asked, want := range map[time.Duration]time.Duration{
		0: time.Second, time.Millisecond: time.Second, time.Minute: time.Minute, -time.Hour: time.Second,
		math.MaxInt64: gq.MaxDuration,
	} {
		j := submit(t, policy(gq.PresetJobModel, func(p *gq.Policy) { p.Lifetime = 0 }))
		j.do(failAs(j.run(), gq.Failure{Category: gq.CategoryTemporary, RetryAfter: asked}))
		if got := j.s.RunAt.Sub(j.now); got != want {
			t.Errorf("a pause of %v, and the retry comes after %v, want %v", asked, got, want)
		}
		j.after(want-time.Nanosecond).refuses(gq.ErrIllegalMove, map[string]verb{"Claim": claim})
		j.after(time.Nanosecond).do(advance)
		j.took(gq.StatusPending, gq.StatusScheduled, gq.StatusRunning, gq.StatusRetrying, gq.StatusScheduled)
		j.run()
		if raw, err := codec.AppendState(&j.s, nil); err != nil {
			t.Error(err)
		} else if back, err := codec.DecodeState(raw, 1, func(p gq.Policy) *gq.Policy { return &p }); err != nil || !back.RunAt.Equal(j.s.RunAt) {
			t.Errorf("a retry after %v is read back as %v, %v", want, back.RunAt, err)
		}
	}
}

// TestRelease: releasing a job without fault uses up no attempt.
func TestRelease(t *testing.T) {
	j := submit(t, machine.DefaultPolicy())
	for n := range 10 { // far more than its three attempts
		ref := j.run()
		if j.s.Attempt != n+1 || j.s.Bound != 3+n {
			t.Errorf("attempt %d of %d, want %d of %d", j.s.Attempt, j.s.Bound, n+1, 3+n)
		}
		j.do(release(ref, 0))
		j.is(gq.StatusScheduled)
		if j.s.Faults != 0 || j.s.Lease.State != gq.LeaseCompleted {
			t.Errorf("after a release: %+v", j.s)
		}
		j.idle(release(ref, 0))
	}
	before := j.events[len(j.events)-2]
	if before.Type != gq.EventRetrying || before.Reason != "shutdown" || j.last().Type != gq.EventScheduled {
		t.Errorf("a release is told as %+v and %+v", before, j.last())
	}
	ref := j.run()
	j.refuses(gq.ErrInvalid, map[string]verb{"in the past": release(ref, -1), "too late": release(ref, gq.MaxDuration+1)})
	j.do(release(ref, time.Minute))
	j.is(gq.StatusRetrying)
	j.after(time.Minute-1).refuses(gq.ErrIllegalMove, map[string]verb{"Claim": claim})
	j.after(1)
	// All three attempts are left.
	for range 2 {
		j.do(fail(j.run(), gq.CategoryTemporary))
		j.is(gq.StatusRetrying)
		j.after(time.Hour)
	}
	j.do(fail(j.run(), gq.CategoryTemporary))
	j.is(gq.StatusDeadLetter)
}

func TestReleaseOfHold(t *testing.T) {
	for _, preset := range enum.All[gq.Preset]() {
		j := submit(t, preset.Policy())
		j.do(release(j.claim(machine.Grant{}), 0))
		j.is(gq.StatusScheduled)
		if j.s.Attempt != 0 || j.s.Faults != 0 || j.s.Losses != 0 || j.s.Bound != j.s.Policy.MaxAttempts || !machine.Claimable(&j.s, j.now) {
			t.Errorf("%s: a hold that was given back cost something: %+v", preset, j.s)
		}
		for range 2 { // given back for later
			j.do(release(j.claim(machine.Grant{}), time.Minute))
			j.is(gq.StatusRetrying)
			j.after(time.Minute-1).refuses(gq.ErrIllegalMove, map[string]verb{"Claim": claim})
			j.after(1)
		}
		if j.s.Attempt != 0 || j.s.Faults != 0 || j.s.Losses != 0 || j.s.Bound != j.s.Policy.MaxAttempts || !machine.Claimable(&j.s, j.now) {
			t.Errorf("%s: a hold that was given back for later cost something: %+v", preset, j.s)
		}
	}
}

// TestExecutionTimeout: an execution beyond its limit fails as a timeout. Its holder can
// then only report the failure.
func TestExecutionTimeout(t *testing.T) {
	spec.Covers(t, "Q-104", "J-55", "J-72")
	limits := func(p *gq.Policy) { p.LeaseTTL, p.ExecutionTimeout = 30*time.Second, 5*time.Minute }
	running := func(t *testing.T, change func(*gq.Policy)) (*subject, gq.LeaseRef) {
		t.Helper()
		j := submit(t, policy(gq.PresetJobModel, func(p *gq.Policy) { limits(p); change(p) }))
		ref := j.run()
		for range 29 { // a heartbeat every 10 s extends the lease, not the execution
			j.after(10 * time.Second).do(heartbeat(ref))
		}
		if !machine.Due(&j.s).Equal(verbsStart.Add(5 * time.Minute)) {
			t.Errorf("due at %v", machine.Due(&j.s))
		}
		j.after(10*time.Second - 1).idle(advance)
		return j, ref
	}

	j, ref := running(t, func(*gq.Policy) {})
	j.after(1)
	j.refuses(gq.ErrStaleLease, map[string]verb{"Complete": complete(ref), "Heartbeat": heartbeat(ref), "Release": release(ref, 0)})
	j.do(advance)
	j.is(gq.StatusRetrying)
	if f := j.s.Failure; f.Category != gq.CategoryTimeout || f.Code != "execution_timeout" || j.s.Faults != 1 || j.s.Losses != 0 ||
		j.s.Lease.State != gq.LeaseCancelled || !j.s.RunAt.Equal(j.now.Add(time.Second)) {
		t.Errorf("after a timeout: %+v %+v", j.s, f)
	}
	j.refuses(gq.ErrStaleLease, held(ref))

	j, _ = running(t, func(p *gq.Policy) { p.RetryTimeout = false })
	j.after(1).do(advance)
	j.is(gq.StatusFailed)

	j, _ = running(t, func(p *gq.Policy) { p.MaxAttempts = 1 })
	j.after(1).do(advance)
	j.is(gq.StatusDeadLetter)

	j, ref = running(t, func(*gq.Policy) {})
	j.after(1).do(fail(ref, gq.CategoryTimeout))
	j.is(gq.StatusRetrying)

	// If the lease expires first, the loss of the lease counts.
	j = submit(t, policy(gq.PresetJobModel, limits))
	j.run()
	j.after(time.Hour).do(advance)
	if j.s.Failure.Code != "lease_expired" {
		t.Errorf("a silent holder: %+v", j.s.Failure)
	}
}

func TestClaimIsValidated(t *testing.T) {
	j := submit(t, machine.DefaultPolicy())
	for name, g := range map[string]machine.Grant{
		"no lease": {Worker: "w"}, "negative": {Lease: "l", TTL: -1}, "too long": {Lease: "l", TTL: gq.MaxDuration + 1},
	} {
		if err := j.try(func(s gq.State, now time.Time) (gq.State, []gq.Event, error) { return machine.Claim(s, g, now) }); !errors.Is(err, gq.ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
	ref := j.claim(machine.Grant{})
	j.refuses(gq.ErrInvalid, map[string]verb{"negative": start(ref, -1), "too long": start(ref, gq.MaxDuration+1)})
}
