package compare

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gopherqueue/gq/internal/testing/spec"
	"github.com/gopherqueue/gq/services/internal/load"
)

// madeUp makes a report with so many requests/s and matching latencies.
func madeUp(perSecond float64) *load.Report {
	l := load.Latency{P50: 1000 / perSecond, P95: 2000 / perSecond, P99: 3000 / perSecond, Max: 4000 / perSecond}
	r := &load.Report{PerSecond: perSecond, Methods: map[string]load.MethodReport{}, Seconds: 10}
	for _, m := range load.MethodNames() {
		r.Methods[m] = load.MethodReport{Requests: int(perSecond), PerSecond: perSecond / 3, Latency: l}
	}
	r.Jobs = load.JobsReport{Accepted: 110, Done: 110, PerSecond: perSecond / 3, EndToEnd: l, Window: load.Window{Accepted: 100, EndedInWindow: 90, EndedAfter: 10}}
	return r
}

// results makes the results of a plan with a function instead of measurements.
func results(p Plan, make func(design string, cell Cell, rep int) *load.Report) *Results {
	r := &Results{Plan: p, Version: "gq test", Command: "gq compare", StartedAt: time.Unix(0, 0), Environment: newEnvironment()}
	for rep := 1; rep <= p.Repetitions; rep++ {
		for _, cell := range p.Cells() {
			for _, d := range p.Designs {
				r.Rows = append(r.Rows, Row{Design: d, Cell: cell, Repetition: rep, Report: make(d, cell, rep)})
			}
		}
	}
	return r
}

func smallPlan(designs ...string) Plan {
	p := FullPlan()
	p.Designs = designs
	return p
}

func wants(t *testing.T, text string, parts ...string) {
	t.Helper()
	for _, part := range parts {
		if !strings.Contains(text, part) {
			t.Errorf("the report does not say %q", part)
		}
	}
	if t.Failed() {
		t.Logf("%s", text)
	}
}

// A difference is claimed if and only if the ranges of the repetitions do not overlap.
func TestConclusionsClaimOnlyWhatRangesShow(t *testing.T) {
	p := smallPlan("A", "B", "C")
	r := results(p, func(d string, cell Cell, rep int) *load.Report {
		switch d {
		case "A": // slow
			return madeUp(100 + float64(rep))
		case "B":
			return madeUp(1000 + 100*float64(rep)) // 1100, 1200, 1300
		default:
			return madeUp(1350 - 100*float64(rep)) // 1250, 1150, 1050: overlaps with B
		}
	})
	n := len(p.Cells())
	wants(t, r.Markdown(),
		fmt.Sprintf("Requests/s: B is higher than A in %d of %d cells, A than B in 0, no difference shown in 0", n, n),
		"the ratio of the medians, B to A, goes from 11.76 to 11.76",
		fmt.Sprintf("99th percentile of SubmitJob: B is higher than A in 0 of %d cells, A than B in %d", n, n),
		fmt.Sprintf("Requests/s: no difference shown between B and C in any of %d cells", n),
		"102 (101–103) with 1 client(s), 102 (101–103) with 16 client(s) and 102 (101–103) with 128 client(s)",
		"| closed 1 | 0s | 1/1/1 | B | 1200 (1100–1300) | 400 (367–433) |",
		"| 0.83 (0.77–0.91) / 1.67 (1.54–1.82) / 2.50 (2.31–2.73) |",
	)
	// A single lucky repetition is not a result.
	r = results(p, func(d string, _ Cell, rep int) *load.Report {
		if d == "B" && rep == 2 {
			return madeUp(9000)
		}
		return madeUp(1000 + float64(rep))
	})
	text := r.Markdown()
	wants(t, text, fmt.Sprintf("no difference shown between A and B in any of %d cells", n))
	if conclusions, _, _ := strings.Cut(text, "## Method"); strings.Contains(conclusions, "is higher than") {
		t.Error("a difference is claimed")
	}
	// One repetition has no range.
	p.Repetitions = 1
	text = results(p, func(d string, _ Cell, _ int) *load.Report {
		return madeUp(map[string]float64{"A": 1, "B": 1000, "C": 9}[d])
	}).Markdown()
	wants(t, text, "That shows no difference between designs")
	if strings.Contains(text, "is higher than") {
		t.Error("a difference is claimed of single measurements")
	}
}

