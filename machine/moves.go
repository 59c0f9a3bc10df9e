package machine

import (
	"slices"

	"github.com/gopherqueue/gq"
)

// endStatus is one above the last status.
const endStatus = gq.Cancelled + 1

// Move is one row of the state machine. From is zero for the birth of a job.
type Move struct {
	From, To gq.Status
	Why      string
}

// moves is the state machine: whatever is not listed is refused. The diagram in
// docs/semantics.md, the projections onto the faces and the random walks of the
// tests are all made from this table.
var moves = []Move{
	{0, gq.Pending, "submitted"},

	{gq.Pending, gq.Scheduled, "nothing to wait for"},
	{gq.Pending, gq.Delayed, "first run lies in the future"},
	{gq.Pending, gq.Failed, "a dependency failed"},
	{gq.Pending, gq.DeadLetter, "a dependency was dead-lettered, or lifetime over"},
	{gq.Pending, gq.Cancelled, "cancelled, or a dependency was"},

	{gq.Delayed, gq.Scheduled, "run time reached"},
	{gq.Delayed, gq.DeadLetter, "lifetime over"},
	{gq.Delayed, gq.Cancelled, "cancelled"},

	{gq.Scheduled, gq.Claimed, "claimed, start comes later"},
	{gq.Scheduled, gq.Running, "claimed and started"},
	{gq.Scheduled, gq.DeadLetter, "lifetime over"},
	{gq.Scheduled, gq.Cancelled, "cancelled"},

	{gq.Claimed, gq.Running, "started"},
	{gq.Claimed, gq.Scheduled, "hold lost without fault"},
	{gq.Claimed, gq.Retrying, "hold lost by the holder's fault"},
	{gq.Claimed, gq.DeadLetter, "faults exhausted, or lifetime over"},
	{gq.Claimed, gq.Cancelled, "cancelled"},

	{gq.Running, gq.Completed, "handler succeeded"},
	{gq.Running, gq.Failed, "permanent failure, or retries disabled"},
	{gq.Running, gq.Retrying, "temporary failure, lease lost, or released without fault"},
	{gq.Running, gq.DeadLetter, "attempts exhausted, or lifetime over"},
	{gq.Running, gq.Cancelled, "cancellation honoured"},

	{gq.Retrying, gq.Scheduled, "backoff over"},
	{gq.Retrying, gq.DeadLetter, "attempts exhausted, or lifetime over"},
	{gq.Retrying, gq.Cancelled, "cancelled"},
}

// legal[from] is the set of statuses reachable in one move, as bits.
var legal = func() (set [endStatus]uint16) {
	for _, m := range moves {
		set[m.From] |= 1 << m.To
	}
	return set
}()

// Moves returns the state machine as a table.
func Moves() []Move { return slices.Clone(moves) }

// CanMove reports whether the table has a row from one status to another.
func CanMove(from, to gq.Status) bool {
	return from < endStatus && to < endStatus && legal[from]&(1<<to) != 0
}

// eventOf is the event that records a move into a status.
var eventOf = [endStatus]gq.EventType{
	gq.Pending: gq.EventSubmitted, gq.Delayed: gq.EventDelayed, gq.Scheduled: gq.EventScheduled, gq.Claimed: gq.EventClaimed,
	gq.Running: gq.EventStarted, gq.Retrying: gq.EventRetrying, gq.Completed: gq.EventCompleted, gq.Failed: gq.EventFailed,
	gq.DeadLetter: gq.EventDeadLettered, gq.Cancelled: gq.EventCancelled,
}
