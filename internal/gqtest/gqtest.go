// Package gqtest builds the program for tests that run it as its users do.
package gqtest

import (
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
		out, err := exec.Command("go", "build", "-o", name, "github.com/gopherqueue/gq/cmd/gq").CombinedOutput()
		if err != nil {
			return "", fmt.Errorf("build gq: %w\n%s", err, out)
		}
		return name, nil
	})
)

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
