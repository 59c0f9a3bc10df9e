package wire

import (
	"time"

	"github.com/gopherqueue/gq"
)

// Inbox is the submissions that are not jobs.
type Inbox struct {
	Waiting     int64               `json:"waiting" doc:"Committed, and not taken in yet."`
	Oldest      time.Time           `json:"oldest,omitzero" doc:"When the oldest of these was written."`
	Refused     int64               `json:"refused"`
	Submissions []RefusedSubmission `json:"submissions" doc:"Refused ones, oldest first."`
	NextCursor  string              `json:"next_cursor,omitzero" doc:"For the next page; absent on the last."`
}

// RefusedSubmission is a submission that was refused after its transaction had committed.
type RefusedSubmission struct {
	JobID     gq.JobID  `json:"job_id" doc:"That the submitter knows; of a graph that of its first job."`
	Jobs      int       `json:"jobs"`
	Queue     string    `json:"queue,omitzero" doc:"Of the first job, as far as it can be read."`
	Type      string    `json:"type,omitzero"`
	Problem   string    `json:"problem"`
	WrittenAt time.Time `json:"written_at"`
	RefusedAt time.Time `json:"refused_at"`
}

// InboxOf converts a page of the inbox.
func InboxOf(in *gq.Inbox) Inbox {
	out := Inbox{Waiting: in.Waiting, Oldest: utc(in.Oldest), Refused: in.Refused, NextCursor: in.Next, Submissions: make([]RefusedSubmission, len(in.Submissions))}
	for i, s := range in.Submissions {
		out.Submissions[i] = RefusedSubmission{
			JobID: s.Job, Jobs: s.Jobs, Queue: s.Queue, Type: s.Type, Problem: s.Problem, WrittenAt: utc(s.WrittenAt), RefusedAt: utc(s.RefusedAt),
		}
	}
	return out
}

// RefusedSelection selects refused submissions.
type RefusedSelection struct {
	JobIDs []gq.JobID `json:"job_ids,omitempty" doc:"The submissions with these ids."`
	All    bool       `json:"all,omitzero" doc:"Instead: all of them."`
}

// Domain converts a selection.
func (s RefusedSelection) Domain() gq.RefusedSelection {
	return gq.RefusedSelection{Jobs: s.JobIDs, All: s.All}
}

// RefusedCount is how many refused submissions a call has changed.
type RefusedCount struct {
	Submissions int `json:"submissions"`
}
