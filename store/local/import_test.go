package local

import (
	"errors"
	"os"
	"path/filepath"
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
