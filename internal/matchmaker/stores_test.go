package matchmaker_test

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/gopherqueue/gq/internal/matchmaker"
	"github.com/gopherqueue/gq/internal/testing/pgtest"
	"github.com/gopherqueue/gq/internal/testing/spec"
	"github.com/gopherqueue/gq/match"
	"github.com/gopherqueue/gq/store"
	"github.com/gopherqueue/gq/store/local"
	"github.com/gopherqueue/gq/store/postgres"
)

// standing is a clock that does not move.
type standing time.Time

func (c standing) Now() time.Time { return time.Time(c) }

// onPostgres opens a new store on a database.
func onPostgres(t *testing.T, url string, c store.Config) store.Store {
	t.Helper()
	s, err := postgres.Open(t.Context(), url, c)
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

// The same state gives the same rounds on both stores, including the lease ids, whatever
// the order in which providers registered.
func TestSameRoundsOnBothStores(t *testing.T) {
	spec.Covers(t, "M-08", "M-155")
	// Shortly before the next second: a round that reads another clock gets another time.
	c := store.Config{Clock: standing(time.Date(2030, 5, 1, 12, 0, 0, 999_000_000, time.UTC))}
	inMemory := func(t *testing.T) store.Store {
		s, err := local.OpenMemory(local.Options{Config: c})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = s.Close() })
		return s
	}
	var first []matchmaker.Round
	for i, open := range []func(t *testing.T) store.Store{
		inMemory, inMemory,
		func(t *testing.T) store.Store { return onPostgres(t, pgtest.Database(t), c) },
		func(t *testing.T) store.Store { return onPostgres(t, pgtest.Database(t), c) },
	} {
		f := newFixture(t, open(t), matchmaker.Options{})
		f.policy(`{"quotas":{"leases_max_per_provider":2},"starvation":{"every":5},"batch_size":20}`)
		for _, k := range rand.New(rand.NewPCG(uint64(i), 0)).Perm(20) {
			f.provider(fmt.Sprintf("p%02d", k), func(p *match.Provider) {
				p.Models, p.Region = []string{"m", fmt.Sprintf("x%d", k%3)}, []string{"eu", "us"}[k%2]
			})
		}
		for k := range 50 {
			f.submit(fee(int64(k%5)*50_000), model(fmt.Sprintf("x%d", k%4)), by(fmt.Sprintf("r%d", k%3)))
		}
		if err := f.PutBeacon(t.Context(), match.Beacon{Chain: "c", Epoch: 7, Height: 9, Beacon: []byte{1, 2}}); err != nil {
			t.Fatal(err)
		}
		var rounds []matchmaker.Round
		for range 3 {
			r := f.round()
			if want := c.Clock.Now().Unix(); r.Now != want {
				t.Errorf("store %d held a round at %d, its clock stands at %d", i, r.Now, want)
			}
			rounds = append(rounds, r)
		}
		if i == 0 {
			first = rounds
			if len(rounds[0].Assignments) == 0 || len(rounds[1].Assignments) == 0 || len(rounds[0].Unserved) == 0 {
				t.Fatalf("too little happens to compare: %+v", rounds)
			}
			continue
		}
		if diff := cmp.Diff(first, rounds); diff != "" {
			t.Errorf("store %d (-first +this):\n%s", i, diff)
		}
	}
}

// Two servers with separate connections to one database run rounds continuously, and each
// job is assigned once.
func TestTwoNodesOnPostgres(t *testing.T) {
	spec.Covers(t, "M-44", "M-119", "M-155")
	url := pgtest.Database(t)
	var nodes []*fixture
	for i := range 2 {
		f := newFixture(t, onPostgres(t, url, store.Config{}), matchmaker.Options{})
		if i > 0 { // with its own random numbers
			f = f.another(matchmaker.Options{})
		}
		nodes = append(nodes, f)
	}
	nodes[0].unhurried()
	for i, p := range names(6) {
		nodes[i%2].provider(p)
	}
	const jobs = 60
	list := make([]matchmaker.Job, jobs)
	var submitting sync.WaitGroup
	for n, f := range nodes {
		f.run()
		submitting.Go(func() {
			for i := n; i < jobs; i += 2 {
				list[i] = f.submit()
				if i%10 < 2 { // and on request too
					f.round()
				}
			}
		})
	}
	submitting.Wait()
	// Providers work until everything is done, each through either node.
	for deadline := time.Now().Add(5 * time.Minute); ; {
		done := 0
		for i, j := range list {
			f := nodes[i%2]
			switch now := f.job(j); now.State {
			case "COMPLETED":
				done++
			case "ASSIGNED":
				if err := f.complete(nodes[(i+1)%2].ack(f.lease(now.Lease))); err != nil {
					t.Error(err)
				}
			}
		}
		if done == jobs {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("%d of %d are done", done, jobs)
		}
		nodes[0].beats(names(6)...)
	}
	for _, j := range list {
		nodes[0].told(j, "jobAssigned", "jobCompleted")
	}
	assigned := map[string]uint64{}
	for n := uint64(1); ; n++ {
		r, err := nodes[0].RoundRecord(t.Context(), n)
		if err != nil {
			if len(assigned) != jobs {
				t.Errorf("%d rounds assigned %d of %d jobs; then %v", n-1, len(assigned), jobs, err)
			}
			break
		}
		for _, a := range r.Result.Assignments {
			if before := assigned[a.Job]; before > 0 {
				t.Errorf("%s was assigned in round %d and in round %d", a.Job, before, n)
			}
			assigned[a.Job] = n
		}
		if err := r.Check(); err != nil {
			t.Error(err)
		}
	}
}
