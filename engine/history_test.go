package engine_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/engine"
	"github.com/gopherqueue/gq/store"
	"github.com/gopherqueue/gq/store/simple"
)

// recount counts the events of a store one by one, by queue and minute; "" is all queues.
func recount(t *testing.T, s store.Store, after uint64) map[string]map[time.Time]*gq.HistoryPoint {
	t.Helper()
	by := map[string]map[time.Time]*gq.HistoryPoint{}
	for {
		events := must[[]gq.Event](t)(s.Events(t.Context(), after, 1000))
		for i := range events {
			e := &events[i]
			after = e.Seq
			for _, queue := range []string{"", e.Queue} {
				if by[queue] == nil {
					by[queue] = map[time.Time]*gq.HistoryPoint{}
				}
				minute := e.Time.Truncate(time.Minute).UTC()
				p := by[queue][minute]
				if p == nil {
					p = &gq.HistoryPoint{Time: minute}
					by[queue][minute] = p
				}
				recountEvent(p, e)
			}
		}
		if len(events) < 1000 {
			return by
		}
	}
}

func recountEvent(p *gq.HistoryPoint, e *gq.Event) {
	ran := e.LeaseState > gq.LeaseActive && e.Attempt > 0
	switch e.Type {
	case gq.EventSubmitted:
		p.Submitted++
	case gq.EventStarted:
		p.Started++
		p.Wait.Count++
	case gq.EventCompleted:
		p.Completed++
	case gq.EventFailed:
		p.Failed++
	case gq.EventRetrying:
		p.Retried++
	case gq.EventDeadLettered:
		p.DeadLettered++
	case gq.EventCancelled:
		p.Cancelled++
	default:
		ran = false
	}
	if ran {
		p.Run.Count++
		if e.LeaseState == gq.LeaseExpired {
			p.Lost++
		}
	}
}

// counts is a point without its percentiles.
func counts(p gq.HistoryPoint) gq.HistoryPoint {
	p.Wait, p.Run = gq.Latency{Count: p.Wait.Count}, gq.Latency{Count: p.Run.Count}
	return p
}

// sameAsLog compares the history of all queues, minute by minute, with the event log.
func sameAsLog(t *testing.T, e *engine.Engine, s store.Store) {
	t.Helper()
	for queue, minutes := range recount(t, s, 0) {
		q := gq.HistoryQuery{Since: time.Now().Add(-23 * time.Hour)}
		if queue != "" {
			q.Queues = []string{queue}
		}
		seen := 0
		for _, p := range must[[]gq.HistoryPoint](t)(e.QueueHistory(t.Context(), q)) {
			want := gq.HistoryPoint{Time: p.Time}
			if minutes[p.Time] != nil {
				want = *minutes[p.Time]
				seen++
			}
			if counts(p) != want {
				t.Errorf("queue %q at %v:\n%+v\nthe log has\n%+v", queue, p.Time, counts(p), want)
			}
		}
		if seen != len(minutes) {
			t.Errorf("queue %q: %d of %d minutes", queue, seen, len(minutes))
		}
	}
}

// workJobs is how many jobs one call of work submits.
const workJobs = 10

