package audit

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/match"
	"github.com/gopherqueue/gq/store"
)

// Follower reads rounds one after another. Unlike [Read] it reads each record once, because
// it keeps the providers of the last round. The zero value can begin anywhere.
type Follower struct {
	last    uint64 // 0 if members is not valid
	members map[string]match.Provider
}

// Read returns a round with its complete input, as [Read] does.
func (f *Follower) Read(ctx context.Context, s store.Documents, n uint64) (Round, error) {
	rec, err := readRecord(ctx, s, n)
	if err != nil {
		return Round{}, err
	}
	if f.last > 0 && f.last == n-1 && rec.Base != rec.Round {
		rec.apply(f.members)
	} else {
		f.last = 0
		all, err := providersOf(ctx, s, &rec)
		if err != nil {
			return Round{}, fmt.Errorf("providers of round %d: %w", n, err)
		}
		f.members = make(map[string]match.Provider, len(all))
		for _, p := range all {
			f.members[p.ID] = p
		}
	}
	f.last = n
	rec.Input.Providers = slices.SortedFunc(maps.Values(f.members), func(a, b match.Provider) int { return strings.Compare(a.ID, b.ID) })
	return rec.round(), nil
}

// apply applies the changes of a record to the providers of the round before.
func (r *record) apply(members map[string]match.Provider) {
	for _, p := range r.Input.Providers {
		members[p.ID] = p
	}
	for _, id := range r.Gone {
		delete(members, id)
	}
}

// round converts a record whose input is complete.
func (r *record) round() Round {
	return Round{
		Round: r.Round, Input: r.Input, OrderDigest: r.Order, Unserved: r.Unserved,
		Result: match.Result{Seed: r.Seed, Assignments: r.Assignments, Requeued: r.Requeued},
	}
}

// FirstFrom returns the first round from a number on whose record is complete, 0 if there
// is none. Records before it were deleted.
func FirstFrom(ctx context.Context, s store.Documents, n uint64) (uint64, error) {
	for {
		docs, err := s.Docs(ctx, kindRound, Name(n-1), 1)
		if err != nil || len(docs) == 0 {
			return 0, err
		}
		if _, err := fmt.Sscanf(docs[0].Name, "%d", &n); err != nil {
			return 0, fmt.Errorf("document %s/%s: %w", kindRound, docs[0].Name, gq.ErrCorrupt)
		}
		switch _, err := Read(ctx, s, n); {
		case err == nil:
			return n, nil
		case !errors.Is(err, gq.ErrNotFound): // the record it builds on was deleted
			return 0, err
		}
		n++
	}
}
