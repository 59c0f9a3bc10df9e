//go:build arch

package main

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/gopherqueue/gq/internal/cli"
)

var arches = flag.String("arches", "386", "architectures that gq match is built for and run on; others than 386 need qemu-user")

// emulators run programs of other architectures.
var emulators = map[string]string{
	"arm64": "qemu-aarch64", "arm": "qemu-arm", "s390x": "qemu-s390x", "riscv64": "qemu-riscv64", "ppc64le": "qemu-ppc64le", "mips": "qemu-mips",
}

// runner returns the command that runs a program of an architecture here.
func runner(t *testing.T, arch string) []string {
	t.Helper()
	if arch == runtime.GOARCH || arch == "386" && runtime.GOARCH == "amd64" {
		return nil
	}
	for _, name := range []string{emulators[arch] + "-static", emulators[arch]} {
		if path, err := exec.LookPath(name); err == nil {
			return []string{path}
		}
	}
	t.Fatalf("nothing here runs %s; make test-arch installs qemu-user", arch)
	return nil
}

// The same program on other architectures prints the same bytes: 32 bits, other memory
// models, the other byte order. make test-arch runs it.
func TestMatchOnOtherArchitectures(t *testing.T) {
	if runtime.GOOS != "linux" || runtime.GOARCH != "amd64" {
		t.Skipf("%s/%s does not run programs for linux/386", runtime.GOOS, runtime.GOARCH)
	}
	text, err := os.ReadFile("../../match/testdata/assignments.json")
	if err != nil {
		t.Fatal(err)
	}
	var vectors []struct {
		Name  string          `json:"name"`
		Input json.RawMessage `json:"input"`
	}
	if err := json.Unmarshal(text, &vectors); err != nil {
		t.Fatal(err)
	}
	if len(vectors) < 32 {
		t.Fatalf("only %d vectors", len(vectors))
	}
	for arch := range strings.SplitSeq(*arches, ",") {
		t.Run(arch, func(t *testing.T) {
			program := filepath.Join(t.TempDir(), "gq")
			build := exec.CommandContext(t.Context(), "go", "build", "-o", program, ".")
			build.Env = append(os.Environ(), "GOARCH="+arch, "CGO_ENABLED=0", "GOFLAGS=")
			if out, err := build.CombinedOutput(); err != nil {
				t.Fatalf("build for %s: %v\n%s", arch, err, out)
			}
			command := append(runner(t, arch), program, "match", "-")
			for _, v := range vectors {
				want := matchOf(t, string(v.Input), "-")
				c := exec.CommandContext(t.Context(), command[0], command[1:]...)
				var stdout, stderr bytes.Buffer
				c.Stdin, c.Stdout, c.Stderr = bytes.NewReader(v.Input), &stdout, &stderr
				if err := c.Run(); err != nil || want.status != cli.ExitOK || stdout.String() != want.stdout {
					t.Errorf("%s: %v %s\non %s:\n%s\nhere:\n%s", v.Name, err, &stderr, arch, &stdout, want.stdout)
				}
			}
		})
	}
}
