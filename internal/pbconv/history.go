package pbconv

import (
	"fmt"

	"github.com/gopherqueue/gq"
	pb "github.com/gopherqueue/gq/api/gopherqueue/v1"
)

// ProtoHistoryQuery encodes a query.
func ProtoHistoryQuery(q *gq.HistoryQuery) *pb.QueueHistoryRequest {
	return &pb.QueueHistoryRequest{Queues: q.Queues, Since: protoTime(q.Since), Until: protoTime(q.Until), Step: protoDuration(q.Step)}
}

// HistoryQueryFromProto decodes a query.
func HistoryQueryFromProto(m *pb.QueueHistoryRequest) (gq.HistoryQuery, error) {
	var r protoReader
	q := gq.HistoryQuery{
		Queues: m.GetQueues(), Since: r.time("", "since", m.GetSince()), Until: r.time("", "until", m.GetUntil()),
		Step: r.duration("", "step", m.GetStep()),
	}
	return q, r.err()
}

// ProtoHistory encodes points.
func ProtoHistory(points []gq.HistoryPoint) *pb.QueueHistoryResponse {
	out := &pb.QueueHistoryResponse{Points: make([]*pb.HistoryPoint, len(points))}
	for i := range points {
		out.Points[i] = protoHistoryPoint(&points[i])
	}
	return out
}

// HistoryFromProto decodes points.
func HistoryFromProto(m *pb.QueueHistoryResponse) ([]gq.HistoryPoint, error) {
	var r protoReader
	points := make([]gq.HistoryPoint, len(m.GetPoints()))
	for i, p := range m.GetPoints() {
		points[i] = r.historyPoint(fmt.Sprintf("points[%d].", i), p)
	}
	return points, r.err()
}

// ProtoActivity encodes the activity of queues.
func ProtoActivity(list []gq.QueueActivity) *pb.QueueActivityResponse {
	out := &pb.QueueActivityResponse{Queues: make([]*pb.QueueActivity, len(list))}
	for i := range list {
		out.Queues[i] = &pb.QueueActivity{Queue: list[i].Queue, Total: protoHistoryPoint(&list[i].HistoryPoint)}
	}
	return out
}

// ActivityFromProto decodes the activity of queues.
func ActivityFromProto(m *pb.QueueActivityResponse) ([]gq.QueueActivity, error) {
	var r protoReader
	list := make([]gq.QueueActivity, len(m.GetQueues()))
	for i, q := range m.GetQueues() {
		list[i] = gq.QueueActivity{Queue: q.GetQueue(), HistoryPoint: r.historyPoint(fmt.Sprintf("queues[%d].total.", i), q.GetTotal())}
	}
	return list, r.err()
}

func protoHistoryPoint(p *gq.HistoryPoint) *pb.HistoryPoint {
	return &pb.HistoryPoint{
		Time: protoTime(p.Time), Submitted: p.Submitted, Started: p.Started, Completed: p.Completed, Failed: p.Failed,
		Retried: p.Retried, DeadLettered: p.DeadLettered, Cancelled: p.Cancelled, Lost: p.Lost,
		Wait: protoLatency(p.Wait), Run: protoLatency(p.Run),
	}
}

func (r *protoReader) historyPoint(at string, m *pb.HistoryPoint) gq.HistoryPoint {
	return gq.HistoryPoint{
		Time: r.time(at, "time", m.GetTime()), Submitted: m.GetSubmitted(), Started: m.GetStarted(), Completed: m.GetCompleted(),
		Failed: m.GetFailed(), Retried: m.GetRetried(), DeadLettered: m.GetDeadLettered(), Cancelled: m.GetCancelled(), Lost: m.GetLost(),
		Wait: r.latency(at+"wait.", m.GetWait()), Run: r.latency(at+"run.", m.GetRun()),
	}
}

func protoLatency(l gq.Latency) *pb.Latency {
	if l == (gq.Latency{}) {
		return nil
	}
	return &pb.Latency{Count: l.Count, P50: protoDuration(l.P50), P90: protoDuration(l.P90), P99: protoDuration(l.P99)}
}

func (r *protoReader) latency(at string, m *pb.Latency) gq.Latency {
	return gq.Latency{
		Count: m.GetCount(), P50: r.duration(at, "p50", m.GetP50()), P90: r.duration(at, "p90", m.GetP90()), P99: r.duration(at, "p99", m.GetP99()),
	}
}
