package worker_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/worker"
)

var track = gq.NewKind[int, int]("track")

// submitInts submits jobs of track.
func (f *fixture) submitInts(n int) (ids []gq.JobID) {
	for i := range n {
		s, err := track.Spec(i, gq.MaxAttempts(1))
		if err != nil {
			f.Fatal(err)
		}
		s.Policy = gq.PresetSemantics.Policy()
		ids = append(ids, f.submit(s))
	}
	return ids
}

// A call gets Size jobs, although the worker has fewer slots, and each job gets its own
// verdict and result.
func TestManyBySize(t *testing.T) {
	bubble(t, func(f *fixture) {
		var mu sync.Mutex
		var sizes []int
		worker.HandleMany(f.mux, track, worker.Gather{Size: 20, Wait: time.Hour}, func(_ context.Context, jobs []*worker.Job[int]) []error {
			mu.Lock()
			defer mu.Unlock()
			sizes = append(sizes, len(jobs))
			verdicts := make([]error, len(jobs))
			for i, job := range jobs {
				if job.Args%2 == 1 {
					verdicts[i] = gq.Permanent(errors.New("odd"), "odd")
				} else if err := job.SetResult(-job.Args); err != nil {
					verdicts[i] = err
				}
			}
			return verdicts
		})
		ids := f.submitInts(40)
		f.run()
		after(time.Second)
		for i, id := range ids {
			want := gq.StatusCompleted
			if i%2 == 1 {
				want = gq.StatusFailed
			}
			f.wantStatus(id, want)
		}
		mu.Lock()
		defer mu.Unlock()
		if !slices.Equal(sizes, []int{20, 20}) {
			t.Errorf("called with %v jobs", sizes)
		}
	})
}

// A call does not wait longer than Wait, and the leases of waiting jobs are renewed.
func TestManyByTime(t *testing.T) {
	bubble(t, func(f *fixture) {
		var took time.Duration
		began := time.Now()
		worker.HandleMany(f.mux, track, worker.Gather{Size: 20, Wait: 10 * time.Minute}, func(_ context.Context, jobs []*worker.Job[int]) []error {
			if took = time.Since(began); len(jobs) != 3 {
				t.Errorf("called with %d jobs", len(jobs))
			}
			return nil
		})
		ids := f.submitInts(3)
		f.run()
		after(11 * time.Minute)
		for _, id := range ids {
			f.wantStatus(id, gq.StatusCompleted)
		}
		if took < 10*time.Minute || took > 10*time.Minute+time.Second {
			t.Errorf("called after %v", took)
		}
	})
}

// A panic fails every job of the call, and so does a wrong number of verdicts.
func TestManyFailures(t *testing.T) {
	for code, f := range map[string]func([]*worker.Job[int]) []error{
		"panic":            func([]*worker.Job[int]) []error { panic("no") },
		"invalid_verdicts": func([]*worker.Job[int]) []error { return make([]error, 1) },
	} {
		bubble(t, func(x *fixture) {
			worker.HandleMany(x.mux, track, worker.Gather{Size: 3}, func(_ context.Context, jobs []*worker.Job[int]) []error { return f(jobs) })
			ids := x.submitInts(3)
			x.run()
			after(time.Second)
			for _, id := range ids {
				if s := x.memory.job(id).State; s.Failure == nil || s.Failure.Code != code {
					t.Errorf("%s: %v with %+v", code, s.Status, s.Failure)
				}
			}
		})
	}
}

// A job that is cancelled while it waits leaves the group; the others go on without it.
func TestManyCancelled(t *testing.T) {
	bubble(t, func(f *fixture) {
		worker.HandleMany(f.mux, track, worker.Gather{Size: 20, Wait: time.Minute}, func(_ context.Context, jobs []*worker.Job[int]) []error {
			var args []int
			for _, job := range jobs {
				args = append(args, job.Args)
			}
			if slices.Sort(args); !slices.Equal(args, []int{1, 2}) {
				t.Errorf("called with jobs %v", args)
			}
			return nil
		})
		ids := f.submitInts(3)
		f.run()
		after(time.Second)
		f.memory.ask(ids[0], "changed my mind")
		after(10 * time.Second)
		f.wantStatus(ids[0], gq.StatusCancelled)
		after(time.Minute)
		f.wantStatus(ids[1], gq.StatusCompleted)
		f.wantStatus(ids[2], gq.StatusCompleted)
	})
}

