package scheduler

import (
	"context"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/internal/testing/spec"
	"github.com/gopherqueue/gq/machine"
)

func TestSnapshot(t *testing.T) {
	spec.Covers(t, "S-129", "S-132", "S-133")
	bubble(t, Options{}, func(f *fixture) {
		shows := func(total, used, queued, claimed, running, failed, active, expired int) {
			f.Helper()
			got := f.get("/stats/snapshot")
			f.hasKeys("a snapshot", got, "capacity", "jobs", "leases")
			f.hasKeys("its capacity", member(got, "capacity"), "total", "used", "reserved")
			f.hasKeys("its jobs", member(got, "jobs"), "queued", "claimed", "running", "failed_last_24h")
			f.hasKeys("its leases", member(got, "leases"), "active", "expired_last_24h")
			want := fmt.Sprintf("map[capacity:map[reserved:0 total:%d used:%d] jobs:map[claimed:%d failed_last_24h:%d queued:%d running:%d] leases:map[active:%d expired_last_24h:%d]]",
				total, used, claimed, failed, queued, running, active, expired)
			if fmt.Sprint(got) != want {
				f.Errorf("the snapshot is\n%v, want\n%v", got, want)
			}
		}
		shows(70, 0, 0, 0, 0, 0, 0, 0)
		f.running()
		f.running()
		for range 4 {
			f.submit()
		}
		// Jobs of other faces do not count.
		if _, err := f.engine.Submit(f.Context(), gq.Spec{Queue: "native", Type: "t"}); err != nil {
			f.Fatal(err)
		}
		shows(70, 60, 4, 0, 2, 0, 2, 0)
		time.Sleep(30 * time.Second)
		shows(70, 0, 4, 0, 0, 0, 0, 2) // no sweep has run
		f.claim()
		shows(70, 0, 3, 1, 0, 0, 0, 2)
		time.Sleep(time.Minute) // an expired claim is not an expired lease
		shows(70, 0, 4, 0, 0, 0, 0, 2)
		for range 3 {
			job := id(f.claim())
			lease, _ := f.lease(job)["lease_id"].(string)
			f.release(job, lease, "FAILED")
		}
		shows(70, 0, 1, 0, 0, 3, 0, 2)
		if err := f.engine.Sample(f.Context(), Pool); err != nil { // stored or computed gives the same
			f.Fatal(err)
		}
		shows(70, 0, 1, 0, 0, 3, 0, 2)
		time.Sleep(24*time.Hour - 2*time.Minute)
		shows(70, 0, 1, 0, 0, 3, 0, 2)
		time.Sleep(time.Minute + 10*time.Second)
		shows(70, 0, 1, 0, 0, 3, 0, 0)
		time.Sleep(2 * time.Minute)
		shows(70, 0, 1, 0, 0, 0, 0, 0)
		f.refused(http.MethodGet, "/stats/snapshot?x=1", nil, http.StatusBadRequest, CodeInvalidRequest)
	})
}

