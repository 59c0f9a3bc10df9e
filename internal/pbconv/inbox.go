package pbconv

import (
	"fmt"

	"github.com/gopherqueue/gq"
	pb "github.com/gopherqueue/gq/api/gopherqueue/v1"
)

// ProtoInbox converts a page of the inbox.
func ProtoInbox(in *gq.Inbox) *pb.ReadInboxResponse {
	out := &pb.ReadInboxResponse{
		Waiting: in.Waiting, Oldest: protoTime(in.Oldest), Refused: in.Refused, NextCursor: in.Next,
		Submissions: make([]*pb.RefusedSubmission, len(in.Submissions)),
	}
	for i, s := range in.Submissions {
		out.Submissions[i] = &pb.RefusedSubmission{
			JobId: s.Job.String(), Jobs: int64(s.Jobs), Queue: s.Queue, Type: s.Type, Problem: s.Problem,
			WrittenAt: protoTime(s.WrittenAt), RefusedAt: protoTime(s.RefusedAt),
		}
	}
	return out
}

// InboxFromProto converts a page of the inbox.
func InboxFromProto(m *pb.ReadInboxResponse) (gq.Inbox, error) {
	var r protoReader
	out := gq.Inbox{Waiting: m.GetWaiting(), Oldest: r.time("", "oldest", m.GetOldest()), Refused: m.GetRefused(), Next: m.GetNextCursor()}
	for i, s := range m.GetSubmissions() {
		at := fmt.Sprintf("submissions[%d].", i)
		id, err := JobIDFromProto(s.GetJobId())
		if err != nil {
			return out, err
		}
		out.Submissions = append(out.Submissions, gq.RefusedSubmission{
			Job: id, Jobs: int(s.GetJobs()), Queue: s.GetQueue(), Type: s.GetType(), Problem: s.GetProblem(),
			WrittenAt: r.time(at, "written_at", s.GetWrittenAt()), RefusedAt: r.time(at, "refused_at", s.GetRefusedAt()),
		})
	}
	return out, r.err()
}

// RefusedSelectionFromProto converts the fields of a request that selects refused submissions.
func RefusedSelectionFromProto(ids []string, all bool) (gq.RefusedSelection, error) {
	out := gq.RefusedSelection{All: all}
	for i, text := range ids {
		id, err := JobIDFromProto(text)
		if err != nil {
			var r protoReader
			r.fault("", fmt.Sprintf("job_ids[%d]", i), "%.64q is not the id of a job", text)
			return out, r.err()
		}
		out.Jobs = append(out.Jobs, id)
	}
	return out, nil
}

// ProtoJobIDs writes ids.
func ProtoJobIDs(ids []gq.JobID) []string {
	out := make([]string, len(ids))
	for i, id := range ids {
		out[i] = id.String()
	}
	return out
}