// A job that comes while a group is being worked on, also one that was called before it was full, is in another one.
func TestManyWhileRunning(t *testing.T) {
	bubble(t, func(f *fixture) {
		f.config.Slots = 3
		var mu sync.Mutex
		var calls [][]int
		worker.HandleMany(f.mux, track, worker.Gather{Size: 20, Wait: time.Minute}, func(_ context.Context, jobs []*worker.Job[int]) []error {
			var args []int
			for _, job := range jobs {
				args = append(args, job.Args)
			}
			slices.Sort(args)
			mu.Lock()
			calls = append(calls, args)
			mu.Unlock()
			time.Sleep(10 * time.Minute)
			return nil
		})
		ids := f.submitInts(2)
		f.run()
		after(2 * time.Minute) // the first group is called
		ids = append(ids, f.submitInts(3)...)
		after(2 * time.Minute) // so is the second, while the first runs
		ids = append(ids, f.submitInts(1)...)
		after(time.Minute / 2)
		for _, id := range ids {
			f.wantStatus(id, gq.StatusRunning)
		}
		after(30 * time.Minute)
		for _, id := range ids {
			f.wantStatus(id, gq.StatusCompleted)
		}
		if want := [][]int{{0, 1}, {0, 1, 2}, {0}}; !slices.EqualFunc(calls, want, slices.Equal) {
			t.Errorf("called with jobs %v, want %v", calls, want)
		}
	})
}

// Jobs that are cancelled once the handler was called stay until it returns, and its context ends with that of the
// last of them.
func TestManyCancelledWhileRunning(t *testing.T) {
	bubble(t, func(f *fixture) {
		var ended time.Duration
		began := time.Now()
		worker.HandleMany(f.mux, track, worker.Gather{Size: 2}, func(ctx context.Context, jobs []*worker.Job[int]) []error {
			<-ctx.Done()
			ended = time.Since(began)
			for _, job := range jobs {
				if job.Context().Err() == nil {
					t.Errorf("the context has ended before that of job %d", job.Args)
				}
			}
			return []error{jobs[0].SetResult(jobs[0].Args), jobs[1].SetResult(jobs[1].Args)}
		})
		ids := f.submitInts(2)
		f.run()
		after(10 * time.Second)
		f.memory.ask(ids[0], "changed my mind")
		after(3 * time.Second) // longer than a heartbeat, shorter than the lease
		f.wantStatus(ids[0], gq.StatusRunning)
		f.memory.ask(ids[1], "changed my mind")
		after(3 * time.Second)
		for _, id := range ids {
			f.wantStatus(id, gq.StatusCompleted)
		}
		if ended < 13*time.Second || ended > 15*time.Second {
			t.Errorf("the context ended after %v", ended)
		}
	})
}

// Wrong sizes and times are reported with the other faults of a worker.
func TestManyRefused(t *testing.T) {
	mux := worker.NewMux()
	worker.HandleMany(mux, track, worker.Gather{Wait: -1}, func(context.Context, []*worker.Job[int]) []error { return nil })
	_, err := worker.NewWith(newMemory(), mux, worker.Config{Logger: discard()})
	if e, ok := errors.AsType[*gq.InvalidError](err); !ok || len(e.Faults) != 2 {
		t.Errorf("%v", err)
	}
}

// A worker with one slot gathers jobs too, also while its handler runs, calls the handler once at
// a time, and holds no more jobs than two calls need.
func TestManyWithOneSlot(t *testing.T) {
	bubble(t, func(f *fixture) {
		f.config.Slots = 1
		var sizes []int // the handler is not called concurrently
		running := false
		worker.HandleMany(f.mux, track, worker.Gather{Size: 20, Wait: time.Minute}, func(_ context.Context, jobs []*worker.Job[int]) []error {
			if running {
				t.Error("called twice at once")
			}
			running = true
			sizes = append(sizes, len(jobs))
			time.Sleep(10 * time.Minute)
			running = false
			return nil
		})
		ids := f.submitInts(50)
		f.run()
		after(time.Second)
		if n := f.counts()[gq.StatusRunning]; n != 40 {
			t.Errorf("the worker holds %d jobs", n)
		}
		if s := f.worker.Stats(); s.Used != 1 || s.Free != 0 || s.Running != 40 {
			t.Errorf("stats %+v", s)
		}
		after(32 * time.Minute)
		for _, id := range ids {
			f.wantStatus(id, gq.StatusCompleted)
		}
		if !slices.Equal(sizes, []int{20, 20, 10}) {
			t.Errorf("called with %v jobs", sizes)
		}
		if s := f.worker.Stats(); s.Used != 0 || s.Free != 1 {
			t.Errorf("stats %+v", s)
		}
	})
}

