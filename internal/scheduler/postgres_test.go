package scheduler

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"reflect"
	"sync"
	"testing"
	"time"

	"github.com/gopherqueue/gq/internal/pgtest"
	"github.com/gopherqueue/gq/store"
	"github.com/gopherqueue/gq/store/postgres"
)

// Two servers share a database: their workers never run more than there is
// capacity for, and both see the same.
func TestTwoServers(t *testing.T) {
	url := pgtest.Database(t)
	var nodes []*fixture
	var connects []func() *client
	for range 2 {
		s, err := postgres.Open(t.Context(), url, store.Config{})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := s.Close(); err != nil {
				t.Errorf("close: %v", err)
			}
		})
		f := over(t, s, Options{LeaseTTL: 2 * time.Second, Requeue: true})
		f.face.settings.DenialRetry = 10 * time.Millisecond
		nodes, connects = append(nodes, f), append(connects, f.serving())
	}
	const workers, rounds, capacity = 8, 2, 70
	var working sync.WaitGroup
	for i := range workers {
		c := connects[i%2]()
		name, addon := fmt.Sprintf("w%d", i), fmt.Sprintf("addon%d", i%3)
		random := rand.New(rand.NewPCG(1, uint64(i)))
		working.Go(func() {
			for range rounds {
				body := submission("addon_id", addon, "cost_units", 10+random.Int64N(30))
				if status, out, err := c.do(http.MethodPost, "/jobs/submit", body); err != nil || status != http.StatusCreated {
					t.Errorf("submit: %d %v %v", status, out, err)
					return
				}
				c.oneJob(t, addon, name, random)
			}
		})
	}
	working.Wait()
	a, b := nodes[0], nodes[1]
	deadline := time.Now().Add(20 * time.Second)
	for number(member(a.get("/stats/snapshot"), "capacity")["used"]) > 0 {
		if time.Now().After(deadline) {
			t.Fatal("capacity stays in use")
		}
		time.Sleep(50 * time.Millisecond) // leases of a real server run out in real time
	}
	a.neverAbove(capacity)
	for _, path := range []string{"/facts/job_runs", "/facts/lease_runs", "/facts/events", "/jobs", "/admin/capacity"} {
		if one, other := a.get(path), b.get(path); !reflect.DeepEqual(one, other) {
			t.Errorf("%s is\n%v on one server and\n%v on the other", path, one, other)
		}
	}
	// A change on one server holds on the other.
	a.do(http.MethodPut, "/admin/capacity", object{"total": 5}, http.StatusOK)
	job := id(b.submit("addon_id", "late", "cost_units", 6))
	b.claim("addon_id", "late")
	if got := b.denied(job); got["reason"] != "Capacity exceeded: used=0, requested=6, capacity=5" {
		t.Errorf("the denial is %v", got)
	}
	if err := a.engine.Sample(t.Context(), Pool); err != nil {
		t.Fatal(err)
	}
	if one, other := a.get("/stats/snapshot"), b.get("/stats/snapshot"); !reflect.DeepEqual(one, other) {
		t.Errorf("the snapshot is %v on one server and %v on the other", one, other)
	}
}
