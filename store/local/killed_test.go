package local_test

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/internal/testing/spec"
	"github.com/gopherqueue/gq/machine"
	"github.com/gopherqueue/gq/store"
	"github.com/gopherqueue/gq/store/local"
)

const (
	killedDir     = "GQ_TEST_KILLED_DIR"
	killedJobs    = 20_000
	killedCommits = 500
)

// TestSubmitUntilKilled is the process that TestDamageAfterKill kills: it submits jobs
// in commits of 500, reports each, and waits.
func TestSubmitUntilKilled(t *testing.T) {
	dir := os.Getenv(killedDir)
	if dir == "" {
		t.Skip("runs in a process of its own")
	}
	s, err := local.Open(dir, local.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for from := 0; from < killedJobs; from += killedCommits {
		groups := make([]store.Group, killedCommits)
		for i := range groups {
			var id [16]byte
			binary.BigEndian.PutUint32(id[:], uint32(from+i+1))
			groups[i] = store.One(gq.Spec{
				ID: machine.NewJobID(id), Type: "send", Payload: gq.Payload{Data: id[:], ContentType: "application/octet-stream"},
			}.WithDefaults())
		}
		out, err := s.Insert(context.Background(), groups)
		for _, o := range out {
			err = errors.Join(err, o.Err)
		}
		if err != nil {
			t.Fatalf("insert: %v", err)
		}
	}
	fmt.Println("acknowledged")
	select {} // until killed
}

// killed returns the files of a store whose process was killed right after its last
// commit was acknowledged.
func killed(t *testing.T) (files map[string][]byte, log string) {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "store")
	child := exec.Command(os.Args[0], "-test.run=^TestSubmitUntilKilled$")
	child.Env = append(os.Environ(), killedDir+"="+dir)
	child.Stderr = os.Stderr
	out, err := child.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	acknowledged := false
	for lines := bufio.NewScanner(out); !acknowledged && lines.Scan(); {
		acknowledged = lines.Text() == "acknowledged"
	}
	if err := child.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = child.Wait()
	if !acknowledged {
		t.Fatal("the jobs were not acknowledged")
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	files = map[string][]byte{}
	for _, e := range entries {
		if files[e.Name()], err = os.ReadFile(filepath.Join(dir, e.Name())); err != nil {
			t.Fatal(err)
		}
		if strings.HasSuffix(e.Name(), ".log") && len(files[e.Name()]) > 0 {
			log = max(log, e.Name())
		}
	}
	if log == "" {
		t.Fatal("there is no log")
	}
	return files, log
}

// unpack writes the files to a directory, with one of them replaced; nil removes it.
func unpack(t *testing.T, files map[string][]byte, name string, content []byte) string {
	t.Helper()
	dir := t.TempDir()
	for other, original := range files {
		if other == name {
			if original = content; original == nil {
				continue
			}
		}
		if err := os.WriteFile(filepath.Join(dir, other), original, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// served counts the jobs of a store.
func served(t *testing.T, s *local.Store) int {
	t.Helper()
	counts, err := s.Counts(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, c := range counts {
		n += int(c.Live())
	}
	return n
}

// killedDamages damage the log at a fraction of its length.
var killedDamages = []struct {
	name string
	do   func(log []byte, at int) []byte
}{
	{"a flipped bit", func(log []byte, at int) []byte { log[at] ^= 4; return log }},
	{"a zeroed block", func(log []byte, at int) []byte { clear(log[at:min(at+4096, len(log))]); return log }},
	{"a lost end", func(log []byte, at int) []byte { return log[:at] }},
}

// TestDamageAfterKill kills a process with kill -9 after it has acknowledged jobs,
// damages its newest log, and opens the store: it must serve all of them, or refuse and
// say where the damage is.
func TestDamageAfterKill(t *testing.T) {
	spec.Covers(t, "Q-01", "Q-03", "Q-66")
	files, log := killed(t)
	check := func(t *testing.T, content []byte) {
		t.Helper()
		dir := unpack(t, files, log, content)
		s, err := local.Open(dir, local.Options{})
		if err == nil {
			n := served(t, s)
			_ = s.Close()
			if n != killedJobs {
				t.Errorf("%d of %d acknowledged jobs are served, and nothing is said", n, killedJobs)
			}
			return
		}
		if !errors.Is(err, gq.ErrCorrupt) {
			t.Errorf("Open: %v, want %v", err, gq.ErrCorrupt)
		}
		for _, part := range []string{filepath.Join(dir, log), "gq restore", "--accept-loss"} {
			if !strings.Contains(err.Error(), part) {
				t.Errorf("the error does not name %s: %v", part, err)
			}
		}
	}
	t.Run("no damage", func(t *testing.T) {
		s, err := local.Open(unpack(t, files, log, files[log]), local.Options{})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		if n := served(t, s); n != killedJobs {
			t.Errorf("%d of %d acknowledged jobs are served", n, killedJobs)
		}
	})
	for _, percent := range []int{10, 30, 50, 70, 90, 99} {
		for _, d := range killedDamages {
			t.Run(fmt.Sprintf("%s at %d %%", d.name, percent), func(t *testing.T) {
				check(t, d.do(slices.Clone(files[log]), len(files[log])*percent/100))
			})
		}
	}
	// After a power cut SYNCED may be outdated or missing.
	proved := files
	files = maps.Clone(files)
	delete(files, "SYNCED")
	for _, percent := range []int{10, 30, 50, 70, 90} {
		t.Run(fmt.Sprintf("a flipped bit at %d %%, proved by later commits", percent), func(t *testing.T) {
			check(t, killedDamages[0].do(slices.Clone(files[log]), len(files[log])*percent/100))
		})
	}
	files = proved
	t.Run("a missing log", func(t *testing.T) { check(t, nil) })
	t.Run("the last byte", func(t *testing.T) {
		content := slices.Clone(files[log])
		end := len(content) - 1
		for content[end] == 0 {
			end--
		}
		content[end] ^= 1
		check(t, content)
	})
}

// lines collects log output.
type lines struct{ strings.Builder }

// TestAcceptLoss gives up what a damaged log has lost: the store opens with everything
// before the damage, reports the loss, and keeps the log.
func TestAcceptLoss(t *testing.T) {
	files, log := killed(t)
	for _, percent := range []int{0, 50, 90} {
		t.Run(fmt.Sprint(percent), func(t *testing.T) {
			content := slices.Clone(files[log])
			content[len(content)*percent/100+7] ^= 4
			dir := unpack(t, files, log, content)
			if _, err := local.Open(dir, local.Options{}); !errors.Is(err, gq.ErrCorrupt) {
				t.Fatalf("Open: %v, want %v", err, gq.ErrCorrupt)
			}
			var told lines
			s, err := local.Open(dir, local.Options{AcceptLoss: true, Log: slog.New(slog.NewTextHandler(&told, nil))})
			if err != nil {
				t.Fatal(err)
			}
			n := served(t, s)
			if n >= killedJobs || n%killedCommits != 0 || percent > 0 && n < killedJobs*(percent-10)/100 {
				t.Errorf("%d jobs are left of %d, in commits of %d, with damage at %d %%", n, killedJobs, killedCommits, percent)
			}
			for _, part := range []string{"given up", filepath.Join(dir, log), "offset_bytes=", "new jobs", "lost-" + log} {
				if !strings.Contains(told.String(), part) {
					t.Errorf("the log does not say %q: %s", part, told.String())
				}
			}
			if kept, err := os.ReadFile(filepath.Join(dir, "lost-"+log)); err != nil || !slices.Equal(kept, content) {
				t.Errorf("the damaged log was not kept: %v", err)
			}
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			again, err := local.Open(dir, local.Options{})
			if err != nil {
				t.Fatalf("the store does not open afterwards: %v", err)
			}
			defer again.Close()
			if left := served(t, again); left != n {
				t.Errorf("%d jobs are served afterwards, want %d", left, n)
			}
		})
	}
}
