package postgres

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/store"
)

// Get implements [store.Store].
func (s *Store) Get(ctx context.Context, refs []store.Ref, parts store.Parts) ([]store.Found, error) {
	out := make([]store.Found, len(refs))
	err := s.read(ctx, "get", func(tx *txn) error {
		ids, err := tx.jobIDs(ctx, refs)
		if err != nil {
			return err
		}
		rows, err := scanRows(tx.Query(ctx, `
			SELECT `+columns+`, j.spec
			FROM gq.state AS s
			JOIN gq.job AS j ON j.id = s.job
			WHERE s.job = ANY ($1)`,
			ids))
		if err != nil {
			return err
		}
		jobs, err := tx.assemble(ctx, rows, parts)
		if err != nil {
			return err
		}
		found := make(map[gq.JobID]store.Job, len(jobs))
		for _, j := range jobs {
			j.State = j.State.At(tx.now)
			found[j.State.ID] = j
		}
		for i, r := range refs {
			var ok bool
			if out[i].Job, ok = found[ids[i]]; ok {
				continue
			}
			if r.Job.IsZero() {
				out[i].Err = fmt.Errorf("get lease %.80q: %w", r.Lease, gq.ErrNotFound)
			} else {
				out[i].Err = fmt.Errorf("get job %s: %w", r.Job, gq.ErrNotFound)
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

// List implements [store.Store]. It follows the index on seq, and in this
// version reads past jobs that the query does not select.
func (s *Store) List(ctx context.Context, q store.Query) (store.Page, error) {
	if err := q.Check(); err != nil {
		return store.Page{}, fmt.Errorf("list: %w", err)
	}
	from, to := int64(math.MinInt64), int64(math.MaxInt64) // sequence numbers, both exclusive
	direction, last := "DESC", &to
	if q.OldestFirst {
		direction, last = "ASC", &from
	}
	if q.Cursor != "" {
		n, err := strconv.ParseInt(q.Cursor, 36, 64)
		if err != nil || n < 1 || strconv.FormatInt(n, 36) != q.Cursor {
			return store.Page{}, fmt.Errorf("list: %w", &gq.InvalidError{Faults: []gq.Fault{{
				Field: "cursor", Problem: "is not one that a list has returned",
			}}})
		}
		*last = n
	}
	statuses := make([]int16, len(q.Statuses))
	for i, s := range q.Statuses {
		statuses[i] = int16(s)
	}
	var page store.Page
	err := s.read(ctx, "list", func(tx *txn) error {
		rows, err := scanRows(tx.Query(ctx, `
			SELECT `+columns+`, j.spec
			FROM gq.state AS s
			JOIN gq.job AS j ON j.id = s.job
			WHERE s.seq > $1 AND s.seq < $2
				AND ($3 = '' OR s.queue = $3)
				AND (cardinality($4::smallint[]) = 0 OR s.status = ANY ($4))
				AND j.created >= $5 AND j.created < $6
			ORDER BY s.seq `+direction+`
			LIMIT $7`,
			from, to, q.Queue, statuses, bound(q.CreatedAfter, math.MinInt64), bound(q.CreatedBefore, math.MaxInt64), q.Limit+1))
		if err != nil {
			return err
		}
		if len(rows) > q.Limit {
			rows = rows[:q.Limit]
			page.Next = strconv.FormatUint(rows[q.Limit-1].state.Sequence, 36)
		}
		for _, r := range rows {
			r.state = r.state.At(tx.now)
		}
		page.Jobs, err = tx.assemble(ctx, rows, 0)
		return err
	})
	if err != nil {
		return store.Page{}, err
	}
	return page, nil
}

// bound is an instant that may lie outside what a number of nanoseconds can
// hold.
func bound(t time.Time, zero int64) int64 {
	switch {
	case t.IsZero():
		return zero
	case t.Year() < 1700:
		return math.MinInt64
	case t.Year() > 2200:
		return math.MaxInt64
	default:
		return t.UnixNano()
	}
}

// Peek implements [store.Store].
func (s *Store) Peek(ctx context.Context, f store.Filter, n int) ([]store.Found, error) {
	if err := f.Check(); err != nil {
		return nil, fmt.Errorf("peek: %w", err)
	}
	if n < 1 || n > store.MaxClaim {
		return nil, fmt.Errorf("peek: %w", &gq.InvalidError{Faults: []gq.Fault{{
			Field: "n", Problem: fmt.Sprintf("%d is not between 1 and %d", n, store.MaxClaim),
		}}})
	}
	var out []store.Found
	err := s.read(ctx, "peek", func(tx *txn) error {
		queues, err := tx.readQueues(ctx, "SELECT name, config FROM gq.queue WHERE name = ANY ($1) AND config IS NOT NULL", f.Queues)
		if err != nil {
			return err
		}
		var rows []*row
		for _, name := range f.Queues {
			q, ok := queues[name]
			if !ok {
				q = gq.NewQueue(name)
			}
			more, err := tx.peek(ctx, f, q, n-len(rows))
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

// peek reads what a claim would get from one queue: the candidates, and among
// the held jobs those that a claim would take back first.
func (tx *txn) peek(ctx context.Context, f store.Filter, q gq.Queue, n int) ([]*row, error) {
	types, offers := storable(f.Types), storable(f.Offers)
	if n <= 0 || q.Paused || len(f.Types) > 0 && len(types) == 0 {
		return nil, nil
	}
	now := nanoseconds(tx.now)
	late, err := scanRows(tx.Query(ctx, `
		SELECT `+columns+`, j.spec
		FROM gq.state AS s
		JOIN gq.job AS j ON j.id = s.job
		WHERE s.queue = $1 AND s.status IN (4, 5) AND s.due <= $2`,
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
	rows, err := scanRows(tx.Query(ctx, candidates, q.Name, now, types, offers, f.MaxCost, math.MaxInt32))
	if err != nil {
		return nil, err
	}
	for _, r := range late {
		next, _, err := r.state.Advance(draw(), tx.now)
		if err != nil {
			return nil, err
		}
		spec, err := gq.DecodeSpec(r.spec)
		if err != nil {
			return nil, err
		}
		if r.state = next; serves(f, spec) {
			rows = append(rows, r)
		}
	}
	rows = slices.DeleteFunc(rows, func(r *row) bool { return !r.state.Claimable(tx.now) })
	slices.SortFunc(rows, func(a, b *row) int {
		switch x, y := a.state.Order(), b.state.Order(); {
		case x.Less(y):
			return -1
		case y.Less(x):
			return 1
		default:
			return bytes.Compare(a.state.ID[:], b.state.ID[:])
		}
	})
	rows = rows[:max(0, min(n, len(rows)))]
	for _, r := range rows {
		r.state = r.state.At(tx.now)
	}
	return rows, nil
}

// serves is the filter of candidates for a job that is not in the index.
func serves(f store.Filter, s gq.Spec) bool {
	if len(f.Types) > 0 && !slices.Contains(f.Types, s.Type) || f.MaxCost > 0 && s.CostUnits > f.MaxCost {
		return false
	}
	return !slices.ContainsFunc(s.Requires, func(c string) bool { return !slices.Contains(f.Offers, c) })
}

// Counts implements [store.Store].
func (s *Store) Counts(ctx context.Context, queues ...string) ([]store.Count, error) {
	var out []store.Count
	err := s.read(ctx, "counts", func(tx *txn) error {
		rows, err := tx.Query(ctx, `
			SELECT queue, status, jobs
			FROM gq.tally
			WHERE $1 OR queue = ANY ($2)
			ORDER BY queue`,
			len(queues) == 0, storable(queues))
		if err != nil {
			return err
		}
		index := make(map[string]int)
		for _, name := range queues {
			index[name] = len(out)
			out = append(out, store.Count{Queue: name})
		}
		var (
			queue  string
			status int16
			jobs   int64
		)
		_, err = pgx.ForEachRow(rows, []any{&queue, &status, &jobs}, func() error {
			i, ok := index[queue]
			if !ok {
				i = len(out)
				index[queue] = i
				out = append(out, store.Count{Queue: queue})
			}
			out[i].By[status] = jobs
			return nil
		})
		return err
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

// PutQueue implements [store.Store].
func (s *Store) PutQueue(ctx context.Context, q gq.Queue) error {
	if err := q.Validate(); err != nil {
		return fmt.Errorf("put queue: %w", err)
	}
	return s.write(ctx, "put queue", func(tx *txn) error {
		// The row is the lock under which limits are checked, so it is there and
		// locked before the time is read.
		if _, err := tx.Exec(ctx, "INSERT INTO gq.queue (name) VALUES ($1) ON CONFLICT DO NOTHING", q.Name); err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, "SELECT FROM gq.queue WHERE name = $1 FOR UPDATE", q.Name); err != nil {
			return err
		}
		if err := tx.stamp(ctx); err != nil {
			return err
		}
		q.UpdatedAt = tx.now
		config, err := json.Marshal(q)
		if err != nil {
			return err
		}
		tx.more.Queue("UPDATE gq.queue SET config = $2 WHERE name = $1", q.Name, config)
		return tx.flush(ctx)
	})
}

// Queues implements [store.Store].
func (s *Store) Queues(ctx context.Context) ([]gq.Queue, error) {
	var out []gq.Queue
	err := s.read(ctx, "queues", func(tx *txn) error {
		queues, err := tx.readQueues(ctx, `
			SELECT name, config FROM gq.queue WHERE config IS NOT NULL
			UNION ALL
			SELECT DISTINCT queue, NULL::jsonb FROM gq.tally
			WHERE queue NOT IN (SELECT name FROM gq.queue WHERE config IS NOT NULL)`)
		for _, q := range queues {
			out = append(out, q)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	slices.SortFunc(out, func(a, b gq.Queue) int { return bytes.Compare([]byte(a.Name), []byte(b.Name)) })
	return out, nil
}
