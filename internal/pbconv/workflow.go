package pbconv

import (
	"fmt"

	"github.com/gopherqueue/gq"
	pb "github.com/gopherqueue/gq/api/gopherqueue/v1"
	"github.com/gopherqueue/gq/internal/errs"
)

func protoWorkflow(id gq.WorkflowID) string { return protoID(gq.JobID(id)) }

// workflow decodes the id of a workflow, which may be empty.
func (r *protoReader) workflow(at, field, text string) (id gq.WorkflowID) {
	for _, f := range errs.FaultsOf(id.UnmarshalText([]byte(text))) {
		r.fault(at, field, "%s", f.Problem)
	}
	return id
}

// WorkflowIDFromProto decodes the id of a workflow.
func WorkflowIDFromProto(text string) (gq.WorkflowID, error) {
	var r protoReader
	id := r.workflow("", "id", text)
	if id.IsZero() && len(r.faults) == 0 {
		r.fault("", "id", "is missing")
	}
	return id, r.err()
}

func protoInputs(inputs []gq.Input) (out []*pb.Input) {
	for i := range inputs {
		in := &inputs[i]
		out = append(out, &pb.Input{Ref: in.Ref, JobId: protoID(in.Job), Status: pb.Status(in.Status), Result: in.Result, Omitted: in.Omitted})
	}
	return out
}

func (r *protoReader) inputs(at string, all []*pb.Input) (out []gq.Input) {
	for i, m := range all {
		at := fmt.Sprintf("%sinputs[%d].", at, i)
		out = append(out, gq.Input{
			Ref: m.GetRef(), Job: r.id(at, "job_id", m.GetJobId()), Status: readEnum(r, at, "status", m.GetStatus(), gq.StatusCancelled),
			Result: m.GetResult(), Omitted: m.GetOmitted(),
		})
	}
	return out
}

// ProtoDrafts encodes the jobs of a flow.
func ProtoDrafts(f *gq.Flow) []*pb.Draft {
	out := make([]*pb.Draft, len(f.Jobs))
	for i := range f.Jobs {
		out[i] = ProtoDraft(&f.Jobs[i])
	}
	return out
}

// Flow decodes a workflow to be submitted.
func (b Bases) Flow(id, name string, drafts []*pb.Draft) (*gq.Flow, error) {
	var r protoReader
	f := &gq.Flow{ID: r.workflow("", "id", id), Name: name, Jobs: make([]gq.GraphJob, len(drafts))}
	for i, m := range drafts {
		var err error
		f.Jobs[i], err = b.Draft(m)
		if err != nil && errs.KindOf(err) != gq.KindInvalid {
			return nil, err
		}
		r.nested(fmt.Sprintf("jobs[%d].", i), err)
	}
	return f, r.err()
}

// ProtoWorkflow encodes a workflow.
func ProtoWorkflow(w *gq.Workflow) *pb.Workflow {
	out := &pb.Workflow{Id: protoWorkflow(w.ID), Name: w.Name, CreatedAt: protoTime(w.Created), Status: pb.WorkflowStatus(w.Status), Outcome: pb.WorkflowStatus(w.Outcome), Jobs: make([]*pb.WorkflowJob, len(w.Jobs))}
	for i := range w.Jobs {
		j := &w.Jobs[i]
		out.Jobs[i] = &pb.WorkflowJob{Ref: j.Ref, Final: pb.Final(j.Final), Id: protoID(j.ID)}
		if !j.Job.State.ID.IsZero() {
			out.Jobs[i].Job = ProtoJob(&j.Job)
		}
	}
	return out
}

// WorkflowFromProto decodes a workflow.
func WorkflowFromProto(m *pb.Workflow) (gq.Workflow, error) {
	var r protoReader
	w := gq.Workflow{
		ID: r.workflow("", "id", m.GetId()), Name: m.GetName(), Created: r.time("", "created_at", m.GetCreatedAt()),
		Status: readEnum(&r, "", "status", m.GetStatus(), gq.WorkflowCancelled), Outcome: readEnum(&r, "", "outcome", m.GetOutcome(), gq.WorkflowCancelled), Jobs: make([]gq.WorkflowJob, len(m.GetJobs())),
	}
	for i, j := range m.GetJobs() {
		at := fmt.Sprintf("jobs[%d].", i)
		w.Jobs[i] = gq.WorkflowJob{Ref: j.GetRef(), Final: readEnum(&r, at, "final", j.GetFinal(), gq.OnFailure), ID: r.id(at, "id", j.GetId())}
		if j.GetJob() != nil {
			w.Jobs[i].Job = r.jobOf(at+"job.", j.GetJob())
		}
	}
	return w, r.err()
}

// ProtoWorkflowQuery encodes a query.
func ProtoWorkflowQuery(q *gq.WorkflowQuery) *pb.ListWorkflowsRequest {
	m := &pb.ListWorkflowsRequest{Cursor: q.Cursor, Limit: int64(q.Limit)}
	for _, s := range q.Statuses {
		m.Statuses = append(m.Statuses, pb.WorkflowStatus(s))
	}
	return m
}

// WorkflowQueryFromProto decodes a query.
func WorkflowQueryFromProto(m *pb.ListWorkflowsRequest) (gq.WorkflowQuery, error) {
	var r protoReader
	q := gq.WorkflowQuery{Cursor: m.GetCursor(), Limit: r.int("", "limit", m.GetLimit())}
	for i, s := range m.GetStatuses() {
		q.Statuses = append(q.Statuses, readEnum(&r, "", fmt.Sprintf("statuses[%d]", i), s, gq.WorkflowCancelled))
	}
	return q, r.err()
}
