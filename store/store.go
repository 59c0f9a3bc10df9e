// Package store is the port between the engine and its storage.
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
//     (unless the store is ephemeral). This includes reads, refusals and
//     idempotent hits: everything an answer shows is durable before it is returned.
//   - Atomic. Each item of a batch is applied completely or not at all, with its
//     events in the same commit. Items of one call are independent: each has its
//     own answer, and an invalid item does not affect the others.
//   - Batched. Methods take many items and concurrent callers share commits.
//   - Fenced. A change made under a lease succeeds only if that lease is the job's
//     newest; the check and the write are atomic.
//   - One clock. A store is opened with a [Clock] and reads it once for each
//     batch, after its locks are held. The time of a store never runs backwards,
//     not even across a restart.
//   - Current on access. A job is claimable once its run time has come or its
//     lease has expired, whether or not a sweep has run.
//   - Cheap history. Finished jobs do not slow down claims, sweeps or counts.
//
// # Errors
//
// The error of a call means that the outcome of its items is unknown: after
// [gq.ErrStoreFailed], [gq.ErrUnavailable] or a cancelled context a write may
// have been committed. Errors of single items are final.
//
// The caller must not modify arguments until the call returns, and never again if it
// returned because its context ended: the write may still be under way.
package store

import (
	"context"
	"fmt"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/machine"
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
	Timekeeper

	// Config returns the configuration the store was opened with, defaults filled in.
	Config() Config

	// Close waits for calls under way and frees everything. Later calls return
	// [gq.ErrClosed]. Closing twice is fine.
	Close() error
}

// Writer inserts jobs and changes them. A [Transaction] is one too.
type Writer interface {
	// Insert adds groups of jobs. A group is inserted as a whole or not at all. Every
	// spec has an id and its defaults filled in. Within a group, dependencies may
	// name members in any order.
	//
	// If a job's key is recorded for another job, [machine.Collide] decides. Usually the
	// job is not inserted: its answer names the job that has the key, and dependencies
	// within the group refer to that job. If two members of a group share a key, the
	// second one resolves to the first. A key stays recorded until another job takes it
	// or its job is removed; a change of a job's status writes nothing about its key.
	//
	// A job whose spec names another one in Replaces takes its place, and so does a job
	// that replaces the holder of its key. The old job is cancelled in the same commit
	// ([machine.Replace]), each names the other, and jobs that wait for the old one wait
	// for the new one from then on. A dependency on a replaced job, also of a later group, is
	// one on the job that stands in its place. The deadlines of a job named in Replaces go on for the
	// new one, and with Group.CarryOn so do its attempts, lease versions and checkpoint.
	//
	// Item errors: [gq.ErrInvalid] with every fault, [gq.ErrDuplicateID],
	// [gq.ErrNotUnique], [gq.ErrNotFound] and [gq.ErrIllegalMove] for a job that cannot be
	// replaced, [gq.ErrQueueFull], [gq.ErrTooMany] for a queue beyond [gq.MaxQueues],
	// [gq.ErrDiskFull].
	Insert(ctx context.Context, groups []Group) ([]Inserted, error)

	// Update applies a function to the state of each job and persists the result
	// together with its events and blobs. Nothing is written, blobs included, if the
	// function returns an error, panics, returns the state of another job, or returns
	// the state unchanged and without an event: this makes repeated calls idempotent.
	// Updates of the same job in one call are applied in order.
	//
	// The children that an update spawns are inserted in the same commit, as one
	// group. They may depend on each other and on the updated job in its new state.
	// If the function is refused or changes nothing, no child is inserted; if the
	// group is refused, with an error of Insert, the job stays as it was.
	//
	// If a held job would need more of its pool than is free, nothing changes: the
	// answer is the old state and a [machine.CapacityError]. This is how a held job starts
	// in a pool that is occupied AtStart; the check and the start are atomic.
	//
	// Item errors: [gq.ErrNotFound], [gq.ErrStaleLease] for an unknown lease,
	// [gq.ErrNoCapacity], [gq.ErrInUse] for updates that yield, and the function's own.
	Update(ctx context.Context, updates []Update) ([]Updated, error)
}

