package semantics_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"log"
	"slices"
	"testing"
	"time"

	"github.com/gopherqueue/gq"
	_ "github.com/gopherqueue/gq/driver/file"
	"github.com/gopherqueue/gq/internal/testing/spec"
	"github.com/gopherqueue/gq/view/semantics"
)

// opened returns a queue in memory, in the words of the document and in its own.
func opened(t *testing.T) (semantics.Queue, *gq.Client) {
	t.Helper()
	c, err := gq.Open(t.Context(), "memory:")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	return semantics.On(c), c
}

// TestQueue goes through the transitions of the document with its own operations: two jobs, one
// acknowledged after a retry, one failed for good.
func TestQueue(t *testing.T) {
	spec.Covers(t, "Q-25", "Q-26", "Q-27", "Q-28", "Q-83", "Q-89", "Q-90", "Q-94")
	q, c := opened(t)
	ctx := t.Context()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	read := func(id gq.JobID, want semantics.State) semantics.Job {
		t.Helper()
		job, err := q.Get(ctx, id)
		must(err)
		var in []semantics.State // the states that list it
		for _, state := range semantics.States() {
			page, err := q.List(ctx, gq.Query{Queue: "q"}, state)
			must(err)
			if slices.ContainsFunc(page.Jobs, func(j semantics.Job) bool { return j.ID == id }) {
				in = append(in, state)
			}
		}
		if job.State != want || !slices.Equal(in, []semantics.State{want}) {
			t.Fatalf("it is %+v and listed in %q, want %s", job, in, want)
		}
		return job
	}
	claim := func() semantics.Claimed {
		t.Helper()
		all, err := q.Claim(ctx, gq.ClaimRequest{Worker: "w", Queues: []string{"q"}, N: 1, Wait: time.Minute, Hold: true})
		must(err)
		return all[0]
	}

	id, err := q.Enqueue(ctx, gq.Spec{Type: "t", Queue: "q", Payload: gq.Payload{Data: []byte(`{"n":1}`)}})
	must(err)
	if job := read(id, "Ready"); job.MaxRetries != 3 || job.LeaseTTL != semantics.Duration(5*time.Second) || job.LeaseToken != "" {
		t.Errorf("enqueued: %+v", job)
	}
	first := claim()
	if first.ID != id || first.Type != "t" || string(first.Payload) != `{"n":1}` || first.LeaseToken == "" || first.LeaseVersion != 1 || first.State != "InFlight" {
		t.Errorf("claimed: %+v", first)
	}
	if job := read(id, "InFlight"); job.LeaseToken != first.LeaseToken || !job.LeaseExpiresAt.Equal(first.LeaseExpiresAt) {
		t.Errorf("in flight: %+v, claimed %+v", job, first)
	}
	until, err := q.Extend(ctx, first.LeaseToken)
	must(err)
	if job := read(id, "InFlight"); until.Before(first.LeaseExpiresAt) || !job.LeaseExpiresAt.Equal(until) {
		t.Errorf("extended from %v to %v: %+v", first.LeaseExpiresAt, until, job)
	}
	must(q.Nack(ctx, first.LeaseToken, errors.New("no")))
	if job := read(id, "Ready"); job.Retries != 1 || job.RetryAt.IsZero() || job.LeaseToken != "" {
		t.Errorf("nacked: %+v", job)
	}
	second := claim()
	if second.LeaseToken == first.LeaseToken || second.LeaseVersion != 2 {
		t.Errorf("claimed again: %+v", second)
	}
	_, late := q.Extend(ctx, first.LeaseToken)
	for call, err := range map[string]error{
		"ack": q.Ack(ctx, first.LeaseToken, nil), "nack": q.Nack(ctx, first.LeaseToken, errors.New("late")), "extend": late, "no token": q.Ack(ctx, "x", nil),
	} {
		if !errors.Is(err, semantics.ErrStaleLease) {
			t.Errorf("stale %s: %v", call, err)
		}
	}
	must(q.Ack(ctx, second.LeaseToken, []byte(`true`)))
	if job := read(id, "Succeeded"); job.Retries != 1 {
		t.Errorf("acknowledged: %+v", job)
	}

	bad, err := q.Enqueue(ctx, gq.Spec{Type: "t", Queue: "q"})
	must(err)
	must(q.Nack(ctx, claim().LeaseToken, gq.Permanent(errors.New("never"), "never")))
	read(bad, "Failed")
	if _, err := c.Cancel(ctx, bad, ""); !errors.Is(err, gq.ErrIllegalMove) {
		t.Errorf("cancel of a failed job: %v", err)
	}

	events, err := q.History(ctx, id)
	must(err)
	var ways []string
	for _, e := range events {
		ways = append(ways, e.Trigger+" "+string(e.State))
	}
	if want := []string{"Enqueue Ready", "Claim InFlight", "Nack Ready", "Claim InFlight", "Ack Succeeded"}; !slices.Equal(ways, want) {
		t.Errorf("the history is %q, want %q", ways, want)
	}
	followed := errors.New("enough")
	err = q.Follow(ctx, 0, func(events []semantics.Event) error {
		if events[0].ID != id || events[0].State != "Ready" {
			t.Errorf("the first event is %+v", events[0])
		}
		return followed
	})
	if !errors.Is(err, followed) {
		t.Errorf("follow: %v", err)
	}
}

