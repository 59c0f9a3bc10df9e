package gq

import "slices"

// endStatus is one above the last status.
const endStatus = Cancelled + 1

// Move is one row of the state machine. From is zero for the birth of a job.
type Move struct {
	From, To Status
	Why      string
}

// moves is the state machine: whatever is not listed is refused. The diagram in
// docs/semantics.md, the projections onto the faces and the random walks of the
// tests are all made from this table.
var moves = []Move{
	{0, Pending, "submitted"},

	{Pending, Scheduled, "nothing to wait for"},
	{Pending, Delayed, "first run lies in the future"},
	{Pending, Failed, "a dependency failed"},
	{Pending, DeadLetter, "a dependency was dead-lettered, or lifetime over"},
	{Pending, Cancelled, "cancelled, or a dependency was"},

	{Delayed, Scheduled, "run time reached"},
	{Delayed, DeadLetter, "lifetime over"},
	{Delayed, Cancelled, "cancelled"},

	{Scheduled, Claimed, "claimed, start comes later"},
	{Scheduled, Running, "claimed and started"},
	{Scheduled, DeadLetter, "lifetime over"},
	{Scheduled, Cancelled, "cancelled"},

	{Claimed, Running, "started"},
	{Claimed, Scheduled, "hold lost without fault"},
	{Claimed, Retrying, "hold lost by the holder's fault"},
	{Claimed, DeadLetter, "faults exhausted, or lifetime over"},
	{Claimed, Cancelled, "cancelled"},

	{Running, Completed, "handler succeeded"},
	{Running, Failed, "permanent failure, or retries disabled"},
	{Running, Retrying, "temporary failure, lease lost, or released without fault"},
	{Running, DeadLetter, "attempts exhausted, or lifetime over"},
	{Running, Cancelled, "cancellation honoured"},

	{Retrying, Scheduled, "backoff over"},
	{Retrying, DeadLetter, "attempts exhausted, or lifetime over"},
	{Retrying, Cancelled, "cancelled"},
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
func CanMove(from, to Status) bool {
	return from < endStatus && to < endStatus && legal[from]&(1<<to) != 0
}

// eventOf is the event that records a move into a status.
var eventOf = [endStatus]EventType{
	Pending: EventSubmitted, Delayed: EventDelayed, Scheduled: EventScheduled, Claimed: EventClaimed,
	Running: EventStarted, Retrying: EventRetrying, Completed: EventCompleted, Failed: EventFailed,
	DeadLetter: EventDeadLettered, Cancelled: EventCancelled,
}
