package main

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/gopherqueue/gq/internal/bench"
	"github.com/gopherqueue/gq/internal/testing/cmdtest"
)

// The names are an interface too: see benchFields.
var benchServerFields = strings.Fields(`
	batch slots in_process_jobs in_process_jobs_per_second jobs jobs_per_second ratio
	callers echo_calls echo_calls_per_second submit_calls submit_calls_per_second submit_ratio
	echo_ms.calls echo_ms.p50 echo_ms.p95 echo_ms.p99 echo_ms.max
	submit_ms.calls submit_ms.p50 submit_ms.p95 submit_ms.p99 submit_ms.max
	submit_to_start_ms.calls submit_to_start_ms.p50 submit_to_start_ms.p95 submit_to_start_ms.p99 submit_to_start_ms.max
	submit_alone_ms.calls submit_alone_ms.p50 submit_alone_ms.p95 submit_alone_ms.p99 submit_alone_ms.max
	repeats.runs repeats.least repeats.most`)

// A server that the benchmark starts is this program again, so the test uses the built
// one.
func TestBenchStartsAServer(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "new")
	text, err := exec.Command(cmdtest.Program(t), "bench", "--server", "--store", "file:"+dir, "--jobs", "40", "--batch", "5", "--json").Output()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(dir); !os.IsNotExist(err) {
		t.Errorf("the directory was missing before the run and is not now (%v)", err)
	}
	var object struct{ Server map[string]any }
	var r bench.Report
	if err := json.Unmarshal(text, &object); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, &r); err != nil {
		t.Fatal(err)
	}
	found := map[string]bool{}
	collectFields("", object.Server, found)
	for _, name := range benchServerFields {
		if !found[name] {
			t.Errorf("field %s is missing", name)
		}
		delete(found, name)
	}
	for name := range found {
		t.Errorf("field %s is not in the list of this test", name)
	}
	if s := r.Server; s == nil || len(r.Cycle) > 0 || s.Jobs != 40 || s.NearJobs != 40 || s.SubmitCalls != 40 || s.Ratio <= 0 || s.SubmitRatio <= 0 {
		t.Errorf("%s\nwant scenario server alone, with 40 jobs", text)
	}
}

func TestBenchOfARunningServer(t *testing.T) {
	s := startServer(t, nil, "--store", "memory:")
	got := gqIn(t.Context(), t.TempDir(), "bench", "--addr", s.grpc, "--store", "memory:", "--jobs", "40")
	if got.status != 0 || strings.Count(got.stdout, "ratio ") != 2 {
		t.Errorf("%+v, want two ratios", got)
	}
	for _, line := range []string{"worker in this process", "on the Work stream", "bare gRPC echo", "unary submit", "submit to handler, idle"} {
		if !strings.Contains(got.stdout, "\n  "+line+"  ") {
			t.Errorf("%q is missing in\n%s", line, got.stdout)
		}
	}
	// Other jobs are not touched.
	if got := s.gq("submit", "theirs", "--queue", "bench"); got.status != 0 {
		t.Fatalf("%+v", got)
	}
	got = gqIn(t.Context(), t.TempDir(), "bench", "--addr", s.grpc, "--store", "memory:", "--jobs", "40")
	if got.status != 5 || !strings.Contains(got.stderr, "1 jobs that are not ours") {
		t.Errorf("%+v, want a refusal", got)
	}
	s.Signal(syscall.SIGTERM)
	s.Ended()
	got = gqIn(t.Context(), t.TempDir(), "bench", "--addr", s.grpc, "--store", "memory:", "--jobs", "40")
	if got.status != 4 || got.stdout != "" {
		t.Errorf("without a server: %+v", got)
	}
	got = gqIn(t.Context(), t.TempDir(), "bench", "--addr", s.grpc, "--server")
	if got.status != 2 || !strings.Contains(got.stderr, "cannot be combined") {
		t.Errorf("%+v", got)
	}
}