// A call of many jobs and the handlers of single ones share the slots. A job that was claimed for
// a slot which a call took meanwhile goes back to the queue.
func TestManyBesideSingleJobs(t *testing.T) {
	bubble(t, func(f *fixture) {
		f.config.Slots = 1
		running := 0
		work := func() {
			if running++; running > 1 {
				t.Errorf("%d handlers at once", running)
			}
			time.Sleep(5 * time.Second)
			running--
		}
		worker.HandleMany(f.mux, track, worker.Gather{Size: 20, Wait: time.Second}, func(context.Context, []*worker.Job[int]) []error {
			work()
			return nil
		})
		f.handle(func(context.Context, *worker.Run) error { work(); return nil })
		f.run()
		after(time.Second)
		gathered := f.submitInts(3) // called in a second, with the slot that the waiting claim has reserved
		after(2 * time.Second)
		id := f.work(func(p *gq.Policy) { p.MaxAttempts = 1 }) // it does not use up its only attempt
		after(time.Second)
		f.wantStatus(id, gq.StatusScheduled)
		after(20 * time.Second)
		f.wantStatus(id, gq.StatusCompleted)
		for _, id := range gathered {
			f.wantStatus(id, gq.StatusCompleted)
		}
	})
}

// A job that middleware stops, or whose payload is invalid, leaves its place to others.
func TestManyWithBadPayloads(t *testing.T) {
	bubble(t, func(f *fixture) {
		f.config.Slots = 1
		worker.HandleMany(f.mux, track, worker.Gather{Size: 2}, func(context.Context, []*worker.Job[int]) []error { return nil })
		for range 10 {
			f.submit(gq.Spec{Type: track.Name(), Payload: gq.Payload{Data: []byte(`"text"`)}})
		}
		ids := f.submitInts(2)
		f.run()
		after(5 * time.Second)
		for _, id := range ids {
			f.wantStatus(id, gq.StatusCompleted)
		}
	})
}

// A job that leaves its group alone takes nobody with it: jobs that come later are in another group.
func TestManyAfterALonelyCancel(t *testing.T) {
	bubble(t, func(f *fixture) {
		worker.HandleMany(f.mux, track, worker.Gather{Size: 2, Wait: time.Minute}, func(context.Context, []*worker.Job[int]) []error { return nil })
		alone := f.submitInts(1)
		f.run()
		after(time.Second)
		f.memory.ask(alone[0], "changed my mind")
		after(10 * time.Second)
		f.wantStatus(alone[0], gq.StatusCancelled)
		ids := f.submitInts(2)
		after(time.Second)
		for _, id := range ids {
			f.wantStatus(id, gq.StatusCompleted)
		}
	})
}

// A group that waits for a slot of its queue set holds up no group of another set.
func TestManyInTwoQueueSets(t *testing.T) {
	bubble(t, func(f *fixture) {
		f.config.Slots = 3
		f.config.QueueSets = []worker.QueueSet{{Queues: []string{"slow"}, Slots: 1}, {Queues: []string{"quick"}, Slots: 2}}
		worker.HandleMany(f.mux, track, worker.Gather{Size: 1}, func(_ context.Context, jobs []*worker.Job[int]) []error {
			if jobs[0].Queue() == "slow" {
				time.Sleep(10 * time.Minute)
			}
			return nil
		})
		submit := func(queue string) gq.JobID {
			return f.submit(gq.Spec{Type: track.Name(), Queue: queue, Payload: gq.Payload{Data: []byte("1")}})
		}
		slow := []gq.JobID{submit("slow"), submit("slow")}
		f.run()
		after(time.Second)
		for _, id := range slow { // one runs, and one waits for its slot
			f.wantStatus(id, gq.StatusRunning)
		}
		quick := submit("quick")
		after(time.Second)
		f.wantStatus(quick, gq.StatusCompleted)
		after(time.Hour)
		for _, id := range slow {
			f.wantStatus(id, gq.StatusCompleted)
		}
	})
}

// A group whose jobs have all left keeps no slot, also if it gets one at the same moment.
func TestManyThatLeaveWithASlot(t *testing.T) {
	if used := worker.EnterGone(100); used != 0 {
		t.Errorf("%d slots are in use by nobody", used)
	}
}

// A worker that stops calls the handler with the jobs that it has, however long they would wait for more.
func TestManyStopAtOnce(t *testing.T) {
	bubble(t, func(f *fixture) {
		called := 0
		worker.HandleMany(f.mux, track, worker.Gather{Size: 10, Wait: time.Hour}, func(_ context.Context, jobs []*worker.Job[int]) []error {
			called += len(jobs)
			return nil
		})
		ids := f.submitInts(2)
		f.run()
		after(time.Second)
		start := time.Now()
		if err := f.stop(); err != nil {
			t.Error(err)
		}
		if took := time.Since(start); took > time.Second || called != 2 {
			t.Errorf("called with %d jobs, after %v", called, took)
		}
		for _, id := range ids {
			f.wantStatus(id, gq.StatusCompleted)
		}
	})
}
