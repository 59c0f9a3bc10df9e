package engine_test

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/engine"
	"github.com/gopherqueue/gq/internal/testing/pgtest"
	"github.com/gopherqueue/gq/internal/testing/promptly"
	"github.com/gopherqueue/gq/machine"
	"github.com/gopherqueue/gq/store"
	"github.com/gopherqueue/gq/store/postgres"
	"github.com/gopherqueue/gq/worker"
)

// due is when time acts in these tests, after whatever makes it act.
const due = 1200 * time.Millisecond

// punctual has two engines of one store. Calls are made on the embedded one; the other one may be
// the only one that runs.
type punctual struct {
	*fixture
	running *engine.Engine
}

// after waits until a job has an event that it did not have before, and returns how long after a
// time that happened.
func (p *punctual) after(id gq.JobID, at time.Time) time.Duration {
	p.Helper()
	before := len(must[[]gq.Event](p.T)(p.History(p.Context(), id)))
	var events []gq.Event
	p.until("an event of the job", func() bool {
		events = must[[]gq.Event](p.T)(p.History(p.Context(), id))
		return len(events) > before
	})
	return events[len(events)-1].Time.Sub(at)
}

func (p *punctual) until(what string, is func() bool) {
	p.Helper()
	for began := time.Now(); !is(); time.Sleep(5 * time.Millisecond) {
		if time.Since(began) > 30*time.Second {
			p.Fatalf("no %s within 30 s", what)
		}
	}
}

// fires waits for the first slot of a schedule, and returns how long after it the job came.
func (p *punctual) fires(s gq.Schedule) time.Duration {
	p.Helper()
	p.until("job of the schedule", func() bool {
		return must[gq.Schedule](p.T)(p.Schedule(p.Context(), s.Name)).Fired > 0
	})
	fired := must[gq.Schedule](p.T)(p.Schedule(p.Context(), s.Name))
	return p.get(fired.LastJob).State.CreatedAt.Sub(s.Next)
}

// removed waits until a job is gone, and returns how long after a time that was.
func (p *punctual) removed(id gq.JobID, at time.Time) time.Duration {
	p.Helper()
	p.until("removal", func() bool {
		_, err := p.Get(p.Context(), id, 0)
		return errors.Is(err, gq.ErrNotFound)
	})
	return time.Since(at)
}

// claims returns how long after change a claim that waits at the running engine got a job.
func (p *punctual) claims(change func()) time.Duration {
	p.Helper()
	got := make(chan time.Time, 1)
	go func() {
		jobs, err := p.running.Claim(p.Context(), gq.ClaimRequest{Worker: "waiting", Queues: []string{"q"}, N: 1, Wait: time.Minute})
		if err != nil || len(jobs) != 1 {
			p.Errorf("the waiting claim got %d jobs, %v", len(jobs), err)
		}
		got <- time.Now()
	}()
	time.Sleep(due)
	began := time.Now()
	change()
	return (<-got).Sub(began)
}

// fill lets a schedule wait for room in a queue, and returns the job that fills it.
func (p *punctual) fill() gq.JobID {
	p.Helper()
	p.putQueue(gq.Queue{Name: "q", MaxDepth: 1})
	id := p.submit(gq.Spec{Queue: "q"})
	must[gq.Schedule](p.T)(p.PutSchedule(p.Context(), p.schedule(func(s *gq.Schedule) { s.Template.Queue = "q" })))
	p.until("refused slot", func() bool { return must[gq.Schedule](p.T)(p.Schedule(p.Context(), "s")).LastError != "" })
	time.Sleep(300 * time.Millisecond) // a sweep for other reasons comes a second after the one before
	return id
}

// finds returns how long after change the schedule has submitted its job.
func (p *punctual) finds(change func()) time.Duration {
	p.Helper()
	began := time.Now()
	change()
	p.until("job of the schedule", func() bool { return must[gq.Schedule](p.T)(p.Schedule(p.Context(), "s")).Fired > 0 })
	return time.Since(began)
}

