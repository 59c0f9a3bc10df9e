package matching

import (
	"context"
	"encoding/json"
	"net/http"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/internal/httpx"
	"github.com/gopherqueue/gq/internal/matchmaker"
	"github.com/gopherqueue/gq/match"
)

// jobBody is a job: the columns of the specified table, plus further members.
type jobBody struct {
	ID             string          `json:"id"`
	Kind           match.Kind      `json:"kind"`
	Spec           match.Demand    `json:"spec"`
	State          string          `json:"state"`
	PriorityCache  int64           `json:"priority_cache"`
	Score          int64           `json:"score_ppb"`
	EnqueueTS      int64           `json:"enqueue_ts"`
	Attempts       int64           `json:"attempts"`
	TTLAbs         int64           `json:"ttl_abs"`
	ExpiresAt      int64           `json:"expires_at"`
	TTLRelDeadline *int64          `json:"ttl_rel_deadline"`
	RunAt          *int64          `json:"run_at"`
	Requester      string          `json:"requester"`
	SizeBytes      int64           `json:"size_bytes"`
	MaxFee         int64           `json:"max_fee"`
	Tier           string          `json:"tier"`
	Units          int64           `json:"units"`
	Regions        []string        `json:"regions"`
	LastError      *string         `json:"last_error"`
	Message        string          `json:"last_error_message,omitzero"`
	Reason         string          `json:"reason,omitzero"`
	Tombstoned     bool            `json:"tombstoned"`
	LeaseID        gq.LeaseID      `json:"lease_id,omitzero"`
	Digest         string          `json:"output_digest,omitzero"`
	TraceParent    string          `json:"traceparent,omitzero"`
	TraceState     string          `json:"tracestate,omitzero"`
	Payload        json.RawMessage `json:"payload,omitempty"`
}

func jobOf(j *matchmaker.Job) jobBody {
	out := jobBody{
		ID: j.ID, Kind: j.Kind, Spec: j.Spec, State: j.State, PriorityCache: j.PriorityCache, Score: j.Score,
		EnqueueTS: j.EnqueuedAt, Attempts: j.Attempt, TTLAbs: j.TTL, ExpiresAt: j.ExpiresAt, TTLRelDeadline: present(j.RelDeadline),
		RunAt: present(j.RunAt), Requester: j.Requester, SizeBytes: j.SizeBytes, MaxFee: j.MaxFee, Tier: j.Tier, Units: j.Units,
		Regions: some(j.Regions), LastError: present(j.LastError), Message: j.Message, Reason: j.Reason, Tombstoned: j.Tombstoned,
		LeaseID: j.Lease, Digest: j.Digest, TraceParent: j.TraceParent, TraceState: j.TraceState,
	}
	if out.Tier == "" {
		out.Tier = match.FreeTier
	}
	if json.Valid(j.Payload) {
		out.Payload = j.Payload
	}
	return out
}

// present returns nil for a zero value, which is encoded as null.
func present[T comparable](v T) *T {
	var none T
	if v == none {
		return nil
	}
	return &v
}

// submitInput has the key of a submission, which may also be in the body.
type submitInput struct {
	Key string `header:"Idempotency-Key" doc:"Instead of idempotency_key in the body."`
}

func (f *Face) submit(ctx context.Context, in *submitInput, text *httpx.Text) (*httpx.Answer[jobBody], error) {
	set, err := f.dispatch.Settings(ctx)
	if err != nil {
		return nil, err
	}
	e, err := match.DecodeEnqueue(*text, &set)
	if err != nil {
		return nil, err
	}
	if in.Key != "" {
		if e.Key != "" && e.Key != in.Key {
			return nil, invalid("idempotency_key", "is not that of the header Idempotency-Key")
		}
		e.Key = in.Key
	}
	j, err := f.dispatch.Submit(ctx, e)
	if err != nil {
		return nil, err
	}
	answer := httpx.OK(jobOf(&j))
	if j.Existing {
		answer.Status = http.StatusOK
	}
	return answer, nil
}

func (f *Face) job(ctx context.Context, in *idInput, _ *httpx.None) (*httpx.Answer[jobBody], error) {
	id, err := gq.ParseJobID(in.ID)
	if err != nil {
		return nil, err
	}
	j, err := f.dispatch.Job(ctx, id)
	if err != nil {
		return nil, err
	}
	return httpx.OK(jobOf(&j)), nil
}

