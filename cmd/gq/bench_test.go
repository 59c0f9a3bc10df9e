package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"github.com/gopherqueue/gq/internal/bench"
	"github.com/gopherqueue/gq/internal/testing/cmdtest"
	"github.com/gopherqueue/gq/internal/testing/pgtest"
)

// quick returns flags for a short run.
func quick(more ...string) []string {
	return append([]string{"bench", "--callers", "1,4", "--batch", "5", "--jobs", "30", "--backlog", "100", "--idle", "5ms"}, more...)
}

// gqBench measures in another process: in this one, the surrounding tests would count as
// work of the store, and the run would wait for them.
func gqBench(t *testing.T, more ...string) outcome {
	t.Helper()
	tmp := t.TempDir()
	c := exec.CommandContext(t.Context(), cmdtest.Program(t), quick(more...)...)
	c.Env = append(os.Environ(), "TMPDIR="+tmp)
	var stdout, stderr bytes.Buffer
	c.Stdout, c.Stderr = &stdout, &stderr
	if err := c.Run(); err != nil && c.ProcessState == nil {
		t.Fatal(err)
	}
	got := outcome{c.ProcessState.ExitCode(), stdout.String(), stderr.String()}
	if got.status != 0 {
		t.Fatalf("status %d, want 0:\n%s", got.status, got.stderr)
	}
	if left := names(t, tmp); len(left) > 0 {
		t.Errorf("temporary files are left: %v", left)
	}
	return got
}