func (p *punctual) schedule(set func(*gq.Schedule)) gq.Schedule {
	s := gq.Schedule{Name: "s", Every: 2 * time.Second, Template: gq.Spec{Type: "t"}}
	set(&s)
	return s
}

var yearly = func(s *gq.Schedule) { s.Every, s.Cron = 0, "0 0 1 1 *" }

// timed is a change that time or another caller makes due.
type timed struct {
	name string
	late func(p *punctual) time.Duration
}

// firings are those whose time is that of a slot of a schedule.
var firings = []timed{
	{"a schedule is put", func(p *punctual) time.Duration {
		return p.fires(must[gq.Schedule](p.T)(p.PutSchedule(p.Context(), p.schedule(func(*gq.Schedule) {}))))
	}},
	{"a schedule is declared", func(p *punctual) time.Duration {
		return p.fires(must[gq.Schedule](p.T)(p.DeclareSchedule(p.Context(), p.schedule(func(*gq.Schedule) {}))))
	}},
	{"a schedule is resumed", func(p *punctual) time.Duration {
		must[gq.Schedule](p.T)(p.PutSchedule(p.Context(), p.schedule(func(s *gq.Schedule) { s.Paused = true })))
		time.Sleep(due)
		return p.fires(must[gq.Schedule](p.T)(p.ResumeSchedule(p.Context(), "s")))
	}},
	{"a schedule is changed", func(p *punctual) time.Duration {
		must[gq.Schedule](p.T)(p.PutSchedule(p.Context(), p.schedule(yearly)))
		time.Sleep(due)
		return p.fires(must[gq.Schedule](p.T)(p.PutSchedule(p.Context(), p.schedule(func(*gq.Schedule) {}))))
	}},
	{"two schedules are put", func(p *punctual) time.Duration {
		must[gq.Schedule](p.T)(p.PutSchedule(p.Context(), p.schedule(func(s *gq.Schedule) { yearly(s); s.Name = "first" })))
		return p.fires(must[gq.Schedule](p.T)(p.PutSchedule(p.Context(), p.schedule(func(s *gq.Schedule) { s.Every = time.Second }))))
	}},
}

// moves are those whose time the store records in the event of a job.
var moves = []timed{
	{"a delay is over", func(p *punctual) time.Duration {
		id := p.submit(gq.Spec{}, gq.Delay(due))
		return p.after(id, p.get(id).State.RunAt)
	}},
	{"a job is rescheduled", func(p *punctual) time.Duration {
		id := p.submit(gq.Spec{}, gq.Delay(time.Hour))
		time.Sleep(due)
		at := must[gq.State](p.T)(p.Reschedule(p.Context(), id, time.Now().Add(due))).RunAt
		return p.after(id, at)
	}},
	{"a retry is due", func(p *punctual) time.Duration {
		p.submit(gq.Spec{}, gq.MaxAttempts(3), gq.RetryDelay(gq.Backoff{Strategy: gq.StrategyConstant, Initial: due, Max: due, Jitter: gq.JitterNone}))
		j, lease := p.take()
		return p.after(j.State.ID, must[gq.State](p.T)(p.Fail(p.Context(), lease, gq.Failure{Category: gq.CategoryTemporary})).RunAt)
	}},
	{"a lease expires", func(p *punctual) time.Duration {
		p.submit(gq.Spec{}, gq.LeaseTime(due))
		j, _ := p.take()
		return p.after(j.State.ID, j.State.Lease.ExpiresAt)
	}},
	{"an execution times out", func(p *punctual) time.Duration {
		p.submit(gq.Spec{}, gq.Timeout(due))
		j, _ := p.take()
		return p.after(j.State.ID, j.State.StartedAt.Add(due))
	}},
	{"a job has not started in time", func(p *punctual) time.Duration {
		id := p.submit(gq.Spec{}, gq.StartWithin(due))
		return p.after(id, p.get(id).State.CreatedAt.Add(due))
	}},
	{"a lifetime ends", func(p *punctual) time.Duration {
		id := p.submit(gq.Spec{}, gq.Lifetime(due))
		return p.after(id, p.get(id).State.CreatedAt.Add(due))
	}},
	{"a signal does not come", func(p *punctual) time.Duration {
		flow := gq.NewWorkflow("order")
		flow.Signal("approval", due)
		id := must[gq.WorkflowID](p.T)(p.SubmitWorkflow(p.Context(), flow))
		job := must[gq.Workflow](p.T)(p.Workflow(p.Context(), id)).Jobs[0].Job.State
		return p.after(job.ID, job.CreatedAt.Add(due))
	}},
	{"a deadline comes soon after another change", func(p *punctual) time.Duration {
		p.submit(gq.Spec{})
		time.Sleep(50 * time.Millisecond)
		id := p.submit(gq.Spec{}, gq.StartWithin(300*time.Millisecond))
		return p.after(id, p.get(id).State.CreatedAt.Add(300*time.Millisecond))
	}},
}

