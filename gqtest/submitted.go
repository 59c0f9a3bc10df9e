package gqtest

import (
	"bytes"
	"context"
	"fmt"
	"strings"

	"github.com/gopherqueue/gq"
)

// Submission is a submitted job with its arguments.
type Submission[A any] struct {
	gq.Job
	Args A
}

// Submitted returns the jobs of a kind in order of submission, whatever has become of them, except
// those that retention has removed: completed jobs are kept for a week unless the kind or the queue says
// otherwise ([gq.KeepFor]).
func Submitted[A, R any](q *Queue, k gq.Kind[A, R]) []Submission[A] {
	q.t.Helper()
	var all []Submission[A]
	for _, j := range q.jobs(gq.WithPayload | gq.WithResult | gq.WithCheckpoint) {
		if j.Spec.Type != k.Name() {
			continue
		}
		args, err := k.Args(j)
		if err != nil {
			q.t.Fatalf("gqtest: %v", err)
		}
		all = append(all, Submission[A]{j, args})
	}
	return all
}

// RequireSubmitted ends the test unless the jobs of a kind were submitted with exactly these
// arguments, in this order. Without arguments it requires that there are none. Arguments are
// compared in their stored form.
func RequireSubmitted[A, R any](q *Queue, k gq.Kind[A, R], want ...A) []Submission[A] {
	q.t.Helper()
	got := Submitted(q, k)
	equal := len(got) == len(want)
	var wanted, given strings.Builder
	for i, args := range want {
		spec, err := k.Spec(args)
		if err != nil {
			q.t.Fatalf("gqtest: %v", err)
		}
		equal = equal && bytes.Equal(got[i].Spec.Payload.Data, spec.Payload.Data)
		fmt.Fprintf(&wanted, "\n\t%s", spec.Payload.Data)
	}
	for i := range got {
		fmt.Fprintf(&given, "\n\t%s", got[i].Spec.Payload.Data)
	}
	if !equal {
		q.t.Fatalf("%d jobs of kind %s were submitted:%s\nwant %d:%s", len(got), k.Name(), &given, len(want), &wanted)
	}
	return got
}

// jobs returns all jobs in order of submission.
func (q *Queue) jobs(parts gq.Parts) (all []gq.Job) {
	q.t.Helper()
	ctx := context.Background()
	query := gq.Query{OldestFirst: true, Limit: 1000}
	for {
		page, err := q.List(ctx, query)
		if err != nil {
			q.t.Fatalf("gqtest: %v", err)
		}
		for _, j := range page.Jobs {
			if j, err = q.Get(ctx, j.State.ID, parts); err != nil {
				q.t.Fatalf("gqtest: %v", err)
			}
			all = append(all, j)
		}
		if query.Cursor = page.Next; query.Cursor == "" {
			return all
		}
	}
}
