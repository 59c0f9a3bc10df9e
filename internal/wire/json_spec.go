package wire

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/internal/errs"
)

// Spec is a job to be submitted. It has no values that the system assigns.
type Spec struct {
	Type             string            `json:"type" doc:"Which handler runs it." example:"email.send"`
	Queue            string            `json:"queue,omitzero" doc:"Where it waits; without it in the queue \"default\"."`
	Payload          json.RawMessage   `json:"payload,omitempty" doc:"Any JSON, handed to the handler as it stands."`
	PayloadBase64    *[]byte           `json:"payload_base64,omitempty" doc:"Instead: any bytes."`
	ContentType      string            `json:"content_type,omitzero" doc:"Of the payload; application/json, or application/octet-stream where it is base64."`
	Priority         Priority          `json:"priority,omitzero" doc:"By name, or 0 to 4; NORMAL."`
	Policy           *Policy           `json:"policy,omitempty" doc:"What differs from the queue's policy."`
	IdempotencyKey   string            `json:"idempotency_key,omitzero" doc:"A second submission with the same one finds the first job. Up to 256 characters."`
	IdempotencyScope string            `json:"idempotency_scope,omitzero" doc:"What the key is unique within; the type."`
	Unique           *Unique           `json:"unique,omitempty" doc:"Makes it the only job with its key, or with the values of some fields."`
	RunAt            time.Time         `json:"run_at,omitzero" doc:"Not before this instant."`
	Delay            *Duration         `json:"delay,omitempty" doc:"Not before this long after submission. Not together with run_at."`
	DependsOn        []Dependency      `json:"depends_on,omitempty" doc:"Jobs that must end first."`
	CostUnits        int64             `json:"cost_units,omitzero" doc:"Capacity that it occupies while it is held."`
	Requires         []string          `json:"requires,omitempty" doc:"Capabilities that a worker must offer."`
	LimitKey         string            `json:"limit_key,omitzero" doc:"Jobs of a queue with the same one share its limits per key."`
	Weight           int               `json:"weight,omitzero" doc:"How much of the rate of its limit_key a claim uses up; 1."`
	FairKey          string            `json:"fair_key,omitzero" doc:"Whose turn it takes in a fair queue."`
	OrderKey         string            `json:"order_key,omitzero" doc:"Jobs of a queue with the same one run one after another, in the order of submission."`
	Requester        string            `json:"requester,omitzero"`
	Tier             string            `json:"tier,omitzero"`
	MaxFee           int64             `json:"max_fee,omitzero"`
	Attributes       map[string]string `json:"attributes,omitempty" doc:"Kept, not interpreted."`
	Tags             map[string]string `json:"tags,omitempty" doc:"Labels; can be changed later."`
	CorrelationID    string            `json:"correlation_id,omitzero" doc:"For traces and logs."`
	CallbackURL      string            `json:"callback_url,omitzero" doc:"Told when the job has ended."`
}

// Dependency names a job that another job depends on.
type Dependency struct {
	Kind *gq.DependencyKind `json:"kind,omitempty" doc:"AFTER unless given."`
	Job  gq.JobID           `json:"job"`
}

func (d Dependency) domain() gq.Dependency {
	return gq.Dependency{Kind: kindOf(d.Kind), Job: d.Job}
}

func kindOf(k *gq.DependencyKind) gq.DependencyKind {
	if k == nil {
		return gq.DependencyAfter
	}
	return *k
}

// Domain converts the spec. A zero policy in the result means the queue's. Domain calls
// queuePolicy only if the spec changes parts of that policy for which there are no overrides.
func (s *Spec) Domain(queuePolicy func(queue string) (gq.Policy, error)) (gq.Spec, error) {
	out := gq.Spec{
		Queue: s.Queue, Type: s.Type,
		Key:   gq.IdempotencyKey{Name: s.IdempotencyKey, Scope: s.IdempotencyScope},
		RunAt: utc(s.RunAt), Delay: durationOf(s.Delay),
		CostUnits: s.CostUnits, Requires: s.Requires, LimitKey: s.LimitKey, FairKey: s.FairKey, OrderKey: s.OrderKey, Weight: s.Weight,
		Requester: s.Requester, Tier: s.Tier, MaxFee: s.MaxFee,
		Attributes: s.Attributes,
		Metadata: gq.Metadata{
			Priority: gq.Priority(s.Priority), Tags: s.Tags, CorrelationID: s.CorrelationID, CallbackURL: s.CallbackURL,
		},
	}
	if s.Unique != nil {
		out.Unique = s.Unique.domain()
	}
	for _, d := range s.DependsOn {
		out.DependsOn = append(out.DependsOn, d.domain())
	}
	var err error
	if out.Payload, err = s.payload(); err != nil {
		return out, err
	}
	switch {
	case s.Policy == nil || *s.Policy == (Policy{}):
	case s.Policy.Preset != nil:
		out.Policy = s.Policy.Over(gq.Policy{})
	case s.Policy.override(&out):
	default:
		queue := s.Queue
		if queue == "" {
			queue = gq.DefaultQueue
		}
		base, err := queuePolicy(queue)
		if err != nil {
			return out, err
		}
		out.Policy = s.Policy.Over(base)
	}
	return out, nil
}

