package wire

import (
	"bytes"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/gopherqueue/gq"
)

// The fast way and the plain way write the same.
func TestAppendEvent(t *testing.T) {
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
			Seq: rapid.Uint64().Draw(t, "seq"), Time: at("time"), Queue: text.Draw(t, "queue"), Job: gq.NewJobID(raw),
			Type: rapid.SampledFrom(gq.EventTypes()).Draw(t, "type"), Status: rapid.SampledFrom(gq.Statuses()).Draw(t, "status"),
			Attempt: rapid.IntRange(0, 5).Draw(t, "attempt"), Lease: gq.LeaseID(text.Draw(t, "lease")),
			Version: gq.LeaseVersion(rapid.Uint64Range(0, 3).Draw(t, "version")), LeaseState: gq.LeaseState(rapid.IntRange(0, 4).Draw(t, "lease state")),
			Worker: text.Draw(t, "worker"), CostUnits: rapid.Int64Range(0, 3).Draw(t, "cost"), Until: at("until"),
			Detail: gq.Detail(rapid.IntRange(0, 2).Draw(t, "detail")), Reason: text.Draw(t, "reason"),
		}
		if rapid.Bool().Draw(t, "failed") {
			e.Failure = &gq.Failure{Category: gq.CategoryTemporary, Code: text.Draw(t, "code"), Message: text.Draw(t, "message"), RetryAfter: time.Duration(rapid.Int64Range(0, 2e9).Draw(t, "after"))}
		}
		var want bytes.Buffer
		if err := EncodeJSON(&want, EventOf(&e)); err != nil {
			t.Fatal(err)
		}
		if got := AppendEvent(nil, &e); string(got) != string(bytes.TrimSpace(want.Bytes())) {
			t.Errorf("%s\nwant %s", got, want.Bytes())
		}
	})
}

func BenchmarkAppendEvent(b *testing.B) {
	e := gq.Event{Seq: 12345, Time: time.Now(), Queue: "mail", Job: gq.NewJobID([16]byte{1}), Type: gq.EventStarted, Status: gq.Running, Attempt: 1, Lease: "lease", Version: 1, LeaseState: gq.LeaseActive, Worker: "w", Until: time.Now()}
	b.ReportAllocs()
	for b.Loop() {
		_ = AppendEvent(make([]byte, 0, 400), &e)
	}
}
