package local

import (
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/internal/testing/leaktest"
	"github.com/gopherqueue/gq/machine"
	"github.com/gopherqueue/gq/store"
)

// TestMain fails the package if a goroutine outlives its tests.
func TestMain(m *testing.M) { leaktest.Main(m) }

// TestNothingLeaks opens and closes stores repeatedly.
func TestNothingLeaks(t *testing.T) {
	dir := t.TempDir()
	garbage := filepath.Join(dir, "garbage")
	write(t, garbage, formatFile, "no format")
	use := func(s *Store, err error, n byte) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		out, err := s.Insert(t.Context(), []store.Group{store.One(gq.Spec{ID: machine.NewJobID([16]byte{n}), Type: "t"}.WithDefaults())})
		if err != nil || out[0].Err != nil {
			t.Fatalf("insert: %v %+v", err, out)
		}
		for range 2 { // closing twice is fine
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
		}
	}
	round := func(n byte) {
		s, err := OpenMemory(Options{})
		use(s, err, n)
		s, err = Open(filepath.Join(dir, "store"), Options{})
		use(s, err, n)
		if _, err := Open(garbage, Options{}); err == nil {
			t.Fatal("garbage was opened")
		}
	}
	round(0)
	files := openFiles(t)
	for n := range byte(50) {
		round(n + 1)
	}
	if err := leaktest.Find(); err != nil {
		t.Errorf("goroutines are left: %v", err)
	}
	if now := openFiles(t); now > files {
		t.Errorf("%d files are open after 50 stores, %d after one", now, files)
	}
}

// openFiles counts the open descriptors of this process, 0 if that is unknown.
func openFiles(t *testing.T) int {
	t.Helper()
	if runtime.GOOS != "linux" {
		return 0
	}
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Logf("open files cannot be counted: %v", err)
	}
	return len(entries)
}
