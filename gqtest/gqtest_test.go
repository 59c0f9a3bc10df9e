package gqtest_test

import (
	"context"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os/exec"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/gqtest"
	"github.com/gopherqueue/gq/worker"
)

type Email struct{ To string }

var (
	sendEmail = gq.NewKind[Email, gq.None]("email.send", gq.InQueue("mail"))
	double    = gq.NewKind[int, int]("double")
)

// newWorker returns a worker of a queue that logs nothing.
func newWorker(q *gqtest.Queue) *worker.Worker {
	return worker.New(q, worker.Config{Name: "worker", Logger: slog.New(slog.DiscardHandler)})
}

// submit submits a job that must be accepted.
func submit[A, R any](t *testing.T, q *gqtest.Queue, k gq.Kind[A, R], args A, options ...gq.Option) gq.JobID {
	t.Helper()
	id, err := k.Submit(t.Context(), q, args, options...)
	if err != nil {
		t.Fatal(err)
	}
	return id
}

// get reads a job.
func get(t *testing.T, q *gqtest.Queue, id gq.JobID) gq.Job {
	t.Helper()
	j, err := q.Get(t.Context(), id, gq.WithResult)
	if err != nil {
		t.Fatal(err)
	}
	return j
}

// failing is a testing.TB whose failures end a goroutine and are kept.
type failing struct {
	testing.TB
	failure string
}

func (f *failing) Helper() {}

func (f *failing) Fatal(args ...any) { f.failure = fmt.Sprint(args...); runtime.Goexit() }

func (f *failing) Fatalf(format string, args ...any) { f.Fatal(fmt.Sprintf(format, args...)) }

// failure returns how f ends its test, "" if it does not.
func failure(t *testing.T, f func(testing.TB)) string {
	t.Helper()
	tb := &failing{TB: t}
	done := make(chan struct{})
	go func() {
		defer close(done)
		f(tb)
	}()
	<-done
	return tb.failure
}

// Failed attempts are retried when their backoff is over, and every run of a test is the same.
func TestRetriesAreReproducible(t *testing.T) {
	run := func() (events []gq.Event) {
		q := gqtest.New(t)
		w := newWorker(q)
		worker.Handle(w, sendEmail, func(context.Context, *worker.Job[Email]) error { return nil })
		q.AddWorker(w)
		q.FailNext(sendEmail, 2, errors.New("no route"))
		id := submit(t, q, sendEmail, Email{To: "ada"})
		if n := q.RunUntilIdle(); n != 1 {
			t.Fatalf("%d executions before time passed, want 1", n)
		}
		if s := get(t, q, id).State; s.Status != gq.StatusRetrying || !strings.Contains(s.Failure.Message, "no route") {
			t.Errorf("after a failure the job is %v with %+v", s.Status, s.Failure)
		}
		if n := q.Advance(time.Hour); n != 2 {
			t.Errorf("%d executions in an hour, want 2", n)
		}
		if s := get(t, q, id).State; s.Status != gq.StatusCompleted || s.Attempt != 3 || !s.CompletedAt.Before(q.Now()) {
			t.Errorf("the job is %v after %d attempts at %v", s.Status, s.Attempt, s.CompletedAt)
		}
		events, err := q.Events(t.Context(), 0, 100)
		if err != nil {
			t.Fatal(err)
		}
		return events
	}
	first, second := run(), run()
	if len(first) < 6 || !reflect.DeepEqual(first, second) {
		t.Errorf("two runs differ:\n%v\n%v", first, second)
	}
}