// ReadRequest decodes a submission of the SQL function submit. It calls queuePolicy as [Spec.Domain] does.
func ReadRequest(body []byte, queuePolicy func(queue string) (gq.Policy, error)) (gq.Spec, error) {
	if bytes.HasPrefix(body, []byte("[")) { // PostgreSQL appended the parameters to options that are no object
		return gq.Spec{}, fault("options", "must be an object with fields of a submission, such as {\"tags\": {\"shop\": \"7\"}}")
	}
	var s Spec
	if err := DecodeJSON(body, &s); err != nil {
		return gq.Spec{}, err
	}
	return s.Domain(queuePolicy)
}

func (s *Spec) payload() (p gq.Payload, err error) {
	p.ContentType = s.ContentType
	if p.Data, err = Contents("payload", s.Payload, s.PayloadBase64); err != nil {
		return p, err
	}
	switch {
	case s.Payload != nil && p.ContentType != "" && !isJSONType(p.ContentType):
		return p, fault("payload", "stands for JSON; %.64q goes into payload_base64", p.ContentType)
	case s.PayloadBase64 != nil && p.ContentType == "":
		p.ContentType = gq.OctetStream
	}
	return p, nil
}

// Draft is a job of a batch. Jobs that refer to each other are accepted together or not
// at all.
type Draft struct {
	Spec
	Ref      string        `json:"ref,omitzero" doc:"What other jobs of the batch call this one."`
	Needs    []Need        `json:"needs,omitempty" doc:"Jobs of the same batch that must end first."`
	Timeouts *TimeoutsBody `json:"timeouts,omitempty" doc:"Only with view=jobmodel: limits in the names of the job model, instead of those of the policy."`
}

// domain converts the job. Timeouts are allowed in the view of the job model.
func (d *Draft) domain(queuePolicy func(queue string) (gq.Policy, error), inView bool) (gq.Spec, error) {
	spec, err := d.Spec.Domain(queuePolicy)
	if err != nil && errs.KindOf(err) != gq.KindInvalid {
		return spec, err
	}
	if faults := append(errs.FaultsOf(err), d.Timeouts.Limit(&spec, d.Policy, inView)...); len(faults) > 0 {
		return spec, &gq.InvalidError{Faults: faults}
	}
	return spec, nil
}

// Need is a dependency on another job of the same batch.
type Need struct {
	Kind *gq.DependencyKind `json:"kind,omitempty" doc:"AFTER unless given."`
	Ref  string             `json:"ref"`
}

// Batch is a list of jobs to be submitted.
type Batch struct {
	Jobs   []Draft `json:"jobs" doc:"At most 10,000."`
	Atomic bool    `json:"atomic,omitzero" doc:"All or none. Where a job has a ref or needs another it is so anyway."`

	unreadable map[int][]gq.Fault // by index of the job
}

// decodeJSON decodes a batch job by job, so that a malformed job does not affect the
// others.
func (b *Batch) decodeJSON(d *jsonDecoder, text []byte) {
	var outer struct {
		Jobs   []json.RawMessage `json:"jobs"`
		Atomic bool              `json:"atomic"`
	}
	d.value(text, reflect.ValueOf(&outer).Elem(), "")
	b.Jobs, b.Atomic = make([]Draft, len(outer.Jobs)), outer.Atomic
	for i, job := range outer.Jobs {
		one := jsonDecoder{}
		one.value(job, reflect.ValueOf(&b.Jobs[i]).Elem(), "")
		if len(one.faults) == 0 {
			continue
		}
		if b.unreadable == nil {
			b.unreadable = map[int][]gq.Fault{}
		}
		b.unreadable[i] = one.faults
	}
}

// Graph reports whether the jobs are accepted together or not at all.
func (b *Batch) Graph() bool {
	for _, faults := range b.unreadable {
		for _, f := range faults {
			if strings.HasPrefix(f.Field, "ref") || strings.HasPrefix(f.Field, "needs") {
				return true // it was meant to be a graph
			}
		}
	}
	for i := range b.Jobs {
		if b.Jobs[i].Ref != "" || len(b.Jobs[i].Needs) > 0 {
			return true
		}
	}
	return b.Atomic
}

