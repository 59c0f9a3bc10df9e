package main

import (
	"strings"
	"testing"
)

// On the command line a collision prints the existing id, is refused, or replaces the waiting job,
// and an edit prints the id of the copy.
func TestUniqueAndEdit(t *testing.T) {
	d := newShell(t)
	first := d.submit("sync", "--key", "a", "--unique", "live", "--delay", "1h")
	if again := d.submit("sync", "--key", "a", "--unique", "live", "--delay", "1h"); again != first {
		t.Errorf("existing: %s, want %s", again, first)
	}
	if got := d.gq("submit", "sync", "--key", "a", "--unique", "live", "--on-collision", "refuse"); got.status != 5 || !strings.Contains(got.stderr, first) {
		t.Errorf("refused: %+v", got)
	}
	next := d.submit("sync", "--key", "a", "--unique", "waiting", "--on-collision", "replace", "--delay", "1h")
	if got := d.want(0, "job", "get", first); !strings.Contains(got, "CANCELLED") || !strings.Contains(got, next) {
		t.Errorf("replaced:\n%s", got)
	}
	if got := d.want(0, "job", "get", next); !strings.Contains(got, "replaces") || !strings.Contains(got, first) || !strings.Contains(got, "while waiting") {
		t.Errorf("successor:\n%s", got)
	}
	edited := strings.TrimSpace(d.want(0, "job", "edit", next, "--queue", "slow", "--payload", `{"n":1}`))
	if got := d.want(0, "job", "get", edited); edited == next || !strings.Contains(got, "slow") || !strings.Contains(got, `{"n":1}`) {
		t.Errorf("edited:\n%s", got)
	}
	one := d.submit("sync", "--payload", `{"customer":7,"n":1}`, "--unique-by", "customer")
	if same := d.submit("sync", "--payload", `{"customer":7,"n":2}`, "--unique-by", "customer"); same != one {
		t.Errorf("by fields: %s, want %s", same, one)
	}
	for args, field := range map[string]string{
		"--delay 1h --at 2030-01-31T12:00:00Z":       "delay: cannot be given together with --at; give one of them",
		"--delay 0s --at tomorrow":                   `at: "tomorrow" is not an instant`,
		"--key b --unique always":                    "unique",
		"--key b --unique live --on-collision fight": "on-collision",
		"--key b --unique period":                    "unique-for",
		"--unique live":                              "unique",
	} {
		if got := d.gq(append([]string{"submit", "sync"}, strings.Fields(args)...)...); got.status != 2 || !strings.Contains(got.stderr, field) {
			t.Errorf("%s: %+v", args, got)
		}
	}
	if got := d.gq("job", "edit", edited, "--queue", "fast", "--content-type", "text/plain"); got.status != 2 || !strings.Contains(got.stderr, "content-type: needs --payload") {
		t.Errorf("a content type without a payload: %+v", got)
	}
	if got := d.gq("job", "edit", first, "--queue", "slow"); got.status != 5 {
		t.Errorf("an edit of a job that ended: %+v", got)
	}
}