// Delays, schedules and rates take effect at their own instants, not when Advance ends.
func TestAdvanceStopsWhereSomethingIsDue(t *testing.T) {
	var q *gqtest.Queue
	var began time.Time
	var ran []time.Duration
	begin := func() {
		q = gqtest.New(t)
		began, ran = q.Now(), nil
		w := newWorker(q)
		worker.HandleResult(w, double, func(context.Context, *worker.Job[int]) (int, error) {
			ran = append(ran, q.Now().Sub(began))
			return 0, nil
		})
		q.AddWorker(w)
	}
	check := func(what string, got int, want ...time.Duration) {
		t.Helper()
		if got != len(want) || !slices.Equal(ran, want) {
			t.Errorf("%s: %d executions, at %v, want %v", what, got, ran, want)
		}
	}

	begin()
	submit(t, q, double, 1, gq.Delay(5*time.Minute))
	submit(t, q, double, 2, gq.Delay(2*time.Minute))
	check("before the delays", q.Advance(2*time.Minute-1))
	check("delays", q.AdvanceTo(began.Add(time.Hour)), 2*time.Minute, 5*time.Minute)
	if q.Advance(-time.Minute); !q.Now().Equal(began.Add(time.Hour)) {
		t.Errorf("time ran backwards to %v", q.Now())
	}

	begin()
	spec, err := double.Spec(1)
	if err != nil {
		t.Fatal(err)
	}
	if s, err := q.PutSchedule(t.Context(), gq.Schedule{Name: "often", Every: time.Minute, Template: spec}); err != nil || !s.UpdatedAt.Equal(began) {
		t.Fatalf("the schedule is of %v, want %v: %v", s.UpdatedAt, began, err)
	}
	check("a schedule", q.Advance(3*time.Minute), time.Minute, 2*time.Minute, 3*time.Minute)

	begin()
	if _, err := q.ChangeQueue(t.Context(), gq.DefaultQueue, func(q *gq.Queue) { q.Rate = gq.Rate{Count: 1, Per: time.Second} }); err != nil {
		t.Fatal(err)
	}
	for i := range 3 {
		submit(t, q, double, i)
	}
	check("a rate", q.Advance(time.Minute), 0, time.Second, 2*time.Second)
}

// Jobs that handlers submit run too, in order, and jobs without a handler stay.
func TestRunUntilIdleFollowsSubmissions(t *testing.T) {
	q := gqtest.New(t)
	w := newWorker(q)
	var ran []int
	worker.HandleResult(w, double, func(ctx context.Context, job *worker.Job[int]) (int, error) {
		ran = append(ran, job.Args)
		if job.Args < 4 {
			if _, err := double.Submit(ctx, q, 2*job.Args); err != nil {
				return 0, err
			}
		}
		return 2 * job.Args, nil
	})
	q.AddWorker(w)
	id, other := submit(t, q, double, 1), submit(t, q, sendEmail, Email{})
	if n := q.RunUntilIdle(); n != 3 || !slices.Equal(ran, []int{1, 2, 4}) {
		t.Errorf("%d executions: %v", n, ran)
	}
	if result, err := double.Wait(t.Context(), q, id); err != nil || result != 2 {
		t.Errorf("the result is %d, %v", result, err)
	}
	if s := get(t, q, other).State; s.Status != gq.StatusScheduled {
		t.Errorf("a job without a handler is %v", s.Status)
	}
	got := gqtest.RequireSubmitted(q, double, 1, 2, 4)
	if string(got[2].Result) != "8" || got[2].Args != 4 {
		t.Errorf("the last submission is %+v", got[2])
	}
}

func TestEndlessSubmissionsFail(t *testing.T) {
	gqtest.SetMaxRuns(t, 50)
	told := failure(t, func(tb testing.TB) {
		q := gqtest.New(tb)
		w := newWorker(q)
		worker.HandleResult(w, double, func(ctx context.Context, job *worker.Job[int]) (int, error) {
			_, err := double.Submit(ctx, q, job.Args)
			return 0, err
		})
		q.AddWorker(w)
		submit(t, q, double, 1)
		q.RunUntilIdle()
	})
	if !strings.Contains(told, "not idle after 51 executions") {
		t.Errorf("the test ended with %q", told)
	}
}

func TestRequireSubmittedFails(t *testing.T) {
	q := func(tb testing.TB) *gqtest.Queue {
		q := gqtest.New(tb)
		submit(t, q, sendEmail, Email{To: "ada"})
		submit(t, q, sendEmail, Email{To: "bob"})
		return q
	}
	for name, want := range map[string][]Email{
		"none": nil, "too few": {{"ada"}}, "too many": {{"ada"}, {"bob"}, {"bob"}}, "another order": {{"bob"}, {"ada"}}, "another": {{"ada"}, {"eve"}},
	} {
		told := failure(t, func(tb testing.TB) { gqtest.RequireSubmitted(q(tb), sendEmail, want...) })
		if !strings.Contains(told, `2 jobs of kind email.send were submitted`) || !strings.Contains(told, `{"To":"bob"}`) {
			t.Errorf("%s: the test ended with %q", name, told)
		}
	}
	if told := failure(t, func(tb testing.TB) { gqtest.RequireSubmitted(q(tb), sendEmail, Email{"ada"}, Email{"bob"}) }); told != "" {
		t.Errorf("the right submissions end the test with %q", told)
	}
}

