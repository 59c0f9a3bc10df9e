package matchmaker_test

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gopherqueue/gq/engine"
	"github.com/gopherqueue/gq/internal/errs"
	"github.com/gopherqueue/gq/internal/matchmaker"
	"github.com/gopherqueue/gq/internal/testing/spec"
	"github.com/gopherqueue/gq/store"
	"github.com/gopherqueue/gq/store/local"
)

// interrupted is a store that calls a function right before the next commit of a round.
type interrupted struct {
	store.Store
	store.Changer
	before func()
}

func (s *interrupted) Change(ctx context.Context, c store.Change) (store.Changed, error) {
	if call := s.before; call != nil && len(c.Updates) > 0 {
		s.before = nil
		call()
	}
	return s.Changer.Change(ctx, c)
}

// A round sees the providers at one moment. One that joins during the round waits for the
// next; one that joins through another server invalidates it, and the round is computed
// again with all of them.
func TestOneSnapshotForARound(t *testing.T) {
	spec.Covers(t, "M-38")
	raw := openStore(t)
	s := &interrupted{Store: raw, Changer: raw.(store.Changer)}
	e, err := engine.New(raw, engine.Options{})
	if err != nil {
		t.Fatal(err)
	}
	d, err := matchmaker.New(e, s, matchmaker.Options{})
	if err != nil {
		t.Fatal(err)
	}
	f := &fixture{t, d, e, raw}
	f.unhurried()
	f.provider("a")
	f.submit()
	f.submit()

	joined := make(chan struct{})
	s.before = func() {
		go func() {
			defer close(joined)
			f.provider("b")
		}()
	}
	first := f.round()
	if !slices.Equal(first.Order, []string{"a"}) || len(first.Assignments) != 2 {
		t.Errorf("the round that was under way: %+v", first)
	}
	<-joined
	f.submit()
	if r := f.round(); len(r.Order) != 2 || !slices.Contains(r.Order, "b") {
		t.Errorf("the next round: %+v", r)
	}

	g := f.another(matchmaker.Options{})
	f.submit()
	s.before = func() { g.provider("c") }
	r := f.round()
	if !slices.Contains(r.Order, "c") || len(r.Assignments) != 1 || r.Number != first.Number+2 {
		t.Errorf("the round that was decided anew: %+v", r)
	}
	for n := uint64(1); n <= r.Number; n++ { // each with the snapshot in its record
		rec, err := f.RoundRecord(t.Context(), n)
		if err != nil {
			t.Fatal(err)
		}
		if err := rec.Check(); err != nil {
			t.Error(err)
		}
	}
}

// jumping is a wall clock that a test sets.
type jumping struct{ by time.Duration }

func (c *jumping) Now() time.Time { return time.Now().Add(c.by) }

// Leases use a clock that never goes back: setting the wall clock back changes neither
// the length of a lease nor what a renewal adds.
func TestWallClockJumps(t *testing.T) {
	spec.Covers(t, "M-51")
	synctest.Test(t, func(t *testing.T) {
		clock := &jumping{}
		s, err := local.OpenMemory(local.Options{Config: store.Config{Clock: clock}})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		f := newFixture(t, s, matchmaker.Options{})
		f.provider("p")
		f.submit()
		f.submit(quantum)
		r := f.round()
		var leases []matchmaker.Lease
		for _, a := range r.Assignments {
			leases = append(leases, f.ack(f.lease(a.Lease)))
		}
		if len(leases) != 2 {
			t.Fatalf("%+v", r)
		}
		time.Sleep(time.Minute)
		clock.by = -time.Hour
		for i, l := range leases {
			lasts := 600 * time.Second
			if l.Kind.String() == "QUANTUM" {
				lasts = 180 * time.Second
			}
			if l.Deadline.Sub(l.Start) != lasts {
				t.Errorf("%s lasts %v", l.Kind, l.Deadline.Sub(l.Start))
			}
			renewed, err := f.Renew(t.Context(), matchmaker.Ref{Lease: l.ID})
			if err != nil || renewed.Start != l.Start || renewed.Deadline != l.Deadline.Add(lasts/2) || renewed.RenewBy != l.RenewBy.Add(lasts/2) {
				t.Errorf("renewed after the jump: %v\n%+v\n%+v", err, l, renewed)
			}
			leases[i] = renewed
		}
		for _, l := range leases {
			if err := f.complete(l); err != nil {
				t.Errorf("completed after the jump: %v", err)
			}
		}
		f.submit()
		later := f.assigned()
		if later.Start.Before(leases[0].Start) || later.Deadline.Sub(later.Start) != 600*time.Second {
			t.Errorf("a lease after the jump: %+v", later)
		}
		if _, err := f.Ack(t.Context(), matchmaker.Ref{Lease: later.ID}); errs.KindOf(err) != 0 && err != nil {
			t.Error(err)
		}
	})
}
