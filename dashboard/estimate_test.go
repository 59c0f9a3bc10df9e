package dashboard

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/gopherqueue/gq"
)

func TestPredict(t *testing.T) {
	now := time.Date(2026, time.January, 1, 12, 0, 0, 0, time.UTC)
	lately := pace{Starts: 2, Span: 10 * time.Minute}
	for name, test := range map[string]struct {
		at        place
		lately    pace
		notBefore time.Time
		want      time.Duration // from now; 0 is unknown
		latest    bool
		basis     string
	}{
		"next":           {place{}, lately, time.Time{}, 500 * time.Millisecond, false, "0 jobs ahead of it; jobs of its queue started at 2 a second"},
		"in line":        {place{Ahead: 59}, lately, time.Time{}, 30 * time.Second, false, "59 jobs ahead of it; jobs of its queue started at 2 a second in the last 10 m"},
		"long line":      {place{Ahead: 7199, Most: true}, lately, time.Time{}, time.Hour, true, "at most 7,199 jobs ahead of it"},
		"slow":           {place{Ahead: 1}, pace{Starts: 1.0 / 1800, Span: time.Hour}, time.Time{}, time.Hour, false, "1 job ahead of it; jobs of its queue started at 2 an hour"},
		"rate":           {place{}, lately, now.Add(time.Minute), time.Minute, false, "jobs of its queue started"},
		"rate, no pace":  {place{}, pace{}, now.Add(time.Minute), time.Minute, false, "the rate limit of its queue"},
		"nothing starts": {place{Ahead: 3}, pace{}, time.Time{}, 0, false, "no job of its queue has started lately"},
		"for ever":       {place{Ahead: 1e9, Most: true}, pace{Starts: 0.01}, time.Time{}, 0, false, "more than a year"},
	} {
		t.Run(name, func(t *testing.T) {
			e := predict(now, test.at, test.lately, test.notBefore)
			if got := e.At; test.want == 0 != got.IsZero() || test.want > 0 && !got.Equal(now.Add(test.want)) || e.Latest != test.latest {
				t.Errorf("it starts at %v, latest %v; want %v later, %v", got, e.Latest, test.want, test.latest)
			}
			if text := e.Basis + e.Unknown; !strings.Contains(text, test.basis) || (e.Basis == "") == (e.Unknown == "") {
				t.Errorf("it says %q, want %q", text, test.basis)
			}
		})
	}
}

func TestPlaceInLine(t *testing.T) {
	at := time.Date(2026, time.January, 1, 12, 0, 0, 0, time.UTC)
	made := 0
	job := func(p gq.Priority, after time.Duration) gq.Job {
		made++
		j := gq.Job{State: gq.State{ID: gq.JobID{byte(made)}, ScheduledAt: at.Add(after)}}
		j.State.Own = p
		return j
	}
	self := job(gq.PriorityNormal, time.Minute)
	waiting := []gq.Job{
		job(gq.PriorityNormal, 0), job(gq.PriorityNormal, 2*time.Minute), // one before, one behind
		job(gq.PriorityHigh, time.Hour), job(gq.PriorityLow, 0), self, // one overtakes, one does not
	}
	if got := placeOf(&self, waiting); got.Ahead != 2 || got.Most {
		t.Errorf("the place is %+v, want 2 ahead", got)
	}
}

func TestPerSecond(t *testing.T) {
	for rate, want := range map[float64]string{0: "0 a second", 1234.5: "1,235 a second", 12.345: "12.3 a second", 0.5: "30 a minute", 1.0 / 3600: "1 an hour"} {
		if got := perSecond(rate); got != want {
			t.Errorf("%v is %q, want %q", rate, got, want)
		}
	}
	for rate, want := range map[float64]string{0: "0", 1e-6: "<0.01", 0.1: "6.00", 1: "60.0", 1234.5: "74,070"} {
		if got := perMinute(rate); got != want {
			t.Errorf("%v a second is %q a minute, want %q", rate, got, want)
		}
	}
	for share, want := range map[float64]string{0: "0 %", 0.00001: "<0.1 %", 0.0123: "1.2 %", 0.02: "2 %", 0.42: "42 %", 1: "100 %", 7: "100 %"} {
		if got := percent(share); got != want {
			t.Errorf("%v is %q, want %q", share, got, want)
		}
	}
}

// running is a queue system with running jobs. Those of a queue take as long as its name says.
type running struct {
	gq.Driver
	jobs map[gq.JobID]gq.Job
}

func (r *running) Get(_ context.Context, id gq.JobID, _ gq.Parts) (gq.Job, error) {
	return r.jobs[id], nil
}

func (r *running) QueueHistory(_ context.Context, q gq.HistoryQuery) ([]gq.HistoryPoint, error) {
	return []gq.HistoryPoint{{Time: q.Since, Started: 100}}, nil
}

func (r *running) QueueActivity(_ context.Context, queues ...string) ([]gq.QueueActivity, error) {
	run, err := time.ParseDuration(queues[0])
	return []gq.QueueActivity{{Queue: queues[0], HistoryPoint: gq.HistoryPoint{Run: gq.Latency{Count: 1, P50: run}}}}, err
}

// A job that waits for several starts after the one that takes longest, in whatever order they are named.
func TestStartAfterSeveralJobs(t *testing.T) {
	now := time.Date(2026, time.January, 1, 12, 0, 0, 0, time.UTC)
	queue := &running{jobs: make(map[gq.JobID]gq.Job)}
	x := &gq.Explanation{}
	for i, run := range []string{"20m", "1h", "10m"} {
		id := gq.JobID{byte(i + 1)}
		queue.jobs[id] = gq.Job{Spec: gq.Spec{Queue: run}, State: gq.State{ID: id, Status: gq.StatusRunning, StartedAt: now.Add(-time.Minute)}}
		x.Jobs = append(x.Jobs, gq.Related{Job: id, Status: gq.StatusRunning})
	}
	v := &visit{d: &Dashboard{queue: queue, now: func() time.Time { return now }}, ctx: t.Context()}
	if e, err := v.afterDependencies(x); err != nil || !e.At.Equal(now.Add(59*time.Minute)) {
		t.Errorf("it starts at %v, %v", e.At, err)
	}
}
