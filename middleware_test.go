package gq_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"

	"github.com/gopherqueue/gq"
	_ "github.com/gopherqueue/gq/driver/file"
	"github.com/gopherqueue/gq/worker"
)

var noted = gq.NewKind[string, string]("noted")

func openWith(t *testing.T, middleware ...gq.Middleware) *gq.Client {
	t.Helper()
	c, err := gq.Open(t.Context(), "memory:", gq.Use(middleware...))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// noting is middleware that notes when it is called and puts its name around data.
func noting(name string, notes *[]string) gq.Middleware {
	note := func(what string) { *notes = append(*notes, what+" "+name) }
	return gq.Middleware{
		Submit: func(next gq.SubmitFunc) gq.SubmitFunc {
			return func(ctx context.Context, specs []gq.Spec) ([]gq.SubmitResult, error) {
				note("before")
				for i := range specs {
					gq.Tag(name, "seen")(&specs[i])
				}
				results, err := next(ctx, specs)
				note("after")
				return results, err
			}
		},
		Seal: func(_ context.Context, d gq.Data) (gq.Data, error) {
			note("seal")
			d.Bytes, d.ContentType = slices.Concat([]byte(name), d.Bytes), gq.OctetStream
			return d, nil
		},
		Unseal: func(_ context.Context, d gq.Data) (gq.Data, error) {
			note("unseal")
			rest, ok := bytes.CutPrefix(d.Bytes, []byte(name))
			if !ok {
				return d, errors.New("not sealed by " + name)
			}
			d.Bytes, d.ContentType = rest, gq.JSON
			return d, nil
		},
	}
}

// The first middleware is the outermost of a submission and the first to seal; unsealing goes the
// other way round.
func TestMiddlewareOrder(t *testing.T) {
	var notes []string
	c := openWith(t, noting("a", &notes)).With(noting("b", &notes))
	args := "x"
	id, err := noted.Submit(t.Context(), c, args)
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(notes, ", "); got != "before a, before b, seal a, seal b, after b, after a" {
		t.Errorf("a submission: %s", got)
	}
	raw := &gq.Client{Driver: c.Driver}
	if j, err := raw.Get(t.Context(), id, gq.WithPayload); err != nil || string(j.Spec.Payload.Data) != `ba"x"` || j.Metadata.Tags["a"] != "seen" || j.Metadata.Tags["b"] != "seen" {
		t.Errorf("stored %q with %v, %v", j.Spec.Payload.Data, j.Metadata.Tags, err)
	}
	notes = nil
	if j, err := c.Get(t.Context(), id, gq.WithPayload); err != nil || string(j.Spec.Payload.Data) != `"x"` {
		t.Errorf("read %q, %v", j.Spec.Payload.Data, err)
	}
	if got := strings.Join(notes, ", "); got != "unseal b, unseal a" {
		t.Errorf("a read: %s", got)
	}
	notes = nil
	if _, err := noted.SubmitMany(t.Context(), c, []string{"1", "2"}); err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(notes, ", "); got != "before a, before b, seal a, seal b, seal a, seal b, after b, after a" {
		t.Errorf("a batch: %s", got)
	}
}

// A hook that redacts what is stored, in every way to submit.
func TestRedaction(t *testing.T) {
	const password = "hunter2"
	c := openWith(t, gq.Middleware{Seal: func(_ context.Context, d gq.Data) (gq.Data, error) {
		d.Bytes = bytes.ReplaceAll(d.Bytes, []byte(password), []byte("***"))
		return d, nil
	}})
	spec, err := noted.Spec("the password is " + password)
	if err != nil {
		t.Fatal(err)
	}
	var ids []gq.JobID
	r, err := c.Submit(t.Context(), spec)
	ids = append(ids, r.ID())
	batch, err2 := c.SubmitBatch(t.Context(), []gq.Spec{spec})
	graph, err3 := c.SubmitGraph(t.Context(), []gq.GraphJob{{Spec: spec, Ref: "a"}})
	flow := gq.NewWorkflow("w")
	flow.Add("a", gq.Draft{Spec: spec})
	flowID, err4 := c.SubmitWorkflow(t.Context(), flow)
	if err := errors.Join(err, err2, err3, err4); err != nil {
		t.Fatal(err)
	}
	more := gq.NewWorkflow("")
	more.Add("b", gq.Draft{Spec: spec})
	w, err := c.AddToWorkflow(t.Context(), flowID, more)
	if err != nil {
		t.Fatal(err)
	}
	for _, j := range w.Jobs {
		ids = append(ids, j.ID)
	}
	for _, id := range append(ids, batch[0].ID(), graph[0].ID()) {
		j, err := c.Get(t.Context(), id, gq.WithPayload)
		if err != nil || string(j.Spec.Payload.Data) != `"the password is ***"` {
			t.Errorf("stored %q, %v", j.Spec.Payload.Data, err)
		}
	}
	if string(spec.Payload.Data) != `"the password is hunter2"` {
		t.Errorf("the program's own spec became %q", spec.Payload.Data)
	}
}

// within is a driver whose transactions are the queue itself.
type within struct{ gq.Driver }

func (d within) Within(any) (gq.Submitter, error) { return d.Driver, nil }

// Middleware also seals what a transaction submits and what an edit changes.
func TestRedactionInTransactionsAndEdits(t *testing.T) {
	c := openWith(t)
	sealing := (&gq.Client{Driver: within{c.Driver}}).With(gq.Middleware{Seal: func(_ context.Context, d gq.Data) (gq.Data, error) {
		d.Bytes = bytes.ReplaceAll(d.Bytes, []byte("hunter2"), []byte("***"))
		return d, nil
	}})
	id, err := noted.Submit(t.Context(), sealing.In("a transaction"), "hunter2")
	if err != nil {
		t.Fatal(err)
	}
	edited, err := sealing.Edit(t.Context(), id, gq.JobEdit{Payload: &gq.Payload{Data: []byte(`"now hunter2"`)}})
	if err != nil {
		t.Fatal(err)
	}
	for id, want := range map[gq.JobID]string{id: `"***"`, edited.ID(): `"now ***"`} {
		j, err := c.Get(t.Context(), id, gq.WithPayload)
		if err != nil || string(j.Spec.Payload.Data) != want {
			t.Errorf("stored %q, want %s: %v", j.Spec.Payload.Data, want, err)
		}
	}
}

// Faulty middleware fails the call; nothing is stored.
func TestFaultyMiddleware(t *testing.T) {
	refusal := errors.New("refused")
	submit := func(f func(specs []gq.Spec, next func([]gq.Spec) ([]gq.SubmitResult, error)) ([]gq.SubmitResult, error)) gq.Middleware {
		return gq.Middleware{Submit: func(next gq.SubmitFunc) gq.SubmitFunc {
			return func(ctx context.Context, specs []gq.Spec) ([]gq.SubmitResult, error) {
				return f(specs, func(specs []gq.Spec) ([]gq.SubmitResult, error) { return next(ctx, specs) })
			}
		}}
	}
	type next = func([]gq.Spec) ([]gq.SubmitResult, error)
	for name, test := range map[string]struct {
		middleware gq.Middleware
		want       string
	}{
		"refuses":    {submit(func([]gq.Spec, next) ([]gq.SubmitResult, error) { return nil, refusal }), "refused"},
		"panics":     {submit(func([]gq.Spec, next) ([]gq.SubmitResult, error) { panic("oops") }), "middleware panicked: oops"},
		"adds jobs":  {submit(func(s []gq.Spec, n next) ([]gq.SubmitResult, error) { return n(append(s, s...)) }), "middleware made 2 jobs of 1"},
		"no results": {submit(func([]gq.Spec, next) ([]gq.SubmitResult, error) { return nil, nil }), "middleware returned 0 results for 1 jobs"},
		"seal fails": {gq.Middleware{Seal: func(_ context.Context, d gq.Data) (gq.Data, error) { return d, refusal }}, "seal the payload of \"noted\": refused"},
		"seal panics": {gq.Middleware{Seal: func(context.Context, gq.Data) (gq.Data, error) { panic("oops") }},
			"middleware panicked: oops"},
	} {
		c := openWith(t, test.middleware)
		_, err := noted.Submit(t.Context(), c, "x")
		if err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v, want %s", name, err, test.want)
		}
		if page, err := c.List(t.Context(), gq.Query{}); err != nil || len(page.Jobs) != 0 {
			t.Errorf("%s: stored %+v, %v", name, page.Jobs, err)
		}
	}
}