func TestTimeseries(t *testing.T) {
	spec.Covers(t, "S-134", "S-135", "S-136", "S-137")
	bubble(t, Options{}, func(f *fixture) {
		ctx, cancel := context.WithCancel(context.Background())
		done := make(chan error, 1)
		go func() { done <- f.face.Run(ctx) }()
		defer func() {
			cancel()
			if err := <-done; err != nil {
				f.Errorf("run: %v", err)
			}
		}()
		series := func(metric, bucket, span string) (values []int64) {
			f.Helper()
			got := f.get("/stats/timeseries?metric=" + metric + "&bucket=" + bucket + "&range=" + span)
			f.hasKeys("a series", got, "metric", "bucket", "points")
			if got["metric"] != metric || got["bucket"] != bucket {
				f.Errorf("asked for %s by %s, got %v", metric, bucket, got)
			}
			points, _ := got["points"].([]any)
			var last time.Time
			for i := range points {
				p, _ := points[i].(object)
				f.hasKeys("a point", p, "ts", "value")
				ts := instant(f.TB, p["ts"])
				if width, err := time.ParseDuration(bucket); err == nil && i > 0 && ts.Sub(last) != width {
					f.Errorf("%v comes %v behind %v", ts, ts.Sub(last), last)
				}
				last = ts
				values = append(values, number(p["value"]))
			}
			if last.After(time.Now()) || time.Since(last) > 24*time.Hour {
				f.Errorf("the last point is of %v, now %v", last, time.Now())
			}
			return values
		}
		if got := series("leases_active", "5m", "24h"); len(got) != 288 {
			f.Errorf("24h by 5m has %d points, want 288", len(got))
		}
		time.Sleep(time.Until(time.Now().Truncate(5 * time.Minute).Add(5 * time.Minute)))
		job, lease := f.running()
		f.submit()
		for range 31 { // a bit more than ten minutes
			time.Sleep(20 * time.Second)
			f.beat(job, lease)
		}
		f.release(job, lease, "FAILED")
		time.Sleep(15 * time.Minute) // nothing changes, and little is written
		for _, c := range []struct {
			metric, bucket, span string
			want                 []int64
		}{
			{"leases_active", "5m", "30m", []int64{1, 1, 0, 0, 0, 0}},
			{"jobs_running", "5m", "30m", []int64{1, 1, 0, 0, 0, 0}},
			{"capacity_used", "5m", "30m", []int64{30, 30, 0, 0, 0, 0}},
			{"capacity_total", "15m", "30m", []int64{70, 70}},
			{"jobs_queued", "5m", "35m", []int64{0, 1, 1, 1, 1, 1, 1}},
			{"leases_active", "5m", "35m", []int64{0, 1, 1, 0, 0, 0, 0}},
			{"jobs_submitted", "5m", "30m", []int64{2, 0, 0, 0, 0, 0}},
			{"leases_granted", "5m", "30m", []int64{1, 0, 0, 0, 0, 0}},
			{"jobs_failed", "5m", "30m", []int64{0, 0, 1, 0, 0, 0}},
			{"leases_released", "5m", "30m", []int64{0, 0, 1, 0, 0, 0}},
			{"leases_expired", "5m", "30m", []int64{0, 0, 0, 0, 0, 0}},
			{"jobs_failed", "1h", "1h", []int64{1}},
			{"jobs_done", "1d", "1d", []int64{0}},
		} {
			if got := series(c.metric, c.bucket, c.span); fmt.Sprint(got) != fmt.Sprint(c.want) {
				f.Errorf("%s of %s by %s is %v, want %v", c.metric, c.span, c.bucket, got, c.want)
			}
		}
		for metric := range metrics {
			series(metric, "10s", "1h")
		}
		for _, query := range []string{
			"", "metric=", "metric=x", "metric=leases_active&bucket=5", "metric=leases_active&bucket=m", "metric=leases_active&bucket=0m",
			"metric=leases_active&bucket=5x", "metric=leases_active&bucket=-5m", "metric=leases_active&bucket=1.5h", "metric=leases_active&range=",
			"metric=leases_active&bucket=1h&range=5m", "metric=leases_active&bucket=1s&range=31d", "metric=leases_active&range=32d",
			"metric=leases_active&x=1", "metric=leases_active&bucket=%2B5m", "metric=leases_active&range=99999999d",
		} {
			f.refused(http.MethodGet, "/stats/timeseries?"+query, nil, http.StatusBadRequest, CodeInvalidRequest)
		}
	})
}

// Samples stay unchanged across a gap without sampling.
func TestTimeseriesGap(t *testing.T) {
	bubble(t, Options{}, func(f *fixture) {
		f.submit()
		if err := f.engine.Sample(f.Context(), Pool); err != nil {
			f.Fatal(err)
		}
		time.Sleep(6 * time.Hour)
		got := f.get("/stats/timeseries?metric=jobs_queued&bucket=1h&range=3h")
		points, _ := got["points"].([]any)
		for i := range points {
			if p, _ := points[i].(object); number(p["value"]) != 1 {
				f.Errorf("point %d is %v, want 1, carried forward", i, p)
			}
		}
	})
}

