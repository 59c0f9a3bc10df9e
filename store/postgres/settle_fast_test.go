package postgres

import (
	"errors"
	"testing"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/internal/testing/pgtest"
	"github.com/gopherqueue/gq/machine"
	"github.com/gopherqueue/gq/store"
)

// TestSettleWithoutReading settles a job that its node claimed. The node relies on what it wrote,
// unless something has happened since.
func TestSettleWithoutReading(t *testing.T) {
	url := pgtest.Database(t)
	node := func() *Store {
		s, err := Open(t.Context(), url, store.Config{})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { s.Close() })
		return s
	}
	s, other := node(), node()
	claim := store.Claim{Filter: store.Filter{Queues: []string{"q"}}, N: 1, Worker: "w", TTL: time.Minute}
	submit := map[string]func() gq.Job{
		"Claimed": func() gq.Job {
			spec := gq.Spec{ID: machine.NewJobID(random()), Queue: "q", Type: "t", Policy: machine.DefaultPolicy()}.WithDefaults()
			if out, err := s.Insert(t.Context(), []store.Group{{Jobs: []gq.Spec{spec}, Mint: true}}); err != nil || out[0].Err != nil {
				t.Fatal(err, out)
			}
			got, err := s.Claim(t.Context(), []store.Claim{claim})
			if err != nil || len(got[0].Jobs) != 1 {
				t.Fatal(err, got)
			}
			return got[0].Jobs[0]
		},
		"Served": func() gq.Job {
			spec := gq.Spec{ID: machine.NewJobID(random()), Queue: "q", Type: "t", Policy: machine.DefaultPolicy()}.WithDefaults()
			out, err := s.Insert(t.Context(), []store.Group{{Jobs: []gq.Spec{spec}, Mint: true, Claim: &claim}})
			if err != nil || out[0].Err != nil || out[0].Claimed == nil || len(out[0].Claimed.Jobs) != 1 {
				t.Fatal(err, out)
			}
			return out[0].Claimed.Jobs[0]
		},
	}
	settle := func(j *gq.Job, apply store.Apply) store.Updated {
		t.Helper()
		out, err := s.Update(t.Context(), []store.Update{{Ref: store.Ref{Lease: j.State.Lease.ID}, Settles: true, Result: []byte("1"), Apply: apply}})
		if err != nil {
			t.Fatal(err)
		}
		return out[0]
	}
	complete := func(j *gq.Job) store.Apply {
		return func(s gq.State, now time.Time) (gq.State, []gq.Event, error) {
			return machine.Complete(s, j.State.Lease.Ref(), []byte("1"), now)
		}
	}
	meanwhile := func(j *gq.Job, apply store.Apply) {
		t.Helper()
		out, err := other.Update(t.Context(), []store.Update{{Ref: store.Ref{Job: j.State.ID}, Apply: apply}})
		if err != nil || out[0].Err != nil {
			t.Fatal(err, out)
		}
	}
	// spare gives the node a segment id and returns whether it was used since.
	spare := func() (used func() bool) {
		for len(s.spares) > 0 {
			<-s.spares
		}
		var id int64
		if err := s.pool.QueryRow(t.Context(), "SELECT nextval('gq.segment_id')").Scan(&id); err != nil {
			t.Fatal(err)
		}
		s.keepSpare(id)
		return func() (found bool) {
			if err := s.pool.QueryRow(t.Context(), "SELECT EXISTS (SELECT FROM gq.segment WHERE id = $1)", id).Scan(&found); err != nil {
				t.Fatal(err)
			}
			return found
		}
	}
	stored := func(j *gq.Job) gq.State {
		t.Helper()
		found, err := s.Get(t.Context(), []store.Ref{{Job: j.State.ID}}, gq.WithResult)
		if err != nil || found[0].Err != nil {
			t.Fatal(err, found)
		}
		return found[0].Job.State
	}
	for name, submit := range submit {
		t.Run(name, func(t *testing.T) {
			t.Run("Unchanged", func(t *testing.T) {
				j, used := submit(), spare()
				before := time.Now()
				out := settle(&j, complete(&j))
				if out.Err != nil || out.State.Status != gq.StatusCompleted || stored(&j).Status != gq.StatusCompleted {
					t.Errorf("the job is %+v", out)
				}
				if !used() {
					t.Error("the row was read although the node knew it")
				}
				if at := stored(&j).CompletedAt; at.Before(before.Add(-time.Second)) || at.After(time.Now()) || at.Before(j.State.StartedAt) {
					t.Errorf("it ended at %v, and was started at %v", at, j.State.StartedAt)
				}
				if history, err := s.History(t.Context(), j.State.ID); err != nil || history[len(history)-1].Type != gq.EventCompleted {
					t.Errorf("its events are %+v, %v", history, err)
				}
				if again := settle(&j, complete(&j)); again.Err != nil || again.Changed {
					t.Errorf("a repeated call got %+v", again)
				}
			})
			t.Run("FailedAndRetried", func(t *testing.T) {
				j, used := submit(), spare()
				out := settle(&j, func(s gq.State, now time.Time) (gq.State, []gq.Event, error) {
					return machine.Release(s, j.State.Lease.Ref(), 0, "later", now)
				})
				if out.Err != nil || out.State.Status.Held() || out.State.Status.Terminal() || !used() {
					t.Errorf("the job is %+v", out)
				}
				got, err := other.Claim(t.Context(), []store.Claim{claim})
				if err != nil || len(got[0].Jobs) != 1 || got[0].Jobs[0].State.ID != j.State.ID {
					t.Errorf("the next claim got %+v, %v", got, err)
				}
			})
			t.Run("RenewedElsewhere", func(t *testing.T) {
				j, used := submit(), spare()
				meanwhile(&j, func(s gq.State, now time.Time) (gq.State, []gq.Event, error) {
					return machine.Heartbeat(s, j.State.Lease.Ref(), machine.Report{CheckpointBytes: 4}, now)
				})
				if out := settle(&j, complete(&j)); out.Err != nil || out.State.CheckpointBytes != 4 || stored(&j).Status != gq.StatusCompleted {
					t.Errorf("the job is %+v", out)
				}
				if used() {
					t.Error("a row that had changed was settled without reading it")
				}
			})
			t.Run("LostMeanwhile", func(t *testing.T) {
				j, _ := submit(), spare()
				meanwhile(&j, func(s gq.State, now time.Time) (gq.State, []gq.Event, error) {
					return machine.Release(s, j.State.Lease.Ref(), 0, "taken away", now)
				})
				if out := settle(&j, complete(&j)); !errors.Is(out.Err, gq.ErrStaleLease) || stored(&j).Status == gq.StatusCompleted {
					t.Errorf("a lost lease settled its job: %+v", out)
				}
				if _, err := other.Claim(t.Context(), []store.Claim{claim}); err != nil {
					t.Fatal(err)
				}
			})
			t.Run("ClockAhead", func(t *testing.T) {
				j, used := submit(), spare()
				s.reading.Store(&clockReading{time.Now().Add(time.Hour).UnixNano(), time.Now()})
				defer s.reading.Store(nil)
				if out := settle(&j, complete(&j)); out.Err != nil || out.State.CompletedAt.After(time.Now().Add(time.Minute)) || used() {
					t.Errorf("with a wrong clock the job is %+v", out)
				}
			})
		})
	}
}
