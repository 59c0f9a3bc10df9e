package postgres

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/store"
)

// SQLTx is a transaction of database/sql, with any driver for PostgreSQL: a *sql.Tx, or a
// type of another package that wraps one, such as *sqlx.Tx or bun.Tx.
type SQLTx interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	Commit() error
	Rollback() error
}

// InboxTx makes inserts write to the inbox in the application's transaction, one row for
// each group. After the commit any node takes them in, and only then decides what depends
// on other jobs: idempotency keys, dependencies and limits. So the answer to an insert has
// only the ids of the jobs. Pass the result to an engine ([engine.Engine.In]).
//
// A change can insert jobs and new documents, which become one row. Updates are refused: whether a lease still holds its job must be decided in the
// transaction, and InboxTx decides nothing.
//
// [engine.Engine.In]: https://pkg.go.dev/github.com/gopherqueue/gq/engine#Engine.In
func (s *Store) InboxTx(tx SQLTx) store.Transaction { return inboxTransaction{s, tx} }

type inboxTransaction struct {
	s  *Store
	tx SQLTx
}

// maxInboxRows is how many rows one statement writes; each has two parameters, of which a
// statement may have 65,535.
const maxInboxRows = 1000

// Insert implements [store.Transaction].
func (t inboxTransaction) Insert(ctx context.Context, groups []store.Group) ([]store.Inserted, error) {
	if err := t.s.enter(); err != nil {
		return nil, err
	}
	defer t.s.leave()
	out, err := t.s.insertValid(groups, func(valid []store.Group) ([]store.Inserted, error) {
		out := make([]store.Inserted, 0, len(valid))
		for len(valid) > 0 {
			n := min(len(valid), maxInboxRows)
			if err := t.write(ctx, valid[:n]); err != nil {
				return nil, err
			}
			for i := range valid[:n] {
				out = append(out, store.Inserted{Jobs: knownByID(valid[i].Jobs)})
			}
			valid = valid[n:]
		}
		return out, nil
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

// knownByID is the answer about jobs of which only the ids are known.
func knownByID(jobs []gq.Spec) []store.Placed {
	placed := make([]store.Placed, len(jobs))
	for i := range jobs {
		placed[i].State.ID = jobs[i].ID
	}
	return placed
}

// write writes one row for each group. Parameters are text and bytes, which every driver
// can send.
func (t inboxTransaction) write(ctx context.Context, groups []store.Group) error {
	var sql strings.Builder
	sql.WriteString("INSERT INTO gq.inbox (ids, jobs) VALUES ")
	args := make([]any, 0, 2*len(groups))
	for i := range groups {
		if i > 0 {
			sql.WriteString(", ")
		}
		fmt.Fprintf(&sql, "(($%d::text)::uuid[], $%d::bytea)", 2*i+1, 2*i+2)
		jobs, err := encodeSpecs(groups[i].Jobs)
		if err != nil {
			return err
		}
		args = append(args, idsOf(groups[i].Jobs), jobs)
	}
	_, err := t.tx.ExecContext(ctx, t.s.pool.dialect.of(sql.String()), args...)
	return t.s.explainWithin(err, inboxRights)
}

// idsOf returns the ids of a row as the text of an array: those of the jobs and of their
// workflow.
func idsOf(jobs []gq.Spec) string {
	ids := make([]string, len(jobs), len(jobs)+1)
	for i := range jobs {
		ids[i] = jobs[i].ID.String()
	}
	if len(jobs) > 0 && !jobs[0].Workflow.IsZero() {
		ids = append(ids, jobs[0].Workflow.String())
	}
	return "{" + strings.Join(ids, ",") + "}"
}

// Update implements [store.Transaction].
func (t inboxTransaction) Update(context.Context, []store.Update) ([]store.Updated, error) {
	return nil, gq.ErrInvalid.Errorf(
		"a transaction of database/sql can submit jobs, not change them; use a pgx.Tx, or with the driver of pgx the *sql.Conn on which the transaction was begun")
}

// Change implements [store.Transaction].
func (t inboxTransaction) Change(ctx context.Context, c store.Change) (store.Changed, error) {
	if err := t.s.enter(); err != nil {
		return store.Changed{}, err
	}
	defer t.s.leave()
	if err := t.s.checkChange(c); err != nil {
		return store.Changed{}, err
	}
	old := func(d store.Doc) bool { return d.Version != 0 || d.Data == nil }
	if len(c.Updates) > 0 || len(c.Insert) == 0 || slices.ContainsFunc(c.Docs, old) {
		return store.Changed{}, gq.ErrInvalid.Errorf(
			"a transaction of database/sql can submit, not change what exists; use a pgx.Tx, or with the driver of pgx the *sql.Conn on which the transaction was begun")
	}
	jobs, err := encodeSpecs(c.Insert)
	if err != nil {
		return store.Changed{}, err
	}
	docs, err := json.Marshal(c.Docs)
	if err != nil {
		return store.Changed{}, err
	}
	_, err = t.tx.ExecContext(ctx, t.s.pool.dialect.of("INSERT INTO gq.inbox (ids, jobs, docs) VALUES (($1::text)::uuid[], $2::bytea, ($3::text)::jsonb)"),
		idsOf(c.Insert), jobs, string(docs))
	if err != nil {
		return store.Changed{}, t.s.explainWithin(err, inboxRights)
	}
	return store.Changed{Versions: make([]uint64, len(c.Docs)), Placed: knownByID(c.Insert)}, nil
}
