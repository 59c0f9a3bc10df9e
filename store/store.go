// Package store is the port between the engine and whatever keeps the jobs.
//
// A store selects, locks and persists; it never decides. The rules of the state
// machine are functions of package machine, handed in with each [Update], and the
// store calls them on the rows it found. To write another backend, implement
// [Store] and run package storetest against it; this documentation and that
// suite are the whole contract.
//
// # What every store promises
//
//   - Durable. A call that returned without an error has reached stable storage
//     (unless the store says it is ephemeral). That includes reads, refusals and
//     idempotent hits: whatever an answer observed is durable before it is given.
//   - Atomic. Each item of a batch happens wholly or not at all, with its events
//     in the same commit. Items of one call are independent: each has its own
//     answer, and a bad one does not disturb the others.
//   - Batched. Methods take many items and concurrent callers share commits.
//   - Fenced. A change that names a lease is applied to the newest lease's job by
//     a function that refuses every other lease; the check and the write are one.
//   - One clock. A store is opened with a [Clock] and reads it once for each
//     batch, after its locks are held. The time of a store never runs backwards,
//     not even across a restart.
//   - Judged on access. A job whose run time has come is claimable and one whose
//     lease has expired is reclaimable, whether or not a sweep has run.
//   - Small while hot. Finished jobs cost no claim, sweep or count anything.
//
// # Errors
//
// The error of a call means that nothing is known about its items: after
// [gq.ErrStoreFailed], [gq.ErrUnavailable] or the end of the context a write may
// have happened. Errors of single items are final answers.
//
// Arguments belong to the store until the call returns, and for good where it
// returned because its context ended: the write may still be under way.
package store

import (
	"context"
	"time"

	"github.com/gopherqueue/gq"
)

// Store keeps jobs. It is composed of one small interface for each role. All methods may be
// called concurrently.
type Store interface {
	Writer
	Reader
	Claimer
	Sweeper
	EventLog
	Settings
	Documents

	// Config is what the store was opened with, and the defaults of what was left open.
	Config() Config

	// Close waits for calls under way and frees everything. Later calls return
	// [gq.ErrClosed]. Closing twice is fine.
	Close() error
}

// Writer inserts jobs and changes them. A [Transaction] is one too.
type Writer interface {
	// Insert adds groups of jobs. A group is all or nothing. Every spec has an
	// id, and its defaults filled in. Within a group the dependencies may name
	// members in any order.
	//
	// A job whose idempotency key is taken is not inserted: its answer names the
	// job that has the key, and dependencies of the group on it mean that job.
	//
	// So is the second of two members of a group that share a key: it is the
	// first one.
	//
	// Item errors: [gq.ErrInvalid] with every fault, [gq.ErrDuplicateID],
	// [gq.ErrQueueFull], [gq.ErrTooMany] for a queue beyond [gq.MaxQueues],
	// [gq.ErrDiskFull].
	Insert(ctx context.Context, groups []Group) ([]Inserted, error)

	// Update applies a function to the state of each job and persists what it
	// returned together with its events and the blobs beside it. A function
	// that returns an error, panics, returns the state of another job, or returns the
	// state as it was without an event changes nothing, and its blobs are not written
	// either: that is how a call that was answered before is answered again. Two
	// updates of one job in one call see each other in order.
	//
	// The children that an update spawns are inserted with it, as one group, or
	// nothing happens at all. They may depend on each other and on the updated
	// job, as it is from then on. A change that is refused, or is none, inserts
	// nothing; a group that is refused, with the errors of Insert, leaves the job
	// as it was.
	//
	// A function by which a held job would come to occupy more of its pool than
	// there is, or than is left, changes nothing either: the answer is the state as
	// it was and a [gq.CapacityError]. That is how a held job starts in a pool that
	// is occupied AtStart, and the check and the start are one.
	//
	// Item errors: [gq.ErrNotFound], [gq.ErrStaleLease] where a lease was named
	// that the store does not know, [gq.ErrNoCapacity], [gq.ErrInUse] of updates that
	// yield, and whatever the function returned.
	Update(ctx context.Context, updates []Update) ([]Updated, error)
}

// Reader reads jobs.
type Reader interface {
	// Get reads jobs by id or lease, in the order asked for, as they stand at
	// this moment: [gq.State.At]. An unknown one has the error [gq.ErrNotFound].
	// What any method returns belongs to the caller.
	Get(ctx context.Context, refs []Ref, parts gq.Parts) ([]Found, error)

	// List reads a page of jobs by order of submission. It never reads what it
	// does not return, and so refuses a query that picks by type or tag with
	// [gq.ErrInvalid]: the engine does that.
	List(ctx context.Context, q gq.Query) (gq.Page, error)

	// Counts tells how many jobs stand in each status, for the named queues or
	// for all. It costs the same however many jobs there are.
	Counts(ctx context.Context, queues ...string) ([]gq.Count, error)
}

