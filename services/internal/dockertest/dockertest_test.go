//go:build linux

package dockertest

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/gopherqueue/gq/internal/testing/cmdtest"
)

// victimVariable makes this program run TestVictim with an engine, and says how that
// ends.
const victimVariable = "GQ_DOCKERTEST_VICTIM"

func TestMain(m *testing.M) {
	if os.Getenv(victimVariable) != "" {
		Main(m)
	}
	m.Run()
}

// TestVictim starts a container and ends badly.
func TestVictim(t *testing.T) {
	end := os.Getenv(victimVariable)
	if end == "" {
		return // the test below runs it
	}
	program := filepath.Join(t.TempDir(), "wait")
	if err := cmdtest.Build(program, "./testdata/wait"); err != nil {
		t.Fatal(err)
	}
	archive := exec.Command("sh", "-c", `tar -C "$(dirname "$1")" -c wait | docker import - wait`, "sh", program)
	if out, err := archive.CombinedOutput(); err != nil {
		t.Fatalf("import: %v\n%s", err, out)
	}
	Docker(t, "network", "create", "victims")
	Docker(t, "run", "--detach", "--network", "victims", "--publish", "127.0.0.1:7999:7999", "wait", "/wait")
	if state := Docker(t, "ps", "--format", "{{.State}} {{.Ports}}"); !strings.HasPrefix(state, "running 127.0.0.1:7999") {
		t.Fatalf("containers: %s", state)
	}
	fmt.Fprintf(os.Stdout, "victim in %s\n", os.Getenv(dirVariable))
	switch end {
	case "fail":
		t.Fatal("as it should")
	case "panic":
		panic("as it should")
	case "hang": // until the test that started it kills the processes it knows
		select {}
	}
}

// However tests end, no processes, mounts or files of their engine remain.
func TestNothingRemains(t *testing.T) {
	t.Parallel()
	for _, end := range []string{"fail", "panic", "hang"} {
		t.Run(end, func(t *testing.T) {
			t.Parallel()
			c := exec.Command(os.Args[0], "-test.run=^TestVictim$", "-test.v")
			c.Env = append(os.Environ(), victimVariable+"="+end)
			out := &output{seen: make(chan struct{})}
			c.Stdout, c.Stderr = out, out
			if err := c.Start(); err != nil {
				t.Fatal(err)
			}
			if end == "hang" {
				select {
				case <-out.seen:
				case <-time.After(5 * time.Minute):
				}
				_ = c.Process.Kill() // as go test does on a timeout
			}
			err := c.Wait()
			dir := out.dir()
			if dir == "" {
				t.Fatalf("no container ran: %v\n%s", err, out.text.String())
			}
			if exit := (*exec.ExitError)(nil); !errors.As(err, &exit) {
				t.Errorf("ended with %v\n%s", err, out.text.String())
			}
			gone(t, "processes", func() []string { return processes(dir) })
			gone(t, "mounts", func() []string { return mounts(t, dir) })
			if end == "hang" { // no process was left to remove it
				if err := clean(dir); err != nil {
					t.Error(err)
				}
			}
			if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("%s is still there: %v", dir, err)
			}
		})
	}
}

// output collects what a victim prints.
type output struct {
	text bytes.Buffer
	seen chan struct{} // closed when its container runs
}

var victimLine = regexp.MustCompile(`victim in (\S+)`)

func (o *output) Write(p []byte) (int, error) {
	n, err := o.text.Write(p)
	select {
	case <-o.seen:
	default:
		if o.dir() != "" {
			close(o.seen)
		}
	}
	return n, err
}

func (o *output) dir() string {
	if m := victimLine.FindStringSubmatch(o.text.String()); m != nil {
		return m[1]
	}
	return ""
}

// gone waits until something has disappeared: the kernel may need a moment.
func gone(t *testing.T, what string, find func() []string) {
	t.Helper()
	for deadline := time.Now().Add(2 * time.Minute); ; time.Sleep(20 * time.Millisecond) {
		found := find()
		if len(found) == 0 {
			return
		}
		if time.Now().After(deadline) {
			t.Errorf("%s remain: %v", what, found)
			return
		}
	}
}

// processes lists processes that name a directory in their arguments or environment.
func processes(dir string) (found []string) {
	for _, file := range []string{"cmdline", "environ"} {
		names, _ := filepath.Glob("/proc/[0-9]*/" + file) // the pattern is valid
		for _, name := range names {
			if text, err := os.ReadFile(name); err == nil && bytes.Contains(text, []byte(dir)) {
				found = append(found, name+" "+strings.ReplaceAll(string(text), "\x00", " "))
			}
		}
	}
	return found
}

func mounts(t *testing.T, dir string) (found []string) {
	t.Helper()
	text, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if strings.Contains(line, dir) {
			found = append(found, line)
		}
	}
	return found
}
