// Package wire converts the types of package gq to and from JSON, for HTTP, the command line
// and submissions in SQL. It has no rules of its own. Package pbconv does the same for gRPC.
//
// Every value has one form everywhere. Names are snake_case, times RFC 3339 in UTC,
// durations as Go prints them ("1h30m0s"), priorities by name (0 to 4 is accepted too,
// most urgent first). Unset values are omitted. A payload, result or checkpoint that is
// JSON is embedded unchanged, including integers of any size and \u0000; anything else is
// base64 under the same name with the suffix _base64. Decoding is strict: see
// [DecodeJSON].
package wire

import (
	"encoding/json"
	"fmt"
	"io"
	"time"
	"unicode/utf8"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/internal/enum"
)

// EncodeJSON writes a value on one line, without HTML escaping.
func EncodeJSON(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	return e.Encode(v)
}

// EncodeJSONIndented writes a value for people to read.
func EncodeJSONIndented(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	return e.Encode(v)
}

// Duration is encoded the way Go prints it: "1h30m0s".
type Duration time.Duration

// MarshalText implements [encoding.TextMarshaler].
func (d Duration) MarshalText() ([]byte, error) { return []byte(time.Duration(d).String()), nil }

// UnmarshalText implements [encoding.TextUnmarshaler].
func (d *Duration) UnmarshalText(text []byte) error {
	parsed, err := time.ParseDuration(string(text))
	if err != nil {
		return fault("duration", `%.64q is not a duration such as "90s" or "1h30m"`, text)
	}
	*d = Duration(parsed)
	return nil
}

func durationOf(d *Duration) time.Duration {
	if d == nil {
		return 0
	}
	return time.Duration(*d)
}

// Priority is encoded by name and decoded from a name or a level.
type Priority gq.Priority

// MarshalText returns the name.
func (p Priority) MarshalText() ([]byte, error) { return gq.Priority(p).MarshalText() }

// UnmarshalJSON decodes a name, or a level from 0 to 4 as a number or string.
func (p *Priority) UnmarshalJSON(text []byte) error {
	var name string
	if err := json.Unmarshal(text, &name); err != nil {
		name = string(text)
	}
	parsed, err := enum.Parse[gq.Priority](name)
	if err == nil {
		*p = Priority(parsed)
	}
	return err
}

func fault(field, format string, args ...any) error {
	return &gq.InvalidError{Faults: []gq.Fault{{Field: field, Problem: fmt.Sprintf(format, args...)}}}
}

// utc converts a time to its wire form.
func utc(t time.Time) time.Time {
	if t.IsZero() {
		return time.Time{}
	}
	return t.UTC()
}

// embedded returns data as JSON if it is valid JSON, and otherwise as bytes for base64.
func embedded(data []byte) (asJSON json.RawMessage, other []byte) {
	if len(data) == 0 {
		return nil, nil
	}
	if utf8.Valid(data) && json.Valid(data) {
		return data, nil
	}
	return nil, data
}

// Contents returns the bytes of a value given as JSON or as base64.
func Contents(field string, asJSON json.RawMessage, other *[]byte) ([]byte, error) {
	switch {
	case asJSON != nil && other != nil:
		return nil, fault(field+"_base64", "give %s or %s_base64, not both", field, field)
	case other != nil:
		if *other == nil {
			return []byte{}, nil
		}
		return *other, nil
	default:
		return asJSON, nil
	}
}

// isJSONType reports whether a content type denotes JSON.
func isJSONType(contentType string) bool {
	return gq.Payload{ContentType: contentType}.IsJSON()
}
