package delivery

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/gopherqueue/gq"
)

// A job that is edited or put off goes on as another one: only the end of that one is delivered. One
// that another submission replaces has ended.
func TestReplacedJobsAreDeliveredOnce(t *testing.T) {
	f := newFixture(t)
	ctx := t.Context()
	r := f.receiver(http.StatusNoContent)
	h, _ := f.hooks(Options{})
	submit := func(s gq.Spec) gq.JobID {
		t.Helper()
		s.Type, s.Metadata.CallbackURL = "t", r.URL
		out, err := f.engine.Submit(ctx, s)
		if err != nil {
			t.Fatal(err)
		}
		return out.ID()
	}
	edited, err := f.engine.Edit(ctx, submit(gq.Spec{}), gq.JobEdit{Payload: &gq.Payload{Data: []byte("2")}})
	if err != nil {
		t.Fatal(err)
	}
	putOff, err := f.engine.Reschedule(ctx, submit(gq.Spec{}), time.Now().Add(time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	unique := gq.Spec{Key: gq.IdempotencyKey{Name: "k"}, Unique: gq.UniqueRule{While: gq.WhileWaiting, OnCollision: gq.Replace}}
	first := submit(unique)
	second := submit(unique)
	want := []gq.JobID{edited.ID(), putOff.ID, first, second}
	for _, id := range []gq.JobID{edited.ID(), putOff.ID, second} {
		if _, err := f.engine.Cancel(ctx, id, ""); err != nil {
			t.Fatal(err)
		}
	}
	f.until("the deliveries", func() bool { return len(f.state(h, Delivered)) >= len(want) })
	f.finish(r.URL) // the last event
	f.until("the last delivery", func() bool { return len(f.state(h, Delivered)) > len(want) })
	var all strings.Builder
	for _, got := range r.requests() {
		all.Write(got.body)
	}
	for _, id := range want {
		if n := strings.Count(all.String(), `"id":"`+id.String()+`"`); n != 1 {
			t.Errorf("the end of job %s was delivered %d times", id, n)
		}
	}
	if n := len(r.requests()); n != len(want)+1 {
		t.Errorf("%d deliveries, want %d", n, len(want)+1)
	}
}
