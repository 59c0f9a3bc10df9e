package load

import (
	"math/rand/v2"
	"testing"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/gopherqueue/gq/internal/testing/spec"
)

// Each figure of a report is what its name says.
func TestFigures(t *testing.T) {
	spec.Covers(t, "T-43", "T-273", "T-274", "T-275")
	r := &Report{Seconds: 4, answered: [methods]int{Submit: 1000, Status: 600, Result: 200}}
	r.Jobs.Finished = 500
	for _, i := range rand.Perm(1000) {
		n := uint32(i + 1)
		r.Samples = append(r.Samples, Sample{Latency: 1000 * n, Method: Submit}, Sample{Latency: 2000 * n, Method: Status}, Sample{Latency: 3000 * n, Method: Result})
		r.JobSamples = append(r.JobSamples, JobSample{EndToEnd: 7 * int64(n)})
	}
	r.summarise()
	for method, factor := range map[string]float64{"SubmitJob": 1, "GetJobStatus": 2, "GetJobResult": 3} {
		want := Latency{P50: 500 * factor, P95: 950 * factor, P99: 990 * factor, Max: 1000 * factor, Mean: 500.5 * factor}
		if got := r.Methods[method]; got.Latency != want || got.Requests != 1000 {
			t.Errorf("%s: %+v, want %+v", method, got, want)
		}
	}
	if want := (Latency{P50: 3500, P95: 6650, P99: 6930, Max: 7000, Mean: 3503.5}); r.Jobs.EndToEnd != want {
		t.Errorf("end to end %+v, want %+v", r.Jobs.EndToEnd, want)
	}
	if r.PerSecond != 450 || r.Jobs.PerSecond != 125 || r.Methods["SubmitJob"].PerSecond != 250 || r.Methods["GetJobResult"].PerSecond != 50 {
		t.Errorf("%v requests/s, %v jobs/s, %+v", r.PerSecond, r.Jobs.PerSecond, r.Methods)
	}
}

func upTo(n int) (ms []float64) {
	for i := range n {
		ms = append(ms, float64(i+1))
	}
	return ms
}

// Durations of what has not ended, or never will, make those figures lower bounds that
// depend on them, and no others.
func TestLowerBounds(t *testing.T) {
	many := func(n int, ms float64) (all []float64) {
		for range n {
			all = append(all, ms)
		}
		return all
	}
	for name, test := range map[string]struct {
		took          durations
		p50, p95, p99 float64
		bounds        [3]bool
	}{
		"all ended":          {durations{known: upTo(100)}, 50, 95, 99, [3]bool{}},
		"two open, and late": {durations{known: upTo(98), open: many(2, 500)}, 50, 95, 500, [3]bool{false, false, true}},
		"open, and early":    {durations{known: upTo(98), open: many(2, 60)}, 50, 93, 97, [3]bool{false, true, true}},
		"ten never":          {durations{known: upTo(90), never: many(10, 1)}, 50, 90, 90, [3]bool{false, true, true}},
		"never, and long":    {durations{known: upTo(90), never: many(10, 3000)}, 50, 3000, 3000, [3]bool{false, true, true}},
		"only never":         {durations{never: many(3, 2)}, 2, 2, 2, [3]bool{true, true, true}},
	} {
		l := test.took.summary()
		if l.P50 != test.p50 || l.P95 != test.p95 || l.P99 != test.p99 {
			t.Errorf("%s: %+v", name, l)
		}
		if got := [3]bool{l.Bound(l.P50), l.Bound(l.P95), l.Bound(l.P99)}; got != test.bounds {
			t.Errorf("%s: lower bounds %v, want %v: %+v", name, got, test.bounds, l)
		}
	}
}

// Requests of an open loop that were never sent are counted, and as slower than all
// that were.
func TestUnsentRequestsCount(t *testing.T) {
	begin := time.Now()
	for _, rate := range []float64{3, 10, 50, 333, 1000.0 / 3} {
		r := &run{Settings: Settings{Rate: rate, Mix: Mix{Submit: 1}}, begin: begin, start: begin.Add(300 * time.Millisecond), end: begin.Add(2300 * time.Millisecond)}
		due := 0
		for i := int64(0); r.due(i).Before(r.end); i++ {
			if r.inWindow(r.due(i)) {
				due++
			}
		}
		report := &Report{Seconds: 2, Samples: make([]Sample, due)}
		if r.countUnsent(report); report.unsent[Submit] != 0 {
			t.Errorf("at %v/s all were made, and %d are missing", rate, report.unsent[Submit])
		}
		report = &Report{Seconds: 2, Samples: []Sample{{Latency: 1000, Code: codes.OK}}}
		r.countUnsent(report)
		report.summarise()
		if m := report.Methods["SubmitJob"]; report.Unsent != due-1 || !m.Latency.Bound(m.Latency.P99) {
			t.Errorf("at %v/s %d are missing, want %d: %+v", rate, report.Unsent, due-1, m)
		}
	}
}
