package gq

import "time"

// Inbox describes the submissions that are not jobs yet, or never will be: those that an
// application wrote to the queue's database in a transaction that cannot decide about them, as
// client.In does for a *sql.Tx and the SQL function submit does. Only queues on PostgreSQL have
// any.
type Inbox struct {
	Waiting int64     // committed, and not taken in yet
	Oldest  time.Time // when the oldest of these was written; zero if there is none
	Refused int64     // kept until somebody retries or discards them

	Submissions []RefusedSubmission // a page of the refused ones, oldest first
	Next        string              // cursor of the next page; empty on the last
}

// RefusedSubmission is a submission that the queue has refused after the transaction that wrote
// it had committed.
type RefusedSubmission struct {
	Job       JobID // the id that the submitter knows; of a graph that of its first job
	Jobs      int
	Queue     string // of the first job, as far as it can be read
	Type      string
	Problem   string
	WrittenAt time.Time
	RefusedAt time.Time
}

// RefusedSelection selects refused submissions.
type RefusedSelection struct {
	Jobs []JobID // those with any of these ids
	All  bool    // all of them; Jobs must be empty then
}
