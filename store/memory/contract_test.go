package memory_test

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/gopherqueue/gq/internal/testing/race"
	"github.com/gopherqueue/gq/store"
	"github.com/gopherqueue/gq/store/memory"
	"github.com/gopherqueue/gq/store/storetest"
)

func backend() storetest.Backend {
	b := storetest.Backend{Open: func(t testing.TB, cfg store.Config) store.Store {
		s, err := memory.Open(cfg)
		if err != nil {
			t.Fatalf("open: %v", err)
		}
		return s
	}}
	if race.Share() {
		b.Stories = 60 // enough to cover everything
	}
	return b
}

func TestContract(t *testing.T) { storetest.Run(t, backend()) }

func TestModel(t *testing.T) {
	race.Spare(t)
	storetest.RunModel(t, backend())
}

// Tests that use this store must not have to build a database or its driver.
func TestDependencies(t *testing.T) {
	out, err := exec.Command("go", "list", "-deps", "github.com/gopherqueue/gq/store/memory").Output()
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
