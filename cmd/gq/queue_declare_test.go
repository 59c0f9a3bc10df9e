package main

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/client"
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
		Policy     struct {
			Preset         string
			MaxAttempts    int `json:"max_attempts"`
			MaxLeaseLosses int `json:"max_lease_losses"`
			Backoff        struct{ Max string }
		}
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
	// A part of a policy changes that part of the server's default. Three attempts are also those
	// of the preset that a server has without a setting.
	full := gq.PresetResilient.Policy()
	check := func(how, name string) {
		t.Helper()
		got := read("queue", "show", name).Policy
		if got.Preset != "resilient" || got.MaxAttempts != 3 || got.MaxLeaseLosses != full.MaxLeaseLosses || got.Backoff.Max != full.Backoff.Max.String() {
			t.Errorf("%s: %+v", how, got)
		}
	}
	read("queue", "declare", "by-command", "--max-attempts", "3")
	check("gq queue declare", "by-command")
	answer, err := http.Post("http://"+s.http+"/v1/queues/by-http/declare", "application/json", strings.NewReader(`{"policy":{"max_attempts":3}}`))
	if err != nil {
		t.Fatal(err)
	}
	if answer.Body.Close(); answer.StatusCode != 200 {
		t.Fatal(answer.Status)
	}
	check("HTTP", "by-http")
	read("queue", "set", "by-set", "--max-attempts", "3")
	check("gq queue set", "by-set")
	remote, err := client.New(s.grpc, client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer remote.Close()
	for _, paused := range []bool{true, false} { // a new queue, and one with a policy
		q, err := remote.PutQueue(t.Context(), gq.Queue{Name: "put", Paused: paused})
		if err != nil || q.Policy != full {
			t.Errorf("put without a policy: %+v, %v", q, err)
		}
		q, err = remote.ChangeQueue(t.Context(), "put", func(q *gq.Queue) { q.Policy = gq.PresetSemantics.Policy() })
		if err != nil || q.Policy != gq.PresetSemantics.Policy() || q.Paused != paused {
			t.Errorf("changed to %+v, %v", q, err)
		}
	}
	if got := read("queue", "declare", "other", "--preset", "semantics", "--max-attempts", "7").Policy; got.Preset != "semantics" || got.MaxAttempts != 7 {
		t.Errorf("with a preset: %+v", got)
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
