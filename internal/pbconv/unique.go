package pbconv

import (
	"github.com/gopherqueue/gq"
	pb "github.com/gopherqueue/gq/api/gopherqueue/v1"
)

func protoUnique(u *gq.UniqueRule) *pb.UniqueRule {
	if u.IsZero() {
		return nil
	}
	return &pb.UniqueRule{While: pb.While(u.While), OnCollision: pb.OnCollision(u.OnCollision), Period: protoDuration(u.Period), Fields: u.Fields}
}

func (r *protoReader) unique(at string, m *pb.UniqueRule) gq.UniqueRule {
	if m == nil {
		return gq.UniqueRule{}
	}
	return gq.UniqueRule{
		While:       readEnum(r, at, "while", m.GetWhile(), gq.ForPeriod),
		OnCollision: readEnum(r, at, "on_collision", m.GetOnCollision(), gq.Throttled),
		Period:      r.duration(at, "period", m.GetPeriod()),
		Fields:      m.GetFields(),
	}
}

// uniqueCause returns the error of a submission whose key another job holds. Its text is that
// of the message.
func uniqueCause(p *pb.Problem) error {
	var r protoReader
	e := &gq.UniqueError{Job: r.id("", "job_id", p.GetJobId()), Status: readEnum(&r, "", "job_status", p.GetJobStatus(), gq.StatusCancelled)}
	if e.Job.IsZero() || r.err() != nil {
		return gq.ErrNotUnique
	}
	return e
}
