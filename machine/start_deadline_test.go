package machine_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/internal/errs"
	"github.com/gopherqueue/gq/machine"
)

func startWithin(d time.Duration, more ...func(*gq.Policy)) gq.Policy {
	return policy(gq.PresetJobModel, func(p *gq.Policy) {
		p.StartWithin = d
		for _, change := range more {
			change(p)
		}
	})
}

// A job that has not started by its deadline ends CANCELLED, whatever it waits for; neither a
// claim nor the holder of a claim can start it from that instant on.
func TestStartDeadline(t *testing.T) {
	for _, test := range []struct {
		name string
		make func(t *testing.T) *subject
	}{
		{"scheduled", func(t *testing.T) *subject { return submit(t, startWithin(time.Minute)) }},
		{"delayed", func(t *testing.T) *subject {
			p := startWithin(time.Minute)
			return submitted(t, machine.Submission{Policy: &p, RunAt: verbsStart.Add(time.Hour)})
		}},
		{"pending", func(t *testing.T) *subject {
			p := startWithin(time.Minute)
			return submitted(t, machine.Submission{Policy: &p, Waits: 1})
		}},
		{"claimed", func(t *testing.T) *subject {
			j := submit(t, startWithin(time.Minute, func(p *gq.Policy) { p.Hold = time.Hour }))
			ref := j.claim(machine.Grant{Worker: "w"})
			j.after(time.Minute)
			if err := j.try(start(ref, 0)); !errors.Is(err, gq.ErrStaleLease) || !strings.Contains(err.Error(), "start deadline") {
				t.Errorf("a start at the deadline: %v", err)
			}
			j.now = verbsStart
			return j
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			j := test.make(t)
			end := verbsStart.Add(time.Minute)
			if due := machine.Due(&j.s); !due.Equal(end) {
				t.Errorf("due at %v, want %v", due, end)
			}
			j.after(time.Minute - 1).do(advance)
			if j.s.Status.Terminal() {
				t.Fatalf("it ended before its deadline: %s", j.s.Status)
			}
			j.after(1)
			if machine.Claimable(&j.s, j.now) {
				t.Error("a claim may take it at its deadline")
			}
			j.do(advance)
			j.is(gq.StatusCancelled)
			if j.s.Reason != machine.ReasonStartDeadline || j.last().Reason != machine.ReasonStartDeadline || j.s.Cancellation.Reason != machine.ReasonStartDeadline {
				t.Errorf("ended because of %q (event: %q, cancellation: %q)", j.s.Reason, j.last().Reason, j.s.Cancellation.Reason)
			}
		})
	}
}

// Only the first start counts: neither a retry nor a lost lease comes too late.
func TestStartDeadlineIsForTheFirstStart(t *testing.T) {
	j := submit(t, startWithin(time.Minute, func(p *gq.Policy) { p.Lifetime = 0 }))
	j.do(failAs(j.run(), gq.Failure{Category: gq.CategoryTemporary, RetryAfter: time.Hour}))
	j.is(gq.StatusRetrying)
	j.after(time.Hour).do(advance)
	j.is(gq.StatusScheduled)
	j.do(complete(j.run()))
	j.is(gq.StatusCompleted)
}

// What comes first decides; a tie is the start deadline's.
func TestStartDeadlineAndLifetime(t *testing.T) {
	for _, test := range []struct {
		within, life time.Duration
		then         gq.Status
		reason       string
	}{
		{time.Minute, time.Hour, gq.StatusCancelled, machine.ReasonStartDeadline},
		{time.Minute, time.Minute, gq.StatusCancelled, machine.ReasonStartDeadline},
		{time.Hour, time.Minute, gq.StatusDeadLetter, machine.ReasonLifetime},
	} {
		j := submit(t, startWithin(test.within, func(p *gq.Policy) { p.Lifetime = test.life }))
		j.after(2 * time.Hour).do(advance)
		j.is(test.then)
		if j.s.Reason != test.reason {
			t.Errorf("start within %v, lifetime %v: ended because of %q, want %q", test.within, test.life, j.s.Reason, test.reason)
		}
	}
}

