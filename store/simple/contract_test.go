package simple

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/gopherqueue/gq/internal/testing/leaktest"
	"github.com/gopherqueue/gq/internal/testing/race"
	"github.com/gopherqueue/gq/store/storetest"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

func TestContract(t *testing.T) { storetest.Run(t, backend(nil)) }

func TestModel(t *testing.T) {
	race.Spare(t)
	storetest.RunModel(t, backend(nil))
}

// Tests that use this store must not have to build a database or its driver.
func TestDependencies(t *testing.T) {
	out, err := exec.Command("go", "list", "-deps", "github.com/gopherqueue/gq/store/simple").Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	for pkg := range strings.FieldsSeq(string(out)) {
		first, _, _ := strings.Cut(pkg, "/")
		if strings.Contains(first, ".") && !strings.HasPrefix(pkg, "github.com/gopherqueue/gq") {
			t.Errorf("the store depends on %s", pkg)
		}
	}
}
