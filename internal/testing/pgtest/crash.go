package pgtest

import (
	"testing"
	"time"
)

// Own starts a server for one test alone, which may do to it what it likes, with
// settings of its own beside those of all tests. It is stopped when the test ends.
func Own(t testing.TB, settings ...string) *Cluster {
	t.Helper()
	return own(t, 0, settings...)
}

func own(t testing.TB, skew time.Duration, settings ...string) *Cluster {
	t.Helper()
	if testing.Short() {
		t.Skip("needs PostgreSQL, which -short does without")
	}
	c, err := start(skew, settings...)
	if err != nil {
		t.Fatalf("pgtest: %v", err)
	}
	t.Cleanup(c.stop)
	return c
}

// Run starts a server for a program that is no test, with settings of its own
// beside those of tests. Whoever calls it stops it; it also ends with the process.
func Run(settings ...string) (*Cluster, error) { return start(0, settings...) }

// Stop ends a server that Run has started and removes its files.
func (c *Cluster) Stop() { c.stop() }

// Process is the id of the server's process, for those who ask what it costs.
func (c *Cluster) Process() int { return c.process.Pid }

// Crash ends a server at once, with all its connections and without a checkpoint,
// and starts it again under the same address. It recovers from its log, as after
// a kill -9 of everything.
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
	// Somebody else may have got the port for a connection meanwhile.
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
