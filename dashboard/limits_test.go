package dashboard

import (
	"slices"
	"testing"
	"time"

	"github.com/gopherqueue/gq"
)

// lined returns jobs with limit keys, held by a worker.
func lined(worker string, keys ...string) (jobs []gq.Job) {
	for _, key := range keys {
		j := gq.Job{Spec: gq.Spec{LimitKey: key}}
		if worker != "" {
			j.State.Lease = &gq.Lease{Worker: worker}
		}
		jobs = append(jobs, j)
	}
	return jobs
}

func TestAdmission(t *testing.T) {
	u := usage{own: map[string]gq.QueueKey{"big": {Key: "big", Limit: 3}}}
	u.add(&gq.Queue{KeyLimit: 1}, append(lined("w1", "acme", "big"), lined("w2", "")...))
	if !slices.Equal(u.Workers, []holder{{Worker: "w1", Jobs: 2}, {Worker: "w2", Jobs: 1}}) || !slices.Equal(u.Keys, []keyUse{{"acme", 1, 1}, {"big", 1, 3}}) {
		t.Fatalf("the jobs are held by %+v and %+v", u.Workers, u.Keys)
	}
	waiting := lined("", "acme", "acme", "", "big", "big", "big", "new", "new")
	for _, test := range []struct {
		q    gq.Queue
		want int
	}{
		{gq.Queue{}, 7},              // all but the third of big, which has a limit of its own
		{gq.Queue{KeyLimit: 1}, 4},   // none of acme, one without a key, two of big, one of new
		{gq.Queue{KeyLimit: 2}, 6},   // one of acme, one without, two of big, two of new
		{gq.Queue{MaxRunning: 3}, 0}, // three run
		{gq.Queue{MaxRunning: 2}, 0},
		{gq.Queue{MaxRunning: 5}, 2},
		{gq.Queue{MaxRunning: 5, KeyLimit: 1}, 2},
		{gq.Queue{MaxRunning: 100, KeyLimit: 1}, 4},
	} {
		if got := u.admits(&test.q, waiting); got != test.want {
			t.Errorf("%+v lets %d start, want %d", test.q, got, test.want)
		}
	}
}

func TestEffectsOfLimits(t *testing.T) {
	now := &queueView{queueRow: queueRow{Queue: gq.Queue{Name: "q"}}}
	now.By[gq.StatusRunning], now.By[gq.StatusScheduled] = 4, 120
	now.Usage.add(&now.Queue, lined("w", "acme", "acme", "acme", "b"))
	for _, test := range []struct {
		change func(q *gq.Queue)
		want   []string
	}{
		{func(*gq.Queue) {}, []string{"Nothing changes."}},
		{func(q *gq.Queue) { q.MaxRunning = 3 }, []string{"4 jobs run now, 1 more than the new limit. They continue; no further job starts until fewer than 3 run."}},
		{func(q *gq.Queue) { q.MaxRunning = 4 }, []string{"4 jobs run now, which is the new limit: the next job starts when one ends."}},
		{func(q *gq.Queue) { q.MaxRunning = 9 }, []string{"4 jobs run now; 5 more may start."}},
		{func(q *gq.Queue) { q.MaxDepth = 124 }, []string{"124 jobs are live now. Submissions are refused until there are fewer than 124."}},
		{func(q *gq.Queue) { q.MaxDepth = 125 }, []string{"124 jobs are live now; 1 more is accepted."}},
		{func(q *gq.Queue) { q.KeyLimit = 1 }, []string{"At most 1 job with the same limit key runs at once.", "Key acme has 3 running, 2 more than that. They continue."}},
		{func(q *gq.Queue) { q.KeyLimit = 2 }, []string{"At most 2 jobs with the same limit key run at once.", "Key acme has 3 running, 1 more than that. They continue."}},
		{func(q *gq.Queue) { q.Rate = gq.Rate{Count: 1, Per: time.Second} }, []string{
			"At most 1 job starts every 1 s.", "The 120 waiting jobs take at least 2 m to start.", "Jobs started at 5 a second in the last 10 m, so the queue becomes slower.",
		}},
		{func(q *gq.Queue) { q.KeyRate = gq.Rate{Count: 1, Per: time.Minute} }, []string{"At most 1 job with the same limit key starts every 1 m."}},
		{func(q *gq.Queue) { q.KeyRate = gq.Rate{Count: 2, Per: time.Minute} }, []string{"At most 2 jobs with the same limit key start every 1 m."}},
	} {
		after := now.Queue
		test.change(&after)
		if got := effects(now, &after, pace{Starts: 5, Span: 10 * time.Minute}); !slices.Equal(got, test.want) {
			t.Errorf("the effects are %q, want %q", got, test.want)
		}
	}
}
