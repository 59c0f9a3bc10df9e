package worker_test

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/machine"
	"github.com/gopherqueue/gq/worker"
)

func TestOutcomesShareCalls(t *testing.T) {
	bubble(t, func(f *fixture) {
		f.config.Slots = 100
		f.link.during = func(c call) {
			if c.verb == "settle" {
				time.Sleep(10 * time.Millisecond)
			}
		}
		f.handle(sleepFor(time.Second))
		for range 100 {
			f.work(nil)
		}
		f.run()
		after(time.Minute)
		if n := f.counts()[gq.StatusCompleted]; n != 100 {
			t.Errorf("%d completed", n)
		}
		if n := len(f.link.made("settle")); n > 3 {
			t.Errorf("%d calls for 100 handlers that finished together", n)
		}
	})
}

func TestOutcomesAreSentAgain(t *testing.T) {
	for name, fail := range map[string]func(*link, error){
		"nothing happened": func(l *link, err error) { l.setCut("settle", err) },
		"answer lost":      func(l *link, err error) { l.setMute("settle", err) },
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(f *fixture) {
				worker.HandleResult(f.mux, gq.NewKind[any, int]("work"), func(_ context.Context, job *worker.Job[any]) (int, error) { return job.Attempt(), nil })
				fail(f.link, gq.ErrStoreFailed)
				f.run()
				id := f.work(patient)
				after(time.Minute)
				f.work(patient) // joins
				after(time.Minute)
				fail(f.link, nil)
				after(time.Minute)
				if j := f.wantStatus(id, gq.StatusCompleted); j.State.Attempt != 1 || string(j.Result) != "1" {
					t.Errorf("%d attempts, result %s", j.State.Attempt, j.Result)
				}
				if n := f.counts()[gq.StatusCompleted]; n != 2 {
					t.Errorf("%d completed", n)
				}
				if n := len(f.log.lines("call to the queue failed; retrying")); n != 1 {
					t.Errorf("%d lines about one outage", n)
				}
				if s := f.worker.Stats(); s.Succeeded != 2 || s.Undelivered != 0 || s.Unsettled != 0 {
					t.Errorf("stats %+v", s)
				}
			})
		})
	}
}

func TestOutcomesAreSentUntilTheLeaseEnds(t *testing.T) {
	bubble(t, func(f *fixture) {
		attempts := 0
		f.handle(func(context.Context, *worker.Run) error {
			attempts++
			return nil
		})
		f.link.setCut("settle", gq.ErrStoreFailed)
		f.run()
		id := f.work(semantics)
		after(7 * time.Second)
		if s := f.worker.Stats(); s.Undelivered != 1 {
			t.Errorf("stats %+v", s)
		}
		f.link.setCut("settle", nil)
		after(time.Minute)
		f.wantStatus(id, gq.StatusCompleted)
		if attempts != 2 {
			t.Errorf("%d attempts", attempts)
		}
	})
}

// A backlog of outcomes stops claims: a job that finished but cannot be settled runs
// again elsewhere.
func TestUnsettledOutcomesStopClaims(t *testing.T) {
	bubble(t, func(f *fixture) {
		ran := 0
		f.config.Slots = 1
		f.handle(func(context.Context, *worker.Run) error {
			ran++
			return nil
		})
		f.link.setCut("settle", gq.ErrStoreFailed)
		for range 100 {
			f.work(patient)
		}
		f.run()
		after(time.Minute)
		if ran > 20 {
			t.Errorf("%d jobs ran while nothing could be settled", ran)
		}
		f.link.setCut("settle", nil)
		after(time.Minute)
		if n := f.counts()[gq.StatusCompleted]; n != 100 || ran != 100 {
			t.Errorf("%d completed, %d ran", n, ran)
		}
	})
}

// picky rejects a whole call because of one outcome.
type picky struct{ *memory }

func (q picky) Settle(ctx context.Context, outcomes []gq.Outcome) ([]gq.LeaseResult, error) {
	for _, o := range outcomes {
		if strings.HasPrefix(string(o.Result), "bad") {
			return nil, &gq.InvalidError{Faults: []gq.Fault{{Field: "outcomes", Problem: "one is bad"}}}
		}
	}
	return q.memory.Settle(ctx, outcomes)
}

