package machine_test

import (
	"testing"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/internal/enum"
	"github.com/gopherqueue/gq/machine"
)

func revoke(ref gq.LeaseRef, reason string) verb {
	return func(s gq.State, now time.Time) (gq.State, []gq.Event, error) {
		return machine.Revoke(s, ref, reason, now)
	}
}

// A revoked lease uses up no attempt, whether or not the job had started.
func TestRevoke(t *testing.T) {
	for _, preset := range enum.All[gq.Preset]() {
		t.Run(preset.String(), func(t *testing.T) {
			for _, started := range []bool{false, true} {
				j := submit(t, preset.Policy())
				ref := j.claim(machine.Grant{Start: started})
				bound := j.s.Bound
				j.refuses(gq.ErrStaleLease, map[string]verb{"of another lease": revoke(gq.LeaseRef{ID: "other"}, "r")})
				j.after(time.Second).do(revoke(ref, "provider_jailed"))
				j.is(gq.StatusScheduled)
				if j.s.Faults != 0 || j.s.Losses != 0 || j.s.Failure != nil || !machine.Claimable(&j.s, j.now) {
					t.Errorf("started %v: it cost something: %+v", started, j.s)
				}
				if started && j.s.Bound != bound+1 || !started && j.s.Bound != bound {
					t.Errorf("started %v: the bound went from %d to %d", started, bound, j.s.Bound)
				}
				if l := j.s.Lease; l.State != gq.LeaseCancelled || l.ID != ref.ID {
					t.Errorf("started %v: the lease is %+v", started, l)
				}
				j.idle(revoke(ref, "provider_jailed"))
				j.refuses(gq.ErrStaleLease, map[string]verb{
					"for another reason": revoke(ref, "other"), "complete": complete(ref), "heartbeat": heartbeat(ref),
				})
				j.claim(machine.Grant{})
				j.idle(revoke(ref, "provider_jailed")) // also when the next one has it
			}
		})
	}
}

// A job with a cancel request does not run again.
func TestRevokeOfCancelled(t *testing.T) {
	j := submit(t, gq.PresetAI.Policy())
	ref := j.run()
	j.do(cancel)
	j.do(revoke(ref, "provider_retired"))
	j.is(gq.StatusCancelled)
}

// If renewals are limited, the deadline counts from the claim.
func TestDeadlineCountsFromTheClaim(t *testing.T) {
	j := submit(t, gq.PresetAI.Policy())
	ref := j.claim(machine.Grant{})
	granted := j.now
	j.after(3 * time.Second).do(start(ref, 0))
	l := j.s.Lease
	if !l.GrantedAt.Equal(granted) || !l.ExpiresAt.Equal(granted.Add(10*time.Minute)) || !machine.RenewBy(*l, j.s.Policy).Equal(granted.Add(6*time.Minute)) {
		t.Errorf("granted at %v: %+v, to be renewed by %v", granted, l, machine.RenewBy(*l, j.s.Policy))
	}
	j.do(heartbeat(ref))
	if end := j.s.Lease.ExpiresAt; !end.Equal(granted.Add(15 * time.Minute)) {
		t.Errorf("renewed until %v", end)
	}

	j = submit(t, gq.PresetAI.Policy())
	ref = j.claim(machine.Grant{})
	j.after(3*time.Second).refuses(gq.ErrStaleLease, map[string]verb{"a lease shorter than the wait": start(ref, time.Second)})
}
