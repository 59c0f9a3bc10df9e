package wire

import (
	"bytes"
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/internal/enum"
	"github.com/gopherqueue/gq/machine"
)

// The fast and the plain encoder write the same.
func TestFrames(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var raw [16]byte
		copy(raw[:], rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, "id"))
		text := rapid.OneOf(rapid.Just(""), rapid.String(), rapid.SampledFrom([]string{"a\"b", "<b>&", "\u2028", "\x00", "\\"}))
		at := func(name string) time.Time {
			if rapid.Bool().Draw(t, name+" zero") {
				return time.Time{}
			}
			return time.Unix(rapid.Int64Range(0, 4e9).Draw(t, name), rapid.Int64Range(0, 999_999_999).Draw(t, name+" ns"))
		}
		e := gq.Event{
			Seq: rapid.Uint64().Draw(t, "seq"), Time: at("time"), Queue: text.Draw(t, "queue"), Job: machine.NewJobID(raw),
			Type: rapid.SampledFrom(enum.All[gq.EventType]()).Draw(t, "type"), Status: rapid.SampledFrom(enum.All[gq.Status]()).Draw(t, "status"),
			Attempt: rapid.IntRange(0, 5).Draw(t, "attempt"), Lease: gq.LeaseID(text.Draw(t, "lease")),
			Version: gq.LeaseVersion(rapid.Uint64Range(0, 3).Draw(t, "version")), LeaseState: gq.LeaseState(rapid.IntRange(0, 4).Draw(t, "lease state")),
			Worker: text.Draw(t, "worker"), CostUnits: rapid.Int64Range(0, 3).Draw(t, "cost"), Until: at("until"),
			Detail: gq.Detail(rapid.IntRange(0, 2).Draw(t, "detail")), Reason: text.Draw(t, "reason"), Elapsed: time.Duration(rapid.Int64Range(0, 2e9).Draw(t, "elapsed")), TraceParent: text.Draw(t, "trace"),
			JobType: text.Draw(t, "job type"), Note: text.Draw(t, "note"), Progress: rapid.Float64Range(0, 1).Draw(t, "progress"),
		}
		if rapid.Bool().Draw(t, "failed") {
			e.Failure = &gq.Failure{Category: gq.CategoryTemporary, Code: text.Draw(t, "code"), Message: text.Draw(t, "message"), RetryAfter: time.Duration(rapid.Int64Range(0, 2e9).Draw(t, "after"))}
		}
		events := []gq.Event{e, e, e, e} // the second one shares time and job with the first
		events[1].Seq++
		events[2].Time = events[2].Time.Add(time.Second)
		events[3].Job[0]++
		f := FramesOf(events)
		var all []byte
		for i := range events {
			var want bytes.Buffer
			if err := EncodeJSON(&want, EventOf(&events[i])); err != nil {
				t.Fatal(err)
			}
			text := string(bytes.TrimSpace(want.Bytes()))
			if got := f.JSON(i); string(got) != text {
				t.Errorf("%s\nwant %s", got, text)
			}
			frame := fmt.Sprintf("id: %d\nevent: %s\ndata: %s\n\n", events[i].Seq, events[i].Type, text)
			if got := f.Between(i, i+1); string(got) != frame {
				t.Errorf("%s\nwant %s", got, frame)
			}
			all = append(all, frame...)
		}
		if got := f.Between(0, len(events)); string(got) != string(all) {
			t.Errorf("%s\nwant %s", got, all)
		}
		if got := f.Between(0, 0); len(got) != 0 {
			t.Errorf("no frames are %q", got)
		}
	})
}

// BenchmarkFrames encodes a page of events of a few commits.
func BenchmarkFrames(b *testing.B) {
	const page = 1000
	events := make([]gq.Event, page)
	for i := range events {
		events[i] = gq.Event{Seq: uint64(i) + 12345, Time: time.Unix(1e9, int64(i/100)), Queue: "mail", Job: machine.NewJobID([16]byte{1}), Type: gq.EventScheduled, Status: gq.StatusScheduled}
	}
	b.ReportAllocs()
	for b.Loop() {
		_ = FramesOf(events)
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/page, "ns/event")
}
