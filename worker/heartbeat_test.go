package worker_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/internal/testing/spec"
	"github.com/gopherqueue/gq/worker"
)

// sleepFor returns a handler that works for d and obeys its context.
func sleepFor(d time.Duration) worker.Handler {
	return func(ctx context.Context, _ *worker.Run) error {
		select {
		case <-time.After(d):
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

func semantics(p *gq.Policy) { *p = gq.PresetSemantics.Policy() }

func TestHeartbeatEveryThirdOfTheLease(t *testing.T) {
	spec.Covers(t, "Q-93", "Q-95")
	bubble(t, func(f *fixture) {
		f.handle(sleepFor(21 * time.Second))
		f.run()
		start := time.Now()
		id := f.work(semantics)
		after(time.Minute)
		f.wantStatus(id, gq.StatusCompleted)
		beats := f.link.made("heartbeat")
		if len(beats) != 12 {
			t.Errorf("%d heartbeats in 21 s, want 12", len(beats))
		}
		for i, b := range beats {
			if at, want := b.at.Sub(start), time.Duration(i+1)*(5*time.Second/3); at != want {
				t.Errorf("heartbeat %d after %v, want %v", i, at, want)
			}
		}
	})
}

func TestShorterLeasesNeedMoreHeartbeatsAndEndSooner(t *testing.T) {
	spec.Covers(t, "Q-88")
	for _, ttl := range []time.Duration{3 * time.Second, 30 * time.Second} {
		t.Run(ttl.String(), func(t *testing.T) {
			bubble(t, func(f *fixture) {
				f.config.LeaseTTL, f.config.HeartbeatEvery = ttl, ttl // only the lease limits them
				f.handle(sleepFor(5 * time.Minute))
				f.run()
				id := f.work(semantics)
				after(time.Minute + time.Millisecond)
				if got, want := len(f.link.made("heartbeat")), int(time.Minute/(ttl/3)); got != want {
					t.Errorf("%d heartbeats a minute, want %d", got, want)
				}
				f.link.setCut("", gq.ErrStoreFailed)
				after(ttl - time.Second)
				if v := f.job(id).State.Version; v != 1 || f.job(id).State.Status != gq.StatusRunning {
					t.Errorf("the job was taken back before its lease was over")
				}
				after(time.Second)
				f.wantStatus(id, gq.StatusScheduled)
				f.link.setCut("", nil)
				after(10 * time.Minute)
				f.wantStatus(id, gq.StatusCompleted)
			})
		})
	}
}

func TestNoHeartbeatAfterTheContextEnds(t *testing.T) {
	spec.Covers(t, "Q-95")
	bubble(t, func(f *fixture) {
		f.handle(func(ctx context.Context, _ *worker.Run) error {
			<-ctx.Done()
			time.Sleep(4 * time.Second) // continues for a while
			return context.Cause(ctx)
		})
		f.run()
		id := f.work(semantics)
		after(time.Second)
		f.ask(id, "no longer needed")
		after(time.Second)
		if n := len(f.link.made("heartbeat")); n != 1 {
			t.Fatalf("%d heartbeats, want the one that delivers the cancel", n)
		}
		after(time.Minute)
		if n := len(f.link.made("heartbeat")); n != 1 {
			t.Errorf("%d heartbeats after the context ended", n-1)
		}
	})
}

func TestHeartbeatsShareCalls(t *testing.T) {
	const jobs = 10_000
	bubble(t, func(f *fixture) {
		f.config.Slots = jobs
		f.handle(func(ctx context.Context, _ *worker.Run) error {
			<-ctx.Done()
			return worker.Snooze(time.Hour)
		})
		f.config.DrainTimeout = time.Second
		f.run()
		start := time.Now()
		for i := range jobs {
			f.work(semantics)
			if i%100 == 0 {
				after(17 * time.Millisecond) // start at different times
			}
		}
		after(20 * time.Second)
		perSecond := make(map[int]int)
		beaten := make(map[gq.LeaseID]int)
		for _, c := range f.link.made("heartbeat") {
			perSecond[int(c.at.Sub(start)/time.Second)]++
			if len(c.beats) > 1000 {
				t.Errorf("%d beats in one call", len(c.beats))
			}
			for _, b := range c.beats {
				beaten[b.Lease.ID]++
			}
		}
		for second, n := range perSecond {
			if n >= 50 {
				t.Errorf("%d calls in second %d", n, second)
			}
		}
		if s := f.worker.Stats(); s.Running != jobs || s.LeasesLost != 0 || len(beaten) != jobs {
			t.Errorf("%+v, %d leases renewed", s, len(beaten))
		}
	})
}

func TestClocksMayDiffer(t *testing.T) {
	for _, skew := range []time.Duration{-48 * time.Hour, 48 * time.Hour} {
		bubble(t, func(f *fixture) {
			f.memory.skew = skew
			f.handle(sleepFor(time.Minute))
			f.run()
			id := f.work(semantics)
			after(2 * time.Minute)
			if j := f.wantStatus(id, gq.StatusCompleted); j.State.Attempt != 1 {
				t.Errorf("%d attempts with a clock that is %v ahead", j.State.Attempt, skew)
			}
		})
	}
}

func TestProgressGoesOutSoonAndNotTooOften(t *testing.T) {
	bubble(t, func(f *fixture) {
		f.handle(func(ctx context.Context, run *worker.Run) error {
			for i := range 1000 {
				if err := run.Progress(ctx, float64(i)/1000, fmt.Sprint("step ", i)); err != nil {
					return err
				}
				time.Sleep(10 * time.Millisecond)
			}
			return nil
		})
		f.run()
		id := f.work(nil) // a lease of five minutes
		after(5 * time.Second)
		s := f.job(id).State
		if s.Progress < 0.3 || !strings.HasPrefix(s.Note, "step ") {
			t.Errorf("after half of the work: %v %q", s.Progress, s.Note)
		}
		after(time.Minute)
		f.wantStatus(id, gq.StatusCompleted)
		if n := len(f.link.made("heartbeat")); n > 12 {
			t.Errorf("%d heartbeats for 10 s of progress", n)
		}
	})
}

func TestProgressSurvivesAFailedHeartbeat(t *testing.T) {
	bubble(t, func(f *fixture) {
		f.handle(func(ctx context.Context, run *worker.Run) error {
			err := run.Progress(ctx, 0.5, "half")
			time.Sleep(time.Minute)
			return err
		})
		f.link.setCut("heartbeat", gq.ErrStoreFailed)
		f.run()
		id := f.work(nil)
		after(10 * time.Second)
		f.link.setCut("heartbeat", nil)
		after(10 * time.Second)
		if s := f.job(id).State; s.Progress != 0.5 || s.Note != "half" {
			t.Errorf("progress %v %q", s.Progress, s.Note)
		}
		after(time.Minute)
	})
}

// The last report is not lost if the handler returns at once.
func TestLastProgressBeforeTheOutcome(t *testing.T) {
	bubble(t, func(f *fixture) {
		fails := true
		f.handle(func(ctx context.Context, run *worker.Run) error {
			if err := run.Progress(ctx, 0.9, "row 80"); err != nil || !fails {
				return err
			}
			return gq.Permanent(errors.New("no"), "no")
		})
		f.run()
		failed := f.work(nil)
		after(time.Second)
		fails = false
		done := f.work(nil)
		after(time.Second)
		f.wantStatus(failed, gq.StatusFailed)
		f.wantStatus(done, gq.StatusCompleted)
		for _, id := range []gq.JobID{failed, done} {
			if s := f.job(id).State; s.Note != "row 80" || s.Progress < 0.9 {
				t.Errorf("the %s job has progress %v %q", s.Status, s.Progress, s.Note)
			}
		}
	})
}

func TestLimitedRenewalsAreNotWasted(t *testing.T) {
	bubble(t, func(f *fixture) {
		f.handle(func(ctx context.Context, run *worker.Run) error {
			_ = run.Progress(ctx, 0.1, "")
			<-ctx.Done()
			return context.Cause(ctx)
		})
		f.run()
		start := time.Now()
		f.work(func(p *gq.Policy) { *p = gq.PresetAI.Policy() })
		after(29 * time.Minute) // 10 minutes and 4 renewals of 5
		if s := f.worker.Stats(); s.Running != 1 || s.LeasesLost != 0 {
			t.Errorf("before the end of the last renewal: %+v", s)
		}
		var at []time.Duration
		for _, c := range f.link.made("heartbeat") {
			at = append(at, c.at.Sub(start))
		}
		if want := []time.Duration{6 * time.Minute, 11 * time.Minute, 16 * time.Minute, 21 * time.Minute}; !slices.Equal(at, want) {
			t.Errorf("renewed at %v, want %v", at, want)
		}
		after(2 * time.Minute)
		if s := f.worker.Stats(); s.LeasesLost != 1 {
			t.Errorf("after the end of the last renewal: %+v", s)
		}
	})
}

func TestCancelReachesTheHandler(t *testing.T) {
	for name, answer := range map[string]func(context.Context) error{
		"obeys":    context.Cause,
		"succeeds": func(context.Context) error { return nil },
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(f *fixture) {
				f.config.HeartbeatEvery = 2 * time.Second
				var cause error
				f.handle(func(ctx context.Context, _ *worker.Run) error {
					<-ctx.Done()
					cause = context.Cause(ctx)
					return answer(ctx)
				})
				f.run()
				id := f.work(nil)
				synctest.Wait()
				f.ask(id, "too late")
				after(2 * time.Second)
				if !errors.Is(cause, worker.ErrCancelRequested) || !strings.Contains(cause.Error(), "too late") {
					t.Errorf("cause %v", cause)
				}
				want := gq.StatusCancelled
				if name == "succeeds" {
					want = gq.StatusCompleted
				}
				j := f.wantStatus(id, want)
				if c := j.State.Cancellation; c.DeliveredAt.IsZero() || c.HonouredAt.IsZero() != (want == gq.StatusCompleted) {
					t.Errorf("cancellation %+v", c)
				}
				if want == gq.StatusCancelled && j.State.Failure.Category != gq.CategoryCancelled {
					t.Errorf("failure %+v", j.State.Failure)
				}
				if s := f.worker.Stats(); s.Cancelled != 1 || s.Ignoring != 0 {
					t.Errorf("stats %+v", s)
				}
			})
		})
	}
}