// work makes jobs go through everything that is counted.
func (f *fixture) work(queue string) {
	f.Helper()
	ctx := f.Context()
	for range 6 {
		f.submit(gq.Spec{Queue: queue})
	}
	waits := f.submit(gq.Spec{Queue: queue, Delay: time.Hour})
	jobs := f.claim(5, on(queue))
	ref := func(i int) gq.LeaseRef { return jobs[i].State.Lease.Ref() }
	if _, err := f.Complete(ctx, ref(0), nil); err != nil {
		f.Fatal(err)
	}
	if _, err := f.Complete(ctx, ref(1), nil); err != nil {
		f.Fatal(err)
	}
	if _, err := f.Fail(ctx, ref(2), gq.Failure{Category: gq.CategoryPermanent}); err != nil {
		f.Fatal(err)
	}
	if _, err := f.Fail(ctx, ref(3), gq.Failure{Category: gq.CategoryTemporary}); err != nil {
		f.Fatal(err)
	}
	if _, err := f.Release(ctx, ref(4), 0, "later"); err != nil {
		f.Fatal(err)
	}
	if _, err := f.Cancel(ctx, waits, "no"); err != nil {
		f.Fatal(err)
	}
	held := f.claim(1, on(queue), holding)[0]
	if _, err := f.Release(ctx, held.State.Lease.Ref(), 0, ""); err != nil {
		f.Fatal(err)
	}
	once := gq.PresetJobModel.Policy()
	once.MaxAttempts, once.LeaseTTL = 1, 100*time.Millisecond
	short := gq.PresetJobModel.Policy()
	short.LeaseTTL, short.Backoff.Initial = 100*time.Millisecond, time.Hour
	lost := []gq.JobID{f.submit(gq.Spec{Queue: queue, Policy: once, Metadata: urgent}), f.submit(gq.Spec{Queue: queue, Policy: short, Metadata: urgent})}
	once.LeaseTTL = time.Minute
	f.submit(gq.Spec{Queue: queue, Policy: once, Metadata: urgent})
	for got := 0; got < 3; { // a claim that takes most of a short lease gives it back
		jobs, err := f.Claim(ctx, gq.ClaimRequest{Worker: "w", Queues: []string{queue}, N: 3 - got})
		if err != nil {
			f.Fatal(err)
		}
		got += len(jobs)
		for _, j := range jobs {
			if slices.Contains(lost, j.State.ID) {
				continue
			}
			if _, err := f.Fail(ctx, j.State.Lease.Ref(), gq.Failure{Category: gq.CategoryTemporary}); err != nil {
				f.Fatal(err)
			}
		}
	}
	for _, id := range lost { // their leases run out
		for f.get(id).State.Status == gq.StatusRunning {
			time.Sleep(10 * time.Millisecond)
			f.sweep()
		}
	}
}

// urgent jobs are claimed before others.
var urgent = gq.Metadata{Priority: gq.PriorityCritical}

// stored returns an engine that has stored the history of a store.
func (f *fixture) stored() *fixture {
	f.Helper()
	next := &fixture{T: f.T, Engine: newEngine(f.T, f.store, engine.Options{}), store: f.store}
	next.sweep() // the first one stores
	return next
}

// The history counts what the event log says, whatever part of it is stored, by whichever
// engine, and whether or not an engine stopped before it stored what it had counted.
func TestHistoryCounts(t *testing.T) {
	eachStore(t, func(t *testing.T, s store.Store) {
		f := &fixture{T: t, Engine: newEngine(t, s, engine.Options{}), store: s}
		for range 2 {
			f.work("mail")
			f.work("video")
			sameAsLog(t, f.Engine, s)
			f = f.stored()
			sameAsLog(t, f.Engine, s)
			f.work("mail")
			sameAsLog(t, f.Engine, s) // counted and not stored
			f = &fixture{T: t, Engine: newEngine(t, s, engine.Options{}), store: s}
			sameAsLog(t, f.Engine, s)
		}
		sums := must[[]gq.HistoryPoint](t)(f.QueueHistory(t.Context(), gq.HistoryQuery{Queues: []string{"mail", "video"}, Step: time.Hour}))
		all := must[[]gq.HistoryPoint](t)(f.QueueHistory(t.Context(), gq.HistoryQuery{Step: time.Hour}))
		var sum, total int64
		for i := range sums {
			sum, total = sum+sums[i].Submitted, total+all[i].Submitted
		}
		if sum != 60 || total != 60 {
			t.Errorf("%d and %d jobs submitted, want 60", sum, total)
		}
		activity := must[[]gq.QueueActivity](t)(f.QueueActivity(t.Context()))
		named := must[[]gq.QueueActivity](t)(f.QueueActivity(t.Context(), "video", "none", "mail"))
		if len(activity) != 2 || len(named) != 3 || activity[0] != named[0] || activity[1] != named[2] || named[1].Queue != "none" || named[1].Submitted != 0 ||
			named[0].Submitted != 40 || named[2].Submitted != 20 || named[0].Completed != 8 || named[0].Run.Count != 32 || named[0].Lost != 8 || named[0].DeadLettered != 8 {
			t.Errorf("activity %+v, by name %+v", activity, named)
		}
	})
}

