package gqtest_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/gqtest"
	"github.com/gopherqueue/gq/worker"
)

// example stands for the t of a test, which examples do not have.
type example struct{ testing.TB }

func (example) Helper()                        {}
func (example) Cleanup(func())                 {}
func (example) Fatalf(format string, a ...any) { panic(fmt.Sprintf(format, a...)) }

// signUp is the code under test: it welcomes a new user a day later.
func signUp(ctx context.Context, client *gq.Client, address string) error {
	_, err := sendEmail.Submit(ctx, client, Email{To: address}, gq.Delay(24*time.Hour))
	return err
}

func Example() {
	t := example{}
	q := gqtest.New(t)
	w := newWorker(q)
	worker.Handle(w, sendEmail, func(_ context.Context, job *worker.Job[Email]) error {
		fmt.Println("attempt", job.Attempt(), "mails", job.Args.To, "at", q.Now().Format("02 Jan 15:04"))
		return nil
	})
	q.AddWorker(w)

	if err := signUp(context.Background(), q.Client, "ada@example.org"); err != nil {
		t.Fatalf("sign up: %v", err)
	}
	gqtest.RequireSubmitted(q, sendEmail, Email{To: "ada@example.org"})

	fmt.Println(q.RunUntilIdle(), "executions today")
	q.FailNext(sendEmail, 1, errors.New("mail server is down"))
	fmt.Println(q.Advance(48*time.Hour), "executions in two days")
	fmt.Print(q.Graph())
	// Output:
	// 0 executions today
	// attempt 2 mails ada@example.org at 02 Jan 00:00
	// 2 executions in two days
	// #1 email.send COMPLETED
}

func ExampleRunOne() {
	t := example{}
	job, err := gqtest.RunOne(t, sendEmail, func(_ context.Context, job *worker.Job[Email]) error {
		return gq.Permanent(errors.New("no such mailbox"), "bad_address")
	}, Email{To: "nobody"})
	fmt.Println(err)
	fmt.Println(job.State.Status, job.State.Failure.Code)
	// Output:
	// no such mailbox
	// FAILED bad_address
}
