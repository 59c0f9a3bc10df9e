package machine_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/internal/enum"
	"github.com/gopherqueue/gq/machine"
)

func TestUniqueNames(t *testing.T) {
	checkNames(t, enum.All[gq.While](), enum.Parse[gq.While], "waiting", "live", "done", "period")
	checkNames(t, enum.All[gq.OnCollision](), enum.Parse[gq.OnCollision], "existing", "refuse", "replace", "debounce", "throttle")
}

// Each rule holds the key in exactly the statuses that it names.
func TestKeyIsHeld(t *testing.T) {
	now := time.Date(2026, time.March, 1, 0, 0, 0, 0, time.UTC)
	policy := machine.DefaultPolicy()
	live := []gq.Status{gq.StatusPending, gq.StatusDelayed, gq.StatusScheduled, gq.StatusClaimed, gq.StatusRunning, gq.StatusRetrying}
	holds := map[gq.While][]gq.Status{
		gq.WhileWaiting: {gq.StatusPending, gq.StatusDelayed, gq.StatusScheduled},
		gq.WhileLive:    live,
		gq.UntilDone:    append([]gq.Status{gq.StatusFailed, gq.StatusDeadLetter}, live...),
		gq.ForPeriod:    enum.All[gq.Status](),
	}
	for while, statuses := range holds {
		want := make(map[gq.Status]bool)
		for _, s := range statuses {
			want[s] = true
		}
		for _, status := range enum.All[gq.Status]() {
			s := gq.State{ID: gq.JobID{1}, Status: status, Policy: &policy, CreatedAt: now, RunAt: now.Add(time.Hour)}
			if status == gq.StatusRunning || status == gq.StatusRetrying {
				s.Attempt = 1
			}
			spec := gq.Spec{Unique: gq.UniqueRule{While: gq.WhileLive, OnCollision: gq.Refuse}}
			c := machine.Collide(machine.KeyHolder{State: s, While: while, Until: now.Add(1)}, &spec, now)
			if held := errors.Is(c.Err, gq.ErrNotUnique); held != want[status] || held == c.Insert {
				t.Errorf("while %s: a %s job holds its key: %t, want %t", while, status, held, want[status])
			}
			if free := machine.Collide(machine.KeyHolder{State: s, While: gq.ForPeriod, Until: now}, &spec, now); !free.Insert {
				t.Errorf("a %s job holds its key at the end of its period", status)
			}
		}
	}
}

// A refusal to replace or postpone a job that no longer waits says what to do.
func TestRefusalOfRunningJobs(t *testing.T) {
	now := time.Date(2026, time.March, 1, 0, 0, 0, 0, time.UTC)
	policy := machine.DefaultPolicy()
	for _, verb := range []struct {
		on   gq.OnCollision
		text string
	}{{gq.Replace, "only a waiting job can be replaced; "}, {gq.Debounced, "only a waiting job can be postponed; "}} {
		for while, remedy := range map[gq.While]string{
			gq.WhileLive: "when it has ended, or use unique.while waiting",
			gq.UntilDone: "when it has completed or was cancelled, or use unique.while waiting",
			gq.ForPeriod: "its key is free from 2026-03-01T01:00:00Z on",
		} {
			running := gq.State{ID: gq.JobID{1}, Status: gq.StatusRunning, Attempt: 1, Policy: &policy, CreatedAt: now, RunAt: now}
			spec := gq.Spec{Unique: gq.UniqueRule{While: while, OnCollision: verb.on}}
			c := machine.Collide(machine.KeyHolder{State: running, While: while, Until: now.Add(time.Hour)}, &spec, now)
			refused, ok := errors.AsType[*gq.UniqueError](c.Err)
			if !ok || c.Insert || len(c.Events) > 0 || !strings.HasPrefix(refused.Reason, verb.text) || !strings.Contains(refused.Reason, remedy) {
				t.Errorf("%s, while %s: %+v", verb.on, while, c)
			}
		}
	}
}

func TestReplace(t *testing.T) {
	now := time.Date(2026, time.March, 1, 0, 0, 0, 0, time.UTC)
	by := machine.NewJobID([16]byte{7})
	policy := machine.DefaultPolicy()
	waiting, _ := machine.Submit(machine.Submission{ID: gq.JobID{1}, Policy: &policy, Own: gq.PriorityNormal, RunAt: now}, now)
	next, events, err := machine.Replace(waiting, by, now)
	if err != nil || next.Status != gq.StatusCancelled || next.ReplacedBy != by || len(events) != 1 || events[0].Reason != "replaced by "+by.String() {
		t.Errorf("a waiting job: %+v, %+v, %v", next, events, err)
	}
	running, _, err := machine.Claim(waiting, machine.Grant{Lease: "l", Worker: "w", Start: true}, now)
	if err != nil {
		t.Fatal(err)
	}
	for name, s := range map[string]gq.State{"running": running, "replaced": next} {
		if _, events, err := machine.Replace(s, by, now); !errors.Is(err, gq.ErrIllegalMove) || events != nil {
			t.Errorf("a job that is %s: %v, want ErrIllegalMove", name, err)
		}
	}
	if _, _, err := machine.Replace(waiting, by, now.Add(policy.Lifetime)); !errors.Is(err, gq.ErrIllegalMove) {
		t.Errorf("a job whose lifetime is over: %v, want ErrIllegalMove", err)
	}
}

func TestUniqueNameOfLongFields(t *testing.T) {
	long := make([]byte, 300)
	for i := range long {
		long[i] = 'x'
	}
	s := gq.Spec{Payload: gq.Payload{Data: []byte(`{"a":"` + string(long) + `"}`), ContentType: gq.JSON}, Unique: gq.UniqueRule{Fields: []string{"a"}}}
	name, err := machine.UniqueName(&s)
	if err != nil || len(name) != len("sha256:")+64 {
		t.Errorf("the key is %q, %v; want a hash", name, err)
	}
}
