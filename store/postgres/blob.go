package postgres

import (
	"context"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/store"
	"github.com/gopherqueue/gq/store/codec"
)

// What gq.blob keeps of a job. The numbers are stored. The payload is in gq.job.
const (
	partPayload    = 1
	partResult     = 2
	partCheckpoint = 3
	partMetadata   = 4 // only where it was changed; the spec has the first
)

// blobs is what is to be written of them.
type blobs struct {
	seqs  []int64
	parts []int16
	data  [][]byte
}

func (b *blobs) add(seq int64, part int16, data []byte) {
	b.seqs, b.parts, b.data = append(b.seqs, seq), append(b.parts, part), append(b.data, data)
}

// write queues the blobs. None may be there twice: one statement cannot write a
// row twice.
func (b *blobs) write(batch *pgx.Batch) {
	if len(b.seqs) == 0 {
		return
	}
	batch.Queue(`
		INSERT INTO gq.blob (seq, part, data)
		SELECT * FROM unnest($1::bigint[], $2::smallint[], $3::bytea[])
		ON CONFLICT (seq, part) DO UPDATE SET data = excluded.data`,
		b.seqs, b.parts, b.data)
}

// finished looks up finished jobs, with the alias s, one number after the other:
// each in its own partition. OFFSET 0 keeps the planner from reading all of a
// table that it believes to be empty.
const finished = `
	unnest($1::bigint[]) AS n (seq)
	CROSS JOIN LATERAL (SELECT * FROM gq.done WHERE seq = n.seq OFFSET 0) AS s`

// statesOf reads jobs, whether they live or not, with their specs.
func (tx *txn) statesOf(ctx context.Context, seqs []int64) ([]*row, error) {
	seqs = slices.Compact(slices.Sorted(slices.Values(seqs)))
	return scanRows(tx.Query(ctx, states, seqs))
}

const states = `
	SELECT ` + columns + `, j.spec
	FROM gq.ready AS s
	CROSS JOIN LATERAL (SELECT spec FROM gq.job WHERE seq = s.seq OFFSET 0) AS j
	WHERE s.seq = ANY ($1)
	UNION ALL
	SELECT ` + columns + `, j.spec
	FROM gq.held AS s
	CROSS JOIN LATERAL (SELECT spec FROM gq.job WHERE seq = s.seq OFFSET 0) AS j
	WHERE s.seq = ANY ($1)
	UNION ALL
	SELECT ` + columns + `, j.spec
	FROM ` + finished + `
	CROSS JOIN LATERAL (SELECT spec FROM gq.job WHERE seq = s.seq OFFSET 0) AS j
	WHERE ` + kept + ``

// assemble makes whole jobs of rows with their specs.
func (tx *txn) assemble(ctx context.Context, rows []*row, parts gq.Parts) ([]gq.Job, error) {
	var blobs found
	if len(rows) > 0 {
		var batch pgx.Batch
		queueBlobs(&batch, rows, parts, &blobs)
		if err := tx.SendBatch(ctx, &batch).Close(); err != nil {
			return nil, err
		}
	}
	return blobs.assemble(rows)
}

// found are blobs that were read.
type found []struct {
	seq  int64
	part int16
	data []byte
}

// queueBlobs asks for what is kept of jobs beside their specs.
func queueBlobs(batch *pgx.Batch, rows []*row, parts gq.Parts, into *found) {
	batch.Queue(`
		SELECT b.seq, b.part, b.data
		FROM unnest($1::bigint[]) AS n (seq)
		CROSS JOIN LATERAL (SELECT * FROM gq.blob WHERE seq = n.seq OFFSET 0) AS b
		WHERE b.part = ANY ($2)
		UNION ALL
		SELECT j.seq, 1::smallint, j.payload
		FROM unnest($1::bigint[]) AS n (seq)
		CROSS JOIN LATERAL (SELECT seq, payload FROM gq.job WHERE seq = n.seq OFFSET 0) AS j
		WHERE $3 AND j.payload IS NOT NULL`,
		sequencesOf(rows), wanted(parts), parts&gq.WithPayload != 0).Query(func(rows pgx.Rows) error {
		return into.read(rows)
	})
}

func (f *found) read(rows pgx.Rows) error {
	var (
		seq  int64
		part int16
		data []byte
	)
	_, err := pgx.ForEachRow(rows, []any{&seq, &part, &data}, func() error {
		*f = append(*f, struct {
			seq  int64
			part int16
			data []byte
		}{seq, part, data})
		data = nil // the next row must not be written into this one
		return nil
	})
	return err
}

// assemble makes whole jobs of rows with their specs.
func (f found) assemble(rows []*row) ([]gq.Job, error) {
	jobs := make([]gq.Job, len(rows))
	index := make(map[int64]int, len(rows))
	for i, r := range rows {
		spec, err := r.specOf()
		if err != nil {
			return nil, err
		}
		jobs[i] = gq.Job{Spec: *spec, State: r.state, Metadata: spec.Metadata}
		store.Own(&jobs[i].State) // rows share policies
		jobs[i].Spec.Payload.Data = r.payload
		if len(f) > 0 {
			index[int64(r.state.Sequence)] = i
		}
	}
	for _, b := range f {
		i, ok := index[b.seq]
		if !ok {
			continue
		}
		job := &jobs[i]
		switch b.part {
		case partPayload:
			job.Spec.Payload.Data = b.data
		case partResult:
			job.Result = b.data
		case partCheckpoint:
			job.Checkpoint = b.data
		case partMetadata:
			var err error
			if job.Metadata, err = codec.DecodeMetadata(b.data); err != nil {
				return nil, fmt.Errorf("metadata of job %s: %w", job.State.ID, err)
			}
		}
	}
	return jobs, nil
}

// specs reads what never changes of jobs by their numbers. The bounds tell the
// partitions, which a list does not.
const specs = `
	SELECT seq, spec, CASE WHEN $4 THEN payload END
	FROM gq.job
	WHERE seq = ANY ($1) AND seq >= $2 AND seq <= $3`

// queueSpecs asks for the specs of rows.
func queueSpecs(batch *pgx.Batch, rows []*row, payload bool) {
	seqs := sequencesOf(rows)
	batch.Queue(specs, seqs, slices.Min(seqs), slices.Max(seqs), payload).Query(func(from pgx.Rows) error {
		missing := make(map[int64]*row, len(rows))
		for i, r := range rows {
			missing[seqs[i]] = r
		}
		var seq int64
		var spec, payload []byte
		_, err := pgx.ForEachRow(from, []any{&seq, &spec, &payload}, func() error {
			if r := missing[seq]; r != nil {
				r.spec, r.payload = spec, payload
				delete(missing, seq)
			}
			spec, payload = nil, nil // the next row must not be written into this one
			return nil
		})
		for seq := range missing {
			if err == nil {
				err = fmt.Errorf("job %d has no spec: %w", seq, gq.ErrCorrupt)
			}
		}
		return err
	})
}

func sequencesOf(rows []*row) []int64 {
	seqs := make([]int64, len(rows))
	for i, r := range rows {
		seqs[i] = int64(r.state.Sequence)
	}
	return seqs
}

func wanted(parts gq.Parts) []int16 {
	out := []int16{partMetadata}
	if parts&gq.WithResult != 0 {
		out = append(out, partResult)
	}
	if parts&gq.WithCheckpoint != 0 {
		out = append(out, partCheckpoint)
	}
	return out
}
