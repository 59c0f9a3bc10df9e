package postgres

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/gopherqueue/gq"
)

// What gq.blob keeps of a job. The numbers are stored.
const (
	partPayload    = 1
	partResult     = 2
	partCheckpoint = 3
	partMetadata   = 4 // only where it was changed; the spec has the first
)

// blobs is what is to be written of them.
type blobs struct {
	jobs  [][16]byte
	parts []int16
	data  [][]byte
}

func (b *blobs) add(job gq.JobID, part int16, data []byte) {
	b.jobs, b.parts, b.data = append(b.jobs, job), append(b.parts, part), append(b.data, data)
}

// write queues the blobs. None may be there twice: one statement cannot write a
// row twice.
func (b *blobs) write(batch *pgx.Batch) {
	if len(b.jobs) == 0 {
		return
	}
	batch.Queue(`
		INSERT INTO gq.blob (job, part, data)
		SELECT * FROM unnest($1::uuid[], $2::smallint[], $3::bytea[])
		ON CONFLICT (job, part) DO UPDATE SET data = excluded.data`,
		b.jobs, b.parts, b.data)
}

// assemble makes whole jobs of rows with their specs.
func (tx *txn) assemble(ctx context.Context, rows []*row, parts gq.Parts) ([]gq.Job, error) {
	jobs := make([]gq.Job, len(rows))
	index := make(map[gq.JobID]int, len(rows))
	ids := make([][16]byte, len(rows))
	for i, r := range rows {
		spec, err := gq.DecodeSpec(r.spec)
		if err != nil {
			return nil, fmt.Errorf("job %s: %w", r.state.ID, err)
		}
		spec.Payload.Data = nil
		jobs[i] = gq.Job{Spec: spec, State: r.state, Metadata: spec.Metadata}
		index[r.state.ID], ids[i] = i, r.state.ID
	}
	if len(rows) == 0 {
		return jobs, nil
	}
	found, err := tx.Query(ctx, "SELECT job, part, data FROM gq.blob WHERE job = ANY ($1) AND part = ANY ($2)", ids, wanted(parts))
	if err != nil {
		return nil, err
	}
	var (
		id   [16]byte
		part int16
		data []byte
	)
	_, err = pgx.ForEachRow(found, []any{&id, &part, &data}, func() error {
		job := &jobs[index[id]]
		switch part {
		case partPayload:
			job.Spec.Payload.Data = data
		case partResult:
			job.Result = data
		case partCheckpoint:
			job.Checkpoint = data
		case partMetadata:
			var err error
			if job.Metadata, err = gq.DecodeMetadata(data); err != nil {
				return fmt.Errorf("metadata of job %s: %w", gq.JobID(id), err)
			}
		}
		data = nil // the next row must not be written into this one
		return nil
	})
	return jobs, err
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
