package postgres

import (
	"testing"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/internal/testing/pgtest"
	"github.com/gopherqueue/gq/machine"
	"github.com/gopherqueue/gq/store"
)

// TestInsertServesAClaim: a job that a claim waits for is never in gq.ready. Where something
// precedes it, limits its queue or may run out, the claim is not tried.
func TestInsertServesAClaim(t *testing.T) {
	s, err := Open(t.Context(), pgtest.Database(t), store.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	insert := func(queue string, payload int) *store.Claimed {
		t.Helper()
		spec := gq.Spec{ID: machine.NewJobID(random()), Queue: queue, Type: "t", Policy: machine.DefaultPolicy()}.WithDefaults()
		spec.Payload = gq.Payload{Data: make([]byte, payload), ContentType: "application/octet-stream"}
		out, err := s.Insert(t.Context(), []store.Group{{
			Jobs: []gq.Spec{spec}, Mint: true,
			Claim: &store.Claim{Filter: store.Filter{Queues: []string{queue}}, N: 10, Worker: "w", TTL: time.Minute, Parts: gq.WithPayload},
		}})
		if err != nil || out[0].Err != nil {
			t.Fatal(err, out)
		}
		return out[0].Claimed
	}
	for _, size := range []int{0, 10, maxMoved, maxMoved + 1} {
		c := insert("q", size)
		if c == nil || len(c.Jobs) != 1 || len(c.Jobs[0].Spec.Payload.Data) != size || !c.Unlimited {
			t.Fatalf("with a payload of %d bytes the claim got %+v", size, c)
		}
		found, err := s.Get(t.Context(), []store.Ref{{Job: c.Jobs[0].State.ID}, {Lease: c.Jobs[0].State.Lease.ID}}, gq.WithPayload)
		if err != nil || found[0].Err != nil || found[1].Err != nil || found[0].Job.State.Status != gq.StatusRunning || len(found[0].Job.Spec.Payload.Data) != size {
			t.Errorf("the job is %+v, %v", found, err)
		}
	}
	var ready, held int
	count := "SELECT (SELECT count(*) FROM gq.ready), (SELECT count(*) FROM gq.held)"
	if err := s.pool.QueryRow(t.Context(), count).Scan(&ready, &held); err != nil || ready != 0 || held != 4 {
		t.Errorf("%d jobs wait and %d are held, want 0 and 4: %v", ready, held, err)
	}
	q := machine.NewQueue("limited")
	q.MaxRunning = 10
	if err := s.PutQueue(t.Context(), q); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if c := insert("limited", 0); c != nil {
			t.Errorf("a claim from a queue with a limit got %+v", c)
		}
	}
	if !s.limited.has("limited") {
		t.Error("the limit was not seen")
	}
	if _, err := s.Insert(t.Context(), []store.Group{store.One(gq.Spec{ID: machine.NewJobID(random()), Queue: "busy", Type: "t"}.WithDefaults())}); err != nil {
		t.Fatal(err)
	}
	if c := insert("busy", 0); c != nil {
		t.Errorf("a claim before which another job comes got %+v", c)
	}
	// A lease that has run out precedes too.
	if _, err := s.pool.Exec(t.Context(), "UPDATE gq.held SET due = 1 WHERE seq = (SELECT min(seq) FROM gq.held)"); err != nil {
		t.Fatal(err)
	}
	if c := insert("q", 0); c != nil {
		t.Errorf("a claim before which an expired lease comes got %+v", c)
	}
}