// An execution that loses its lease is told, cannot report any more, and its success does not
// count. The job runs again under a larger version.
func TestLostLeases(t *testing.T) {
	for name, during := range map[string]bool{"at the start": false, "during the run": true} {
		t.Run(name, func(t *testing.T) {
			q := gqtest.New(t)
			w := newWorker(q)
			var versions []gq.LeaseVersion
			worker.Handle(w, sendEmail, func(ctx context.Context, job *worker.Job[Email]) error {
				versions = append(versions, job.LeaseVersion())
				if len(versions) > 1 {
					return ctx.Err()
				}
				if during {
					if ctx.Err() != nil {
						t.Errorf("the context has ended: %v", context.Cause(ctx))
					}
					q.LoseLease(job.ID())
				}
				if !errors.Is(context.Cause(ctx), worker.ErrLeaseLost) {
					t.Errorf("the context ended with %v", context.Cause(ctx))
				}
				if err := job.Checkpoint(context.Background(), []byte("late")); !errors.Is(err, worker.ErrLeaseLost) {
					t.Errorf("a checkpoint without a lease: %v", err)
				}
				return nil
			})
			q.AddWorker(w)
			if !during {
				q.LoseNext(sendEmail, 1)
			}
			id := submit(t, q, sendEmail, Email{To: "ada"})
			if n := q.Advance(time.Hour); n != 2 {
				t.Errorf("%d executions, want 2", n)
			}
			if s := get(t, q, id).State; s.Status != gq.StatusCompleted || s.Losses != 1 || s.CheckpointBytes != 0 {
				t.Errorf("the job is %v with %d lost leases and a checkpoint of %d bytes", s.Status, s.Losses, s.CheckpointBytes)
			}
			if len(versions) != 2 || versions[1] <= versions[0] {
				t.Errorf("the versions of the leases are %v", versions)
			}
		})
	}
	told := failure(t, func(tb testing.TB) {
		q := gqtest.New(tb)
		q.LoseLease(submit(t, q, sendEmail, Email{}))
	})
	if !strings.Contains(told, "lose the lease") {
		t.Errorf("a job that does not run lost its lease: %q", told)
	}
}

// In a handler, time passes without other handlers, and its lease can expire.
func TestTimePassesInAHandler(t *testing.T) {
	q := gqtest.New(t)
	w := newWorker(q)
	attempts := 0
	worker.HandleResult(w, double, func(context.Context, *worker.Job[int]) (int, error) {
		if attempts++; attempts == 1 {
			submit(t, q, double, 2)
			if n := q.Advance(48 * time.Hour); n != 0 {
				t.Errorf("a handler ran %d others", n)
			}
		}
		return 0, nil
	})
	q.AddWorker(w)
	id := submit(t, q, double, 1, gq.LeaseTime(time.Minute), gq.Lifetime(240*time.Hour))
	q.RunUntilIdle()
	q.Advance(time.Hour)
	if s := get(t, q, id).State; s.Status != gq.StatusCompleted || s.Losses != 1 || s.Attempt != 2 {
		t.Errorf("the job is %v after %d attempts and %d lost leases", s.Status, s.Attempt, s.Losses)
	}
	told := failure(t, func(tb testing.TB) {
		q := gqtest.New(tb)
		w := newWorker(q)
		worker.HandleResult(w, double, func(context.Context, *worker.Job[int]) (int, error) { q.RunUntilIdle(); return 0, nil })
		q.AddWorker(w)
		submit(t, q, double, 1)
		q.RunUntilIdle()
	})
	if !strings.Contains(told, "a handler called RunUntilIdle") {
		t.Errorf("the test ended with %q", told)
	}
}