// otherwise are the others.
var otherwise = []timed{
	{"a full queue of a schedule has room", func(p *punctual) time.Duration {
		id := p.fill()
		return p.finds(func() { must[gq.State](p.T)(p.Cancel(p.Context(), id, "")) })
	}},
	{"a full queue of a schedule gets room", func(p *punctual) time.Duration {
		p.fill()
		return p.finds(func() { p.putQueue(gq.Queue{Name: "q", MaxDepth: 2}) })
	}},
	{"a retention ends soon after another change", func(p *punctual) time.Duration {
		p.submit(gq.Spec{}, gq.KeepFor(300*time.Millisecond))
		j, lease := p.take()
		time.Sleep(50 * time.Millisecond)
		p.submit(gq.Spec{})
		return p.removed(j.State.ID, must[gq.State](p.T)(p.Complete(p.Context(), lease, nil)).CompletedAt.Add(300*time.Millisecond))
	}},
	{"a retention ends", func(p *punctual) time.Duration {
		p.submit(gq.Spec{}, gq.KeepFor(due))
		j, lease := p.take()
		return p.removed(j.State.ID, must[gq.State](p.T)(p.Complete(p.Context(), lease, nil)).CompletedAt.Add(due))
	}},
	{"a queue is resumed", func(p *punctual) time.Duration {
		must[gq.Queue](p.T)(p.Pause(p.Context(), "q"))
		p.submit(gq.Spec{Queue: "q"})
		return p.claims(func() { must[gq.Queue](p.T)(p.Resume(p.Context(), "q")) })
	}},
	{"a limit is raised", func(p *punctual) time.Duration {
		q := machine.NewQueue("q")
		q.MaxRunning = 1
		p.putQueue(q)
		p.submit(gq.Spec{Queue: "q"})
		p.submit(gq.Spec{Queue: "q"})
		p.take(on("q"))
		return p.claims(func() { q.MaxRunning = 2; p.putQueue(q) })
	}},
	{"a pool grows", func(p *punctual) time.Duration {
		pool := gq.Pool{Name: "p", Capacity: 1}
		if err := p.PutPool(p.Context(), pool); err != nil {
			p.Fatal(err)
		}
		q := machine.NewQueue("q")
		q.Pool = "p"
		p.putQueue(q)
		p.submit(gq.Spec{Queue: "q", CostUnits: 1})
		p.submit(gq.Spec{Queue: "q", CostUnits: 1})
		p.take(on("q"))
		return p.claims(func() {
			pool.Capacity = 2
			if err := p.PutPool(p.Context(), pool); err != nil {
				p.Error(err)
			}
		})
	}},
	{"a rate allows the next job", func(p *punctual) time.Duration {
		q := machine.NewQueue("q")
		q.Rate = gq.Rate{Count: 1, Per: 2 * due}
		p.putQueue(q)
		p.submit(gq.Spec{Queue: "q"})
		p.submit(gq.Spec{Queue: "q"})
		j, _ := p.take(on("q"))
		free := j.State.Lease.GrantedAt.Add(2 * due)
		p.claims(func() {})
		return time.Since(free)
	}},
}

