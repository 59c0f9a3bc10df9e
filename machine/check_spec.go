package machine

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/gopherqueue/gq"
)

// CheckAssigned reports the parts of a submitted spec that only the queue may set.
func CheckAssigned(s *gq.Spec) []gq.Fault {
	var f faults
	if !s.Replaces.IsZero() {
		f.add("replaces", "is assigned by the queue; edit the waiting job, or submit a unique job that replaces it")
	}
	if !s.ReplayOf.IsZero() {
		f.add("replay_of", "is assigned by the queue; replay that job when it has finished")
	}
	if _, set := s.Attributes[gq.AttributeReplayedBy]; set {
		f.add("attributes", "%s is assigned by the queue, to replays; choose another name", gq.AttributeReplayedBy)
	}
	return f
}

// CheckSpec reports all faults of a spec with defaults filled in. [CheckGraph] checks its
// dependencies.
func CheckSpec(s *gq.Spec, l gq.Limits) error {
	var f faults
	if !s.ID.Valid() {
		f.add("id", "%s is not a version 4 UUID", s.ID)
	}
	checkQueueName("queue", s.Queue, &f)
	checkName("type", s.Type, true, &f)
	checkName("requester", s.Requester, false, &f)
	checkName("tier", s.Tier, false, &f)
	checkName("limit_key", s.LimitKey, false, &f)
	checkWeight(s, &f)
	checkName("fair_key", s.FairKey, false, &f)
	checkOrder(s, &f)
	checkName("content_type", s.Payload.ContentType, true, &f)
	checkPayload(s.Payload, l, &f)
	checkWholePolicy(&s.Policy, "policy", &f)
	checkKey(s.Key, KeyWindow(s), !s.Unique.IsZero(), &f)
	checkUnique(s, &f)
	if s.Delay < 0 || s.Delay > gq.MaxDuration {
		f.add("delay", "%v is not between 0 and %v", s.Delay, gq.MaxDuration)
	}
	if life := s.Policy.Lifetime; life > 0 && s.Delay >= life && s.Delay <= gq.MaxDuration {
		f.add("delay", "%v is not shorter than the job's lifetime of %v (policy.lifetime), which would end before the job may run; shorten the delay or lengthen the lifetime", s.Delay, life)
	}
	if within := s.Policy.StartWithin; within > 0 && s.Delay >= within && s.Delay <= gq.MaxDuration {
		f.add("delay", "%v is not shorter than the job's start deadline of %v after submission (policy.start_within), so the job could never start; shorten the delay or allow more time", s.Delay, within)
	}
	if year := s.RunAt.UTC().Year(); !s.RunAt.IsZero() && (year < 1970 || year > 2200) {
		f.add("run_at", "the year %d is not between 1970 and 2200", year)
	}
	if s.CostUnits < 0 || s.CostUnits > gq.MaxCostUnits {
		f.add("cost_units", "%d is not between 0 and %d", s.CostUnits, int64(gq.MaxCostUnits))
	}
	if s.MaxFee < 0 {
		f.add("max_fee", "%d is negative", s.MaxFee)
	}
	if len(s.Requires) > gq.MaxCapabilities {
		f.add("requires", "%d capabilities are more than %d", len(s.Requires), gq.MaxCapabilities)
	}
	for i, c := range s.Requires {
		checkName(fmt.Sprintf("requires[%d]", i), c, true, &f)
	}
	checkMap("attributes", s.Attributes, gq.MaxAttributes, &f)
	if n, most := countDependencies(s.DependsOn), MaxDependencies(s); n > most {
		f.add("depends_on", "%d dependencies are more than %d", n, most)
	}
	checkMembership(s, &f)
	checkMetadata(s.Metadata, &f)
	return f.err()
}

func checkPayload(p gq.Payload, l gq.Limits, f *faults) {
	if n := len(p.Data); n > l.PayloadBytes {
		f.add("payload", "%d bytes are more than the limit of %d", n, l.PayloadBytes)
		return
	}
	isJSON := p.IsJSON()
	switch {
	case (isJSON || strings.HasPrefix(p.ContentType, "text/")) && !utf8.Valid(p.Data):
		f.add("payload", "%s must be valid UTF-8", p.ContentType)
	case isJSON && !json.Valid(p.Data):
		f.add("payload", "is not JSON (%s); change it, or give the content_type that it has instead of %s", syntaxOf(p.Data), p.ContentType)
	}
}

