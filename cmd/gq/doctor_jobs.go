package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/gopherqueue/gq"
)

// strandedSample is how many ready jobs of a queue are looked at, the newest.
const strandedSample = 200

// stranded finds ready jobs that no live worker can run, in queues that workers serve: no worker handles
// their type, offers what they require or accepts their cost.
func (f *findings) stranded(ctx context.Context, q queue, queues []gq.Queue, counts []gq.Count, workers []gq.LiveWorker) error {
	ready := map[string]int64{}
	for i := range counts {
		ready[counts[i].Queue] = counts[i].By[gq.StatusScheduled]
	}
	for i := range queues {
		name := queues[i].Name
		if queues[i].Paused || ready[name] == 0 || !hasWorker(name, workers) {
			continue
		}
		page, err := q.List(ctx, gq.Query{Queue: name, Statuses: []gq.Status{gq.StatusScheduled}, Limit: strandedSample})
		if err != nil {
			return err
		}
		type group struct {
			n     int
			first gq.JobID
		}
		found := map[string]*group{}
		var order []string
		for k := range page.Jobs {
			why := unable(&page.Jobs[k].Spec, workers)
			if why == "" {
				continue
			}
			g := found[why]
			if g == nil {
				g = &group{first: page.Jobs[k].State.ID}
				found[why] = g
				order = append(order, why)
			}
			g.n++
		}
		for _, why := range order {
			g := found[why]
			f.add("fail", "jobs", "%d of %d ready jobs in queue %s cannot run: %s; gq job explain %s", g.n, len(page.Jobs), name, why, g.first)
		}
	}
	return nil
}

// hasWorker reports whether a live worker claims from a queue.
func hasWorker(queue string, workers []gq.LiveWorker) bool {
	for i := range workers {
		for _, name := range workers[i].Queues {
			if gq.MatchQueue(name, queue) {
				return true
			}
		}
	}
	return false
}

// unable says why none of the workers can run a job, or nothing if one can.
func unable(s *gq.Spec, workers []gq.LiveWorker) string {
	handles, offers := false, false
	for i := range workers {
		w := &workers[i]
		if !w.Serves(s.Queue, s.Type) {
			continue
		}
		handles = true
		if len(w.Lacks(s.Requires)) > 0 {
			continue
		}
		offers = true
		if w.MaxCost == 0 || s.CostUnits <= w.MaxCost {
			return ""
		}
	}
	switch {
	case !handles:
		return fmt.Sprintf("no live worker handles type %s", s.Type)
	case !offers:
		return "no live worker offers all of " + strings.Join(s.Requires, ", ")
	default:
		return fmt.Sprintf("no live worker accepts a cost of %d", s.CostUnits)
	}
}

// diskLow is the free space below which doctor mentions it.
const diskLow = 4 << 30

// disk tells about the space for an embedded store. A store that does not measure it tells nothing.
func (f *findings) disk(s *gq.Stats) {
	free := fmt.Sprintf("%s are free where the store is, which has %s and keeps %s in reserve", bytesText(s.DiskFree), bytesText(s.DiskBytes), bytesText(s.DiskReserve))
	switch {
	case s.DiskReserve == 0:
	case s.DiskRefuses == gq.RefusesWrites:
		f.add("fail", "disk", "%s; submissions, claims and all other changes are refused; free some space", free)
	case s.DiskRefuses != "":
		f.add("fail", "disk", "%s; submissions are refused; free some space", free)
	case s.DiskFree < s.DiskReserve+s.DiskReserve/3:
		f.add("fail", "disk", "%s; submissions are refused soon; free some space", free)
	case s.DiskFree < diskLow || s.DiskFree < s.DiskBytes:
		f.add("note", "disk", "%s", free)
	default:
		f.add("ok", "disk", "%s are free", bytesText(s.DiskFree))
	}
}