// Claimer hands out jobs.
type Claimer interface {
	// Claim gives claimable jobs to workers, each under a lease with a new id
	// and a larger version. Within a queue the smallest order key is served
	// first; queues are served in the order the claim names them. A claim finds
	// fewer jobs than it asked for only when there are no more, and never more. It
	// waits for what others have locked, but not for long.
	// How many other jobs wait, match or not, makes no difference to its cost.
	//
	// The limits of a queue hold over all workers and within one call. What
	// counts is the jobs that are held, by leases that have not run out, so that
	// no place can be lost or freed twice:
	//
	//   - [gq.Queue.MaxRunning]: so many jobs of the queue are held at once.
	//   - KeyLimit: so many of them with the same [gq.Spec.LimitKey]. A key
	//     without a free place hides nothing from the others.
	//   - Pool: the held jobs of all its queues cost no more than its capacity.
	//     One that does not fit is passed over, and cheaper ones may be served
	//     before it; what costs nothing always fits. In a pool that is occupied
	//     AtStart a claim with Hold needs no room, and Update asks for it.
	//   - Rate: so many claims in time. What was used up is durable with the
	//     claim.
	//
	// In a fair queue a job takes a turn when it is submitted, and another where
	// its priority changes ([machine.FairTurn]).
	Claim(ctx context.Context, claims []Claim) ([]Claimed, error)

	// Peek reads the jobs a claim would get, in order and within all limits,
	// without changing anything.
	// n is between 1 and [MaxClaim].
	Peek(ctx context.Context, f Filter, n int) ([]Found, error)
}

// Sweeper does what time and finished dependencies have made due, a bounded step at a time.
type Sweeper interface {
	// Due lists jobs for which time has something to do ([machine.Advance]),
	// the most overdue first, and when to look again. Here, in ReleaseDependents and in
	// Collect a limit below 1 is 1.
	Due(ctx context.Context, limit int) (Due, error)

	// ReleaseDependents tells up to limit waiting dependents that a dependency has ended
	// and returns how many it told; 0 means that none is left, but for those that the
	// transaction of an application has locked. A store may do
	// any part of this by itself, at the latest in the next commit after the
	// one that ended the dependency, so that one job with a million dependents
	// is never one commit.
	ReleaseDependents(ctx context.Context, limit int) (int, error)

	// Collect removes up to limit finished jobs that are past their retention,
	// with their events, and returns how many; 0 means that none is left.
	Collect(ctx context.Context, limit int) (int, error)
}

// EventLog reads what has happened.
type EventLog interface {
	// Events reads up to limit events after a sequence number, oldest first,
	// none for a limit below 1.
	// No event ever appears behind one that was returned. Calls that were made one
	// after the other are told in that order. Where events after that number are no
	// longer kept the error is [gq.ErrGone].
	Events(ctx context.Context, after uint64, limit int) ([]gq.Event, error)

	// LastEvent is the number of the newest event, 0 before there was any. It
	// never gets smaller, and every event up to it can be read or is gone.
	LastEvent(ctx context.Context) (uint64, error)

	// History reads all events of one job, oldest first, without a scan. The
	// error is [gq.ErrNotFound] for an unknown job.
	History(ctx context.Context, id gq.JobID) ([]gq.Event, error)
}

// Settings are the queues and pools.
type Settings interface {
	// PutQueue configures a queue from the next claim or submission on. Making
	// a queue fair, or not, gives its live jobs their turns anew in the order of
	// submission; that and a new KeyLimit may take time in proportion to them.
	// With UpdatedAt it is a change of what was read: it must be the instant at which the
	// queue was configured last, and each time is later than the one before.
	// Errors: [gq.ErrInvalid] with every fault, of which a pool that nobody has put
	// is one, [gq.ErrConflict] for a queue that was configured since then, and
	// [gq.ErrTooMany] for one beyond [gq.MaxQueues].
	PutQueue(ctx context.Context, q gq.Queue) error

	// Queues lists queues that have been configured or ever had a job, by name. It
	// costs what it returns, however many others there are.
	Queues(ctx context.Context, q QueueQuery) ([]gq.Queue, error)

	// PutPool configures a pool from the next claim or start on; what is in use is
	// for the store to know. Errors: [gq.ErrInvalid]
	// with every fault, and [gq.ErrTooMany] for one beyond [gq.MaxPools].
	PutPool(ctx context.Context, p gq.Pool) error

	// Pools lists every pool by name, with what is in use at this moment.
	Pools(ctx context.Context) ([]gq.Pool, error)
}

