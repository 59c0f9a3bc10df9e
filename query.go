package gq

import (
	"slices"
	"time"
)

// Parts selects the large parts of a job that a read includes.
type Parts uint8

const (
	WithPayload Parts = 1 << iota
	WithResult
	WithCheckpoint
)

// Query selects jobs. The zero value selects all jobs, newest first.
type Query struct {
	Queue         string    // empty is any
	Statuses      []Status  // empty is any; matches the recorded and the current status, see State.At
	CreatedAfter  time.Time // inclusive; zero is no bound
	CreatedBefore time.Time // exclusive; zero is no bound

	// Keys selects jobs that have, or had last, one of these idempotency or unique keys, and replays
	// of the jobs with these ids. An index finds them. A key may be missed if its scope is neither a
	// type of the query nor one of live jobs, or if there are more than 1000 scopes.
	Keys []string // empty is any

	// Stores have no index on these: see [Query.Picks].
	Types []string          // empty is any
	Tags  map[string]string // a job must have all of them

	OldestFirst bool
	Cursor      string // Page.Next of the previous page
	Limit       int    // jobs per page; 0 is 50, the maximum is 1000

	// MaxScan limits how many jobs are looked at for one page, so that a page takes little time
	// however many jobs there are. A page can then have fewer jobs than its limit, or none, without
	// being the last; its cursor resumes the search. Zero is no limit, except for queries by type or
	// tag: see [Query.Picks]. Stores that have an index for the query ignore it.
	MaxScan int
}

// Picks reports whether the query filters by type, tag or key. There is no index on types and tags,
// so without keys List scans a limited number of jobs per page (engine.MaxScan). A page can then have fewer
// jobs than its limit, or none, without being the last; its cursor resumes the scan.
func (q *Query) Picks() bool { return len(q.Types) > 0 || len(q.Tags) > 0 || len(q.Keys) > 0 }

// Picked reports whether a job has one of the types and all of the tags.
func (q *Query) Picked(j *Job) bool {
	if len(q.Types) > 0 && !slices.Contains(q.Types, j.Spec.Type) {
		return false
	}
	for name, value := range q.Tags {
		if got, ok := j.Metadata.Tags[name]; !ok || got != value {
			return false
		}
	}
	return true
}

// Page is one page of a list.
type Page struct {
	Jobs []Job  // without payload, result and checkpoint
	Next string // cursor of the next page; empty on the last
}

// Count is the number of jobs of a queue in each status.
type Count struct {
	Queue string
	By    [StatusCancelled + 1]int64 // indexed by status
}

// Live returns the number of jobs that have not finished.
func (c Count) Live() (n int64) {
	for s := StatusPending; s < StatusCompleted; s++ {
		n += c.By[s]
	}
	return n
}

// Held returns the number of jobs that workers hold.
func (c Count) Held() int64 { return c.By[StatusClaimed] + c.By[StatusRunning] }

// Add adds the counts of another queue.
func (c *Count) Add(o Count) {
	for s := range c.By {
		c.By[s] += o.By[s]
	}
}

// Stats summarises all queues, workers and the store.
type Stats struct {
	Queues  []Count // sorted by name
	Total   Count
	Workers int    // live workers
	Nodes   []Node // engines that run on the store, sorted by id

	// Zero if the store does not measure them.
	Commits   uint64 // batches written since the store was opened
	Syncs     uint64 // waits for stable storage since then
	DiskBytes uint64 // size on disk; in a database that of the store's tables

	// Space where an embedded store is. DiskReserve is 0 if the store does not measure it.
	DiskFree    uint64 // bytes that are free
	DiskReserve uint64 // bytes that the store keeps free
	DiskRefuses string // what it refuses for lack of space: nothing, [RefusesSubmissions] or [RefusesWrites]

	// Server is nil unless a server answers.
	Server *ServerState

	// Database is nil unless the store is in a database system. It may be some seconds old.
	Database *Database
}

// ServerState is what a server knows about itself.
type ServerState struct {
	Backups    bool      // it has a directory for backups
	LastBackup time.Time // the newest one there; zero if there is none

	CertificateExpires time.Time // of the certificate in use; zero without TLS
	CertificateProblem string    // why the files on disk are not in use
}

// Values of Stats.DiskRefuses.
const (
	RefusesSubmissions = "submissions" // new jobs; those that were accepted run
	RefusesWrites      = "writes"      // claims, outcomes and all other changes too
)

// CancelReport is the result of [Driver.CancelWhere].
type CancelReport struct {
	Cancelled int // ended at once
	Requested int // running; their workers are asked to stop
	Finished  int // ended before they could be cancelled
}

// ReplayReport is the result of one call of [Driver.ReplayWhere].
type ReplayReport struct {
	Jobs     []JobID // the new jobs
	Existing int     // jobs that were replayed before, and are not replayed again
	Refused  int     // jobs that could not be submitted again
	Problem  string  // of the first refused job
	Next     string  // cursor of the next call; empty after the last
}

// CountReport is the result of one call of [Driver.CountWhere].
type CountReport struct {
	Jobs int64  // that this call counted
	Next string // cursor of the next call; empty after the last
}

// Node is an engine that runs on a store: that of a server, or of a program that embeds the queue.
type Node struct {
	ID       string // random
	Host     string
	PID      int
	Version  string // release of this module in the program
	Started  time.Time
	LastSeen time.Time // its last announcement to the others
	Workers  int       // live workers that call it
	Layout   int       // the newest layout of the store's tables that its program knows; 0 if the store has one for itself
}

// MaxListedLeases is the largest number of leases that a [LiveWorker] lists.
const MaxListedLeases = 100

// LiveWorker is a worker that claimed a job or sent a heartbeat in the last minute.
type LiveWorker struct {
	Name     string
	Queues   []string // names and patterns of its last claim
	Types    []string // empty is any
	Offers   []string
	MaxCost  int64 // 0 is any
	Waiting  int   // claims that wait for a job
	Running  int   // jobs it holds
	LastSeen time.Time

	Node    string    // id of the node that it called last
	Version string    // release of its client library; "" if it did not say
	Leases  []LeaseID // of the jobs it holds, at most MaxListedLeases, sorted
}

// Serves reports whether the worker claims jobs of a queue and type.
func (w *LiveWorker) Serves(queue, typ string) bool {
	return slices.ContainsFunc(w.Queues, func(q string) bool { return MatchQueue(q, queue) }) && (len(w.Types) == 0 || slices.Contains(w.Types, typ))
}

// Lacks returns the required capabilities that the worker does not offer.
func (w *LiveWorker) Lacks(requires []string) (missing []string) {
	for _, r := range requires {
		if !slices.Contains(w.Offers, r) {
			missing = append(missing, r)
		}
	}
	return missing
}
