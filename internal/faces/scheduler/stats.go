package scheduler

import (
	"context"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/internal/httpx"
	"github.com/gopherqueue/gq/machine"
)

// capacityNow is the current capacity.
type capacityNow struct {
	Total    int64 `json:"total"`
	Used     int64 `json:"used" doc:"By active leases."`
	Reserved int64 `json:"reserved" doc:"Always 0: capacity is given to leases and nothing else."`
}

func (f *Face) capacityNow(ctx context.Context) (now capacityNow, err error) {
	if err := f.Setup(ctx); err != nil {
		return now, err
	}
	pools, err := f.engine.Pools(ctx)
	for _, p := range pools {
		if p.Name == Pool {
			now = capacityNow{Total: p.Capacity, Used: p.Used}
		}
	}
	return now, err
}

type snapshotAnswer struct {
	Capacity capacityNow `json:"capacity"`
	Jobs     struct {
		Queued        int64 `json:"queued" doc:"In the state QUEUED."`
		Claimed       int64 `json:"claimed" doc:"In the states CLAIMED, PREPARING and LEASE_PENDING."`
		Running       int64 `json:"running"`
		FailedLast24h int64 `json:"failed_last_24h" doc:"Ended as FAILED; the series jobs_timeout has those that ended as TIMEOUT."`
	} `json:"jobs"`
	Leases struct {
		Active         int64 `json:"active"`
		ExpiredLast24h int64 `json:"expired_last_24h"`
	} `json:"leases"`
}

func (f *Face) snapshot(ctx context.Context, _ *httpx.None, _ *httpx.None) (*httpx.Answer[snapshotAnswer], error) {
	if err := f.engine.CatchUp(ctx); err != nil {
		return nil, err
	}
	if err := f.Setup(ctx); err != nil {
		return nil, err
	}
	var out snapshotAnswer
	samples, err := f.engine.Samples(ctx, Pool, time.Now().Add(-24*time.Hour))
	if err != nil {
		return nil, err
	}
	for i := range samples {
		v := &samples[i].Values
		out.Jobs.FailedLast24h += v[machine.FailedCount]
		out.Leases.ExpiredLast24h += v[machine.ExpiredCount]
		// The last sample is the current one.
		out.Jobs.Queued, out.Jobs.Claimed = v[machine.QueuedLevel], v[machine.ClaimedLevel]
		out.Jobs.Running, out.Leases.Active = v[machine.RunningLevel], v[machine.RunningLevel]
		out.Capacity = capacityNow{Total: v[machine.CapacityLevel], Used: v[machine.UsedLevel]}
	}
	return httpx.OK(out), nil
}

// metrics maps the names of time series to measures.
var metrics = map[string]machine.Measure{
	"jobs_queued": machine.QueuedLevel, "jobs_claimed": machine.ClaimedLevel, "jobs_running": machine.RunningLevel,
	"leases_active": machine.RunningLevel, "capacity_used": machine.UsedLevel, "capacity_total": machine.CapacityLevel,
	"jobs_submitted": machine.SubmittedCount, "jobs_done": machine.CompletedCount, "jobs_failed": machine.FailedCount,
	"jobs_timeout": machine.TimedOutCount, "jobs_canceled": machine.CancelledCount,
	"leases_granted": machine.StartedCount, "leases_expired": machine.ExpiredCount, "leases_released": machine.ReleasedCount,
}

func metricNames() []string { return slices.Sorted(maps.Keys(metrics)) }

type point struct {
	TS    stamp `json:"ts"`
	Value int64 `json:"value"`
}

type seriesAnswer struct {
	Metric string  `json:"metric"`
	Bucket string  `json:"bucket"`
	Points []point `json:"points" doc:"Oldest first, one bucket apart. Levels are those at the end of a bucket, carried forward where nobody looked; the others are sums."`
}

const (
	maxPoints = 10_000
	maxRange  = 31 * 24 * time.Hour
)

type seriesInput struct {
	Metric metricName `query:"metric" doc:"What of." required:"true"`
	Bucket *string    `query:"bucket" doc:"Distance of the points, such as 5m, which it is unless told; s, m, h or d."`
	Range  *string    `query:"range" doc:"How far back, such as 24h, which it is unless told; at most 31d."`
}

