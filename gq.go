// Package gq is the vocabulary of GopherQueue: what a job is, which states it
// can be in, who may move it from one to the next, and what every word of that
// means. Stores, the engine and every API speak in these types.
//
// The package is pure. It does no I/O, starts no goroutine and never reads the
// clock: time, randomness and identity are arguments. A transition is a method
// on [State] that takes values and returns values; whoever calls it persists
// the outcome.
//
//	next, events, err := state.Complete(ref, digest, now)
//
// # Who decides what
//
// The domain decides, a store selects and persists, a face translates. The rule
// that only the newest unexpired lease may settle a job stands once, in
// [State.Complete] and its siblings, and nowhere in SQL or in a handler.
//
// # Reading order
//
// [Status] and [Moves] are the state machine, [State] its data and verbs,
// [Lease] the exclusive right to run a job, [Policy] the numbers that govern
// it, [Spec] what a client asked for, [Event] what is remembered.
package gq
