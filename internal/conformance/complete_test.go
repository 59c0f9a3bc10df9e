package main

import (
	"os"
	"strings"
	"testing"

	"github.com/gopherqueue/gq/internal/spec"
)

// TestTheJobModelIsBoundToChecks looks for every rule of the job model in the
// sources of the tests. That those tests ran is for the report to see.
func TestTheJobModelIsBoundToChecks(t *testing.T) {
	spec.Covers(t, "J-02")
	sources := os.DirFS("../..")
	module, err := modulePath(sources)
	if err != nil {
		t.Fatal(err)
	}
	mentions, err := scan(sources, module)
	if err != nil {
		t.Fatal(err)
	}
	named := map[string]bool{}
	for _, m := range mentions {
		named[m.id] = true
	}
	for _, r := range spec.All() {
		if strings.HasPrefix(r.ID, "J-") && !named[r.ID] {
			t.Errorf("no test names %s: %s", r.ID, r.Statement)
		}
	}
}
