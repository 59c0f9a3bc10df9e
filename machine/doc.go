// Package machine is the state machine of jobs. It has every transition as a function of
// values, and the checks of specs, policies, queues, pools and schedules.
//
// The package is pure. It does no I/O, starts no goroutine and never reads the clock: time,
// randomness and identity are arguments. The caller persists the result:
//
//	next, events, err := machine.Complete(state, lease, result, now)
//
// A transition takes a state and returns the next one with its events. On an error it returns
// the unchanged state and no events. Copies of a state share the lease, the failure and the
// policy, and no transition writes to them.
//
// The function holds is the only place that checks that a caller has the newest unexpired
// lease; neither SQL nor a handler repeats the check. [Moves] lists all legal moves.
package machine
