package store

import (
	"context"
	"fmt"

	"github.com/gopherqueue/gq"
)

// ErrInboxWaiting is the error of Export while submissions wait in the inbox: they would be missing
// in the export.
var ErrInboxWaiting = fmt.Errorf("submissions wait in the inbox: %w", gq.ErrInUse)

// Inbox is an optional capability: submissions that an application wrote as plain rows,
// in a transaction of its own, and that an engine takes in after the commit. [News.Inbox]
// says that there are some.
type Inbox interface {
	// TakeIn inserts the jobs of up to limit waiting submissions, oldest first. Each
	// leaves the inbox in the commit that inserts its jobs. Submissions that another
	// call is taking in are left to that call. If ids are given, TakeIn takes in the
	// submissions with any of these ids instead, and waits for other calls that have
	// them.
	//
	// read turns a submission into the group to insert; it may be called more than once
	// for each. The group keeps the ids of the submission; one without jobs ends the
	// submission. If read fails with [gq.KindInvalid], or the group cannot be inserted, or its only job has a key that
	// belongs to another job with other content, then the submission is refused: it is
	// kept, with the error. Any other error of read ends the call, and nothing changes.
	//
	// The documents of a submission are written in the commit that inserts its jobs. If
	// one of them exists already, TakeIn calls read again, with Exists set.
	TakeIn(ctx context.Context, ids []gq.JobID, limit int, read func(ctx context.Context, s *Submission) (Group, error)) (TakenIn, error)

	// Whereabouts tells what has become of the submission of an id that no job has.
	// The error is [gq.ErrNotFound] if there is no such submission.
	Whereabouts(ctx context.Context, id gq.JobID) (Whereabouts, error)

	// Refused counts submissions and lists up to limit of the refused ones, from a
	// cursor of it on; 0 is the first page.
	Refused(ctx context.Context, after uint64, limit int) (gq.Inbox, error)
	// RetryRefused makes refused submissions wait again, DiscardRefused deletes them.
	// Both return how many there were. The engine checks the selection.
	RetryRefused(ctx context.Context, which gq.RefusedSelection) (int, error)
	DiscardRefused(ctx context.Context, which gq.RefusedSelection) (int, error)
}

// Submission is one entry of an [Inbox].
type Submission struct {
	IDs     []gq.JobID // of its jobs, as their submitter knows them; last the id of their workflow, if they have one
	Jobs    []gq.Spec  // with all defaults, if a Go program wrote them
	Request []byte     // otherwise: one job in the JSON form of the HTTP API
	Docs    []Doc      // new documents that belong to the jobs, such as the record of their workflow
	Exists  bool       // a document with the name of one of Docs exists
}

// TakenIn counts the submissions that a call of TakeIn has removed from the inbox.
type TakenIn struct {
	Taken   int // all of them
	Refused int // of these
}

// Whereabouts is what has become of a submission.
type Whereabouts struct {
	Waiting bool     // it waits, or is being taken in
	Problem string   // why it was refused
	Job     gq.JobID // otherwise: the job that it has become, or the older one that has its key
}
