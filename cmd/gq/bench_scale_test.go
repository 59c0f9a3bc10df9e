package main

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/engine"
	"github.com/gopherqueue/gq/internal/bench"
	"github.com/gopherqueue/gq/internal/testing/cmdtest"
	"github.com/gopherqueue/gq/internal/testing/pgtest"
)

// quickScale returns flags for a short run.
func quickScale(more ...string) []string {
	return append([]string{
		"bench", "scale", "--duration", "20ms", "--callers", "2", "--batch", "10",
		"--max", "backlog=1000,history=1000,workers=10,queues=10,keys=10,graph=10",
	}, more...)
}

// The names are an interface: programs read them. Add to this list, but never change it.
var scaleFields = strings.Fields(`
	version store started_at seconds go_version os arch cores callers batch payload_bytes duration_seconds
	axes.axis axes.steps.size axes.steps.load_seconds axes.steps.jobs axes.steps.seconds axes.steps.jobs_per_second
	axes.steps.cpu_microseconds_per_job axes.steps.server_cpu_microseconds_per_job axes.steps.wal_bytes_per_job
	axes.steps.claim_ms axes.steps.claim_ms.calls axes.steps.claim_ms.p50 axes.steps.claim_ms.p95 axes.steps.claim_ms.p99 axes.steps.claim_ms.max
	axes.steps.live_heap_bytes axes.steps.live_heap_bytes_per_unit axes.steps.rss_bytes axes.steps.disk_bytes
	axes.steps.disk_bytes_per_unit axes.steps.others_cpu_percent`)

func TestBenchScaleJSON(t *testing.T) {
	t.Parallel()
	text, err := exec.CommandContext(t.Context(), cmdtest.Program(t), quickScale("--json", "--store", "memory:")...).Output()
	if err != nil {
		t.Fatal(err)
	}
	var object map[string]any
	if err := json.Unmarshal(text, &object); err != nil {
		t.Fatal(err)
	}
	found := map[string]bool{}
	collectFields("", object, found)
	for _, name := range scaleFields {
		if !found[name] {
			t.Errorf("field %s is missing", name)
		}
		delete(found, name)
	}
	for name := range found {
		t.Errorf("field %s is not in the list of this test", name)
	}
}

// A history is copied; the counts, and the jobs that follow, are as if it had been run.
func TestMultiplyHistory(t *testing.T) {
	t.Parallel()
	b := &benchServer{url: pgtest.Database(t), made: map[string]bool{}}
	defer b.Close() //nolint:errcheck // the server is removed
	s, err := b.Open("history", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	e, err := engine.New(s, engine.Options{})
	if err != nil {
		t.Fatal(err)
	}
	run := func(jobs int) {
		t.Helper()
		specs := make([]gq.Spec, jobs)
		for i := range specs {
			specs[i] = gq.Spec{Queue: "q", Type: "t"}
		}
		if _, err := e.SubmitBatch(t.Context(), specs); err != nil {
			t.Fatal(err)
		}
		claimed, err := e.Claim(t.Context(), gq.ClaimRequest{Queues: []string{"q"}, Worker: "w", N: jobs})
		if err != nil || len(claimed) != jobs {
			t.Fatalf("claimed %d of %d jobs: %v", len(claimed), jobs, err)
		}
		for _, j := range claimed {
			if _, err := e.Complete(t.Context(), j.State.Lease.Ref(), nil); err != nil {
				t.Fatal(err)
			}
		}
	}
	run(100)
	if err := b.Multiply(t.Context(), "history", 7); err != nil {
		t.Fatal(err)
	}
	run(3)
	counts, err := s.Counts(t.Context())
	if err != nil || len(counts) != 1 || counts[0].By[gq.StatusCompleted] != 703 {
		t.Errorf("counted %+v, %v; want 703 completed jobs", counts, err)
	}
	page, err := e.List(t.Context(), gq.Query{Limit: 1000})
	if err != nil {
		t.Fatal(err)
	}
	ids := make(map[gq.JobID]bool)
	for _, j := range page.Jobs {
		if got, err := e.Get(t.Context(), j.State.ID, 0); err != nil || got.State.Status != gq.StatusCompleted {
			t.Fatalf("a listed job is %+v, %v", got.State, err)
		}
		ids[j.State.ID] = true
	}
	if len(page.Jobs) != 703 || len(ids) != 703 {
		t.Errorf("listed %d jobs with %d ids, want 703", len(page.Jobs), len(ids))
	}
}

func TestBenchScaleOnPostgreSQL(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "plots")
	text, err := exec.CommandContext(t.Context(), cmdtest.Program(t),
		quickScale("--svg", dir, "--store", pgtest.Database(t), "--axis", "backlog,graph", "--json")...).Output()
	if err != nil {
		t.Fatal(err)
	}
	var r bench.ScaleReport
	if err := json.Unmarshal(text, &r); err != nil {
		t.Fatal(err)
	}
	for _, a := range r.Axes {
		for _, s := range a.Steps {
			if s.WALBytes == nil || *s.WALBytes <= 0 || s.DiskBytes == nil || s.ServerCPU == nil {
				t.Errorf("%s %d: %+v, want what the server wrote and used", a.Axis, s.Size, s)
			}
		}
	}
	if left := names(t, dir); !slices.Equal(left, []string{"backlog.svg", "graph.svg"}) {
		t.Errorf("drew %v", left)
	}
}

func TestBenchScaleTable(t *testing.T) {
	t.Parallel()
	tmp := t.TempDir()
	c := exec.CommandContext(t.Context(), cmdtest.Program(t), quickScale("--axis", "queues")...)
	c.Env = append(os.Environ(), "TMPDIR="+tmp)
	text, err := c.Output()
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	if want := 2 + 1 + 1 + 2 + 2; len(lines) != want {
		t.Fatalf("%d lines, want two about the run, a title, a heading and two rows:\n%s", len(lines), text)
	}
	if fields := strings.Fields(lines[7]); len(fields) != len(scaleColumns()) || fields[0] != "10" {
		t.Errorf("the last row is %q, want %d columns that begin with 10", lines[7], len(scaleColumns()))
	}
	if left := names(t, tmp); len(left) > 0 {
		t.Errorf("temporary files are left: %v", left)
	}
}

// The help is the documentation: it names every column, axis, default and flag.
func TestBenchScaleHelpIsComplete(t *testing.T) {
	for _, c := range scaleColumns() {
		if !strings.Contains(benchScaleLong, "\n  "+strings.TrimSpace(c.head+" "+c.unit)+" ") && !strings.Contains(benchScaleLong, "\n  "+c.head+" ") {
			t.Errorf("column %q %q is not explained", c.head, c.unit)
		}
	}
	for _, a := range bench.Axes() {
		line := ""
		for l := range strings.Lines(benchScaleLong) {
			if strings.HasPrefix(l, "  "+string(a)+" ") {
				line = l
			}
		}
		if !strings.HasSuffix(line, " "+grouped(float64(a.Top()))+"\n") {
			t.Errorf("axis %s is explained by %q, want its top %d", a, line, a.Top())
		}
	}
	newBenchScale(process{}).Flags().VisitAll(func(f *pflag.Flag) {
		if f.Usage == "" {
			t.Errorf("flag --%s is not explained", f.Name)
		}
	})
	for i, line := range strings.Split(benchScaleLong, "\n") {
		if len([]rune(line)) > 80 {
			t.Errorf("line %d of the help is wider than 80 columns: %q", i+1, line)
		}
	}
}