// A hold that its holder lost by its own fault leads to a backoff. If that ends after the start
// deadline, the job ends at once.
func TestStartDeadlineBeforeBackoff(t *testing.T) {
	j := submit(t, startWithin(time.Minute, func(p *gq.Policy) {
		p.HoldFault, p.OnLoss, p.Hold = true, gq.LossBackoff, 10*time.Second
		p.Backoff.Initial, p.Backoff.Max = time.Hour, time.Hour
	}))
	j.claim(machine.Grant{Worker: "w"})
	j.after(10 * time.Second).do(advance)
	j.is(gq.StatusCancelled)
	if j.s.Reason != machine.ReasonStartDeadline || j.s.Failure == nil || j.s.Failure.Code != "ack_timeout" {
		t.Errorf("ended because of %q after %+v", j.s.Reason, j.s.Failure)
	}
}

// A job that waits for a signal never starts; its own deadline is that of the signal.
func TestStartDeadlineSparesSignals(t *testing.T) {
	p := startWithin(time.Minute)
	j := submitted(t, machine.Submission{Policy: &p, Gate: gq.GateSignal})
	if by := machine.StartBy(&j.s); !by.IsZero() {
		t.Errorf("it must start by %v", by)
	}
}

// A job that could only start after its deadline is refused; the fault names field and remedy.
func TestStartDeadlineBeforeRunTime(t *testing.T) {
	now := verbsStart
	for _, test := range []struct {
		name, field string
		change      func(*gq.Spec)
	}{
		{"delay", "delay", func(s *gq.Spec) { s.Delay = time.Hour }},
		{"run time", "run_at", func(s *gq.Spec) { s.RunAt = now.Add(time.Hour) }},
		{"in time", "", func(s *gq.Spec) { s.Delay, s.RunAt = time.Hour-1, now.Add(time.Hour-1) }},
		{"negative", "policy.start_within", func(s *gq.Spec) { s.Policy.StartWithin = -time.Second }},
		{"too long", "policy.start_within", func(s *gq.Spec) { s.Policy.StartWithin = gq.MaxDuration + 1 }},
		{"throttled", "unique.period", func(s *gq.Spec) {
			s.Key = gq.IdempotencyKey{Scope: "x", Name: "k"}
			s.Unique = gq.UniqueRule{While: gq.ForPeriod, OnCollision: gq.Throttled, Period: time.Hour}
		}},
	} {
		s := gq.Spec{ID: machine.NewJobID([16]byte{1}), Type: "x"}.WithDefaults()
		s.Policy = startWithin(time.Hour)
		test.change(&s)

		faults := append(errs.FaultsOf(machine.CheckSpec(&s, machine.DefaultLimits())), errs.FaultsOf(machine.CheckRunAt(&s, now))...)
		switch {
		case test.field == "" && len(faults) == 0:
		case len(faults) != 1 || faults[0].Field != test.field:
			t.Errorf("%s: %v, want one fault of %q", test.name, faults, test.field)
		case test.field != "policy.start_within" && !strings.Contains(faults[0].Problem, "policy.start_within"):
			t.Errorf("%s: the fault does not name the setting: %v", test.name, faults[0])
		}
	}
}

// A waiting job cannot be moved past its start deadline.
func TestRescheduleBeyondStartDeadline(t *testing.T) {
	j := submit(t, startWithin(time.Hour))
	err := j.try(func(s gq.State, now time.Time) (gq.State, []gq.Event, error) {
		return machine.Reschedule(s, now.Add(time.Hour), now)
	})
	if faults := errs.FaultsOf(err); len(faults) != 1 || faults[0].Field != "run_at" || !strings.Contains(faults[0].Problem, "start deadline") {
		t.Errorf("rescheduled to its deadline: %v", err)
	}
}
