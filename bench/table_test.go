package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// sample returns a report of three repetitions.
func sample() *report {
	r := newReport(servers, servers.full, false, nil)
	r.Commit, r.Machine = "abc", "a machine"
	for i, n := range []int{3000, 1000, 2000} {
		r.add("cycle", "GopherQueue server", outcome{Jobs: n, Seconds: 0.01, CPU: 0.1, Written: 1e6, Others: float64(i)})
		r.add("half", "GopherQueue server", outcome{Jobs: n, Seconds: 1, CPU: 0.1, P50: float64(i) + 1, P99: 9})
	}
	r.add("cycle", "Temporal dev server", outcome{Jobs: 1, Seconds: 1})
	r.add("cycle", "beanstalkd, fsync", outcome{Jobs: 100, Seconds: 0.01, CPU: 0.01, Written: 1e5, Others: 50})
	return r
}

func TestTable(t *testing.T) {
	var b bytes.Buffer
	if err := sample().table(&b); err != nil {
		t.Fatal(err)
	}
	const want = `| row | side | jobs/s | CPU µs a job | bytes written a job | p50 ms | p99 ms | others had |
|---|---|---:|---:|---:|---:|---:|---:|
| cycle | GopherQueue server | 200,000 (100,000–300,000) | 50.0 (33.3–100.0) | 500 (333–1,000) | | | 1 % (0 %–2 %) |
| cycle | beanstalkd, fsync | 10,000 | 100.0 | 1,000 | | | 50 % |
| cycle | Temporal dev server | 1 | 0.0 | 0 | | | 0 % |
| half | GopherQueue server | 2,000 (1,000–3,000) offered | 50.0 (33.3–100.0) | 0 | 2.00 (1.00–3.00) | 9.00 | 0 % |
`
	if got := b.String(); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

func TestGoalsOfServers(t *testing.T) {
	r := sample()
	r.finish()
	var got []string
	for _, g := range r.Goals {
		got = append(got, g.Text+" "+figure(g.Reached))
	}
	want := []string{"server cycle 200,000", "server cycle, to beanstalkd with fsync 20"}
	if strings.Join(got, "; ") != strings.Join(want, "; ") {
		t.Errorf("goals %q, want %q", got, want)
	}
	if !r.Busy {
		t.Error("others had 50 % of the CPU, and the report does not say so")
	}
}

func TestGoalsOfLatency(t *testing.T) {
	r := report{Results: make(map[string]map[string]outcome), Runs: make(map[string]map[string][]outcome)}
	for i, ms := range []float64{3, 1, 2} {
		r.add("latency", "GopherQueue", outcome{Jobs: 100, P50: ms, P99: 10 * ms, CPU: 0.1 * float64(i+1)})
		r.add("latency", "River", outcome{Jobs: 100, P50: 4, P99: 10, CPU: 0.1})
		r.add("latency", "pg-boss", outcome{Jobs: 100, P50: 200, P99: 400, CPU: 0.01})
	}
	if got := r.Results["latency"]["GopherQueue"].P50; got != 2 {
		t.Errorf("p50 is %v, want the median 2", got)
	}
	r.finish()
	var got []string
	for _, g := range r.Goals {
		got = append(got, fmt.Sprintf("%s %s %v", g.Text, figure(g.Reached), g.Met))
	}
	want := []string{
		"a job every 10 ms, p50 to the best peer 0.5 true", "a job every 10 ms, p99 to the best peer 2 false",
		"a job every 10 ms, CPU time to River 2 false",
	}
	if strings.Join(got, "; ") != strings.Join(want, "; ") {
		t.Errorf("goals %q, want %q", got, want)
	}
}

func TestPublish(t *testing.T) {
	dir := t.TempDir()
	a, b := filepath.Join(dir, "a.json"), filepath.Join(dir, "b.json")
	first, second := sample(), newReport(servers, servers.full, false, nil)
	second.Commit, second.Machine = first.Commit+changed, first.Machine
	second.add("single", "beanstalkd, fsync", outcome{Jobs: 7, Seconds: 1})
	second.Failures = []string{"bulk of Faktory: refused"}
	for file, r := range map[string]*report{a: first, b: second} {
		if err := r.save(file); err != nil {
			t.Fatal(err)
		}
	}
	var out bytes.Buffer
	if err := publish([]string{dir, a, b}, &out); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"commit abc, abc with changes",
		"| single | beanstalkd, fsync | 7 |",
		"| cycle | GopherQueue server | 200,000 (100,000–300,000) |",
		"Failed: bulk of Faktory: refused",
		"Warning: others had more than 10 %",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the report lacks %q:\n%s", want, out.String())
		}
	}
	for _, name := range []string{"rate.svg", "cpu.svg", "written.svg", "latency.svg"} {
		text, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil || !bytes.Contains(text, []byte("GopherQueue server")) || bytes.Contains(text, []byte("Temporal")) {
			t.Errorf("%s: %v", name, err)
		}
	}

	second.Machine = "another"
	if err := second.save(b); err != nil {
		t.Fatal(err)
	}
	if err := publish([]string{dir, a, b}, io.Discard); err == nil {
		t.Error("results of two machines were merged")
	}
}

func TestSpread(t *testing.T) {
	all := []outcome{{P50: 3}, {P50: 1}, {P50: 2}}
	if got := spreadOf(all, func(o outcome) float64 { return o.P50 }); got != (spread{1, 2, 3}) {
		t.Errorf("got %v", got)
	}
	all = append(all, outcome{P50: 9})
	if got := spreadOf(all, func(o outcome) float64 { return o.P50 }); got != (spread{1, 2, 9}) {
		t.Errorf("of an even number: %v", got)
	}
	if got := spreadOf(nil, outcome.rate); got != (spread{}) {
		t.Errorf("of nothing: %v", got)
	}
}
