package engine_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/engine"
	"github.com/gopherqueue/gq/internal/testing/pgtest"
	"github.com/gopherqueue/gq/store"
	"github.com/gopherqueue/gq/store/postgres"
	"github.com/gopherqueue/gq/store/simple"
)

// onEachStore runs a test over each store. Each call of again returns another handle of the
// same data.
func onEachStore(t *testing.T, f func(t *testing.T, again func() store.Store)) {
	t.Helper()
	t.Run("Memory", func(t *testing.T) {
		s, err := simple.Open(store.Config{})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := s.Close(); err != nil {
				t.Errorf("close the store: %v", err)
			}
		})
		f(t, func() store.Store { return s })
	})
	t.Run("Local", func(t *testing.T) {
		s := open(t)
		f(t, func() store.Store { return s })
	})
	t.Run("PostgreSQL", func(t *testing.T) {
		url := pgtest.Database(t)
		f(t, func() store.Store {
			s, err := postgres.Open(t.Context(), url, store.Config{})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() {
				if err := s.Close(); err != nil {
					t.Errorf("close the store: %v", err)
				}
			})
			return s
		})
	})
}

// interrupted is a store that calls a function once, just before jobs are inserted.
type interrupted struct {
	store.Store
	before func()
}

func (i *interrupted) interrupt() {
	before := i.before
	i.before = func() {}
	before()
}

func (i *interrupted) Insert(ctx context.Context, groups []store.Group) ([]store.Inserted, error) {
	i.interrupt()
	return i.Store.Insert(ctx, groups)
}

func (i *interrupted) Change(ctx context.Context, c store.Change) (store.Changed, error) {
	i.interrupt()
	return i.Store.(store.Changer).Change(ctx, c)
}

// TestScheduleDoesNotFireOnceStopped stops or changes a schedule while a sweep is about to
// fire it. After the call has returned, the schedule creates no job.
func TestScheduleDoesNotFireOnceStopped(t *testing.T) {
	onEachStore(t, func(t *testing.T, again func() store.Store) {
		operator := newEngine(t, again(), engine.Options{})
		i := &interrupted{Store: again()}
		sweeper := newEngine(t, i, engine.Options{})
		for name, stop := range map[string]func(name string) error{
			"Pause":  func(name string) error { _, err := operator.PauseSchedule(t.Context(), name); return err },
			"Delete": func(name string) error { return operator.DeleteSchedule(t.Context(), name) },
			"Replace": func(name string) error {
				_, err := operator.PutSchedule(t.Context(), gq.Schedule{Name: name, Every: 1000 * time.Hour, Template: gq.Spec{Type: "other"}})
				return err
			},
		} {
			t.Run(name, func(t *testing.T) {
				must[gq.Schedule](t)(operator.PutSchedule(t.Context(), gq.Schedule{Name: name, Every: time.Hour, Template: gq.Spec{Type: "t"}}))
				stopped := false
				i.before = func() {
					stopped = true
					if err := stop(name); err != nil {
						t.Errorf("stop: %v", err)
					}
				}
				// Meanwhile other schedules of this test may fire: they have been stopped, or are not due.
				if _, err := sweeper.Sweep(t.Context(), time.Now().Add(2*time.Hour)); err != nil {
					t.Errorf("sweep: %v", err)
				}
				if !stopped {
					t.Fatal("nothing was about to fire")
				}
				if slots := firingTimesOf(t, operator, name); len(slots) != 0 {
					t.Errorf("fired for %v after the answer", slots)
				}
				s, err := operator.Schedule(t.Context(), name)
				if err == nil && (s.Fired != 0 || !s.LastJob.IsZero()) || err != nil && !errors.Is(err, gq.ErrNotFound) {
					t.Errorf("the schedule reads %+v, %v", s, err)
				}
			})
		}
	})
}

// TestScheduleKnowsItsJobs: engines fire schedules while others pause, resume and delete
// them. A stopped schedule creates no jobs after the call has returned, each slot has one
// job, and the schedule has the right count and last job.
func TestScheduleKnowsItsJobs(t *testing.T) {
	onEachStore(t, func(t *testing.T, again func() store.Store) {
		engines := []*engine.Engine{newEngine(t, again(), engine.Options{}), newEngine(t, again(), engine.Options{})}
		const schedules, sweeps = 6, 20
		for i := range schedules {
			must[gq.Schedule](t)(engines[0].PutSchedule(t.Context(), gq.Schedule{Name: fmt.Sprint("s", i), Every: time.Second, Template: gq.Spec{Type: "t"}}))
		}
		begin := time.Now().Add(time.Minute)
		var all sync.WaitGroup
		for _, e := range engines {
			all.Go(func() {
				for n := range sweeps {
					if _, err := e.Sweep(t.Context(), begin.Add(time.Duration(n)*time.Second)); err != nil {
						t.Errorf("sweep: %v", err)
					}
				}
			})
		}
		atStop := make([]int, schedules)
		for i := range schedules {
			all.Go(func() {
				e, name := engines[i%2], fmt.Sprint("s", i)
				var err error
				switch i % 3 {
				case 0:
					_, err = e.PauseSchedule(t.Context(), name)
				case 1:
					err = e.DeleteSchedule(t.Context(), name)
				default:
					return
				}
				if err != nil {
					t.Errorf("stop %s: %v", name, err)
				}
				atStop[i] = len(firingTimesOf(t, e, name))
			})
		}
		all.Wait()
		for i := range schedules {
			name := fmt.Sprint("s", i)
			slots := firingTimesOf(t, engines[0], name)
			once := map[string]bool{}
			for _, slot := range slots {
				if once[slot] {
					t.Errorf("%s has two jobs for %s", name, slot)
				}
				once[slot] = true
			}
			if i%3 != 2 && len(slots) != atStop[i] {
				t.Errorf("%s had %d jobs when it was stopped and has %d", name, atStop[i], len(slots))
			}
			s, err := engines[0].Schedule(t.Context(), name)
			if i%3 == 1 {
				continue
			}
			if err != nil || s.Fired != len(slots) {
				t.Errorf("%s has %d jobs and reads %+v, %v", name, len(slots), s, err)
			}
			if i%3 == 2 && len(slots) < sweeps {
				t.Errorf("%s fired %d times, want %d at least", name, len(slots), sweeps)
			}
			if s.Fired == 0 {
				continue
			}
			last := must[gq.Job](t)(engines[0].Get(t.Context(), s.LastJob, 0))
			if last.Spec.Attributes[gq.AttributeSlot] != slots[len(slots)-1] {
				t.Errorf("the last job of %s is for %s, want %s", name, last.Spec.Attributes[gq.AttributeSlot], slots[len(slots)-1])
			}
		}
	})
}
