package machine_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/machine"
)

func lose(ref gq.LeaseRef, since time.Time) verb {
	return func(s gq.State, now time.Time) (gq.State, []gq.Event, error) {
		return machine.Lose(s, ref, since, machine.Draw{U: 0.5}, now)
	}
}

// TestLose compares a job whose worker is gone with one whose lease has expired: only the times
// and the reason given differ.
func TestLose(t *testing.T) {
	times := cmpopts.IgnoreTypes(time.Time{})
	reasons := cmpopts.IgnoreFields(gq.Failure{}, "Code", "Message")
	for name, p := range map[string]gq.Policy{
		"JobModel":     policy(gq.PresetJobModel, func(*gq.Policy) {}),
		"Semantics":    policy(gq.PresetSemantics, func(*gq.Policy) {}),
		"Resilient":    policy(gq.PresetResilient, func(*gq.Policy) {}),
		"loss fails":   policy(gq.PresetJobModel, func(p *gq.Policy) { p.OnLoss = gq.LossFails }),
		"loss is free": policy(gq.PresetJobModel, func(p *gq.Policy) { p.OnLoss = gq.LossFree }),
		"no retries":   policy(gq.PresetJobModel, func(p *gq.Policy) { p.MaxAttempts = 1 }),
	} {
		for _, started := range []bool{true, false} {
			expired, gone := submit(t, p), submit(t, p)
			for _, j := range []*subject{expired, gone} {
				j.claim(machine.Grant{Start: started, TTL: time.Minute})
			}
			expired.after(time.Minute).do(advance)
			gone.after(10 * time.Second).do(lose(gone.s.Lease.Ref(), gone.now))
			if diff := cmp.Diff(expired.s, gone.s, times, reasons); diff != "" {
				t.Errorf("%s, started %v: expired (-), gone (+):\n%s", name, started, diff)
			}
			if diff := cmp.Diff(expired.path(), gone.path()); diff != "" {
				t.Errorf("%s, started %v: expired (-), gone (+):\n%s", name, started, diff)
			}
			if f := gone.s.Failure; started && (f == nil || f.Code != machine.CodeWorkerGone) {
				t.Errorf("%s: the failure is %+v", name, f)
			}
		}
	}
}

// TestLoseNothing leaves a job alone that another lease holds, or whose holder was heard of.
func TestLoseNothing(t *testing.T) {
	j := submit(t, policy(gq.PresetJobModel, func(*gq.Policy) {}))
	first := j.run()
	broke := j.now
	j.after(time.Second).do(heartbeat(first))
	j.idle(lose(first, broke))
	j.is(gq.StatusRunning)
	j.do(release(first, 0))
	j.refuses(gq.ErrStaleLease, map[string]verb{"released": lose(first, j.now)})
	j.run()
	j.refuses(gq.ErrStaleLease, map[string]verb{"the next one has it": lose(first, j.now)})
	second := j.s.Lease.Ref()
	second.Worker = "somebody else"
	j.refuses(gq.ErrStaleLease, map[string]verb{"of another worker": lose(second, j.now)})
}
