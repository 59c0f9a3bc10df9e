package postgres

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/internal/testing/pgtest"
	"github.com/gopherqueue/gq/machine"
	"github.com/gopherqueue/gq/store"
)

func openKeys(t *testing.T, url string) *Store {
	t.Helper()
	s, err := Open(t.Context(), url, store.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// keyed returns a job with a unique key, and with an order key if the name begins with o.
func keyed(queue, name string) store.Group {
	spec := gq.Spec{ID: machine.NewJobID(random()), Queue: queue, Type: "t", Policy: machine.DefaultPolicy()}.WithDefaults()
	if name[0] == 'o' {
		spec.OrderKey = name
	} else {
		spec.Key = gq.IdempotencyKey{Scope: "s", Name: name, Fingerprint: 1}
		spec.Unique = gq.UniqueRule{While: gq.WhileLive, OnCollision: gq.Existing}
	}
	return store.Group{Jobs: []gq.Spec{spec}, Mint: true}
}

func insertKeyed(t *testing.T, s *Store, groups ...store.Group) []store.Inserted {
	t.Helper()
	out, err := s.Insert(t.Context(), groups)
	if err != nil {
		t.Fatal(err)
	}
	for i := range out {
		if out[i].Err != nil {
			t.Fatal(out[i].Err)
		}
	}
	return out
}

// TestNewKeysAreNotLookedFor: as long as the keys of a queue are new, nothing looks for them. After
// one that was there, the next submissions look first.
func TestNewKeysAreNotLookedFor(t *testing.T) {
	s := openKeys(t, pgtest.Database(t))
	looks := func(queue string) bool {
		spec := keyed(queue, "k").Jobs[0]
		return !s.newKeys.expected([]*gq.Spec{&spec})
	}
	for i := range 3 {
		insertKeyed(t, s, keyed("q", fmt.Sprint("k", i)), keyed("q", fmt.Sprint("o", i)))
	}
	if looks("q") {
		t.Fatal("new keys are looked for")
	}
	if out := insertKeyed(t, s, keyed("q", "k1"))[0].Jobs[0]; !out.Existing {
		t.Fatalf("the key was given twice: %+v", out)
	}
	if !looks("q") || looks("other") {
		t.Fatalf("after a key that was there: q %v, other %v", looks("q"), looks("other"))
	}
	for i := range fewLooks {
		if !looks("q") {
			t.Fatalf("after %d new keys nothing looks for the next", i)
		}
		insertKeyed(t, s, keyed("q", fmt.Sprint("later", i)))
	}
	if looks("q") {
		t.Errorf("after %d new keys the next is still looked for", fewLooks)
	}
	first := insertKeyed(t, s, keyed("q", "order"))[0].Jobs[0].State
	second := insertKeyed(t, s, keyed("q", "order"))[0].Jobs[0].State
	if second.OrderedAfter != first.ID || second.Status != gq.StatusPending {
		t.Errorf("the second job of an order key waits for %v, want %v", second.OrderedAfter, first.ID)
	}
	if s.newKeys.queues["q"].left != 2*fewLooks {
		t.Errorf("after the second time %d submissions look first", s.newKeys.queues["q"].left)
	}
	third, fourth := keyed("new", "order"), keyed("new", "order")
	out := insertKeyed(t, s, third, fourth) // of one call
	if got := out[1].Jobs[0].State.OrderedAfter; got != out[0].Jobs[0].State.ID {
		t.Errorf("the second job of a call waits for %v", got)
	}
}

// TestSameNewKeysAtOnce lets several nodes and transactions of applications submit the same new
// keys in different orders. Each key gets one job, and nobody fails.
func TestSameNewKeysAtOnce(t *testing.T) {
	url := pgtest.Database(t)
	a, b := openKeys(t, url), openKeys(t, url)
	const keys, rounds = 20, 10
	for round := range rounds {
		a.newKeys, b.newKeys = keyHints{}, keyHints{}
		var mu sync.Mutex
		holders := map[string]map[gq.JobID]bool{}
		var wait sync.WaitGroup
		submit := func(insert func([]store.Group) ([]store.Inserted, error)) {
			wait.Go(func() {
				var groups []store.Group
				var names []string
				for _, i := range rand.Perm(keys) {
					names = append(names, fmt.Sprintf("k%d.%d", round, i))
					groups = append(groups, keyed("q", names[len(names)-1]))
				}
				out, err := insert(groups)
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				defer mu.Unlock()
				for i := range out {
					if out[i].Err != nil {
						t.Error(out[i].Err)
						continue
					}
					if holders[names[i]] == nil {
						holders[names[i]] = map[gq.JobID]bool{}
					}
					holders[names[i]][out[i].Jobs[0].State.ID] = true
				}
			})
		}
		for _, s := range []*Store{a, b} {
			for range 2 {
				submit(func(groups []store.Group) ([]store.Inserted, error) { return s.Insert(t.Context(), groups) })
			}
			submit(func(groups []store.Group) (out []store.Inserted, err error) {
				conn, err := pgx.Connect(t.Context(), url)
				if err != nil {
					return nil, err
				}
				defer conn.Close(t.Context()) //nolint:errcheck // the transaction has been committed
				err = pgx.BeginFunc(t.Context(), conn, func(tx pgx.Tx) error {
					out, err = s.Tx(tx).Insert(t.Context(), groups)
					return err
				})
				return out, err
			})
		}
		wait.Wait()
		for name, ids := range holders {
			if len(ids) != 1 {
				t.Errorf("key %s was given to %d jobs", name, len(ids))
			}
		}
		if len(holders) != keys {
			t.Errorf("%d keys of %d", len(holders), keys)
		}
	}
}

// TestRefusedBeforeKeysAreLookedFor: a job that would be refused finds the job that has its key,
// also among so many that they are copied.
func TestRefusedBeforeKeysAreLookedFor(t *testing.T) {
	s := openKeys(t, pgtest.Database(t))
	first := insertKeyed(t, s, keyed("q", "k"))[0].Jobs[0].State.ID
	for _, others := range []int{0, 2 * copyLeast} {
		s.newKeys = keyHints{}
		late := keyed("q", "k")
		late.Jobs[0].Policy.Lifetime, late.Jobs[0].RunAt = time.Hour, time.Now().Add(2*time.Hour) // never runs
		groups := []store.Group{}
		for i := range others {
			groups = append(groups, keyed("q", fmt.Sprint("k", others, "-", i)))
		}
		out := insertKeyed(t, s, append(groups, late)...)
		if got := out[others].Jobs[0]; !got.Existing || got.State.ID != first {
			t.Errorf("with %d others: %+v", others, got)
		}
	}
}
