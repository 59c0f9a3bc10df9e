package matchmaker

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/internal/errs"
	"github.com/gopherqueue/gq/internal/matchmaker/backlog"
	"github.com/gopherqueue/gq/internal/projection"
	"github.com/gopherqueue/gq/machine"
	"github.com/gopherqueue/gq/match"
	"github.com/gopherqueue/gq/store"
)

// pieceBytes is the size of the pieces into which attributesOf splits a job's demands
// beyond the fields of a spec, so that each fits into an attribute.
const pieceBytes = 900

// asks has a job's demands beyond the fields of a spec.
type asks struct {
	Spec      match.Demand `json:"spec,omitzero"`
	Regions   []string     `json:"regions,omitempty"`
	SizeBytes int64        `json:"size_bytes,omitzero"`
}

// attributesOf splits a job's demands into attributes.
func attributesOf(a asks) (map[string]string, error) {
	text, err := json.Marshal(a)
	if err != nil {
		return nil, err
	}
	pieces := make(map[string]string)
	for n := 0; len(text) > 0; n++ {
		end := min(pieceBytes, len(text))
		for end < len(text) && !utf8.RuneStart(text[end]) {
			end--
		}
		pieces[projection.MatchingAttribute(n)] = string(text[:end])
		text = text[end:]
	}
	if len(pieces) > gq.MaxAttributes {
		return nil, &gq.InvalidError{Faults: []gq.Fault{{Field: "spec", Problem: fmt.Sprintf("is larger than %d bytes", gq.MaxAttributes*pieceBytes)}}}
	}
	return pieces, nil
}

// reader decodes and caches jobs' demands, since most jobs have the same. The nil reader
// caches nothing.
type reader struct {
	known map[string]asks // by the text before the size
	texts map[string]string
}

// maxRemembered is how many entries a reader caches before it drops them all.
const maxRemembered = 1 << 16

func newReader() *reader { return &reader{map[string]asks{}, map[string]string{}} }

// asks decodes a job's demands. attributesOf writes the size last because it differs from
// job to job.
func (r *reader) asks(text []byte) (a asks, err error) {
	head, closed := bytes.CutSuffix(text, []byte("}"))
	size := int64(0)
	if before, after, ok := bytes.Cut(head, []byte(`"size_bytes":`)); ok {
		head = before
		size, err = strconv.ParseInt(string(after), 10, 64)
	}
	if r == nil || !closed || err != nil {
		err = json.Unmarshal(text, &a)
		return a, err
	}
	a, known := r.known[string(head)]
	if !known {
		if err := json.Unmarshal(text, &a); err != nil {
			return a, err
		}
		if len(r.known) >= maxRemembered {
			clear(r.known)
		}
		r.known[string(head)] = a
	}
	a.SizeBytes = size
	return a, nil
}

// text interns a string.
func (r *reader) text(s string) string {
	if r == nil {
		return s
	}
	kept, known := r.texts[s]
	if !known {
		if len(r.texts) >= maxRemembered {
			clear(r.texts)
		}
		kept = strings.Clone(s)
		r.texts[kept] = kept
	}
	return kept
}

// matchJob converts a job to a round's input, or returns an error if no round can take
// it.
func matchJob(j *gq.Job, r *reader) (match.Job, error) {
	kind, err := match.ParseKind(j.Spec.Type)
	if err != nil {
		return match.Job{}, err
	}
	a, err := r.asks(projection.MatchingText(j.Spec.Attributes))
	if err != nil {
		return match.Job{}, fmt.Errorf("what job %s asks for: %w: %w", j.State.ID, gq.ErrInvalid, err)
	}
	m := match.Job{
		ID: j.State.ID.String(), Kind: kind, Spec: a.Spec, Requester: r.text(j.Spec.Requester), Tier: r.text(j.Spec.Tier),
		MaxFee: j.Spec.MaxFee, EnqueuedAt: j.State.CreatedAt.Unix(), SizeBytes: a.SizeBytes, Units: j.Spec.CostUnits,
		Attempt: int64(j.State.Faults), Regions: a.Regions,
	}
	if err := m.Validate(); err != nil { // it may have been submitted through another API
		return match.Job{}, fmt.Errorf("what job %s asks for: %w", j.State.ID, err)
	}
	return m, nil
}

func waitingOf(j *gq.Job, r *reader) (*backlog.Job, error) {
	m, err := matchJob(j, r)
	if err != nil {
		return nil, err
	}
	return &backlog.Job{Job: m, JobID: j.State.ID, RunAt: j.State.RunAt, EndsAt: machine.LifeEnd(&j.State)}, nil
}