// In a handler, schedules fire at their own times, although the rate limit of a queue made the
// claim of another worker wait for less.
func TestSchedulesFireInAHandler(t *testing.T) {
	q := gqtest.New(t)
	if _, err := q.DeclareQueue(t.Context(), gq.Queue{Name: "mail", Rate: gq.Rate{Count: 1, Per: 10 * time.Second}}); err != nil {
		t.Fatal(err)
	}
	tick := gq.NewKind[int, gq.None]("tick")
	spec, err := tick.Spec(1)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := q.PutSchedule(t.Context(), gq.Schedule{Name: "s", Every: time.Minute, Missed: gq.MissedSkip, Template: spec}); err != nil {
		t.Fatal(err)
	}
	limited := newWorker(q)
	worker.Handle(limited, sendEmail, func(context.Context, *worker.Job[Email]) error { return nil })
	q.AddWorker(limited)
	w := newWorker(q)
	worker.HandleResult(w, double, func(_ context.Context, job *worker.Job[int]) (int, error) {
		if job.Attempt() == 1 { // which loses its lease
			q.Advance(3*time.Minute + 30*time.Second)
		}
		return 0, nil
	})
	q.AddWorker(w)
	for range 2 {
		submit(t, q, sendEmail, Email{})
	}
	q.RunUntilIdle()
	submit(t, q, double, 1)
	q.RunUntilIdle()
	if s, err := q.Schedule(t.Context(), "s"); err != nil || s.Fired != 3 {
		t.Errorf("%d slots fired in three and a half minutes, %v\n%s", s.Fired, err, q.Graph())
	}
}

func TestRunOne(t *testing.T) {
	unknown := gq.Permanent(errors.New("no such mailbox"), "bad_address")
	job, err := gqtest.RunOne(t, sendEmail, func(ctx context.Context, job *worker.Job[Email]) error {
		if job.Args.To != "ada" || job.Attempt() != 1 || job.Queue() != "urgent" || job.Metadata().Tags["a"] != "b" {
			t.Errorf("the handler got %+v in %s", job.Args, job.Queue())
		}
		if err := job.Checkpoint(ctx, []byte("half")); err != nil {
			t.Error(err)
		}
		return unknown
	}, Email{To: "ada"}, gq.InQueue("urgent"), gq.Tag("a", "b"), gq.Delay(time.Hour), func(s *gq.Spec) { s.Requires = []string{"smtp"} })
	if !errors.Is(err, unknown) || job.State.Status != gq.StatusFailed || job.State.Failure.Code != "bad_address" || string(job.Checkpoint) != "half" {
		t.Errorf("the job is %v with %+v and checkpoint %q: %v", job.State.Status, job.State.Failure, job.Checkpoint, err)
	}
	job, err = gqtest.RunOne(t, sendEmail, func(context.Context, *worker.Job[Email]) error { panic("on purpose") }, Email{})
	if err == nil || !strings.Contains(err.Error(), "on purpose") || job.State.Status != gq.StatusRetrying {
		t.Errorf("a handler that panics leaves the job %v: %v", job.State.Status, err)
	}
	if four, err := gqtest.RunOneResult(t, double, func(_ context.Context, job *worker.Job[int]) (int, error) { return 2 * job.Args, nil }, 2); err != nil || four != 4 {
		t.Errorf("the result is %d, %v", four, err)
	}
	if _, err := gqtest.RunOneResult(t, double, func(context.Context, *worker.Job[int]) (int, error) { return 0, unknown }, 2); !errors.Is(err, unknown) {
		t.Errorf("the error is %v", err)
	}
}

