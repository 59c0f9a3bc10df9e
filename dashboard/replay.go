package dashboard

import (
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/gopherqueue/gq"
)

// maxReplays is the number of replays that a dashboard remembers.
const maxReplays = 20_000

// replays are the jobs that this dashboard has replayed, with their replays.
type replays struct {
	acting sync.Mutex // held from the look for a replay until there is one: of two clicks only one replays

	mu    sync.Mutex
	known map[gq.JobID]gq.JobID // guarded by mu
}

func (r *replays) add(job, replay gq.JobID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.known == nil || len(r.known) >= maxReplays {
		r.known = make(map[gq.JobID]gq.JobID)
	}
	r.known[job] = replay
}

func (r *replays) of(job gq.JobID) gq.JobID {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.known[job]
}

// replaysOf returns the replays of finished jobs: those of this dashboard, and others if they are among the newest jobs
// of their types.
func (v *visit) replaysOf(jobs []gq.Job) (map[gq.JobID]gq.JobID, error) {
	found, types := make(map[gq.JobID]gq.JobID), make(map[string]bool)
	var since time.Time
	wanted := make(map[gq.JobID]bool, len(jobs))
	for i := range jobs {
		id := jobs[i].State.ID
		wanted[id], types[jobs[i].Spec.Type] = true, true
		if at := jobs[i].State.CompletedAt; since.IsZero() || at.Before(since) {
			since = at
		}
		if replay := v.d.replays.of(id); !replay.IsZero() {
			found[id] = replay
		}
	}
	if len(jobs) == 0 {
		return found, nil
	}
	q := gq.Query{CreatedAfter: since.Add(-time.Second), Limit: 1000, MaxScan: maxSearched}
	if len(types) <= gq.MaxQueryTypes {
		q.Types = slices.Sorted(maps.Keys(types))
	}
	page, err := v.d.queue.List(v.ctx, q)
	if err != nil {
		return nil, err
	}
	for i := range page.Jobs {
		if of := page.Jobs[i].Spec.ReplayOf; wanted[of] && found[of].IsZero() {
			found[of] = page.Jobs[i].State.ID
		}
	}
	return found, nil
}

// replayOnce submits a finished job again, unless it has another replay than the one that the visitor has seen. It
// returns that replay then.
func (v *visit) replayOnce(id gq.JobID) (replay gq.JobID, done string, err error) {
	v.d.replays.acting.Lock()
	defer v.d.replays.acting.Unlock()
	job, err := v.d.queue.Get(v.ctx, id, 0)
	if err != nil {
		return replay, "", err
	}
	have, err := v.replaysOf([]gq.Job{job})
	if err != nil {
		return replay, "", err
	}
	if replay = have[id]; !replay.IsZero() && replay.String() != v.r.PostForm.Get("known") {
		return replay, "replayed-before", nil
	}
	result, err := v.d.queue.Replay(v.ctx, id)
	if err != nil {
		return replay, "", err
	}
	v.d.replays.add(id, result.ID())
	return result.ID(), "replayed", nil
}

// notReplayed returns the jobs without a replay.
func (v *visit) notReplayed(jobs []gq.Job) ([]gq.Job, error) {
	have, err := v.replaysOf(jobs)
	if err != nil {
		return nil, fmt.Errorf("look for replays: %w", err)
	}
	return slices.DeleteFunc(jobs, func(j gq.Job) bool { return !have[j.State.ID].IsZero() }), nil
}