func names(t *testing.T, dir string) (names []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

func TestBenchTable(t *testing.T) {
	got := gqBench(t, "--store", "memory:")
	lines := strings.Split(strings.TrimSpace(got.stdout), "\n")
	if want := 2 + 1 + 1 + 2 + 4; len(lines) != want {
		t.Fatalf("%d lines, want %d: two about the run, a title, a heading and four rows:\n%s", len(lines), want, got.stdout)
	}
	if !strings.Contains(lines[0], "memory:") || !strings.Contains(lines[0], "cores") {
		t.Errorf("the first line is %q, want the store and the machine in it", lines[0])
	}
	for i, want := range []string{"1 1 30", "4 1 30", "1 5 30", "4 5 30"} {
		fields := strings.Fields(lines[6+i])
		if len(fields) != len(rowColumns(true)) || strings.Join(fields[:3], " ") != want {
			t.Errorf("row %d is %q, want %d columns that begin with %s", i, lines[6+i], len(rowColumns(true)), want)
		}
	}
}

func TestBenchAllScenariosAsText(t *testing.T) {
	t.Parallel() // it mostly waits
	got := gqBench(t, "--scenario", "all", "--store", "memory:", "--callers", "2")
	for _, name := range bench.Scenarios() {
		if !strings.Contains(got.stdout, "\n"+string(name)+": ") {
			t.Errorf("scenario %s is missing in\n%s", name, got.stdout)
		}
	}
}

// The names are an interface: programs read them. Add to this list, but never change it.
var benchFields = strings.Fields(`
	version store started_at seconds go_version os arch cores gomaxprocs busy others_cpu_percent warnings
	settings.scenarios settings.callers settings.batch settings.payload_bytes settings.jobs settings.duration_seconds
	settings.backlog settings.idle_seconds settings.repeat settings.record_bytes
	` + rowFields("cycle") + rowFields("enqueue") + `
	cycle.claim_ms.calls cycle.claim_ms.p50 cycle.claim_ms.p95 cycle.claim_ms.p99 cycle.claim_ms.max
	cycle.complete_ms.calls cycle.complete_ms.p50 cycle.complete_ms.p95 cycle.complete_ms.p99 cycle.complete_ms.max
	enqueue.claim_ms enqueue.complete_ms
	backlog.jobs backlog.fill_jobs_per_second backlog.live_heap_bytes_per_job backlog.disk_bytes_per_job
	backlog.cycles.callers backlog.cycles.batch backlog.cycles.jobs_per_second_without
	backlog.cycles.jobs_per_second_with backlog.cycles.ratio
	backlog.cycles.cpu_microseconds_per_job_without backlog.cycles.cpu_microseconds_per_job_with
	backlog.reopen_seconds backlog.close_seconds backlog.drain_callers backlog.drain_batch backlog.drain_jobs_per_second
	backlog.drain_first_tenth_jobs_per_second backlog.drain_last_tenth_jobs_per_second backlog.others_cpu_percent
	backlog.repeats.runs backlog.repeats.least backlog.repeats.most
	filter.filter filter.callers filter.jobs_ahead filter.claims_per_second_without filter.claims_per_second_with filter.ratio
	filter.cpu_microseconds_per_claim_without filter.cpu_microseconds_per_claim_with
	filter.claim_ms_without.calls filter.claim_ms_without.p50 filter.claim_ms_without.p95 filter.claim_ms_without.p99 filter.claim_ms_without.max
	filter.claim_ms_with.calls filter.claim_ms_with.p50 filter.claim_ms_with.p95 filter.claim_ms_with.p99 filter.claim_ms_with.max
	filter.repeats.runs filter.repeats.least filter.repeats.most
	idle.seconds idle.queued_jobs idle.delayed_jobs idle.cpu_percent idle.baseline_cpu_percent
	idle.repeats.runs idle.repeats.least idle.repeats.most
	worker.callers worker.bare_jobs_per_second worker.bare_cpu_microseconds_per_job worker.jobs worker.jobs_per_second
	worker.ratio worker.cpu_microseconds_per_job
	worker.submit_to_start_ms.calls worker.submit_to_start_ms.p50 worker.submit_to_start_ms.p95
	worker.submit_to_start_ms.p99 worker.submit_to_start_ms.max
	worker.submit_ms.calls worker.submit_ms.p50 worker.submit_ms.p95 worker.submit_ms.p99 worker.submit_ms.max
	worker.heartbeat_jobs worker.heartbeat_ttl_seconds worker.heartbeat_commits_per_second
	worker.graphs.shape worker.graphs.jobs worker.graphs.seconds worker.graphs.microseconds_per_job
	worker.repeats.runs worker.repeats.least worker.repeats.most
	server`)

func rowFields(scenario string) string {
	fields := strings.Fields(`callers batch jobs seconds jobs_per_second floor_seconds floor_jobs_per_second ratio
		enqueue_ms.calls enqueue_ms.p50 enqueue_ms.p95 enqueue_ms.p99 enqueue_ms.max
		commits_per_job fsyncs_per_job events_per_job commit_bytes_per_job disk_bytes_per_job
		cpu_microseconds_per_job floor_cpu_microseconds_per_job rss_bytes live_heap_bytes others_cpu_percent
		repeats.runs repeats.least repeats.most`)
	return scenario + "." + strings.Join(fields, " "+scenario+".") + " "
}

func TestBenchJSON(t *testing.T) {
	t.Parallel() // it mostly waits
	dir := filepath.Join(t.TempDir(), "new")
	got := gqBench(t, "--scenario", "all", "--json", "--store", "file:"+dir)
	if _, err := os.Stat(dir); !os.IsNotExist(err) {
		t.Errorf("the directory was missing before the run and is not now (%v)", err)
	}
	decoder := json.NewDecoder(strings.NewReader(got.stdout))
	var object map[string]any
	if err := decoder.Decode(&object); err != nil {
		t.Fatal(err)
	}
	if decoder.More() {
		t.Error("more than one JSON value was printed")
	}
	found := map[string]bool{}
	collectFields("", object, found)
	for _, name := range benchFields {
		if !found[name] {
			t.Errorf("field %s is missing", name)
		}
		delete(found, name)
	}
	for name := range found {
		t.Errorf("field %s is not in the list of this test", name)
	}

	var r bench.Report
	if err := json.Unmarshal([]byte(got.stdout), &r); err != nil {
		t.Fatal(err)
	}
	if r.Store != "file:"+dir || r.Settings.Jobs != 30 || len(r.Cycle) != 4 || len(r.Enqueue) != 4 || len(r.Filter) != 6 {
		t.Errorf("%+v, want four rows, four rows and six rows about %s", r, dir)
	}
	for _, row := range slices.Concat(r.Cycle, r.Enqueue) {
		if want := row.JobsPerSecond / *row.FloorJobsPerSecond; *row.Ratio != want || row.Jobs != 30 || row.Repeats.Runs != 1 {
			t.Errorf("%d jobs with ratio %v of %d runs, want 30 with %v of 1", row.Jobs, *row.Ratio, row.Repeats.Runs, want)
		}
	}
	for _, warning := range r.Warnings {
		if !strings.Contains(got.stderr, warning) {
			t.Errorf("the warning %q is not on standard error", warning)
		}
	}
}

// collectFields lists the paths of all leaf values.
func collectFields(path string, value any, found map[string]bool) {
	switch v := value.(type) {
	case map[string]any:
		for name, inner := range v {
			collectFields(strings.TrimPrefix(path+"."+name, "."), inner, found)
		}
	case []any:
		objects := false
		for _, inner := range v {
			if _, ok := inner.(map[string]any); ok {
				objects = true
				collectFields(path, inner, found)
			}
		}
		if !objects {
			found[path] = true
		}
	default:
		found[path] = true
	}
}

func TestBenchFieldsAreSnakeCase(t *testing.T) {
	pattern := regexp.MustCompile(`^[a-z0-9]+(_[a-z0-9]+)*$`)
	for _, path := range benchFields {
		for name := range strings.SplitSeq(path, ".") {
			if !pattern.MatchString(name) {
				t.Errorf("%s in %s is not snake_case", name, path)
			}
		}
	}
}

func TestBenchLeavesAnEmptyDirectoryEmpty(t *testing.T) {
	dir := t.TempDir()
	gqBench(t, "--store", "file://"+dir)
	if left := names(t, dir); len(left) > 0 {
		t.Errorf("%v is left in it", left)
	}
}

func TestBenchRefusesWhatIsInUse(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "precious")
	if err := os.WriteFile(file, []byte("data"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct{ name, path, want string }{
		{"NotEmpty", dir, "is not empty (it has precious)"},
		{"File", file, "is not a directory"},
		{"BelowAFile", filepath.Join(file, "x"), "directory"},
	} {
		t.Run(test.name, func(t *testing.T) {
			got := gqIn(t.Context(), t.TempDir(), quick("--store", "file:"+test.path)...)
			if got.status != 2 || got.stdout != "" || !strings.Contains(got.stderr, test.want) {
				t.Errorf("status %d, want 2 and %q:\n%s%s", got.status, test.want, got.stdout, got.stderr)
			}
			if left := names(t, dir); !slices.Equal(left, []string{"precious"}) {
				t.Errorf("the directory has %v now", left)
			}
		})
	}
}

func TestBenchFailure(t *testing.T) {
	missing := filepath.Join(t.TempDir(), "missing", "cpu.out")
	got := gqIn(t.Context(), t.TempDir(), quick("--store", "memory:", "--cpuprofile", missing)...)
	if got.status != 1 || got.stdout != "" || !strings.Contains(got.stderr, missing) {
		t.Errorf("status %d, want 1 and the file's name:\n%s", got.status, got.stderr)
	}
}

func TestBenchInterrupted(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	tmp := t.TempDir()
	got := gqIn(ctx, tmp, quick()...)
	if got.status != 1 || got.stdout != "" || got.stderr != "gq: interrupted\n" {
		t.Errorf("status %d, want 1 and only that it was interrupted:\n%s%s", got.status, got.stdout, got.stderr)
	}
	if left := names(t, tmp); len(left) > 0 {
		t.Errorf("temporary files are left: %v", left)
	}
}

func TestBenchProfile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "cpu.out")
	gqBench(t, "--store", "memory:", "--cpuprofile", file)
	profile, err := os.ReadFile(file)
	if err != nil || !bytes.HasPrefix(profile, []byte{0x1f, 0x8b}) {
		t.Errorf("%d bytes of profile, which is not compressed with gzip (%v)", len(profile), err)
	}
}

