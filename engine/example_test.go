package engine_test

import (
	"context"
	"fmt"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/engine"
	"github.com/gopherqueue/gq/internal/errs"
	"github.com/gopherqueue/gq/store/local"
)

// exampleEngine returns an engine over an empty store in memory.
func exampleEngine() (e *engine.Engine, done func()) {
	s, err := local.OpenMemory(local.Options{}) // or local.Open("gq-data", …), to keep the jobs
	if err != nil {
		panic(err)
	}
	e, err = engine.New(s, engine.Options{})
	if err != nil {
		panic(err)
	}
	return e, func() { _ = s.Close() }
}

// A job is submitted, run by a worker and waited for. Package worker does the middle part
// for you.
func Example() {
	e, done := exampleEngine()
	defer done()
	ctx := context.Background()

	submitted, err := e.Submit(ctx, gq.Spec{Type: "greet", Payload: gq.Payload{Data: []byte(`"gopher"`)}})
	if err != nil {
		fmt.Println(err)
		return
	}

	go func() {
		jobs, err := e.Claim(ctx, gq.ClaimRequest{Worker: "worker-1", Types: []string{"greet"}, Wait: time.Minute, N: 1})
		if err != nil {
			fmt.Println(err)
			return
		}
		for _, j := range jobs {
			if _, err := e.Complete(ctx, j.State.Lease.Ref(), append([]byte("hello "), j.Spec.Payload.Data...)); err != nil {
				fmt.Println(err)
			}
		}
	}()

	job, err := e.Wait(ctx, submitted.ID())
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Printf("%s: %s\n", job.State.Status, job.Result)
	// Output: COMPLETED: hello "gopher"
}

// A graph is submitted in one call: all of it is accepted, or nothing.
func ExampleEngine_SubmitGraph() {
	e, done := exampleEngine()
	defer done()
	ctx := context.Background()

	jobs, err := e.SubmitGraph(ctx, []gq.GraphJob{
		{Ref: "fetch", Spec: gq.Spec{Type: "fetch"}},
		{Ref: "resize", Spec: gq.Spec{Type: "resize"}, Needs: []gq.Dependency{{Kind: gq.DependencyAfter, Ref: "fetch"}}},
		{Ref: "publish", Spec: gq.Spec{Type: "publish"}, Needs: []gq.Dependency{{Kind: gq.DependencyAfter, Ref: "resize"}}},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, j := range jobs {
		fmt.Println(j.State.Status)
	}

	_, err = e.SubmitGraph(ctx, []gq.GraphJob{{Ref: "a", Spec: gq.Spec{Type: "t"}, Needs: []gq.Dependency{{Kind: gq.DependencyAfter, Ref: "b"}}}})
	fmt.Println(err)
	// Output:
	// SCHEDULED
	// PENDING
	// PENDING
	// submit graph: invalid: jobs[0].needs[0].ref: "b" is not a job of this graph
}

// "Why is my job not running?"
func ExampleEngine_Explain() {
	e, done := exampleEngine()
	defer done()
	ctx := context.Background()

	id, err := e.Enqueue(ctx, gq.Spec{Type: "report", Queue: "nightly"})
	if err != nil {
		fmt.Println(err)
		return
	}
	if _, err := e.Pause(ctx, "nightly"); err != nil {
		fmt.Println(err)
		return
	}
	why, err := e.Explain(ctx, id)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Printf("%s: %s\n%s\n", why.Cause, why.Summary, why.Remedy)
	for _, next := range why.Also {
		fmt.Printf("then %s: %s\n", next.Cause, next.Summary)
	}
	// Output:
	// paused: queue nightly is paused
	// resume it: gq queue resume nightly
	// then no_worker: no live worker claims type report of queue nightly
}

// A schedule fires once for each slot, however many engines run it.
func ExampleEngine_PutSchedule() {
	e, done := exampleEngine()
	defer done()
	ctx := context.Background()

	s, err := e.PutSchedule(ctx, gq.Schedule{
		Name: "report", Cron: "0 9 * * MON-FRI", TimeZone: "Europe/Berlin",
		Template: gq.Spec{Type: "report"},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(s.Name, s.Missed, s.Next.IsZero())

	_, err = e.PutSchedule(ctx, gq.Schedule{Name: "never", Cron: "0 25 * * *", Template: gq.Spec{Type: "report"}})
	fmt.Println(errs.CodeOf(err), errs.FaultsOf(err)[0].Field)
	// Output:
	// report once false
	// invalid cron
}
