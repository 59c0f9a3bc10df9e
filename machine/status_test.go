package machine_test

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/internal/enum"
	"github.com/gopherqueue/gq/internal/testing/spec"
	"github.com/gopherqueue/gq/machine"
)

func TestStatusNames(t *testing.T) {
	checkNames(t, enum.All[gq.Status](), enum.Parse[gq.Status],
		"PENDING", "DELAYED", "SCHEDULED", "CLAIMED", "RUNNING", "RETRYING", "COMPLETED", "FAILED", "DEAD_LETTER", "CANCELLED")
}

func TestStatusPredicates(t *testing.T) {
	for status := range gq.Status(255) {
		valid := status >= gq.StatusPending && status <= gq.StatusCancelled
		terminal := status == gq.StatusCompleted || status == gq.StatusFailed || status == gq.StatusDeadLetter || status == gq.StatusCancelled
		held := status == gq.StatusClaimed || status == gq.StatusRunning
		if status.Valid() != valid || status.Terminal() != terminal || status.Held() != held {
			t.Errorf("%v: valid %v, terminal %v, held %v", status, status.Valid(), status.Terminal(), status.Held())
		}
	}
}

// moves is an independent copy of the state machine.
var moves = map[gq.Status][]gq.Status{
	0:                  {gq.StatusPending},
	gq.StatusPending:   {gq.StatusScheduled, gq.StatusDelayed, gq.StatusCompleted, gq.StatusFailed, gq.StatusDeadLetter, gq.StatusCancelled},
	gq.StatusDelayed:   {gq.StatusScheduled, gq.StatusDeadLetter, gq.StatusCancelled},
	gq.StatusScheduled: {gq.StatusClaimed, gq.StatusRunning, gq.StatusDeadLetter, gq.StatusCancelled},
	gq.StatusClaimed:   {gq.StatusRunning, gq.StatusScheduled, gq.StatusRetrying, gq.StatusDeadLetter, gq.StatusCancelled},
	gq.StatusRunning:   {gq.StatusCompleted, gq.StatusFailed, gq.StatusRetrying, gq.StatusDeadLetter, gq.StatusCancelled},
	gq.StatusRetrying:  {gq.StatusScheduled, gq.StatusDeadLetter, gq.StatusCancelled},
}

// CanMove is right for every pair of values: only the listed moves exist. In particular,
// only SCHEDULED leads to an execution.
func TestCanMove(t *testing.T) {
	spec.Covers(t, "J-36", "J-37", "J-38")
	allowed := make(map[[2]gq.Status]bool)
	for from, targets := range moves {
		for _, to := range targets {
			allowed[[2]gq.Status{from, to}] = true
		}
	}
	for from := range 256 {
		for to := range 256 {
			pair := [2]gq.Status{gq.Status(from), gq.Status(to)}
			if got := machine.CanMove(pair[0], pair[1]); got != allowed[pair] {
				t.Errorf("%v to %v: %v, want %v", pair[0], pair[1], got, allowed[pair])
			}
		}
	}
	for _, from := range []gq.Status{gq.StatusPending, gq.StatusDelayed, gq.StatusRetrying} {
		if machine.CanMove(from, gq.StatusRunning) || machine.CanMove(from, gq.StatusClaimed) {
			t.Errorf("%v leads to an execution without SCHEDULED in between", from)
		}
	}
}

func TestMovesTable(t *testing.T) {
	seen := make(map[[2]gq.Status]bool)
	for _, move := range machine.Moves() {
		pair := [2]gq.Status{move.From, move.To}
		if seen[pair] {
			t.Errorf("%v to %v is listed twice", move.From, move.To)
		}
		seen[pair] = true
		if move.Why == "" {
			t.Errorf("%v to %v has no reason", move.From, move.To)
		}
		if !machine.CanMove(move.From, move.To) {
			t.Errorf("%v to %v is listed but refused", move.From, move.To)
		}
	}
	// The caller gets a copy.
	machine.Moves()[0].To = gq.StatusCompleted
	if machine.Moves()[0].To != gq.StatusPending {
		t.Error("a caller can change the table")
	}
}

