package postgres

import (
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/gopherqueue/gq"
)

// keyArrays are rows of gq.idempotency, column by column.
type keyArrays struct {
	scopes, names           [][]byte
	prints, holders, expiry []int64
	held                    [][16]byte
	latest                  map[gq.IdempotencyKey]int
}

// add gives a key to a job. A window of no length may end within the call: then
// the last one has it.
func (a *keyArrays) add(seq int64, id gq.JobID, spec *gq.Spec, until time.Time) {
	if a.latest == nil {
		a.latest = make(map[gq.IdempotencyKey]int)
	}
	name := gq.IdempotencyKey{Scope: spec.Key.Scope, Name: spec.Key.Name}
	i, again := a.latest[name]
	if !again {
		i = len(a.names)
		a.latest[name] = i
		a.scopes, a.names, a.prints = append(a.scopes, nil), append(a.names, nil), append(a.prints, 0)
		a.held, a.holders, a.expiry = append(a.held, [16]byte{}), append(a.holders, 0), append(a.expiry, 0)
	}
	a.scopes[i], a.names[i], a.prints[i] = []byte(name.Scope), []byte(name.Name), int64(spec.Key.Fingerprint)
	a.held[i], a.holders[i], a.expiry[i] = id, seq, nanoseconds(until)
}

// write queues the keys. That of a job whose window is over is taken from it.
func (a *keyArrays) write(batch *pgx.Batch) {
	if len(a.names) == 0 {
		return
	}
	batch.Queue(`
		INSERT INTO gq.idempotency (scope, name, fingerprint, job, seq, expires)
		SELECT unnest($1::bytea[]), unnest($2::bytea[]), unnest($3::bigint[]), unnest($4::uuid[]), unnest($5::bigint[]), unnest($6::bigint[])
		ON CONFLICT (scope, name) DO UPDATE SET
			fingerprint = excluded.fingerprint, job = excluded.job, seq = excluded.seq, expires = excluded.expires`,
		a.scopes, a.names, a.prints, a.held, a.holders, a.expiry)
}

// insertReady writes new jobs that wait, and what tells of them. The numbers in order_lo
// are those of the jobs: see signed.
const insertReady = `
	WITH ready AS (
		INSERT INTO gq.ready (seq, order_hi, order_lo, run_at, due, created, cost, status, queue, limited, fair, type, requires, body, data)
		SELECT n.seq, n.hi, ` + orderLo + `, n.run_at, n.due, $1, n.cost, n.status, n.queue, nullif(n.limited, ''), n.fair, n.type,
			%[1]s, n.body, n.data
		FROM (
			SELECT unnest($2::bigint[]) AS seq, unnest($3::bigint[]) AS hi, unnest($4::bigint[]) AS run_at,
				unnest($5::bigint[]) AS due, unnest($6::bigint[]) AS cost, unnest($7::smallint[]) AS status,
				unnest($8::text[]) AS queue, unnest($9::text[]) AS limited, unnest($10::text[]) AS fair,
				unnest($11::text[]) AS type, unnest($12::bytea[]) AS body, unnest($13::bytea[]) AS data%[2]s
		) AS n
	), segment AS (
		INSERT INTO gq.segment (id, time, events, token) VALUES ($14, $1, $15, $16)
	), log AS (
		INSERT INTO gq.log (id, data) VALUES ($14, $17)
	)
	INSERT INTO gq.delta (queue, status, jobs)
	SELECT unnest($18::text[]), unnest($19::smallint[]), unnest($20::bigint[])`

const orderLo = "n.seq - 9223372036854775807 - 1"

// To read an array of each row's own takes longer than to write the row, so that
// there is a statement for jobs that require nothing.
var (
	insertReadyPlain     = fmt.Sprintf(insertReady, "NULL", "")
	insertReadyRequiring = fmt.Sprintf(insertReady, "nullif(n.requires, '{}')::text[]", ", unnest($21::text[]) AS requires")
)

// writeAll queues all that is to be written of new jobs that wait.
func (a *rowArrays) writeAll(batch *pgx.Batch, s segment, c countArrays) {
	args := []any{
		s.time, a.seqs, a.his, a.runs, a.dues, a.costs, a.statuses, a.queues, a.limited, a.fairs, a.types, a.bodies, a.datas,
		s.mark.id, s.n, s.mark.token, s.data, c.queues, c.statuses, c.jobs,
	}
	if a.demanding {
		batch.Queue(insertReadyRequiring, append(args, a.requires)...)
	} else {
		batch.Queue(insertReadyPlain, args...)
	}
}

// arrayOf is a list as the text of an array, since arrays of arrays would have
// to be rectangular.
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
