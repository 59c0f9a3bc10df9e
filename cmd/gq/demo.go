package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/engine"
	"github.com/gopherqueue/gq/internal/cli"
	"github.com/gopherqueue/gq/internal/quantity"
	"github.com/gopherqueue/gq/machine"
	"github.com/gopherqueue/gq/store/local"
	"github.com/gopherqueue/gq/worker"
)

func newDemo(p process) *cobra.Command {
	var dir string
	c := &cobra.Command{
		Use:   "demo",
		Short: "Watch jobs succeed, retry, fail, wait, get cancelled and survive a crash",
		Long: `Run a small queue in this process for a few seconds and print what happens to
every job: success, a retry after a backoff, a permanent failure, three jobs that
a fourth one waits for, a periodic job, a running job that is cancelled, and a
worker that dies while it runs a job, which another worker then gets with a higher
lease version.

The store is durable, in a temporary directory that is removed at the end, or in
--data, which is kept. Interrupt it at any time.`,
		Example: `  gq demo
  gq demo --data ./gq-demo    keep the store`,
		Args: cli.NoArguments,
		RunE: func(c *cobra.Command, _ []string) error {
			if dir == "" {
				temporary, err := os.MkdirTemp("", "gq-demo-")
				if err != nil {
					return err
				}
				defer os.RemoveAll(temporary) //nolint:errcheck // nothing of value is in it
				dir = temporary
			}
			return runDemo(c.Context(), p, dir)
		},
	}
	c.Flags().StringVar(&dir, "data", "", "directory of the store (default a temporary one)")
	return c
}

// demoTime limits the whole demo.
const demoTime = 2 * time.Minute

// demo is one run of the demo.
type demo struct {
	*engine.Engine
	screen screen
	began  time.Time
	jobs   []demoJob // in the order of submission

	// Owned by whoever prints events: the follower during the demo, the summary
	// afterwards.
	types   map[gq.JobID]string
	printed uint64 // the newest printed event
}

// demoJob is a job of the demo and how it should end.
type demoJob struct {
	id   gq.JobID
	what string
	want gq.Status
}

func runDemo(ctx context.Context, p process, dir string) (err error) {
	s, err := local.Open(dir, local.Options{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	e, err := engine.New(s, engine.Options{})
	if err != nil {
		return err
	}
	d := &demo{Engine: e, began: time.Now(), types: map[gq.JobID]string{}, screen: newScreen(p.stdout, p.getenv)}
	d.screen.title("A queue in %s, with one worker of four slots. Every line is a transition that was synced to disk.", dir)

	if err := d.play(ctx); err != nil {
		return err
	}
	return d.summary(ctx)
}

// play runs the demo and returns when nothing of it still runs.
func (d *demo) play(ctx context.Context) error {
	ctx, stop := context.WithTimeout(ctx, demoTime)
	var running sync.WaitGroup
	defer func() { stop(); running.Wait() }()
	w := worker.New(d.Engine, worker.Config{
		Name: "worker-1", Slots: 4, HeartbeatEvery: 300 * time.Millisecond,
		DrainTimeout: time.Second, // a user who interrupts the demo wants it to end
		Logger:       slog.New(slog.DiscardHandler),
	})
	d.register(w)
	running.Go(func() { _ = d.Run(ctx) }) // its errors show in the calls below
	running.Go(func() { d.follow(ctx) })
	if err := d.crash(ctx); err != nil { // before another worker can take the job
		return err
	}
	running.Go(func() { _ = w.Run(ctx) })
	if err := d.submit(ctx); err != nil {
		return err
	}
	return d.finish(ctx)
}

// register registers the demo's handlers.
func (d *demo) register(w *worker.Worker) {
	worker.Handle(w, gq.NewKind[struct{ To string }, gq.None]("email.send"), func(ctx context.Context, job *worker.Job[struct{ To string }]) error {
		return pause(ctx, 200*time.Millisecond)
	})
	worker.Handle(w, gq.NewKind[struct{}, gq.None]("report.build"), func(ctx context.Context, job *worker.Job[struct{}]) error {
		if job.Attempt() < 3 {
			return &gq.TemporaryError{Message: "the database is busy"}
		}
		return pause(ctx, 200*time.Millisecond)
	})
	worker.Handle(w, gq.NewKind[struct{}, gq.None]("card.charge"), func(context.Context, *worker.Job[struct{}]) error {
		return &gq.PermanentError{Message: "the card was declined", Code: "card_declined"}
	})
	worker.HandleResult(w, gq.NewKind[struct{ Photo int }, int]("photo.resize"), func(ctx context.Context, job *worker.Job[struct{ Photo int }]) (int, error) {
		return job.Args.Photo, pause(ctx, time.Duration(300+200*job.Args.Photo)*time.Millisecond)
	})
	worker.Handle(w, gq.NewKind[struct{}, gq.None]("album.publish"), func(ctx context.Context, _ *worker.Job[struct{}]) error {
		return pause(ctx, 200*time.Millisecond)
	})
	worker.Handle(w, gq.NewKind[struct{}, gq.None]("clock.tick"), func(context.Context, *worker.Job[struct{}]) error { return nil })
	worker.Handle(w, gq.NewKind[struct{}, gq.None]("video.encode"), func(ctx context.Context, _ *worker.Job[struct{}]) error {
		return pause(ctx, time.Hour) // far longer than the demo: it will be cancelled
	})
	worker.Handle(w, gq.NewKind[struct{}, gq.None]("invoice.print"), func(ctx context.Context, _ *worker.Job[struct{}]) error {
		return pause(ctx, 200*time.Millisecond)
	})
}

func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(d):
		return nil
	}
}

