// Package storetest is the contract of package store as a suite that any
// backend can run.
//
// A backend calls [Run] and [RunModel] from its own tests:
//
//	func TestStore(t *testing.T) {
//		backend := storetest.Backend{Open: open, Reopen: reopen}
//		t.Run("Contract", func(t *testing.T) { storetest.Run(t, backend) })
//		t.Run("Model", func(t *testing.T) { storetest.RunModel(t, backend) })
//	}
//
// Run is a list of cases. Each case opens its own store with a manual [Clock] and checks
// one clause of the contract, which a failure quotes. RunModel makes long random sequences
// of calls and compares every answer with a small reference model that shares no code with
// any store or with the rules in package machine.
//
// # What the suite leaves open
//
// Where the contract allows a choice, the suite accepts every choice:
//
//   - Reads may show a job as it was recorded or as it is now: a DELAYED
//     job whose run time has come may read SCHEDULED before that is recorded.
//     Lists and counts may do the same.
//   - A claim may record changes that are due for jobs it does not return.
//   - Dependents may learn of an end in the commit that ends their dependency,
//     soon after it, or not before ReleaseDependents is called.
//   - A finished job may be kept beyond its retention until all its dependents
//     know its end.
//   - A restart may lose the last turn of a fair queue's key that has no live
//     jobs: its next job then takes the turn being served.
//   - Event numbers ascend strictly; they may have gaps.
//   - The last page of a list may be followed by an empty one.
//   - A queue without jobs may be missing from the counts.
//   - Sequence numbers within a group follow the order of its jobs; if a job
//     comes before one it depends on they may follow the dependencies instead.
//   - If a job is not inserted because its key is taken, its id and its
//     dependencies may be checked or not.
//   - Once events have been collected with their job, a replay from before them
//     may be refused with ErrGone or continue without them.
//
// Times are compared to the nanosecond.
package storetest
