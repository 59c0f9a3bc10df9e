package load_test

import (
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/gopherqueue/gq/internal/testing/spec"
	"github.com/gopherqueue/gq/services/internal/load"
)

// accounted requires that every job of the measured time is counted once.
func accounted(t *testing.T, r *load.Report) {
	t.Helper()
	w := r.Jobs.Window
	if sum := w.EndedInWindow + w.EndedAfter + w.Failed + w.Lost + w.Censored; sum != w.Accepted || w.Canceled > w.Censored {
		t.Errorf("%d of %d jobs are accounted for: %+v", sum, w.Accepted, w)
	}
	if r.Jobs.Measured != w.Accepted || len(r.JobSamples) != w.Accepted {
		t.Errorf("latency is of %d jobs, samples are of %d, and %d were accepted", r.Jobs.Measured, len(r.JobSamples), w.Accepted)
	}
}

// Latency covers all jobs submitted in the measured time, including those that end
// after it: otherwise a slower service would look faster.
func TestJobsThatEndAfterTheWindowCount(t *testing.T) {
	spec.Covers(t, "T-43", "T-275")
	const takes = 700 * time.Millisecond
	r, _ := steady(t, func() []*fake {
		return []*fake{{takes: func(int) time.Duration { return takes }}}
	}, func(s *load.Settings) { s.Duration = min(s.Duration, takes/2) })
	accounted(t, r)
	w := r.Jobs.Window
	if w.Accepted == 0 || w.EndedAfter != w.Accepted {
		t.Errorf("no job could end within the measured time: %+v", w)
	}
	if e := r.Jobs.EndToEnd; e.P50 < 699 || e.P50 > 701 || e.Bound(e.Max) {
		t.Errorf("submit to done %+v, want %v", e, takes)
	}
	if r.Jobs.CanceledByLoad > 0 || r.Jobs.Canceled > 0 || !r.Correct() || r.DrainSeconds <= 0 {
		t.Errorf("report %+v, %v", r.Jobs, r.Examples)
	}
}

// Jobs that do not end are reported as censored, with the time they have taken.
func TestJobsThatDoNotEndAreCensored(t *testing.T) {
	spec.Covers(t, "T-43", "T-275")
	r, _ := steadyUntil(t, func() []*fake {
		return []*fake{{takes: func(n int) time.Duration {
			if n%4 == 0 {
				return time.Hour
			}
			return 0
		}}}
	}, func(s *load.Settings) { s.Drain = time.Second }, func(r *load.Report) bool { return r.Jobs.Window.Censored > 0 })
	accounted(t, r)
	w, e := r.Jobs.Window, r.Jobs.EndToEnd
	if w.Censored == 0 || w.Canceled != w.Censored || r.Jobs.CanceledByLoad < w.Canceled || r.Jobs.Canceled != r.Jobs.CanceledByLoad {
		t.Errorf("censored and canceled: %+v, %+v", w, r.Jobs)
	}
	if e.Open != w.Censored || !e.Bound(e.Max) || !e.Bound(e.P99) || e.Bound(e.P50) != (e.P50 >= e.AtLeast) || e.AtLeast < 1000 {
		t.Errorf("submit to done %+v", e)
	}
	if !r.Correct() {
		t.Errorf("the generator canceled these jobs: %v", r.Examples)
	}
}

// A lost job was never done: it counts as slower than all others.
func TestLostJobsCount(t *testing.T) {
	f := &fake{forgetful: true}
	s := settings(serve(t, f))
	for ; ; s.Duration *= 4 {
		r, err := load.Run(t.Context(), s)
		if err != nil {
			t.Fatal(err)
		}
		accounted(t, r)
		if w := r.Jobs.Window; w.Lost > 0 {
			if e := r.Jobs.EndToEnd; w.Lost != w.Accepted || e.Open != w.Lost || !e.Bound(e.P50) || r.Correct() {
				t.Errorf("%+v, %+v", w, e)
			}
			return
		}
		if s.Duration > 15*time.Second {
			t.Fatal("no job was lost")
		}
	}
}

// A limit on open jobs bounds the backlog, and the report says how often it took
// effect.
func TestBacklogIsBounded(t *testing.T) {
	r, nodes := steadyUntil(t, func() []*fake {
		return []*fake{{takes: func(int) time.Duration { return 600 * time.Millisecond }}}
	}, func(s *load.Settings) { s.MaxTracked, s.Concurrency = 6, 2 }, func(r *load.Report) bool { return r.Jobs.HeldBack > 0 })
	accounted(t, r)
	nodes[0].mu.Lock()
	defer nodes[0].mu.Unlock()
	if nodes[0].most > 6+1 { // clients check before they submit
		t.Errorf("%d jobs were open at the same time", nodes[0].most)
	}
	if r.Jobs.HeldBack == 0 {
		t.Errorf("no submit was held back: %+v", r.Jobs)
	}
}

// Answers after the measured time do not count as throughput, but their latency counts.
func TestOverloadIsNoThroughput(t *testing.T) {
	const stall = 40 * time.Millisecond
	f := &fake{stall: func() time.Duration { return stall }}
	s := settings(serve(t, f))
	s.Rate, s.Concurrency, s.Mix, s.Warmup, s.Duration, s.Blind = 100, 1, load.Mix{Submit: 1}, 0, 400*time.Millisecond, true
	r, err := load.Run(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	if answers := r.PerSecond * r.Seconds; answers > float64(s.Duration/stall) {
		t.Errorf("%v answers of %v each within %v", answers, stall, s.Duration)
	}
	if m := r.Methods["SubmitJob"]; m.Requests+r.Unsent != 40 || m.Latency.Max < 800 {
		t.Errorf("%d requests, %d not sent, latency %+v", m.Requests, r.Unsent, m.Latency)
	}
}

// Errors are reported by kind, and do not count as fast answers.
func TestErrorsAreReportedByKind(t *testing.T) {
	f := &fake{refuse: func(int) error { return status.Error(codes.PermissionDenied, "the token may not submit") }}
	s := settings(serve(t, f))
	for ; ; s.Duration *= 4 {
		r, err := load.Run(t.Context(), s)
		if err != nil {
			t.Fatal(err)
		}
		m := r.Methods["SubmitJob"]
		if m.Requests == 0 && s.Duration < 15*time.Second {
			continue
		}
		if r.Errors["PERMISSION_DENIED"] < m.Requests || r.ErrorExamples["PERMISSION_DENIED"] != "the token may not submit" || m.Errors["PERMISSION_DENIED"] != m.Requests {
			t.Errorf("errors %v, %v, %v", r.Errors, r.ErrorExamples, m.Errors)
		}
		if !m.Latency.Bound(m.Latency.P50) || m.PerSecond > 0 || r.PerSecond > 0 {
			t.Errorf("errors are fast answers: %+v", m)
		}
		return
	}
}