// crash makes a second worker claim a job and then vanish.
func (d *demo) crash(ctx context.Context) error {
	policy := machine.DefaultPolicy()
	policy.LeaseTTL = 2 * time.Second
	if err := d.add(ctx, "a job whose first worker dies", gq.StatusCompleted, gq.Spec{Type: "invoice.print", Policy: policy}); err != nil {
		return err
	}
	jobs, err := d.Claim(ctx, gq.ClaimRequest{Worker: "worker-2", Types: []string{"invoice.print"}, N: 1})
	if err == nil && len(jobs) == 0 {
		err = errors.New("the job to crash with was not to be claimed")
	}
	return err
}

// submit submits all other jobs.
func (d *demo) submit(ctx context.Context) error {
	retried := machine.DefaultPolicy()
	retried.Backoff = gq.Backoff{Strategy: gq.StrategyConstant, Initial: 700 * time.Millisecond, Max: time.Second, Jitter: gq.JitterNone, Multiplier: 1}
	for _, j := range []struct {
		what string
		want gq.Status
		spec gq.Spec
	}{
		{"a job that just works", gq.StatusCompleted, gq.Spec{Type: "email.send", Payload: gq.Payload{Data: []byte(`{"To":"ada@example.org"}`)}}},
		{"fails twice, then works", gq.StatusCompleted, gq.Spec{Type: "report.build", Policy: retried}},
		{"fails for good", gq.StatusFailed, gq.Spec{Type: "card.charge"}},
		{"runs too long and is cancelled", gq.StatusCancelled, gq.Spec{Type: "video.encode"}},
	} {
		if err := d.add(ctx, j.what, j.want, j.spec); err != nil {
			return err
		}
	}
	if err := d.album(ctx); err != nil {
		return err
	}
	_, err := d.PutSchedule(ctx, gq.Schedule{
		Name: "demo-clock", Every: 2 * time.Second, Template: gq.Spec{Type: "clock.tick"},
	})
	return err
}

// album submits a graph as a whole: one job that waits for three others.
func (d *demo) album(ctx context.Context) error {
	drafts := []gq.GraphJob{{Spec: gq.Spec{Type: "album.publish"}, Ref: "album"}}
	for i := range 3 {
		ref := fmt.Sprintf("photo-%d", i+1)
		payload := gq.Payload{Data: fmt.Appendf(nil, `{"Photo":%d}`, i+1)}
		drafts = append(drafts, gq.GraphJob{Spec: gq.Spec{Type: "photo.resize", Payload: payload}, Ref: ref})
		drafts[0].Needs = append(drafts[0].Needs, gq.Dependency{Kind: gq.DependencyFanIn, Ref: ref})
	}
	answers, err := d.SubmitGraph(ctx, drafts)
	if err != nil {
		return err
	}
	for i, a := range answers {
		what := "one of three before it"
		if i == 0 {
			what = "waits for three others"
		}
		d.note(a.ID(), what, gq.StatusCompleted)
	}
	return nil
}

