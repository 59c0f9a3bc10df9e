package postgres

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/store/codec"
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
func (a *keyArrays) add(seq int64, spec *gq.Spec, until time.Time) {
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
	a.held[i], a.holders[i], a.expiry[i] = spec.ID, seq, nanoseconds(until)
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

// jobArrays are rows of gq.job, column by column.
type jobArrays struct {
	seqs, costs, created []int64
	ids                  [][16]byte
	types, requires      []string
	specs, payloads      [][]byte
	demanding            bool   // something is required
	space                []byte // of the specs
}

// specGuess is how many bytes a spec has.
const specGuess = 192

// grow begins anew, with room for n jobs.
func (a *jobArrays) grow(n int) {
	if a.demanding = false; cap(a.seqs) >= n {
		a.seqs, a.costs, a.created, a.ids = a.seqs[:0], a.costs[:0], a.created[:0], a.ids[:0]
		a.types, a.requires, a.specs, a.payloads = a.types[:0], a.requires[:0], a.specs[:0], a.payloads[:0]
		a.space = a.space[:0]
		return
	}
	numbers := make([]int64, 3*n)
	a.seqs, a.costs, a.created = numbers[:0:n], numbers[n:n:2*n], numbers[2*n:2*n]
	a.ids, a.types, a.requires = make([][16]byte, 0, n), make([]string, 0, n), make([]string, 0, n)
	a.specs, a.payloads = make([][]byte, 0, n), make([][]byte, 0, n)
}

func (a *jobArrays) forget() {
	clear(a.types)
	clear(a.requires)
	clear(a.specs)
	clear(a.payloads)
}

func (a *jobArrays) add(seq int64, spec *gq.Spec, now time.Time) error {
	lean := *spec
	lean.Payload.Data = nil
	if cap(a.space)-len(a.space) < specGuess {
		a.space = make([]byte, 0, specGuess*(cap(a.seqs)-len(a.seqs)+1))
	}
	data, err := codec.AppendSpec(&lean, a.space[len(a.space):])
	if err != nil {
		return err
	}
	if len(data) <= cap(a.space)-len(a.space) {
		a.space = a.space[:len(a.space)+len(data)]
	}
	data = slices.Clip(data)
	a.demanding = a.demanding || len(spec.Requires) > 0
	a.seqs, a.ids = append(a.seqs, seq), append(a.ids, spec.ID)
	a.costs, a.created = append(a.costs, spec.CostUnits), append(a.created, nanoseconds(now))
	a.types, a.requires = append(a.types, spec.Type), append(a.requires, arrayOf(spec.Requires))
	payload := spec.Payload.Data
	if len(payload) == 0 {
		payload = nil
	}
	a.specs, a.payloads = append(a.specs, data), append(a.payloads, payload)
	return nil
}

func (a *jobArrays) write(batch *pgx.Batch) {
	if a.demanding {
		batch.Queue(`
			INSERT INTO gq.job (seq, id, cost, created, type, requires, spec, payload)
			SELECT n.seq, n.id, n.cost, n.created, n.type, n.requires::text[], n.spec, n.payload
			FROM (
				SELECT unnest($1::bigint[]) AS seq, unnest($2::uuid[]) AS id, unnest($3::bigint[]) AS cost,
					unnest($4::bigint[]) AS created, unnest($5::text[]) AS type, unnest($6::text[]) AS requires,
					unnest($7::bytea[]) AS spec, unnest($8::bytea[]) AS payload
			) AS n`,
			a.seqs, a.ids, a.costs, a.created, a.types, a.requires, a.specs, a.payloads)
	} else { // to read an array of each row's own takes longer than to write the row
		batch.Queue(`
			INSERT INTO gq.job (seq, id, cost, created, type, requires, spec, payload)
			SELECT n.seq, n.id, n.cost, n.created, n.type, '{}', n.spec, n.payload
			FROM (
				SELECT unnest($1::bigint[]) AS seq, unnest($2::uuid[]) AS id, unnest($3::bigint[]) AS cost,
					unnest($4::bigint[]) AS created, unnest($5::text[]) AS type, unnest($6::bytea[]) AS spec,
					unnest($7::bytea[]) AS payload
			) AS n`,
			a.seqs, a.ids, a.costs, a.created, a.types, a.specs, a.payloads)
	}
	ids, seqs := a.sorted()
	batch.Queue("INSERT INTO gq.name (id, seq) SELECT unnest($1::uuid[]), unnest($2::bigint[])", ids, seqs)
}

// insertReady writes new jobs that wait, in all tables, and what tells of them. The numbers
// in order_lo are those of the jobs: see signed.
const insertReady = `
	WITH job AS (
		INSERT INTO gq.job (seq, id, cost, created, type, requires, spec, payload)
		SELECT n.seq, n.id, n.cost, $1, n.type, %[1]s, n.spec, n.payload
		FROM (
			SELECT unnest($2::bigint[]) AS seq, unnest($3::uuid[]) AS id, unnest($4::bigint[]) AS cost,
				unnest($5::text[]) AS type, unnest($6::bytea[]) AS spec, unnest($7::bytea[]) AS payload%[3]s
		) AS n
	), name AS (
		INSERT INTO gq.name (id, seq) SELECT unnest($8::uuid[]), unnest($9::bigint[])
	), ready AS (
		INSERT INTO gq.ready (seq, order_hi, order_lo, run_at, due, status, queue, limited, fair, data, cost, type, requires)
		SELECT n.seq, n.hi, ` + orderLo + `, n.run_at, n.due, n.status, n.queue, nullif(n.limited, ''), n.fair, n.data,
			n.cost, n.type, %[2]s
		FROM (
			SELECT unnest($2::bigint[]) AS seq, unnest($10::bigint[]) AS hi, unnest($11::bigint[]) AS run_at,
				unnest($12::bigint[]) AS due, unnest($13::smallint[]) AS status, unnest($14::text[]) AS queue,
				unnest($15::text[]) AS limited, unnest($16::text[]) AS fair, unnest($17::bytea[]) AS data,
				unnest($4::bigint[]) AS cost, unnest($5::text[]) AS type%[3]s
		) AS n
	), segment AS (
		INSERT INTO gq.segment (id, time, events, token) VALUES ($18, $1, $19, $20)
	), log AS (
		INSERT INTO gq.log (id, data) VALUES ($18, $21)
	)
	INSERT INTO gq.delta (queue, status, jobs)
	SELECT unnest($22::text[]), unnest($23::smallint[]), unnest($24::bigint[])`

const orderLo = "n.seq - 9223372036854775807 - 1"

// To read an array of each row's own takes longer than to write the row, so that
// there is a statement for jobs that require nothing.
var (
	insertReadyPlain     = fmt.Sprintf(insertReady, "'{}'", "NULL", "")
	insertReadyRequiring = fmt.Sprintf(insertReady, "n.requires::text[]", "nullif(n.requires, '{}')::text[]", ", unnest($25::text[]) AS requires")
)

// writeReady queues all that is to be written of new jobs that wait, whose rows these are.
func (a *jobArrays) writeReady(batch *pgx.Batch, r *rowArrays, s segment, c countArrays) {
	ids, seqs := a.sorted()
	args := []any{
		s.time, a.seqs, a.ids, a.costs, a.types, a.specs, a.payloads, ids, seqs,
		r.his, r.runs, r.dues, r.statuses, r.queues, r.limited, r.fairs, r.datas,
		s.mark.id, s.n, s.mark.token, s.data, c.queues, c.statuses, c.jobs,
	}
	if a.demanding {
		batch.Queue(insertReadyRequiring, append(args, a.requires)...)
	} else {
		batch.Queue(insertReadyPlain, args...)
	}
}

// sorted are the ids and numbers in the order of the ids, in which the index finds
// the pages of one after the other.
func (a *jobArrays) sorted() (ids [][16]byte, seqs []int64) {
	order := make([]int, len(a.ids))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(i, k int) int { return bytes.Compare(a.ids[i][:], a.ids[k][:]) })
	ids, seqs = make([][16]byte, len(order)), make([]int64, len(order))
	for n, i := range order {
		ids[n], seqs[n] = a.ids[i], a.seqs[i]
	}
	return ids, seqs
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
