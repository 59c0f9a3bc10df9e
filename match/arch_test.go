//go:build arch

package match_test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"testing"
)

// The results are the same with 32-bit words.
func TestAssignmentsWith32Bits(t *testing.T) {
	if runtime.GOOS != "linux" || runtime.GOARCH != "amd64" {
		t.Skipf("%s/%s does not run programs for linux/386", runtime.GOOS, runtime.GOARCH)
	}
	program := filepath.Join(t.TempDir(), "match.test")
	build := exec.CommandContext(t.Context(), "go", "test", "-c", "-vet=off", "-o", program, ".")
	build.Env = append(os.Environ(), "GOARCH=386", "CGO_ENABLED=0", "GOFLAGS=")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, out)
	}
	run := exec.CommandContext(t.Context(), program, "-test.v", "-test.run", "^(TestAssignments|Test[A-Z][a-z]+Vectors?)$")
	out, err := run.CombinedOutput()
	if err != nil || !bytes.Contains(out, []byte("--- PASS: TestAssignments ")) || !bytes.Contains(out, []byte("--- PASS: TestScoreVectors ")) {
		t.Errorf("%v\n%s", err, out)
	}
}
