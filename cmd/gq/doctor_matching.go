package main

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/internal/faces/matching"
)

// parkedSample is how many ready jobs of matching that had a lease are explained, the oldest.
const parkedSample = 20

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
	page, err := q.List(ctx, gq.Query{Queue: matching.Queue, Statuses: []gq.Status{gq.StatusScheduled}, OldestFirst: true, Limit: strandedSample})
	if err != nil {
		return err
	}
	explained := 0
	for i := range page.Jobs {
		s := &page.Jobs[i].State
		if s.Lease == nil || explained >= parkedSample {
			continue
		}
		explained++
		x, err := q.Explain(ctx, s.ID)
		if errors.Is(err, gq.ErrNotFound) {
			continue
		}
		if err != nil {
			return err
		}
		for _, r := range x.Also {
			if strings.HasPrefix(r.Summary, matching.StalledBeacon) {
				f.add("fail", "beacon", "%s, and jobs wait for another; %s; gq job explain %s", clean(r.Summary), r.Remedy, s.ID)
				return nil
			}
		}
	}
	return nil
}
