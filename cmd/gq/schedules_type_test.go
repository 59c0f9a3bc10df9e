package main

import (
	"strings"
	"testing"
)

// What is missing has the name of its flag.
func TestScheduleWithoutType(t *testing.T) {
	d := newShell(t)
	for _, verb := range []string{"set", "declare"} {
		got := d.gq("schedule", verb, "nightly", "--cron", "@daily")
		if got.status != 2 || !strings.Contains(got.stderr, "give --type") {
			t.Errorf("%s: %+v", verb, got)
		}
	}
}