// Middleware of a worker sees and changes payload, result and error; a panic fails the attempt.
func TestWorkerMiddleware(t *testing.T) {
	c := openWith(t)
	w := worker.New(c, worker.Config{Logger: slog.New(slog.DiscardHandler)})
	var order []string
	trail := func(name string) worker.Middleware {
		return func(next worker.Handler) worker.Handler {
			return func(ctx context.Context, run *worker.Run) error {
				order = append(order, "before "+name)
				defer func() { order = append(order, "after "+name) }()
				return next(ctx, run)
			}
		}
	}
	w.Use(trail("a"), trail("b"), func(next worker.Handler) worker.Handler {
		return func(ctx context.Context, run *worker.Run) error {
			p := run.Payload()
			if string(p.Data) == `"panic"` {
				panic("oops")
			}
			p.Data = bytes.ToUpper(p.Data)
			run.SetPayload(p)
			if err := next(ctx, run); err != nil {
				return gq.Permanent(err, "replaced")
			}
			return run.SetResult(slices.Concat([]byte(`["wrapped",`), run.Result(), []byte("]")))
		}
	})
	worker.HandleResult(w, noted, func(_ context.Context, job *worker.Job[string]) (string, error) {
		if job.Args == "FAIL" {
			return "", errors.New("failed")
		}
		return job.Args + "!", nil
	})
	w.Start(t.Context())
	run := func(args string) gq.Job {
		t.Helper()
		id, err := noted.Submit(t.Context(), c, args, gq.MaxAttempts(1))
		if err != nil {
			t.Fatal(err)
		}
		j, err := c.Wait(t.Context(), id)
		if err != nil {
			t.Fatal(err)
		}
		return j
	}
	if j := run("x"); string(j.Result) != `["wrapped","X!"]` {
		t.Errorf("the result is %s (%+v)", j.Result, j.State.Failure)
	}
	if got := strings.Join(order, ", "); got != "before a, before b, after b, after a" {
		t.Errorf("the order is %s", got)
	}
	if j := run("fail"); j.State.Failure == nil || j.State.Failure.Code != "replaced" {
		t.Errorf("a failure: %+v", j.State.Failure)
	}
	if j := run("panic"); j.State.Failure == nil || j.State.Failure.Code != "panic" {
		t.Errorf("a panic: %+v", j.State.Failure)
	}
	if err := w.Stop(); err != nil {
		t.Error(err)
	}
	broken := worker.New(c, worker.Config{})
	broken.Use(func(worker.Handler) worker.Handler { return nil })
	broken.HandleFunc("t", func(context.Context, *worker.Run) error { return nil })
	if err := broken.Run(t.Context()); !errors.Is(err, gq.ErrInvalid) || !strings.Contains(err.Error(), "middleware[0]") {
		t.Errorf("middleware without a handler: %v", err)
	}
}
