package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/internal/testing/spec"
	"github.com/gopherqueue/gq/internal/view"
)

// TestViews reads a job that a worker holds and has not started: as a job, in lists, its history
// and the events, in each view.
func TestViews(t *testing.T) {
	spec.Covers(t, "J-03", "Q-26")
	d := newShell(t)
	id := d.submit("t", "--queue", "q", "--payload", `{"n":1}`)
	if held, err := d.queue.Claim(t.Context(), gq.ClaimRequest{Worker: "w", Queues: []string{"q"}, N: 1, Hold: true}); err != nil || len(held) != 1 {
		t.Fatal(held, err)
	}
	for name, want := range map[string]struct{ state, other, members, events string }{
		"semantics": {"InFlight", "Ready", `id queue state retries MaxRetries lease_token lease_version LeaseExpiresAt LeaseTTL ExecutionTimeout`, "Ready InFlight"},
		"jobmodel":  {"SCHEDULED", "PENDING", `id created_at updated_at state attempt scheduled_at type priority payload timeouts`, "PENDING SCHEDULED"},
	} {
		job := d.json("job", "get", id, "--view", name)
		if got := slices.Sorted(maps.Keys(job)); !slices.Equal(got, slices.Sorted(strings.FieldsSeq(want.members))) || job["state"] != want.state {
			t.Errorf("%s: %v", name, job)
		}
		shown := d.want(0, "job", "get", id, "--view", name)
		for member := range strings.FieldsSeq(want.members) {
			if !strings.Contains(shown, member) {
				t.Errorf("%s: no %s in\n%s", name, member, shown)
			}
		}
		for _, state := range []string{want.state, strings.ToLower(want.state), want.other, want.state + "," + want.other} {
			listed := strings.Contains(strings.ToLower(state), strings.ToLower(want.state))
			page := d.json("job", "list", "--view", name, "--state", state)
			if all := page["jobs"].([]any); (len(all) == 1) != listed || listed && all[0].(map[string]any)["state"] != want.state {
				t.Errorf("%s: %s lists %v", name, state, page)
			}
			if got := d.want(0, "job", "list", "--view", name, "--state", state); strings.Contains(got, id) != listed || strings.Contains(got, "CLAIMED") {
				t.Errorf("%s: %s lists\n%s", name, state, got)
			}
		}
		for _, args := range [][]string{{"job", "events", id}, {"job", "history", id}, {"events"}, {"events", "--job", id}} {
			args = append(args, "--view", name)
			var got []string
			for line := range strings.Lines(d.want(0, append(args, "--json")...)) {
				var e map[string]any
				if err := json.Unmarshal([]byte(line), &e); err != nil || e["id"] != id {
					t.Errorf("%q: %v, %s", args, err, line)
				}
				got = append(got, fmt.Sprint(e["state"]))
			}
			if strings.Join(got, " ") != want.events {
				t.Errorf("%q: %v", args, got)
			}
			if text := d.want(0, args...); !strings.Contains(text, want.state) || strings.Contains(strings.ToUpper(text), "CLAIMED") {
				t.Errorf("%q:\n%s", args, text)
			}
		}
		if got := d.want(0, "events", "--view", name, "--state", strings.ToLower(want.state), "--json"); strings.Count(got, "\n") != 1 || !strings.Contains(got, want.state) {
			t.Errorf("%s: the events of one state are %s", name, got)
		}
		for _, args := range [][]string{
			{"job", "list", "--view", name, "--state", "CLAIMED"}, {"events", "--view", name, "--state", "CLAIMED"}, {"job", "get", id, "--view", name, "--payload"},
		} {
			d.want(2, args...)
		}
	}
	if got := d.want(0, "job", "list", "--view", "semantics"); !strings.Contains(got, "MaxRetries") || !strings.Contains(got, "LeaseExpiresAt") {
		t.Errorf("the headings are\n%s", got)
	}
	for _, args := range [][]string{{"job", "list"}, {"job", "get", id}, {"job", "wait", id}, {"job", "events", id}, {"events"}} {
		if got := d.gq(append(args, "--view", "x")...); got.status != 2 || !strings.Contains(got.stderr, "semantics") {
			t.Errorf("%q: %+v", args, got)
		}
	}
}

// A page by a state of a view that has more jobs than one call looks at is filled.
func TestViewPages(t *testing.T) {
	d := newShell(t)
	for range 3 {
		d.submit("t", "--queue", "q")
	}
	if _, err := d.queue.Claim(t.Context(), gq.ClaimRequest{Worker: "w", Queues: []string{"q"}, N: 2}); err != nil {
		t.Fatal(err)
	}
	first := d.json("job", "list", "--view", "semantics", "--state", "InFlight", "--limit", "1")
	second := d.json("job", "list", "--view", "semantics", "--state", "InFlight", "--limit", "1", "--cursor", fmt.Sprint(first["next_cursor"]))
	a, b := first["jobs"].([]any), second["jobs"].([]any)
	if len(a) != 1 || len(b) != 1 || a[0].(map[string]any)["id"] == b[0].(map[string]any)["id"] {
		t.Errorf("the pages are %v and %v", first, second)
	}
}

// The columns of tables are members that the views have.
func TestViewColumns(t *testing.T) {
	for _, v := range view.All() {
		for i, typ := range []reflect.Type{v.JobType, v.EventType} {
			known := map[string]bool{}
			for f := range typ.Fields() {
				name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
				known[name] = true
			}
			for column := range strings.FieldsSeq(viewColumns[v.Name][i]) {
				if !known[column] {
					t.Errorf("%s: no member %s", v.Name, column)
				}
			}
		}
	}
}

// TestWaitInAView prints how a job ended in the states of a view, and keeps the exit status.
func TestWaitInAView(t *testing.T) {
	d := newShell(t)
	done, stopped := d.submit("t", "--queue", "done"), d.submit("t", "--queue", "stopped")
	held, err := d.queue.Claim(t.Context(), gq.ClaimRequest{Worker: "w", Queues: []string{"done"}, N: 1})
	if err != nil || len(held) != 1 {
		t.Fatal(held, err)
	}
	if _, err := d.queue.Settle(t.Context(), []gq.Outcome{{Lease: held[0].State.Lease.Ref(), Verdict: gq.VerdictComplete, Result: []byte(`7`)}}); err != nil {
		t.Fatal(err)
	}
	d.want(0, "job", "cancel", stopped)
	for _, test := range []struct {
		id, view, state string
		status          int
	}{
		{done, "semantics", "Succeeded", 0}, {done, "jobmodel", "COMPLETED", 0}, {stopped, "semantics", "Failed", 1}, {stopped, "jobmodel", "CANCELLED", 1},
	} {
		if got := d.want(test.status, "job", "wait", test.id, "--view", test.view); !strings.Contains(got, test.state) {
			t.Errorf("%s:\n%s", test.view, got)
		}
		var job map[string]any
		if text := d.want(test.status, "job", "wait", test.id, "--view", test.view, "--json"); json.Unmarshal([]byte(text), &job) != nil || job["state"] != test.state {
			t.Errorf("%s: %s", test.view, text)
		}
	}
}
