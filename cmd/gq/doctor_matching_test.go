package main

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/internal/faces/matching"
)

// provided is an installation with a queue that providers serve.
type provided struct {
	installation
	why gq.Explanation // of every job
}

func (p provided) Queues(context.Context) ([]gq.Queue, error) {
	return []gq.Queue{{Name: matching.Queue}}, nil
}
func (p provided) Explain(context.Context, gq.JobID) (gq.Explanation, error) { return p.why, nil }

// A queue that providers serve has its own reasons why a job waits.
func TestDoctorOfMatching(t *testing.T) {
	provider := gq.LiveWorker{Name: "p", Queues: []string{matching.Queue}, Types: []string{"AI"}, Offers: []string{matching.Requirement}}
	reason := func(c gq.Cause, summary string) gq.Reason { return gq.Reason{Cause: c, Summary: summary} }
	stands := gq.Reason{Cause: gq.CauseConstraint, Summary: matching.StalledBeacon + "that of height 7", Remedy: "post the next one"}
	had := &gq.Lease{State: gq.LeaseCancelled}
	for _, test := range []struct {
		name    string
		workers []gq.LiveWorker
		why     gq.Explanation
		lease   *gq.Lease
		want    []string
	}{
		{"in line", []gq.LiveWorker{provider}, gq.Explanation{Reason: reason(gq.CauseNext, "it waits for its turn")}, nil, nil},
		{"nobody fits", []gq.LiveWorker{provider}, gq.Explanation{Reason: reason(gq.CauseConstraint, "none of 1 providers fits: 1 no_model")}, nil, []string{"note queue: matching has 2 ready jobs; the oldest: none of 1 providers fits: 1 no_model"}},
		{"no provider", nil, gq.Explanation{Reason: reason(gq.CauseNoWorker, "no provider is registered")}, nil, []string{"fail queue: matching has 2 ready jobs and no provider is registered"}},
		{"beacon", []gq.LiveWorker{provider}, gq.Explanation{Reason: reason(gq.CauseNext, "x"), Also: []gq.Reason{stands}}, had, []string{"fail beacon: the beacon stands still: that of height 7, and jobs wait for another; post the next one; gq job explain"}},
		{"beacon, but no job had a lease", []gq.LiveWorker{provider}, gq.Explanation{Reason: reason(gq.CauseNext, "x"), Also: []gq.Reason{stands}}, nil, nil},
		{"young beacon", []gq.LiveWorker{provider}, gq.Explanation{Reason: reason(gq.CauseConstraint, "none of 1 providers fits: 1 excluded")}, had, []string{"note queue: matching has 2 ready jobs; the oldest: none of 1 providers fits: 1 excluded"}},
	} {
		count := gq.Count{Queue: matching.Queue}
		count.By[gq.StatusScheduled] = 2
		job := gq.Job{Spec: gq.Spec{Queue: matching.Queue, Type: "AI", Requires: []string{matching.Requirement}}, State: gq.State{CreatedAt: time.Now(), Lease: test.lease}}
		p := provided{installation{
			stats: gq.Stats{Queues: []gq.Count{count}, Total: count, DiskFree: 100 << 30}, workers: test.workers, jobs: []gq.Job{job, job},
		}, test.why}
		found := findings{snapshotAge: oldSnapshot}
		if err := found.examine(t.Context(), p); err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, f := range found.all {
			if f.Check == "queue" || f.Check == "jobs" || f.Check == "beacon" {
				got = append(got, f.Level+" "+f.Check+": "+f.Text)
			}
		}
		if len(got) != len(test.want) || slices.ContainsFunc(test.want, func(want string) bool { return !strings.HasPrefix(got[0], want) }) {
			t.Errorf("%s: %q, want %q", test.name, got, test.want)
		}
	}
}

// crowded is an installation with many ready jobs of matching, a page of which has 100.
type crowded struct {
	provided
	explained map[gq.JobID]bool
	listed    int
}

func (c *crowded) List(_ context.Context, q gq.Query) (gq.Page, error) {
	if q.Queue != matching.Queue || !q.OldestFirst {
		return gq.Page{}, nil
	}
	from, _ := strconv.Atoi(q.Cursor)
	to := min(from+100, len(c.jobs))
	page := gq.Page{Jobs: c.jobs[from:to]}
	if c.listed += to - from; to < len(c.jobs) {
		page.Next = strconv.Itoa(to)
	}
	return page, nil
}

func (c *crowded) Explain(_ context.Context, id gq.JobID) (gq.Explanation, error) {
	c.explained[id] = true
	return c.why, nil
}

// Jobs that had a lease are found behind many that had none, up to a limit.
func TestDoctorFindsParkedJobs(t *testing.T) {
	stands := gq.Reason{Summary: matching.StalledBeacon + "that of height 7", Remedy: "post the next one"}
	for _, test := range []struct {
		before, parked    int
		why               gq.Explanation
		listed, explained int
		found             bool
	}{
		{450, 2, gq.Explanation{Also: []gq.Reason{stands}}, 452, 1, true},
		{450, 2, gq.Explanation{}, 452, 2, false},
		{450, 30, gq.Explanation{}, 480, 20, false},
		{10_000, 2, gq.Explanation{Also: []gq.Reason{stands}}, 10_000, 0, false},
	} {
		c := crowded{explained: map[gq.JobID]bool{}}
		c.why = test.why
		for i := range test.before + test.parked {
			job := gq.Job{State: gq.State{ID: gq.JobID{byte(i >> 8), byte(i)}}}
			if i >= test.before {
				job.State.Lease = &gq.Lease{State: gq.LeaseCancelled}
			}
			c.jobs = append(c.jobs, job)
		}
		count := gq.Count{Queue: matching.Queue}
		count.By[gq.StatusScheduled] = int64(len(c.jobs))
		var found findings
		if err := found.beacon(t.Context(), &c, []gq.Count{count}); err != nil {
			t.Fatal(err)
		}
		if c.listed != test.listed || len(c.explained) != test.explained || len(found.all) == 1 != test.found {
			t.Errorf("%d jobs after %d others: %d listed, %d explained, found %v; want %d, %d and %t", test.parked, test.before, c.listed, len(c.explained), found.all, test.listed, test.explained, test.found)
		}
	}
}
