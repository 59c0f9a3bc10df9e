package machine_test

import (
	"errors"
	"testing"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/machine"
)

// waiting is a job that waits for a signal for a minute, after n dependencies.
func waiting(n int, now time.Time) gq.State {
	p := gq.PresetJobModel.Policy()
	p.ExecutionTimeout, p.Lifetime = time.Minute, 0
	s, _ := machine.Submit(machine.Submission{ID: gq.JobID{1}, Policy: &p, Own: gq.PriorityNormal, Depth: 1, Waits: n, Gate: gq.GateSignal}, now)
	return s
}

func TestSignal(t *testing.T) {
	now := time.Unix(1_000_000, 0)
	s := waiting(0, now)
	if machine.Claimable(&s, now.Add(time.Hour)) || !machine.Due(&s).Equal(now.Add(time.Minute)) {
		t.Errorf("%+v is due at %v", s, machine.Due(&s))
	}
	done, events, err := machine.Signal(s, []byte("1"), now.Add(time.Second))
	if err != nil || done.Status != gq.StatusCompleted || done.ResultBytes != 1 || len(events) != 1 || !machine.Due(&done).IsZero() {
		t.Errorf("%+v, %v, %v", done, events, err)
	}
	for name, late := range map[string]gq.State{"twice": done, "to a plain job": {Status: gq.StatusPending}} {
		if _, _, err := machine.Signal(late, []byte("2"), now.Add(time.Second)); !errors.Is(err, gq.ErrIllegalMove) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Exactly one of signal and deadline decides at every instant.
func TestSignalOrDeadline(t *testing.T) {
	now := time.Unix(1_000_000, 0)
	s := waiting(0, now)
	for _, at := range []time.Duration{time.Minute - 1, time.Minute, time.Minute + 1} {
		ended, _, err := machine.Advance(s, machine.Draw{}, now.Add(at))
		if err != nil {
			t.Fatal(err)
		}
		_, _, refused := machine.Signal(s, nil, now.Add(at))
		if late := at >= time.Minute; (ended.Status == gq.StatusFailed) != late || (refused != nil) != late {
			t.Errorf("after %v it is %s, and a signal gets %v", at, ended.Status, refused)
		}
	}
}

// The deadline counts from the end of the dependencies, and an early signal is kept.
func TestSignalAfterDependencies(t *testing.T) {
	now := time.Unix(1_000_000, 0)
	s := waiting(1, now)
	if !machine.Due(&s).IsZero() {
		t.Errorf("due at %v before its dependency has ended", machine.Due(&s))
	}
	end := machine.EndedDependency{Kind: gq.DependencyAfter, Status: gq.StatusCompleted}
	open, _, err := machine.DependencyEnded(s, end, now.Add(time.Hour))
	if err != nil || open.Status != gq.StatusPending || !machine.Due(&open).Equal(now.Add(time.Hour+time.Minute)) {
		t.Errorf("%+v, due at %v, %v", open, machine.Due(&open), err)
	}
	early, _, err := machine.Signal(s, []byte("1"), now)
	if err != nil || early.Status != gq.StatusPending {
		t.Errorf("early: %+v, %v", early, err)
	}
	if done, _, err := machine.DependencyEnded(early, end, now.Add(time.Hour)); err != nil || done.Status != gq.StatusCompleted {
		t.Errorf("after an early signal: %+v, %v", done, err)
	}
	end.Status = gq.StatusFailed
	if done, _, err := machine.DependencyEnded(early, end, now.Add(time.Hour)); err != nil || done.Status != gq.StatusFailed {
		t.Errorf("after an early signal and a failure: %+v, %v", done, err)
	}
}

// The deadline counts from the first end of an AFTER_ANY dependency; the ends of others do not postpone it.
func TestSignalAfterAnyOfTwo(t *testing.T) {
	now := time.Unix(1_000_000, 0)
	p := gq.PresetJobModel.Policy()
	p.ExecutionTimeout, p.Lifetime = time.Hour, 0
	s, _ := machine.Submit(machine.Submission{ID: gq.JobID{1}, Policy: &p, Own: gq.PriorityNormal, Depth: 1, AnyOpen: true, Gate: gq.GateSignal}, now)
	end := machine.EndedDependency{Kind: gq.DependencyAfterAny, Status: gq.StatusCompleted}
	first := now.Add(time.Minute)
	for _, at := range []time.Time{first, first.Add(time.Minute), first.Add(2 * time.Minute)} {
		next, _, err := machine.DependencyEnded(s, end, at)
		if err != nil {
			t.Fatal(err)
		}
		if want := first.Add(time.Hour); !machine.Due(&next).Equal(want) {
			t.Errorf("after the end at %v it is due at %v, want %v", at, machine.Due(&next), want)
		}
		s = next
	}
}