// Each event is counted once, whoever samples and however often.
func TestSamplersShare(t *testing.T) {
	f := newFixture(t, Options{})
	other := over(t, f.store, Options{})
	for range 30 {
		f.in(stateCanceled)
	}
	done := make(chan error, 8)
	for i := range 8 {
		g := f
		if i%2 == 1 {
			g = other
		}
		go func() {
			var err error
			for range 5 {
				if e := g.engine.Sample(context.Background(), Pool); e != nil {
					err = e
				}
			}
			done <- err
		}()
	}
	for range 8 {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	samples, err := other.engine.Samples(f.Context(), Pool, time.Now().Add(-time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	sum := int64(0)
	for _, s := range samples {
		sum += s.Values[machine.CancelledCount]
	}
	if sum != 30 {
		t.Errorf("%d cancellations were counted, want 30", sum)
	}
}

// What the snapshot counts, on any store.
func tellCounts(f *fixture) {
	shows := func(total, used, queued, claimed, running, failed, active, expired int) {
		f.Helper()
		got := f.get("/stats/snapshot")
		want := fmt.Sprintf("map[capacity:map[reserved:0 total:%d used:%d] jobs:map[claimed:%d failed_last_24h:%d queued:%d running:%d] leases:map[active:%d expired_last_24h:%d]]",
			total, used, claimed, failed, queued, running, active, expired)
		if fmt.Sprint(got) != want {
			f.Errorf("the snapshot is\n%v, want\n%v", got, want)
		}
	}
	shows(70, 0, 0, 0, 0, 0, 0, 0)
	job, done := f.runningFor(time.Hour)
	failing, lease := f.runningFor(time.Hour)
	for range 4 {
		f.submit()
	}
	shows(70, 60, 4, 0, 2, 0, 2, 0)
	waiting := id(f.claim()) // counts as claimed whatever it is at
	shows(70, 60, 3, 1, 2, 0, 2, 0)
	f.post("/jobs/"+waiting+"/status", object{"state": "PREPARING"})
	f.denied(waiting)
	shows(70, 60, 3, 1, 2, 0, 2, 0)
	f.release(failing, lease, "FAILED")
	f.release(job, done, "SUCCEEDED")
	shows(70, 0, 3, 1, 0, 1, 0, 0)
	f.post("/jobs/"+waiting+"/cancel", nil)
	shows(70, 0, 3, 0, 0, 1, 0, 0)
	f.runningFor(f.brief(), "addon_id", "audio")
	f.sleep(f.brief())
	shows(70, 0, 3, 0, 0, 1, 0, 1)
	f.do(http.MethodPut, "/admin/capacity", object{"total": 5}, http.StatusOK)
	shows(5, 0, 3, 0, 0, 1, 0, 1)
}

// Time series of current events, on any store.
func tellSeries(f *fixture) {
	series := func(metric, bucket, span string) (values []int64) {
		f.Helper()
		got := f.get("/stats/timeseries?metric=" + metric + "&bucket=" + bucket + "&range=" + span)
		f.hasKeys("a series", got, "metric", "bucket", "points")
		if got["metric"] != metric || got["bucket"] != bucket {
			f.Errorf("asked for %s by %s, got %v", metric, bucket, got)
		}
		width, err := time.ParseDuration(bucket)
		if err != nil {
			f.Fatal(err)
		}
		var last time.Time
		for i, p := range got["points"].([]any) {
			p := p.(object)
			f.hasKeys("a point", p, "ts", "value")
			ts := instant(f.TB, p["ts"])
			if i > 0 && ts.Sub(last) != width || !ts.Equal(ts.Truncate(width)) {
				f.Errorf("by %s %v comes behind %v", bucket, ts, last)
			}
			last, values = ts, append(values, number(p["value"]))
		}
		return values
	}
	sum := func(values []int64) (all int64) {
		for _, v := range values {
			all += v
		}
		return all
	}
	if got := series("leases_active", "5m", "24h"); len(got) != 288 || sum(got) != 0 {
		f.Errorf("24h by 5m has %d points, want 288 times 0: %v", len(got), got)
	}
	done, lease := f.running()
	f.release(done, lease, "SUCCEEDED")
	f.in(stateFailed)
	f.in(stateCanceled)
	f.in(stateTimeout)
	f.runningFor(time.Hour, "cost_units", 20)
	f.submit()
	f.submit()
	f.claim()
	for metric, want := range map[string]int64{
		"leases_active": 1, "jobs_running": 1, "capacity_used": 20, "capacity_total": 70, "jobs_queued": 1, "jobs_claimed": 1,
	} {
		for _, bucket := range []string{"10s", "5m", "1h"} {
			if got := series(metric, bucket, "24h"); got[len(got)-1] != want {
				f.Errorf("%s by %s ends with %v, want %d", metric, bucket, got[len(got)-1], want)
			}
		}
	}
	for metric, want := range map[string]int64{
		"jobs_submitted": 7, "jobs_done": 1, "jobs_failed": 1, "jobs_timeout": 1, "jobs_canceled": 1, "leases_granted": 4, "leases_released": 3, "leases_expired": 0,
	} {
		if got := sum(series(metric, "5m", "24h")); got != want {
			f.Errorf("%s adds up to %d, want %d", metric, got, want)
		}
	}
	for _, query := range []string{
		"", "metric=", "metric=x", "metric=leases_active&bucket=5", "metric=leases_active&bucket=m", "metric=leases_active&bucket=0m",
		"metric=leases_active&bucket=5x", "metric=leases_active&bucket=-5m", "metric=leases_active&bucket=1.5h", "metric=leases_active&range=",
		"metric=leases_active&bucket=1h&range=5m", "metric=leases_active&bucket=1s&range=31d", "metric=leases_active&range=32d",
		"metric=leases_active&x=1", "metric=leases_active&bucket=%2B5m", "metric=leases_active&metric=jobs_done",
	} {
		f.refused(http.MethodGet, "/stats/timeseries?"+query, nil, http.StatusBadRequest, CodeInvalidRequest)
	}
}
