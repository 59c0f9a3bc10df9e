package main

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/internal/faces/matching"
)

const (
	parkedSample = 20     // ready jobs of matching that had a lease and are explained, the oldest
	parkedScan   = 10_000 // ready jobs of matching that are looked at for these
)

// claimers leaves out the providers of matching, to which rounds assign jobs: a queue of theirs has
// its own reasons why a job waits.
func claimers(workers []gq.LiveWorker) []gq.LiveWorker {
	return slices.DeleteFunc(slices.Clone(workers), func(w gq.LiveWorker) bool { return slices.Contains(w.Offers, matching.Requirement) })
}

// beacon finds a posted beacon of matching that has stood for too long while jobs wait for another one.
func (f *findings) beacon(ctx context.Context, q queue, counts []gq.Count) error {
	if !slices.ContainsFunc(counts, func(c gq.Count) bool { return c.Queue == matching.Queue && c.By[gq.StatusScheduled] > 0 }) {
		return nil
	}
	query := gq.Query{Queue: matching.Queue, Statuses: []gq.Status{gq.StatusScheduled}, OldestFirst: true, Limit: 1000}
	for explained, seen := 0, 0; seen < parkedScan; {
		page, err := q.List(ctx, query)
		if err != nil {
			return err
		}
		seen += len(page.Jobs)
		for i := range page.Jobs {
			s := &page.Jobs[i].State
			if s.Lease == nil {
				continue
			}
			if found, err := f.stalled(ctx, q, s.ID); found || err != nil {
				return err
			}
			if explained++; explained == parkedSample {
				return nil
			}
		}
		if query.Cursor = page.Next; page.Next == "" {
			return nil
		}
	}
	return nil
}

// stalled adds the finding and reports true if a job waits for another beacon.
func (f *findings) stalled(ctx context.Context, q queue, id gq.JobID) (found bool, err error) {
	x, err := q.Explain(ctx, id)
	if errors.Is(err, gq.ErrNotFound) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	for _, r := range x.Also {
		if strings.HasPrefix(r.Summary, matching.StalledBeacon) {
			f.add("fail", "beacon", "%s, and jobs wait for another; %s; gq job explain %s", clean(r.Summary), r.Remedy, id)
			return true, nil
		}
	}
	return false, nil
}
