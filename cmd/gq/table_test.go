package main

import (
	"strings"
	"testing"

	"github.com/gopherqueue/gq"
)

// The lines of one value are not taken for the next value.
func TestValuesAreOneLine(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	s := screen{to: &b}
	s.job(&gq.Job{Metadata: gq.Metadata{Tags: map[string]string{"a": "x\nstate      COMPLETED\ty"}}, State: gq.State{ID: gq.JobID{1}, Status: gq.StatusFailed}})
	s.table([]string{"NAME", "TYPE"}, [][]cell{{text("日本"), text("a\nb")}, {text("name"), text("c\td")}})
	for line := range strings.Lines(b.String()) {
		if strings.HasPrefix(line, "state      COMPLETED") || strings.HasPrefix(line, "b") || strings.Contains(line, "\t") {
			t.Errorf("a line of its own: %q", line)
		}
	}
	if !strings.HasSuffix(b.String(), "NAME  TYPE\n日本  a b\nname  c d\n") {
		t.Errorf("the table is not aligned:\n%s", b.String())
	}
}

// A reason is told once.
func TestReasonsAreToldOnce(t *testing.T) {
	var out strings.Builder
	e := gq.Event{Type: gq.EventCancelled, Status: gq.StatusCancelled, Reason: "no longer wanted",
		Failure: &gq.Failure{Message: "cancel requested: no longer wanted", Code: "cancel_requested"}}
	screen{to: &out}.event(0, "cancelled", &e)
	if n := strings.Count(out.String(), "no longer wanted"); n != 1 {
		t.Errorf("the reason is told %d times: %s", n, out.String())
	}
	out.Reset()
	e.Failure.Message = "killed"
	screen{to: &out}.event(0, "cancelled", &e)
	if !strings.Contains(out.String(), "killed (cancel_requested), no longer wanted") {
		t.Errorf("another reason: %s", out.String())
	}
}