// Domain converts the jobs of the batch, in the view of the job model or not, and returns the
// faults of rejected ones by index. If the batch is a graph, any fault is an error.
func (b *Batch) Domain(queuePolicy func(queue string) (gq.Policy, error), inView bool) (jobs []gq.GraphJob, refused map[int]error, err error) {
	if n := len(b.Jobs); n == 0 || n > gq.MaxGroupJobs {
		return nil, nil, fault("jobs", "a batch has 1 to %d jobs, this one %d", gq.MaxGroupJobs, n)
	}
	jobs, refused = make([]gq.GraphJob, len(b.Jobs)), map[int]error{}
	for i := range b.Jobs {
		d := &b.Jobs[i]
		faults := b.unreadable[i]
		if len(faults) == 0 {
			spec, err := d.domain(queuePolicy, inView)
			if faults = errs.FaultsOf(err); err != nil && len(faults) == 0 {
				return nil, nil, err
			}
			jobs[i] = gq.GraphJob{Spec: spec, Ref: d.Ref}
		}
		if len(faults) > 0 {
			refused[i] = &gq.InvalidError{Faults: faults}
		}
		for _, n := range d.Needs {
			jobs[i].Needs = append(jobs[i].Needs, gq.Dependency{Kind: kindOf(n.Kind), Ref: n.Ref})
		}
	}
	if len(refused) > 0 && b.Graph() {
		var all []gq.Fault
		for _, i := range slices.Sorted(maps.Keys(refused)) {
			for _, f := range errs.FaultsOf(refused[i]) {
				field := at("jobs", i, f.Field)
				if f.Field == "body" { // the job as a whole
					field = fmt.Sprintf("jobs[%d]", i)
				}
				all = append(all, gq.Fault{Field: field, Problem: f.Problem})
			}
		}
		return nil, nil, &gq.InvalidError{Faults: all[:min(len(all), maxFaults)]}
	}
	return jobs, refused, nil
}

// Child is a job that a running job submits. Those of one call are accepted together.
type Child struct {
	Spec
	Ref   string `json:"ref,omitzero" doc:"What other jobs of the same call call this one."`
	Needs []Need `json:"needs,omitempty" doc:"Jobs of the same call that must end first: a job that needs all others with FAN_IN joins them."`
}

// Children converts the jobs that a running job submits.
func Children(specs []Child, queuePolicy func(queue string) (gq.Policy, error)) ([]gq.Spec, error) {
	if len(specs) == 0 {
		return nil, nil
	}
	out := make([]gq.Spec, len(specs))
	var faults []gq.Fault
	for i := range specs {
		var err error
		if out[i], err = specs[i].Domain(queuePolicy); err != nil {
			if _, ok := errors.AsType[*gq.InvalidError](err); !ok {
				return nil, err
			}
			for _, f := range errs.FaultsOf(err) {
				faults = append(faults, gq.Fault{Field: at("spawn", i, f.Field), Problem: f.Problem})
			}
		}
		out[i].Ref = specs[i].Ref
		for k, n := range specs[i].Needs {
			if n.Ref == "" {
				faults = append(faults, gq.Fault{Field: at("spawn", i, fmt.Sprintf("needs[%d].ref", k)), Problem: "is missing"})
			}
			out[i].DependsOn = append(out[i].DependsOn, gq.Dependency{Kind: kindOf(n.Kind), Ref: n.Ref})
		}
	}
	if len(faults) > 0 {
		return nil, &gq.InvalidError{Faults: faults}
	}
	return out, nil
}

// ChildOf converts a job that a running job submits to the form in which it is submitted.
func ChildOf(s *gq.Spec) Child {
	out := Child{Spec: specOf(s), Ref: s.Ref}
	out.Payload, out.PayloadBase64 = nil, nil
	if s.Payload.Data != nil {
		out.PayloadBase64 = &s.Payload.Data // encoders may change the bytes of embedded JSON
	}
	out.IdempotencyKey, out.IdempotencyScope = s.Key.Name, s.Key.Scope
	out.Unique, out.RunAt = uniqueOf(&s.Unique), s.RunAt
	if !s.Overrides.IsZero() {
		out.Policy = overridesOf(s)
	}
	for _, d := range s.DependsOn {
		if d.Ref != "" {
			out.Needs = append(out.Needs, Need{Kind: new(d.Kind), Ref: d.Ref})
		} else {
			out.DependsOn = append(out.DependsOn, Dependency{Kind: new(d.Kind), Job: d.Job})
		}
	}
	return out
}

// Patch changes the metadata of a live job. Absent members stay as they are.
type Patch struct {
	Priority      *Priority         `json:"priority,omitempty" doc:"Only while no worker holds the job."`
	Tags          map[string]string `json:"tags,omitempty" doc:"Added or replaced."`
	DropTags      []string          `json:"drop_tags,omitempty" doc:"Taken away."`
	CorrelationID *string           `json:"correlation_id,omitempty"`
	CallbackURL   *string           `json:"callback_url,omitempty"`
}

// Domain converts the patch.
func (p *Patch) Domain() gq.MetadataPatch {
	out := gq.MetadataPatch{
		SetTags: p.Tags, DropTags: p.DropTags, CorrelationID: p.CorrelationID, CallbackURL: p.CallbackURL,
	}
	if p.Priority != nil {
		out.Priority = gq.Priority(*p.Priority)
	}
	return out
}