func TestBadOutcomeDoesNotHoldUpTheOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, mux := newMemory(), worker.NewMux()
		worker.Handle(mux, gq.NewKind[string, gq.None]("work"), func(ctx context.Context, job *worker.Job[string]) error {
			return errors.Join(job.SetResult([]byte(job.Args)), sleepFor(time.Second)(ctx, job.Run))
		})
		bad := m.submit(gq.Spec{Type: "work", Payload: gq.Payload{Data: []byte(`"bad one"`)}})
		for range 9 {
			m.submit(gq.Spec{Type: "work", Payload: gq.Payload{Data: []byte(`"good"`)}})
		}
		w, err := worker.NewWith(picky{m}, mux, worker.Config{Logger: discard()})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if err := w.Run(ctx); err != nil {
			t.Error(err)
		}
		if n := m.counts()[gq.StatusCompleted]; n != 9 {
			t.Errorf("%d completed", n)
		}
		if s := m.job(bad).State; s.Status != gq.StatusFailed || s.Failure.Code != "invalid_outcome" {
			t.Errorf("the bad one is %v, %+v", s.Status, s.Failure)
		}
	})
}

func TestCheckpointsShareCalls(t *testing.T) {
	bubble(t, func(f *fixture) {
		f.config.Slots = 100
		f.link.during = func(c call) {
			if c.verb == "heartbeat" {
				time.Sleep(10 * time.Millisecond)
			}
		}
		f.handle(func(ctx context.Context, run *worker.Run) error { return run.Checkpoint(ctx, []byte("here")) })
		for range 100 {
			f.work(nil)
		}
		f.run()
		after(time.Minute)
		if n := f.counts()[gq.StatusCompleted]; n != 100 {
			t.Errorf("%d completed", n)
		}
		if n := len(f.link.made("heartbeat")); n > 3 {
			t.Errorf("%d calls for 100 checkpoints at once", n)
		}
	})
}

// patient has a lease that outlives an outage of minutes.
func patient(p *gq.Policy) { p.LeaseTTL = 10 * time.Minute }

// moody takes as long for every call as jobs need to end together. It rejects a call with a bad outcome, and a
// call with a single good one the first time.
type moody struct {
	picky
	mu    sync.Mutex
	known map[gq.LeaseID]bool
}

func (q *moody) Settle(ctx context.Context, outcomes []gq.Outcome) ([]gq.LeaseResult, error) {
	time.Sleep(10 * time.Millisecond)
	q.mu.Lock()
	id := outcomes[0].Lease.ID
	refuse := len(outcomes) == 1 && string(outcomes[0].Result) == "good" && !q.known[id]
	q.known[id] = q.known[id] || refuse
	q.mu.Unlock()
	if refuse {
		return nil, gq.ErrStoreFailed
	}
	return q.picky.Settle(ctx, outcomes)
}

// Outcomes that are sent one by one because of a bad one are sent again, each of them, if the queue
// fails meanwhile.
func TestOutcomesBesideABadOneAreSentAgain(t *testing.T) {
	bubble(t, func(f *fixture) {
		q := &moody{picky: picky{f.memory}, known: make(map[gq.LeaseID]bool)}
		w := worker.New(q, worker.Config{Logger: discard(), Slots: 20})
		var ran atomic.Int32
		worker.HandleResult(w, gq.NewKind[string, []byte]("work"), func(ctx context.Context, job *worker.Job[string]) ([]byte, error) {
			ran.Add(1)
			d := time.Second
			if job.Args == "first" { // its call is under way when the others end
				d -= 5 * time.Millisecond
			}
			return []byte(job.Args), sleepFor(d)(ctx, job.Run)
		})
		for _, args := range []string{"first", "bad", "good", "good", "good", "good", "good"} {
			s := gq.Spec{Type: "work", Payload: gq.Payload{Data: []byte(`"` + args + `"`)}, Policy: machine.DefaultPolicy()}
			patient(&s.Policy)
			f.submit(s)
		}
		w.Start(f.Context())
		after(time.Minute)
		if n := f.counts()[gq.StatusCompleted]; n != 6 || ran.Load() != 7 {
			t.Errorf("%d of 6 completed, and %d executions of 7", n, ran.Load())
		}
		if err := w.Stop(); err != nil {
			t.Error(err)
		}
	})
}