// The analysis explains differences that the ranges show, by what was measured, and no others.
func TestAnalysisExplainsWhatIsShown(t *testing.T) {
	spec.Covers(t, "T-02")
	p := smallPlan("A", "B", "C")
	made := func(slow, done float64) *Results {
		r := results(p, func(d string, cell Cell, rep int) *load.Report {
			rate := 1000 * (1 + float64(cell.Concurrency)/128) // grows with the clients
			report := madeUp(rate + float64(rep))
			report.Jobs.EndToEnd = load.Latency{P50: 1, P99: 2, Max: 3}
			if d == "A" {
				report = madeUp((rate + float64(rep)) / slow)
				report.Jobs.EndToEnd = load.Latency{P50: 1 + done + done*float64(rep)/1000, P99: 2 + done, Max: 3 + done}
			}
			return report
		})
		for i := range r.Rows {
			r.Rows[i].Memory = map[string]float64{"one": 10, "two": 5}
		}
		r.Floor = &Floor{Clients: 64, Echo: []float64{300}, Node: []float64{200}}
		return r
	}
	analysis := func(r *Results) string {
		_, text, _ := strings.Cut(r.Markdown(), "\n## Analysis\n")
		text, _, _ = strings.Cut(text, "\n## ")
		return text
	}
	text := analysis(made(4, 30))
	wants(t, text,
		"a GetJobStatus takes 3.96 (3.96–3.97) ms in A and 0.99 (0.99–0.99) ms in B in the median: 2.97 ms more",
		"a request costs A 4.0 times the processor time that it costs B",
		"A submit costs one node of B 1.50 times as much as an answer of a server that does nothing, so most of it is gRPC itself.",
		"A slot of A that found nothing asks again after 200 ms", "The difference is within these 200 ms, so the pause alone can explain it",
		"Design C, one server, answers a submit once the job is on stable storage. A SubmitJob takes ", "no lower rate shown",
		"How A scales. From 1 to 128 clients its requests/s go from 252 (252–253) to 500 (500–501), 2.0 times as many", "How B scales.", "How C scales.",
		"A 15 (15–15) MiB in 2 processes, B 15", "What A buys for its price",
	)
	wants(t, analysis(made(4, 900)), "The difference is more than the pause can explain")
	text = analysis(made(1, 0))
	wants(t, text, "no difference shown", "No higher price of A is shown.")
	if strings.Contains(text, "a request costs A") || strings.Contains(text, "the pause alone can explain it") {
		t.Errorf("a difference is explained that is not there:\n%s", text)
	}
	p.Work = []time.Duration{50 * time.Millisecond}
	other := made(4, 30)
	other.How, other.Floor.Node = Containers, []float64{100}
	text = other.Markdown()
	wants(t, text, "Design C, 3 servers and PostgreSQL, answers a submit once PostgreSQL has the job on stable storage.", "the price of the disk and of a call to another process together",
		"A submit costs one node of B 3.00 times as much as an answer of a server that does nothing.", "a job of 50ms needs", "jobs of 50ms, mix 1/1/1 (submit/status/result)")
	if strings.Contains(text, "one server") || strings.Contains(text, "most of it is gRPC") {
		t.Errorf("the report of three servers, and of a node that does more than gRPC:\n%s", text)
	}
	p.Repetitions = 1
	if text := analysis(made(4, 30)); !strings.Contains(text, "Nothing is explained here") || strings.Contains(text, "costs A") {
		t.Errorf("single measurements are explained:\n%s", text)
	}
}

// A design with wrong answers is named with its faults, and its speed is not compared.
func TestReportNamesTheWrong(t *testing.T) {
	r := results(smallPlan("A", "B", "C"), func(d string, _ Cell, rep int) *load.Report {
		report := madeUp(1000 + float64(rep))
		switch d {
		case "B":
			report = madeUp(50_000)
			report.Violations, report.Examples = 7, []string{"result of x has 16 wrong bytes"}
		case "C":
			report = madeUp(70_000)
			report.Jobs.Lost, report.Jobs.Window.Lost, report.Jobs.Window.EndedAfter = 4, 4, 6
		}
		return report
	})
	rows := len(r.rowsOf("B"))
	text := r.Markdown()
	wants(t, text,
		fmt.Sprintf("Design B is not correct: %d wrong answers, 0 jobs lost, 0 jobs that never ended. The first wrong answer: result of x has 16 wrong bytes. Its speed is not compared.", 7*rows),
		fmt.Sprintf("Design C is not correct: 0 wrong answers, %d jobs lost", 4*rows),
		fmt.Sprintf("every answer checked: %d were wrong", 7*rows),
		"| closed 1 | 0s | 1/1/1 | C | 300 | 270 | 18 | 0 | 12 | 0 |",
	)
	if strings.Contains(text, "higher than") || strings.Contains(text, "keeps higher") {
		t.Error("the speed of a wrong design is compared")
	}
}

