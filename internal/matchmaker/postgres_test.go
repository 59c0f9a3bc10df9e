package matchmaker_test

import (
	"testing"

	"github.com/gopherqueue/gq/internal/matchmaker"
	"github.com/gopherqueue/gq/internal/testing/pgtest"
	"github.com/gopherqueue/gq/internal/testing/spec"
	"github.com/gopherqueue/gq/match"
	"github.com/gopherqueue/gq/store"
	"github.com/gopherqueue/gq/store/postgres"
)

// Runs the same scenario on PostgreSQL, with two servers.
func TestOnPostgres(t *testing.T) {
	spec.Covers(t, "M-44", "M-119", "M-155")
	s, err := postgres.Open(t.Context(), pgtest.Database(t), store.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	f := newFixture(t, s, matchmaker.Options{})
	f.unhurried()
	g := f.another(matchmaker.Options{})
	f.provider("p")
	g.provider("q")
	for range 6 {
		f.submit()
		g.submit(quantum)
	}
	seen := make(map[string]bool)
	rounds := make(chan matchmaker.Round, 2)
	for _, node := range []*fixture{f, g} {
		go func() {
			r, err := node.Round(t.Context())
			if err != nil {
				t.Error(err)
			}
			rounds <- r
		}()
	}
	for range 2 {
		for _, a := range (<-rounds).Assignments {
			if seen[a.Job] {
				t.Errorf("%s was assigned twice", a.Job)
			}
			seen[a.Job] = true
			if err := g.complete(f.ack(f.lease(a.Lease))); err != nil {
				t.Error(err)
			}
		}
	}
	if len(seen) != 12 {
		t.Errorf("%d of 12 were assigned", len(seen))
	}
	j := f.submit()
	l := g.assigned()
	if _, err := f.SetStatus(t.Context(), l.Provider, match.Jailed, "audit"); err != nil {
		t.Fatal(err)
	}
	g.is(j, "QUEUED", 0)
	g.told(j, "jobAssigned", "leaseCancelled provider_jailed")
	if r := g.round(); len(r.Assignments) != 1 || r.Assignments[0].Provider == l.Provider {
		t.Errorf("the next round: %+v", r)
	}
	if n := g.replay(1); n < 3 {
		t.Errorf("%d rounds were computed again", n)
	}
}
