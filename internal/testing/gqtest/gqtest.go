// Package gqtest builds programs for tests that run them as their users do.
package gqtest

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
)

var (
	dir  = sync.OnceValues(func() (string, error) { return os.MkdirTemp("", "gq-program-") })
	gq   = sync.OnceValues(func() (string, error) { return build("gq") })
	lab  = sync.OnceValues(func() (string, error) { return build("gqlab") })
	used atomic.Bool // dir exists
)

// programsVariable names a directory with programs that were built just now.
// scripts/test sets it, so that packages do not link the same program one by one.
const programsVariable = "GQ_TEST_PROGRAMS"

func build(name string) (program string, err error) {
	if ready := os.Getenv(programsVariable); ready != "" {
		return filepath.Join(ready, name), nil
	}
	used.Store(true)
	in, err := dir()
	if err != nil {
		return "", err
	}
	program = filepath.Join(in, name)
	return program, Build(program, "github.com/gopherqueue/gq/cmd/"+name)
}

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

// Program is the path of gq, which is built when it is first asked for.
func Program(t testing.TB) string { t.Helper(); return built(t, gq) }

// Lab is the path of gqlab, which is built when it is first asked for.
func Lab(t testing.TB) string { t.Helper(); return built(t, lab) }

func built(t testing.TB, program func() (string, error)) string {
	t.Helper()
	name, err := program()
	if err != nil {
		t.Fatal(err)
	}
	return name
}

// WaitTogether lets up to n parallel tests of a package run at once unless -parallel
// says otherwise. The default is one for each core, which is too few for tests that
// wait for other processes. It is for TestMain, before the tests run.
func WaitTogether(n int) {
	if err := flag.Set("test.parallel", strconv.Itoa(n)); err != nil {
		panic(err)
	}
}

// Remove removes the programs. It is for TestMain, when all tests are done.
func Remove() {
	if used.Load() {
		if name, err := dir(); err == nil {
			_ = os.RemoveAll(name) // what is left is in a temporary directory
		}
	}
}