type metricName string

// span parses a duration such as 5m.
func span(name string, asked *string, otherwise string, wrong *faults) (string, time.Duration) {
	given := otherwise
	if asked != nil {
		given = *asked
	}
	units := map[byte]time.Duration{'s': time.Second, 'm': time.Minute, 'h': time.Hour, 'd': 24 * time.Hour}
	if len(given) >= 2 && len(given) <= 9 && given[0] >= '1' && given[0] <= '9' {
		unit := units[given[len(given)-1]]
		n, err := strconv.ParseUint(given[:len(given)-1], 10, 32)
		if err == nil && unit > 0 && n <= uint64(maxRange/unit) {
			return given, time.Duration(n) * unit
		}
	}
	wrong.add(name, "%.64q is not a number with one of s, m, h, d, such as 5m, of at most 31d", given)
	return given, time.Second
}

func (f *Face) series(ctx context.Context, in *seriesInput, _ *httpx.None) (*httpx.Answer[seriesAnswer], error) {
	var wrong faults
	name := string(in.Metric)
	measure, known := metrics[name]
	if !known {
		wrong.add("metric", "%.64q is not %s", name, oneOf(metricNames()))
	}
	shown, bucket := span("bucket", in.Bucket, "5m", &wrong)
	_, span := span("range", in.Range, "24h", &wrong)
	switch {
	case len(wrong) > 0:
	case span < bucket:
		wrong.add("range", "is shorter than bucket")
	case span/bucket > maxPoints:
		wrong.add("bucket", "gives more than %d points", maxPoints)
	}
	if err := wrong.err(); err != nil {
		return nil, err
	}
	if err := f.engine.CatchUp(ctx); err != nil {
		return nil, err
	}
	n := int64(span / bucket)
	first := time.Now().UTC().Truncate(bucket).Add(-time.Duration(n-1) * bucket)
	samples, err := f.engine.Samples(ctx, Pool, first)
	if err != nil {
		return nil, err
	}
	return httpx.OK(seriesAnswer{Metric: name, Bucket: shown, Points: points(samples, measure, first, bucket, n)}), nil
}

// points distributes samples over n buckets.
func points(samples []machine.Sample, m machine.Measure, first time.Time, bucket time.Duration, n int64) []point {
	out := make([]point, n)
	level := int64(0)
	next := 0
	for i := range out {
		begin := first.Add(time.Duration(i) * bucket)
		end := begin.Add(bucket)
		sum := int64(0)
		for ; next < len(samples) && samples[next].Time.Before(end); next++ {
			level = samples[next].Values[m]
			sum += samples[next].Values[m]
		}
		if out[i] = (point{stamp(begin), sum}); m.Level() {
			out[i].Value = level
		}
	}
	return out
}

type capacityAnswer struct {
	Capacity capacityNow `json:"capacity"`
}

type capacityRequest struct {
	Total *int64 `json:"total" minimum:"0"`
}

func (f *Face) getCapacity(ctx context.Context, _ *httpx.None, _ *httpx.None) (*httpx.Answer[capacityAnswer], error) {
	now, err := f.capacityNow(ctx)
	if err != nil {
		return nil, err
	}
	return httpx.OK(capacityAnswer{now}), nil
}

func (f *Face) putCapacity(ctx context.Context, _ *httpx.None, r *capacityRequest) (*httpx.Answer[capacityAnswer], error) {
	var wrong faults
	if r.Total == nil {
		wrong.add("total", "is required")
	} else if *r.Total < 0 || *r.Total > gq.MaxCapacity {
		wrong.add("total", "%d is not between 0 and %d", *r.Total, int64(gq.MaxCapacity))
	}
	if err := wrong.err(); err != nil {
		return nil, err
	}
	if err := f.Setup(ctx); err != nil {
		return nil, err
	}
	pool := f.pool()
	pool.Capacity = *r.Total
	if err := f.engine.PutPool(ctx, pool); err != nil {
		return nil, err
	}
	return f.getCapacity(ctx, nil, nil)
}
