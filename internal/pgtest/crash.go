package pgtest

import (
	"testing"
	"time"
)

// Own starts a server for one test alone, which may do to it what it likes. It is
// stopped when the test ends.
func Own(t testing.TB) *Cluster {
	t.Helper()
	return own(t, 0)
}

func own(t testing.TB, skew time.Duration) *Cluster {
	t.Helper()
	c, err := start(skew)
	if err != nil {
		t.Fatalf("pgtest: %v", err)
	}
	t.Cleanup(c.stop)
	return c
}

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
	if err := c.run(bin, owner); err != nil {
		t.Fatalf("pgtest: after a crash: %v", err)
	}
}
