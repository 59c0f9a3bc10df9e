package audit

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/match"
	"github.com/gopherqueue/gq/store"
)

// Summary describes a recorded round.
type Summary struct {
	Round       uint64     `json:"round"`
	Now         int64      `json:"now"`
	Seed        match.Seed `json:"seed"`
	Jobs        int        `json:"jobs"` // that the round considered
	Assignments int        `json:"assignments"`
	Requeued    int        `json:"requeued"`
	SetAside    int        `json:"set_aside"` // jobs that no provider could serve
}

// List returns up to limit rounds before a number, newest first. Numbers have no gaps, so
// that this is one read, and one more for each round that does not fit into one document.
func List(ctx context.Context, s store.Documents, before uint64, limit int) ([]Summary, error) {
	after := ""
	if first := int64(before) - int64(limit); first > 1 {
		after = Name(uint64(first) - 1)
	}
	docs, err := s.Docs(ctx, kindRound, after, limit)
	if err != nil {
		return nil, err
	}
	docs = slices.DeleteFunc(docs, func(d store.Doc) bool { return d.Name >= Name(before) })
	list := make([]Summary, 0, len(docs))
	for _, d := range slices.Backward(docs) {
		rec, err := recordOf(ctx, s, d)
		if errors.Is(err, gq.ErrNotFound) {
			continue // deleted meanwhile
		}
		if err != nil {
			return nil, fmt.Errorf("round %s: %w", d.Name, err)
		}
		list = append(list, rec.summary())
	}
	return list, nil
}

func (r *record) summary() Summary {
	out := Summary{
		Round: r.Round, Now: r.Input.Now, Seed: r.Seed, Jobs: len(r.Input.Jobs), Assignments: len(r.Assignments), Requeued: len(r.Requeued),
	}
	for _, u := range r.Unserved {
		out.SetAside += u.Jobs
	}
	return out
}

// ReadAssignments returns what a round assigned.
func ReadAssignments(ctx context.Context, s store.Documents, n uint64) ([]match.Assignment, error) {
	rec, err := readRecord(ctx, s, n)
	if err != nil {
		return nil, err
	}
	return rec.Assignments, nil
}