// Reader reads jobs.
type Reader interface {
	// Get reads jobs by id or lease, in the order of refs, as of now ([gq.State.At]).
	// An unknown job has the error [gq.ErrNotFound]. The caller owns everything that
	// any method returns.
	Get(ctx context.Context, refs []Ref, parts gq.Parts) ([]Found, error)

	// List reads a page of jobs in the order of submission. It reads only the jobs
	// that it returns, and so refuses queries by type or tag with [gq.ErrInvalid]:
	// the engine filters those.
	List(ctx context.Context, q gq.Query) (gq.Page, error)

	// Keyed returns the jobs for which keys with these names are recorded, whether or not they still
	// hold them: in the given scopes, or else in all scopes that the store can tell, which are at
	// least the types of its live jobs. It looks each key up. At most [gq.MaxQueryKeys] can be named,
	// and at most [MaxKeyed] looked up: see [CheckKeyed].
	Keyed(ctx context.Context, scopes, names []string) ([]gq.JobID, error)

	// Counts returns the number of jobs in each status, for the named queues or for
	// all. Its cost does not depend on the number of jobs.
	Counts(ctx context.Context, queues ...string) ([]gq.Count, error)
}

// Claimer gives jobs to workers.
type Claimer interface {
	// Claim gives claimable jobs to workers, each under a lease with a new id
	// and a larger version. Within a queue the smallest order key is served
	// first; queues are served in the order the claim names them. A claim returns
	// fewer jobs than it asked for only if there are no more. It waits briefly for
	// jobs that others have locked. Its cost does not depend on the number of
	// waiting jobs.
	//
	// The limits of a queue hold across all workers and within one call. They count
	// jobs held by unexpired leases, so that no slot is lost or freed twice:
	//
	//   - [gq.Queue.MaxRunning] limits the held jobs of the queue.
	//   - KeyLimit limits those with the same [gq.Spec.LimitKey]. A key at its limit
	//     does not block other keys.
	//   - KeyRate limits claims of jobs with the same limit key over time, by their
	//     weights ([machine.TakeKeyRate]). A key whose rate is used up does not block
	//     other keys. Its use is durable with the claim, and forgotten once the key
	//     owes nothing: keys that are idle cost nothing.
	//   - Pool limits the total cost of the held jobs of all its queues. A job that
	//     does not fit is skipped, and cheaper jobs may be served before it; jobs
	//     without cost always fit. In a pool that is occupied AtStart, a claim with
	//     Hold needs no capacity; Update requests it when the job starts.
	//   - Rate limits claims over time. Its use is durable with the claim.
	//
	// In a fair queue a job gets a turn when it is submitted, and a new one when its
	// priority changes ([machine.FairTurn]).
	Claim(ctx context.Context, claims []Claim) ([]Claimed, error)

	// Waiting lists up to limit queues, by name, whose names begin with a prefix and come
	// after a name: all that have claimable jobs, and perhaps others. Its cost does not
	// depend on the number of idle queues. A limit is between 1 and [MaxPage].
	Waiting(ctx context.Context, prefix, after string, limit int) ([]string, error)

	// Peek reads the jobs that a claim would get, in order and within all limits,
	// without changing anything. n is between 1 and [MaxClaim].
	Peek(ctx context.Context, f Filter, n int) ([]Found, error)
}

// Timekeeper tells the time.
type Timekeeper interface {
	// Now returns the time of the store, by which it decides what is due. It is no
	// earlier than the time of any write or answer before it.
	Now(ctx context.Context) (time.Time, error)
}

// Sweeper does what time and finished dependencies have made due, a bounded step at a time.
type Sweeper interface {
	// Due lists jobs for which time has something to do ([machine.Advance]),
	// the most overdue first, and when to look again. Here, in ReleaseDependents and in
	// Collect a limit below 1 is 1.
	Due(ctx context.Context, limit int) (Due, error)

	// ReleaseDependents tells up to limit waiting dependents that a dependency has ended
	// and returns how many it told. 0 means that none is left, except those locked by
	// an application's transaction. A store may do part of this by itself, in the
	// commit that ends the dependency or later; a job with a million dependents is
	// never one commit.
	ReleaseDependents(ctx context.Context, limit int) (int, error)

	// Collect removes up to limit finished jobs that are past their retention,
	// with their events, and returns how many; 0 means that none is left. next is no
	// later than the retention of the first job that is left ends, and zero if there is
	// none.
	Collect(ctx context.Context, limit int) (removed int, next time.Time, err error)
}

