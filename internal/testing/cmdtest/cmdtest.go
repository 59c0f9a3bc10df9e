// Package cmdtest builds programs for tests that run them as users do.
package cmdtest

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
)

var (
	dir  = sync.OnceValues(func() (string, error) { return os.MkdirTemp("", "gq-program-") })
	used atomic.Bool // dir exists

	builds   sync.Mutex
	programs = map[string]func() (string, error){} // by their packages; guarded by builds
)

// programsVariable names a directory of freshly built programs. scripts/test sets it,
// so that packages do not each link the same program.
const programsVariable = "GQ_TEST_PROGRAMS"

func build(source string) (program string, err error) {
	name := path.Base(source)
	if ready := os.Getenv(programsVariable); ready != "" {
		program = filepath.Join(ready, name)
		_, err = os.Stat(program) // tells the test cache that the result depends on it
		return program, err
	}
	used.Store(true)
	in, err := dir()
	if err != nil {
		return "", err
	}
	program = filepath.Join(in, name)
	return program, Build(program, source)
}

// Build builds a program the way scripts/docker-build builds the image's, static and
// without paths, so that the build cache serves all tests.
func Build(program, source string, tags ...string) error {
	c := exec.CommandContext(context.Background(), "go", "build", "-trimpath", "-tags", strings.Join(tags, ","), "-o", program, source)
	c.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := c.CombinedOutput(); err != nil {
		return fmt.Errorf("build %s: %w\n%s", source, err, out)
	}
	return nil
}

// Program returns the path of gq, and builds it on first use.
func Program(t testing.TB) string {
	t.Helper()
	return Command(t, "github.com/gopherqueue/gq/cmd/gq")
}

// Command returns the path of the program that a package is, and builds it on first use.
func Command(t testing.TB, source string) string {
	t.Helper()
	builds.Lock()
	program, ok := programs[source]
	if !ok {
		program = sync.OnceValues(func() (string, error) { return build(source) })
		programs[source] = program
	}
	builds.Unlock()
	name, err := program()
	if err != nil {
		t.Fatal(err)
	}
	return name
}

// WaitTogether lets up to n parallel tests of a package run at once unless -parallel is
// set. The default is one per core, too few for tests that wait for other processes.
// Call it in TestMain before the tests run.
func WaitTogether(n int) {
	if err := flag.Set("test.parallel", strconv.Itoa(n)); err != nil {
		panic(err)
	}
}

// Remove removes the programs. Call it in TestMain after the tests.
func Remove() {
	if used.Load() {
		if name, err := dir(); err == nil {
			_ = os.RemoveAll(name) // the rest is in a temporary directory
		}
	}
}
