package engine

import (
	"cmp"
	"context"
	"slices"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/machine"
	"github.com/gopherqueue/gq/store"
)

// keyed returns a page of the jobs that a query selects by their keys, and of replays of jobs.
func (e *Engine) keyed(ctx context.Context, q gq.Query) (page gq.Page, err error) {
	if err := machine.CheckQuery(&q); err != nil {
		return page, err
	}
	all := q
	all.Types, all.Tags, all.Keys = nil, nil, nil
	if err := store.CheckQuery(&all); err != nil {
		return page, err
	}
	after, err := store.ParseCursor(q.Cursor)
	if err != nil {
		return page, err
	}
	scopes := slices.Clone(q.Types)
	if len(scopes) > 0 {
		scopes = append(scopes, machine.ReplayScope)
	}
	keys := slices.Compact(slices.Sorted(slices.Values(q.Keys)))
	slices.Sort(scopes)
	ids, err := e.store.Keyed(ctx, slices.Compact(scopes), keys)
	if err != nil {
		return page, err
	}
	refs := make([]store.Ref, len(ids))
	for i, id := range ids {
		refs[i] = store.Ref{Job: id}
	}
	for part := range slices.Chunk(refs, store.MaxPage) {
		found, err := e.store.Get(ctx, part, 0)
		if err != nil {
			return page, err
		}
		for i := range found {
			if found[i].Err == nil && q.Picked(&found[i].Job) && holds(&q, &found[i].Job, after) {
				page.Jobs = append(page.Jobs, found[i].Job)
			}
		}
	}
	slices.SortFunc(page.Jobs, func(a, b gq.Job) int {
		if q.OldestFirst {
			a, b = b, a
		}
		return cmp.Compare(b.State.Sequence, a.State.Sequence)
	})
	if len(page.Jobs) > all.Limit {
		page.Jobs = page.Jobs[:all.Limit]
		page.Next = store.Cursor(page.Jobs[all.Limit-1].State.Sequence)
	}
	return page, nil
}

// holds reports whether a job is one of those that a store selects by itself, behind a cursor.
func holds(q *gq.Query, j *gq.Job, after uint64) bool {
	s := &j.State
	passed := q.OldestFirst && s.Sequence <= after || !q.OldestFirst && s.Sequence >= after
	return !(after > 0 && passed) &&
		(q.Queue == "" || q.Queue == j.Spec.Queue) &&
		(len(q.Statuses) == 0 || slices.Contains(q.Statuses, s.Status)) &&
		!s.CreatedAt.Before(q.CreatedAfter) &&
		(q.CreatedBefore.IsZero() || s.CreatedAt.Before(q.CreatedBefore))
}