func TestTerminalIsTerminal(t *testing.T) {
	spec.Covers(t, "J-148")
	for _, from := range enum.All[gq.Status]() {
		for _, to := range enum.All[gq.Status]() {
			if from.Terminal() && machine.CanMove(from, to) {
				t.Errorf("%v leads on to %v", from, to)
			}
		}
		if live := !from.Terminal(); machine.CanMove(from, gq.StatusCancelled) != live || machine.CanMove(from, gq.StatusDeadLetter) != live {
			t.Errorf("%v: cancel %v, dead letter %v", from, machine.CanMove(from, gq.StatusCancelled), machine.CanMove(from, gq.StatusDeadLetter))
		}
	}
}

// Every status is reachable from submission, and from every live status each terminal
// status except FAILED and COMPLETED is one move away.
func TestEveryStatusIsReachable(t *testing.T) {
	reached := map[gq.Status]bool{0: true}
	for grew := true; grew; {
		grew = false
		for _, move := range machine.Moves() {
			if reached[move.From] && !reached[move.To] {
				reached[move.To], grew = true, true
			}
		}
	}
	for _, status := range enum.All[gq.Status]() {
		if !reached[status] {
			t.Errorf("%v cannot be reached", status)
		}
	}
}

// On any path a job starts PENDING, runs only from SCHEDULED or CLAIMED, and never leaves a
// terminal status.
func TestWalks(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		at, history := gq.Status(0), []gq.Status{}
		for range 30 {
			var next []gq.Status
			for _, to := range enum.All[gq.Status]() {
				if machine.CanMove(at, to) {
					next = append(next, to)
				}
			}
			if len(next) == 0 {
				break
			}
			at = rapid.SampledFrom(next).Draw(t, "to")
			history = append(history, at)
		}
		for i, status := range history {
			switch {
			case i == 0 && status != gq.StatusPending:
				t.Fatalf("begins as %v", status)
			case i > 0 && status == gq.StatusPending:
				t.Fatalf("begins again: %v", history)
			case status == gq.StatusRunning && history[i-1] != gq.StatusScheduled && history[i-1] != gq.StatusClaimed:
				t.Fatalf("runs out of %v", history[i-1])
			case status.Terminal() && i != len(history)-1:
				t.Fatalf("goes on after its end: %v", history)
			}
		}
	})
}

func TestPriority(t *testing.T) {
	spec.Covers(t, "J-144")
	checkNames(t, enum.All[gq.Priority](), enum.Parse[gq.Priority], "CRITICAL", "HIGH", "NORMAL", "LOW", "BULK")
	for level, p := range enum.All[gq.Priority]() {
		if p.Level() != level || !p.Valid() {
			t.Errorf("%v has level %d, valid %v; want level %d", p, p.Level(), p.Valid(), level)
		}
		if got, err := enum.Parse[gq.Priority](string(rune('0' + level))); got != p || err != nil {
			t.Errorf("level %d is read as %v, %v", level, got, err)
		}
	}
	for _, text := range []string{"5", "-1", "00", "urgent", "normal", "NORMAL "} {
		if _, err := enum.Parse[gq.Priority](text); err == nil {
			t.Errorf("%q is read as a priority", text)
		}
	}
	if gq.Priority(0).Valid() || gq.Priority(6).Valid() {
		t.Error("priorities outside the five are valid")
	}
}

func TestInherit(t *testing.T) {
	for _, own := range enum.All[gq.Priority]() {
		for _, from := range enum.All[gq.Priority]() {
			if got, want := own.Inherit(from), min(own, from); got != want {
				t.Errorf("%v inherits from %v: %v, want %v", own, from, got, want)
			}
		}
		if got := own.Inherit(0); got != own {
			t.Errorf("%v inherits from none: %v", own, got)
		}
		if got := gq.Priority(0).Inherit(own); got != own {
			t.Errorf("none inherits from %v: %v", own, got)
		}
	}
}

func TestDetailNames(t *testing.T) {
	for detail, want := range []string{"", "CLAIMED", "PREPARING", "LEASE_PENDING", "ASSIGNED"} {
		if got := gq.Detail(detail).String(); got != want {
			t.Errorf("detail %d prints %q, want %q", detail, got, want)
		}
	}
}
