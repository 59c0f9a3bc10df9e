package pgtest

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

const orphanVariable = "GQ_PGTEST_ORPHAN"

// TestNoOrphan kills a test process that has started a server and checks that the
// server ends. The next process removes the files.
func TestNoOrphan(t *testing.T) {
	if os.Getenv(orphanVariable) != "" {
		c := Start(t)
		fmt.Fprintf(os.Stderr, "server=%d dir=%s\n", c.process.Pid, c.dir)
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		select {}
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), self, "-test.run=^TestNoOrphan$")
	cmd.Env = append(os.Environ(), orphanVariable+"=1")
	out, err := cmd.CombinedOutput()
	if err == nil {
		t.Fatalf("the process was not killed: %s", out)
	}
	var pid int
	var dir string
	_, line, _ := strings.Cut(string(out), "server=")
	if _, err := fmt.Sscanf(line, "%d dir=%s", &pid, &dir); err != nil {
		t.Fatalf("no server was started: %v\n%s", err, out)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	deadline := time.After(stopWithin)
	for tick := time.Tick(10 * time.Millisecond); alive(pid); {
		select {
		case <-tick:
		case <-deadline:
			_ = syscall.Kill(pid, syscall.SIGKILL)
			t.Fatalf("server %d has outlived its test process", pid)
		}
	}
	own := Start(t)
	// Another package's tests may be removing it right now.
	for limit := time.Now().Add(stopWithin); ; {
		removeStale(filepath.Dir(dir))
		_, err := os.Stat(dir)
		if os.IsNotExist(err) {
			break
		}
		if time.Now().After(limit) {
			t.Fatalf("%s is still there: %v", dir, err)
		}
	}
	if _, err := os.Stat(own.data()); err != nil {
		t.Errorf("the directory of a running server is gone: %v", err)
	}
}

// alive reports whether a process runs. An ended process may still be listed if its new
// parent does not wait for it, as in some containers.
func alive(pid int) bool {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false
	}
	_, rest, _ := strings.Cut(string(text), ") ")
	return !strings.HasPrefix(rest, "Z") && !strings.HasPrefix(rest, "X")
}
