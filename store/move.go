package store

import (
	"bytes"
	"context"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/store/codec"
)

// Exporter is an optional capability: everything in a store, as it stands at one
// moment, for a backup or for another store.
type Exporter interface {
	// Export begins to read at this moment. What happens to the store later is
	// not part of it. Reading changes nothing that a caller of the store could
	// see.
	Export(ctx context.Context) (Export, error)
}

// Export is one reading of a whole store. It is used by one goroutine.
type Export interface {
	Head() Head

	// Read reads on from a cursor: "" is the beginning, others are what Read
	// has returned, also in a reading of the same moment by another process.
	// There are about limit items, fewer where they are large, and perhaps none.
	// After the last item next is "". Kinds come in the order of the fields of
	// [Items], and the items of a kind in an order of their own.
	Read(ctx context.Context, cursor string, limit int) (items Items, next string, err error)

	Close() error
}

// Importer is an optional capability: a store that can be filled with all that
// another one had.
type Importer interface {
	// Import begins to fill an empty store, or goes on where an import of the
	// same origin was broken off. Until [Import.Finish] the store is unfinished:
	// it can only be opened with [Config.Unfinished], and nothing but Import,
	// Export and Close may be called.
	//
	// Errors: [gq.ErrNotEmpty] where the store holds something else, and
	// [gq.ErrUnfinished] where it holds a part of another origin. Neither changes
	// anything.
	Import(ctx context.Context, h Head) (Import, error)
}

// Import is a store that is being filled. It is used by one goroutine.
type Import interface {
	// Mark is what was written with the newest items, nil before there are any.
	Mark() []byte

	// Write adds items, in the order in which they were read, and a mark by
	// which their reader knows how far it had got, all or none.
	Write(ctx context.Context, items Items, mark []byte) error

	// Finish makes it a store like any other.
	Finish(ctx context.Context) error
}

// Head tells what an export is of, and the numbers that go on from there.
type Head struct {
	Origin [32]byte // of this moment of this store; another one after any change

	LastJob   uint64    // the newest sequence number of a job
	LastEvent uint64    // the newest number of an event
	Gone      uint64    // not all events up to this one are there: those of jobs that are kept
	LastDoc   uint64    // the newest version of a document
	Time      time.Time // an instant that the store's time has reached

	Jobs int64 // how many there are, roughly
}

// Items are a part of a store. Numbers of jobs and of events, versions and
// instants are those that the store has given; jobs are as they were recorded
// ([gq.State.At] has not been asked).
type Items struct {
	Pools  []gq.Pool // without what is in use, which follows from the jobs
	Queues []QueueItem
	Keys   []gq.QueueKey // limit keys with limits of their own, without FreeAt
	Owed   []OwedItem
	Docs   []Doc
	Events []gq.Event // of jobs that are kept
	Jobs   []JobItem
	Leases []LeaseItem
	Edges  []EdgeItem
	Ended  []EndedItem
}

// QueueItem is a queue, and what its rate and its turns have got to.
type QueueItem struct {
	gq.Queue
	Due   time.Time               // when the next claim is due under the rate; zero for none
	Turns [gq.PriorityBulk]uint64 // being served in a fair queue, from the most urgent level on
}

// OwedItem is what a limit key owes of its rate.
type OwedItem struct {
	Queue, Key string
	Due        time.Time // until when it owes something
}

// JobItem is a job with all its parts.
type JobItem struct {
	gq.Job
	KeyUntil time.Time // when its idempotency key becomes free; zero where it has none, or not any more
}

// LeaseItem finds the job of a lease whose id does not tell it.
type LeaseItem struct {
	Lease gq.LeaseID
	Job   uint64 // sequence number
}

// EdgeItem is a job that waits for another, by sequence numbers.
type EdgeItem struct {
	Parent, Child uint64
	Kind          gq.DependencyKind
}

// EndedItem is a job that has ended, and some that wait for it have not been
// told.
type EndedItem struct {
	Parent uint64
	Status gq.Status
	Level  gq.Priority // effective
}

// Len is the number of items.
func (i *Items) Len() int {
	return len(i.Pools) + len(i.Queues) + len(i.Keys) + len(i.Owed) + len(i.Docs) + len(i.Events) + len(i.Jobs) + len(i.Leases) + len(i.Edges) + len(i.Ended)
}

// ItemBytes is about how much one [Export.Read] returns where items are large.
const ItemBytes = 8 << 20

// ChangedMetadata is the job's metadata in the form of package gq, where it is
// not what the job was submitted with.
func (j *JobItem) ChangedMetadata() (encoded []byte, changed bool) {
	encoded, _ = codec.AppendMetadata(j.Metadata, nil)     // never fails
	first, _ := codec.AppendMetadata(j.Spec.Metadata, nil) // never fails
	return encoded, !bytes.Equal(encoded, first)
}

// maxRun is the most events that are kept as one record: whoever reads one event
// reads the record.
const maxRun = 256

// EventRun is how many events a store may keep as one record, counted from the
// first: they have one time and consecutive numbers.
func EventRun(events []gq.Event) int {
	n := 1
	for n < len(events) && n < maxRun && events[n].Seq == events[0].Seq+uint64(n) && events[n].Time.Equal(events[0].Time) {
		n++
	}
	return n
}
