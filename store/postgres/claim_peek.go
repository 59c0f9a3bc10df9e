package postgres

import (
	"bytes"
	"context"
	"fmt"
	"math"
	"slices"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/machine"
	"github.com/gopherqueue/gq/store"
)

// Peek implements [store.Store].
func (s *Store) Peek(ctx context.Context, f store.Filter, n int) ([]store.Found, error) {
	if err := f.Check(); err != nil {
		return nil, err
	}
	if n < 1 || n > store.MaxClaim {
		return nil, &gq.InvalidError{Faults: []gq.Fault{{
			Field: "n", Problem: fmt.Sprintf("%d is not between 1 and %d", n, store.MaxClaim),
		}}}
	}
	var out []store.Found
	err := s.read(ctx, func(tx *txn) error {
		queues, err := tx.readQueues(ctx, "SELECT name, config FROM gq.queue WHERE name = ANY ($1) AND config IS NOT NULL", f.Queues)
		if err != nil {
			return err
		}
		var rows []*row
		limits := &limits{tx: tx}
		for i, name := range f.Queues {
			if slices.Contains(f.Queues[:i], name) {
				continue // already read
			}
			q, ok := queues[name]
			if !ok {
				q = machine.NewQueue(name)
			}
			more, err := tx.peek(ctx, f, q, n-len(rows), limits)
			if err != nil {
				return err
			}
			rows = append(rows, more...)
		}
		jobs, err := tx.assemble(ctx, rows, 0)
		for _, j := range jobs {
			out = append(out, store.Found{Job: j})
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

// peek reads the jobs that a claim would get from one queue: the candidates, and the held
// jobs whose leases a claim would take back first.
func (tx *txn) peek(ctx context.Context, f store.Filter, q gq.Queue, n int, limits *limits) ([]*row, error) {
	types, offers := storable(f.Types), storable(f.Offers)
	if n <= 0 || q.Paused || len(f.Types) > 0 && len(types) == 0 {
		return nil, nil
	}
	now := nanoseconds(tx.now)
	late, err := tx.scanRows(tx.Query(ctx, `
		SELECT `+columns+`
		FROM gq.held AS s
		WHERE s.queue = $1 AND s.due <= $2`,
		q.Name, now))
	if err != nil {
		return nil, err
	}
	if q.MaxRunning > 0 {
		room, err := tx.room(ctx, q, n)
		if err != nil {
			return nil, err
		}
		n = min(n, room+len(late))
	}
	// Jobs past their lifetime are candidates too, but no claim gets them.
	l, err := limits.of(ctx, q)
	if err != nil {
		return nil, err
	}
	queues, bands := levels(q.Name)
	look := candidates
	args := []any{queues, bands, now, types, offers, l.afford(f.MaxCost, gq.StatusRunning), l.full(), math.MaxInt32}
	if ratesKeys(&q) {
		look = ratedCandidates
	}
	rows, err := tx.scanRows(tx.Query(ctx, look, args...))
	if err != nil {
		return nil, err
	}
	if ratesKeys(&q) {
		more, err := tx.scanRows(tx.Query(ctx, asideCandidates, args...))
		if err != nil {
			return nil, err
		}
		rows = append(rows, more...)
	}
	for _, r := range late {
		next, _, err := machine.Advance(r.state, tx.draw(), tx.now)
		if err != nil {
			return nil, err
		}
		spec, err := r.specOf()
		if err != nil {
			return nil, err
		}
		if r.state = next; f.Selects(spec) {
			rows = append(rows, r)
		}
	}
	rows = slices.DeleteFunc(rows, func(r *row) bool { return !machine.Claimable(&r.state, tx.now) })
	slices.SortFunc(rows, func(a, b *row) int {
		switch x, y := machine.Order(&a.state), machine.Order(&b.state); {
		case x.Less(y):
			return -1
		case y.Less(x):
			return 1
		default:
			return bytes.Compare(a.state.ID[:], b.state.ID[:])
		}
	})
	if ratesKeys(&q) {
		names, err := limitKeys(rows)
		if err != nil {
			return nil, err
		}
		if err := tx.readKeys(ctx, l, names); err != nil {
			return nil, err
		}
	}
	var seen []*row
	for _, r := range rows {
		spec, err := r.specOf()
		if err != nil {
			return nil, err
		}
		if !l.fits(spec, gq.StatusRunning) || !l.allows(spec, tx.now) {
			continue
		}
		if len(seen) >= n {
			break
		}
		if _, ok := l.pace(tx.now); !ok {
			break
		}
		l.useKey(spec, tx.now)
		l.take(spec, &r.state, gq.StatusRunning)
		r.state = r.state.At(tx.now)
		seen = append(seen, r)
	}
	return seen, nil
}
