package gq

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"mime"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// DefaultQueue is where a job goes that names no queue.
const DefaultQueue = "default"

// Payload is what a client hands to a handler, or a handler back. The system
// does not interpret it. It only checks, at submission, that text is UTF-8 and
// that what is declared as JSON is JSON.
type Payload struct {
	Data        []byte
	ContentType string // "application/json" if empty; JSON is shown as JSON, everything else as base64
}

// IsJSON reports whether the content type declares JSON: application/json or
// application/*+json, whatever its parameters.
func (p Payload) IsJSON() bool {
	if p.ContentType == JSON {
		return true
	}
	name, _, err := mime.ParseMediaType(p.ContentType)
	return err == nil && (name == JSON || strings.HasPrefix(name, "application/") && strings.HasSuffix(name, "+json"))
}

func (p Payload) validate(l Limits, f *faults) {
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

// syntaxOf says where and why a text is not JSON.
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

// JSON is the content type of a JSON payload.
const JSON = "application/json"

// OctetStream is the content type of a payload that is mere bytes.
const OctetStream = "application/octet-stream"

// Key makes a submission idempotent: while the window lasts, a second
// submission with the same scope and key finds the first job instead of making
// another.
type Key struct {
	Scope       string // what the key is unique within, such as a job type
	Name        string // the client's key, up to 256 characters; empty for none
	Fingerprint uint64 // of the submission, so that a changed one can be told
}

// Spec is what was asked for. It never changes once it is stored.
type Spec struct {
	ID        JobID // assigned by the system
	Queue     string
	Type      string
	Payload   Payload
	Policy    Policy
	Key       Key
	RunAt     time.Time     // not before this instant; zero is at once
	Delay     time.Duration // not before this long after submission; the later of both counts
	DependsOn []Dependency

	CostUnits int64    // capacity a lease of this job occupies; 0 is none
	Requires  []string // capabilities a worker must offer
	LimitKey  string   // jobs of a queue with the same one share its KeyLimit; "" is not limited
	FairKey   string   // whose turn it takes in a fair queue, such as a tenant; all without one share theirs
	Requester string
	Tier      string
	MaxFee    int64

	Attributes map[string]string // kept for a face, not interpreted
	ReplayOf   JobID             // the finished job this one repeats

	Metadata Metadata // as submitted; the current values live beside the state
}

// Metadata is what a user may change while the job is live.
type Metadata struct {
	Priority      Priority // only until the first claim
	Tags          map[string]string
	CorrelationID string
	CallbackURL   string
}

// Equal reports whether two sets of metadata say the same.
func (m Metadata) Equal(o Metadata) bool {
	return m.Priority == o.Priority && m.CorrelationID == o.CorrelationID &&
		m.CallbackURL == o.CallbackURL && maps.Equal(m.Tags, o.Tags)
}

// WithDefaults fills what the client left open: queue, policy, priority,
// content type, the JSON null for no payload, the scope of the key, and the order
// of Requires.
func (s Spec) WithDefaults() Spec {
	if s.Queue == "" {
		s.Queue = DefaultQueue
	}
	if s.Policy == (Policy{}) {
		s.Policy = Default()
	}
	if s.Metadata.Priority == 0 {
		s.Metadata.Priority = Normal
	}
	if s.Payload.ContentType == "" {
		s.Payload.ContentType = JSON
	}
	if len(s.Payload.Data) == 0 && s.Payload.ContentType == JSON {
		s.Payload.Data = []byte("null")
	}
	if s.Key.Name != "" && s.Key.Scope == "" {
		s.Key.Scope = s.Type
	}
	if len(s.Requires) > 1 {
		s.Requires = slices.Clone(s.Requires)
		slices.Sort(s.Requires)
		s.Requires = slices.Compact(s.Requires)
	}
	return s
}

// Validate reports everything that is wrong with a spec whose defaults are
// filled in. Dependencies are checked as a graph, by [CheckGraph].
func (s *Spec) Validate(l Limits) error {
	var f faults
	if !s.ID.Valid() {
		f.add("id", "%s is not a version 4 UUID", s.ID)
	}
	checkQueueName("queue", s.Queue, &f)
	checkName("type", s.Type, true, &f)
	checkName("requester", s.Requester, false, &f)
	checkName("tier", s.Tier, false, &f)
	checkName("limit_key", s.LimitKey, false, &f)
	checkName("fair_key", s.FairKey, false, &f)
	checkName("content_type", s.Payload.ContentType, true, &f)
	s.Payload.validate(l, &f)
	s.Policy.validate("policy", &f)
	s.Key.validate(s.Policy.IdempotencyWindow, &f)
	if s.Delay < 0 || s.Delay > MaxDuration {
		f.add("delay", "%v is not between 0 and %v", s.Delay, MaxDuration)
	}
	if life := s.Policy.Lifetime; life > 0 && s.Delay >= life && s.Delay <= MaxDuration {
		f.add("delay", "%v is not shorter than the job's lifetime of %v (policy.lifetime), which would end before the job may run; shorten the delay or lengthen the lifetime", s.Delay, life)
	}
	if year := s.RunAt.UTC().Year(); !s.RunAt.IsZero() && (year < 1970 || year > 2200) {
		f.add("run_at", "the year %d is not between 1970 and 2200", year)
	}
	if s.CostUnits < 0 || s.CostUnits > MaxCostUnits {
		f.add("cost_units", "%d is not between 0 and %d", s.CostUnits, int64(MaxCostUnits))
	}
	if s.MaxFee < 0 {
		f.add("max_fee", "%d is negative", s.MaxFee)
	}
	if len(s.Requires) > MaxCapabilities {
		f.add("requires", "%d capabilities are more than %d", len(s.Requires), MaxCapabilities)
	}
	for i, c := range s.Requires {
		checkName(fmt.Sprintf("requires[%d]", i), c, true, &f)
	}
	checkMap("attributes", s.Attributes, MaxAttributes, &f)
	if len(s.DependsOn) > MaxDependencies {
		f.add("depends_on", "%d dependencies are more than %d", len(s.DependsOn), MaxDependencies)
	}
	s.Metadata.validate(&f)
	return f.err()
}

// Validate reports everything that is wrong with the metadata.
func (m Metadata) Validate() error {
	var f faults
	m.validate(&f)
	return f.err()
}

func (m Metadata) validate(f *faults) {
	if !m.Priority.Valid() {
		f.add("priority", "must be one of CRITICAL, HIGH, NORMAL, LOW, BULK")
	}
	checkMap("tags", m.Tags, MaxTags, f)
	if len(m.CorrelationID) > MaxCorrelationBytes {
		f.add("correlation_id", "%d bytes are more than %d", len(m.CorrelationID), MaxCorrelationBytes)
	} else if !utf8.ValidString(m.CorrelationID) {
		f.add("correlation_id", "must be valid UTF-8")
	}
	if m.CallbackURL != "" {
		checkURL("callback_url", m.CallbackURL, f)
	}
}

func (k Key) validate(window time.Duration, f *faults) {
	if k.Name == "" {
		if k.Scope != "" || k.Fingerprint != 0 {
			f.add("idempotency_key", "a scope or fingerprint needs a key")
		}
		return
	}
	if !utf8.ValidString(k.Name) {
		f.add("idempotency_key", "must be valid UTF-8")
	} else if n := utf8.RuneCountInString(k.Name); n > MaxKeyRunes {
		f.add("idempotency_key", "%d characters are more than %d", n, MaxKeyRunes)
	}
	checkName("idempotency_scope", k.Scope, true, f)
	if window == 0 {
		f.add("policy.idempotency_window", "a job with an idempotency key needs a window above 0")
	}
}

// CheckRunAt refuses a job that is submitted now and may not run before its
// lifetime is over. [Spec.Validate] says the same of its Delay, for which it needs
// no time.
func (s *Spec) CheckRunAt(now time.Time) error {
	life := s.Policy.Lifetime
	if life == 0 || s.RunAt.Before(now.Add(life)) {
		return nil
	}
	var f faults
	f.add("run_at", "%s is %v from now, beyond the job's lifetime of %v (policy.lifetime), which would end before the job may run; choose an earlier time or lengthen the lifetime",
		s.RunAt.UTC().Format(time.RFC3339), s.RunAt.Sub(now).Round(time.Second), life)
	return f.err()
}

// FirstRun is the earliest instant at which a job submitted now may run.
func (s *Spec) FirstRun(now time.Time) time.Time {
	run := now.Add(s.Delay)
	if s.RunAt.After(run) {
		run = s.RunAt
	}
	return run
}

func checkName(field, name string, required bool, f *faults) {
	switch {
	case name == "" && required:
		f.add(field, "is required")
	case len(name) > MaxNameBytes:
		f.add(field, "%d bytes are more than %d", len(name), MaxNameBytes)
	case !utf8.ValidString(name):
		f.add(field, "must be valid UTF-8")
	case strings.ContainsFunc(name, func(r rune) bool { return r < ' ' || r == 0x7f }):
		f.add(field, "%q contains a control character", name)
	}
}

// CheckName reports whether a field can hold a name: 1 to [MaxNameBytes] bytes
// of valid UTF-8 without control characters.
func CheckName(field, name string) error {
	var f faults
	checkName(field, name, true, &f)
	return f.err()
}

// CheckQueueName reports whether a name can be a queue's: 1 to 256 letters,
// digits, or any of - _ . : / so that it can stand in URLs and patterns.
func CheckQueueName(name string) error {
	var f faults
	checkQueueName("queue", name, &f)
	return f.err()
}

func checkQueueName(field, name string, f *faults) {
	checkName(field, name, true, f)
	for _, r := range name {
		ok := r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("-_.:/", r)
		if !ok {
			f.add(field, "%.64q contains %q; only letters, digits and - _ . : / may stand there", name, r)
			return
		}
	}
}

func checkMap(field string, m map[string]string, most int, f *faults) {
	if len(m) == 0 {
		return
	}
	if len(m) > most {
		f.add(field, "%d entries are more than %d", len(m), most)
	}
	for _, k := range slices.Sorted(maps.Keys(m)) {
		switch v := m[k]; {
		case k == "":
			f.add(field, "an empty key is not allowed")
		case len(k)+len(v) > MaxTagBytes:
			f.add(fmt.Sprintf("%s[%.64q]", field, k), "%d bytes are more than %d", len(k)+len(v), MaxTagBytes)
		case !utf8.ValidString(k) || !utf8.ValidString(v):
			f.add(fmt.Sprintf("%s[%.64q]", field, k), "must be valid UTF-8")
		}
	}
}

func checkURL(field, raw string, f *faults) {
	if len(raw) > MaxURLBytes {
		f.add(field, "%d bytes are more than %d", len(raw), MaxURLBytes)
		return
	}
	u, err := url.Parse(raw)
	switch {
	case err != nil:
		f.add(field, "is not a URL")
	case u.Scheme != "http" && u.Scheme != "https":
		f.add(field, "must begin with http:// or https://")
	case u.Hostname() == "":
		f.add(field, "has no host")
	case !portInRange(u.Port()):
		f.add(field, "port %.20s is not between 1 and 65535", u.Port())
	case u.User != nil:
		f.add(field, "must not carry a user or password")
	}
}

// portInRange reports whether the port of a URL, "" for its scheme's own, can be
// connected to.
func portInRange(port string) bool {
	n, err := strconv.ParseUint(port, 10, 16)
	return port == "" || err == nil && n > 0
}
