package postgres

import (
	"context"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/store"
)

// A list of queues asks for the oldest claimable job of each, with one call of List for each
// queue. Such calls share reads: two statements find the jobs of all queues, however many there
// are.

// asksOldest reports whether a query asks for nothing but the oldest claimable job of a queue.
func asksOldest(q *gq.Query) bool {
	return q.Queue != "" && q.OldestFirst && q.Limit == 1 && q.Cursor == "" && len(q.Statuses) == 1 && q.Statuses[0] == gq.StatusScheduled &&
		q.CreatedAfter.IsZero() && q.CreatedBefore.IsZero()
}

// oldestPage is the page of a query for the oldest job of a queue.
type oldestPage struct {
	gq.Page
	unknown bool // the queue has jobs in places where these statements do not look
}

// listOldest answers such a query. It reports false if List must look for the job.
func (s *Store) listOldest(ctx context.Context, queue string) (gq.Page, bool, error) {
	if err := s.enter(); err != nil {
		return gq.Page{}, false, err
	}
	defer s.leave()
	out, err := s.oldests.do(ctx, []string{queue})
	if err != nil {
		return gq.Page{}, false, err
	}
	return out[0].Page, !out[0].unknown, nil
}

// turnsOfEach is turnsOf for several queues. A queue with jobs that were set aside has the
// turn NULL.
const turnsOfEach = `
	SELECT n.queue, t.hi
	FROM unnest($1::text[]) AS n (queue)
	CROSS JOIN LATERAL (
		SELECT NULL::bigint AS hi WHERE EXISTS (SELECT FROM gq.ready AS s WHERE s.aside IS NOT NULL AND s.queue = n.queue)
		UNION ALL
		(
			WITH RECURSIVE turn (hi) AS (
				(SELECT s.order_hi FROM gq.ready AS s WHERE s.status IN (2, 3, 6) AND s.aside IS NULL AND s.queue = n.queue ORDER BY s.order_hi LIMIT 1)
				UNION ALL
				SELECT (SELECT s.order_hi FROM gq.ready AS s WHERE s.status IN (2, 3, 6) AND s.aside IS NULL AND s.queue = n.queue AND s.order_hi > t.hi ORDER BY s.order_hi LIMIT 1)
				FROM turn AS t
				WHERE t.hi IS NOT NULL
			)
			SELECT hi FROM turn WHERE hi IS NOT NULL LIMIT $2
		)
	) AS t`

// firstOfTurns reads the first two claimable jobs of each turn. The second tells whether there
// is another page.
const firstOfTurns = `
	SELECT s.*
	FROM unnest($1::text[], $2::bigint[]) AS t (queue, hi)
	CROSS JOIN LATERAL (
		SELECT ` + readyColumns + `
		FROM gq.ready AS s
		WHERE s.status IN (2, 3, 6) AND s.aside IS NULL AND s.queue = t.queue AND s.order_hi = t.hi AND s.status = 3
		ORDER BY s.order_lo
		LIMIT 2
	) AS s`

// findOldest finds the oldest claimable job of each queue. A queue may be named twice.
func (s *Store) findOldest(ctx context.Context, queues []string, _ bool) (out []oldestPage, err error) {
	asked := slices.Clone(queues)
	slices.Sort(asked)
	asked = slices.Compact(asked)
	err = s.transact(ctx, s.begins.read, func(tx *txn) error {
		found := make(map[string]*oldestPage, len(asked))
		for _, name := range asked {
			found[name] = new(oldestPage)
		}
		if err := tx.findOldest(ctx, asked, found); err != nil {
			return err
		}
		out = make([]oldestPage, len(queues))
		for i, name := range queues {
			out[i] = *found[name]
			out[i].Jobs = slices.Clone(out[i].Jobs)
		}
		return nil
	})
	return out, err
}

func (tx *txn) findOldest(ctx context.Context, asked []string, found map[string]*oldestPage) error {
	turns := make(map[string][]int64, len(asked))
	var batch pgx.Batch
	batch.Queue(readingClock).QueryRow(tx.clockFrom)
	batch.Queue(turnsOfEach, storable(asked), maxTurns+1).Query(func(rows pgx.Rows) error {
		var queue string
		var hi *int64
		_, err := pgx.ForEachRow(rows, []any{&queue, &hi}, func() error {
			if hi == nil {
				found[queue].unknown = true
				return nil
			}
			turns[queue] = append(turns[queue], *hi)
			return nil
		})
		return err
	})
	if err := tx.SendBatch(ctx, &batch).Close(); err != nil {
		return err
	}
	var names []string
	var his []int64
	for _, name := range asked {
		if len(turns[name]) > maxTurns {
			found[name].unknown = true
		}
		if found[name].unknown {
			continue
		}
		for _, hi := range turns[name] {
			names, his = append(names, name), append(his, hi)
		}
	}
	if len(names) == 0 {
		return nil
	}
	rows, err := tx.Query(ctx, firstOfTurns, names, his)
	all, err := tx.scanRows(rows, err)
	if err != nil {
		return err
	}
	first, several := make(map[string]*row, len(asked)), make(map[string]bool)
	for _, r := range all {
		was := first[r.queue]
		several[r.queue] = was != nil
		if was == nil || r.state.Sequence < was.state.Sequence {
			first[r.queue] = r
		}
	}
	shown := make([]*row, 0, len(first))
	for _, name := range asked {
		if r := first[name]; r != nil {
			r.state = r.state.At(tx.now)
			shown = append(shown, r)
		}
	}
	jobs, err := tx.assemble(ctx, shown, 0)
	if err != nil {
		return err
	}
	for _, j := range jobs {
		page := found[j.Spec.Queue]
		page.Jobs = []gq.Job{j}
		if several[j.Spec.Queue] {
			page.Next = store.Cursor(j.State.Sequence)
		}
	}
	return nil
}
