package postgres_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/internal/testing/pgtest"
	"github.com/gopherqueue/gq/internal/testing/race"
	"github.com/gopherqueue/gq/store"
	"github.com/gopherqueue/gq/store/postgres"
	"github.com/gopherqueue/gq/store/storetest"
)

// behindPooler starts a pooler in transaction mode. through rewrites a URL to use it.
func behindPooler(t *testing.T) (through func(url string) string) {
	t.Helper()
	p := pgtest.Start(t).Pooler(t)
	return func(url string) string {
		t.Helper()
		pooled, err := p.Behind(url)
		if err != nil {
			t.Fatal(err)
		}
		return pooled
	}
}

// TestContractBehindAPooler runs the whole contract through a pooler, where each
// transaction may run on another connection. Nothing in the URL announces the pooler. With
// the race detector it runs the groups that use connections in their own ways, and a share
// of the others.
func TestContractBehindAPooler(t *testing.T) {
	b := backend(t, behindPooler(t))
	b.Again = true
	seen := make(map[string]int)
	b.Only = func(c storetest.Case) bool {
		group, _, _ := strings.Cut(c.Name, "/")
		seen[group]++
		return !race.Share() || seen[group]%8 == 1 || slices.Contains([]string{"Concurrent", "Notify", "Reopen"}, group)
	}
	storetest.Run(t, b)
}

// TestMigrateBehindAPooler creates the tables and reads the layout on connections that
// other clients used before.
func TestMigrateBehindAPooler(t *testing.T) {
	url := behindPooler(t)(pgtest.Database(t))
	for range 3 {
		if _, err := postgres.MigrateUp(t.Context(), url); err != nil {
			t.Fatal(err)
		}
		if l, err := postgres.MigrateStatus(t.Context(), url); err != nil || l.Pending() {
			t.Fatalf("layout %+v, %v", l, err)
		}
	}
}

// TestNewsBehindAPooler checks that a node learns of another node's commits although no
// notification passes a pooler in transaction mode: it detects that and polls.
func TestNewsBehindAPooler(t *testing.T) {
	url := behindPooler(t)(pgtest.Database(t))
	nodes := []store.Store{open(t, url, store.Config{}), open(t, url, store.Config{})}
	news := make(chan store.News, 1000)
	stop := nodes[1].(store.Notifier).Notify(false, func(n store.News) {
		select {
		case news <- n:
		default: // drop news that the test does not need
		}
	})
	defer stop()
	hears := func() {
		t.Helper()
		for until := time.After(2 * time.Minute); ; {
			select {
			case n := <-news:
				if slices.Contains(n.Queues, "q") {
					return
				}
			case <-until:
				t.Fatal("the other node heard of nothing")
			}
		}
	}
	// Twice, so that the second is certainly after the probe.
	for range 2 {
		mustInsert(t, nodes[0], newSpec("q"))
		hears()
		claimed, err := nodes[1].Claim(t.Context(), []store.Claim{claimFrom("q", 5)})
		if err != nil || len(claimed[0].Jobs) != 1 {
			t.Fatalf("claim: %v, %d jobs", err, len(claimed[0].Jobs))
		}
		job := claimed[0].Jobs[0]
		if out, err := nodes[1].Update(t.Context(), []store.Update{completing(job)}); err != nil || out[0].Err != nil {
			t.Fatalf("complete: %v, %+v", err, out)
		}
		if got := statusOf(t, nodes[0], job.State.ID); got != gq.StatusCompleted {
			t.Errorf("the job is %v", got)
		}
		time.Sleep(50 * time.Millisecond) // let news in flight arrive
		for len(news) > 0 {
			<-news
		}
	}
	for _, s := range nodes {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
}
