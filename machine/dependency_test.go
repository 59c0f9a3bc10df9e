package machine_test

import (
	"testing"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/internal/enum"
	"github.com/gopherqueue/gq/internal/testing/spec"
	"github.com/gopherqueue/gq/machine"
)

func TestDependencyKindNames(t *testing.T) {
	checkNames(t, enum.All[gq.DependencyKind](), enum.Parse[gq.DependencyKind], "AFTER", "AFTER_ANY", "CHAIN", "FAN_OUT", "FAN_IN")
}

func TestPropagate(t *testing.T) {
	spec.Covers(t, "J-85", "J-86", "J-87", "J-88")
	const (
		none, count, release, fail, dead, cancel = machine.EffectNone, machine.EffectCount, machine.EffectRelease, machine.EffectFail, machine.EffectDeadLetter, machine.EffectCancel
	)
	ends := []gq.Status{gq.StatusCompleted, gq.StatusFailed, gq.StatusDeadLetter, gq.StatusCancelled}
	for _, test := range []struct {
		kind gq.DependencyKind
		want []machine.Effect // for each terminal status
	}{
		{gq.DependencyAfter, []machine.Effect{count, fail, dead, cancel}},
		{gq.DependencyChain, []machine.Effect{count, fail, dead, cancel}},
		{gq.DependencyAfterAny, []machine.Effect{release, release, release, release}},
		{gq.DependencyFanIn, []machine.Effect{count, count, count, count}},
		{machine.DependencyOrder, []machine.Effect{count, count, count, count}},
		{gq.DependencyFanOut, []machine.Effect{none, none, none, none}},
		{0, []machine.Effect{none, none, none, none}},
		{99, []machine.Effect{none, none, none, none}},
	} {
		for i, end := range ends {
			if got := machine.Propagate(test.kind, end); got != test.want[i] {
				t.Errorf("%v on %v: %v, want %v", test.kind, end, got, test.want[i])
			}
		}
	}
	// A dependency that has not ended has no effect. An end affects all kinds that wait,
	// and no others.
	for kind := range gq.DependencyKind(10) {
		for status := range gq.Status(20) {
			affected := machine.Propagate(kind, status) != none
			if want := machine.Waits(kind) && status.Terminal(); affected != want {
				t.Errorf("%v on %v: %v", kind, status, machine.Propagate(kind, status))
			}
		}
	}
}

func TestEffectNames(t *testing.T) {
	want := []string{"none", "count", "release", "fail", "dead_letter", "cancel", "unknown(6)"}
	for i, name := range want {
		if got := machine.Effect(i).String(); got != name {
			t.Errorf("effect %d prints %q, want %q", i, got, name)
		}
	}
}
