package storetest

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/internal/errs"
	"github.com/gopherqueue/gq/store"
)

var faultCases = []Case{
	{
		Name:   "Insert/EachFault",
		Clause: "an invalid job is ErrInvalid, naming the field, and nothing is stored",
		Covers: []string{"J-126", "J-143"},
		run:    eachFault,
	},
	{
		Name:   "Insert/AllFaults",
		Clause: "ErrInvalid carries every fault of a group at once, each with the member it belongs to",
		run:    allFaults,
	},
	{
		Name:   "Insert/GroupSize",
		Clause: "a group has at least one job and at most MaxGroupJobs, with payloads of at most MaxGroupBytes together",
		run:    groupSize,
	},
}

// badFields has one invalid value for each field, by the name in the fault.
var badFields = map[string][]setting{
	"id":           {func(s *gq.Spec) { s.ID = gq.JobID{} }, func(s *gq.Spec) { s.ID = gq.JobID{1} }},
	"queue":        {func(s *gq.Spec) { s.Queue = "" }, inQueue("with space"), inQueue("ü"), inQueue(strings.Repeat("q", gq.MaxNameBytes+1))},
	"type":         {func(s *gq.Spec) { s.Type = "" }, ofType("a\x00b"), ofType("\xff"), ofType(strings.Repeat("t", gq.MaxNameBytes+1))},
	"requester":    {func(s *gq.Spec) { s.Requester = "\n" }},
	"tier":         {func(s *gq.Spec) { s.Tier = "\xff" }},
	"content_type": {func(s *gq.Spec) { s.Payload.ContentType = "" }},
	"payload": {
		func(s *gq.Spec) { s.Payload.Data = []byte("\xff") }, // as JSON
		func(s *gq.Spec) { s.Payload.Data = []byte("{bad") }, // as JSON
		func(s *gq.Spec) { s.Payload = gq.Payload{Data: []byte("\xff"), ContentType: "text/plain"} },
	},
	"policy.preset":             {func(s *gq.Spec) { s.Policy.Preset = 0 }},
	"policy.max_attempts":       {func(s *gq.Spec) { s.Policy.MaxAttempts = 0 }},
	"policy.lease_ttl":          {func(s *gq.Spec) { s.Policy.LeaseTTL = 0 }},
	"policy.hold":               {func(s *gq.Spec) { s.Policy.Hold = -1 }},
	"policy.backoff.multiplier": {func(s *gq.Spec) { s.Policy.Backoff.Multiplier = 0.5 }},
	"policy.lifetime":           {func(s *gq.Spec) { s.Policy.Lifetime = -1 }},
	"policy.idempotency_window": {func(s *gq.Spec) { s.Key, s.Policy.IdempotencyWindow = gq.IdempotencyKey{Scope: "s", Name: "k"}, 0 }},
	"idempotency_key":           {func(s *gq.Spec) { s.Key = gq.IdempotencyKey{Scope: "s", Name: strings.Repeat("k", gq.MaxKeyRunes+1)} }, func(s *gq.Spec) { s.Key.Fingerprint = 1 }},
	"idempotency_scope":         {func(s *gq.Spec) { s.Key = gq.IdempotencyKey{Name: "k"} }},
	"delay": {
		delayed(-1), delayed(gq.MaxDuration + 1),
		delayed(7 * 24 * time.Hour), // the whole lifetime
	},
	"run_at":         {func(s *gq.Spec) { s.RunAt = time.Date(2201, 1, 1, 0, 0, 0, 0, time.UTC) }, func(s *gq.Spec) { s.RunAt = time.Unix(-1, 0).UTC() }},
	"cost_units":     {costing(-1), costing(gq.MaxCostUnits + 1)},
	"max_fee":        {func(s *gq.Spec) { s.MaxFee = -1 }},
	"requires":       {func(s *gq.Spec) { s.Requires = numbered(gq.MaxCapabilities + 1) }},
	"requires[0]":    {requiring("")},
	"attributes":     {func(s *gq.Spec) { s.Attributes = map[string]string{"": "x"} }},
	"priority":       {func(s *gq.Spec) { s.Metadata.Priority = 0 }, at(gq.PriorityBulk + 1)},
	"tags":           {func(s *gq.Spec) { s.Metadata.Tags = map[string]string{"": "x"} }},
	"correlation_id": {func(s *gq.Spec) { s.Metadata.CorrelationID = strings.Repeat("c", gq.MaxCorrelationBytes+1) }},
	"callback_url":   {func(s *gq.Spec) { s.Metadata.CallbackURL = "ftp://example.com" }, func(s *gq.Spec) { s.Metadata.CallbackURL = "http:///x" }},
}

func numbered(n int) (names []string) {
	for i := range n {
		names = append(names, fmt.Sprintf("name-%d", i))
	}
	return names
}

// fields lists the fields that an error names.
func fields(err error) (names []string) {
	for _, f := range errs.FaultsOf(err) {
		names = append(names, f.Field)
	}
	return names
}

func eachFault(e *env) {
	for _, field := range slices.Sorted(maps.Keys(badFields)) {
		for _, spoil := range badFields[field] {
			spec := e.spec()
			id := spec.ID
			spoil(&spec)
			why := e.refused(gq.ErrInvalid, spec)
			if got := why.fields(); !slices.Contains(got, field) {
				e.Errorf("a bad %s: the error names %q (%v), want that field", field, got, why.err)
			}
			if !id.IsZero() {
				e.absent("a job with a bad "+field, id)
			}
		}
	}
}

func allFaults(e *env) {
	spec := e.spec(ofType("\x01"), costing(-1), delayed(-1))
	spec.Metadata.Priority = 0
	want := []string{"type", "cost_units", "delay", "priority"}
	got := e.refused(gq.ErrInvalid, spec).fields()
	for _, field := range want {
		if !slices.Contains(got, field) {
			e.Errorf("four faults in one job: the error names %q, want also %q", got, field)
		}
	}

	group := e.specs(3)
	group[0].Queue = ""
	group[2].Type = ""
	group[2].MaxFee = -1
	got = e.refused(gq.ErrInvalid, group...).fields()
	for _, field := range []string{"jobs[0].queue", "jobs[2].type", "jobs[2].max_fee"} {
		if !slices.Contains(got, field) {
			e.Errorf("three faults in a group: the error names %q, want also %q", got, field)
		}
	}
	e.absent("the good member of a bad group", group[1].ID)
}

func groupSize(e *env) {
	heavy := e.specs(gq.MaxGroupBytes>>20+1, binary(make([]byte, 1<<20)))
	answers := e.tryInsert(store.Group{}, store.Group{Jobs: e.specs(gq.MaxGroupJobs + 1)}, store.One(e.spec()), store.Group{Jobs: heavy})
	e.is("an empty group", answers[0].Err, gq.ErrInvalid)
	e.is("a group with one job too many", answers[1].Err, gq.ErrInvalid)
	e.check("a group beside them", answers[2].Err)
	e.is("a group with too many bytes", answers[3].Err, gq.ErrInvalid)
	if got := e.counts()["q"].Live(); got != 1 {
		e.Errorf("%d live jobs are counted, want 1", got)
	}
}
