package postgres

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/machine"
	"github.com/gopherqueue/gq/store"
)

// keyScopes steps from scope to scope through the primary key, without reading the keys between. A
// scope that begins with a zero byte has order keys.
const keyScopes = `
	WITH RECURSIVE scopes AS (
		(SELECT scope FROM gq.idempotency WHERE scope >= '\x01' ORDER BY scope LIMIT 1)
		UNION ALL
		SELECT (SELECT i.scope FROM gq.idempotency AS i WHERE i.scope > s.scope ORDER BY i.scope LIMIT 1)
		FROM scopes AS s
		WHERE s.scope IS NOT NULL
	)
	SELECT scope FROM scopes WHERE scope IS NOT NULL AND scope <> $1 LIMIT $2`

// Keyed implements [store.Reader].
func (s *Store) Keyed(ctx context.Context, scopes, names []string) (ids []gq.JobID, err error) {
	if err := store.CheckKeyed(len(scopes), names); err != nil || len(names) == 0 {
		return nil, err
	}
	named := make([][]byte, len(names))
	for i, name := range names {
		named[i] = []byte(name)
	}
	err = s.read(ctx, func(tx *txn) (err error) {
		in := make([][]byte, len(scopes))
		for i, scope := range scopes {
			in[i] = []byte(scope)
		}
		if len(scopes) == 0 {
			if in, err = collect[[]byte](tx.Query(ctx, keyScopes, []byte(machine.RetryScope), store.MaxKeyed/len(names)+1)); err != nil {
				return err
			}
			if err := store.CheckKeyed(len(in), names); err != nil {
				return err
			}
		}
		rows, err := tx.Query(ctx, `
			SELECT i.job, i.seq, i.rule
			FROM unnest($1::bytea[]) AS s (scope), unnest($2::bytea[]) AS n (name)
			CROSS JOIN LATERAL (SELECT * FROM gq.idempotency WHERE scope = s.scope AND name = n.name LIMIT 1) AS i`,
			in, named)
		if err != nil {
			return err
		}
		var job [16]byte
		var seq int64
		var rule int16
		ids = nil
		_, err = pgx.ForEachRow(rows, []any{&job, &seq, &rule}, func() error {
			if rule == ruleUndated {
				job = tx.s.ids.id(seq, job)
			}
			ids = append(ids, job)
			return nil
		})
		return err
	})
	return ids, err
}
