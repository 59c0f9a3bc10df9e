package main

import (
	"testing"

	"github.com/gopherqueue/gq/client"
	"github.com/gopherqueue/gq/internal/testing/cmdtest"
)

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

// gq runs the program against the server.
func (s *served) gq(args ...string) outcome {
	s.t.Helper()
	status, stdout, stderr := cmdtest.Run(s.t, []string{"GQ_ADDR=" + s.grpc}, args...)
	return outcome{status, stdout, stderr}
}

func (s *served) client() *client.Client {
	s.t.Helper()
	c, err := client.New(s.grpc, client.Options{RetryFor: patience})
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { _ = c.Close() })
	return c
}
