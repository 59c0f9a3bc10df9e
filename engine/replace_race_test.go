package engine_test

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/engine"
	"github.com/gopherqueue/gq/store"
)

// TestReplaceVersusClaim: two servers replace one waiting job while a third claims it. Either
// the job runs and both replacements are refused, or it is cancelled and has exactly one
// successor, and each names the other. On PostgreSQL every server has its own store.
func TestReplaceVersusClaim(t *testing.T) {
	const rounds = 40
	for name, replace := range map[string]func(e *engine.Engine, old gq.JobID, key string) (gq.SubmitResult, error){
		"by key": func(e *engine.Engine, _ gq.JobID, key string) (gq.SubmitResult, error) {
			return e.Submit(t.Context(), gq.Spec{
				Type: "t", Delay: time.Hour, Key: gq.IdempotencyKey{Name: key}, Unique: gq.UniqueRule{While: gq.WhileLive, OnCollision: gq.Replace},
			})
		},
		"by edit": func(e *engine.Engine, old gq.JobID, _ string) (gq.SubmitResult, error) {
			return e.Edit(t.Context(), old, gq.JobEdit{RunAt: time.Now().Add(time.Hour)})
		},
	} {
		t.Run(name, func(t *testing.T) {
			onEachStore(t, func(t *testing.T, again func() store.Store) {
				r := replaceRace{T: t, replace: replace, refusal: map[string]error{"by key": gq.ErrNotUnique, "by edit": gq.ErrIllegalMove}[name]}
				for i := range r.servers {
					r.servers[i] = newEngine(t, again(), engine.Options{})
				}
				claimed := 0
				for n := range rounds {
					if r.round(n) {
						claimed++
					}
				}
				t.Logf("the claim came first in %d of %d rounds", claimed, rounds)
			})
		})
	}
}

type replaceRace struct {
	*testing.T
	servers [3]*engine.Engine // the last one claims
	replace func(e *engine.Engine, old gq.JobID, key string) (gq.SubmitResult, error)
	refusal error // of a replacement that came too late
}

// round runs one race, and reports whether the claim came first.
func (r *replaceRace) round(n int) (claimed bool) {
	r.Helper()
	key := fmt.Sprint("k", n)
	old := must[gq.SubmitResult](r)(r.servers[0].Submit(r.Context(), gq.Spec{
		Type: "t", Key: gq.IdempotencyKey{Name: key}, Unique: gq.UniqueRule{While: gq.WhileLive},
	})).ID()
	var (
		all   sync.WaitGroup
		jobs  []gq.Job
		err   error
		made  [2]gq.SubmitResult
		fails [2]error
	)
	calls := []func(){
		func() { made[0], fails[0] = r.replace(r.servers[0], old, key) },
		func() { jobs, err = r.servers[2].Claim(r.Context(), gq.ClaimRequest{Worker: "w", N: 1}) },
		func() { made[1], fails[1] = r.replace(r.servers[1], old, key) },
	}
	for i := range calls { // each begins first in some rounds
		all.Go(calls[(i+n)%len(calls)])
	}
	all.Wait()
	if err != nil {
		r.Fatal(err)
	}
	var successors []gq.JobID
	for i, err := range fails {
		if err == nil {
			successors = append(successors, made[i].ID())
		} else {
			wantErr(r, "a replacement that came too late", err, r.refusal)
		}
	}
	state := r.job(old).State
	if len(jobs) == 1 {
		if jobs[0].State.ID != old || state.Status != gq.StatusRunning || !state.ReplacedBy.IsZero() || len(successors) > 0 {
			r.Fatalf("round %d: job %s was claimed; %s is %s, replaced by %s, with successors %v", n, jobs[0].State.ID, old, state.Status, state.ReplacedBy, successors)
		}
		if _, err := r.servers[2].Complete(r.Context(), jobs[0].State.Lease.Ref(), nil); err != nil {
			r.Fatal(err)
		}
		return true
	}
	// By its key a successor can be replaced again; an edit names the job itself.
	if len(successors) == 0 || len(successors) == 2 && r.refusal == gq.ErrIllegalMove { //nolint:errorlint // which of two this test wants
		r.Fatalf("round %d: the job was not claimed and has the successors %v", n, successors)
	}
	last := old
	for range successors {
		s := r.job(last).State
		if s.Status != gq.StatusCancelled || s.ReplacedBy.IsZero() {
			r.Fatalf("round %d: %s is %s, replaced by %s", n, last, s.Status, s.ReplacedBy)
		}
		next := r.job(s.ReplacedBy)
		if next.Spec.Replaces != last {
			r.Fatalf("round %d: %s replaces %s, want %s", n, s.ReplacedBy, next.Spec.Replaces, last)
		}
		last = s.ReplacedBy
	}
	if s := r.job(last).State; s.Status != gq.StatusDelayed || !s.ReplacedBy.IsZero() {
		r.Fatalf("round %d: the last successor is %s, replaced by %s", n, s.Status, s.ReplacedBy)
	}
	for _, id := range successors {
		if s := r.job(id).State; (id == last) != (s.Status == gq.StatusDelayed) {
			r.Fatalf("round %d: successor %s is %s", n, id, s.Status)
		}
	}
	return false
}

func (r *replaceRace) job(id gq.JobID) gq.Job {
	r.Helper()
	return must[gq.Job](r)(r.servers[2].Get(r.Context(), id, 0))
}
