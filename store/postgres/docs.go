package postgres

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/store"
)

// PutDocs implements [store.Store]. Only the holder of the document lock changes
// documents, so that no other change comes between the check and the write, and versions
// become visible in order.
func (s *Store) PutDocs(ctx context.Context, docs []store.Doc) (versions []uint64, err error) {
	if err := store.CheckDocs(docs); err != nil {
		return nil, err
	}
	if len(docs) == 1 && docs[0].Data != nil && docs[0].Version > 0 && s.begins.single == "" {
		return s.replaceDoc(ctx, docs[0])
	}
	err = s.write(ctx, func(tx *txn) error {
		if len(docs) == 0 {
			return nil
		}
		if err := tx.lockDocs(ctx, docs); err != nil {
			return err
		}
		if err := tx.checkVersions(ctx, docs); err != nil {
			return err
		}
		var err error
		versions, err = tx.putDocs(ctx, docs)
		return err
	})
	if err != nil {
		return nil, err
	}
	return versions, nil
}

// replaceDoc replaces one document with a single statement, which is what servers that announce
// themselves do all the time. The version is drawn after the lock is held, and of two statements
// that replace the same version the second finds none.
func (s *Store) replaceDoc(ctx context.Context, d store.Doc) ([]uint64, error) {
	var version int64
	err := s.readOnce(ctx, func(tx *txn) error {
		err := tx.QueryRow(ctx, `
			WITH held AS MATERIALIZED (SELECT pg_advisory_xact_lock($1, 0))
			UPDATE gq.doc SET version = nextval('gq.doc_version'), data = $5
			FROM held
			WHERE kind = $2 AND name = $3 AND version = $4
			RETURNING version`,
			lockDocs, d.Kind, d.Name, int64(d.Version), d.Data).Scan(&version)
		if !errors.Is(err, pgx.ErrNoRows) {
			return tx.resolveCommit(ctx, err)
		}
		var current uint64
		err = tx.QueryRow(ctx, "SELECT version FROM gq.doc WHERE kind = $1 AND name = $2", d.Kind, d.Name).Scan(&current)
		if err != nil && !errors.Is(err, pgx.ErrNoRows) {
			return err
		}
		return d.Conflict(current)
	})
	if err != nil {
		return nil, err
	}
	return []uint64{uint64(version)}, nil
}

// lockDocs takes the document lock, the last lock of a transaction that writes documents.
func (tx *txn) lockDocs(ctx context.Context, docs []store.Doc) error {
	if len(docs) == 0 {
		return nil
	}
	_, err := tx.Exec(ctx, "SELECT pg_advisory_xact_lock($1, 0)", lockDocs)
	return err
}

// checkVersions refuses documents that changed since the caller read them.
func (tx *txn) checkVersions(ctx context.Context, docs []store.Doc) error {
	current, err := tx.versions(ctx, docs)
	if err != nil {
		return err
	}
	for i := range docs {
		if v := current[[2]string{docs[i].Kind, docs[i].Name}]; v != docs[i].Version {
			return docs[i].Conflict(v)
		}
	}
	return nil
}

// versions returns the versions of the documents that exist, by kind and name.
func (tx *txn) versions(ctx context.Context, docs []store.Doc) (map[[2]string]uint64, error) {
	kinds, names := make([]string, len(docs)), make([]string, len(docs))
	for i := range docs {
		kinds[i], names[i] = docs[i].Kind, docs[i].Name
	}
	rows, err := tx.Query(ctx, `
		SELECT d.kind, d.name, d.version
		FROM unnest($1::text[], $2::text[]) AS asked (kind, name)
		JOIN gq.doc AS d USING (kind, name)`,
		kinds, names)
	if err != nil {
		return nil, err
	}
	current := make(map[[2]string]uint64, len(docs))
	var kind, name string
	var version int64
	_, err = pgx.ForEachRow(rows, []any{&kind, &name, &version}, func() error {
		current[[2]string{kind, name}] = uint64(version)
		return nil
	})
	return current, err
}

func (tx *txn) putDocs(ctx context.Context, docs []store.Doc) ([]uint64, error) {
	rows, err := tx.Query(ctx, "SELECT nextval('gq.doc_version') FROM generate_series(1, $1)", len(docs))
	if err != nil {
		return nil, err
	}
	numbers, err := pgx.CollectRows(rows, pgx.RowTo[int64])
	if err != nil {
		return nil, err
	}
	versions := make([]uint64, len(docs))
	for i := range docs {
		d := &docs[i]
		if d.Data == nil {
			tx.more.Queue("DELETE FROM gq.doc WHERE kind = $1 AND name = $2", d.Kind, d.Name)
			continue
		}
		versions[i] = uint64(numbers[i])
		tx.more.Queue(`
			INSERT INTO gq.doc (kind, name, version, data)
			VALUES ($1, $2, $3, $4)
			ON CONFLICT (kind, name) DO UPDATE SET version = excluded.version, data = excluded.data`,
			d.Kind, d.Name, numbers[i], d.Data)
	}
	return versions, tx.flush(ctx)
}

// Doc implements [store.Store].
func (s *Store) Doc(ctx context.Context, kind, name string) (store.Doc, error) {
	if err := store.CheckDocName(kind, name); err != nil {
		return store.Doc{}, err
	}
	d := store.Doc{Kind: kind, Name: name}
	err := s.readOnce(ctx, func(tx *txn) error {
		err := tx.QueryRow(ctx, "SELECT version, data FROM gq.doc WHERE kind = $1 AND name = $2", kind, name).Scan(&d.Version, &d.Data)
		if errors.Is(err, pgx.ErrNoRows) {
			return fmt.Errorf("%s/%s: %w", kind, name, gq.ErrNotFound)
		}
		return err
	})
	if err != nil {
		return store.Doc{}, err
	}
	return d, nil
}

// FindDocs implements [store.Store]. It looks each name up in the index: a join might read the
// whole table.
func (s *Store) FindDocs(ctx context.Context, names []store.DocName) (docs []store.Doc, err error) {
	if err := store.CheckDocNames(names); err != nil {
		return nil, err
	}
	kinds, list := make([]string, len(names)), make([]string, len(names))
	for i, n := range names {
		kinds[i], list[i] = n.Kind, n.Name
	}
	err = s.readOnce(ctx, func(tx *txn) error {
		rows, err := tx.Query(ctx, `
			SELECT d.kind, d.name, d.version, d.data
			FROM unnest($1::text[], $2::text[]) AS n (kind, name)
			CROSS JOIN LATERAL (SELECT * FROM gq.doc WHERE kind = n.kind AND name = n.name OFFSET 0) AS d`,
			kinds, list)
		if err != nil {
			return err
		}
		docs, err = pgx.CollectRows(rows, pgx.RowToStructByPos[store.Doc])
		return err
	})
	if err != nil {
		return nil, err
	}
	return docs, nil
}

// Docs implements [store.Store].
func (s *Store) Docs(ctx context.Context, kind, after string, limit int) (docs []store.Doc, err error) {
	if limit, err = store.CheckDocPage(kind, after, limit); err != nil {
		return nil, err
	}
	err = s.readOnce(ctx, func(tx *txn) error {
		rows, err := tx.Query(ctx, `
			SELECT kind, name, version, data
			FROM gq.doc
			WHERE kind = $1 AND name > $2
			ORDER BY name
			LIMIT $3`,
			kind, after, limit)
		if err != nil {
			return err
		}
		docs, err = pgx.CollectRows(rows, pgx.RowToStructByPos[store.Doc])
		return err
	})
	if err != nil {
		return nil, err
	}
	return docs, nil
}
