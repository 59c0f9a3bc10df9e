package pbconv

import (
	"github.com/gopherqueue/gq"
	pb "github.com/gopherqueue/gq/api/gopherqueue/v1"
)

// ProtoFiring encodes the result of a trigger.
func ProtoFiring(f *gq.Firing) *pb.TriggerScheduleResponse {
	return &pb.TriggerScheduleResponse{Slot: protoTime(f.Slot), JobId: protoID(f.Job), Existing: f.Existing}
}

// FiringFromProto decodes the result of a trigger.
func FiringFromProto(m *pb.TriggerScheduleResponse) (gq.Firing, error) {
	var r protoReader
	f := gq.Firing{Slot: r.time("", "slot", m.GetSlot()), Job: r.id("", "job_id", m.GetJobId()), Existing: m.GetExisting()}
	return f, r.err()
}

// ProtoBackfill encodes a backfill.
func ProtoBackfill(b *gq.Backfill) *pb.BackfillScheduleRequest {
	return &pb.BackfillScheduleRequest{Name: b.Schedule, From: protoTime(b.From), To: protoTime(b.To), Limit: int64(b.Limit), DryRun: b.DryRun}
}

// BackfillFromProto decodes a backfill.
func BackfillFromProto(m *pb.BackfillScheduleRequest) (gq.Backfill, error) {
	var r protoReader
	b := gq.Backfill{
		Schedule: m.GetName(), From: r.time("", "from", m.GetFrom()), To: r.time("", "to", m.GetTo()),
		Limit: r.int("", "limit", m.GetLimit()), DryRun: m.GetDryRun(),
	}
	return b, r.err()
}

// ProtoBackfillReport encodes the result of a backfill.
func ProtoBackfillReport(b *gq.BackfillReport) *pb.BackfillScheduleResponse {
	return &pb.BackfillScheduleResponse{Slots: int64(b.Slots), Missing: int64(b.Missing), Submitted: int64(b.Submitted), Next: protoTime(b.Next)}
}

// BackfillReportFromProto decodes the result of a backfill.
func BackfillReportFromProto(m *pb.BackfillScheduleResponse) (gq.BackfillReport, error) {
	var r protoReader
	b := gq.BackfillReport{
		Slots: r.int("", "slots", m.GetSlots()), Missing: r.int("", "missing", m.GetMissing()),
		Submitted: r.int("", "submitted", m.GetSubmitted()), Next: r.time("", "next", m.GetNext()),
	}
	return b, r.err()
}
