package dashboard

import (
	"fmt"
	"slices"

	"github.com/gopherqueue/gq"
)

// replaysOf returns the replays of finished jobs, as far as the visitor may read them.
func (v *visit) replaysOf(jobs []gq.Job) (map[gq.JobID]gq.JobID, error) {
	keys := make(map[string][]string) // by type: queries with one type look in few scopes
	for i := range jobs {
		name := jobs[i].State.ID.String()
		if !jobs[i].Spec.Unique.IsZero() && jobs[i].Spec.Key.Name != "" {
			name = jobs[i].Spec.Key.Name // its replay has it too
		}
		keys[jobs[i].Spec.Type] = append(keys[jobs[i].Spec.Type], name)
	}
	found := make(map[gq.JobID]gq.JobID)
	for i := range jobs { // the key of a unique job finds only the last of its replays
		if of := jobs[i].Spec.ReplayOf; !of.IsZero() {
			found[of] = jobs[i].State.ID
		}
	}
	for typ, names := range keys {
		for part := range slices.Chunk(names, gq.MaxQueryKeys/2) {
			page, err := v.d.queue.List(v.ctx, gq.Query{Types: []string{typ}, Keys: part, Limit: 1000})
			if err != nil {
				return nil, fmt.Errorf("look for replays: %w", err)
			}
			for i := range page.Jobs {
				if of := page.Jobs[i].Spec.ReplayOf; !of.IsZero() {
					found[of] = page.Jobs[i].State.ID
				}
			}
		}
	}
	return found, nil
}

// notReplayed returns the jobs without a replay.
func (v *visit) notReplayed(jobs []gq.Job) ([]gq.Job, error) {
	have, err := v.replaysOf(jobs)
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(jobs, func(j gq.Job) bool { return !have[j.State.ID].IsZero() }), nil
}