// Censored jobs are visible in the conclusions, in the table of jobs and at every
// figure that depends on them.
func TestReportShowsCensoredJobs(t *testing.T) {
	r := results(smallPlan("A", "B"), func(d string, _ Cell, rep int) *load.Report {
		report := madeUp(1000)
		if d == "A" && rep == 1 {
			report.Jobs.EndToEnd = load.Latency{P50: 5, P95: 4000, P99: 61000, Max: 62000, Open: 3, AtLeast: 60000}
			report.Jobs.Window = load.Window{Accepted: 100, EndedInWindow: 20, EndedAfter: 70, Censored: 10, Canceled: 8}
		}
		return report
	})
	cells := len(r.Plan.Cells())
	wants(t, r.Markdown(),
		fmt.Sprintf("and %d had not ended 1m0s later (censored), of which the generator canceled %d", 10*cells, 8*cells),
		"| closed 16 | 10ms | 1/1/1 | A | 300 | 200 | 90 | 0 | 0 | 10 | 8 |",
		"| ≥ 3 (3–61000) |", "| 2 (2–4000) |",
	)
	if text := r.Markdown(); strings.Contains(text, "≥ 1 (") || strings.Contains(text, "≥ 2 (") {
		t.Error("figures are marked that no censored job decides")
	}
	// A lower bound is never below anything.
	bound, other := figure{median: 1, low: 1, high: 2, n: 3, bound: true}, figure{median: 5, low: 4, high: 6, n: 3}
	if other.above(bound) {
		t.Error("a lower bound is said to be lower")
	}
	if bound = (figure{median: 9, low: 8, high: 9, n: 3, bound: true}); !bound.above(other) {
		t.Error("what is at least 8 is not said to be above 6")
	}
}

func TestFigures(t *testing.T) {
	spec.Covers(t, "T-43", "T-274")
	f := figureOf([]float64{3, 1, 2})
	if f.text(1) != "2.0 (1.0–3.0)" || figureOf([]float64{7}).text(0) != "7" || figureOf(nil).text(0) != "–" || figureOf([]float64{4, 1, 3, 2}).median != 2 {
		t.Errorf("%s", f.text(1))
	}
	// Each percentile is in the column of its name.
	r := results(smallPlan("A"), func(string, Cell, int) *load.Report {
		report := madeUp(1000)
		for i, m := range load.MethodNames() {
			x := float64(100 * (i + 1))
			report.Methods[m] = load.MethodReport{Latency: load.Latency{P50: x + 50, P95: x + 95, P99: x + 99, Max: x + 100}}
		}
		report.Jobs.EndToEnd = load.Latency{P50: 950, P95: 995, P99: 999}
		return report
	})
	same := func(v float64) string { return fmt.Sprintf("%.2f (%.2f–%.2f)", v, v, v) }
	line := "| closed 1 | 0s | 1/1/1 | A |"
	for i := range 3 {
		x := float64(100 * (i + 1))
		line += fmt.Sprintf(" %s / %s / %s |", same(x+50), same(x+95), same(x+99))
	}
	wants(t, r.Markdown(), line, "| done p50 | done p95 | done p99 |", "| 950 (950–950) | 995 (995–995) | 999 (999–999) |")
}

// A search ends at two adjacent rates, the lower sustained and the higher not, wherever
// a design fails and wherever the search starts.
func TestSearch(t *testing.T) {
	p := smallPlan("A")
	for capacity := 40.0; capacity < 300_000; capacity *= 1.13 {
		var known *int
		for rep := range 3 {
			var tried []float64
			limit, step, err := p.search(known, func(rate float64) (string, error) {
				if slices.Contains(tried, rate) {
					t.Errorf("%v/s was tried twice of %v", rate, tried)
				}
				tried = append(tried, rate)
				if rate > capacity {
					return "too much", nil
				}
				return "", nil
			})
			if err != nil {
				t.Fatal(err)
			}
			if limit.Kept > capacity || limit.NotKept > 0 && limit.NotKept <= capacity || limit.Kept > 0 && limit.NotKept/limit.Kept > 1.5 {
				t.Errorf("capacity %.0f: %+v after %v", capacity, limit, tried)
			}
			if (limit.Kept == 0) != (capacity < p.gridRate(lowestStep)) || (limit.NotKept == 0) != (capacity >= p.MaxRate) || (limit.Why == "") != (limit.NotKept == 0) {
				t.Errorf("capacity %.0f: %+v after %v", capacity, limit, tried)
			}
			if most := []int{11, 4, 4}[rep]; len(tried) > most {
				t.Errorf("capacity %.0f: %d rates: %v", capacity, len(tried), tried)
			}
			if known == nil {
				known = &step
			}
		}
	}
	// Each repetition may find another limit.
	known := 4
	limit, _, _ := p.search(&known, func(rate float64) (string, error) { return map[bool]string{true: "x"}[rate > 2000], nil })
	if limit.Kept != 2000 || limit.NotKept != 2800 {
		t.Errorf("a later search found %+v", limit)
	}
}

