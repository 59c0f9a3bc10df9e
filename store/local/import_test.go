package local

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/store"
)

// A directory whose creation for a copy was broken off stays one for a copy, also if a server had
// begun to create it.
func TestCreationForACopy(t *testing.T) {
	for _, begun := range []string{formatCopy, formatUnfinished} {
		dir := t.TempDir()
		format := filepath.Join(dir, formatFile)
		if err := os.WriteFile(format, []byte(formatPrefix+"2"+begun+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		filling := Options{Config: store.Config{Unfinished: true}}
		if begun == formatCopy {
			if _, err := Open(dir, Options{}); !errors.Is(err, gq.ErrUnfinished) {
				t.Errorf("a server opens it: %v", err)
			}
		}
		locked, err := Open(dir, filling)
		if err != nil {
			t.Fatal(err)
		}
		if text, err := os.ReadFile(format); err != nil || string(text) != formatPrefix+"2\n" {
			t.Errorf("the format file says %q, %v", text, err)
		}
		if err := locked.Close(); err != nil {
			t.Fatal(err)
		}
		if _, err := Open(dir, Options{}); !errors.Is(err, gq.ErrUnfinished) {
			t.Errorf("after%s a server opens it: %v", begun, err)
		}
	}
	// The format file says so before there is a database.
	dir := t.TempDir()
	s := &Store{dir: dir, config: store.Config{Unfinished: true}, disk: newGuard(vfs.Default, dir, 0, func(error) {})}
	lock, finished, err := s.claimDirectory()
	if err != nil || finished {
		t.Fatalf("finished %t, %v", finished, err)
	}
	if err := lock.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(dir, Options{}); !errors.Is(err, gq.ErrUnfinished) {
		t.Errorf("a server opens a directory that a copy has claimed: %v", err)
	}
}

// A copy into a directory that was there already can be killed at any moment: nobody takes what it leaves for a new
// store, and the next copy goes on.
func TestKilledCopyIntoAnEmptyDirectory(t *testing.T) {
	killed, filling := errors.New("killed"), store.Config{Unfinished: true}
	for n, done := 0, false; !done; n++ {
		if n == 1000 {
			t.Fatal("the copy never begins")
		}
		disk := vfs.NewMem()
		if err := disk.MkdirAll("db", 0o750); err != nil {
			t.Fatal(err)
		}
		faulty, left := &faultyFS{FS: disk}, n
		faulty.arm(func(string, string) error {
			if left == 0 {
				return killed
			}
			left--
			return nil
		})
		begun := &Store{dir: "db", config: filling, disk: newGuard(faulty, "db", 0, func(error) {})}
		lock, _, err := begun.claimDirectory()
		if done = err == nil; done {
			if err := lock.Close(); err != nil {
				t.Fatal(err)
			}
		}
		names, err := disk.List("db")
		if err != nil {
			t.Fatal(err)
		}
		if len(names) == 0 {
			continue // nothing was copied
		}
		if s, err := open("db", Options{fs: disk}); !errors.Is(err, gq.ErrUnfinished) {
			t.Errorf("after %d changes there are %v, and a server opens them: %v", n, names, err)
			if err == nil {
				_ = s.Close()
			}
			continue
		}
		s, err := open("db", Options{fs: disk, Config: filling})
		if err != nil {
			t.Fatalf("after %d changes there are %v, and the copy does not go on: %v", n, names, err)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		if names, err := disk.List("db"); err != nil || slices.Contains(names, copyMark) {
			t.Errorf("the mark is left: %v, %v", names, err)
		}
	}
}