// EventLog reads what has happened.
type EventLog interface {
	// Events reads up to limit events after a sequence number, oldest first,
	// none for a limit below 1.
	// No event ever appears behind one that was returned, and the events of
	// sequential calls are in the order of the calls. If events after that number
	// are no longer kept, the error is [gq.ErrGone].
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
	// PutQueue configures a queue from the next claim or submission on. Changing
	// whether a queue is fair assigns new turns to its live jobs, in the order of
	// submission; this and a new limit per key take time in proportion to their number.
	// A new KeyRate changes what each key owes ([machine.ChangeKeyRate]).
	// If UpdatedAt is set, it must be the time of the queue's last configuration.
	// Errors: [gq.ErrInvalid] with every fault, such as an unknown pool,
	// [gq.ErrConflict] for a queue that was configured since UpdatedAt, and
	// [gq.ErrTooMany] beyond [gq.MaxQueues].
	PutQueue(ctx context.Context, q gq.Queue) error

	// DeleteQueue removes the configuration of a queue, with the state of its rate and
	// its turns. The queue is then listed only while it has jobs, until it is configured
	// again. Errors: [gq.ErrNotFound] for a queue that is not listed, and
	// [gq.ErrQueueInUse] with the counts for one with live jobs, see [QueueInUse].
	DeleteQueue(ctx context.Context, name string) error

	// PutKey gives one limit key of a configured queue limits of its own, which replace
	// those it had, or none if both are zero. They count from the next claim on; units
	// that the key owes stay ([machine.ChangeKeyRate]). The first key of a queue takes
	// time in proportion to its live jobs. [gq.Queue.OwnKeys] counts such keys.
	// Errors: [gq.ErrInvalid] with every fault, [gq.ErrNotFound] for a queue that is not
	// configured, and for a key without limits that is given none, and [gq.ErrTooMany]
	// beyond [gq.MaxQueueKeys].
	PutKey(ctx context.Context, k gq.QueueKey) error

	// Keys lists the limit keys of a queue that have limits of their own, or the named
	// keys, with or without limits. Its cost depends only on what it returns.
	Keys(ctx context.Context, q KeyQuery) ([]gq.QueueKey, error)

	// Queues lists queues that were configured or ever had a job, by name. Its cost
	// depends only on what it returns.
	Queues(ctx context.Context, q QueueQuery) ([]gq.Queue, error)

	// PutPool configures a pool from the next claim or start on; Used is ignored.
	// Errors: [gq.ErrInvalid] with every fault, and [gq.ErrTooMany] beyond
	// [gq.MaxPools].
	PutPool(ctx context.Context, p gq.Pool) error

	// Pools lists every pool by name, with what is in use at this moment.
	Pools(ctx context.Context) ([]gq.Pool, error)
}

// Documents are small records beside the jobs.
type Documents interface {
	// PutDocs writes all documents or none. Each must still have the version that
	// its caller read; nil data deletes. It returns the new versions, larger than
	// any before, and 0 for deleted documents. Errors: [gq.ErrInvalid] with every
	// fault, and [gq.ErrConflict] naming a document that has changed.
	PutDocs(ctx context.Context, docs []Doc) ([]uint64, error)

	// Doc reads a document. The error is [gq.ErrNotFound] where there is none.
	Doc(ctx context.Context, kind, name string) (Doc, error)

	// FindDocs reads those of the named documents that exist, in any order and all as of one
	// moment. At most [MaxPage] can be named.
	FindDocs(ctx context.Context, names []DocName) ([]Doc, error)

	// Docs reads up to limit documents of a kind with names after one, by name;
	// "" is before all names. A limit of 0 is [DefaultPage], the largest
	// [MaxPage].
	Docs(ctx context.Context, kind, after string, limit int) ([]Doc, error)
}

// Meter is an optional capability: running totals of the store's work.
type Meter interface {
	Meter() Metrics
}

// Metrics are running totals since the store was opened.
type Metrics struct {
	Commits   uint64 // batches written
	Syncs     uint64 // times stable storage was waited for
	DiskBytes uint64 // size on disk now; 0 if it has none

	// Zero if the store does not measure the disk.
	DiskFree    uint64 // bytes that are free there
	DiskReserve uint64 // bytes that it keeps free; never 0 if it measures
	DiskRefuses string // see [gq.Stats]
}

