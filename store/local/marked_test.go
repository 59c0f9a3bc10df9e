package local

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/store"
)

// A copy that is killed after any of its first steps leaves no directory, or one that is not taken
// for a new store. The same copy continues.
func TestKilledCopyIsNoNewStore(t *testing.T) {
	filling := store.Config{Unfinished: true}
	refused := 0
	for step := range 40 {
		disk, done := vfs.NewMem(), 0
		killed := errorfs.Wrap(disk, errorfs.InjectorFunc(func(op errorfs.Op) error {
			if op.Kind.ReadOrWrite() == errorfs.OpIsRead {
				return nil
			}
			if done++; done > step {
				return errorfs.ErrInjected
			}
			return nil
		}))
		begun := func() (clean bool) {
			defer func() { clean = recover() == nil }()
			if s, err := Open("copies/one", Options{Config: filling, fs: killed}); err == nil {
				_ = s.Close()
			}
			return true
		}
		if !begun() { // the database has begun, long after the mark
			break
		}
		names, err := disk.List("copies")
		if err != nil || !slices.Contains(names, "one") {
			continue
		}
		if s, err := Open("copies/one", Options{fs: disk}); !errors.Is(err, gq.ErrUnfinished) {
			inside, _ := disk.List("copies/one")
			t.Errorf("after %d steps the store opened with %v: %q", step, err, inside)
			if err == nil {
				_ = s.Close()
			}
			continue
		}
		refused++
		s, err := Open("copies/one", Options{Config: filling, fs: disk})
		if err != nil {
			t.Fatalf("after %d steps: the copy does not continue: %v", step, err)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
	if refused == 0 {
		t.Error("no step left a directory")
	}
}

// A copy removes what another copy has left beside its directory, and nothing else.
func TestCopyRemovesOnlyItsOwn(t *testing.T) {
	filling := store.Config{Unfinished: true}
	for what, c := range map[string]struct {
		made    string // below the directory's parent
		refused bool
	}{
		"a copy":    {"one" + partialSuffix + "/" + formatFile, false},
		"a file":    {"one" + partialSuffix, true},
		"a letter":  {"one" + partialSuffix + "/letter", true},
		"something": {"two" + partialSuffix + "/letter", false},
	} {
		parent := t.TempDir()
		path := filepath.Join(parent, filepath.FromSlash(c.made))
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, nil, 0o600)); err != nil {
			t.Fatal(err)
		}
		s, err := Open(filepath.Join(parent, "one"), Options{Config: filling})
		if err == nil {
			err = s.Close()
		}
		if (err != nil) != c.refused {
			t.Errorf("beside %s: %v; want it refused: %t", what, err, c.refused)
		}
		if _, err := os.Stat(path); (err == nil) == (what == "a copy") {
			t.Errorf("beside %s: afterwards it is %v", what, err)
		}
	}
}
