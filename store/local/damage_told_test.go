package local

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gopherqueue/gq"
)

// onDisk writes the files of a fixture into a directory.
func (f *fixture) onDisk(t *testing.T) string {
	t.Helper()
	dir := resolve(t.TempDir())
	for name, content := range f.files {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// told checks that a text about a damaged file says which one it is and what to do, and nothing in Pebble's words.
func told(t *testing.T, what, text, file string, more ...string) {
	t.Helper()
	for _, part := range append(more, file, "gq restore BACKUP --store file:"+filepath.Dir(file)+"-restored") {
		if !strings.Contains(text, part) {
			t.Errorf("%s does not say %q: %s", what, part, text)
		}
	}
	for _, part := range []string{"\n", "carrier", "MANIFEST", "L0", "objstorage"} {
		if strings.Contains(strings.TrimSuffix(text, "\n"), part) {
			t.Errorf("%s says %q: %s", what, part, text)
		}
	}
}

// A table that has lost its end or is missing is refused in our words, and nothing is changed.
func TestShortTableIsTold(t *testing.T) {
	f := newFixture(t)
	tables := tablesIn(t, f.disk(t))
	if len(tables) < 2 {
		t.Fatalf("there are only the tables %v", tables)
	}
	for _, closed := range []bool{true, false} {
		for _, name := range tables[:2] {
			for what, damage := range map[string]func(path string) error{
				"has":        func(path string) error { return os.Truncate(path, int64(len(f.files[name])-10)) },
				"is missing": os.Remove,
			} {
				dir := f.onDisk(t)
				if !closed {
					if err := os.Remove(filepath.Join(dir, inventoryFile)); err != nil {
						t.Fatal(err)
					}
				}
				path := filepath.Join(dir, name)
				if err := damage(path); err != nil {
					t.Fatal(err)
				}
				before := filesIn(t, dir)
				_, err := Open(dir, Options{Config: f.config})
				if !errors.Is(err, gq.ErrCorrupt) {
					t.Fatalf("closed %t, %s %s: %v", closed, name, what, err)
				}
				says := []string{what, "nothing was changed"}
				if closed {
					says[0] = "is not as it was when the store was closed"
				} else if what == "has" {
					says[0] = fmt.Sprintf("has %d bytes instead of %d", len(f.files[name])-10, len(f.files[name]))
				}
				told(t, "the refusal", err.Error(), path, says...)
				for file, content := range filesIn(t, dir) {
					if !bytes.Equal(content, before[file]) {
						t.Errorf("the refusal has changed %s", file)
					}
					delete(before, file)
				}
				if len(before) > 0 {
					t.Errorf("the refusal has removed %d files", len(before))
				}
			}
		}
	}
}

func filesIn(t *testing.T, dir string) map[string][]byte {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	files := make(map[string][]byte)
	for _, e := range entries {
		content, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			t.Fatal(err)
		}
		files[e.Name()] = content
	}
	return files
}

// A damaged block that is noticed only when it is read fails the store. The caller, later callers and the log are told in
// our words.
func TestDamagedBlockIsTold(t *testing.T) {
	f := newFixture(t)
	dir, path := f.onDisk(t), ""
	for _, name := range tablesIn(t, f.disk(t)) {
		content := bytes.Clone(f.files[name])
		if at := bytes.Index(content, []byte("sent")); at >= 0 { // a result
			content[at] ^= 1
			path = filepath.Join(dir, name)
			if err := os.WriteFile(path, content, 0o600); err != nil {
				t.Fatal(err)
			}
			break
		}
	}
	if path == "" {
		t.Fatal("no table has a result")
	}
	var log bytes.Buffer
	s, err := Open(dir, Options{Config: f.config, Log: slog.New(slog.NewTextHandler(&log, nil))})
	if err != nil {
		t.Fatal(err)
	}
	found, err := s.Get(t.Context(), f.asks.jobs, gq.WithResult)
	if err != nil {
		t.Fatal(err)
	}
	noticed := 0
	for i := range found {
		if err := found[i].Err; err != nil && !errors.Is(err, gq.ErrNotFound) {
			if noticed++; !errors.Is(err, gq.ErrCorrupt) {
				t.Errorf("not reported as damage: %v", err)
			}
			told(t, "the answer", err.Error(), path, "the store writes nothing more")
		}
	}
	if noticed == 0 {
		t.Fatal("nobody has noticed the damage")
	}
	_, err = s.Counts(t.Context())
	if !errors.Is(err, gq.ErrStoreFailed) {
		t.Errorf("the store has not failed: %v", err)
	}
	told(t, "a later answer", fmt.Sprint(err), path, "checksum mismatch")
	_ = s.Close() // it has failed
	for line := range strings.Lines(log.String()) {
		if strings.Contains(line, path) {
			told(t, "the log", line, path)
		}
	}
	if !strings.Contains(log.String(), "store failed") || !strings.Contains(log.String(), path) {
		t.Errorf("the log does not name %s: %s", path, log.String())
	}
}
