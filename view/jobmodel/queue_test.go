package jobmodel_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gopherqueue/gq"
	_ "github.com/gopherqueue/gq/driver/file"
	"github.com/gopherqueue/gq/view/jobmodel"
)

// A submission has limits in the names of the document; those that it does not name are the queue's.
func TestSubmit(t *testing.T) {
	c, err := gq.Open(t.Context(), "memory:")
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	q, ctx := jobmodel.On(c), t.Context()
	for given, want := range map[jobmodel.Timeouts]jobmodel.Timeouts{
		{}: {Execution: jobmodel.Duration(30 * time.Minute), Visibility: jobmodel.Duration(5 * time.Minute), Lifetime: jobmodel.Duration(168 * time.Hour)},
		{Execution: 7e9, Visibility: 3e9, Lifetime: 9e9}:                                        {Execution: 7e9, Visibility: 3e9, Lifetime: 9e9},
		{Execution: jobmodel.Duration(gq.Unlimited), Lifetime: jobmodel.Duration(gq.Unlimited)}: {Visibility: jobmodel.Duration(5 * time.Minute)},
	} {
		id, err := q.Submit(ctx, gq.Spec{Type: "t"}, given)
		if err != nil {
			t.Fatal(err)
		}
		if job, err := q.Get(ctx, id); err != nil || job.Timeouts != want {
			t.Errorf("%+v becomes %+v, %v; want %+v", given, job.Timeouts, err, want)
		}
	}
	if _, err := q.Submit(ctx, gq.Spec{Type: "t"}, jobmodel.Timeouts{Visibility: -5}); !errors.Is(err, gq.ErrInvalid) {
		t.Errorf("a negative limit: %v", err)
	}
	for given, refused := range map[jobmodel.Timeouts]bool{{Execution: 7e9}: true, {Execution: 9e9}: false, {Visibility: 7e9}: false} {
		spec := gq.Spec{Type: "t"}
		gq.Timeout(9 * time.Second)(&spec)
		_, err := q.Submit(ctx, spec, given)
		if (err != nil) != refused || refused && (!errors.Is(err, gq.ErrInvalid) || !strings.Contains(err.Error(), "timeouts.execution: 7s is not the 9s of policy.execution_timeout")) {
			t.Errorf("%+v with a timeout of 9s: %v", given, err)
		}
	}
}

// A job that a worker holds is SCHEDULED wherever it is read.
func TestQueue(t *testing.T) {
	c, err := gq.Open(t.Context(), "memory:")
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	q, ctx := jobmodel.On(c), t.Context()
	out, err := c.Submit(ctx, gq.Spec{Type: "t", Payload: gq.Payload{Data: []byte(`{"n":1}`)}})
	if err != nil {
		t.Fatal(err)
	}
	id := out.ID()
	held, err := c.Claim(ctx, gq.ClaimRequest{Worker: "w", N: 1, Wait: time.Minute, Hold: true})
	if err != nil || len(held) != 1 {
		t.Fatal(held, err)
	}
	job, err := q.Get(ctx, id)
	if err != nil || job.State != "SCHEDULED" || string(job.Payload) != `{"n":1}` || job.Timeouts.Visibility != jobmodel.Duration(5*time.Minute) {
		t.Errorf("held: %+v, %v", job, err)
	}
	for _, state := range jobmodel.States() {
		page, err := q.List(ctx, gq.Query{}, state)
		if listed := len(page.Jobs) == 1 && page.Jobs[0].ID == id; err != nil || listed != (state == "SCHEDULED") {
			t.Errorf("%s lists %+v, %v", state, page, err)
		}
	}
	if _, err := q.List(ctx, gq.Query{}, "CLAIMED"); !errors.Is(err, gq.ErrInvalid) {
		t.Errorf("CLAIMED: %v", err)
	}
	want := []jobmodel.State{"PENDING", "SCHEDULED"}
	states := func(events []jobmodel.Event) (all []jobmodel.State) {
		for _, e := range events {
			all = append(all, e.State)
		}
		return all
	}
	if events, err := q.History(ctx, id); err != nil || !slices.Equal(states(events), want) {
		t.Errorf("the history is %+v, %v", events, err)
	}
	var seen []jobmodel.State
	enough := errors.New("enough")
	err = q.Follow(ctx, 0, func(events []jobmodel.Event) error {
		if seen = append(seen, states(events)...); len(seen) >= len(want) {
			return enough
		}
		return nil
	})
	if !errors.Is(err, enough) || !slices.Equal(seen, want) {
		t.Errorf("followed %q, %v", seen, err)
	}
}

// Example reads a job in the states and names of the job model.
func Example() {
	ctx := context.Background()
	c, err := gq.Open(ctx, "memory:")
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	id, err := gq.NewKind[string, gq.None]("greet").Submit(ctx, c, "hello", gq.Delay(time.Hour))
	if err != nil {
		log.Fatal(err)
	}
	job, err := jobmodel.On(c).Get(ctx, id)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(job.Type, job.State, job.Attempt, string(job.Payload))
	fmt.Println(time.Duration(job.Timeouts.Execution), time.Duration(job.Timeouts.Visibility))
	// Output:
	// greet DELAYED 0 "hello"
	// 30m0s 5m0s
}