// Documents are small records beside the jobs.
type Documents interface {
	// PutDocs writes documents, all or none. Each must still have the version
	// that its caller has read; nil data deletes. It returns the new versions,
	// which are larger than any the store has given before, and 0 for what was
	// deleted. Errors: [gq.ErrInvalid] with every fault, and [gq.ErrConflict]
	// naming a document that has changed.
	PutDocs(ctx context.Context, docs []Doc) ([]uint64, error)

	// Doc reads a document. The error is [gq.ErrNotFound] where there is none.
	Doc(ctx context.Context, kind, name string) (Doc, error)

	// Docs reads up to limit documents of a kind with names after one, by name;
	// "" is before all names. A limit of 0 is [DefaultPage], the largest
	// [MaxPage].
	Docs(ctx context.Context, kind, after string, limit int) ([]Doc, error)
}

// Meter is an optional capability: what the store has cost so far.
type Meter interface {
	Meter() Metrics
}

// Metrics are running totals since the store was opened.
type Metrics struct {
	Commits   uint64 // batches written
	Syncs     uint64 // times stable storage was waited for
	DiskBytes uint64 // size on disk now; 0 if it has none
}

// Notifier is an optional capability: word of changes without polling. It is a
// hint. Whoever acts on it asks the store, and a store may send too many or,
// where a connection was lost, too few.
type Notifier interface {
	// Notify has f called about every commit, with what it changed. f must
	// return at once and must not call the store. After stop has returned f is
	// not called again.
	Notify(f func(News)) (stop func())
}

// News is what a commit may have changed.
type News struct {
	Queues []string // where jobs may have become claimable, or room for them
	Event  uint64   // number of the newest event
}

// Clock tells the time of a store.
type Clock interface {
	Now() time.Time
}

// Group is one or more jobs that are inserted together or not at all.
type Group struct {
	Jobs []gq.Spec
}

// One is a group of a single job.
func One(s gq.Spec) Group { return Group{Jobs: []gq.Spec{s}} }

// Inserted is the answer to a [Group]: an error, or a place for each job.
type Inserted struct {
	Jobs []Placed
	Err  error
}

// Placed tells where a submitted job ended up.
type Placed struct {
	State    gq.State // of the inserted job, or of the one that had the key
	Existing bool     // the key was taken
	Same     bool     // and by a submission with the same fingerprint
}

// Ref names a job, either by its id or by any lease it ever had.
type Ref struct {
	Job   gq.JobID
	Lease gq.LeaseID // used where Job is zero
}

// Found is a job or the reason why there is none.
type Found struct {
	gq.Job
	Err error
}

// QueueQuery picks queues by name. Zero is all of them.
type QueueQuery struct {
	Names []string // only these; one that does not exist is left out
	Pool  string   // only those that share this pool; "" is any
	Own   bool     // only those with a policy that is not the default one
	After string   // only those whose names come after this one
	Limit int      // the first so many of them; 0 is no limit
}

// Sizes of a page of [Store.List].
const (
	DefaultPage = 50 // where a query sets no limit
	MaxPage     = 1000
)

// Filter selects claimable jobs.
type Filter struct {
	Queues  []string // tried in this order; at least one
	Types   []string // job types the worker can run; none is any
	Offers  []string // capabilities; a job's Requires must be among them
	MaxCost int64    // largest CostUnits; 0 is any
}

// Claim asks for up to N jobs.
type Claim struct {
	Filter
	N      int
	Worker string
	Hold   bool          // claim only; the execution starts later
	TTL    time.Duration // of the lease; 0 is the policy's
	Parts  gq.Parts      // blobs to read along
}

// Claimed is the answer to a [Claim].
type Claimed struct {
	Jobs []gq.Job

	// RetryAt is set where the claim got fewer jobs than it asked for and only
	// a rate kept it from another one: the earliest instant at which that lets
	// one through. Where the transaction of an application has jobs locked that may
	// be claimable it is when to look again.
	RetryAt time.Time

	Err error
}

// Apply decides what becomes of a state. It must be pure: a store may call it
// more than once.
type Apply func(s gq.State, now time.Time) (gq.State, []gq.Event, error)

// Update changes one job.
type Update struct {
	Ref
	Apply      Apply
	Metadata   *gq.Metadata // replaces the current metadata
	Result     []byte       // replaces the result; nil leaves it
	Checkpoint []byte       // replaces the checkpoint; nil leaves it
	Spawn      []gq.Spec    // children, a group to be inserted with the change

	// Settles says that the function ends the hold on its job if it is not refused.
	// It is a hint: a store may prepare for it, and what happens is the same.
	Settles bool

	// Yield is for whoever comes again by itself: where the transaction of an
	// application has the job, it is left alone, and the answer is [gq.ErrInUse].
	Yield bool
}

// Updated is the answer to an [Update]: the state from here on, or why it did
// not change.
type Updated struct {
	State   gq.State
	Changed bool     // something was written
	Spawned []Placed // in the order of Spawn, where the state changed
	Err     error
}

// Due is the answer of [Store.Due].
type Due struct {
	Jobs []gq.JobID
	Next time.Time // when the first job is due that is not listed; zero if none will be
	Now  time.Time // by the store's clock, by which it was judged
}
