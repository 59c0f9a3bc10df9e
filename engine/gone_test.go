package engine_test

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/engine"
	"github.com/gopherqueue/gq/machine"
)

// connect opens a stream of a worker.
func (f *fixture) connect(worker string) (through context.Context, end func(broke bool)) {
	f.Helper()
	through, end, err := f.Connected(f.Context(), worker, "v1.2.3")
	if err != nil {
		f.Fatal(err)
	}
	return through, end
}

// streamed claims a job through a stream and returns the context and the end of the stream.
func (f *fixture) streamed(worker string) (j gq.Job, through context.Context, end func(broke bool)) {
	f.Helper()
	through, end = f.connect(worker)
	jobs, err := f.Claim(through, gq.ClaimRequest{Worker: worker, N: 1})
	if err != nil || len(jobs) != 1 {
		f.Fatalf("claim: %d jobs, %v", len(jobs), err)
	}
	return jobs[0], through, end
}

// gone reports whether a job was taken from a worker that is gone.
func (f *fixture) gone(j gq.Job) bool {
	f.Helper()
	failure := f.get(j.Spec.ID).State.Failure
	return failure != nil && failure.Code == machine.CodeWorkerGone
}

// TestWorkerIsGone hands a job to another worker within ten seconds of the death of the first,
// long before its lease ends, and counts it as a lost lease.
func TestWorkerIsGone(t *testing.T) {
	bubble(t, func(t *testing.T, f *fixture) {
		f.run()
		p := gq.PresetSemantics.Policy()
		p.LeaseTTL = 30 * time.Second
		f.submit(gq.Spec{Policy: p})
		j, _, end := f.streamed("w")
		if w := f.workers()[0]; w.Version != "v1.2.3" || len(w.Leases) != 1 {
			t.Errorf("%+v", w)
		}
		end(true)
		began := time.Now()
		again, _ := f.take(as("another"), waiting(time.Minute))
		if took := time.Since(began); took < 5*time.Second || took > 10*time.Second || again.Spec.ID != j.Spec.ID {
			t.Errorf("job %s was claimed after %v", again.Spec.ID, took)
		}
		if s := again.State; s.Losses != 1 || s.Failure.Code != machine.CodeWorkerGone || s.Failure.Category != gq.CategorySystem {
			t.Errorf("%+v, %+v", s, s.Failure)
		}
		if _, err := f.Complete(t.Context(), j.State.Lease.Ref(), nil); err == nil {
			t.Error("the lost lease completed the job")
		}
	})
}

// TestWorkerWithoutStream hands a job to another worker when the lease of the first is over: nothing
// else tells that its process died.
func TestWorkerWithoutStream(t *testing.T) {
	bubble(t, func(t *testing.T, f *fixture) {
		f.run()
		p := gq.PresetResilient.Policy()
		p.LeaseTTL = 30 * time.Second
		f.submit(gq.Spec{Policy: p})
		j, _ := f.take(as("w"))
		began := time.Now()
		again, _ := f.take(as("another"), waiting(time.Minute))
		if took := time.Since(began); took < 30*time.Second || took > 32*time.Second || again.Spec.ID != j.Spec.ID {
			t.Errorf("job %s was claimed after %v", again.Spec.ID, took)
		}
		if s := again.State; s.Losses != 1 || s.Failure.Code == machine.CodeWorkerGone {
			t.Errorf("%+v, %+v", s, s.Failure)
		}
	})
}

// A stream that ends takes a worker from the list that called only through streams. One that polls
// stays, whoever opened a stream in its name.
func TestStreamEndsForAPollingWorker(t *testing.T) {
	bubble(t, func(t *testing.T, f *fixture) {
		listed := func(when string, want ...string) {
			t.Helper()
			var names []string
			for _, w := range f.workers() {
				names = append(names, w.Name)
			}
			if !slices.Equal(names, want) {
				t.Errorf("%s: %q are listed, want %q", when, names, want)
			}
		}
		polling := []string{"a", "b"}
		for _, name := range polling {
			f.claim(0, as(name))
		}
		var ends []func(bool)
		for _, name := range []string{"a", "b", "c", "d"} {
			through, end := f.connect(name)
			ends = append(ends, end)
			if name > "b" {
				must[[]gq.Job](t)(f.Claim(through, gq.ClaimRequest{Worker: name, N: 1}))
			}
		}
		listed("all are there", "a", "b", "c", "d")
		for i, end := range ends {
			end(i%2 == 0)
		}
		listed("the streams have ended", polling...)
		time.Sleep(2 * time.Minute)
		listed("they no longer poll")
		for _, name := range polling {
			_, end := f.connect(name)
			end(false)
		}
		f.submit(gq.Spec{})
		f.take(as("a"))
		_, end := f.connect("a")
		end(false)
		listed("it holds a job", "a")
	})
}

