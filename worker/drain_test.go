package worker_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/internal/testing/cmdtest"
	"github.com/gopherqueue/gq/internal/testing/spec"
	"github.com/gopherqueue/gq/worker"
)

func discard() *slog.Logger { return slog.New(slog.DiscardHandler) }

func TestDrainLetsHandlersFinish(t *testing.T) {
	bubble(t, func(f *fixture) {
		f.config.DrainTimeout = time.Minute
		f.handle(sleepFor(50 * time.Second)) // ten leases long
		f.run()
		id := f.work(semantics)
		after(time.Second)
		start := time.Now()
		f.cancel()
		synctest.Wait()
		later := f.work(nil)
		if err := f.stop(); err != nil {
			t.Error(err)
		}
		if took := time.Since(start); took != 49*time.Second {
			t.Errorf("stopped after %v", took)
		}
		if j := f.wantStatus(id, gq.StatusCompleted); j.State.Attempt != 1 {
			t.Errorf("%d attempts", j.State.Attempt)
		}
		f.wantStatus(later, gq.StatusScheduled)
	})
}

func TestDrainGivesBackWhatDoesNotFinish(t *testing.T) {
	for name, c := range map[string]struct {
		answer func(ctx context.Context) error
		status gq.Status
	}{
		"stops":            {context.Cause, gq.StatusScheduled},
		"finishes quickly": {func(context.Context) error { return nil }, gq.StatusCompleted},
		"decides":          {func(context.Context) error { return gq.Permanent(errors.New("no"), "no") }, gq.StatusFailed},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(f *fixture) {
				f.config.DrainTimeout = 10 * time.Second
				var cause error
				f.handle(func(ctx context.Context, run *worker.Run) error {
					<-ctx.Done()
					cause = context.Cause(ctx)
					if err := run.Checkpoint(context.WithoutCancel(ctx), []byte("so far")); err != nil {
						t.Errorf("a last checkpoint: %v", err)
					}
					return c.answer(ctx)
				})
				f.run()
				id := f.work(nil)
				after(time.Second)
				start := time.Now()
				if err := f.stop(); err != nil {
					t.Error(err)
				}
				if took := time.Since(start); took != 10*time.Second || !errors.Is(cause, worker.ErrDraining) {
					t.Errorf("stopped after %v, cause %v", took, cause)
				}
				j := f.wantStatus(id, c.status)
				if c.status == gq.StatusScheduled && (j.State.Faults != 0 || j.State.Bound != 4 || string(j.Checkpoint) != "so far") {
					t.Errorf("an attempt was used up: %+v", j.State)
				}
			})
		})
	}
}

func TestDrainAbandonsHandlersThatIgnoreIt(t *testing.T) {
	for name, policy := range map[string]func(*gq.Policy){"long lease": nil, "short lease": semantics} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(f *fixture) {
				f.config.DrainTimeout, f.config.Grace = 10*time.Second, 5*time.Second
				release := make(chan struct{})
				f.handle(func(context.Context, *worker.Run) error {
					<-release
					return nil
				})
				f.run()
				id := f.work(policy)
				after(time.Second)
				start := time.Now()
				w := f.worker
				err := f.stop()
				if !errors.Is(err, worker.ErrAbandoned) || errors.Is(err, worker.ErrUndelivered) || !strings.Contains(err.Error(), id.String()) {
					t.Errorf("Run: %v", err)
				}
				if took := time.Since(start); took > 15*time.Second {
					t.Errorf("stopped after %v", took)
				}
				j := f.wantStatus(id, gq.StatusScheduled)
				if j.State.Faults != 0 || j.State.Losses != 0 {
					t.Errorf("an attempt was used up: %+v", j.State)
				}
				close(release)
				synctest.Wait()
				f.wantStatus(id, gq.StatusScheduled)
				if s := w.Stats(); s.Abandoned != 1 || s.Released != 1 {
					t.Errorf("stats %+v", s)
				}
			})
		})
	}
}

func TestStopWhileTheQueueIsAway(t *testing.T) {
	bubble(t, func(f *fixture) {
		f.handle(sleepFor(time.Second))
		f.run()
		f.work(nil)
		synctest.Wait()
		f.link.setCut("", errors.New("connection refused"))
		start := time.Now()
		if err := f.stop(); !errors.Is(err, worker.ErrUndelivered) {
			t.Errorf("Run: %v", err)
		}
		if took := time.Since(start); took > 10*time.Second {
			t.Errorf("stopped after %v", took)
		}
	})
}

// slow returns jobs after the caller has left.
type slow struct{ *memory }

