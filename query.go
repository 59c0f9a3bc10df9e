package gq

import (
	"slices"
	"time"
)

// Parts says which large parts of a job to read along.
type Parts uint8

// The parts.
const (
	WithPayload Parts = 1 << iota
	WithResult
	WithCheckpoint
)

// Query selects jobs for a list. The zero value is everything, newest first.
type Query struct {
	Queue         string    // "" is any
	Statuses      []Status  // none is any; as recorded, or as time has made them
	CreatedAfter  time.Time // inclusive; zero is the beginning
	CreatedBefore time.Time // exclusive; zero is the end

	// No store has an order by these: see [Query.Picks].
	Types []string          // none is any
	Tags  map[string]string // that a job must have, all of them

	OldestFirst bool
	Cursor      string // Next of the page before
	Limit       int    // jobs on the page; 0 is 50, the most is 1000
}

// Picks reports whether jobs must be read to know if they are meant, because the
// query names types or tags. Then a page may have fewer jobs than its limit, or
// none, and still not be the last: as many are read for it as is decent, and the
// next page goes on from there.
func (q *Query) Picks() bool { return len(q.Types) > 0 || len(q.Tags) > 0 }

// Picked reports whether a job has one of the types and all the tags.
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
	Next string // the cursor of the next page, "" on the last
}

// Count is how many jobs of a queue stand in each status.
type Count struct {
	Queue string
	By    [StatusCancelled + 1]int64 // indexed by status
}

// Live is the number of jobs that have not finished.
func (c Count) Live() (n int64) {
	for s := StatusPending; s < StatusCompleted; s++ {
		n += c.By[s]
	}
	return n
}

// Held is the number of jobs that workers have.
func (c Count) Held() int64 { return c.By[StatusClaimed] + c.By[StatusRunning] }

// Add adds another queue's numbers.
func (c *Count) Add(o Count) {
	for s := range c.By {
		c.By[s] += o.By[s]
	}
}

// Stats is how an installation stands.
type Stats struct {
	Queues  []Count // by name
	Total   Count
	Workers int // live ones, as seen by the answering process

	Commits   uint64 // batches the store has written since it was opened; 0 where it does not tell
	Syncs     uint64 // times it waited for stable storage
	DiskBytes uint64 // its size on disk
}

// CancelReport is what became of many jobs that were to be cancelled.
type CancelReport struct {
	Cancelled int // ended at once
	Requested int // running; their workers are asked to stop
	Finished  int // had ended by themselves in the meantime
}

// LiveWorker is a worker that has shown itself within the last minute.
type LiveWorker struct {
	Name     string
	Queues   []string // that it last claimed from
	Types    []string // none is any
	Offers   []string
	MaxCost  int64 // 0 is any
	Waiting  int   // claims that wait for a job
	Running  int   // jobs it holds
	LastSeen time.Time
}

// Serves reports whether the worker asks for jobs of a queue and type.
func (w *LiveWorker) Serves(queue, typ string) bool {
	return slices.Contains(w.Queues, queue) && (len(w.Types) == 0 || slices.Contains(w.Types, typ))
}

// Lacks lists what a job requires and the worker does not offer.
func (w *LiveWorker) Lacks(requires []string) (missing []string) {
	for _, r := range requires {
		if !slices.Contains(w.Offers, r) {
			missing = append(missing, r)
		}
	}
	return missing
}
