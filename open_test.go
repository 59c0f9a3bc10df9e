package gq_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/gopherqueue/gq"
	_ "github.com/gopherqueue/gq/driver/file"
	"github.com/gopherqueue/gq/worker"
)

type order struct {
	ID    string
	Total int
}

var (
	chargeOrder = gq.NewKind[order, int]("order.charge", gq.InQueue("payments"), gq.MaxAttempts(2), gq.Tag("team", "shop"))
	ping        = gq.NewKind[gq.None, gq.None]("ping")
	raw         = gq.NewKind[[]byte, []byte]("raw")
)

func openMemory(t testing.TB, options ...gq.OpenOption) *gq.Client {
	t.Helper()
	client, err := gq.Open(t.Context(), "memory:", options...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := client.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return client
}

// A kind of job goes from its submission through a handler to its result, without JSON by
// hand and without its name written twice.
func TestKind(t *testing.T) {
	t.Parallel()
	client, ctx := openMemory(t), t.Context()
	work := worker.New(client, worker.Config{})
	worker.HandleResult(work, chargeOrder, func(_ context.Context, job *worker.Job[order]) (int, error) {
		if job.Args.Total < 0 {
			return 0, gq.Permanent(errors.New("nothing to pay"), "no_total")
		}
		return job.Args.Total * 2, nil
	})
	worker.Handle(work, ping, func(context.Context, *worker.Job[gq.None]) error { return nil })
	worker.HandleResult(work, raw, func(_ context.Context, job *worker.Job[[]byte]) ([]byte, error) { return job.Args, nil })
	work.Start(ctx)
	defer func() {
		if err := work.Stop(); err != nil {
			t.Errorf("stop: %v", err)
		}
	}()

	id, err := chargeOrder.Submit(ctx, client, order{"a-1", 21})
	if err != nil {
		t.Fatal(err)
	}
	if got, err := chargeOrder.Wait(ctx, client, id); err != nil || got != 42 {
		t.Errorf("the result is %d, %v, want 42", got, err)
	}
	job, err := client.Get(ctx, id, gq.WithPayload)
	if err != nil {
		t.Fatal(err)
	}
	if args, err := chargeOrder.Args(job); err != nil || args != (order{"a-1", 21}) {
		t.Errorf("the arguments are %+v, %v", args, err)
	}
	if job.Spec.Queue != "payments" || job.Spec.Type != "order.charge" || job.Metadata.Tags["team"] != "shop" {
		t.Errorf("the job is %+v with %+v", job.Spec, job.Metadata)
	}

	if id, err = chargeOrder.Submit(ctx, client, order{Total: -1}); err != nil {
		t.Fatal(err)
	}
	_, err = chargeOrder.Wait(ctx, client, id)
	var failed *gq.JobError
	if !errors.As(err, &failed) || failed.Status != gq.StatusFailed || failed.Failure == nil || failed.Failure.Code != "no_total" {
		t.Errorf("a job that failed: %v", err)
	}
	if !strings.Contains(fmt.Sprint(err), "nothing to pay") {
		t.Errorf("the error does not say why: %v", err)
	}

	if id, err = ping.Submit(ctx, client, gq.None{}); err != nil {
		t.Fatal(err)
	}
	if _, err := ping.Wait(ctx, client, id); err != nil {
		t.Errorf("a job without arguments and result: %v", err)
	}
	if id, err = raw.Submit(ctx, client, []byte{0, 255}); err != nil {
		t.Fatal(err)
	}
	if got, err := raw.Wait(ctx, client, id); err != nil || string(got) != "\x00\xff" {
		t.Errorf("bytes came back as %q, %v", got, err)
	}

	ids, err := chargeOrder.SubmitMany(ctx, client, make([]order, 2500))
	if err != nil || len(ids) != 2500 {
		t.Fatalf("%d ids, %v", len(ids), err)
	}
	for _, id := range ids {
		if _, err := chargeOrder.Wait(ctx, client, id); err != nil {
			t.Fatal(err)
		}
	}
}

// What no option names comes from the queue, on an embedded queue and when it is left out
// again by a schedule.
func TestOptionsArePartial(t *testing.T) {
	t.Parallel()
	client, ctx := openMemory(t), t.Context()
	policy := gq.PresetSemantics.Policy()
	policy.Lifetime, policy.LeaseTTL = time.Hour, 7*time.Second
	if _, err := client.PutQueue(ctx, gq.Queue{Name: "payments", Policy: policy}); err != nil {
		t.Fatal(err)
	}
	want := policy
	want.MaxAttempts, want.Lifetime, want.ExecutionTimeout = 5, 0, time.Minute
	options := []gq.Option{gq.MaxAttempts(5), gq.Lifetime(gq.Unlimited), gq.Timeout(time.Minute)}
	id, err := chargeOrder.Submit(ctx, client, order{}, options...)
	if err != nil {
		t.Fatal(err)
	}
	job, err := client.Get(ctx, id, 0)
	if err != nil || *job.State.Policy != want {
		t.Errorf("the policy is %+v, %v\nwant %+v", job.State.Policy, err, want)
	}
	spec, err := chargeOrder.Spec(order{}, options...)
	if err != nil {
		t.Fatal(err)
	}
	schedule, err := client.PutSchedule(ctx, gq.Schedule{Name: "s", Every: time.Hour, Template: spec})
	if err != nil || schedule.Template.Policy != want {
		t.Errorf("the schedule's policy is %+v, %v\nwant %+v", schedule.Template.Policy, err, want)
	}
	if _, err := chargeOrder.Submit(ctx, client, order{}, gq.MaxAttempts(-1)); !errors.Is(err, gq.ErrInvalid) || !strings.Contains(err.Error(), "max_attempts") {
		t.Errorf("-1 attempts: %v", err)
	}
}

func TestKeyReused(t *testing.T) {
	t.Parallel()
	client, ctx := openMemory(t), t.Context()
	first, err := chargeOrder.Submit(ctx, client, order{ID: "1"}, gq.Key("k"))
	if err != nil {
		t.Fatal(err)
	}
	if again, err := chargeOrder.Submit(ctx, client, order{ID: "1"}, gq.Key("k")); again != first || err != nil {
		t.Errorf("the same again: %v, %v, want job %v", again, err, first)
	}
	other, err := chargeOrder.Submit(ctx, client, order{ID: "2"}, gq.Key("k"))
	if other != first || !errors.Is(err, gq.ErrKeyReused) || !strings.Contains(fmt.Sprint(err), first.String()) {
		t.Errorf("another content under the key: %v, %v, want job %v and an error that names it", other, err, first)
	}
	if _, err := chargeOrder.Submit(ctx, client, order{ID: "2"}, gq.Key("k"), gq.MaxAttempts(7)); !errors.Is(err, gq.ErrKeyReused) {
		t.Errorf("other options under the key: %v", err)
	}
	if r, err := client.Submit(ctx, gq.Spec{Type: "order.charge", Queue: "payments", Key: gq.IdempotencyKey{Name: "k"}}); r.ID() != first || !errors.Is(err, gq.ErrKeyReused) {
		t.Errorf("Client.Submit: %v, %v", r.ID(), err)
	}
	if ids, err := chargeOrder.SubmitMany(ctx, client, []order{{ID: "3"}}, gq.Key("k")); len(ids) != 1 || ids[0] != first || !errors.Is(err, gq.ErrKeyReused) {
		t.Errorf("SubmitMany: %v, %v", ids, err)
	}
}

// Each job of SubmitMany has its own kind and options, and a rejected one does not affect the others.
func TestSubmitManyDrafts(t *testing.T) {
	t.Parallel()
	client, ctx := openMemory(t), t.Context()
	if _, err := chargeOrder.Submit(ctx, client, order{ID: "0"}, gq.Key("2")); err != nil {
		t.Fatal(err)
	}
	ids, err := gq.SubmitMany(ctx, client, []gq.Draft{
		chargeOrder.With(order{ID: "1"}, gq.Key("1"), gq.LimitKey("ada")),
		chargeOrder.With(order{ID: "2"}, gq.Key("2")),
		ping.With(gq.None{}, gq.Tag("row", "3")),
	})
	if len(ids) != 3 || !errors.Is(err, gq.ErrKeyReused) || !strings.HasPrefix(fmt.Sprint(err), "job 1: ") {
		t.Fatalf("%v, %v", ids, err)
	}
	first, err1 := client.Get(ctx, ids[0], 0)
	third, err2 := client.Get(ctx, ids[2], 0)
	if err := errors.Join(err1, err2); err != nil {
		t.Fatal(err)
	}
	if first.Spec.Key.Name != "1" || first.Spec.LimitKey != "ada" || first.Spec.Queue != "payments" {
		t.Errorf("the first job is %+v", first.Spec)
	}
	if third.Spec.Type != "ping" || third.Metadata.Tags["row"] != "3" {
		t.Errorf("the third job is %+v", third.Spec)
	}
	again := func(id string) gq.Draft { return chargeOrder.With(order{ID: id}, gq.Key("2")) }
	if _, err := gq.SubmitMany(ctx, client, []gq.Draft{ping.With(gq.None{}), again("3"), ping.With(gq.None{}), again("4")}); !strings.HasPrefix(fmt.Sprint(err), "job 1: ") {
		t.Errorf("of two rejected jobs the error is about the other: %v", err)
	}
	bad := gq.NewKind[chan int, gq.None]("bad")
	if ids, err := gq.SubmitMany(ctx, client, []gq.Draft{ping.With(gq.None{}), bad.With(nil)}); ids != nil || err == nil {
		t.Errorf("arguments that cannot be encoded: %v, %v", ids, err)
	}
}

// A schedule takes its job as Kind.With makes it.
func TestScheduleOfDraft(t *testing.T) {
	t.Parallel()
	client, ctx := openMemory(t), t.Context()
	s := gq.Schedule{Name: "nightly", Cron: "30 2 * * *", Job: chargeOrder.With(order{ID: "{{slot}}"}, gq.Tag("by", "clock"))}
	for name, set := range map[string]func(context.Context, gq.Schedule) (gq.Schedule, error){"declare": client.DeclareSchedule, "put": client.PutSchedule} {
		got, err := set(ctx, s)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if got.Template.Type != "order.charge" || got.Template.Queue != "payments" || got.Template.Metadata.Tags["by"] != "clock" || !strings.Contains(string(got.Template.Payload.Data), "{{slot}}") {
			t.Errorf("%s: the template is %+v", name, got.Template)
		}
	}
	s.Job = gq.NewKind[chan int, gq.None]("bad").With(nil)
	if _, err := client.DeclareSchedule(ctx, s); !errors.Is(err, gq.ErrInvalid) || !strings.Contains(err.Error(), "unsupported type") {
		t.Errorf("arguments that cannot be encoded: %v", err)
	}
	s.Job, s.Template = ping.With(gq.None{}), gq.Spec{Type: "ping"}
	if _, err := client.DeclareSchedule(ctx, s); !errors.Is(err, gq.ErrInvalid) || !strings.Contains(err.Error(), "cannot be combined") {
		t.Errorf("a draft and a template: %v", err)
	}
}

// A policy with a single field says how to make a whole one.
func TestPolicyWithOneField(t *testing.T) {
	t.Parallel()
	client := openMemory(t)
	for _, p := range []gq.Policy{{MaxAttempts: 5}, {Preset: gq.PresetResilient}, {LeaseTTL: time.Minute}, {ExecutionTimeout: time.Minute}, {MaxAttempts: 5, LeaseTTL: time.Minute}} {
		_, err := client.PutQueue(t.Context(), gq.Queue{Name: "mail", Policy: p})
		if !errors.Is(err, gq.ErrInvalid) || !strings.Contains(err.Error(), "p := gq.PresetResilient.Policy(); p.MaxAttempts = 5") || len(err.Error()) > 250 {
			t.Errorf("%+v: %v", p, err)
		}
	}
	p := gq.PresetResilient.Policy()
	p.MaxAttempts = 5
	if q, err := client.PutQueue(t.Context(), gq.Queue{Name: "mail", Policy: p}); err != nil || q.Policy.MaxAttempts != 5 {
		t.Errorf("%+v, %v", q.Policy, err)
	}
}

func TestOpenRefuses(t *testing.T) {
	t.Parallel()
	for url, want := range map[string]string{
		"":                    "unknown scheme",
		"gq-data":             "unknown scheme",
		"redis://localhost":   "unknown scheme",
		"postgres://x/y":      `add import _ "github.com/gopherqueue/gq/driver/postgres"`,
		"gq://localhost:8790": `add import _ "github.com/gopherqueue/gq/driver/remote"`,
		"file:":               "the directory is missing",
		"memory:x":            "nothing may follow",
	} {
		if _, err := gq.Open(t.Context(), url); !errors.Is(err, gq.ErrInvalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", url, err, want)
		}
	}
	if _, err := gq.Open(t.Context(), "memory:", func(o *gq.OpenOptions) { o.Limits.PayloadBytes = 17 << 20 }); !errors.Is(err, gq.ErrInvalid) {
		t.Errorf("impossible limits: %v", err)
	}
	client := openMemory(t)
	if _, err := ping.Submit(t.Context(), client.In("no transaction"), gq.None{}); !errors.Is(err, gq.ErrInvalid) {
		t.Errorf("a queue in memory takes part in a transaction: %v", err)
	}
	defer func() {
		if recover() == nil {
			t.Error("a scheme was registered twice")
		}
	}()
	gq.RegisterDriver("memory", nil)
}

// A queue in a directory is there when it is opened again, and settings are given once.
func TestOpenAgain(t *testing.T) {
	t.Parallel()
	ctx, url := t.Context(), "file:"+t.TempDir()
	options := []gq.OpenOption{func(o *gq.OpenOptions) {
		o.Limits = gq.Limits{PayloadBytes: 100, ResultBytes: 100, CheckpointBytes: 100}
		o.Backoffs = map[string]func(int, time.Duration, time.Duration) time.Duration{
			"mine": func(int, time.Duration, time.Duration) time.Duration { return time.Minute },
		}
	}}
	client, err := gq.Open(ctx, url, options...)
	if err != nil {
		t.Fatal(err)
	}
	custom := gq.Backoff{Strategy: gq.StrategyCustom, Custom: "mine", Initial: time.Second, Max: time.Hour, Multiplier: 2, Jitter: gq.JitterNone}
	id, err := raw.Submit(ctx, client, make([]byte, 100), gq.RetryDelay(custom))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := raw.Submit(ctx, client, make([]byte, 101)); !errors.Is(err, gq.ErrInvalid) {
		t.Errorf("a payload beyond the limit: %v", err)
	}
	if err := client.Close(); err != nil {
		t.Fatal(err)
	}
	if client, err = gq.Open(ctx, url, options...); err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	if job, err := client.Get(ctx, id, gq.WithPayload); err != nil || len(job.Spec.Payload.Data) != 100 {
		t.Errorf("after it was opened again: %d bytes, %v", len(job.Spec.Payload.Data), err)
	}
}

// Events are followed through the client.
func TestFollow(t *testing.T) {
	t.Parallel()
	client := openMemory(t)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	id, err := ping.Submit(ctx, client, gq.None{})
	if err != nil {
		t.Fatal(err)
	}
	var seen []gq.EventType
	err = client.Follow(ctx, 0, func(events []gq.Event) error {
		for _, e := range events {
			if e.Job == id {
				seen = append(seen, e.Type)
			}
		}
		if len(seen) == 2 {
			stop()
		}
		return nil
	})
	if err != nil || len(seen) != 2 || seen[0] != gq.EventSubmitted || seen[1] != gq.EventScheduled {
		t.Errorf("followed %v, %v", seen, err)
	}
}

// A failure's message can have a stack behind its first line. An error is one line.
func TestJobErrorIsOneLine(t *testing.T) {
	err := &gq.JobError{Status: gq.StatusFailed, Failure: &gq.Failure{Message: "panic: boom\n\ngoroutine 1"}}
	if got := err.Error(); !strings.HasSuffix(got, " is FAILED: panic: boom") {
		t.Errorf("%q", got)
	}
}

// A job whose handler has set no result, or that was read without its parts, is not told as bad JSON.
func TestKindSaysWhatIsMissing(t *testing.T) {
	t.Parallel()
	client, ctx := openMemory(t), t.Context()
	work := worker.New(client, worker.Config{Logger: slog.New(slog.DiscardHandler)})
	work.HandleFunc("silent", func(context.Context, *worker.Run) error { return nil })
	work.HandleFunc("empty", func(_ context.Context, run *worker.Run) error { return run.SetResult([]byte("{")) })
	work.Start(ctx)
	defer func() {
		if err := work.Stop(); err != nil {
			t.Errorf("stop: %v", err)
		}
	}()
	silent, malformed := gq.NewKind[order, int]("silent"), gq.NewKind[order, int]("empty")
	ended := func(k gq.Kind[order, int]) (gq.JobID, error) {
		id, err := k.Submit(ctx, client, order{"a-1", 21})
		if err != nil {
			t.Fatal(err)
		}
		_, err = k.Wait(ctx, client, id)
		return id, err
	}
	said := func(what string, err error, want string) {
		t.Helper()
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", what, err, want)
		}
	}
	_, err := ended(silent)
	said("a job without a result", err, "there is none; let the handler return it")
	id, err := ended(malformed)
	said("a result that is no JSON", err, "unexpected end of JSON input")
	job, err := client.Get(ctx, id, 0)
	if err != nil {
		t.Fatal(err)
	}
	_, err = malformed.Result(job)
	said("a job that was read without its result", err, "gq.WithResult")
	_, err = malformed.Args(job)
	said("a job that was read without its payload", err, "gq.WithPayload")
	job.Redacted = true
	for _, read := range []func() error{
		func() error { _, err := malformed.Result(job); return err },
		func() error { _, err := malformed.Args(job); return err },
	} {
		said("a redacted job", read(), "may not see")
	}
}