func TestRatesAreReported(t *testing.T) {
	p := smallPlan("A", "B", "C")
	r := results(p, func(string, Cell, int) *load.Report { return madeUp(1000) })
	for rep := 1; rep <= 3; rep++ {
		r.Limits = append(r.Limits,
			Limit{"A", rep, 1000 * float64(rep), 1400 * float64(rep), "answered 1 of 2 requests/s"},
			Limit{"B", rep, 16000, 23000, "slow"}, Limit{"C", rep, 3000, 0, ""})
	}
	r.Rows = append(r.Rows, Row{Design: "A", Cell: p.open(1000), Repetition: 1, Report: madeUp(990)})
	wants(t, r.Markdown(),
		"design A kept 2000 (1000–3000) requests/s and did not keep 2800 (1400–4200)",
		"design B kept 16000 (16000–16000) requests/s and did not keep 23000 (23000–23000)",
		"design C kept every rate up to 3000 (3000–3000) requests/s; higher ones were not offered",
		"B keeps higher rates than A", "Between the rates that A and C keep no difference is shown",
		"| A | 2 | 2000/s | 2800/s | answered 1 of 2 requests/s |", "| C | 3 | 3000/s | none offered |  |", "| open 1000/s | 0s | 1/1/1 | A | 990 |",
	)
}

func TestARateIsKept(t *testing.T) {
	p := smallPlan("A")
	slow := load.Latency{P99: 1001}
	for name, test := range map[string]struct {
		change func(*load.Report)
		want   string
	}{
		"kept":            {func(*load.Report) {}, ""},
		"barely":          {func(r *load.Report) { r.PerSecond = 951 }, ""},
		"not answered":    {func(r *load.Report) { r.PerSecond = 949 }, "answered 949 of 1000 requests/s"},
		"slow call":       {func(r *load.Report) { r.Methods["GetJobResult"] = load.MethodReport{Latency: slow} }, "GetJobResult is 1001.0 ms"},
		"backlog":         {func(r *load.Report) { r.Jobs.EndToEnd = slow }, "submit to done is 1001.0 ms"},
		"backlog, no end": {func(r *load.Report) { r.Jobs.EndToEnd = load.Latency{P99: 60_000, Open: 1, AtLeast: 10} }, "submit to done is ≥ 60000.0 ms"},
	} {
		r := madeUp(1000)
		test.change(r)
		if got := p.broken(1000, r); (got == "") != (test.want == "") || !strings.Contains(got, test.want) {
			t.Errorf("%s: %q, want %q", name, got, test.want)
		}
	}
}

// The results of a full run, without raw data, are small enough to commit.
func TestResultsAreSmall(t *testing.T) {
	p := smallPlan("A", "B", "C")
	r := results(p, func(_ string, cell Cell, _ int) *load.Report {
		report := madeUp(12345.678901234)
		report.Settings = p.settings(cell, []string{"127.0.0.1:21001", "127.0.0.1:21002", "127.0.0.1:21003", "127.0.0.1:21004", "127.0.0.1:21005", "127.0.0.1:21006"})
		report.Errors, report.ErrorExamples = map[string]int{"UNAVAILABLE": 12345}, map[string]string{"UNAVAILABLE": strings.Repeat("x", 200)}
		report.Samples, report.JobSamples = make([]load.Sample, 1000), make([]load.JobSample, 1000)
		return report
	})
	for i := range r.Rows {
		r.Rows[i].Memory = map[string]float64{"node-0": 123.456789, "node-1": 123.456789, "node-2": 123.456789, "node-3": 123.456789, "node-4": 123.456789, "node-5": 123.456789}
	}
	for k := range 14 {
		for rep := 1; rep <= 3; rep++ {
			for _, d := range p.Designs {
				r.Rows = append(r.Rows, Row{Design: d, Cell: p.open(p.gridRate(k)), Repetition: rep, Memory: r.Rows[0].Memory, Report: r.Rows[0].Report})
			}
		}
	}
	dir := t.TempDir()
	if err := r.Write(dir); err != nil {
		t.Fatal(err)
	}
	total := int64(0)
	err := filepath.WalkDir(dir, func(name string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		info, err := d.Info()
		if err == nil {
			total += info.Size()
			if info.Size() > 1<<20 {
				t.Errorf("%s has %d bytes", name, info.Size())
			}
		}
		return err
	})
	if err != nil || total > 3<<20 {
		t.Errorf("%d bytes in all, %v", total, err)
	}
}