// With retries left an error of any type makes a job Ready again, whatever its policy, unless the handler
// says that it is permanent.
func TestNackByType(t *testing.T) {
	q, c := opened(t)
	for _, preset := range []gq.Preset{gq.PresetSemantics, gq.PresetResilient} {
		for _, test := range []struct {
			err  error
			want semantics.State
		}{
			{sql.ErrNoRows, semantics.Ready},
			{fmt.Errorf("read: %w", fs.ErrNotExist), semantics.Ready},
			{gq.Permanent(sql.ErrNoRows, "no_user"), semantics.Failed},
		} {
			s := gq.Spec{Type: "t", Queue: "q"}
			s.Overrides.Preset = preset
			id, err := q.Enqueue(t.Context(), s)
			if err != nil {
				t.Fatal(err)
			}
			all, err := q.Claim(t.Context(), gq.ClaimRequest{Worker: "w", Queues: []string{"q"}, N: 1, Wait: time.Minute})
			if err != nil || len(all) != 1 || all[0].ID != id {
				t.Fatalf("claimed %+v: %v", all, err)
			}
			if err := q.Nack(t.Context(), all[0].LeaseToken, test.err); err != nil {
				t.Fatal(err)
			}
			job, err := q.Get(t.Context(), id)
			if err != nil {
				t.Fatal(err)
			}
			if job.State != test.want {
				t.Errorf("%s: after %v the job is %s, want %s", preset, test.err, job.State, test.want)
			}
			if test.want == semantics.Ready { // the next claim is for another
				if _, err := c.Cancel(t.Context(), id, ""); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
}

// A job whose policy was chosen keeps it, and a key that is taken is told.
func TestEnqueue(t *testing.T) {
	q, _ := opened(t)
	for _, test := range []struct {
		spec gq.Spec
		want int
	}{
		{gq.Spec{Type: "t", Policy: gq.PresetJobModel.Policy()}, 2},
		{gq.Spec{Type: "t", Queue: "default"}, 3},
	} {
		id, err := q.Enqueue(t.Context(), test.spec)
		if err != nil {
			t.Fatal(err)
		}
		if job, err := q.Get(t.Context(), id); err != nil || job.MaxRetries != test.want {
			t.Errorf("%v, MaxRetries is %d, want %d", err, job.MaxRetries, test.want)
		}
	}
	id, err := q.Enqueue(t.Context(), gq.Spec{Type: "t", Key: gq.IdempotencyKey{Name: "k"}})
	if err != nil {
		t.Fatal(err)
	}
	again, err := q.Enqueue(t.Context(), gq.Spec{Type: "t", Key: gq.IdempotencyKey{Name: "k"}, Payload: gq.Payload{Data: []byte(`1`)}})
	if !errors.Is(err, gq.ErrKeyReused) || again != id {
		t.Errorf("%v, %v", again, err)
	}
	if _, err := q.List(t.Context(), gq.Query{}, "RUNNING"); !errors.Is(err, gq.ErrInvalid) {
		t.Errorf("a state of another view: %v", err)
	}
	if _, err := q.Get(t.Context(), gq.JobID{}); !errors.Is(err, gq.ErrNotFound) {
		t.Errorf("no job: %v", err)
	}
}

// Example processes a job with the operations of the document.
func Example() {
	ctx := context.Background()
	c, err := gq.Open(ctx, "memory:")
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	q := semantics.On(c)
	id, err := q.Enqueue(ctx, gq.Spec{Type: "greet"})
	if err != nil {
		log.Fatal(err)
	}
	jobs, err := q.Claim(ctx, gq.ClaimRequest{Worker: "me", N: 1, Wait: time.Second})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(jobs[0].State, jobs[0].LeaseVersion, jobs[0].MaxRetries)
	if err := q.Ack(ctx, jobs[0].LeaseToken, nil); err != nil {
		log.Fatal(err)
	}
	job, err := q.Get(ctx, id)
	fmt.Println(job.State, err)
	// Output:
	// InFlight 1 3
	// Succeeded <nil>
}
