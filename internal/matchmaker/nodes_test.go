package matchmaker_test

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/internal/errs"
	"github.com/gopherqueue/gq/internal/matchmaker"
	"github.com/gopherqueue/gq/internal/testing/spec"
	"github.com/gopherqueue/gq/match"
)

// The state survives the process: a second one continues where the first stopped.
func TestRestart(t *testing.T) {
	spec.Covers(t, "M-18", "M-49", "M-128")
	bubble(t, matchmaker.Options{}, func(f *fixture) {
		f.policy(`{"quotas":{"leases_max_per_provider":2},"health":{"recover_ppb_per_sec":0}}`)
		f.provider("p")
		var jobs []matchmaker.Job
		for range 3 {
			jobs = append(jobs, f.submit())
		}
		r := f.round()
		f.ack(f.lease(r.Assignments[0].Lease))
		before := f.standing("p")
		g := f.another(matchmaker.Options{})
		if diff := cmp.Diff(before, g.standing("p")); diff != "" {
			f.Errorf("(-before +after):\n%s", diff)
		}
		g.idle("both leases are taken")
		for _, j := range jobs {
			if diff := cmp.Diff(f.job(j), g.job(j)); diff != "" {
				f.Errorf("(-before +after):\n%s", diff)
			}
		}
		// Leases that ended while no process ran are recorded once.
		time.Sleep(5 * time.Second)
		h := f.another(matchmaker.Options{})
		h.sweeps()
		time.Sleep(time.Second)
		i := f.another(matchmaker.Options{})
		i.beats("p")
		i.round()
		if p := i.standing("p"); p.Health != 980_000_000 || p.Fails != 1 {
			f.Errorf("entered as %+v", p)
		}
		if p := f.another(matchmaker.Options{}).standing("p"); p.Health != 980_000_000 || p.Fails != 1 {
			f.Errorf("entered twice: %+v", p)
		}
		if p := f.standing("p"); p.Health != 980_000_000 || p.Fails != 1 {
			f.Errorf("the first process: %+v", p)
		}
	})
}

// If many nodes run a round at the same time, one of them decides it.
func TestOneRoundWins(t *testing.T) {
	spec.Covers(t, "M-44", "M-119", "M-155")
	bubble(t, matchmaker.Options{}, func(f *fixture) {
		nodes := []*fixture{f}
		for range 3 {
			nodes = append(nodes, f.another(matchmaker.Options{}))
		}
		for _, p := range names(4) {
			f.provider(p)
		}
		for n := range 20 {
			for range 10 {
				nodes[n%4].submit()
			}
			f.beats(names(4)...)
			var wait sync.WaitGroup
			rounds := make([]matchmaker.Round, len(nodes))
			for i, node := range nodes {
				wait.Go(func() {
					r, err := node.Round(f.Context())
					if err != nil {
						f.Errorf("node %d: %v", i, err)
					}
					rounds[i] = r
				})
			}
			wait.Wait()
			seen := make(map[string]bool)
			numbers := make(map[uint64]bool)
			for _, r := range rounds {
				if r.Number > 0 && numbers[r.Number] {
					f.Errorf("two nodes held round %d", r.Number)
				}
				numbers[r.Number] = true
				for _, a := range r.Assignments {
					if seen[a.Job] {
						f.Errorf("%s was assigned twice", a.Job)
					}
					seen[a.Job] = true
					if err := nodes[n%3].complete(nodes[n%2].ack(f.lease(a.Lease))); err != nil {
						f.Error(err)
					}
				}
			}
			if len(seen) != 10 {
				f.Errorf("round %d assigned %d of 10", n, len(seen))
			}
		}
		for _, node := range nodes {
			for _, p := range names(4) {
				if got := node.standing(p); got.LeasesActive != 0 {
					f.Errorf("%s holds %d", p, got.LeasesActive)
				}
			}
		}
		f.replay(1)
	})
}

// replay recomputes some of the recorded rounds.
func (f *fixture) replay(every uint64) (rounds int) {
	f.Helper()
	for n := uint64(1); ; n += every {
		r, err := f.RoundRecord(f.Context(), n)
		if errs.KindOf(err) == gq.KindNotFound {
			return rounds
		}
		if err != nil {
			f.Fatal(err)
		}
		if err := r.Check(); err != nil {
			f.Error(err)
		}
		rounds++
	}
}

// The same state gives the same rounds, in whatever order it arrived.
func TestOrderOfArrivalDoesNotMatter(t *testing.T) {
	spec.Covers(t, "M-08", "M-15", "M-155")
	var rounds []matchmaker.Round
	for seed := range uint64(3) {
		bubble(t, matchmaker.Options{}, func(f *fixture) {
			rng := rand.New(rand.NewPCG(seed, 0))
			order := rng.Perm(30)
			for _, i := range order {
				f.provider(fmt.Sprintf("p%02d", i), func(p *match.Provider) {
					p.Models = []string{"m", fmt.Sprintf("x%d", i%3)}
					p.Region = []string{"eu", "us"}[i%2]
				})
			}
			for i := range 40 {
				f.submit(fee(int64(i%7)*100_000), model(fmt.Sprintf("x%d", i%4)))
			}
			r := f.round()
			rec, err := f.RoundRecord(f.Context(), r.Number)
			if err != nil {
				f.Fatal(err)
			}
			// The order of the recorded input must not matter.
			rng.Shuffle(len(rec.Input.Jobs), func(i, k int) { rec.Input.Jobs[i], rec.Input.Jobs[k] = rec.Input.Jobs[k], rec.Input.Jobs[i] })
			rng.Shuffle(len(rec.Input.Providers), func(i, k int) {
				rec.Input.Providers[i], rec.Input.Providers[k] = rec.Input.Providers[k], rec.Input.Providers[i]
			})
			if err := rec.Check(); err != nil {
				f.Error(err)
			}
			r.Now = 0
			rounds = append(rounds, r)
		})
	}
	for i := range rounds[1:] {
		if diff := cmp.Diff(rounds[0], rounds[i+1]); diff != "" {
			t.Errorf("run %d (-first +this):\n%s", i+1, diff)
		}
	}
}