func (d *demo) add(ctx context.Context, what string, want gq.Status, spec gq.Spec) error {
	a, err := d.Submit(ctx, spec)
	if err == nil {
		d.note(a.ID(), what, want)
	}
	return err
}

func (d *demo) note(id gq.JobID, what string, want gq.Status) {
	d.jobs = append(d.jobs, demoJob{id, what, want})
}

// finish cancels the job to be cancelled and waits for the rest.
func (d *demo) finish(ctx context.Context) error {
	if err := pause(ctx, 1500*time.Millisecond); err != nil {
		return err
	}
	for _, j := range d.jobs {
		if j.want == gq.StatusCancelled {
			if err := d.running(ctx, j.id); err != nil {
				return err
			}
			if _, err := d.Cancel(ctx, j.id, "nobody wants it any more"); err != nil {
				return err
			}
		}
	}
	for _, j := range d.jobs {
		if _, err := d.Wait(ctx, j.id); err != nil {
			return err
		}
	}
	for { // two ticks of the clock
		clock, err := d.Schedule(ctx, "demo-clock")
		if err != nil {
			return err
		}
		if clock.Fired >= 2 {
			return d.DeleteSchedule(ctx, "demo-clock")
		}
		if err := pause(ctx, 100*time.Millisecond); err != nil {
			return err
		}
	}
}

// running waits until a worker has started a job, or the job has ended.
func (d *demo) running(ctx context.Context, id gq.JobID) error {
	for {
		job, err := d.Get(ctx, id, 0)
		if err != nil || job.State.Status == gq.StatusRunning || job.State.Status.Terminal() {
			return err
		}
		if err := pause(ctx, 100*time.Millisecond); err != nil {
			return err
		}
	}
}

// follow prints events as they arrive.
func (d *demo) follow(ctx context.Context) {
	_ = d.Follow(ctx, 0, func(events []gq.Event) error { // its errors show in the calls of the demo
		d.print(ctx, events)
		return nil
	})
}

// print prints the next events.
func (d *demo) print(ctx context.Context, events []gq.Event) {
	for i := range events {
		e := &events[i]
		d.printed = e.Seq
		if e.Time.Before(d.began) {
			continue // from an earlier demo in the same directory
		}
		if e.Type == gq.EventSubmitted && i+1 < len(events) && events[i+1].Job == e.Job {
			continue // the job moved on at once; the next line says where to
		}
		if d.types[e.Job] == "" {
			if job, err := d.Get(ctx, e.Job, 0); err == nil {
				d.types[e.Job] = job.Spec.Type
			}
		}
		d.screen.event(e.Time.Sub(d.began), d.types[e.Job], e)
	}
}

// summary prints how every job ended, and fails if one did not end as expected.
func (d *demo) summary(ctx context.Context) error {
	rest, err := d.Events(ctx, d.printed, 1000) // far more than a demo has
	if err != nil {
		return err
	}
	d.print(ctx, rest)
	var wrong []error
	d.screen.title("")
	d.screen.title("%-13s  %-31s  %-9s  %8s  %s", "type", "", "ended", "attempts", "last lease version")
	for _, j := range d.jobs {
		job, err := d.Get(ctx, j.id, 0)
		if err != nil {
			return err
		}
		d.screen.line("%-13s  %-31s  %s  %8d  %d", job.Spec.Type, j.what, d.screen.status(job.State.Status, 9), job.State.Attempt, job.State.Version)
		if job.State.Status != j.want {
			wrong = append(wrong, fmt.Errorf("job %s (%s) ended as %s instead of %s", j.id, j.what, job.State.Status, j.want))
		}
	}
	stats, err := d.Stats(ctx)
	if err != nil {
		return err
	}
	d.screen.title("")
	d.screen.line("%s completed, %d failed, %d cancelled, in %.1f s and %s.",
		quantity.Of(stats.Total.By[gq.StatusCompleted], "job"), stats.Total.By[gq.StatusFailed], stats.Total.By[gq.StatusCancelled], time.Since(d.began).Seconds(), quantity.Of(stats.Commits, "synced commit"))
	return errors.Join(wrong...)
}