// A plan says how long it takes: the full one long enough for meaningful ranges.
func TestPlansTakeTheirTime(t *testing.T) {
	spec.Covers(t, "T-276")
	full := smallPlan("A", "B", "C")
	if full.Repetitions < 3 || full.Duration < 10*time.Second || full.Drain < full.Duration {
		t.Errorf("plan %+v", full)
	}
	if e := full.Expected(); e < 25*time.Minute || e > 37*time.Minute {
		t.Errorf("the full plan takes %v", e)
	}
	quick := QuickPlan()
	quick.Designs = full.Designs
	if e := quick.Expected(); e > 75*time.Second {
		t.Errorf("the quick plan takes %v", e)
	}
	clients, work, mixes := map[int]bool{}, map[time.Duration]bool{}, map[load.Mix]bool{}
	for _, c := range full.Cells() {
		clients[c.Concurrency], work[c.Work], mixes[c.Mix] = true, true, true
		if n := full.backlog(c); n < 1 || c.Work > 0 && time.Duration(n)*c.Work/time.Duration(full.Slots) > full.Backlog {
			t.Errorf("%s: %d open jobs", c.Name(), n)
		}
	}
	if len(clients) < 3 || len(work) < 3 || len(mixes) < 3 {
		t.Errorf("clients %v, work %v, mixes %v", clients, work, mixes)
	}
}

func TestTurns(t *testing.T) {
	designs := Designs()
	var first []string
	for n := range 4 {
		order := turn(designs, n)
		first = append(first, order[0].Name)
		if len(order) != len(designs) || order[0].Name == order[1].Name {
			t.Errorf("%v", order)
		}
	}
	if !slices.Equal(first, []string{"A", "B", "C", "A"}) {
		t.Errorf("first are %v", first)
	}
}

func TestProcessorTimeOfOthers(t *testing.T) {
	const self = "42 (a (b) c) S 1 2 3 4 5 6 7 8 9 10 %d %d %d %d 20 0"
	stat := func(user, idle int) string { return fmt.Sprintf("cpu  %d 10 100 %d 5000 20 30 40 0 0", user, idle) }
	begin := time.Unix(1000, 0)
	before, ok := parseUsage(begin, stat(1000, 100), fmt.Sprintf(self, 100, 50, 200, 150))
	if !ok {
		t.Fatal("not read")
	}
	// In ten seconds the machine was busy for 15 core seconds, 12 of them ours.
	after, ok := parseUsage(begin.Add(10*time.Second), stat(2500, 600), fmt.Sprintf(self, 500, 150, 800, 250))
	if got := after.others(before); !ok || got < 0.299 || got > 0.301 {
		t.Errorf("others used %v cores, want 0.3: %+v, %+v", got, before, after)
	}
	for _, bad := range [][2]string{{"", ""}, {stat(1, 1), "42 (x) S 1"}, {"cpu 1 2", fmt.Sprintf(self, 1, 1, 1, 1)}, {"cpu  x 10 100 1 5000 20 30 40", fmt.Sprintf(self, 1, 1, 1, 1)}} {
		if _, ok := parseUsage(begin, bad[0], bad[1]); ok {
			t.Errorf("%q is read", bad)
		}
	}
}

