package compare_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gopherqueue/gq/internal/testing/cmdtest"
	"github.com/gopherqueue/gq/internal/testing/spec"
	"github.com/gopherqueue/gq/services/internal/compare"
)

// gqlab is the package of the program that the designs are started from.
const gqlab = "github.com/gopherqueue/gq/services/cmd/gqlab"

func TestMain(m *testing.M) {
	code := m.Run()
	cmdtest.Remove()
	os.Exit(code) //nolint:forbidigo // how TestMain ends
}

// up runs a design as real processes during a test.
func up(t *testing.T, name string) *compare.Cluster {
	t.Helper()
	d, err := compare.Find(name)
	if err != nil {
		t.Fatal(err)
	}
	c, err := compare.Up(t.Context(), d, compare.Place{Binary: cmdtest.Command(t, gqlab), Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Stop(); err != nil {
			t.Error(err)
		}
	})
	return c
}

func TestCompareWritesItsResults(t *testing.T) {
	spec.Covers(t, "T-12", "T-23", "T-24", "T-43", "T-47", "T-261", "T-273", "T-274", "T-275", "T-276", "T-277")
	plan := compare.QuickPlan()
	plan.Concurrency, plan.Rate, plan.MaxRate = []int{1, 8}, 100, 100
	plan.Work = []time.Duration{0}
	plan.Warmup, plan.Duration, plan.Floor = 50*time.Millisecond, 250*time.Millisecond, 8
	plan.Limit = time.Minute // long enough for a busy machine
	dir := t.TempDir()
	results := measured(t, &plan, filepath.Join(dir, "raw"))
	if err := results.Write(dir); err != nil {
		t.Fatal(err)
	}

	var stored compare.Results
	read(t, dir, "results.json", &stored)
	settings, err := compare.ReadSettings(filepath.Join(dir, "settings.env"))
	if err != nil {
		t.Fatal(err)
	}
	if settings.Slots != 6 || settings.Duration != plan.Duration || len(settings.Mixes) != 1 {
		t.Errorf("settings %+v", settings)
	}
	if cells := len(plan.Cells()) + 1; len(stored.Rows) < 3*cells || len(stored.Limits) != 3 {
		t.Fatalf("%d rows for %d cells, limits %+v", len(stored.Rows), cells, stored.Limits)
	}
	rows := make(map[string]int)
	for _, row := range stored.Rows {
		rows[row.Cell.Name()]++
		if !row.Correct() || row.PerSecond <= 0 || len(row.Methods) != 3 || len(row.Memory) == 0 || row.Settings.Seed != plan.Seed || row.Settings.Duration != plan.Duration {
			t.Errorf("design %s, %s: %+v %v", row.Design, row.Cell.Name(), row.Jobs, row.Examples)
		}
		if targets := map[string]int{"A": 1, "B": 6, "C": 1}[row.Design]; len(row.Settings.Targets) != targets {
			t.Errorf("design %s is called at %v", row.Design, row.Settings.Targets)
		}
	}
	for _, cell := range plan.Cells() {
		if n := rows[cell.Name()]; n != 3 {
			t.Errorf("%s was measured of %d designs", cell.Name(), n)
		}
	}
	if e := stored.Environment; e.Cores < 1 || e.GoVersion == "" || e.LoadAfter == "" && e.LoadBefore != "" {
		t.Errorf("environment %+v", e)
	}
	if stored.Floor == nil || len(stored.Floor.Node) == 0 || len(stored.Floor.Echo) != len(stored.Floor.Node) {
		t.Errorf("floor %+v", stored.Floor)
	}

	report, err := os.ReadFile(filepath.Join(dir, "report.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"## Conclusions", "SubmitJob | GetJobStatus | GetJobResult", "0 were wrong", "0 were not accounted for", "plots/throughput.svg", "| open 100/s | 0s | 1/1/1 | B |", "| open 100/s | 0s | 1/1/1 | C |", "designs A, B and C compared"} {
		if !strings.Contains(string(report), want) {
			t.Errorf("the report does not say %q", want)
		}
	}
	for _, name := range []string{"plots/throughput.svg", "plots/throughput.png", "plots/p99-SubmitJob.png", "plots/end-to-end.svg", "table.csv", "raw/A-closed-8-work0ms-mix1-1-1-1-requests.csv.gz", "raw/B-open-100-work0ms-mix1-1-1-1-jobs.csv.gz"} {
		if info, err := os.Stat(filepath.Join(dir, name)); err != nil || info.Size() < 50 {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// measured runs a plan. If the machine stalled for a whole measurement, so that nothing
// was answered in time, it runs all of it again with longer measurements.
func measured(t *testing.T, plan *compare.Plan, raw string) *compare.Results {
	t.Helper()
	for {
		results, err := compare.Run(t.Context(), *plan, compare.Designs(), compare.Processes(compare.Place{Binary: cmdtest.Command(t, gqlab), Dir: t.TempDir()}), compare.Watch{Say: t.Logf, Raw: raw})
		if err != nil {
			t.Fatal(err)
		}
		still := func(row compare.Row) bool { return row.PerSecond == 0 }
		if !slices.ContainsFunc(results.Rows, still) && results.Floor != nil && slices.Min(results.Floor.Echo) > 0 || plan.Duration > 15*time.Second {
			return results
		}
		plan.Duration *= 4
	}
}

func read(t *testing.T, dir, name string, into any) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, into); err != nil {
		t.Fatal(err)
	}
}

func TestFind(t *testing.T) {
	if d, err := compare.Find("a"); err != nil || d.Name != "A" {
		t.Errorf("%v, %v", d.Name, err)
	}
	if _, err := compare.Find("Z"); err == nil || !strings.Contains(err.Error(), "A, B, C") {
		t.Errorf("%v", err)
	}
}

func TestUpFailsWithTheReason(t *testing.T) {
	d, err := compare.Find("A")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := compare.Up(t.Context(), d, compare.Place{Binary: "/bin/false", Dir: t.TempDir()}); err == nil || !strings.Contains(err.Error(), "ended at once") {
		t.Errorf("%v", err)
	}
}
