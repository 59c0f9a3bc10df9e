package postgres

import (
	"errors"
	"testing"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/internal/testing/pgtest"
	"github.com/gopherqueue/gq/machine"
	"github.com/gopherqueue/gq/store"
)

func (c *registry) knows(name string) bool {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.names[name]
}

// TestTooManyQueues creates more queues than the limit on two nodes. One node hears of the
// other's queues; the other reads the queues again when its registry seems full.
func TestTooManyQueues(t *testing.T) {
	url := pgtest.Database(t)
	var nodes [2]*Store
	for i := range nodes {
		var err error
		if nodes[i], err = Open(t.Context(), url, store.Config{}); err != nil {
			t.Fatal(err)
		}
		defer nodes[i].Close()
		nodes[i].registry.most = 3
	}
	submit := func(s *Store, queues ...string) error {
		var g store.Group
		for _, q := range queues {
			g.Jobs = append(g.Jobs, gq.Spec{ID: machine.NewJobID(random()), Type: "t", Queue: q}.WithDefaults())
		}
		out, err := s.Insert(t.Context(), []store.Group{g})
		if err != nil {
			t.Fatal(err)
		}
		return out[0].Err
	}
	heard := make(chan store.News, 100)
	defer nodes[1].Notify(false, func(n store.News) { heard <- n })()
	for i, queue := range []string{"a", "a", "b", "c"} {
		if err := submit(nodes[min(i, 1)], queue); err != nil {
			t.Errorf("queue %s: %v", queue, err)
		}
	}
	if err := submit(nodes[0], "d"); err != nil {
		t.Errorf("a queue for which there is room as far as this node knows: %v", err)
	}
	for limit := time.After(2 * time.Minute); !nodes[1].registry.knows("d"); {
		select {
		case <-heard:
		case <-limit:
			t.Fatal("there was no word of the queue of the other node")
		}
	}
	for _, s := range nodes {
		if err := submit(s, "e"); err != nil { // the third queue that the first node knows; for the second node it exists by then
			t.Errorf("queue e: %v", err)
		}
		if err := submit(s, "f"); !errors.Is(err, gq.ErrTooMany) {
			t.Errorf("a queue too many: %v, want ErrTooMany", err)
		}
		if err := submit(s, "a", "g"); !errors.Is(err, gq.ErrTooMany) {
			t.Errorf("a queue too many in a group: %v, want ErrTooMany", err)
		}
		if err := s.PutQueue(t.Context(), machine.NewQueue("g")); !errors.Is(err, gq.ErrTooMany) {
			t.Errorf("a configured queue too many: %v, want ErrTooMany", err)
		}
		if err := errors.Join(submit(s, "a"), s.PutQueue(t.Context(), machine.NewQueue("a"))); err != nil {
			t.Errorf("a queue that exists: %v", err)
		}
	}
}
