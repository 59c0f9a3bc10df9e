package postgres_test

import (
	"testing"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/internal/pgtest"
	"github.com/gopherqueue/gq/store"
)

// TestSlowClaimNamesAJobOnce has a claim wait for a job that somebody has locked, for
// longer than the lease of the job that it already has. That job is in the answer once,
// with a lease that is worth something, or is there for the next one.
func TestSlowClaimNamesAJobOnce(t *testing.T) {
	for name, configure := range map[string]func(*gq.Queue){
		"WithoutLimits": nil,
		"WithLimits":    func(q *gq.Queue) { q.MaxRunning = 10 },
	} {
		t.Run(name, func(t *testing.T) {
			s := open(t, pgtest.Database(t), store.Config{})
			if configure != nil {
				q := gq.NewQueue("q")
				configure(&q)
				if err := s.PutQueue(t.Context(), q); err != nil {
					t.Fatal(err)
				}
			}
			mustInsert(t, s, newSpec("q"))
			mustInsert(t, s, newSpec("q"))
			locker := connect(t, s.URL())
			for _, ttl := range []time.Duration{time.Millisecond, 20 * time.Millisecond, 100 * time.Millisecond} {
				tx, err := locker.Begin(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				if _, err := tx.Exec(t.Context(), "SELECT FROM gq.ready ORDER BY seq DESC LIMIT 1 FOR UPDATE"); err != nil {
					t.Fatal(err)
				}
				claim := claimFrom("q", 2)
				claim.TTL = ttl
				out, err := s.Claim(t.Context(), []store.Claim{claim})
				if err != nil || out[0].Err != nil {
					t.Fatalf("claim: %v, %+v", err, out)
				}
				known := map[gq.JobID]bool{}
				for _, j := range out[0].Jobs {
					if known[j.State.ID] {
						t.Errorf("with a lease of %v job %s is twice in an answer", ttl, j.State.ID)
					}
					known[j.State.ID] = true
				}
				if len(out[0].Jobs) < 2 && out[0].RetryAt.IsZero() {
					t.Errorf("with a lease of %v the answer is %d jobs, and not when to look again", ttl, len(out[0].Jobs))
				}
				if err := tx.Rollback(t.Context()); err != nil {
					t.Fatal(err)
				}
				// Nothing is lost: both can be claimed once the lease is over.
				for got := map[gq.JobID]bool{}; len(got) < 2; {
					again := claimFrom("q", 2)
					again.TTL = time.Hour
					out, err := s.Claim(t.Context(), []store.Claim{again})
					if err != nil || out[0].Err != nil {
						t.Fatalf("claim: %v, %+v", err, out)
					}
					for _, j := range out[0].Jobs {
						got[j.State.ID] = true
						if _, err := s.Update(t.Context(), []store.Update{store.GiveBack(&j.State, "for the next round")}); err != nil {
							t.Fatal(err)
						}
					}
				}
			}
		})
	}
}