func TestCheckpointTellsOfACancel(t *testing.T) {
	bubble(t, func(f *fixture) {
		f.handle(func(ctx context.Context, run *worker.Run) error {
			f.ask(run.ID(), "")
			if err := run.Checkpoint(ctx, []byte("x")); err != nil {
				t.Errorf("the checkpoint was saved: %v", err)
			}
			if !errors.Is(context.Cause(ctx), worker.ErrCancelRequested) {
				t.Errorf("cause %v", context.Cause(ctx))
			}
			return ctx.Err()
		})
		f.run()
		id := f.work(nil)
		synctest.Wait()
		f.wantStatus(id, gq.StatusCancelled)
	})
}

// telling is a queue that tells of cancel requests.
type telling struct {
	*link
	tell func(jobs []gq.JobID)
}

func (q *telling) CancelRequests(f func(jobs []gq.JobID)) (stop func()) {
	q.tell = f
	return func() {}
}

// A request to stop several jobs reaches all their handlers at once, and nothing happens to others. Jobs whose
// heartbeats are limited spend none of them on it.
func TestCancelOfSeveralJobs(t *testing.T) {
	bubble(t, func(f *fixture) {
		q := &telling{link: f.link}
		w := worker.New(q, worker.Config{Logger: discard(), HeartbeatEvery: time.Hour})
		var asked time.Time
		stopped := make(map[gq.JobID]bool)
		var mu sync.Mutex // of stopped
		w.HandleFunc("work", func(ctx context.Context, run *worker.Run) error {
			<-ctx.Done()
			mu.Lock()
			defer mu.Unlock()
			stopped[run.ID()] = true
			if late := time.Since(asked); late > time.Millisecond {
				t.Errorf("job %s learned it after %v", run.ID(), late)
			}
			return context.Cause(ctx)
		})
		w.Start(f.Context())
		limited := func(p *gq.Policy) { *p = gq.PresetAI.Policy() }
		var ids []gq.JobID
		for range 3 {
			ids = append(ids, f.work(patient), f.work(limited))
		}
		others := []gq.JobID{f.work(patient), f.work(limited)}
		after(time.Second)
		asked = time.Now()
		for _, id := range ids {
			f.memory.ask(id, "enough")
		}
		before := len(f.link.made("heartbeat"))
		q.tell(ids)
		after(time.Second)
		for _, id := range ids {
			f.wantStatus(id, gq.StatusCancelled)
		}
		for _, id := range others {
			f.wantStatus(id, gq.StatusRunning)
			mu.Lock()
			if stopped[id] {
				t.Errorf("job %s was told to stop", id)
			}
			mu.Unlock()
		}
		beats := 0
		for _, c := range f.link.made("heartbeat")[before:] {
			beats += len(c.beats)
		}
		if beats != 3 {
			t.Errorf("%d heartbeats, want one of each job whose heartbeats are not limited", beats)
		}
		for _, id := range others { // so that the worker stops
			f.memory.ask(id, "enough")
		}
		asked = time.Now()
		q.tell(others)
		after(time.Second)
		if err := w.Stop(); err != nil {
			t.Error(err)
		}
	})
}

