package pgtest

import (
	"testing"
	"time"

	"github.com/gopherqueue/gq/internal/testing/spec"
)

// Own starts a server for one test alone, with additional settings. The test may do
// anything to it; it is stopped when the test ends.
func Own(t testing.TB, settings ...string) *Cluster {
	t.Helper()
	return own(t, 0, settings...)
}

func own(t testing.TB, skew time.Duration, settings ...string) *Cluster {
	t.Helper()
	if testing.Short() {
		t.Skip("needs PostgreSQL, which -short does without")
	}
	spec.Needs(t, "postgresql")
	c, err := start(skew, settings...)
	if err != nil {
		t.Fatalf("pgtest: %v", err)
	}
	t.Cleanup(c.stop)
	return c
}

// Run starts a server for a program that is not a test, with additional settings. The
// caller must stop it; it also ends with the process.
func Run(settings ...string) (*Cluster, error) { return start(0, settings...) }

// Stop ends a server started by Run and removes its files.
func (c *Cluster) Stop() { c.stop() }

// Process returns the id of the server's process, for measurements.
func (c *Cluster) Process() int { return c.process.Pid }

// Crash kills a server with all its connections, without a checkpoint, and restarts it
// at the same address. It recovers from its log, as after a kill -9.
func (c *Cluster) Crash(t testing.TB) {
	t.Helper()
	bin, err := installed()
	if err != nil {
		t.Fatalf("pgtest: %v", err)
	}
	owner, err := unprivileged()
	if err != nil {
		t.Fatalf("pgtest: %v", err)
	}
	c.kill()
	c.settled = true
	// Another process may have taken the port meanwhile.
	for deadline := time.Now().Add(startWithin); ; {
		err := c.run(bin, owner)
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("pgtest: after a crash: %v", err)
		}
	}
}
