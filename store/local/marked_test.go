package local

import (
	"errors"
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
