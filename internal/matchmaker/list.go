package matchmaker

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/internal/enum"
	"github.com/gopherqueue/gq/internal/matchmaker/audit"
	"github.com/gopherqueue/gq/internal/matchmaker/ledger"
	"github.com/gopherqueue/gq/internal/projection"
	"github.com/gopherqueue/gq/match"
	"github.com/gopherqueue/gq/store"
)

// JobQuery selects jobs, newest first. Zero fields select all.
type JobQuery struct {
	State     string // as [Job.State]
	Kind      match.Kind
	Requester *string
	Cursor    string
	Limit     int
}

// JobPage is a page of jobs, without payloads and digests.
type JobPage struct {
	Jobs []Job
	Next string // cursor of the next page; "" on the last
}

// statesOf returns the statuses of a job's state.
func statesOf(state string) (list []gq.Status) {
	for _, s := range enum.All[gq.Status]() {
		if (projection.View{Status: s}).Matching() == state {
			list = append(list, s)
		}
	}
	return list
}

// JobStates lists the states of jobs.
func JobStates() (list []string) {
	for _, s := range enum.All[gq.Status]() {
		if name := (projection.View{Status: s}).Matching(); !slices.Contains(list, name) {
			list = append(list, name)
		}
	}
	return list
}

// Jobs lists jobs. A page has fewer than its limit, or none, where jobs do not match; more
// follow while there is a cursor.
func (d *Dispatcher) Jobs(ctx context.Context, q JobQuery) (JobPage, error) {
	set, err := d.Settings(ctx)
	if err != nil {
		return JobPage{}, err
	}
	ask := gq.Query{Queue: d.queue, Cursor: q.Cursor, Limit: q.Limit}
	if q.State != "" {
		ask.Statuses = statesOf(q.State)
	}
	if q.Kind != 0 {
		ask.Types = []string{q.Kind.String()}
	}
	if err := d.engine.CatchUp(ctx); err != nil { // so that states are those of now
		return JobPage{}, err
	}
	page, err := d.engine.List(ctx, ask)
	if err != nil {
		return JobPage{}, err
	}
	out := JobPage{Next: page.Next}
	for i := range page.Jobs {
		j, err := d.jobOf(&page.Jobs[i], &set)
		if err != nil {
			continue // it ended before the horizon, or another API submitted an invalid one
		}
		if q.State != "" && j.State != q.State || q.Requester != nil && j.Requester != *q.Requester {
			continue
		}
		out.Jobs = append(out.Jobs, j)
	}
	return out, nil
}

// LeasePage is a page of active leases.
type LeasePage struct {
	Leases []Holding
	Next   int64 // where the next page begins; 0 on the last
}

// Leases lists active leases with their jobs in the order in which they were granted, of one
// provider or, without a name, of all. It continues after the number of an assignment. One
// page is one read of the store; it has fewer than the limit where leases have just ended.
func (d *Dispatcher) Leases(ctx context.Context, provider string, after int64, limit int) (LeasePage, error) {
	page, err := d.leases(ctx, provider, after, limit)
	if err != nil && provider != "" {
		return LeasePage{}, fmt.Errorf("leases of provider %.80q: %w", provider, err)
	}
	if err != nil {
		return LeasePage{}, fmt.Errorf("list leases: %w", err)
	}
	return page, nil
}

func (d *Dispatcher) leases(ctx context.Context, provider string, after int64, limit int) (out LeasePage, err error) {
	set, open, err := d.openAfter(ctx, provider, after)
	if err != nil {
		return out, err
	}
	if limit = min(limit, page); len(open) > limit {
		open = open[:limit]
		out.Next = open[limit-1].Match
	}
	if len(open) == 0 {
		return out, nil
	}
	refs := make([]store.Ref, len(open))
	for i := range open {
		refs[i] = store.Ref{Lease: open[i].Lease}
	}
	found, err := d.store.Get(ctx, refs, gq.WithPayload)
	if err != nil {
		return LeasePage{}, err
	}
	for i := range found {
		switch h, holds, err := d.holding(&found[i], open[i].Lease, &set); {
		case err != nil:
			return LeasePage{}, fmt.Errorf("lease %.80q: %w", open[i].Lease, err)
		case holds:
			out.Leases = append(out.Leases, h)
		}
	}
	return out, nil
}

// openAfter lists the leases after an assignment that have not ended as far as this node
// knows, of one provider or of all, and returns the settings.
func (d *Dispatcher) openAfter(ctx context.Context, provider string, after int64) (set match.Settings, open []ledger.Entry, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.catchUp(ctx); err != nil {
		return set, nil, err
	}
	set = d.settings.Clone()
	if provider == "" {
		for _, l := range d.ledger.All() {
			open = append(open, l.Entry)
		}
		slices.SortFunc(open, func(a, b ledger.Entry) int { return cmp.Compare(a.Match, b.Match) })
	} else {
		p := d.registry.Get(provider)
		if p == nil {
			return set, nil, gq.ErrNotFound
		}
		open = p.Account.Statement().Open
	}
	first, found := slices.BinarySearchFunc(open, after, func(e ledger.Entry, n int64) int { return cmp.Compare(e.Match, n) })
	if found {
		first++
	}
	return set, open[first:], nil
}

// RoundSummary describes a recorded round.
type RoundSummary = audit.Summary

// Rounds lists recorded rounds before a number, newest first; 0 is the newest. next is where
// the next page begins, 0 on the last.
func (d *Dispatcher) Rounds(ctx context.Context, before uint64, limit int) (list []RoundSummary, next uint64, err error) {
	h, err := d.headNow(ctx)
	if err == nil {
		if before == 0 || before > h.Round+1 {
			before = h.Round + 1
		}
		list, err = audit.List(ctx, d.store, before, limit)
	}
	if err != nil {
		return nil, 0, fmt.Errorf("list rounds: %w", err)
	}
	if n := len(list); n == limit && list[n-1].Round > 1 {
		next = list[n-1].Round
	}
	return list, next, nil
}