func (q slow) Claim(ctx context.Context, req gq.ClaimRequest) ([]gq.Job, error) {
	<-ctx.Done()
	req.Wait = 0
	return q.memory.Claim(context.WithoutCancel(ctx), req)
}

func TestJobsThatArriveWhileStoppingAreGivenBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, mux := newMemory(), worker.NewMux()
		mux.HandleFunc("work", func(context.Context, *worker.Run) error {
			t.Error("a job was started while stopping")
			return nil
		})
		id := m.submit(gq.Spec{Type: "work"})
		w, err := worker.NewWith(slow{m}, mux, worker.Config{Logger: discard()})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := w.Run(ctx); err != nil {
			t.Error(err)
		}
		if s := m.job(id).State; s.Status != gq.StatusScheduled || s.Attempt != 1 || s.Bound != 4 {
			t.Errorf("the job is %v after %d of %d attempts", s.Status, s.Attempt, s.Bound)
		}
	})
}

func TestLogsNameTheJobAndNeverQuoteIt(t *testing.T) {
	spec.Covers(t, "J-132", "J-146")
	bubble(t, func(f *fixture) {
		const secret = "s3cr3t-s3cr3t"
		worker.Handle(f.mux, gq.NewKind[email, gq.None]("typed"), func(_ context.Context, job *worker.Job[email]) error {
			if job.CorrelationID() != "trace-7" {
				t.Errorf("the handler sees %q", job.CorrelationID())
			}
			job.Log().Info("from the handler")
			switch job.Args.N {
			case 1:
				return errors.New("cannot send to " + job.Args.To)
			case 2:
				panic("cannot send to " + job.Args.To)
			case 3:
				return worker.Cancel(job.Args.To)
			case 4:
				return job.SetResult(make([]byte, 2<<20))
			case 5:
				return worker.Snooze(time.Hour)
			case 6:
				time.Sleep(time.Hour) // times out, but ignores it
			}
			return nil
		})
		f.run()
		const cases = 7
		for n := range cases {
			f.submit(gq.Spec{
				Type: "typed", Payload: gq.Payload{Data: []byte(`{"to":"` + secret + `","n":` + string(rune('0'+n)) + `}`)},
				Metadata: gq.Metadata{CorrelationID: "trace-7"},
			})
		}
		f.submit(gq.Spec{
			Type: "typed", Payload: gq.Payload{Data: []byte(`{"to":["` + secret + `"]}`)},
			Metadata: gq.Metadata{CorrelationID: "trace-7"},
		})
		after(2 * time.Hour)
		if form := cmdtest.Reveals(f.log.String(), secret); form != "" {
			t.Errorf("a payload stands in the log, %s:\n%s", form, f.log)
		}
		seen := 0
		for _, message := range []string{
			"from the handler", "job failed", "job released", "handler panicked", "execution timeout",
			"success rejected; failing the job instead", "handler ignores the end of its context",
		} {
			lines := f.log.lines(message)
			if len(lines) == 0 {
				t.Errorf("no line %q", message)
			}
			for _, line := range lines {
				seen++
				if line["correlation_id"] != "trace-7" || line["type"] != "typed" || line["attempt"].(float64) < 1 || len(line["job"].(string)) != 36 {
					t.Errorf("a line does not name its job: %v", line)
				}
			}
		}
		if seen < cases {
			t.Errorf("%d lines", seen)
		}
	})
}

// A job whose lease is lost takes no time from the others that are still to end.
func TestDrainBesideALostLease(t *testing.T) {
	bubble(t, func(f *fixture) {
		f.config.DrainTimeout, f.config.Grace = 10*time.Second, 5*time.Second
		ended := make(chan struct{})
		f.handle(func(ctx context.Context, run *worker.Run) error {
			switch {
			case run.Attempt() > 1:
			case run.Policy().LeaseTTL < time.Minute:
				<-ended // it ignores its context
			default:
				<-ctx.Done()
				time.Sleep(2 * time.Second)
				close(ended)
			}
			return nil
		})
		f.run()
		f.work(func(p *gq.Policy) { p.LeaseTTL = 5 * time.Second })
		id := f.work(patient)
		f.link.setCut("heartbeat", gq.ErrStoreFailed)
		after(6 * time.Second)
		f.link.setCut("heartbeat", nil)
		if s := f.worker.Stats(); s.LeasesLost != 1 {
			t.Errorf("stats %+v", s)
		}
		start := time.Now()
		if err := f.stop(); err != nil {
			t.Errorf("Run: %v", err)
		}
		if took := time.Since(start); took != 12*time.Second {
			t.Errorf("stopped after %v", took)
		}
		f.wantStatus(id, gq.StatusCompleted)
	})
}
