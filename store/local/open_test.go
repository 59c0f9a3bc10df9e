package local

import (
	"bufio"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/internal/errs"
	"github.com/gopherqueue/gq/machine"
	"github.com/gopherqueue/gq/store"
)

// TestOpenRefuses lists what a store must not touch. The error names the culprit, and
// nothing changes.
func TestOpenRefuses(t *testing.T) {
	for _, c := range []struct {
		name  string
		build func(t *testing.T, dir string) // dir exists and is empty
		open  string                         // relative to dir
		want  error
		names string // what the error must name
	}{
		{"a directory with a file", func(t *testing.T, dir string) {
			write(t, dir, "notes.txt", "mine")
		}, "", gq.ErrFormat, "notes.txt"},
		{"a directory with a hidden file", func(t *testing.T, dir string) {
			write(t, dir, ".profile", "mine")
		}, "", gq.ErrFormat, ".profile"},
		{"a repository", func(t *testing.T, dir string) {
			write(t, dir, ".git/HEAD", "ref: refs/heads/main\n")
			write(t, dir, ".git/objects/aa/bb", "blob")
		}, "", gq.ErrFormat, ".git"},
		{"another Pebble database", func(t *testing.T, dir string) {
			write(t, dir, "MANIFEST-000001", "")
			write(t, dir, "LOCK", "")
		}, "", gq.ErrFormat, "MANIFEST-000001"},
		{"a file", func(t *testing.T, dir string) {
			write(t, dir, "queue.db", "SQLite format 3")
		}, "queue.db", gq.ErrFormat, "queue.db"},
		{"a path through a file", func(t *testing.T, dir string) {
			write(t, dir, "queue.db", "SQLite format 3")
		}, "queue.db/store", gq.ErrFormat, "queue.db"},
		{"a newer format", func(t *testing.T, dir string) {
			write(t, dir, formatFile, "gopherqueue store format 3\n")
			write(t, dir, "MANIFEST-000001", "of the future")
		}, "", gq.ErrFormat, "format 3"},
		{"an older format", func(t *testing.T, dir string) {
			write(t, dir, formatFile, "gopherqueue store format 1\n")
		}, "", gq.ErrFormat, formatFile},
		{"garbage for a format", func(t *testing.T, dir string) {
			write(t, dir, formatFile, "\x00\xff\x00\xff"+strings.Repeat("x", 1<<20))
		}, "", gq.ErrFormat, formatFile},
		{"an empty format file", func(t *testing.T, dir string) {
			write(t, dir, formatFile, "")
		}, "", gq.ErrFormat, formatFile},
		{"a directory for a lock", func(t *testing.T, dir string) {
			write(t, dir, "LOCK/x", "")
		}, "", gq.ErrFormat, "LOCK"},
		{"a directory for a format file", func(t *testing.T, dir string) {
			write(t, dir, formatFile+"/x", "")
		}, "", gq.ErrFormat, formatFile},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			c.build(t, dir)
			before := listing(t, dir)
			s, err := Open(filepath.Join(dir, c.open), Options{})
			if err == nil {
				_ = s.Close()
			}
			if !errors.Is(err, c.want) || !strings.Contains(err.Error(), c.names) || !strings.Contains(err.Error(), dir) {
				t.Errorf("Open: %v; want %q that names %s", err, c.want, c.names)
			}
			if diff := cmp.Diff(before, listing(t, dir)); diff != "" {
				t.Errorf("Open changed a directory that it refused (-before +after):\n%s", diff)
			}
		})
	}
}

func TestOpenWithoutDirectory(t *testing.T) {
	if _, err := Open("", Options{}); !errors.Is(err, gq.ErrInvalid) {
		t.Errorf("Open of nothing: %v", err)
	}
}

// TestOpenMakes lists where a store can be created.
func TestOpenMakes(t *testing.T) {
	for name, build := range map[string]func(t *testing.T, dir string) string{
		"an empty directory":        func(t *testing.T, dir string) string { return dir },
		"a missing directory":       func(t *testing.T, dir string) string { return filepath.Join(dir, "a") },
		"missing parents":           func(t *testing.T, dir string) string { return filepath.Join(dir, "a", "b", "c") },
		"the root of a file system": func(t *testing.T, dir string) string { write(t, dir, "lost+found/x", ""); return dir },
		"what a crash left half made": func(t *testing.T, dir string) string {
			write(t, dir, formatFile+".new", "gopherq")
			write(t, dir, "LOCK", "")
			return dir
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := build(t, t.TempDir())
			for i := range 3 {
				s, err := Open(dir, Options{})
				if err != nil {
					t.Fatalf("Open %d: %v", i+1, err)
				}
				id := machine.NewJobID([16]byte{byte(i)})
				out, err := s.Insert(t.Context(), []store.Group{store.One(gq.Spec{ID: id, Type: "t"}.WithDefaults())})
				if err != nil || out[0].Err != nil {
					t.Fatalf("insert: %v %+v", err, out)
				}
				if counts, err := s.Counts(t.Context()); err != nil || counts[0].Live() != int64(i)+1 {
					t.Errorf("after Open %d: %v %v", i+1, counts, err)
				}
				if err := s.Close(); err != nil {
					t.Errorf("Close: %v", err)
				}
			}
		})
	}
}