// TestOnTime checks that what time or another engine makes due happens at its time, although
// nothing else happens that would make an engine look.
func TestOnTime(t *testing.T) {
	for _, change := range slices.Concat(firings, moves, otherwise) {
		t.Run(change.name+"/Local", func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFixture(t, engine.Options{}, nil)
				f.run()
				time.Sleep(5*time.Second + due/2)
				if late := change.late(&punctual{f, f.Engine}); late < -time.Millisecond || late > 200*time.Millisecond {
					t.Errorf("%v late, want at most 200 ms", late)
				}
			})
		})
	}
	for name, one := range map[string]bool{"OneServer": true, "AnotherServer": false} {
		t.Run("PostgreSQL/"+name, func(t *testing.T) {
			t.Parallel()
			each := func(changes []timed, limit time.Duration) {
				for _, change := range changes {
					t.Run(change.name, func(t *testing.T) {
						t.Parallel() // it mostly waits
						promptly.Within(t, limit, func() (late time.Duration) {
							t.Run("try", func(t *testing.T) { late = change.late(onPostgreSQL(t, one)) })
							return late
						})
					})
				}
			}
			each(firings, 200*time.Millisecond)
			each(moves, 200*time.Millisecond)
			each(otherwise, time.Second) // the test asks for them again and again, which takes its time on a busy machine
		})
	}
}

// An engine that has just started knows which retentions end.
func TestOnTimeAfterAStart(t *testing.T) {
	bubble(t, func(t *testing.T, f *fixture) {
		own, usual := f.submit(gq.Spec{}, gq.KeepFor(4*time.Second)), f.submit(gq.Spec{})
		must[gq.State](t)(f.Cancel(t.Context(), own, ""))
		must[gq.State](t)(f.Cancel(t.Context(), usual, ""))
		ended := time.Now()
		f.run()
		p := &punctual{f, f.Engine}
		if late := p.removed(own, ended.Add(4*time.Second)); late < 0 || late > 200*time.Millisecond {
			t.Errorf("a retention of its own: %v late", late)
		}
		time.Sleep(24*time.Hour - 10*time.Second) // the store's retention, which ends within the patience of the fixture
		if late := p.removed(usual, ended.Add(24*time.Hour)); late < 0 || late > 200*time.Millisecond {
			t.Errorf("the store's retention: %v late", late)
		}
	})
}

// onPostgreSQL returns an engine of an idle database, or two of which only the other one runs.
func onPostgreSQL(t *testing.T, one bool) *punctual {
	t.Helper()
	url := pgtest.Database(t)
	again := func() store.Store {
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
	}
	s := again()
	f := &fixture{T: t, Engine: newEngine(t, s, engine.Options{}), store: s}
	running := f
	if !one {
		other := again()
		running = &fixture{T: t, Engine: newEngine(t, other, engine.Options{}), store: other}
	}
	running.run()
	time.Sleep(2500 * time.Millisecond) // it sweeps for the first time, and finds that no other engine listens
	return &punctual{f, running.Engine}
}

// TestCancelThroughAnotherServer cancels jobs whose worker uses another server of the database.
func TestCancelThroughAnotherServer(t *testing.T) {
	t.Parallel()
	p := onPostgreSQL(t, false)
	w := worker.New(p.running, worker.Config{HeartbeatEvery: time.Minute, Logger: slog.New(slog.DiscardHandler)})
	w.HandleFunc("endless", func(ctx context.Context, _ *worker.Run) error {
		<-ctx.Done()
		return context.Cause(ctx)
	})
	w.Start(t.Context())
	promptly.Median(t, 100*time.Millisecond, 21, func() time.Duration {
		id := p.submit(gq.Spec{Type: "endless"})
		p.until("start", func() bool { return p.get(id).State.Status == gq.StatusRunning })
		asked := time.Now()
		must[gq.State](t)(p.Cancel(t.Context(), id, "enough"))
		state := must[gq.Job](t)(p.Wait(t.Context(), id)).State
		return state.Cancellation.DeliveredAt.Sub(asked)
	})
	if err := w.Stop(); err != nil {
		t.Error(err)
	}
}