// Job is the current state of a job.
type Job struct {
	match.Job
	State         string // QUEUED, ASSIGNED, COMPLETED, EXPIRED; FAILED and CANCELLED if another API ended it
	PriorityCache int64
	Score         int64
	TTL           int64 // lifetime in seconds
	ExpiresAt     int64
	RelDeadline   int64 // when its attempts must have ended; 0 before the first one
	RunAt         int64 // not assigned earlier
	LastError     string
	Message       string // of its last error
	Reason        string // why it expired, if it did
	Tombstoned    bool   // it has ended
	Lease         gq.LeaseID
	Digest        string
	Payload       []byte
	TraceParent   string // W3C trace context of the submission, if it had one
	TraceState    string
	Existing      bool // submitted before under the same key; set by Submit alone
}

// Submit submits a job. If its key belongs to a job with the same content, it returns that
// job; if the content differs, the error is [gq.ErrKeyReused] and names the job.
func (d *Dispatcher) Submit(ctx context.Context, e match.Enqueue) (Job, error) {
	set, err := d.Settings(ctx)
	if err != nil {
		return Job{}, err
	}
	if err := d.limitDepthOnce(ctx); err != nil {
		return Job{}, fmt.Errorf("submit: %w", err)
	}
	attributes, err := attributesOf(asks{e.Spec, e.Regions, e.SizeBytes})
	if err != nil {
		return Job{}, fmt.Errorf("submit: %w", err)
	}
	if e.Units == 0 {
		attributes[match.AttributeUnits] = "0"
	}
	spec := gq.Spec{
		Queue: d.queue, Type: e.Kind.String(), Policy: set.JobPolicy(e.Kind, e.TTL), Attributes: attributes,
		Requester: e.Requester, Tier: e.Tier, MaxFee: e.MaxFee, CostUnits: e.Units, Requires: []string{Requirement},
	}
	if e.Payload != nil {
		spec.Payload = gq.Payload{Data: e.Payload, ContentType: gq.JSON}
	}
	if e.Key != "" {
		spec.Key = gq.IdempotencyKey{Scope: keyScope(e.Requester), Name: e.Key, Fingerprint: contentOf(e)}
	}
	out, err := d.engine.Submit(ctx, spec)
	if err == nil {
		err = out.KeyReused()
	}
	if errors.Is(err, gq.ErrKeyReused) && e.Units == 0 {
		err = d.sameWithoutUnits(ctx, out.ID(), e, err)
	}
	if err != nil {
		return Job{}, err
	}
	d.wake()
	j, err := d.Job(ctx, out.ID())
	j.Existing = out.Existing
	return j, err
}

// keyScope returns the scope of a requester's idempotency keys. A requester that is no
// valid name is hashed.
func keyScope(requester string) string {
	scope := "matching:" + requester
	if machine.CheckName("idempotency_scope", scope) != nil {
		scope = fmt.Sprintf("matching:%x", sha256.Sum256([]byte(requester)))
	}
	return scope
}

// contentOf is the fingerprint of a submission: of what the requester sent, and not of the
// policy that applies to it, which may change before the submission is repeated.
func contentOf(e match.Enqueue) uint64 {
	if e.Unnamed {
		return contentWithoutUnits(e) // as when jobs counted none by default
	}
	e.Key = ""
	text, _ := json.Marshal(e) // its payload is valid JSON
	return fingerprint(text)
}

// contentWithoutUnits is [contentOf] a submission that does not name its units.
func contentWithoutUnits(e match.Enqueue) uint64 {
	e.Key = ""
	text, _ := json.Marshal(e)
	return fingerprint(bytes.Replace(text, fmt.Appendf(nil, `,"units":%d`, e.Units), nil, 1))
}

func fingerprint(text []byte) uint64 {
	sum := sha256.Sum256(text)
	return binary.BigEndian.Uint64(sum[:8]) | 1 // zero is none
}

// sameWithoutUnits returns nil if the job that has the key of a submission of 0 units has the same content: it
// was stored while 0 was the default, which contents left out. Otherwise it returns reused.
func (d *Dispatcher) sameWithoutUnits(ctx context.Context, id gq.JobID, e match.Enqueue, reused error) error {
	j, err := d.engine.Get(ctx, id, 0)
	if err != nil {
		return err
	}
	if j.Spec.CostUnits != 0 || j.Spec.Key.Fingerprint != contentWithoutUnits(e) {
		return reused
	}
	return nil
}