// LateLister is an optional capability of stores where finding the next change costs about as
// much as finding the jobs that are due.
type LateLister interface {
	// Late is Due for callers that do not need Next. It is set only if more jobs than
	// limit are due.
	Late(ctx context.Context, limit int) (Due, error)
}

// Notifier is an optional capability: notification of changes without polling.
// Notifications are hints: a store may send too many or, after a lost connection,
// too few.
type Notifier interface {
	// Notify calls f after every commit with what it changed. f must return
	// immediately and must not call the store. f is not called after stop returns.
	// Unless somebody asks for events, News.Event may lag behind.
	Notify(events bool, f func(News)) (stop func())
}

// News is what a commit may have changed.
type News struct {
	Queues []string // where jobs may have become claimable, or room for them
	Freed  []string // where a job has ended, which leaves room under a limit and changes nothing else for claims
	Event  uint64   // number of the newest event

	// Dependents says that a job has ended for which others wait: ReleaseDependents has
	// something to do.
	Dependents bool

	// Cancels are running jobs that somebody has asked to stop.
	Cancels []gq.JobID

	// Inbox says that submissions wait to be taken in: see [Inbox].
	Inbox bool

	// Relayed is a message of another process: see [Relay]. There is no other news then.
	Relayed []byte

	// Due is an instant at which time alone changes something, zero if none is known. If
	// DueKnown is set, time changes no job that the commit wrote before that.
	Due      time.Time
	DueKnown bool
}

// Announcer is an optional capability of a [Notifier]: it tells its listeners, and those of other
// processes, that something which the store does not know is due at a time, such as a
// schedule. Like all notifications this is a hint.
type Announcer interface {
	Announce(due time.Time)
}

// Shared is an optional capability: several processes may have the store open at the same time.
// Their engines then tell each other about their workers.
type Shared interface {
	// Shared has no effect; it marks the store.
	Shared()
}

// Relay is an optional capability of a [Notifier] that is [Shared]: it carries messages, in JSON of
// up to 6000 bytes, to the other processes that have the store open. Their listeners get each as
// News.Relayed. Messages can get lost.
type Relay interface {
	Relay(ctx context.Context, messages [][]byte) error
}

// Clock tells the time of a store.
type Clock interface {
	Now() time.Time
}

// Group is one or more jobs that are inserted together or not at all.
type Group struct {
	Jobs []gq.Spec

	// Mint says that the ids are only for the jobs of the group to refer to each other. A
	// store may give the jobs other ids, which the answer tells.
	Mint bool

	// Authorize, if there is one, is asked with the queue of each existing job that the group
	// would replace or postpone. Its error refuses the group. It must be pure.
	Authorize func(queue string) error

	// CarryOn, if there is one, says that the only job of the group, which names another one in
	// Replaces, is to run later than that one, which is claimable, and carries on from it.
	CarryOn *CarryOn

	// Claim, if the group is one job, may be served in the same commit, as if it came right
	// after it. A store does so only where that costs less than a claim of its own, and
	// never waits for it. [Inserted] tells what it got; otherwise it was not tried. The call
	// does not return while the claim may still get jobs, even if its context has ended.
	Claim *Claim
}

// CarryOn is what a job takes over from the claimable job whose place it takes, besides its state.
type CarryOn struct {
	Version    gq.LeaseVersion // of the old job when it was read
	Checkpoint []byte          // of the old job; nil if it has none
}

// Replace cancels a job whose place a member of the group takes.
func (g *Group) Replace(s gq.State, by gq.JobID, now time.Time) (gq.State, []gq.Event, error) {
	if g.CarryOn != nil {
		return machine.PutOff(s, by, g.CarryOn.Version, now)
	}
	return machine.Replace(s, by, now)
}

// One is a group of a single job.
func One(s gq.Spec) Group { return Group{Jobs: []gq.Spec{s}} }

// Inserted is the answer to a [Group]: an error, or a place for each job.
type Inserted struct {
	Jobs    []Placed
	Claimed *Claimed // the answer to Group.Claim, nil if it was not tried
	Err     error
}

// Placed tells where a submitted job ended up.
type Placed struct {
	State    gq.State // of the inserted job, or of the one that had the key
	Existing bool     // another job holds the key
	Same     bool     // with the same fingerprint, or the submission accepts any
	Replaces gq.JobID // the waiting job whose place the inserted job took
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
	Names  []string  // only these; one that does not exist is left out
	Pool   string    // only those that share this pool; "" is any
	Unlike gq.Policy // only those that were configured, with a policy other than this one; zero is any
	After  string    // only those whose names come after this one
	Limit  int       // the first so many of them; 0 is no limit
}

