// Package pbconv converts the types of package gq to and from the protobuf messages of the
// gRPC interface, and errors to and from gRPC statuses. It has no rules of its own.
//
// ProtoX encodes a value and never fails: invalid values are sent as they are, and the
// server rejects them. XFromProto decodes a message and reports everything that cannot be
// represented, by field name, as [gq.ErrInvalid]. Other checks are left to the engine, so
// that every face responds alike.
package pbconv

import (
	"fmt"
	"maps"
	"strings"
	"time"
	"unicode/utf8"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/internal/errs"
)

// protoReader collects the faults of a message. It builds field names only when there is
// a fault: at is the prefix of the name.
type protoReader struct{ faults []gq.Fault }

func (r *protoReader) fault(at, field, format string, args ...any) {
	r.faults = append(r.faults, gq.Fault{Field: at + field, Problem: fmt.Sprintf(format, args...)})
}

// nested adds the faults of a part, prefixed with its name.
func (r *protoReader) nested(at string, err error) {
	for _, f := range errs.FaultsOf(err) {
		r.faults = append(r.faults, gq.Fault{Field: at + f.Field, Problem: f.Problem})
	}
}

func (r *protoReader) err() error {
	if len(r.faults) == 0 {
		return nil
	}
	return &gq.InvalidError{Faults: r.faults}
}

// readEnum decodes an enum value up to last. The numbers are the same on both sides,
// which tests check.
func readEnum[G ~uint8, P ~int32](r *protoReader, at, field string, v P, last G) G {
	if v < 0 || int64(v) > int64(last) {
		names := make([]string, last)
		for i := range names {
			names[i] = fmt.Sprint(G(i + 1))
		}
		r.fault(at, field, "%d is not one of %s", v, strings.Join(names, ", "))
		return 0
	}
	return G(v)
}

// protoTime returns nil for the zero time.
func protoTime(t time.Time) *timestamppb.Timestamp {
	if t.IsZero() {
		return nil
	}
	return timestamppb.New(t)
}

func (r *protoReader) time(at, field string, t *timestamppb.Timestamp) time.Time {
	if t == nil {
		return time.Time{}
	}
	if !t.IsValid() {
		r.fault(at, field, "is not an instant between the years 1 and 9999: %d seconds, %d nanoseconds", t.GetSeconds(), t.GetNanos())
		return time.Time{}
	}
	return t.AsTime()
}

// nanos returns Unix nanoseconds, 0 for the zero time.
func nanos(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixNano()
}

// instant is the inverse of nanos.
func instant(n int64) time.Time {
	if n == 0 {
		return time.Time{}
	}
	return time.Unix(0, n).UTC()
}

// protoDuration returns nil for zero.
func protoDuration(d time.Duration) *durationpb.Duration {
	if d == 0 {
		return nil
	}
	return durationpb.New(d)
}

func (r *protoReader) duration(at, field string, d *durationpb.Duration) time.Duration {
	if d == nil {
		return 0
	}
	const most = int64(1<<63-1) / int64(time.Second) // most seconds in a duration
	if s := d.GetSeconds(); !d.IsValid() || s >= most || s <= -most {
		r.fault(at, field, "is not a duration of less than %d years: %d seconds, %d nanoseconds", most/(365*24*3600), s, d.GetNanos())
		return 0
	}
	return d.AsDuration()
}

func (r *protoReader) int(at, field string, n int64) int {
	if int64(int(n)) != n {
		r.fault(at, field, "%d is out of range", n)
		return 0
	}
	return int(n)
}

// protoID returns "" for no job.
func protoID(id gq.JobID) string {
	if id.IsZero() {
		return ""
	}
	return id.String()
}

// id decodes a job id, which may be empty.
func (r *protoReader) id(at, field, text string) gq.JobID {
	if text == "" {
		return gq.JobID{}
	}
	return r.job(at, field, text)
}

// job decodes a required job id.
func (r *protoReader) job(at, field, text string) gq.JobID {
	id, err := gq.ParseJobID(text)
	for _, f := range errs.FaultsOf(err) {
		r.fault(at, field, "%s", f.Problem)
	}
	return id
}

// JobIDFromProto decodes the job id of a request.
func JobIDFromProto(text string) (gq.JobID, error) { return gq.ParseJobID(text) }

// DurationFromProto decodes a duration; absent is 0.
func DurationFromProto(field string, d *durationpb.Duration) (time.Duration, error) {
	var r protoReader
	out := r.duration("", field, d)
	return out, r.err()
}

// TimeFromProto decodes a time; absent is the zero time.
func TimeFromProto(field string, t *timestamppb.Timestamp) (time.Time, error) {
	var r protoReader
	out := r.time("", field, t)
	return out, r.err()
}

// ProtoTime returns nil for the zero time.
func ProtoTime(t time.Time) *timestamppb.Timestamp { return protoTime(t) }

// ProtoDuration returns nil for 0.
func ProtoDuration(d time.Duration) *durationpb.Duration { return protoDuration(d) }

// Prose makes text for people valid UTF-8, as the domain does before storing it. Names
// are not repaired: an invalid one is rejected.
func Prose(s string) string {
	if utf8.ValidString(s) {
		return s
	}
	return strings.ToValidUTF8(s, string(utf8.RuneError))
}

// labels copies a map, since messages outlive the call; empty maps become nil.
func labels(m map[string]string) map[string]string {
	if len(m) == 0 {
		return nil
	}
	return maps.Clone(m)
}
