package postgres_test

import (
	"os"
	"testing"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/store"
)

// TestPooler runs a store through a pooler in transaction mode, where one was
// started and is named by GQ_TEST_POOLER: the URL of an empty database through
// it. Notifications do not come through; the store finds that out by itself.
func TestPooler(t *testing.T) {
	url := os.Getenv("GQ_TEST_POOLER")
	if url == "" {
		t.Skip("no pooler is started for the tests yet; GQ_TEST_POOLER can name one")
	}
	nodes := []store.Store{open(t, url, store.Config{}), open(t, url, store.Config{})}
	news := make(chan store.News, 100)
	stop := nodes[1].(store.Notifier).Notify(func(n store.News) { news <- n })
	defer stop()
	for range 50 {
		mustInsert(t, nodes[0], newSpec("q"))
	}
	claimed, err := nodes[1].Claim(t.Context(), []store.Claim{claimFrom("q", 50)})
	if err != nil || len(claimed[0].Jobs) != 50 {
		t.Fatalf("claim: %v, %d jobs", err, len(claimed[0].Jobs))
	}
	for _, j := range claimed[0].Jobs {
		if out, err := nodes[0].Update(t.Context(), []store.Update{completing(j)}); err != nil || out[0].Err != nil {
			t.Fatalf("complete: %v, %+v", err, out)
		}
	}
	if got := statusOf(t, nodes[1], claimed[0].Jobs[0].State.ID); got != gq.Completed {
		t.Errorf("the job is %v", got)
	}
	select {
	case <-news:
	case <-time.After(15 * time.Second):
		t.Error("the other node heard of nothing")
	}
	for _, s := range nodes {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
}
