package worker_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/worker"
)

// Email is the payload of jobs of type email.send.
type Email struct {
	To string `json:"to"`
}

// quiet keeps log lines out of the examples.
var quiet = slog.New(slog.DiscardHandler)

func Example() {
	queue := newMemory() // an engine, or a client of a server
	queue.submit(gq.Spec{Type: "email.send", Payload: gq.Payload{Data: []byte(`{"to": "ann@example.com"}`)}})

	ctx, stop := context.WithCancel(context.Background())
	mux := worker.NewMux()
	worker.Handle(mux, gq.NewKind[Email, gq.None]("email.send"), func(_ context.Context, job *worker.Job[Email]) error {
		defer stop()
		fmt.Printf("to %s, attempt %d of %d\n", job.Args.To, job.Attempt(), job.Bound())
		return nil
	})
	w, err := worker.NewWith(queue, mux, worker.Config{Slots: 50, Logger: quiet})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("stopped:", w.Run(ctx))
	fmt.Println(queue.counts())
	// Output:
	// to ann@example.com, attempt 1 of 3
	// stopped: <nil>
	// map[COMPLETED:1]
}

func ExampleHandleResult() {
	queue := newMemory()
	id := queue.submit(gq.Spec{Type: "sum", Payload: gq.Payload{Data: []byte(`[1, 2, 3]`)}})

	ctx, stop := context.WithCancel(context.Background())
	mux := worker.NewMux()
	worker.HandleResult(mux, gq.NewKind[[]int, int]("sum"), func(_ context.Context, job *worker.Job[[]int]) (int, error) {
		defer stop()
		sum := 0
		for _, n := range job.Args {
			sum += n
		}
		return sum, nil
	})
	w, _ := worker.NewWith(queue, mux, worker.Config{Logger: quiet})
	_ = w.Run(ctx)
	fmt.Printf("%s\n", queue.job(id).Result)
	// Output:
	// 6
}

// The error of a handler decides what happens to the job.
func ExampleSnooze() {
	queue := newMemory()
	for _, typ := range []string{"done", "later", "retry", "hopeless", "pointless", "odd"} {
		queue.submit(gq.Spec{Type: typ})
	}
	ctx, stop := context.WithCancel(context.Background())
	mux := worker.NewMux()
	answer := func(typ string, err error) {
		mux.HandleFunc(typ, func(context.Context, *worker.Run) error { return err })
	}
	answer("done", nil)
	answer("later", worker.Snooze(time.Hour))
	answer("retry", gq.RetryAfter(errors.New("printer is warming up"), time.Minute))
	answer("hopeless", gq.Permanent(errors.New("no such street"), "bad_address"))
	answer("pointless", worker.Cancel("the order was withdrawn"))
	mux.HandleFunc("odd", func(context.Context, *worker.Run) error {
		defer stop()
		panic("not my day")
	})
	w, _ := worker.NewWith(queue, mux, worker.Config{Slots: 1, Logger: quiet})
	_ = w.Run(ctx)
	for _, j := range queue.jobs {
		fmt.Print(j.Spec.Type, ": ", j.State.Status)
		if f := j.State.Failure; f != nil {
			fmt.Printf(", %v %q", f.Category, f.Code)
		}
		fmt.Println()
	}
	// Output:
	// done: COMPLETED
	// later: RETRYING
	// retry: RETRYING, TEMPORARY ""
	// hopeless: FAILED, PERMANENT "bad_address"
	// pointless: CANCELLED, CANCELLED "cancelled"
	// odd: RETRYING, SYSTEM "panic"
}

// Middleware wraps every handler of a mux.
func ExampleMux_Use() {
	queue := newMemory()
	queue.submit(gq.Spec{Type: "work", Metadata: gq.Metadata{CorrelationID: "trace-1"}})

	ctx, stop := context.WithCancel(context.Background())
	mux := worker.NewMux()
	mux.Use(func(next worker.Handler) worker.Handler {
		return func(ctx context.Context, run *worker.Run) error {
			fmt.Println("begin", run.Type(), run.CorrelationID())
			err := next(ctx, run)
			fmt.Println("end", err)
			return err
		}
	}, worker.Timeout(time.Minute))
	mux.HandleFunc("work", func(context.Context, *worker.Run) error {
		stop()
		return nil
	})
	w, _ := worker.NewWith(queue, mux, worker.Config{Logger: quiet})
	_ = w.Run(ctx)
	// Output:
	// begin work trace-1
	// end <nil>
}