// syntaxOf returns where and why a text is not JSON.
func syntaxOf(data []byte) string {
	if len(data) == 0 {
		return "it is empty"
	}
	err := json.Unmarshal(data, new(json.RawMessage))
	if e, ok := errors.AsType[*json.SyntaxError](err); ok {
		return fmt.Sprintf("byte %d: %s", e.Offset, e.Error())
	}
	return "it cannot be read"
}

// CheckMetadata reports all faults of metadata.
func CheckMetadata(m gq.Metadata) error {
	var f faults
	checkMetadata(m, &f)
	return f.err()
}

func checkMetadata(m gq.Metadata, f *faults) {
	if !m.Priority.Valid() {
		f.add("priority", "must be one of CRITICAL, HIGH, NORMAL, LOW, BULK")
	}
	checkMap("tags", m.Tags, gq.MaxTags, f)
	if len(m.CorrelationID) > gq.MaxCorrelationBytes {
		f.add("correlation_id", "%d bytes are more than %d", len(m.CorrelationID), gq.MaxCorrelationBytes)
	} else if !utf8.ValidString(m.CorrelationID) {
		f.add("correlation_id", "must be valid UTF-8")
	}
	if m.CallbackURL != "" {
		checkURL("callback_url", m.CallbackURL, f)
	}
}

func checkKey(k gq.IdempotencyKey, window time.Duration, unique bool, f *faults) {
	if k.Name == "" {
		if k.Scope != "" || k.Fingerprint != 0 {
			f.add("idempotency_key", "a scope or fingerprint needs a key")
		}
		return
	}
	if !utf8.ValidString(k.Name) {
		f.add("idempotency_key", "must be valid UTF-8")
	} else if n := utf8.RuneCountInString(k.Name); n > gq.MaxKeyRunes {
		f.add("idempotency_key", "%d characters are more than %d", n, gq.MaxKeyRunes)
	}
	checkName("idempotency_scope", k.Scope, true, f)
	if window == 0 && !unique {
		f.add("policy.idempotency_window", "a job with an idempotency key needs a window above 0")
	}
}

// CheckRunAt rejects a job whose lifetime or start deadline ends before it may run. [CheckSpec] checks Delay the
// same way, without needing the time.
func CheckRunAt(s *gq.Spec, now time.Time) error {
	var f faults
	away := s.RunAt.Sub(now)
	if life := s.Policy.Lifetime; life > 0 && away >= life {
		f.add("run_at", "%s is %v from now, beyond the job's lifetime of %v (policy.lifetime), which would end before the job may run; choose an earlier time or lengthen the lifetime",
			s.RunAt.UTC().Format(time.RFC3339), away.Round(time.Second), life)
	}
	if within := s.Policy.StartWithin; within > 0 && away >= within {
		f.add("run_at", "%s is %v from now, beyond the job's start deadline of %v after submission (policy.start_within), so the job could never start; choose an earlier time or allow more time",
			s.RunAt.UTC().Format(time.RFC3339), away.Round(time.Second), within)
	}
	return f.err()
}

// FirstRun returns the earliest time at which a job submitted now may run.
func FirstRun(s *gq.Spec, now time.Time) time.Time {
	run := now.Add(s.Delay)
	if s.RunAt.After(run) {
		run = s.RunAt
	}
	return run
}

// CheckQuery reports all faults of a query.
func CheckQuery(q *gq.Query) error {
	var f faults
	if len(q.Types) > gq.MaxQueryTypes {
		f.add("types", "%d are more than %d", len(q.Types), gq.MaxQueryTypes)
	}
	for i, name := range q.Types {
		checkName(fmt.Sprintf("types[%d]", i), name, true, &f)
	}
	checkMap("tags", q.Tags, gq.MaxTags, &f)
	if len(q.Keys) > gq.MaxQueryKeys {
		f.add("keys", "%d are more than %d", len(q.Keys), gq.MaxQueryKeys)
	}
	for i, name := range q.Keys {
		if name == "" || utf8.RuneCountInString(name) > gq.MaxKeyRunes {
			f.add(fmt.Sprintf("keys[%d]", i), "must have between 1 and %d characters", gq.MaxKeyRunes)
		}
	}
	return f.err()
}
