package postgres

import (
	"slices"
	"testing"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/internal/testing/pgtest"
	"github.com/gopherqueue/gq/machine"
	"github.com/gopherqueue/gq/store"
)

// TestPollTellsWhatWasNumberedHere lets a node without notifications number the events of
// another node, as it does after its own commits. It must still tell its listeners of them
// when it polls.
func TestPollTellsWhatWasNumberedHere(t *testing.T) {
	url := pgtest.Database(t)
	nodes := make([]*Store, 2)
	for i := range nodes {
		var err error
		if nodes[i], err = Open(t.Context(), url, store.Config{}); err != nil {
			t.Fatal(err)
		}
		defer nodes[i].Close()
	}
	h := &nodes[1].notifier
	var told []string
	h.mu.Lock()
	h.listeners[0] = func(n store.News) { told = append(told, n.Queues...) } // without Notify, so that no goroutine listens for notifications
	h.mu.Unlock()

	spec := gq.Spec{ID: machine.NewJobID(random()), Type: "t", Queue: "theirs"}.WithDefaults()
	out, err := nodes[0].Insert(t.Context(), []store.Group{{Jobs: []gq.Spec{spec}}})
	if err != nil || out[0].Err != nil {
		t.Fatal(err, out)
	}
	h.round(true)
	for limit := time.Now().Add(2 * time.Minute); len(told) == 0 && time.Now().Before(limit); {
		h.poll(t.Context()) // may have to be repeated if the database is slow
	}
	if !slices.Contains(told, "theirs") {
		t.Errorf("told of %q, want theirs among them", told)
	}
	if !nodes[1].registry.knows("theirs") {
		t.Error("the queue of the other node is told of and is not counted among those there are")
	}
	told = nil
	h.poll(t.Context())
	if len(told) > 0 {
		t.Errorf("told of %q again, and nothing had happened", told)
	}
}
