package storetest

import (
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/store"
)

var concurrentCases = []Case{
	{
		Name:   "Concurrent/Work",
		Clause: "many submit, claim and settle at once: each job is done exactly once",
		run:    concurrentWork,
	},
	{
		Name:   "Concurrent/Losses",
		Clause: "with holders that vanish and come back too late each job is still done, by one who held it",
		Covers: []string{"Q-01", "Q-64", "J-90"},
		run:    concurrentLosses,
	},
	{
		Name:   "Concurrent/Dependents",
		Clause: "a dependent inserted while its dependency ends is told, whichever comes first",
		run:    concurrentDependents,
	},
}

func concurrentWork(e *env) {
	const workers, each = 8, 100
	e.open()
	specs := make([][]gq.Spec, workers)
	for i := range specs {
		specs[i] = e.specs(each)
	}
	var (
		wait sync.WaitGroup
		mu   sync.Mutex
		done = make(map[gq.JobID]int)
		left atomic.Int64
	)
	left.Store(workers * each)
	for i, mine := range specs {
		wait.Go(func() {
			for len(mine) > 0 || left.Load() > 0 {
				if len(mine) > 0 {
					n := min(10, len(mine))
					groups := make([]store.Group, n)
					for k := range groups {
						groups[k] = store.One(mine[k])
					}
					mine = mine[n:]
					answers, err := e.s.Insert(e.Context(), groups)
					if err != nil {
						e.Errorf("Insert: %v", err)
						return
					}
					for _, a := range answers {
						if a.Err != nil {
							e.Errorf("Insert: %v", a.Err)
							return
						}
					}
				}
				claimed, err := e.s.Claim(e.Context(), []store.Claim{claimOf(8, by(fmt.Sprint("worker-", i)))})
				if err != nil || claimed[0].Err != nil {
					e.Errorf("Claim: %v, %+v", err, claimed)
					return
				}
				var updates []store.Update
				for _, j := range claimed[0].Jobs {
					updates = append(updates, store.Update{Ref: byLease(j.State.Lease.ID), Apply: completing(j.State.Lease.Ref(), nil)})
				}
				answers, err := e.s.Update(e.Context(), updates)
				if err != nil {
					e.Errorf("Update: %v", err)
					return
				}
				for _, a := range answers {
					if a.Err != nil {
						e.Errorf("a settlement by the holder was refused: %v", a.Err)
						return
					}
					mu.Lock()
					done[a.State.ID]++
					mu.Unlock()
				}
				left.Add(int64(-len(answers)))
			}
		})
	}
	wait.Wait()
	for id, n := range done {
		if n != 1 {
			e.Errorf("job %s was done %d times", id, n)
		}
	}
	if c := e.counts()["q"]; len(done) != workers*each || c.By[gq.StatusCompleted] != workers*each || c.Live() != 0 {
		e.Errorf("%d jobs were done, %d are counted COMPLETED and %d live; want %d, all, none", len(done), c.By[gq.StatusCompleted], c.Live(), workers*each)
	}
}

func concurrentLosses(e *env) {
	const jobs = 200
	e.insert(e.specs(jobs, forever(func(p *gq.Policy) { p.OnLoss = gq.LossFree; p.LeaseTTL = time.Second }))...)
	var (
		wait sync.WaitGroup
		mu   sync.Mutex
		done = make(map[gq.JobID]gq.LeaseID)
	)
	settle := func(claimed []gq.Job) {
		for _, j := range claimed {
			answers, err := e.s.Update(e.Context(), []store.Update{{Ref: byID(j.State.ID), Apply: completing(j.State.Lease.Ref(), nil)}})
			if err != nil {
				e.Errorf("Update: %v", err)
				return
			}
			if answers[0].Err == nil {
				mu.Lock()
				if before, twice := done[j.State.ID]; twice {
					e.Errorf("job %s was settled under lease %s and under %s", j.State.ID, before, j.State.Lease.ID)
				}
				done[j.State.ID] = j.State.Lease.ID
				mu.Unlock()
			}
		}
	}
	for i := range 6 {
		wait.Go(func() {
			for round := range 3000 {
				mu.Lock()
				finished := len(done) == jobs
				mu.Unlock()
				if finished {
					return
				}
				claimed, err := e.s.Claim(e.Context(), []store.Claim{claimOf(7, by(fmt.Sprint("worker-", i)))})
				if err != nil || claimed[0].Err != nil {
					e.Errorf("Claim: %v, %+v", err, claimed)
					return
				}
				if round%3 == i%3 {
					e.clock.Advance(time.Second) // all leases expire, including this one
				}
				settle(claimed[0].Jobs)
			}
		})
	}
	wait.Wait()
	for _, j := range e.claim(1000) {
		settle([]gq.Job{j})
	}
	if c := e.counts()["q"]; len(done) != jobs || c.By[gq.StatusCompleted] != jobs {
		e.Fatalf("%d jobs were settled and %d are counted COMPLETED, want %d", len(done), c.By[gq.StatusCompleted], jobs)
	}
	for id, lease := range done {
		if s := e.state(id); s.Lease.ID != lease || s.Lease.State != gq.LeaseCompleted {
			e.Errorf("job %s is stored with lease %s (%s), the one that was told success has %s", id, s.Lease.ID, s.Lease.State, lease)
		}
	}
}

func concurrentDependents(e *env) {
	for range 20 {
		parent := e.add()
		j := e.one()
		specs := e.specs(8, inQueue("c"), depends(gq.DependencyAfter, parent.ID))
		var wait sync.WaitGroup
		ready := make(chan struct{})
		for _, s := range specs {
			wait.Go(func() {
				<-ready
				answers, err := e.s.Insert(e.Context(), []store.Group{store.One(s)})
				if err != nil || answers[0].Err != nil {
					e.Errorf("Insert: %v, %+v", err, answers)
				}
			})
		}
		wait.Go(func() {
			<-ready
			if _, err := e.s.Update(e.Context(), []store.Update{{Ref: byID(parent.ID), Apply: completing(j.State.Lease.Ref(), nil)}}); err != nil {
				e.Errorf("Update: %v", err)
			}
		})
		close(ready)
		wait.Wait()
		e.release()
		for _, s := range specs {
			e.stands("a dependent inserted while its dependency ended", s.ID, gq.StatusScheduled)
		}
	}
}