// Two designs in containers, one with a proxy: their time is not that of others.
func TestProcessorTimeOfContainers(t *testing.T) {
	var all []process
	for _, line := range []string{
		"1 (init) S 0 1 1 0 -1 0 0 0 0 0 1000 1000 0 0 20 0",
		"10 (dockerd) S 1 1 1 0 -1 0 0 0 0 0 100 0 0 0 20 0",
		"11 (docker-proxy) S 10 1 1 0 -1 0 0 0 0 0 200 0 0 0 20 0",
		"20 (containerd-shim) S 1 1 1 0 -1 0 0 0 0 0 50 0 0 50 20 0",
		"21 (gq (node) 1) S 20 1 1 0 -1 0 0 0 0 0 300 100 0 0 20 0",
		"30 (containerd-shim) S 1 1 1 0 -1 0 0 0 0 0 0 0 0 0 20 0",
		"31 (gq) S 30 1 1 0 -1 0 0 0 0 0 0 0 500 0 20 0",
		"40 (compile) S 1 1 1 0 -1 0 0 0 0 0 9000 0 0 0 20 0",
		"51 (a) S 52 1 1 0 -1 0 0 0 0 0 7 0 0 0 20 0",
		"52 (b) S 51 1 1 0 -1 0 0 0 0 0 7 0 0 0 20 0",
	} {
		p, ok := parseProcess(line)
		if !ok {
			t.Fatalf("%q is not read", line)
		}
		all = append(all, p)
	}
	if got := engineTime(all); got != 13 { // 1 + 2 + 1 + 4 + 5 seconds
		t.Errorf("the engine and its containers used %v seconds, want 13", got)
	}
	for _, bad := range []string{"", "1 gq S 1", "1 (gq) S 1 2 3", "x (gq) S 0 1 1 0 -1 0 0 0 0 0 1 1 1 1 20", "1 (gq) S 0 1 1 0 -1 0 0 0 0 0 1 1 1 z 20"} {
		if _, ok := parseProcess(bad); ok {
			t.Errorf("%q is read", bad)
		}
	}
}

// The mean weighs by time, and a measurement tells its own share.
func TestOthersOfARun(t *testing.T) {
	begin := time.Unix(1000, 0)
	s := session{before: usage{at: begin}}
	s.watch(usage{at: begin.Add(10 * time.Second), busy: 15, own: 10}, true)
	s.before = usage{at: begin.Add(time.Minute), busy: 20, own: 10}
	s.watch(usage{at: begin.Add(90 * time.Second), busy: 26, own: 13}, true)
	s.watch(usage{}, false)
	if s.others != 0.1 || s.mostOthers != 0.5 || s.othersTime != 8 || s.watched != 40 {
		t.Errorf("others %v, at most %v, %v core seconds in %v", s.others, s.mostOthers, s.othersTime, s.watched)
	}
}

func TestEnvironmentIsReported(t *testing.T) {
	e := newEnvironment()
	if runtime.GOOS == "linux" && (e.Kernel == "" || e.MemoryMiB < 1 || len(strings.Fields(e.LoadBefore)) != 3) {
		t.Errorf("environment %+v", e)
	}
	info := &debug.BuildInfo{Settings: []debug.BuildSetting{{Key: "vcs.revision", Value: "0123456789abcdef"}, {Key: "vcs.modified", Value: "true"}}}
	e.Commit, e.Modified = commitOf(info)
	e.CPU, e.Cores, e.MemoryMiB, e.Kernel, e.GoVersion = "Example 9000", 2, 2048, "6.1.0-test", "go1.99"
	e.LoadBefore, e.LoadAfter, e.Others = "0.10 0.20 0.30", "1.10 1.20 1.30", &Others{Mean: 0.034, Most: 0.5}
	r := results(smallPlan("A"), func(string, Cell, int) *load.Report { return madeUp(1000) })
	r.Environment = e
	wants(t, r.Markdown(), "| commit | 0123456789abcdef, with uncommitted changes |", "| processor | Example 9000 |", "| cores | 2 |", "| memory | 2048 MiB |", "6.1.0-test |", "| Go | go1.99 |",
		"| load average before (1, 5, 15 min) | 0.10 0.20 0.30 |", "| load average after (1, 5, 15 min) | 1.10 1.20 1.30 |", "| 0.03 cores on average, at most 0.50 in one measurement |")
	if strings.Contains(r.Markdown(), "not quiet") {
		t.Error("the machine was quiet")
	}
	r.Environment.Others.Mean = 0.4
	wants(t, r.Markdown(), "Other processes used 0.40 of 2 cores on average, at most 0.50 in one measurement. The machine was not quiet")
	r.Environment.Modified = false
	wants(t, r.Markdown(), "| commit | 0123456789abcdef |")
	r.Environment.Commit, r.Environment.Others = "", nil
	wants(t, r.Markdown(), "| commit | unknown: build with scripts/compare, or with -buildvcs=true |", "| processor time of other processes | unknown |")
}