// crossing is a queue that tells of a request to stop a job between a heartbeat and its answer, which does not
// have the request yet.
type crossing struct {
	telling
	crossed bool
	ask     func(id gq.JobID)
	job     gq.JobID
}

func (q *crossing) Heartbeat(ctx context.Context, beats []gq.Heartbeat) ([]gq.LeaseResult, error) {
	answers, err := q.link.Heartbeat(ctx, beats)
	if !q.crossed {
		q.crossed = true
		q.ask(q.job)
		q.tell([]gq.JobID{q.job})
	}
	return answers, err
}

// The answer to a heartbeat that crosses a request to stop the job does not put off the next heartbeat.
func TestCancelCrossesAHeartbeat(t *testing.T) {
	for range 20 { // the keeper may see the request before the answer
		bubble(t, func(f *fixture) {
			q := &crossing{telling: telling{link: f.link}, ask: func(id gq.JobID) { f.memory.ask(id, "enough") }}
			w := worker.New(q, worker.Config{Logger: discard()})
			ended := make(chan time.Time, 1)
			w.HandleFunc("work", func(ctx context.Context, _ *worker.Run) error {
				<-ctx.Done()
				ended <- time.Now()
				return context.Cause(ctx)
			})
			q.job = f.work(patient)
			w.Start(f.Context())
			began := time.Now()
			late := (<-ended).Sub(began)
			beats := f.link.made("heartbeat")
			if first := beats[0].at.Sub(began); late != first {
				t.Errorf("the handler learned after %v of what was asked after %v", late, first)
			}
			if err := w.Stop(); err != nil {
				t.Error(err)
			}
		})
	}
}