func TestGraph(t *testing.T) {
	q := gqtest.New(t)
	fetch, merge := gq.NewKind[int, gq.None]("fetch<x>"), gq.NewKind[gq.None, gq.None]("merge")
	w := newWorker(q)
	worker.Handle(w, fetch, func(context.Context, *worker.Job[int]) error { return nil })
	q.AddWorker(w)
	first, err := fetch.Spec(1)
	if err != nil {
		t.Fatal(err)
	}
	last, err := merge.Spec(gq.None{})
	if err != nil {
		t.Fatal(err)
	}
	needs := func(kind gq.DependencyKind, ref string) gq.Dependency { return gq.Dependency{Kind: kind, Ref: ref} }
	if _, err := q.SubmitGraph(t.Context(), []gq.GraphJob{
		{Spec: first, Ref: "a"},
		{Spec: first, Ref: "b"},
		{Spec: last, Ref: "c", Needs: []gq.Dependency{needs(gq.DependencyAfter, "a"), needs(gq.DependencyAfter, "b")}},
		{Spec: last, Needs: []gq.Dependency{needs(gq.DependencyAfter, "a"), needs(gq.DependencyFanIn, "c")}},
	}); err != nil {
		t.Fatal(err)
	}
	q.RunUntilIdle()
	const want = `#1 fetch<x> COMPLETED
#2 fetch<x> COMPLETED
#3 merge SCHEDULED after #1 #2
#4 merge PENDING after #1 after the end of #3
`
	if got := q.Graph(); got != want {
		t.Errorf("the graph is\n%s", got)
	}
	elements := make(map[string]int)
	d := xml.NewDecoder(strings.NewReader(q.GraphSVG()))
	for {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatalf("the drawing is not XML: %v", err)
		}
		if e, ok := token.(xml.StartElement); ok {
			elements[e.Name.Local]++
		}
	}
	if elements["rect"] != 4 || elements["line"] != 4 || elements["text"] != 8 {
		t.Errorf("the drawing has %v, want 4 boxes and 4 arrows", elements)
	}
}

// In a bubble a handler may sleep longer than its lease, and a worker may run in the
// background. The bubble fails if a goroutine is left.
func TestInABubble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := gqtest.New(t)
		w := newWorker(q)
		worker.Handle(w, sendEmail, func(context.Context, *worker.Job[Email]) error { time.Sleep(time.Hour); return nil })
		q.AddWorker(w)
		before := q.Now()
		id := submit(t, q, sendEmail, Email{}, gq.LeaseTime(time.Minute), gq.Timeout(2*time.Hour))
		q.RunUntilIdle()
		if s := get(t, q, id).State; s.Status != gq.StatusCompleted || s.Attempt != 1 || !q.Now().Equal(before) {
			t.Errorf("the job is %v after %d attempts at %v", s.Status, s.Attempt, q.Now())
		}
	})
	synctest.Test(t, func(t *testing.T) {
		q := gqtest.New(t)
		w := newWorker(q)
		worker.HandleResult(w, double, func(_ context.Context, job *worker.Job[int]) (int, error) { return 2 * job.Args, nil })
		w.Start(t.Context())
		if result, err := double.Wait(t.Context(), q, submit(t, q, double, 3)); err != nil || result != 6 {
			t.Errorf("the result is %d, %v", result, err)
		}
		if err := w.Stop(); err != nil {
			t.Error(err)
		}
	})
}

// A test that uses this package must not have to build a database or its driver.
func TestDependencies(t *testing.T) {
	out, err := exec.Command("go", "list", "-deps", "github.com/gopherqueue/gq/gqtest").Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	for pkg := range strings.FieldsSeq(string(out)) {
		if strings.Contains(pkg, "cockroachdb/") || strings.Contains(pkg, "jackc/") || strings.Contains(pkg, "grpc") {
			t.Errorf("the package depends on %s", pkg)
		}
	}
}