// The help is the documentation: it names every column, scenario and flag.
func TestBenchHelpIsComplete(t *testing.T) {
	help := gqIn(t.Context(), "", "bench", "--help").stdout
	for _, c := range rowColumns(true) {
		name := c.head
		switch c.unit {
		case "/job", "MiB":
			name = strings.TrimSuffix(c.head+" "+c.unit, " ")
			name = strings.ReplaceAll(name, " /job", "/job")
		}
		if !regexp.MustCompile(`(?m)^  ` + regexp.QuoteMeta(name) + `  +\S`).MatchString(help) {
			t.Errorf("column %q is not explained", name)
		}
	}
	for _, s := range bench.Scenarios() {
		if !regexp.MustCompile(`(?m)^  ` + string(s) + `  +\S`).MatchString(help) {
			t.Errorf("scenario %s is not explained", s)
		}
	}
	newBench(process{}).Flags().VisitAll(func(f *pflag.Flag) {
		if f.Usage == "" {
			t.Errorf("flag --%s is not explained", f.Name)
		}
	})
	for i, line := range strings.Split(benchLong, "\n") {
		if len([]rune(line)) > 80 {
			t.Errorf("line %d of the help is wider than 80 columns: %q", i+1, line)
		}
	}
}

func TestGrouped(t *testing.T) {
	for value, want := range map[float64]string{
		0: "0", 7: "7", 999: "999", 999.6: "1,000", 1000: "1,000", 1234567.2: "1,234,567", -1234: "-1,234", -12: "-12",
	} {
		if got := grouped(value); got != want {
			t.Errorf("grouped(%v) = %q, want %q", value, got, want)
		}
	}
}

func TestBrief(t *testing.T) {
	for value, want := range map[float64]string{
		0: "0.000", 0.00123: "0.00123", 0.0456: "0.046", 0.123: "0.123", 1.234: "1.23", 12.34: "12.3", 1234.5: "1234",
	} {
		if got := brief(value); got != want {
			t.Errorf("brief(%v) = %q, want %q", value, got, want)
		}
	}
}

func TestBenchTakesTheURLOfAPool(t *testing.T) {
	t.Parallel()
	u, err := url.Parse(pgtest.Database(t))
	if err != nil {
		t.Fatal(err)
	}
	query := u.Query()
	query.Set("pool_max_conns", "3")
	u.RawQuery = query.Encode()
	b := &benchServer{url: u.String(), made: make(map[string]bool)}
	s, err := b.Open("one", nil)
	if err == nil {
		err = s.Close()
	}
	if err := errors.Join(err, b.Close()); err != nil {
		t.Error(err)
	}
}
