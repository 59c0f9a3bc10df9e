package engine_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/engine"
	"github.com/gopherqueue/gq/internal/errs"
)

// checkingCallbacks delivers nothing.
type checkingCallbacks func(url string) error

func (c checkingCallbacks) CheckURL(url string) error   { return c(url) }
func (checkingCallbacks) CatchUp(context.Context) error { return nil }

// TestCallbacksAreCheckedWhenGiven checks that every call with an undeliverable callback
// URL is refused, but not the replay of a job that was accepted earlier.
func TestCallbacksAreCheckedWhenGiven(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const bad = "http://bad.example/"
		on := false
		f := newFixture(t, engine.Options{}, nil)
		f.UseCallbacks(checkingCallbacks(func(url string) error {
			if on && url == bad {
				return errors.New("is bad")
			}
			return nil
		}))
		spec := gq.Spec{Type: "t", Metadata: gq.Metadata{CallbackURL: bad}}
		every := gq.Schedule{Name: "s", Every: time.Minute, Template: spec}
		if _, err := f.PutSchedule(t.Context(), every); err != nil {
			t.Fatal(err)
		}
		old := f.submit(spec)
		on = true

		refused := func(what, field string, err error) {
			t.Helper()
			faults := errs.FaultsOf(err)
			if len(faults) != 1 || faults[0].Field != field || !strings.Contains(faults[0].Problem, "is bad") {
				t.Errorf("%s: %v, want a fault of %s", what, err, field)
			}
		}
		_, err := f.Submit(t.Context(), spec)
		refused("submit", "callback_url", err)
		batch, err := f.SubmitBatch(t.Context(), []gq.Spec{spec, {Type: "t"}})
		if err != nil || batch[1].Err != nil {
			t.Fatalf("a batch with one bad address: %v, %+v", err, batch)
		}
		refused("batch", "callback_url", batch[0].Err)
		_, err = f.SubmitGraph(t.Context(), []gq.GraphJob{{Spec: spec}})
		refused("graph", "jobs[0].callback_url", err)
		address := bad
		_, err = f.UpdateMetadata(t.Context(), batch[1].ID(), gq.MetadataPatch{CallbackURL: &address})
		refused("update", "callback_url", err)
		_, err = f.PutSchedule(t.Context(), gq.Schedule{Name: "other", Every: time.Minute, Template: spec})
		refused("schedule", "template.callback_url", err)
		if _, err := f.Cancel(t.Context(), batch[1].ID(), ""); err != nil {
			t.Fatal(err)
		}
		held := f.claim(1)[0]
		answers, err := f.Settle(t.Context(), []gq.Outcome{{Lease: held.State.Lease.Ref(), Verdict: gq.VerdictComplete, Spawn: []gq.Spec{spec}}})
		if err != nil {
			t.Fatal(err)
		}
		refused("spawn", "spawn[0].callback_url", answers[0].Err)

		if _, err := f.Cancel(t.Context(), old, ""); err != nil {
			t.Fatal(err)
		}
		if _, err := f.Complete(t.Context(), held.State.Lease.Ref(), nil); err != nil {
			t.Fatal(err)
		}
		if _, err := f.Replay(t.Context(), old); err != nil {
			t.Errorf("a replay of a job that was accepted: %v", err)
		}
		time.Sleep(time.Minute)
		if _, err := f.Sweep(t.Context(), time.Now()); err != nil {
			t.Fatal(err)
		}
		if s, err := f.Schedule(t.Context(), "s"); err != nil || s.Fired != 1 {
			t.Errorf("a schedule that was accepted fired %d times, %v, want once", s.Fired, err)
		}
	})
}
