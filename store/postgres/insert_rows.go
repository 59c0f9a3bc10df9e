package postgres

import (
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/gopherqueue/gq"
)

// keyArrays are rows of gq.idempotency, column by column.
type keyArrays struct {
	scopes, names           [][]byte
	prints, holders, expiry []int64
	rules                   []int16
	held                    [][16]byte
	latest                  map[gq.IdempotencyKey]int
}

// add gives a key to a job. A key can occur twice in one call, if a job loses it at once: the
// last job gets it.
func (a *keyArrays) add(name gq.IdempotencyKey, h holder) {
	if a.latest == nil {
		a.latest = make(map[gq.IdempotencyKey]int)
	}
	i, again := a.latest[name]
	if !again {
		i = len(a.names)
		a.latest[name] = i
		a.scopes, a.names, a.prints = append(a.scopes, nil), append(a.names, nil), append(a.prints, 0)
		a.held, a.holders, a.expiry = append(a.held, [16]byte{}), append(a.holders, 0), append(a.expiry, 0)
		a.rules = append(a.rules, 0)
	}
	a.scopes[i], a.names[i], a.prints[i] = []byte(name.Scope), []byte(name.Name), int64(h.fingerprint)
	a.held[i], a.holders[i], a.expiry[i], a.rules[i] = h.job, h.seq, nanoseconds(h.expires), int16(h.while)
}

// write queues the keys. It overwrites keys that are free.
func (a *keyArrays) write(batch *pgx.Batch) {
	a.queue(batch, `
		ON CONFLICT (scope, name) DO UPDATE SET
			fingerprint = excluded.fingerprint, job = excluded.job, seq = excluded.seq, expires = excluded.expires, rule = excluded.rule`)
}

// writeNew is write for keys that have no row; looking for a conflict would take as long as the
// insertion. If another transaction adds one meanwhile, the statement fails.
func (a *keyArrays) writeNew(batch *pgx.Batch) { a.queue(batch, "") }

func (a *keyArrays) queue(batch *pgx.Batch, conflict string) {
	if len(a.names) == 0 {
		return
	}
	// In order, so that transactions which wait for each other's keys do not deadlock.
	batch.Queue(`
		INSERT INTO gq.idempotency (scope, name, fingerprint, job, seq, expires, rule)
		SELECT *
		FROM unnest($1::bytea[], $2::bytea[], $3::bigint[], $4::uuid[], $5::bigint[], $6::bigint[], $7::smallint[]) AS n (scope, name, fingerprint, job, seq, expires, rule)
		ORDER BY n.scope, n.name`+conflict,
		a.scopes, a.names, a.prints, a.held, a.holders, a.expiry, a.rules)
}

// orderLo computes order_lo of a new job from its sequence number: see signed.
const orderLo = "n.seq - 9223372036854775807 - 1"

// arrayOf encodes a list as the text of a PostgreSQL array. Arrays of arrays would have to
// be rectangular.
func arrayOf(names []string) string {
	if len(names) == 0 {
		return "{}"
	}
	var b strings.Builder
	b.WriteByte('{')
	for i, name := range names {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteByte('"')
		b.WriteString(strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(name))
		b.WriteByte('"')
	}
	b.WriteByte('}')
	return b.String()
}
