package wire

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
	"github.com/gopherqueue/gq/machine"
)

// The protobuf form. ProtoX makes a message of a value and never fails: what
// cannot be right is sent as it is, for the other side to refuse. XFromProto
// reads a message and reports everything that no value can be made of, by the
// names of the fields: [gq.ErrInvalid]. What is merely wrong is left to the
// engine, so that every face answers alike.

// protoReader gathers what is wrong with a message. Field names are put
// together only where there is something to report: at is what stands before
// the name.
type protoReader struct{ faults []gq.Fault }

func (r *protoReader) fault(at, field, format string, args ...any) {
	r.faults = append(r.faults, gq.Fault{Field: at + field, Problem: fmt.Sprintf(format, args...)})
}

// nested takes over the faults of a part, below a name.
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

// readEnum reads a value of a vocabulary whose last word is given. The words
// have the same numbers on both sides; tests hold them together.
func readEnum[G ~uint8, P ~int32](r *protoReader, at, field string, v P, last G) G {
	if v < 0 || int64(v) > int64(last) {
		r.fault(at, field, "%d is not a value known here", v)
		return 0
	}
	return G(v)
}

// protoTime is absent for the zero instant.
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

// nanos counts from 1970; 0 is the zero instant.
func nanos(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixNano()
}

// instant reads what nanos wrote.
func instant(n int64) time.Time {
	if n == 0 {
		return time.Time{}
	}
	return time.Unix(0, n).UTC()
}

// protoDuration is absent for zero.
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
	const most = int64(1<<63-1) / int64(time.Second) // seconds that a duration can hold
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

// protoID is empty for no job.
func protoID(id gq.JobID) string {
	if id.IsZero() {
		return ""
	}
	return id.String()
}

// id reads the id of a job, which may be empty for none.
func (r *protoReader) id(at, field, text string) gq.JobID {
	if text == "" {
		return gq.JobID{}
	}
	return r.job(at, field, text)
}

// job reads the id of a job.
func (r *protoReader) job(at, field, text string) gq.JobID {
	id, err := machine.ParseJobID(text)
	for _, f := range errs.FaultsOf(err) {
		r.fault(at, field, "%s", f.Problem)
	}
	return id
}

// JobIDFromProto reads the id that a request is about.
func JobIDFromProto(text string) (gq.JobID, error) { return machine.ParseJobID(text) }

// DurationFromProto reads a duration, absent for 0.
func DurationFromProto(field string, d *durationpb.Duration) (time.Duration, error) {
	var r protoReader
	out := r.duration("", field, d)
	return out, r.err()
}

// ProtoDuration is absent for 0.
func ProtoDuration(d time.Duration) *durationpb.Duration { return protoDuration(d) }

// Prose makes a text for people fit for the wire, as the domain does with what
// it stores. Names are not mended: an invalid one is refused.
func Prose(s string) string {
	if utf8.ValidString(s) {
		return s
	}
	return strings.ToValidUTF8(s, string(utf8.RuneError))
}

// labels copies a map that is not empty, since messages are kept.
func labels(m map[string]string) map[string]string {
	if len(m) == 0 {
		return nil
	}
	return maps.Clone(m)
}
