package wire

import (
	"strconv"
	"time"

	"github.com/gopherqueue/gq"
)

// AppendEvent appends an event as [EventOf] is written, several times faster:
// every event is written for whoever follows them.
func AppendEvent(b []byte, e *gq.Event) []byte {
	b = append(b, `{"seq":`...)
	b = strconv.AppendUint(b, e.Seq, 10)
	b = append(b, `,"time":`...)
	b = appendTime(b, e.Time)
	b = append(b, `,"entity":"`...)
	b = append(b, e.Job.String()...)
	b = append(b, `","type":`...)
	b = appendText(b, e.Type.String())
	b = append(b, `,"data":{`...)
	open := len(b)
	member := func(name string) {
		if len(b) > open {
			b = append(b, ',')
		}
		b = append(b, '"')
		b = append(b, name...)
		b = append(b, `":`...)
	}
	word := func(name, value string) {
		if value != "" {
			member(name)
			b = appendText(b, value)
		}
	}
	number := func(name string, value int64) {
		if value != 0 {
			member(name)
			b = strconv.AppendInt(b, value, 10)
		}
	}
	word("queue", e.Queue)
	if e.Status != 0 {
		word("state", e.Status.String())
	}
	number("attempt", int64(e.Attempt))
	word("detail", e.Detail.String())
	word("lease_id", string(e.Lease))
	if e.Version != 0 {
		member("version")
		b = strconv.AppendUint(b, uint64(e.Version), 10)
	}
	if e.LeaseState != 0 {
		word("lease_state", e.LeaseState.String())
	}
	word("worker", e.Worker)
	number("cost_units", e.CostUnits)
	if !e.Until.IsZero() {
		member("until")
		b = appendTime(b, e.Until)
	}
	if e.Failure != nil && *e.Failure != (gq.Failure{}) {
		if text, err := marshal(failureOf(e.Failure)); err == nil {
			member("failure")
			b = append(b, text...)
		}
	}
	word("reason", e.Reason)
	return append(b, '}', '}')
}

func appendTime(b []byte, t time.Time) []byte {
	b = append(b, '"')
	if t.IsZero() {
		t = time.Time{}
	}
	b = t.UTC().AppendFormat(b, time.RFC3339Nano)
	return append(b, '"')
}

// appendText appends a string that mostly needs no escaping.
func appendText(b []byte, s string) []byte {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c > '~' || c == '"' || c == '\\' {
			text, err := marshal(s)
			if err != nil {
				panic(err) // a string can always be written
			}
			return append(b, text...)
		}
	}
	b = append(b, '"')
	b = append(b, s...)
	return append(b, '"')
}
