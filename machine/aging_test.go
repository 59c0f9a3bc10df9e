package machine_test

import (
	"testing"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/internal/errs"
	"github.com/gopherqueue/gq/machine"
)

// A job that ages is served where a fresh job of a higher priority is. Its key does not change
// while it waits.
func TestAging(t *testing.T) {
	p := policy(gq.PresetJobModel, func(p *gq.Policy) { p.Aging = time.Minute })
	at := func(after time.Duration, own gq.Priority, change ...func(*gq.State)) *gq.State {
		s := &gq.State{Policy: &p, Own: own, RunAt: verbsStart.Add(after), Sequence: 1}
		for _, set := range change {
			set(s)
		}
		return s
	}
	for _, test := range []struct {
		name          string
		first, second *gq.State
	}{
		{"priority first", at(0, gq.PriorityHigh), at(0, gq.PriorityNormal)},
		{"one step, one aging less a microsecond", at(time.Minute-time.Microsecond, gq.PriorityHigh), at(0, gq.PriorityNormal)},
		{"one step, one aging and a microsecond", at(0, gq.PriorityNormal), at(time.Minute+time.Microsecond, gq.PriorityHigh)},
		{"four steps", at(0, gq.PriorityBulk), at(4*time.Minute+time.Microsecond, gq.PriorityCritical)},
		{"equal times by number", at(0, gq.PriorityNormal), at(time.Minute, gq.PriorityHigh, func(s *gq.State) { s.Sequence = 2 })},
		{"an inherited priority counts", at(0, gq.PriorityBulk, func(s *gq.State) { s.Inherited = gq.PriorityCritical }), at(0, gq.PriorityHigh)},
	} {
		if !machine.Order(test.first).Less(machine.Order(test.second)) {
			t.Errorf("%s: %v is not before %v", test.name, machine.Order(test.first), machine.Order(test.second))
		}
		for _, s := range []*gq.State{test.first, test.second} {
			if band := machine.Order(s).Band(); band != gq.PriorityNormal {
				t.Errorf("%s: a job that ages is among those of priority %s", test.name, band)
			}
		}
	}
	turn := at(0, gq.PriorityLow, func(s *gq.State) { s.Turn = 7 })
	if k := machine.Order(turn); k.Band() != gq.PriorityLow {
		t.Errorf("in a fair queue a job ages: %v", k)
	}
}

// A queue cannot be fair and let its jobs age.
func TestAgingInAFairQueue(t *testing.T) {
	q := machine.NewQueue("q")
	q.Fair, q.Policy.Aging = true, time.Minute
	if faults := errs.FaultsOf(machine.CheckQueue(q)); len(faults) != 1 || faults[0].Field != "policy.aging" {
		t.Errorf("%v", faults)
	}
	for _, bad := range []time.Duration{-time.Second, gq.MaxDuration + time.Second} {
		q := machine.NewQueue("q")
		q.Policy.Aging = bad
		if faults := errs.FaultsOf(machine.CheckQueue(q)); len(faults) != 1 || faults[0].Field != "policy.aging" {
			t.Errorf("%v: %v", bad, faults)
		}
	}
}