// readsHalf has a store whose read of events fails after it has told some of them.
type readsHalf struct {
	store.Store
	fails *atomic.Bool
}

func (r readsHalf) Skim(ctx context.Context, after uint64, limit int, f func(*gq.Event)) (uint64, error) {
	if r.fails.Load() {
		last, err := store.Skim(ctx, r.Store, after, min(limit, 3), f)
		return last, cmp.Or(err, error(gq.ErrUnavailable))
	}
	return store.Skim(ctx, r.Store, after, limit, f)
}

// A read that fails halfway leaves nothing behind that the next one counts again.
func TestHistoryAfterFailedRead(t *testing.T) {
	var fails atomic.Bool
	f := newFixture(t, engine.Options{}, func(s store.Store) store.Store { return readsHalf{s, &fails} })
	f.work("mail")
	sameAsLog(t, f.Engine, f.store)
	f.work("mail")
	fails.Store(true)
	if points, err := f.QueueHistory(t.Context(), gq.HistoryQuery{Since: time.Now().Add(-time.Hour)}); !errors.Is(err, gq.ErrUnavailable) {
		t.Errorf("the failed read: %+v, %v", points, err)
	}
	fails.Store(false)
	sameAsLog(t, f.Engine, f.store)
	sameAsLog(t, f.stored().Engine, f.store)
}

func TestHistoryLatency(t *testing.T) {
	bubble(t, func(t *testing.T, f *fixture) {
		time.Sleep(30 * time.Minute) // into an hour
		f.submit(gq.Spec{})
		f.submit(gq.Spec{Delay: 10 * time.Second})
		time.Sleep(2 * time.Second)
		one, ref := f.take() // waited 2 s
		time.Sleep(18 * time.Second)
		if _, err := f.Complete(t.Context(), ref, nil); err != nil { // ran 18 s
			t.Fatal(err)
		}
		f.take() // waited 10 s since its run time
		p := must[[]gq.QueueActivity](t)(f.QueueActivity(t.Context(), gq.DefaultQueue))[0]
		near := func(what string, got, want time.Duration) {
			if got < want*8/10 || got > want*12/10 {
				t.Errorf("%s is %v, want about %v", what, got, want)
			}
		}
		if p.Wait.Count != 2 || p.Run.Count != 1 {
			t.Errorf("%+v", p)
		}
		near("the shorter wait", p.Wait.P50, 2*time.Second)
		near("the longer wait", p.Wait.P99, 10*time.Second)
		near("the run", p.Run.P50, 18*time.Second)
		var told []time.Duration
		for _, e := range must[[]gq.Event](t)(f.History(t.Context(), one.Spec.ID)) {
			told = append(told, e.Elapsed)
		}
		if want := []time.Duration{0, 0, 2 * time.Second, 18 * time.Second}; fmt.Sprint(told) != fmt.Sprint(want) {
			t.Errorf("the events say %v, want %v", told, want)
		}
	})
}

