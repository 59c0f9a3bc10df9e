// Package storetest is the contract of package store as a suite that any
// backend can run.
//
// A backend hands over how it is opened, and calls [Run] and [RunModel] from
// its own tests:
//
//	func TestStore(t *testing.T) {
//		backend := storetest.Backend{Open: open, Reopen: reopen}
//		t.Run("Contract", func(t *testing.T) { storetest.Run(t, backend) })
//		t.Run("Model", func(t *testing.T) { storetest.RunModel(t, backend) })
//	}
//
// Run is a list of cases. Each opens a store of its own with a manual [Clock],
// tells one short story and checks one clause of the contract, which its
// failure quotes. RunModel drives a store with long random stories and compares
// every answer with a small reference model that shares no code with any store
// or with the rules in package machine.
//
// # What the suite leaves open
//
// Where the contract allows a choice, the suite accepts every choice:
//
//   - Reads may show a job as it was recorded or as time has made it: a DELAYED
//     job whose run time has come may read SCHEDULED before anyone recorded
//     that. Lists and counts may do the same.
//   - A claim may record what time did to jobs it then does not hand out.
//   - Dependents may be told in the commit that ends their dependency, by
//     itself soon after, or not before ReleaseDependents is called.
//   - A finished job may be kept beyond its retention until all that depend on it
//     have been told.
//   - What a fair queue remembers of a key without live jobs may be lost in a
//     restart: its next job then takes the turn being served.
//   - Event numbers ascend strictly; they may have gaps.
//   - The last page of a list may be followed by an empty one.
//   - A queue without jobs may be missing from the counts.
//   - Sequence numbers within a group follow the order of its jobs; where a job
//     comes before one it depends on they may follow the dependencies instead.
//   - Of a job that is not inserted because its key is taken, the id and the
//     dependencies may be checked or not.
//   - Once events have been collected with their job, a replay from before them
//     may be refused with ErrGone or go on without them.
//
// Instants are compared to the nanosecond.
package storetest
