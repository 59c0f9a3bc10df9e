// Package dockertest gives tests a real Docker engine.
//
// The tests of a package that uses it run in a process with its own network, process
// and mount namespaces. The engine runs there too, with its data on a file system in
// memory. So it shares nothing with the rest of the machine, not even the ports it
// publishes. When that process ends, however it ends, the kernel removes everything.
//
// It needs Linux, root and the engine's programs, which scripts/install-docker
// installs. If anything is missing the tests fail and say what. They are never skipped,
// because a skipped test proves nothing.
//
// A package that uses it has
//
//	func TestMain(m *testing.M) { dockertest.Main(m) }
package dockertest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
)

// dirVariable names the engine's directory. It is set only inside the namespaces.
const dirVariable = "GQ_DOCKERTEST_DIR"

// errMissing is what a developer sees first on a new machine.
var errMissing = errors.New(`the tests of containers start a Docker engine of their own and need it installed:
  make docker                                          installs it where it can
  apt-get install docker.io docker-compose iptables    on Debian and Ubuntu`)

// Main runs the tests of a package with their own engine. The environment points docker
// and Compose to it.
func Main(m *testing.M) {
	inside := os.Getenv(dirVariable)
	var code int
	var err error
	if inside == "" {
		code, err = outside()
	} else {
		code, err = withEngine(inside, m.Run)
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "dockertest: %v\n", err)
		code = 1
	}
	os.Exit(code) //nolint:forbidigo // how TestMain ends
}

// programs are the programs that an engine needs.
var programs = []string{"dockerd", "docker", "containerd", "iptables", "ip", "unshare"}

// outside runs this program again in new namespaces, and leaves nothing behind.
func outside() (code int, err error) {
	if os.Geteuid() != 0 {
		return 0, errors.New("a Docker engine needs root, and these tests do not run as root")
	}
	for _, name := range programs {
		if _, err := exec.LookPath(name); err != nil {
			return 0, fmt.Errorf("%w\n%w", err, errMissing)
		}
	}
	if _, err := Compose(); err != nil {
		return 0, err
	}
	self, err := os.Executable()
	if err != nil {
		return 0, fmt.Errorf("find the program: %w", err)
	}
	dir, err := os.MkdirTemp("", "gq-docker-")
	if err != nil {
		return 0, fmt.Errorf("make a directory: %w", err)
	}
	defer func() { err = errors.Join(err, clean(dir)) }()
	return isolated(dir, append([]string{self}, os.Args[1:]...))
}

// Compose returns the command that runs Compose here: the plugin of docker, or the
// older program.
func Compose() ([]string, error) {
	for _, words := range [][]string{{"docker", "compose"}, {"docker-compose"}} {
		if exec.CommandContext(context.Background(), words[0], append(words[1:], "version")...).Run() == nil {
			return words, nil
		}
	}
	return nil, fmt.Errorf("neither docker compose nor docker-compose runs\n%w", errMissing)
}

// Docker runs a docker command and returns its output.
func Docker(t testing.TB, args ...string) string {
	t.Helper()
	out, err := exec.CommandContext(context.Background(), "docker", args...).CombinedOutput()
	if err != nil {
		t.Fatalf("docker %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return strings.TrimSpace(string(out))
}