// Minutes are kept for a day and hours for a month.
func TestHistoryKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, err := simple.Open(store.Config{}) // it has no timers, so that days pass at once
		if err != nil {
			t.Fatal(err)
		}
		f := &fixture{T: t, Engine: newEngine(t, s, engine.Options{}), store: s}
		f.submit(gq.Spec{Queue: "a"})
		f.submit(gq.Spec{Queue: "b"})
		begin := time.Now()
		points := func(step, since time.Duration, queues ...string) (n, submitted int64) {
			t.Helper()
			list := must[[]gq.HistoryPoint](t)(f.QueueHistory(t.Context(), gq.HistoryQuery{Queues: queues, Step: step, Since: time.Now().Add(-since)}))
			for i := range list {
				submitted += list[i].Submitted
			}
			return int64(len(list)), submitted
		}
		check := func(when string, step, since time.Duration, want int64) {
			t.Helper()
			if _, one := points(step, since, "a"); one != want {
				t.Errorf("%s: %d jobs of a, want %d", when, one, want)
			}
			if _, all := points(step, since); all != 2*want {
				t.Errorf("%s: %d jobs, want %d", when, all, 2*want)
			}
		}
		sleepUntil := func(after time.Duration) {
			for hour := time.Since(begin).Truncate(time.Hour) + time.Hour; hour <= after; hour += 6 * time.Hour {
				time.Sleep(begin.Add(hour).Sub(time.Now()))
				f.sweep()
			}
			time.Sleep(begin.Add(after).Sub(time.Now()))
			f.sweep()
		}
		check("at first", time.Minute, time.Hour, 1)
		sleepUntil(23 * time.Hour)
		check("by the minute", time.Minute, 25*time.Hour, 1)
		check("by the hour", time.Hour, 25*time.Hour, 1)
		sleepUntil(26 * time.Hour)
		check("minutes after a day", time.Minute, 48*time.Hour, 0)
		if n, _ := points(time.Minute, 48*time.Hour); n > 24*60+1 {
			t.Errorf("%d minutes", n)
		}
		check("hours after a day", time.Hour, 48*time.Hour, 1)
		sleepUntil(31*24*time.Hour - 2*time.Hour)
		check("hours after a month", 24*time.Hour, 40*24*time.Hour, 1)
		sleepUntil(33 * 24 * time.Hour) // a day goes as a whole
		check("hours after more than a month", 24*time.Hour, 40*24*time.Hour, 0)
		f.stored()
		hour, day := fmt.Sprintf("h%d", begin.Unix()/3600), fmt.Sprintf("d%d", begin.Unix()/86400)
		left := must[[]store.Doc](t)(f.store.FindDocs(t.Context(), []store.DocName{
			{Kind: hour, Name: "a"}, {Kind: hour, Name: "b"}, {Kind: "history.all", Name: hour},
			{Kind: day, Name: "a"}, {Kind: day, Name: "b"}, {Kind: "history.all", Name: day},
		}))
		if len(left) > 0 {
			t.Errorf("documents are left: %v", left)
		}
	})
}

// An event counts in the minute and the hour in which it happened.
func TestHistoryBoundaries(t *testing.T) {
	bubble(t, func(t *testing.T, f *fixture) {
		next := time.Now().Truncate(time.Hour).Add(time.Hour)
		time.Sleep(time.Until(next) - time.Nanosecond)
		f.submit(gq.Spec{})
		time.Sleep(time.Nanosecond)
		f.submit(gq.Spec{})
		f.submit(gq.Spec{})
		for _, step := range []time.Duration{time.Minute, 15 * time.Minute, time.Hour} {
			list := must[[]gq.HistoryPoint](t)(f.QueueHistory(t.Context(), gq.HistoryQuery{Step: step, Since: next.Add(-step)}))
			if len(list) != 2 || !list[1].Time.Equal(next) || list[0].Submitted != 1 || list[1].Submitted != 2 {
				t.Errorf("by %v: %+v", step, list)
			}
			only := must[[]gq.HistoryPoint](t)(f.QueueHistory(t.Context(), gq.HistoryQuery{Step: step, Since: next.Add(-step), Until: next}))
			if len(only) != 1 || only[0].Submitted != 1 {
				t.Errorf("by %v until the hour: %+v", step, only)
			}
		}
		sameAsLog(t, f.stored().Engine, f.store)
	})
}

