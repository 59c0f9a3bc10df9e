package main

import (
	"os"
	"strings"
	"testing"

	"github.com/gopherqueue/gq/internal/testing/spec"
)

// named returns the requirements that tests name in their sources. The report checks
// that those tests ran.
func named(t *testing.T) map[string]bool {
	t.Helper()
	sources := os.DirFS("../..")
	module, err := modulePath(sources, ".")
	if err != nil {
		t.Fatal(err)
	}
	mentions, err := scan(sources, module)
	if err != nil {
		t.Fatal(err)
	}
	ids := map[string]bool{}
	for _, m := range mentions {
		ids[m.id] = true
	}
	return ids
}

// TestTheJobModelIsBoundToChecks looks for every rule of the job model in the sources
// of the tests.
func TestTheJobModelIsBoundToChecks(t *testing.T) {
	spec.Covers(t, "J-02")
	tested := named(t)
	for _, r := range spec.All() {
		if strings.HasPrefix(r.ID, "J-") && !tested[r.ID] {
			t.Errorf("no test names %s: %s", r.ID, r.Statement)
		}
	}
}

// TestEveryMustOfMatchingIsTested looks for every MUST of the document on matching.
func TestEveryMustOfMatchingIsTested(t *testing.T) {
	spec.Covers(t, "M-02")
	must := strings.Fields(`M-15 M-19 M-21 M-40 M-47 M-59 M-60 M-63 M-70 M-71 M-72 M-73 M-74 M-77 M-83 M-89 M-90 M-98 M-99 M-109 M-119 M-120`)
	tested := named(t)
	known := map[string]bool{}
	for _, r := range spec.All() {
		known[r.ID] = true
	}
	for _, id := range must {
		if !known[id] {
			t.Errorf("%s is no requirement", id)
		}
		if !tested[id] {
			t.Errorf("no test names %s", id)
		}
	}
}
