package postgres

import (
	"context"
	"fmt"

	"github.com/gopherqueue/gq/store"
)

// waitingQueues selects the queues from $1 to $2 that have jobs which are or will be
// claimable, or leases that have expired. It jumps from queue to queue along the indexes
// ready_claim, ready_aside and held_due, so that it reads one entry for each.
var waitingQueues = `
	WITH RECURSIVE ready (queue) AS (
		SELECT ` + fmt.Sprintf(nextWaiting, ">= $1") + `
		UNION ALL
		SELECT ` + fmt.Sprintf(nextWaiting, "> r.queue") + `
		FROM ready AS r
		WHERE r.queue IS NOT NULL
	), held (queue) AS (
		(SELECT s.queue FROM gq.held AS s WHERE s.queue >= $1 AND s.queue < $2 ORDER BY s.queue LIMIT 1)
		UNION ALL
		SELECT (SELECT s.queue FROM gq.held AS s WHERE s.queue > h.queue AND s.queue < $2 ORDER BY s.queue LIMIT 1)
		FROM held AS h
		WHERE h.queue IS NOT NULL
	)
	SELECT queue
	FROM (
		(SELECT n.queue FROM ready AS n WHERE n.queue IS NOT NULL AND ` + notPaused + ` LIMIT $3)
		UNION
		(
			SELECT n.queue FROM held AS n
			WHERE n.queue IS NOT NULL AND EXISTS (SELECT FROM gq.held AS s WHERE s.queue = n.queue AND s.due <= $4) AND ` + notPaused + `
			LIMIT $3
		)
	) AS n
	ORDER BY queue
	LIMIT $3`

// nextWaiting is the first queue with waiting jobs below $2. The gap is for where to begin.
const nextWaiting = `least(
			(SELECT s.queue FROM gq.ready AS s WHERE s.status IN (2, 3, 6) AND s.aside IS NULL AND s.queue %[1]s AND s.queue < $2 ORDER BY s.queue LIMIT 1),
			(SELECT s.queue FROM gq.ready AS s WHERE s.aside IS NOT NULL AND s.queue %[1]s AND s.queue < $2 ORDER BY s.queue LIMIT 1))`

const notPaused = "NOT EXISTS (SELECT FROM gq.queue AS q WHERE q.name = n.queue AND (q.config -> 'Paused')::boolean)"

// Waiting implements [store.Store].
func (s *Store) Waiting(ctx context.Context, prefix, after string, limit int) (queues []string, err error) {
	if err := store.CheckWaiting(limit); err != nil {
		return nil, err
	}
	// Names are of letters, digits and - _ . : / which all come between \x01 and ~.
	from, to := prefix, prefix+"~"
	if after >= prefix {
		from = after + "\x01"
	}
	err = s.read(ctx, func(tx *txn) error {
		queues, err = collect[string](tx.Query(ctx, waitingQueues, from, to, limit, nanoseconds(tx.now)))
		return err
	})
	return queues, err
}
