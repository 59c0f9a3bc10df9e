package postgres

import (
	"fmt"

	"github.com/gopherqueue/gq"
)

// candidatesOf selects the jobs of bands that a claim may get, as far as the columns can
// tell. It reads one band after the other along the index ready_claim, each from its
// floor. The gaps are for the outer and inner columns, the time, another condition, and the
// locking clause.
//
// It must be executed exactly once, so it is a statement of its own or an ARRAY subquery.
// As part of a join it could be executed again and lock more rows than its limit.
const candidatesOf = `
	SELECT %s
	FROM unnest($1::text[], $2::smallint[]) AS n (queue, band) ` + beginnings + `
	CROSS JOIN LATERAL (
		SELECT %s
		FROM gq.ready AS s
		WHERE ` + claimable + `
			AND (s.status = 3 OR s.run_at <= %s)` + selected + `%s
		ORDER BY s.order_hi, s.order_lo
		LIMIT $8
		%s
	) AS s
	LIMIT $8`

// selected are the conditions of a claim's filter and of the limits of keys and pools.
const selected = `
			AND (cardinality($4::text[]) = 0 OR s.type = ANY ($4))
			AND (s.requires IS NULL OR s.requires <@ $5::text[])
			AND ($6::bigint < 0 OR s.cost <= $6)
			AND (s.limited IS NULL OR s.limited <> ALL ($7::text[]))`

// overdueOf selects overdue held jobs of queues, along the index held_due, in any order.
// No queue may be named twice. The gaps are for the time and the locking clause.
const overdueOf = `
	SELECT ` + columns + `
	FROM (SELECT unnest($1::text[]) AS queue, 0::smallint AS band) AS n ` + beginnings + `
	CROSS JOIN LATERAL (
		SELECT ` + columns + `
		FROM gq.held AS s
		WHERE ` + leased + ` AND s.due <= %s
		LIMIT $3
		%s
	) AS s
	LIMIT $3`

// skipping locks the rows that a query finds and skips those that others have locked.
const skipping = "FOR UPDATE SKIP LOCKED"

// notAside excludes jobs whose key has used up its rate. It is a subquery that reads one row
// for each job of a key. The gap is for the time.
const notAside = `
			AND (s.limited IS NULL OR (
				SELECT k.aside AND k.free > %s FROM gq.limit_key AS k WHERE k.queue = s.queue AND k.key = s.limited
			) IS NOT TRUE)`

// asideOf selects, in any order, the candidates that were set aside: see keys_aside.go. It has the
// parameters of candidatesOf. The gap is for another condition.
const asideOf = `
	SELECT ` + readyColumns + `
	FROM gq.ready AS s
	WHERE s.queue = ANY ($1::text[]) AND $2::smallint[] IS NOT NULL AND s.aside IS NOT NULL` + selected + `%s
	LIMIT $8`

var (
	candidates     = fmt.Sprintf(candidatesOf, columns, readyColumns, "$3", "", "")
	lockCandidates = fmt.Sprintf(candidatesOf, columns, readyColumns, "$3", "", skipping)

	ratedCandidates     = fmt.Sprintf(candidatesOf, columns, readyColumns, "$3", fmt.Sprintf(notAside, "$3"), "")
	lockRatedCandidates = fmt.Sprintf(candidatesOf, columns, readyColumns, "$3", fmt.Sprintf(notAside, "$3"), skipping)
	asideCandidates     = fmt.Sprintf(asideOf, fmt.Sprintf(notAside, "$3"))
	overdue             = fmt.Sprintf(overdueOf, "$2", "")
	lockOverdue         = fmt.Sprintf(overdueOf, "$2", skipping)
)

// levels lists the bands of queues in the order in which claims serve them.
func levels(names ...string) (queues []string, bands []int16) {
	for _, name := range names {
		for p := gq.PriorityCritical; p <= gq.PriorityBulk; p++ {
			queues, bands = append(queues, name), append(bands, int16(p))
		}
	}
	return queues, bands
}
