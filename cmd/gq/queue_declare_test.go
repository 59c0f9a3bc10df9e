package main

import (
	"encoding/json"
	"strings"
	"testing"
)

// Declaring queues and schedules from scripts and over HTTP keeps what an operator has changed,
// and uses the server's default preset.
func TestDeclare(t *testing.T) {
	s := startServer(t, nil, "--store", "memory:", "--default-preset", "resilient")
	read := func(args ...string) (got struct {
		Paused     bool
		MaxRunning int `json:"max_running"`
		MaxDepth   int `json:"max_depth"`
		Every      string
		Overlap    string
		Policy     struct{ Preset string }
	}) {
		t.Helper()
		if err := json.Unmarshal([]byte(s.gq(append(args, "--json")...).stdout), &got); err != nil {
			t.Fatal(err)
		}
		return got
	}
	if got := read("queue", "declare", "mail", "--max-running", "20"); got.MaxRunning != 20 || got.Policy.Preset != "resilient" {
		t.Errorf("declared as %+v", got)
	}
	s.gq("queue", "set", "mail", "--max-running", "3")
	s.gq("queue", "pause", "mail")
	if got := read("queue", "declare", "mail", "--max-running", "30", "--max-depth", "1000"); got.MaxRunning != 3 || !got.Paused || got.MaxDepth != 1000 {
		t.Errorf("declared again: %+v", got)
	}
	read("schedule", "declare", "nightly", "--every", "1h", "--type", "t")
	s.gq("schedule", "pause", "nightly")
	if got := read("schedule", "declare", "nightly", "--every", "2h", "--type", "t", "--overlap", "skip"); !got.Paused || got.Every != "2h0m0s" || got.Overlap != "skip" {
		t.Errorf("the schedule declared again: %+v", got)
	}
	s.gq("queue", "set", "fast", "--aging", "10m")
	got := gqIn(t.Context(), t.TempDir(), "queue", "declare", "fast", "--fair", "--addr", s.grpc)
	if got.status != 2 || !strings.Contains(got.stderr, "operator") || !strings.Contains(got.stderr, "aging") {
		t.Errorf("a declaration that contradicts an operator: %+v", got)
	}
}
