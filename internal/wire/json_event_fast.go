package wire

import (
	"strconv"
	"time"

	"github.com/gopherqueue/gq"
)

// Frames are events encoded as server-sent events, with the sequence number as the id.
// The returned bytes must not be modified.
type Frames struct {
	text  []byte
	marks []mark
}

// mark has the offsets where an event's JSON begins and where its frame ends.
type mark struct{ json, end int }

const (
	frameSize = 256 // typical frame size
	frameEnd  = "\n\n"
)

// FramesOf encodes events. Encoding many at once is fast because events of one commit
// share the time, and some share the job.
func FramesOf(events []gq.Event) Frames {
	f := Frames{text: make([]byte, 0, len(events)*frameSize), marks: make([]mark, len(events))}
	var w eventWriter
	b := f.text
	for i := range events {
		e := &events[i]
		b = append(b, "id: "...)
		at := len(b)
		b = strconv.AppendUint(b, e.Seq, 10)
		seq := b[at:]
		b = append(b, "\nevent: "...)
		b = append(b, e.Type.String()...)
		b = append(b, "\ndata: "...)
		f.marks[i].json = len(b)
		b = w.append(b, seq, e)
		b = append(b, frameEnd...)
		f.marks[i].end = len(b)
	}
	f.text = b
	return f
}

// JSON returns the event at i without its frame.
func (f *Frames) JSON(i int) []byte {
	end := f.marks[i].end - len(frameEnd)
	return f.text[f.marks[i].json:end:end]
}

// Between returns the frames from one event up to, but not including, another.
func (f *Frames) Between(from, to int) []byte {
	begin, end := 0, 0
	if from > 0 {
		begin = f.marks[from-1].end
	}
	if to > 0 {
		end = f.marks[to-1].end
	}
	return f.text[begin:end:end]
}

// eventWriter encodes events like the JSON of [EventOf], but many times faster.
type eventWriter struct {
	at     time.Time // the last encoded time,
	atText []byte    // and its text
	id     gq.JobID  // likewise: the first events of a job are adjacent
	idText []byte
}

func (w *eventWriter) append(b, seq []byte, e *gq.Event) []byte {
	b = append(b, `{"seq":`...)
	b = append(b, seq...)
	b = append(b, `,"time":`...)
	if w.atText == nil || e.Time != w.at {
		w.at, w.atText = e.Time, appendTime(w.atText[:0], e.Time)
	}
	b = append(b, w.atText...)
	b = append(b, `,"entity":`...)
	if e.Type.OfProvider() {
		b = appendText(b, e.Worker)
	} else {
		b = append(w.appendID(append(b, '"'), e), '"')
	}
	b = append(b, `,"type":"`...)
	b = append(b, e.Type.String()...)
	b = append(b, `","data":{`...)
	open := len(b)
	b = appendWord(b, open, `"queue":`, e.Queue)
	b = appendWord(b, open, `"job_type":`, e.JobType)
	if e.Status != 0 {
		b = appendWord(b, open, `"state":`, e.Status.String())
	}
	b = appendNumber(b, open, `"attempt":`, int64(e.Attempt))
	b = appendWord(b, open, `"detail":`, e.Detail.String())
	b = appendWord(b, open, `"lease_id":`, string(e.Lease))
	if e.Version != 0 {
		b = appendMember(b, open, `"version":`)
		b = strconv.AppendUint(b, uint64(e.Version), 10)
	}
	if e.LeaseState != 0 {
		b = appendWord(b, open, `"lease_state":`, e.LeaseState.String())
	}
	b = appendWord(b, open, `"worker":`, e.Worker)
	b = appendNumber(b, open, `"cost_units":`, e.CostUnits)
	if !e.Until.IsZero() {
		b = appendMember(b, open, `"until":`)
		b = appendTime(b, e.Until)
	}
	if e.Failure != nil && *e.Failure != (gq.Failure{}) {
		if text, err := marshal(failureOf(e.Failure)); err == nil {
			b = appendMember(b, open, `"failure":`)
			b = append(b, text...)
		}
	}
	b = appendWord(b, open, `"reason":`, e.Reason)
	if e.Type == gq.EventProgress {
		if text, err := marshal(e.Progress); err == nil {
			b = append(appendMember(b, open, `"progress":`), text...)
		}
	}
	b = appendWord(b, open, `"note":`, e.Note)
	if e.Elapsed != 0 {
		b = appendWord(b, open, `"elapsed":`, e.Elapsed.String())
	}
	b = appendWord(b, open, `"traceparent":`, e.TraceParent)
	return append(b, '}', '}')
}

// appendID appends the id of an event's job.
func (w *eventWriter) appendID(b []byte, e *gq.Event) []byte {
	if w.idText == nil || e.Job != w.id {
		w.id = e.Job
		w.idText, _ = e.Job.AppendText(w.idText[:0]) // never fails
	}
	return append(b, w.idText...)
}

// appendMember starts a member of the object that begins at open.
func appendMember(b []byte, open int, name string) []byte {
	if len(b) > open {
		b = append(b, ',')
	}
	return append(b, name...)
}

func appendWord(b []byte, open int, name, value string) []byte {
	if value == "" {
		return b
	}
	return appendText(appendMember(b, open, name), value)
}

func appendNumber(b []byte, open int, name string, value int64) []byte {
	if value == 0 {
		return b
	}
	return strconv.AppendInt(appendMember(b, open, name), value, 10)
}

func appendTime(b []byte, t time.Time) []byte {
	b = append(b, '"')
	if t.IsZero() {
		t = time.Time{}
	}
	b = t.UTC().AppendFormat(b, time.RFC3339Nano)
	return append(b, '"')
}

// appendText appends a string, optimized for text that needs no escaping.
func appendText(b []byte, s string) []byte {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c > '~' || c == '"' || c == '\\' {
			text, err := marshal(s)
			if err != nil {
				panic(err) // encoding a string never fails
			}
			return append(b, text...)
		}
	}
	b = append(b, '"')
	b = append(b, s...)
	return append(b, '"')
}
