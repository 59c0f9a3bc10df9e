package machine

import (
	"slices"

	"github.com/gopherqueue/gq"
)

// endStatus is one above the last status.
const endStatus = gq.StatusCancelled + 1

// Move is one row of the state machine. From is zero for the submission of a job.
type Move struct {
	From, To gq.Status
	Why      string
}

// moves lists all legal moves. The diagram in docs/semantics.md, the statuses of the APIs and
// the random walks of the tests derive from this table.
var moves = []Move{
	{0, gq.StatusPending, "submitted"},

	{gq.StatusPending, gq.StatusScheduled, "nothing to wait for"},
	{gq.StatusPending, gq.StatusDelayed, "first run lies in the future"},
	{gq.StatusPending, gq.StatusCompleted, "signal received"},
	{gq.StatusPending, gq.StatusFailed, "a dependency failed, or no signal in time"},
	{gq.StatusPending, gq.StatusDeadLetter, "a dependency was dead-lettered, or lifetime over"},
	{gq.StatusPending, gq.StatusCancelled, "cancelled, a dependency was, none failed, or not started in time"},

	{gq.StatusDelayed, gq.StatusScheduled, "run time reached"},
	{gq.StatusDelayed, gq.StatusDeadLetter, "lifetime over"},
	{gq.StatusDelayed, gq.StatusCancelled, "cancelled, or not started in time"},

	{gq.StatusScheduled, gq.StatusClaimed, "claimed, start comes later"},
	{gq.StatusScheduled, gq.StatusRunning, "claimed and started"},
	{gq.StatusScheduled, gq.StatusDeadLetter, "lifetime over"},
	{gq.StatusScheduled, gq.StatusCancelled, "cancelled, or not started in time"},

	{gq.StatusClaimed, gq.StatusRunning, "started"},
	{gq.StatusClaimed, gq.StatusScheduled, "hold lost without fault"},
	{gq.StatusClaimed, gq.StatusRetrying, "hold lost by the holder's fault, or given back for later"},
	{gq.StatusClaimed, gq.StatusDeadLetter, "faults exhausted, or lifetime over"},
	{gq.StatusClaimed, gq.StatusCancelled, "cancelled, or not started in time"},

	{gq.StatusRunning, gq.StatusCompleted, "handler succeeded"},
	{gq.StatusRunning, gq.StatusFailed, "permanent failure, or retries disabled"},
	{gq.StatusRunning, gq.StatusRetrying, "temporary failure, lease lost, or released without fault"},
	{gq.StatusRunning, gq.StatusDeadLetter, "attempts exhausted, or lifetime over"},
	{gq.StatusRunning, gq.StatusCancelled, "cancellation honoured"},

	{gq.StatusRetrying, gq.StatusScheduled, "backoff over"},
	{gq.StatusRetrying, gq.StatusDeadLetter, "attempts exhausted, or lifetime over"},
	{gq.StatusRetrying, gq.StatusCancelled, "cancelled, or not started in time"},
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

// eventOf returns the type of the event for a move into a status.
var eventOf = [endStatus]gq.EventType{
	gq.StatusPending: gq.EventSubmitted, gq.StatusDelayed: gq.EventDelayed, gq.StatusScheduled: gq.EventScheduled, gq.StatusClaimed: gq.EventClaimed,
	gq.StatusRunning: gq.EventStarted, gq.StatusRetrying: gq.EventRetrying, gq.StatusCompleted: gq.EventCompleted, gq.StatusFailed: gq.EventFailed,
	gq.StatusDeadLetter: gq.EventDeadLettered, gq.StatusCancelled: gq.EventCancelled,
}
