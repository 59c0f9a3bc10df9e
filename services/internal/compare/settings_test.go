package compare_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/gopherqueue/gq/services/internal/compare"
	"github.com/gopherqueue/gq/services/internal/load"
)

func settingsFile(t *testing.T, lines ...string) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "settings.env")
	if err := os.WriteFile(name, []byte(strings.Join(lines, "\n")), 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

// The file that the Compose files read is the full plan, and says how it is written.
func TestSettingsOfTheFullPlan(t *testing.T) {
	const name = "../../../docker/settings.env"
	plan, err := compare.ReadSettings(name)
	if err != nil {
		t.Fatal(err)
	}
	full := compare.FullPlan()
	full.Relaunch = plan.Relaunch
	if diff := cmp.Diff(full, plan); diff != "" {
		t.Errorf("docker/settings.env is not the full plan (-plan +file):\n%s", diff)
	}
	raw, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(plan.SettingsText(), string(raw)); diff != "" {
		t.Errorf("docker/settings.env is not as a run writes it (-run +file):\n%s", diff)
	}
}

// Every setting changes the plan and comes back as it was written.
func TestEverySettingCounts(t *testing.T) {
	lines := []string{
		"TOTAL_WORKER_SLOTS=12", "NODE_SLOTS=2", "SERVER_SLOTS=4", "DESIGNS=B,A", "CONCURRENCY=2,3", "WORK_DURATION=5ms", "MIXES=submit=2,status=0,result=1;submit=1,status=9,result=0",
		"MIX_CLIENTS=7", "LOAD_WORK=15ms", "LOAD_MIX=submit=3,status=2,result=1", "REPETITIONS=5", "WARMUP=20ms", "DURATION=300ms", "DRAIN=9s", "PAYLOAD_SIZE_BYTES=0", "CONNECTIONS=3", "SEED=42", "RATE=0", "MAX_RATE=12.5", "LIMIT=2s",
		"BACKLOG=3s", "MAX_BACKLOG=11", "FLOOR_CLIENTS=0", "MAX_OUTPUT_BYTES=262144", "MAX_DEDUP_KEYS=10000",
		"HEARTBEAT_INTERVAL_MS=1000", "WORKER_TIMEOUT_MS=4000",
	}
	plan, err := compare.ReadSettings(settingsFile(t, lines...))
	if err != nil {
		t.Fatal(err)
	}
	want := compare.Plan{
		Slots: 12, Designs: []string{"B", "A"}, Concurrency: []int{2, 3}, Work: []time.Duration{5 * time.Millisecond},
		Mixes: []load.Mix{{Submit: 2, Result: 1}, {Submit: 1, Status: 9}}, MixClients: 7, LoadWork: 15 * time.Millisecond, LoadMix: load.Mix{Submit: 3, Status: 2, Result: 1}, Repetitions: 5, Relaunch: true,
		Warmup: 20 * time.Millisecond, Duration: 300 * time.Millisecond, Drain: 9 * time.Second, Connections: 3, Seed: 42,
		MaxRate: 12.5, Limit: 2 * time.Second, Backlog: 3 * time.Second, MaxBacklog: 11,
	}
	if diff := cmp.Diff(want, plan); diff != "" {
		t.Errorf("plan (-want +got):\n%s", diff)
	}
	var written []string
	for line := range strings.SplitSeq(plan.SettingsText(), "\n") {
		if line != "" && line[0] != '#' {
			written = append(written, line)
		}
	}
	if diff := cmp.Diff(lines, written); diff != "" {
		t.Errorf("written settings (-read +written):\n%s", diff)
	}
}

func TestSettingsAreChecked(t *testing.T) {
	_, err := compare.ReadSettings(settingsFile(t,
		"# a comment", "", "SLOTS=6", "SEED", "SEED=1", "SEED=x", "TOTAL_WORKER_SLOTS=8", "NODE_SLOTS=1", "DESIGNS=A,D", "WORK_DURATION=1us", "DURATION=0s",
		"MIXES=submit=0,status=1,result=1", "MAX_OUTPUT_BYTES=1", "PAYLOAD_SIZE_BYTES=262145", "RATE=-1", "WORKER_TIMEOUT_MS=5000"))
	if err == nil {
		t.Fatal("no fault")
	}
	for _, want := range []string{
		"settings.env:3: SLOTS is not a setting", `settings.env:4: "SEED" is not NAME=VALUE`, "settings.env:6: SEED is there twice",
		"TOTAL_WORKER_SLOTS: 8 is not a multiple of 6", "NODE_SLOTS: 1 in each of 6 makes 6, and TOTAL_WORKER_SLOTS is 8", `DESIGNS: design: "D" is not one of A, B, C`,
		"WORK_DURATION: 1µs is not in whole milliseconds", `DURATION: "0s" is not a time from 1ms to 1h`, "MIXES: mix:", `MAX_OUTPUT_BYTES: "1" is not 262144, which is part of the contract`,
		"PAYLOAD_SIZE_BYTES:", "RATE:", "SERVER_SLOTS is missing: it follows from TOTAL_WORKER_SLOTS", `WORKER_TIMEOUT_MS: "5000" is not 4000`,
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("the faults do not say %q:\n%v", want, err)
		}
	}
}

// A design starts with the slots of the settings.
func TestSlotsOfTheSettings(t *testing.T) {
	for _, d := range compare.Designs() {
		addrs := make([]string, d.Addresses)
		var found []string
		for _, p := range d.With(18).Processes(18, addrs) {
			for i, arg := range p.Args {
				if arg == "--slots" || arg == "--taskqueue-slots" {
					found = append(found, p.Args[i+1])
				}
			}
		}
		want := map[string]string{"A": "18", "B": "3 3 3 3 3 3", "C": "18"}[d.Name]
		if got := strings.Join(found, " "); got != want {
			t.Errorf("design %s starts with slots %s, want %s", d.Name, got, want)
		}
	}
}
