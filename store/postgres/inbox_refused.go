package postgres

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/store"
)

// Refused implements [store.Inbox].
func (s *Store) Refused(ctx context.Context, after uint64, limit int) (out gq.Inbox, err error) {
	err = s.readOnce(ctx, func(tx *txn) error {
		out = gq.Inbox{}
		var oldest *time.Time
		err := tx.QueryRow(ctx, "SELECT count(*), min(written), (SELECT count(*) FROM gq.refused) FROM gq.inbox").Scan(&out.Waiting, &oldest, &out.Refused)
		if err != nil {
			return err
		}
		if oldest != nil {
			out.Oldest = oldest.UTC()
		}
		rows, err := tx.Query(ctx, `
			SELECT `+letterColumns+`, written, at, problem
			FROM gq.refused
			WHERE place > $1
			ORDER BY place
			LIMIT $2`, int64(after), limit+1)
		if err != nil {
			return err
		}
		var last int64
		for rows.Next() {
			if len(out.Submissions) == limit {
				out.Next = store.Cursor(uint64(last))
				break
			}
			var r gq.RefusedSubmission
			if last, r, err = scanRefused(rows); err != nil {
				break
			}
			out.Submissions = append(out.Submissions, r)
		}
		rows.Close()
		return errors.Join(err, rows.Err())
	})
	return out, err
}

func scanRefused(rows pgx.Rows) (place int64, r gq.RefusedSubmission, err error) {
	var ids [][16]byte
	var jobs []byte
	var request, docs *string
	if err := rows.Scan(&place, &ids, &jobs, &request, &docs, &r.WrittenAt, &r.RefusedAt, &r.Problem); err != nil {
		return 0, r, err
	}
	r.WrittenAt, r.RefusedAt, r.Jobs = r.WrittenAt.UTC(), r.RefusedAt.UTC(), len(ids)
	if len(ids) > 0 {
		r.Job = ids[0]
	}
	if request != nil {
		var first struct {
			Type  any `json:"type"`
			Queue any `json:"queue"`
		}
		_ = json.Unmarshal([]byte(*request), &first) // what cannot be read is empty
		r.Type, _ = first.Type.(string)
		r.Queue, _ = first.Queue.(string)
	} else if specs, err := decodeSpecs(jobs); err == nil && len(specs) > 0 {
		r.Type, r.Queue, r.Jobs = specs[0].Type, specs[0].Queue, len(specs)
	}
	return place, r, nil
}

// selectedRefused is the condition for a [gq.RefusedSelection].
const selectedRefused = "($2 OR ids && $1::uuid[])"

// RetryRefused implements [store.Inbox].
func (s *Store) RetryRefused(ctx context.Context, which gq.RefusedSelection) (int, error) {
	return s.moveRefused(ctx, which, `
		WITH gone AS (DELETE FROM gq.refused WHERE `+selectedRefused+` RETURNING place, ids, written, jobs, request, docs)
		INSERT INTO gq.inbox (ids, written, jobs, request, docs) SELECT ids, written, jobs, request, docs FROM gone ORDER BY place`)
}

// DiscardRefused implements [store.Inbox].
func (s *Store) DiscardRefused(ctx context.Context, which gq.RefusedSelection) (int, error) {
	return s.moveRefused(ctx, which, "DELETE FROM gq.refused WHERE "+selectedRefused)
}

func (s *Store) moveRefused(ctx context.Context, which gq.RefusedSelection, sql string) (n int, err error) {
	ids := make([][16]byte, len(which.Jobs))
	for i, id := range which.Jobs {
		ids[i] = id
	}
	err = s.write(ctx, func(tx *txn) error {
		tag, err := tx.Exec(ctx, sql, ids, which.All)
		n, tx.written = int(tag.RowsAffected()), true
		return err
	})
	return n, err
}
