package e2e_test

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/gopherqueue/gq/internal/testing/cmdtest"
)

// TestDamagedStore flips a bit in the log of a server that was killed long after its last
// response. The next server rejects the directory or, if allowed, discards what cannot be
// read and says what that is.
func TestDamagedStore(t *testing.T) {
	const jobs = 20
	dir := filepath.Join(t.TempDir(), "data")
	s := startServer(t, nil, "--data", dir)
	for n := range jobs {
		if out := s.gq("submit", "mail", "--payload", fmt.Sprintf(`{"n":%d}`, n)); out.status != 0 {
			t.Fatalf("submit: %+v", out)
		}
	}
	s.Signal(os.Kill)
	s.Ended()

	logs, err := filepath.Glob(filepath.Join(dir, "*.log"))
	if err != nil || len(logs) == 0 {
		t.Fatalf("there is no log: %v", err)
	}
	log := logs[len(logs)-1]
	content, err := os.ReadFile(log)
	if err != nil {
		t.Fatal(err)
	}
	content[len(bytes.TrimRight(content, "\x00"))/2] ^= 1
	if err := os.WriteFile(log, content, 0o600); err != nil {
		t.Fatal(err)
	}

	refused := exec.Command(cmdtest.Program(t), "serve", "--data", dir, "--http", "127.0.0.1:0", "--grpc", "127.0.0.1:0")
	out, err := refused.CombinedOutput()
	if err == nil || refused.ProcessState.ExitCode() < 1 {
		t.Errorf("a server on a damaged directory ended with %v\n%s", err, out)
	}
	for _, part := range []string{log, "damaged at byte", "gq restore", "--accept-loss"} {
		if !strings.Contains(string(out), part) {
			t.Errorf("the refusal does not say %q: %s", part, out)
		}
	}

	s = startServer(t, nil, "--data", dir, "--accept-loss")
	s.Signal(syscall.SIGTERM)
	if status := s.Ended(); status != 0 {
		t.Errorf("the server ended with %d", status)
	}
	for _, part := range []string{"acknowledged commits are given up", log, "loss="} {
		if !strings.Contains(s.Stderr.String(), part) {
			t.Errorf("the server does not log %q: %s", part, s.Stderr.String())
		}
	}
	s = startServer(t, nil, "--data", dir)
	s.Signal(syscall.SIGTERM)
	if status := s.Ended(); status != 0 {
		t.Errorf("the next server ended with %d\n%s", status, s.Stderr.String())
	}
}