// limitDepthOnce sets the depth limit of the queue before its first job.
func (d *Dispatcher) limitDepthOnce(ctx context.Context) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.loaded && d.depthSet {
		return nil
	}
	if err := d.catchUp(ctx); err != nil || d.depthSet {
		return err
	}
	return d.limitDepth(ctx)
}

// Job returns a job, or [gq.ErrNotFound] if it ended before the horizon.
func (d *Dispatcher) Job(ctx context.Context, id gq.JobID) (Job, error) {
	set, err := d.Settings(ctx)
	if err != nil {
		return Job{}, err
	}
	job, err := d.engine.Get(ctx, id, gq.WithPayload|gq.WithResult)
	if errs.KindOf(err) == gq.KindDenied {
		// A caller who may read this queue is denied only jobs of other queues.
		err = gq.ErrNotFound.Errorf("job %s not found", id)
	}
	if err != nil {
		return Job{}, err
	}
	out, err := d.jobOf(&job, &set)
	if err != nil {
		return Job{}, fmt.Errorf("job %s: %w", id, err)
	}
	return out, nil
}

func (d *Dispatcher) jobOf(job *gq.Job, set *match.Settings) (Job, error) {
	if job.Spec.Queue != d.queue {
		return Job{}, fmt.Errorf("is not a job of the matching queue: %w", gq.ErrNotFound)
	}
	now := d.now()
	s, _, err := machine.Advance(job.State, machine.Draw{}, now) // a sweep may not have advanced it yet
	if err != nil {
		return Job{}, err
	}
	if job.State = s; d.beyond(&s, set, now) {
		return Job{}, fmt.Errorf("it ended at %v: %w", s.CompletedAt.UTC(), gq.ErrNotFound)
	}
	m, err := matchJob(job, nil)
	if err != nil {
		return Job{}, err
	}
	out := Job{
		Job: m, State: projection.View{Status: s.Status, Detail: s.Detail}.Matching(),
		PriorityCache: set.Priority.Cached(&m), Score: set.Priority.Score(&m, now.Unix()),
		TTL: int64(s.Policy.Lifetime / time.Second), ExpiresAt: machine.Submitted(&s).Add(s.Policy.Lifetime).Unix(),
		Tombstoned: s.Status.Terminal(), Payload: job.Spec.Payload.Data,
		TraceParent: job.Spec.Attributes[gq.AttributeTraceParent], TraceState: job.Spec.Attributes[gq.AttributeTraceState],
	}
	if s.RunAt.After(now) {
		out.RunAt = s.RunAt.Unix()
	}
	if !s.FirstStartedAt.IsZero() {
		out.RelDeadline = s.FirstStartedAt.Add(s.Policy.RunLifetime).Unix()
	}
	if s.Failure != nil {
		out.LastError, out.Message = match.FaultName(s.Failure.Code), s.Failure.Message
	}
	if s.Status == gq.StatusDeadLetter {
		out.Reason = expiryReason(s.Reason)
	} else if s.Status.Terminal() {
		out.Reason = s.Reason
	}
	if s.Status.Held() || s.Status == gq.StatusCompleted {
		out.Lease = s.Lease.ID
	}
	if s.Status == gq.StatusCompleted {
		out.Digest = digestOf(job.Result)
	}
	return out, nil
}

// beyond reports whether a job ended before the horizon.
func (d *Dispatcher) beyond(s *gq.State, set *match.Settings, now time.Time) bool {
	return s.Status.Terminal() && !now.Before(s.CompletedAt.Add(time.Duration(set.TTL.GCHorizon)*time.Second))
}

// expiryReason returns why a job expired: matching calls the lifetime ttl.
func expiryReason(reason string) string {
	if reason == "lifetime" {
		return "ttl"
	}
	return reason
}

// findJob reads the job of a lease.
func (d *Dispatcher) findJob(ctx context.Context, id gq.LeaseID, parts gq.Parts) (gq.Job, error) {
	found, err := d.store.Get(ctx, []store.Ref{{Lease: id}}, parts)
	if err != nil {
		return gq.Job{}, err
	}
	switch {
	case errors.Is(found[0].Err, gq.ErrNotFound):
		return gq.Job{}, gq.ErrNotFound // the caller adds the lease
	case found[0].Err != nil:
		return gq.Job{}, found[0].Err
	case found[0].Spec.Queue != d.queue:
		return gq.Job{}, gq.ErrNotFound
	}
	return found[0].Job, nil
}
