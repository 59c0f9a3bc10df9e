package local

import (
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/machine"
	"github.com/gopherqueue/gq/store"
)

// The news of a commit names the first instant at which time changes something, whatever it is: a job that is delayed,
// a lease, or a finished job that is not kept for longer.
func TestNewsNamesTheFirstInstant(t *testing.T) {
	clock := &stillClock{fixtureStart}
	s, err := open("db", Options{Config: store.Config{Clock: clock}, fs: vfs.NewMem()})
	if err != nil {
		t.Fatal(err)
	}
	told := make(chan store.News, 100)
	defer s.Notify(false, func(n store.News) { told <- n })()
	due := func(after string, want time.Duration) {
		t.Helper()
		if n := <-told; !n.Due.Equal(fixtureStart.Add(want)) {
			t.Errorf("after %s the news names %v, want %v", after, n.Due, fixtureStart.Add(want))
		}
	}
	insert := func(spec gq.Spec) gq.JobID {
		t.Helper()
		out, err := s.Insert(t.Context(), []store.Group{{Jobs: []gq.Spec{spec.WithDefaults()}, Mint: true}})
		if err != nil || out[0].Err != nil {
			t.Fatal(err, out)
		}
		return out[0].Jobs[0].State.ID
	}
	insert(gq.Spec{ID: numberedID(1), Type: "t", Delay: time.Hour})
	due("a delayed job", time.Hour)
	insert(gq.Spec{ID: numberedID(2), Type: "t"})
	due("a job that can run at once", time.Hour)
	out, err := s.Claim(t.Context(), []store.Claim{{Filter: store.Filter{Queues: []string{gq.DefaultQueue}}, N: 1, Worker: "w", TTL: time.Minute}})
	if err != nil || len(out[0].Jobs) != 1 {
		t.Fatal(err, out)
	}
	due("a claim", time.Minute)
	var updates []store.Update
	for i, kept := range []time.Duration{20 * time.Second, 30 * time.Second, 40 * time.Second} {
		spec := gq.Spec{ID: numberedID(3 + i), Type: "t", Policy: machine.DefaultPolicy()}
		spec.Policy.Retention, spec.Policy.IdempotencyWindow = kept, kept
		id := insert(spec)
		due("a job like the others", time.Minute)
		updates = append(updates, store.Update{Ref: store.Ref{Job: id}, Apply: func(s gq.State, now time.Time) (gq.State, []gq.Event, error) {
			return machine.Cancel(s, "", now)
		}})
	}
	if _, err := s.Update(t.Context(), updates); err != nil {
		t.Fatal(err)
	}
	due("the end of three jobs in one commit", 20*time.Second)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}
