// Package machine is the state machine of jobs: every transition as a function that takes
// values and returns values, and the checks of everything that is submitted or configured.
//
// The package is pure. It does no I/O, starts no goroutine and never reads the clock: time,
// randomness and identity are arguments. Whoever calls a transition persists the outcome:
//
//	next, events, err := machine.Complete(state, lease, result, now)
//
// Every transition takes a state and returns the next one with the events that tell of it. On
// an error the returned state is the unchanged one and there are no events. The lease, the
// failure and the policy of a state are shared between copies and never written to.
//
// The rule that only the newest unexpired lease may settle a job is written once, in holds,
// and nowhere in SQL or in a handler. Whatever the table in [Moves] does not list is refused.
package machine