// What retention deletes has been counted before.
func TestHistoryBeforeRetention(t *testing.T) {
	bubble(t, func(t *testing.T, f *fixture) {
		for range 3 {
			f.submit(gq.Spec{})
			_, ref := f.take()
			if _, err := f.Complete(t.Context(), ref, nil); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(25 * time.Hour)
		f = &fixture{T: t, Engine: newEngine(t, f.store, engine.Options{}), store: f.store} // after a pause of a day
		for f.sweep().Collected > 0 {
		}
		if _, err := f.store.Events(t.Context(), 0, 1); !errors.Is(err, gq.ErrGone) {
			t.Fatalf("the events are still there: %v", err)
		}
		var done int64
		for _, p := range must[[]gq.HistoryPoint](t)(f.QueueHistory(t.Context(), gq.HistoryQuery{Step: time.Hour, Since: time.Now().Add(-48 * time.Hour)})) {
			done += p.Completed
		}
		if done != 3 {
			t.Errorf("%d jobs completed, want 3", done)
		}
	})
}

func TestHistoryOfDeletedQueue(t *testing.T) {
	bubble(t, func(t *testing.T, f *fixture) {
		f.putQueue(gq.Queue{Name: "q"})
		f.submit(gq.Spec{Queue: "q"})
		_, ref := f.take(on("q"))
		if _, err := f.Complete(t.Context(), ref, nil); err != nil {
			t.Fatal(err)
		}
		if err := f.DeleteQueue(t.Context(), "q"); err != nil {
			t.Fatal(err)
		}
		f = f.stored()
		f.submit(gq.Spec{Queue: "q"})
		sameAsLog(t, f.Engine, f.store)
		if p := must[[]gq.QueueActivity](t)(f.QueueActivity(t.Context(), "q"))[0]; p.Submitted != 2 || p.Completed != 1 {
			t.Errorf("%+v", p)
		}
	})
}

func TestHistoryQueryInvalid(t *testing.T) {
	bubble(t, func(t *testing.T, f *fixture) {
		now := time.Now()
		many := make([]string, gq.MaxHistoryQueues+1)
		for i := range many {
			many[i] = fmt.Sprint("q", i)
		}
		for field, queries := range map[string][]gq.HistoryQuery{
			"queues": {{Queues: many}, {Queues: []string{""}}, {Queues: []string{"a", "a"}}, {Queues: []string{"a\n"}}},
			"step":   {{Step: time.Second}, {Step: -time.Minute}, {Step: 7 * time.Minute}, {Step: 90 * time.Minute}, {Step: 90 * time.Second}, {Step: 32 * 24 * time.Hour}},
			"since":  {{Since: now, Until: now}, {Since: now.Add(time.Hour)}, {Since: now, Until: now.Add(-time.Hour)}},
		} {
			for _, q := range queries {
				_, err := f.QueueHistory(t.Context(), q)
				var invalid *gq.InvalidError
				if !errors.As(err, &invalid) || invalid.Faults[0].Field != field {
					t.Errorf("%+v: %v, want a fault of %s", q, err, field)
				}
			}
		}
		if _, err := f.QueueActivity(t.Context(), "a", ""); !errors.Is(err, gq.ErrInvalid) {
			t.Errorf("activity of a queue without a name: %v", err)
		}
		old := must[[]gq.HistoryPoint](t)(f.QueueHistory(t.Context(), gq.HistoryQuery{Since: now.Add(-50 * 24 * time.Hour), Until: now.Add(-40 * 24 * time.Hour), Step: time.Hour}))
		if len(old) != 0 {
			t.Errorf("%d points of a time that is not kept", len(old))
		}
		if list := must[[]gq.HistoryPoint](t)(f.QueueHistory(t.Context(), gq.HistoryQuery{})); len(list) != 60 && len(list) != 61 {
			t.Errorf("%d points", len(list))
		}
	})
}