// unsure is a queue that cannot answer for the jobs of a heartbeat the first time.
type unsure struct {
	*link
	answered bool
}

func (q *unsure) Heartbeat(ctx context.Context, beats []gq.Heartbeat) ([]gq.LeaseResult, error) {
	if q.answered {
		return q.link.Heartbeat(ctx, beats)
	}
	q.answered = true
	answers := make([]gq.LeaseResult, len(beats))
	for i := range answers {
		answers[i].Err = gq.ErrStoreFailed
	}
	return answers, nil
}

// A report that the queue could not take in is sent again.
func TestProgressSurvivesAnUnansweredBeat(t *testing.T) {
	bubble(t, func(f *fixture) {
		w := worker.New(&unsure{link: f.link}, worker.Config{Logger: discard()})
		w.HandleFunc("work", func(ctx context.Context, run *worker.Run) error {
			return errors.Join(run.Progress(ctx, 0.5, "row 40"), sleepFor(time.Minute)(ctx, run))
		})
		w.Start(f.Context())
		id := f.work(nil)
		after(30 * time.Second)
		if s := f.job(id).State; s.Note != "row 40" || s.Progress != 0.5 {
			t.Errorf("the job has progress %v %q", s.Progress, s.Note)
		}
		after(time.Minute)
		f.wantStatus(id, gq.StatusCompleted)
		if err := w.Stop(); err != nil {
			t.Error(err)
		}
	})
}