// TestWorkerIsNotGone keeps the leases of workers that may be alive.
func TestWorkerIsNotGone(t *testing.T) {
	for name, story := range map[string]func(f *fixture, j gq.Job, through context.Context, end func(broke bool)){
		"the stream is open":         func(*fixture, gq.Job, context.Context, func(bool)) {},
		"it left or the server does": func(_ *fixture, _ gq.Job, _ context.Context, end func(bool)) { end(false) },
		"it connects again": func(f *fixture, _ gq.Job, _ context.Context, end func(bool)) {
			end(true)
			time.Sleep(4 * time.Second)
			f.connect("w")
		},
		"another stream of it is open": func(f *fixture, _ gq.Job, _ context.Context, end func(bool)) {
			f.connect("w")
			end(true)
		},
		"it sends a heartbeat otherwise": func(f *fixture, j gq.Job, _ context.Context, end func(bool)) {
			end(true)
			time.Sleep(4 * time.Second)
			must[[]gq.LeaseResult](f.T)(f.Heartbeat(f.Context(), []gq.Heartbeat{{Lease: j.State.Lease.Ref()}}))
		},
		"it also claims without a stream": func(f *fixture, _ gq.Job, _ context.Context, end func(bool)) {
			f.submit(gq.Spec{})
			f.take()
			end(true)
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, f *fixture) {
				f.run()
				f.submit(gq.Spec{})
				j, through, end := f.streamed("w")
				time.Sleep(time.Second)
				story(f, j, through, end)
				time.Sleep(25 * time.Second)
				f.status(j.Spec.ID, gq.StatusRunning)
				if f.gone(j) {
					t.Error("its worker was taken for gone")
				}
			})
		})
	}
}

// TestPretender opens a stream in the name of a worker that claims without one, and breaks it.
func TestPretender(t *testing.T) {
	bubble(t, func(t *testing.T, f *fixture) {
		f.run()
		f.submit(gq.Spec{})
		f.submit(gq.Spec{})
		j, _ := f.take(as("w"))
		theirs, _, end := f.streamed("w")
		end(true)
		time.Sleep(25 * time.Second)
		f.status(j.Spec.ID, gq.StatusRunning)
		f.status(theirs.Spec.ID, gq.StatusRunning)
	})
}

// TestWorkerChangesServer keeps the leases of a worker that has connected to another server of the
// store, before it claims or sends anything there, and ends them when that stream breaks too.
func TestWorkerChangesServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes, _ := nodesOf(t, 2)
		a, b := nodes[0], nodes[1]
		a.run()
		b.run()
		a.submit(gq.Spec{})
		j, _, end := a.streamed("w")
		time.Sleep(time.Second)
		end(true)
		time.Sleep(time.Second)
		through, leave := b.connect("w")
		time.Sleep(25 * time.Second)
		a.status(j.Spec.ID, gq.StatusRunning)
		if _, err := b.Heartbeat(through, []gq.Heartbeat{{Lease: j.State.Lease.Ref()}}); err != nil {
			t.Fatal(err)
		}
		leave(true)
		time.Sleep(9 * time.Second)
		if !a.gone(j) {
			t.Error("the other server did not end the lease")
		}
	})
}

// TestServersThatAreLate waits for the announcement of a server that may know the worker.
func TestServersThatAreLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes, _ := nodesOf(t, 2)
		a, b := nodes[0], nodes[1]
		a.run()
		stop := b.runUntil()
		a.submit(gq.Spec{})
		j, _, end := a.streamed("w")
		var ended bool
		go func() {
			b.claim(0, as("other"), on("elsewhere"), waiting(time.Minute))
			ended = true
		}()
		time.Sleep(2 * time.Second)
		end(true)
		time.Sleep(9 * time.Second)
		if !a.gone(j) {
			t.Error("both servers have announced themselves since, and the worker is not gone")
		}
		time.Sleep(time.Minute)
		stop()
		if synctest.Wait(); !ended {
			t.Error("the claim did not end")
		}
	})
}

// Who takes over the name of a known worker must be allowed each queue that it claims from.
func TestPretenderOfTwoQueues(t *testing.T) {
	bubble(t, func(t *testing.T, f *fixture) {
		must[[]gq.Job](t)(f.Claim(t.Context(), gq.ClaimRequest{Worker: "w", Queues: []string{"a", "b"}, N: 1}))
		for _, allowed := range []string{"a", "b"} {
			ctx := engine.WithAuthorize(t.Context(), func(queue string) error {
				if queue == allowed {
					return nil
				}
				return gq.ErrDenied.Errorf("not %s", queue)
			})
			_, end, err := f.Connected(ctx, "w", "")
			wantErr(t, "allowed only "+allowed, err, gq.ErrDenied)
			if err == nil {
				end(false)
			}
		}
	})
}