// A schedule in virtual time: slots in the payload, an overlap rule, a trigger, a backfill and
// an end.
func TestSchedules(t *testing.T) {
	q := gqtest.New(t)
	daily := gq.NewKind[map[string]string, gq.None]("daily")
	var days []string
	w := newWorker(q)
	worker.Handle(w, daily, func(_ context.Context, job *worker.Job[map[string]string]) error {
		if job.Args["day"] != job.Slot().Format(time.DateOnly) {
			t.Errorf("the payload says %v, the slot is %v", job.Args, job.Slot())
		}
		days = append(days, job.Args["day"])
		return nil
	})
	q.AddWorker(w)
	spec, err := daily.Spec(map[string]string{"day": "{{slot_date}}"})
	if err != nil {
		t.Fatal(err)
	}
	began := q.Now().UTC()
	day := func(n int) string { return began.AddDate(0, 0, n).Format(time.DateOnly) }
	s, err := q.PutSchedule(t.Context(), gq.Schedule{
		Name: "s", Cron: "0 12 * * *", Overlap: gq.OverlapSkip, Start: began.Truncate(24 * time.Hour), End: began.AddDate(0, 0, 3), Template: spec,
	})
	if err != nil {
		t.Fatal(err)
	}
	first := int(s.Next.Sub(began.Truncate(24*time.Hour)) / (24 * time.Hour))
	q.Advance(48 * time.Hour)
	if want := []string{day(first), day(first + 1)}; !slices.Equal(days, want) {
		t.Errorf("after two days: %v, want %v", days, want)
	}
	if _, err := q.PauseSchedule(t.Context(), "s"); err != nil {
		t.Fatal(err)
	}
	q.Advance(5 * 24 * time.Hour)
	f, err := q.TriggerSchedule(t.Context(), "s")
	if err != nil || !f.Slot.Equal(q.Now().Truncate(time.Second)) {
		t.Fatalf("triggered %+v at %v: %v", f, q.Now(), err)
	}
	q.RunUntilIdle()
	if last := days[len(days)-1]; len(days) != 3 || last != day(7) {
		t.Errorf("after the trigger: %v", days)
	}
	// The slots until the end that did not fire, and one before the first.
	r, err := q.BackfillSchedule(t.Context(), gq.Backfill{Schedule: "s", From: s.Next.AddDate(0, 0, -1), To: q.Now()})
	if err != nil || r.Slots-r.Missing != 2 || r.Submitted != r.Missing || r.Submitted < 1 {
		t.Errorf("backfill: %+v, %v", r, err)
	}
	q.RunUntilIdle()
	if len(days) != 3+r.Submitted || days[3] != day(first-1) {
		t.Errorf("after the backfill: %v", days)
	}
	if s, err = q.ResumeSchedule(t.Context(), "s"); err != nil || !s.Next.IsZero() {
		t.Errorf("resumed after its end: %+v, %v", s, err)
	}
	q.Advance(10 * 24 * time.Hour)
	if len(days) != 3+r.Submitted {
		t.Errorf("after its end: %v", days)
	}
}

// A test goes through the middleware of the program, with the other options of gq.Open.
func TestMiddleware(t *testing.T) {
	reverse := func(to string) func(context.Context, gq.Data) (gq.Data, error) {
		return func(_ context.Context, d gq.Data) (gq.Data, error) {
			d.Bytes, d.ContentType = slices.Clone(d.Bytes), to
			slices.Reverse(d.Bytes)
			return d, nil
		}
	}
	var submitted int
	q := gqtest.New(t, gq.Use(gq.Middleware{
		Submit: func(next gq.SubmitFunc) gq.SubmitFunc {
			return func(ctx context.Context, specs []gq.Spec) ([]gq.SubmitResult, error) {
				submitted += len(specs)
				return next(ctx, specs)
			}
		},
		Seal: reverse("application/octet-stream"), Unseal: reverse("application/json"),
	}), func(o *gq.OpenOptions) { o.DefaultPreset, o.Limits = gq.PresetResilient, gq.Limits{PayloadBytes: 100} })
	w := newWorker(q)
	var got string
	q.AddWorker(w)
	worker.Handle(w, sendEmail, func(_ context.Context, j *worker.Job[Email]) error {
		got = j.Args.To
		return nil
	})
	id := submit(t, q, sendEmail, Email{To: "a@example.org"})
	stored, err := q.Driver.Get(t.Context(), id, gq.WithPayload)
	if err != nil || !strings.HasPrefix(string(stored.Spec.Payload.Data), "}") || stored.Spec.Policy.Preset != gq.PresetResilient {
		t.Errorf("stored is %s, %v, %v", stored.Spec.Payload.Data, stored.Spec.Policy.Preset, err)
	}
	q.RunUntilIdle()
	if got != "a@example.org" || submitted != 1 {
		t.Errorf("the handler got %q after %d submissions", got, submitted)
	}
	if _, err := sendEmail.Submit(t.Context(), q, Email{To: strings.Repeat("x", 100)}); !errors.Is(err, gq.ErrInvalid) {
		t.Errorf("a payload above the limit: %v", err)
	}
}
