// Package e2e_test runs gq as users do: servers that are killed, run out of memory, lose their
// database, meet older releases or hostile clients.
package e2e_test

import (
	"os"
	"os/exec"
	"testing"

	"go.uber.org/goleak"

	"github.com/gopherqueue/gq/internal/testing/cmdtest"
	"github.com/gopherqueue/gq/internal/testing/leaktest"
	"github.com/gopherqueue/gq/internal/testing/pgtest"
)

func TestMain(m *testing.M) {
	cmdtest.WaitTogether(8) // the parallel ones mostly wait for servers and databases
	leaktest.Main(pgtest.Tests(m), goleak.Cleanup(func(status int) {
		cmdtest.Remove()
		os.Exit(status) //nolint:forbidigo // that is what the function is for
	}))
}

// outcome is what a user sees of a run.
type outcome struct {
	status         int
	stdout, stderr string
}

// runGQ runs the program.
func runGQ(t testing.TB, args ...string) outcome {
	t.Helper()
	status, stdout, stderr := cmdtest.Run(t, nil, args...)
	return outcome{status, stdout, stderr}
}

const unknownID = "00000000-0000-4000-8000-000000000000"

// never is longer than patience: waiting for it would fail the test.
const never = "50m"

// patience is how long to wait for something that must happen, even on a busy machine.
const patience = cmdtest.Patience

// served is a server in another process.
type served struct {
	*cmdtest.Server
	t          testing.TB
	http, grpc string
}

func startServer(t testing.TB, env []string, args ...string) *served {
	t.Helper()
	s := cmdtest.Serve(t, env, args...)
	return &served{s, t, s.HTTP, s.GRPC}
}

// launch starts a server with a command.
func launch(t testing.TB, env []string, command *exec.Cmd) *served {
	t.Helper()
	s := cmdtest.Launch(t, env, command)
	return &served{s, t, s.HTTP, s.GRPC}
}

// gq runs the program against the server.
func (s *served) gq(args ...string) outcome {
	s.t.Helper()
	status, stdout, stderr := cmdtest.Run(s.t, []string{"GQ_ADDR=" + s.grpc}, args...)
	return outcome{status, stdout, stderr}
}