// KeyQuery picks limit keys of a queue.
type KeyQuery struct {
	Queue string
	Names []string // these keys, in this order; nil is all that have limits of their own, by name
	After string   // only those whose names come after this one
	Limit int      // the first so many of them; 0 is [DefaultPage], the largest [MaxPage]
}

// Selects reports whether Unlike selects a queue.
func (q *QueueQuery) Selects(queue gq.Queue) bool {
	return q.Unlike == gq.Policy{} || !queue.UpdatedAt.IsZero() && queue.Policy != q.Unlike
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
	// DefaultTTL is that of [gq.ClaimRequest].
	DefaultTTL time.Duration
	Parts      gq.Parts // blobs to read along
}

// Claimed is the answer to a [Claim].
type Claimed struct {
	Jobs []gq.Job

	// RetryAt is set where the claim got fewer jobs than it asked for and only
	// a rate kept it from another one: the earliest instant at which that lets
	// one through. The rate of a key may set it for a job that the claim's filter
	// excludes. Where the transaction of an application has jobs locked that may
	// be claimable it is when to look again.
	RetryAt time.Time

	// KeyRate says that the claim got fewer jobs than it asked for and the rate of a limit
	// key kept jobs from it.
	KeyRate bool

	// Unlimited says that no limit, pool or pause kept a job from the claim, so that
	// [News.Freed] is no reason to try again.
	Unlimited bool

	Err error
}

// Apply decides what becomes of a state. It must be pure: a store may call it
// more than once.
type Apply func(s gq.State, now time.Time) (gq.State, []gq.Event, error)

// Update changes one job.
type Update struct {
	Ref

	// Authorize, if there is one, is asked with the job's queue before Apply. Its error
	// is the answer, without the state of the job, and nothing changes. It is also asked
	// about jobs that children replace or postpone. Like Apply it must be pure. A store asks it through [Update.Authorized].
	Authorize func(queue string) error

	Apply      Apply
	Metadata   *gq.Metadata // replaces the current metadata
	Result     []byte       // replaces the result; nil leaves it
	Checkpoint []byte       // replaces the checkpoint; nil leaves it
	Spawn      []gq.Spec    // children, a group to be inserted with the change
	Mint       bool         // of the children: see [Group]

	// Settles says that the function ends the hold on its job if it is not refused.
	// It is a hint: a store may prepare for it, and what happens is the same.
	Settles bool

	// Yield is for whoever comes again by itself: where the transaction of an
	// application has the job, it is left alone, and the answer is [gq.ErrInUse].
	Yield bool
}

// Authorized asks Authorize about the job that an update has led to. Who may not change
// the job and comes with a lease that is not one of its last two is told that the lease is
// stale, as if nobody had ever had it: otherwise an invented lease would tell whether there is
// a job.
func (u *Update) Authorized(queue string, s *gq.State) error {
	if u.Authorize == nil {
		return nil
	}
	err := u.Authorize(queue)
	if err != nil && u.Job.IsZero() && (s.Lease == nil || s.Lease.ID != u.Lease && s.PreviousLease != u.Lease) {
		return UnknownLease(u.Lease)
	}
	return err
}

// UnknownLease is the error of an update under a lease that no job has or had.
func UnknownLease(id gq.LeaseID) error {
	return fmt.Errorf("no job has or had lease %.80q: %w", id, gq.ErrStaleLease)
}

// Updated is the answer to an [Update]: the state from here on, or why it did
// not change.
type Updated struct {
	State   gq.State
	Changed bool     // something was written
	Spawned []Placed // in the order of Spawn, where the state changed
	Err     error
}

// DueExactly is how far ahead [Due.Next] is exact.
const DueExactly = 12 * time.Hour

// Due is the answer of [Store.Due].
type Due struct {
	Jobs []gq.JobID
	// Next is when the first job is due that is not listed, zero if none will be. A store
	// that would have to search for a job due later than [DueExactly] from now may name an
	// earlier time that is no less than this from now.
	Next time.Time
	Now  time.Time // by the store's clock, by which it was judged
}
