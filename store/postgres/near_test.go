package postgres_test

import (
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/internal/testing/pgtest"
	"github.com/gopherqueue/gq/machine"
	"github.com/gopherqueue/gq/store"
)

// TestFarJobs: a job that is due in days is not in the index of sweeps. It is listed as due at
// the instant all the same, on every node, however it got its due time and even if nobody
// asked for days.
func TestFarJobs(t *testing.T) {
	const life = 7 * 24 * time.Hour
	far := func(t *testing.T, url string) int {
		return number(t, url, "SELECT count(*) FROM gq.ready WHERE far")
	}
	due := func(t *testing.T, s store.Store) store.Due {
		t.Helper()
		d, err := s.Due(t.Context(), 1000)
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	insert := func(t *testing.T, s store.Store, mint bool, specs ...gq.Spec) (ids []gq.JobID) {
		t.Helper()
		out, err := s.Insert(t.Context(), []store.Group{{Jobs: specs, Mint: mint}})
		if err != nil || out[0].Err != nil {
			t.Fatal(out, err)
		}
		for _, p := range out[0].Jobs {
			ids = append(ids, p.State.ID)
		}
		return ids
	}
	for name, wait := range map[string][]time.Duration{
		"asked every hour": slices.Repeat([]time.Duration{time.Hour}, 7*24-1),
		"asked at the end": {life - time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			url, clock := pgtest.Database(t), newCalendar()
			a, b := open(t, url, store.Config{Clock: clock}), open(t, url, store.Config{Clock: clock})
			start := clock.Now()
			// Jobs of their own, with an id and without, many at once, one that goes back,
			// and one that is due soon.
			want := append(insert(t, a, true, newSpec("q")), insert(t, a, false, newSpec("q"))...)
			batch := make([]gq.Spec, 600)
			for i := range batch {
				batch[i] = newSpec("q")
			}
			batch[7].Type = "other"
			want = append(want, insert(t, a, true, batch...)...)
			want = append(want, insert(t, a, true, slices.Repeat([]gq.Spec{newSpec("q")}, 20)...)...)
			if n := far(t, url); n != len(want) {
				t.Errorf("%d of %d jobs are far", n, len(want))
			}
			claimed, err := b.Claim(t.Context(), []store.Claim{claimFrom("q", 1)})
			if err != nil || len(claimed[0].Jobs) != 1 {
				t.Fatal(claimed, err)
			}
			back := completing(claimed[0].Jobs[0])
			back.Apply = func(s gq.State, now time.Time) (gq.State, []gq.Event, error) {
				return machine.Release(s, claimed[0].Jobs[0].State.Lease.Ref(), 0, "", now)
			}
			if out, err := b.Update(t.Context(), []store.Update{back}); err != nil || out[0].Err != nil {
				t.Fatal(out, err)
			}
			soon := newSpec("q")
			soon.Policy.Lifetime = time.Hour
			first := insert(t, a, true, soon)[0]
			if d := due(t, a); len(d.Jobs) != 0 || !d.Next.Equal(start.Add(time.Hour)) {
				t.Errorf("due are %v, next %v", d.Jobs, d.Next)
			}
			if n := far(t, url); n != len(want) {
				t.Errorf("%d of %d jobs are far after one went back", n, len(want))
			}
			for i, d := range wait {
				clock.pass(d)
				for _, s := range []store.Store{a, b} {
					if d := due(t, s); !slices.Equal(d.Jobs, []gq.JobID{first}) || d.Next.After(start.Add(life)) || !d.Next.After(clock.Now()) {
						t.Fatalf("step %d: due are %v, next %v", i, d.Jobs, d.Next)
					}
				}
			}
			if d := due(t, a); !d.Next.Equal(start.Add(life)) {
				t.Errorf("an hour before, next is %v", d.Next)
			}
			clock.pass(time.Hour - 1)
			if d := due(t, b); len(d.Jobs) != 1 {
				t.Errorf("before their time %d jobs are due", len(d.Jobs))
			}
			clock.pass(1)
			for _, s := range []store.Store{a, b} {
				if d := due(t, s); !slices.Equal(d.Jobs[1:], want) || !d.Next.IsZero() && d.Next.Before(clock.Now().Add(store.DueExactly)) {
					t.Errorf("%d jobs are due, next %v; want %d", len(d.Jobs), d.Next, len(want)+1)
				}
			}
			if n := far(t, url); n != 0 {
				t.Errorf("%d jobs are still far", n)
			}
		})
	}
}

// TestFarJobsThatAreLocked: a job that another transaction has locked when its time comes is
// listed a minute after that has ended.
func TestFarJobsThatAreLocked(t *testing.T) {
	url, clock := pgtest.Database(t), newCalendar()
	s := open(t, url, store.Config{Clock: clock})
	spec := newSpec("q")
	mustInsert(t, s, spec)
	tx, err := connect(t, url).Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(t.Context(), "SELECT FROM gq.ready FOR UPDATE"); err != nil {
		t.Fatal(err)
	}
	clock.pass(8 * 24 * time.Hour)
	if d, err := s.Due(t.Context(), 10); err != nil || len(d.Jobs) != 0 {
		t.Fatal(d, err)
	}
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	clock.pass(time.Minute + 1)
	if d, err := s.Due(t.Context(), 10); err != nil || !slices.Equal(d.Jobs, []gq.JobID{spec.ID}) {
		t.Errorf("due are %v, %v; want %s", d.Jobs, err, spec.ID)
	}
}

// TestFarJobsBelowAFloor: sweeps have passed the due time of a far job that was locked when its
// time came. It is listed all the same once it is near.
func TestFarJobsBelowAFloor(t *testing.T) {
	url, clock := pgtest.Database(t), newCalendar()
	s := open(t, url, store.Config{Clock: clock})
	s.RaiseEvery(math.MaxInt)
	spec := newSpec("q")
	mustInsert(t, s, spec)
	tx, err := connect(t, url).Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(t.Context(), "SELECT FROM gq.ready FOR UPDATE"); err != nil {
		t.Fatal(err)
	}
	clock.pass(8 * 24 * time.Hour)
	if d, err := s.Due(t.Context(), 10); err != nil || len(d.Jobs) != 0 {
		t.Fatal(d, err)
	}
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	for floors := 0; floors == 0; {
		if err := s.RaiseDue(t.Context(), clock.Now()); err != nil {
			t.Fatal(err)
		}
		floors = number(t, url, fmt.Sprintf("SELECT count(*) FROM gq.floor WHERE band = 6 AND at[1] >= %d", clock.Now().UnixNano()))
	}
	clock.pass(time.Minute + 1)
	if d, err := s.Due(t.Context(), 10); err != nil || !slices.Equal(d.Jobs, []gq.JobID{spec.ID}) {
		t.Errorf("due are %v, %v; want %s", d.Jobs, err, spec.ID)
	}
}