// write creates a file and its parent directories.
func write(t *testing.T, dir, name, content string) {
	t.Helper()
	path := filepath.Join(dir, filepath.FromSlash(name))
	if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}

// listing describes every file below a directory.
func listing(t *testing.T, dir string) map[string]string {
	t.Helper()
	files := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		sum := [sha256.Size]byte{}
		if info.Mode().IsRegular() {
			content, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			sum = sha256.Sum256(content)
		}
		files[path] = fmt.Sprintf("%s %d %s %x", info.Mode(), info.Size(), info.ModTime(), sum)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// openIn turns the test binary into another process that opens a directory.
const openIn = "GQ_TEST_OPEN_IN"

// TestOpenInUse opens a directory twice, in this process and in another.
func TestOpenInUse(t *testing.T) {
	if dir := os.Getenv(openIn); dir != "" {
		holdStore(t, dir)
		return
	}
	dir := t.TempDir()
	s, err := Open(dir, Options{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Open(dir, Options{}); !errors.Is(err, gq.ErrInUse) || !strings.Contains(err.Error(), dir) || !strings.Contains(err.Error(), "this process has already opened the store") {
		t.Errorf("second Open: %v", err)
	}
	if _, err := Open(filepath.Join(dir, "..", filepath.Base(dir)), Options{}); !errors.Is(err, gq.ErrInUse) {
		t.Errorf("second Open by another name: %v", err)
	}
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(dir, link); err != nil {
		t.Logf("no links here: %v", err)
	} else if _, err := Open(link, Options{}); !errors.Is(err, gq.ErrInUse) {
		t.Errorf("second Open through a link: %v", err)
	}
	child := startHolder(t, dir)
	if line := child.line(); !strings.HasPrefix(line, "in_use ") || !strings.Contains(line, dir) {
		t.Errorf("Open in another process: %s", line)
	}
	child.wait()
	if err := s.PutQueue(t.Context(), machine.NewQueue("q")); err != nil {
		t.Errorf("after refused Opens: %v", err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}

	// Once it is closed, the other process can open it. What that acknowledged survives
	// its kill.
	child = startHolder(t, dir)
	var jobs []store.Ref
	for line := child.line(); ; line = child.line() {
		id, err := gq.ParseJobID(strings.TrimPrefix(line, "inserted "))
		if err != nil {
			t.Fatalf("the other process says: %s", line)
		}
		if jobs = append(jobs, store.Ref{Job: id}); len(jobs) == 20 {
			break
		}
	}
	if _, err := Open(dir, Options{}); !errors.Is(err, gq.ErrInUse) {
		t.Errorf("Open while another process has it: %v", err)
	}
	if err := child.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	child.wait()
	if s, err = Open(dir, Options{}); err != nil {
		t.Fatalf("Open after the other process died: %v", err)
	}
	found, err := s.Get(t.Context(), jobs, 0)
	if err != nil {
		t.Fatal(err)
	}
	for i, f := range found {
		if f.Err != nil {
			t.Errorf("job %s, acknowledged before the process was killed: %v", jobs[i].Job, f.Err)
		}
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

// holdStore opens the store, reports how that went, and inserts until killed.
func holdStore(t *testing.T, dir string) {
	s, err := Open(dir, Options{})
	if err != nil {
		fmt.Println(errs.CodeOf(err), err) //nolint:forbidigo // to the process that started this one
		return
	}
	defer s.Close()
	for i := range 1_000_000 {
		id := machine.NewJobID([16]byte{byte(i), byte(i >> 8), byte(i >> 16)})
		out, err := s.Insert(context.Background(), []store.Group{store.One(gq.Spec{ID: id, Type: "t"}.WithDefaults())})
		if err != nil || out[0].Err != nil {
			t.Fatalf("insert: %v %+v", err, out)
		}
		fmt.Println("inserted", id) //nolint:forbidigo // to the process that started this one
	}
}

type holder struct {
	t   *testing.T
	cmd *exec.Cmd
	out *bufio.Scanner
}

func startHolder(t *testing.T, dir string) *holder {
	t.Helper()
	cmd := exec.Command(os.Args[0], "-test.run=^TestOpenInUse$")
	cmd.Env = append(os.Environ(), openIn+"="+dir)
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	return &holder{t, cmd, bufio.NewScanner(out)}
}

func (h *holder) line() string {
	h.t.Helper()
	if !h.out.Scan() {
		h.t.Fatalf("the other process said no more: %v", h.out.Err())
	}
	return h.out.Text()
}

func (h *holder) wait() {
	for h.out.Scan() { // read the rest of its output
	}
	_ = h.cmd.Wait() // it may have been killed
}
