package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// A job whose first attempt has not started in time is cancelled; the deadline is its own or its
// queue's.
func TestStartWithin(t *testing.T) {
	d := newShell(t)
	q := d.json("queue", "set", "quotes", "--start-within", "30m")
	if policy, _ := q["policy"].(map[string]any); policy["start_within"] != "30m0s" {
		t.Errorf("%v", q)
	}
	id := d.submit("quote", "--queue", "quotes")
	if got := d.want(0, "job", "explain", id); !strings.Contains(got, "must start within") {
		t.Errorf("%s", got)
	}
	if got := d.gq("submit", "quote", "--queue", "quotes", "--delay", "30m"); got.status != 2 || !strings.Contains(got.stderr, "delay: 30m0s") || !strings.Contains(got.stderr, "policy.start_within") {
		t.Errorf("%+v", got)
	}
	if got := d.gq("submit", "quote", "--start-within", "-5s"); got.status != 2 || !strings.Contains(got.stderr, "start-within:") {
		t.Errorf("%+v", got)
	}
	late := d.submit("quote", "--start-within", (50 * time.Millisecond).String())
	if got := d.gq("job", "wait", late, "--timeout", "30s"); got.status != 1 || !strings.Contains(got.stdout, "CANCELLED: start_deadline") {
		t.Errorf("%+v", got)
	}
}

// A queue and a job say how long finished jobs are kept.
func TestKeep(t *testing.T) {
	d := newShell(t)
	if q := d.json("queue", "set", "pings", "--keep", "none"); q["policy"].(map[string]any)["retention"] != "none" {
		t.Errorf("%v", q)
	}
	if got := d.want(0, "queue", "show", "pings"); !strings.Contains(got, "keep") || !strings.Contains(got, "none") {
		t.Errorf("%s", got)
	}
	if got := d.gq("queue", "set", "pings", "--keep", "never"); got.status != 2 || !strings.Contains(got.stderr, "keep:") {
		t.Errorf("%+v", got)
	}
	id := d.submit("a", "--keep", "36h")
	job := d.json("job", "get", id)
	if policy, _ := job["policy"].(map[string]any); policy["retention"] != "36h0m0s" {
		t.Errorf("%v", job)
	}
	for _, bad := range []string{"never", "-1h"} {
		if got := d.gq("submit", "a", "--keep", bad); got.status != 2 || !strings.Contains(got.stderr, "keep") {
			t.Errorf("%s: %+v", bad, got)
		}
	}
	if q := d.json("queue", "set", "pings", "--keep", "0"); q["policy"].(map[string]any)["retention"] == "none" {
		t.Errorf("%v", q)
	}
}

// A job of a workflow that sets parts of its policy has the rest from the server, whose default
// the command line does not know.
func TestWorkflowPolicy(t *testing.T) {
	s := startServer(t, nil, "--store", "memory:", "--default-preset", "resilient")
	file := filepath.Join(t.TempDir(), "flow.json")
	submit := func(queue, policy string) outcome {
		t.Helper()
		if err := os.WriteFile(file, []byte(`{"jobs":[{"ref":"a","type":"t","queue":"`+queue+`","policy":`+policy+`}]}`), 0o600); err != nil {
			t.Fatal(err)
		}
		return s.gq("workflow", "submit", file)
	}
	var flow struct {
		Jobs []struct {
			Job struct {
				Policy struct {
					Preset           string
					MaxAttempts      int    `json:"max_attempts"`
					ExecutionTimeout string `json:"execution_timeout"`
				}
			}
		}
	}
	id := strings.TrimSpace(submit("known", `{"max_attempts":3,"execution_timeout":"0s"}`).stdout)
	if err := json.Unmarshal([]byte(s.gq("workflow", "show", id, "--json").stdout), &flow); err != nil {
		t.Fatal(err)
	}
	if p := flow.Jobs[0].Job.Policy; p.Preset != "resilient" || p.MaxAttempts != 3 || p.ExecutionTimeout != "0s" {
		t.Errorf("%+v", p)
	}
	if got := submit("unknown", `{"max_attempts":0}`); got.status != 2 || !strings.Contains(got.stderr, "max_attempts and lease_ttl above 0") {
		t.Errorf("no attempts: %+v", got)
	}
	if got := submit("unknown", `{"on_loss":"free"}`); got.status != 2 || !strings.Contains(got.stderr, "name the preset that has the other settings (policy.preset)") {
		t.Errorf("a setting that only a whole policy has: %+v", got)
	}
	if got := submit("unknown", `{"on_loss":"free","preset":"resilient"}`); got.status != 0 {
		t.Errorf("with a preset: %+v", got)
	}
}

// A signal to a workflow that has ended changes nothing, and the error says what to do.
func TestLateSignal(t *testing.T) {
	d := newShell(t)
	d.stdin = `{"name":"order","jobs":[{"ref":"approved","signal_within":"1h"},{"ref":"ship","type":"ship","needs":[{"ref":"approved"}]}]}`
	id := strings.TrimSpace(d.want(0, "workflow", "submit", "-"))
	d.want(0, "workflow", "cancel", id)
	before := d.want(0, "workflow", "show", id, "--json")
	got := d.gq("workflow", "signal", id, "approved")
	if got.status != 5 || !strings.Contains(got.stderr, `no longer waits for signal "approved"`) || !strings.Contains(got.stderr, "retry the workflow") {
		t.Errorf("%+v", got)
	}
	if after := d.want(0, "workflow", "show", id, "--json"); after != before {
		t.Errorf("it was\n%s\nand is\n%s", before, after)
	}
	d.want(0, "workflow", "retry", id)
	d.want(0, "workflow", "signal", id, "approved")
	if got := d.want(0, "workflow", "show", id); !strings.Contains(got, "COMPLETED") {
		t.Errorf("after a retry:\n%s", got)
	}
}