// The shortest lease says how soon outcomes are sent again, wherever it stands among them.
func TestOutcomesAreSentAgainBeforeTheShortestLeaseEnds(t *testing.T) {
	bubble(t, func(f *fixture) {
		f.handle(func(ctx context.Context, run *worker.Run) error {
			d := 100 * time.Millisecond
			if run.Policy().LeaseTTL < time.Minute {
				d = 200 * time.Millisecond // it ends later
			}
			return sleepFor(d)(ctx, run)
		})
		f.run()
		for range 8 { // the pauses are random
			f.link.setCut("settle", gq.ErrStoreFailed)
			long := f.work(patient)
			short := f.work(func(p *gq.Policy) { p.LeaseTTL = 5 * time.Second })
			after(4900 * time.Millisecond)
			f.link.setCut("settle", nil)
			after(10 * time.Second)
			f.wantStatus(long, gq.StatusCompleted)
			if j := f.wantStatus(short, gq.StatusCompleted); j.State.Attempt != 1 {
				t.Errorf("the job with the short lease ran %d times", j.State.Attempt)
			}
		}
	})
}

// togetherAt runs jobs that end at 1 s and a little later, so that they share the call after that of a job
// which ended just before: calls take 10 ms.
func (f *fixture) togetherAt(settle func(ctx context.Context, outcomes []gq.Outcome) error, end func(run *worker.Run), policies ...func(*gq.Policy)) (ids []gq.JobID) {
	f.Helper()
	w := worker.New(&slowly{f.link, settle}, worker.Config{Logger: discard()})
	w.HandleFunc("first", sleepFor(995*time.Millisecond))
	for i := range policies {
		w.HandleFunc(strconv.Itoa(i), func(ctx context.Context, run *worker.Run) error {
			err := sleepFor(time.Second+time.Duration(i)*time.Millisecond)(ctx, run)
			end(run)
			return err
		})
	}
	f.submit(gq.Spec{Type: "first", Policy: machine.DefaultPolicy()})
	for i, change := range policies {
		s := gq.Spec{Type: strconv.Itoa(i), Policy: machine.DefaultPolicy()}
		change(&s.Policy)
		ids = append(ids, f.submit(s))
	}
	w.Start(f.Context())
	after(time.Minute)
	if err := w.Stop(); err != nil {
		f.Error(err)
	}
	return ids
}

// slowly is a queue whose calls of Settle take a while, and fail as settle says.
type slowly struct {
	*link
	settle func(ctx context.Context, outcomes []gq.Outcome) error
}

func (q *slowly) Settle(ctx context.Context, outcomes []gq.Outcome) ([]gq.LeaseResult, error) {
	time.Sleep(10 * time.Millisecond)
	if err := q.settle(ctx, outcomes); err != nil {
		return nil, err
	}
	return q.link.Settle(ctx, outcomes)
}

// A call that hangs is given up in time for the shortest lease in it, whichever outcome it is of.
func TestHangingSettleLeavesTimeForTheShortestLease(t *testing.T) {
	bubble(t, func(f *fixture) {
		hung := false
		ids := f.togetherAt(func(ctx context.Context, outcomes []gq.Outcome) error {
			if len(outcomes) == 1 || hung {
				return nil
			}
			hung = true
			<-ctx.Done()
			return ctx.Err()
		}, func(*worker.Run) {}, func(p *gq.Policy) { p.LeaseTTL = 6 * time.Second }, patient)
		for _, id := range ids {
			if j := f.wantStatus(id, gq.StatusCompleted); j.State.Attempt != 1 {
				t.Errorf("it ran %d times", j.State.Attempt)
			}
		}
		if !hung {
			t.Error("the two did not share a call")
		}
	})
}

// The last reports of all jobs that end together are sent.
func TestLastProgressOfSeveralJobs(t *testing.T) {
	bubble(t, func(f *fixture) {
		ids := f.togetherAt(func(context.Context, []gq.Outcome) error { return nil }, func(run *worker.Run) {
			if err := run.Progress(run.Context(), 0.9, "row "+run.Type()); err != nil {
				t.Error(err)
			}
		}, patient, patient, patient)
		for i, id := range ids {
			if s := f.wantStatus(id, gq.StatusCompleted).State; s.Note != "row "+strconv.Itoa(i) {
				t.Errorf("job %d has progress %v %q", i, s.Progress, s.Note)
			}
		}
	})
}
