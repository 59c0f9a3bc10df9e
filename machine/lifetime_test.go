package machine_test

import (
	"strings"
	"testing"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/internal/errs"
	"github.com/gopherqueue/gq/machine"
)

// A job that could only run after the end of its lifetime is refused; the fault names both
// times.
func TestSpecDelayedBeyondItsLifetime(t *testing.T) {
	now := verbsStart
	for _, test := range []struct {
		name     string
		lifetime time.Duration
		set      func(*gq.Spec)
		field    string // of the fault; "" for none
		says     []string
	}{
		{"delay", 168 * time.Hour, func(s *gq.Spec) { s.Delay = 240 * time.Hour }, "delay", []string{"240h0m0s", "168h0m0s", "policy.lifetime"}},
		{"delay of the whole lifetime", time.Hour, func(s *gq.Spec) { s.Delay = time.Hour }, "delay", []string{"1h0m0s"}},
		{"shorter delay", time.Hour, func(s *gq.Spec) { s.Delay = time.Hour - 1 }, "", nil},
		{"no lifetime", 0, func(s *gq.Spec) { s.Delay, s.RunAt = 240*time.Hour, now.Add(2400*time.Hour) }, "", nil},
		{"run time", 168 * time.Hour, func(s *gq.Spec) { s.RunAt = now.Add(240 * time.Hour) }, "run_at", []string{"240h0m0s", "168h0m0s", "policy.lifetime"}},
		{"run time at the end", time.Hour, func(s *gq.Spec) { s.RunAt = now.Add(time.Hour) }, "run_at", []string{"1h0m0s"}},
		{"earlier run time", time.Hour, func(s *gq.Spec) { s.RunAt = now.Add(time.Hour - 1) }, "", nil},
		{"past run time", time.Hour, func(s *gq.Spec) { s.RunAt = now.Add(-1000 * time.Hour) }, "", nil},
	} {
		s := gq.Spec{ID: machine.NewJobID([16]byte{1}), Type: "x"}.WithDefaults()
		s.Policy.Lifetime = test.lifetime
		test.set(&s)
		faults := append(errs.FaultsOf(machine.CheckSpec(&s, machine.DefaultLimits())), errs.FaultsOf(machine.CheckRunAt(&s, now))...)
		switch {
		case test.field == "":
			if len(faults) > 0 {
				t.Errorf("%s: refused: %v", test.name, faults)
			}
		case len(faults) != 1 || faults[0].Field != test.field:
			t.Errorf("%s: faults %v, want one of %s", test.name, faults, test.field)
		default:
			for _, part := range test.says {
				if !strings.Contains(faults[0].Problem, part) {
					t.Errorf("%s: %q does not say %s", test.name, faults[0].Problem, part)
				}
			}
		}
	}
}

// A schedule's template is checked against its own lifetime. Without its own policy the
// lifetime is the queue's, which only an engine knows.
func TestScheduleDelayedBeyondItsLifetime(t *testing.T) {
	s := gq.Schedule{Name: "s", Every: time.Hour, Missed: gq.MissedOnce, Overlap: gq.OverlapAllow, Template: gq.Spec{Type: "x", Delay: 240 * time.Hour}}
	if err := machine.CheckSchedule(&s, machine.DefaultLimits()); err != nil {
		t.Errorf("a template under its queue's policy: %v", err)
	}
	s.Template.Policy = machine.DefaultPolicy()
	faults := errs.FaultsOf(machine.CheckSchedule(&s, machine.DefaultLimits()))
	if len(faults) != 1 || faults[0].Field != "template.delay" || !strings.Contains(faults[0].Problem, "168h0m0s") {
		t.Errorf("a template that waits longer than its jobs live: %v", faults)
	}
}

// A retry that would be due after the job's lifetime dead-letters the job at once.
func TestRetryBeyondLifetime(t *testing.T) {
	hour := policy(gq.PresetJobModel, func(p *gq.Policy) { p.Lifetime, p.ExecutionTimeout = time.Hour, 0 })
	slow := hour
	slow.Backoff.Initial, slow.Backoff.Max = 2*time.Hour, 2*time.Hour
	lossy := slow
	lossy.OnLoss = gq.LossBackoff
	running := hour
	running.Lifetime, running.RunLifetime = 0, time.Hour
	for _, test := range []struct {
		name   string
		policy gq.Policy
		end    func(j *subject, ref gq.LeaseRef)
		code   string // of the failure
	}{
		{"retry_after", hour, func(j *subject, ref gq.LeaseRef) {
			j.do(failAs(ref, gq.Failure{Category: gq.CategoryTemporary, Code: "busy", RetryAfter: time.Hour}))
		}, "busy"},
		{"retry_after under a run lifetime", running, func(j *subject, ref gq.LeaseRef) {
			j.do(failAs(ref, gq.Failure{Category: gq.CategoryTemporary, Code: "busy", RetryAfter: time.Hour}))
		}, "busy"},
		{"backoff", slow, func(j *subject, ref gq.LeaseRef) { j.do(fail(ref, gq.CategoryTemporary)) }, ""},
		{"backoff after a lost lease", lossy, func(j *subject, _ gq.LeaseRef) { j.after(10 * time.Minute).do(advance) }, "lease_expired"},
		{"release", hour, func(j *subject, ref gq.LeaseRef) { j.do(release(ref, time.Hour)) }, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			j := submit(t, test.policy)
			test.end(j, j.run())
			j.is(gq.StatusDeadLetter)
			j.took(gq.StatusPending, gq.StatusScheduled, gq.StatusRunning, gq.StatusDeadLetter)
			if j.s.Reason != "lifetime" || j.last().Reason != "lifetime" || !j.s.CompletedAt.Equal(j.now) || j.s.RunAt.Before(machine.LifeEnd(&j.s)) {
				t.Errorf("ended at %v because of %q (event: %q), retry due at %v, life ends %v",
					j.s.CompletedAt, j.s.Reason, j.last().Reason, j.s.RunAt, machine.LifeEnd(&j.s))
			}
			if test.code != "" && (j.s.Failure == nil || j.s.Failure.Code != test.code || j.last().Failure == nil) {
				t.Errorf("the failure is lost: %+v", j.s.Failure)
			}
		})
	}
	j := submit(t, hour)
	j.do(failAs(j.run(), gq.Failure{Category: gq.CategoryTemporary, RetryAfter: time.Hour - 1}))
	j.is(gq.StatusRetrying)
}
