package pbconv

import (
	"github.com/gopherqueue/gq"
	pb "github.com/gopherqueue/gq/api/gopherqueue/v1"
)

// ProtoEdit encodes the edit of a job.
func ProtoEdit(id gq.JobID, e gq.JobEdit) *pb.EditRequest {
	out := &pb.EditRequest{Id: id.String(), Queue: e.Queue, RunAt: protoTime(e.RunAt)}
	if e.Payload != nil {
		out.Payload, out.ContentType = append([]byte{}, e.Payload.Data...), e.Payload.ContentType
	}
	return out
}

// EditFromProto decodes the edit of a job.
func EditFromProto(m *pb.EditRequest) (gq.JobID, gq.JobEdit, error) {
	var r protoReader
	id := r.job("", "id", m.GetId())
	e := gq.JobEdit{Queue: m.GetQueue(), RunAt: r.time("", "run_at", m.GetRunAt())}
	switch {
	case m.Payload != nil:
		e.Payload = &gq.Payload{Data: m.GetPayload(), ContentType: m.GetContentType()}
	case m.GetContentType() != "":
		r.fault("", "content_type", "needs a payload")
	}
	return id, e, r.err()
}