// LeaseBody is a lease: the specified fields, plus further members.
type LeaseBody struct {
	LeaseID    gq.LeaseID `json:"lease_id"`
	JobID      gq.JobID   `json:"job_id"`
	ProviderID string     `json:"provider_id"`
	Kind       match.Kind `json:"kind"`
	Attempt    int64      `json:"attempt"`
	TStart     int64      `json:"t_start"`
	TDeadline  int64      `json:"t_deadline"`
	RenewBy    int64      `json:"renew_by"`
	AckBy      int64      `json:"ack_by"`
	Acked      bool       `json:"acked"`
	Renewals   int        `json:"renewals"`
	Status     string     `json:"status"`
	Reason     string     `json:"reason,omitzero"`
	EndedAt    *int64     `json:"ended_at"`
}

func leaseOf(l *matchmaker.Lease) LeaseBody {
	secs := func(t time.Time) int64 { return t.Unix() }
	var ended *int64
	if !l.EndedAt.IsZero() {
		ended = present(secs(l.EndedAt))
	}
	return LeaseBody{
		LeaseID: l.ID, JobID: l.Job, ProviderID: l.Provider, Kind: l.Kind, Attempt: l.Attempt, TStart: secs(l.Start),
		TDeadline: secs(l.Deadline), RenewBy: secs(l.RenewBy), AckBy: secs(l.AckBy), Acked: l.Acked, Renewals: l.Renewals,
		Status: l.Status, Reason: l.Reason, EndedAt: ended,
	}
}

func (f *Face) lease(ctx context.Context, in *idInput, _ *httpx.None) (*httpx.Answer[LeaseBody], error) {
	l, err := f.dispatch.Lease(ctx, gq.LeaseID(in.ID))
	return answer(l, err)
}

func answer(l matchmaker.Lease, err error) (*httpx.Answer[LeaseBody], error) {
	if err != nil {
		return nil, err
	}
	return httpx.OK(leaseOf(&l)), nil
}

// Holder names the provider that claims to hold the lease; it is checked if given.
type Holder struct {
	ProviderID string `json:"provider_id,omitzero"`
}

func (h Holder) ref(in *idInput) matchmaker.Ref {
	return matchmaker.Ref{Lease: gq.LeaseID(in.ID), Provider: h.ProviderID}
}

// endRequest gives a job back. The server ignores the reason for declining a job.
type endRequest struct {
	Holder
	Reason string `json:"reason,omitzero"`
}

type completeRequest struct {
	Holder
	Digest string          `json:"output_digest"`
	Meta   json.RawMessage `json:"meta,omitempty"`
	Proof  string          `json:"proof,omitzero"`
}

type proofRequest struct {
	Flaw string `json:"flaw"`
}

func (f *Face) ack(ctx context.Context, in *idInput, body *Holder) (*httpx.Answer[LeaseBody], error) {
	return answer(f.dispatch.Ack(ctx, body.ref(in)))
}

func (f *Face) renew(ctx context.Context, in *idInput, body *Holder) (*httpx.Answer[LeaseBody], error) {
	return answer(f.dispatch.Renew(ctx, body.ref(in)))
}

func (f *Face) decline(ctx context.Context, in *idInput, body *endRequest) (*httpx.Answer[LeaseBody], error) {
	return answer(f.dispatch.Decline(ctx, body.ref(in)))
}

func (f *Face) fail(ctx context.Context, in *idInput, body *endRequest) (*httpx.Answer[LeaseBody], error) {
	return answer(f.dispatch.Fail(ctx, body.ref(in), body.Reason))
}

func (f *Face) complete(ctx context.Context, in *idInput, body *completeRequest) (*httpx.Answer[LeaseBody], error) {
	return answer(f.dispatch.Complete(ctx, body.ref(in), match.Completion{Digest: body.Digest, Meta: body.Meta, Proof: body.Proof}))
}

func (f *Face) proof(ctx context.Context, in *idInput, body *proofRequest) (*httpx.Answer[LeaseBody], error) {
	if body.Flaw == "" {
		return nil, &gq.InvalidError{Faults: []gq.Fault{{Field: "flaw", Problem: "is missing: say why the proof does not hold"}}}
	}
	id := gq.LeaseID(in.ID)
	if err := f.dispatch.ReportProof(ctx, id, body.Flaw); err != nil {
		return nil, err
	}
	return answer(f.dispatch.Lease(ctx, id))
}
