package postgres

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/store"
	"github.com/gopherqueue/gq/store/codec"
)

// Parts of a job in gq.blob. The numbers are stored. A payload is there only if it is
// large: see appendBody.
const (
	partPayload    = 1
	partResult     = 2
	partCheckpoint = 3
	partMetadata   = 4 // only if it was changed; the spec has the original
)

// blobs are rows of gq.blob to write, column by column.
type blobs struct {
	seqs  []int64
	parts []int16
	data  [][]byte
}

func (b *blobs) add(seq int64, part int16, data []byte) {
	b.seqs, b.parts, b.data = append(b.seqs, seq), append(b.parts, part), append(b.data, data)
}

// write queues the blobs. None may occur twice: a statement cannot write a row twice.
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

// statesOf reads the rows of jobs, live or finished.
func (tx *txn) statesOf(ctx context.Context, seqs []int64) ([]*row, error) {
	wanted := numbersIn(seqs)
	blocks, masks := wanted.arrays()
	return tx.scanSome(wanted)(tx.Query(ctx, states, blocks, masks))
}

var states = rowsIn("gq.ready", "OFFSET 0") + " UNION ALL " + rowsIn("gq.held", "OFFSET 0") + " UNION ALL " + rowsIn("gq.done", "OFFSET 0") + " WHERE " + kept

// assemble builds jobs from rows and their blobs.
func (tx *txn) assemble(ctx context.Context, rows []*row, parts gq.Parts) ([]gq.Job, error) {
	var blobs found
	if len(rows) > 0 {
		var batch pgx.Batch
		queueBlobs(&batch, sequencesOf(rows), parts, &blobs)
		if err := tx.SendBatch(ctx, &batch).Close(); err != nil {
			return nil, err
		}
	}
	return blobs.assemble(rows, parts)
}

// found are the blobs that were read.
type found []struct {
	seq  int64
	part int16
	data []byte
}

// queueBlobs queues a query for the blobs of jobs.
func queueBlobs(batch *pgx.Batch, seqs []int64, parts gq.Parts, into *found) {
	batch.Queue(`
		SELECT b.seq, b.part, b.data
		FROM unnest($1::bigint[]) AS n (seq)
		CROSS JOIN LATERAL (SELECT * FROM gq.blob WHERE seq = n.seq OFFSET 0) AS b
		WHERE b.part = ANY ($2)`,
		seqs, wanted(parts)).Query(func(rows pgx.Rows) error {
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
		data = nil // the next row must not reuse this memory
		return nil
	})
	return err
}

// assemble builds jobs from rows and their blobs.
func (f found) assemble(rows []*row, parts gq.Parts) ([]gq.Job, error) {
	jobs := make([]gq.Job, len(rows))
	return jobs, f.assembleInto(jobs, rows, parts)
}

// assembleInto is assemble with the memory for the jobs. A row may have its spec there already.
func (f found) assembleInto(jobs []gq.Job, rows []*row, parts gq.Parts) error {
	var index map[int64]int
	if len(f) > 0 {
		index = make(map[int64]int, len(rows))
	}
	for i, r := range rows {
		spec, err := r.specOf()
		if err != nil {
			return err
		}
		if spec != &jobs[i].Spec {
			jobs[i].Spec = *spec
		}
		jobs[i].State, jobs[i].Metadata = r.state, spec.Metadata
		store.Own(&jobs[i].State) // rows share policies
		jobs[i].Spec.Payload.Data = nil
		if parts&gq.WithPayload != 0 {
			if jobs[i].Spec.Payload.Data, _, _, err = splitBody(r.body); err != nil {
				return fmt.Errorf("job %s: %w", r.state.ID, err)
			}
		}
		if index != nil {
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
				return fmt.Errorf("metadata of job %s: %w", job.State.ID, err)
			}
		}
	}
	return nil
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
	if parts&gq.WithPayload != 0 {
		out = append(out, partPayload)
	}
	if parts&gq.WithResult != 0 {
		out = append(out, partResult)
	}
	if parts&gq.WithCheckpoint != 0 {
		out = append(out, partCheckpoint)
	}
	return out
}
