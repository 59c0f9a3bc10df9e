// Package gqtest builds programs for tests that run them as their users do.
package gqtest

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
)

var (
	dir   string // of the program; set by build
	build = sync.OnceValues(func() (name string, err error) {
		if dir, err = os.MkdirTemp("", "gq-program-"); err != nil {
			return "", err
		}
		name = filepath.Join(dir, "gq")
		return name, Build(name, "github.com/gopherqueue/gq/cmd/gq")
	})
)

// Build builds a program the way scripts/docker-build builds the image's, static
// and without paths, so that whatever tests build is compiled once.
func Build(program, source string) error {
	c := exec.CommandContext(context.Background(), "go", "build", "-trimpath", "-o", program, source)
	c.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := c.CombinedOutput(); err != nil {
		return fmt.Errorf("build %s: %w\n%s", source, err, out)
	}
	return nil
}

// Program is the path of the program, which is built when it is first asked for.
func Program(t testing.TB) string {
	t.Helper()
	name, err := build()
	if err != nil {
		t.Fatal(err)
	}
	return name
}

// Remove removes the program. It is for TestMain, when all tests are done.
func Remove() {
	if dir != "" {
		_ = os.RemoveAll(dir) // what is left is in a temporary directory
	}
}
