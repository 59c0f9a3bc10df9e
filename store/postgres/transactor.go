package postgres

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/gopherqueue/gq/store"
)

// InsertTx inserts groups within the application's own transaction: the jobs
// exist if and only if it commits, and nobody sees them before. The answers are
// those of [Store.Insert].
//
// Until the transaction ends it holds what its jobs need: their idempotency keys,
// the jobs they depend on, and a queue that is fair or has a depth. Others that
// need the same wait for it; everyone else does not. A transaction of another
// level than READ COMMITTED may fail because of others and must then be tried
// again.
func (s *Store) InsertTx(ctx context.Context, tx pgx.Tx, groups []store.Group) (out []store.Inserted, err error) {
	err = s.within(ctx, "insert", tx, func(tx *txn) error {
		out = make([]store.Inserted, len(groups))
		var sound []int
		var asked []store.Group
		for i, g := range groups {
			if err := s.checkGroup(g); err != nil {
				out[i].Err = fmt.Errorf("insert: %w", err)
				continue
			}
			sound, asked = append(sound, i), append(asked, g)
		}
		if len(sound) == 0 {
			return nil
		}
		answers, err := tx.insert(ctx, asked, jobsOf(asked))
		for k := range answers {
			if answers[k].Err != nil {
				answers[k] = store.Inserted{Err: fmt.Errorf("insert: %w", answers[k].Err)}
			}
			out[sound[k]] = answers[k]
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

// UpdateTx applies updates within the application's own transaction, so that a
// job is completed if and only if the work it stands for is committed. The
// answers are those of [Store.Update]; one that says that something changed holds
// once the transaction has committed. It keeps the jobs locked until then.
func (s *Store) UpdateTx(ctx context.Context, tx pgx.Tx, updates []store.Update) (out []store.Updated, err error) {
	err = s.within(ctx, "update", tx, func(tx *txn) error {
		if len(updates) == 0 {
			return nil
		}
		out, err = tx.updateAll(ctx, updates)
		for i := range out {
			if out[i].Err != nil {
				out[i].Err = fmt.Errorf("update: %w", out[i].Err)
			}
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

// InsertSQL is [Store.InsertTx] for database/sql with the driver of pgx: the
// transaction is the one that was begun on conn.
func (s *Store) InsertSQL(ctx context.Context, conn *sql.Conn, groups []store.Group) (out []store.Inserted, err error) {
	err = raw(conn, func(tx pgx.Tx) error {
		out, err = s.InsertTx(ctx, tx, groups)
		return err
	})
	return out, err
}

// UpdateSQL is [Store.UpdateTx] for database/sql with the driver of pgx: the
// transaction is the one that was begun on conn.
func (s *Store) UpdateSQL(ctx context.Context, conn *sql.Conn, updates []store.Update) (out []store.Updated, err error) {
	err = raw(conn, func(tx pgx.Tx) error {
		out, err = s.UpdateTx(ctx, tx, updates)
		return err
	})
	return out, err
}

// within runs f in a transaction that is not ours: it is neither begun nor ended
// here, and its settings stay as they are. What f wrote is undone where it fails,
// so that the transaction can go on.
func (s *Store) within(ctx context.Context, verb string, outer pgx.Tx, f func(tx *txn) error) error {
	if err := s.enter(); err != nil {
		return fmt.Errorf("%s: %w", verb, err)
	}
	defer s.leave()
	err := pgx.BeginFunc(ctx, outer, func(inner pgx.Tx) error {
		tx := &txn{Tx: inner, s: s}
		if err := f(tx); err != nil || !tx.written {
			return err
		}
		// This node hears of the commit as the others do.
		text, err := json.Marshal(notice{Queues: slices.Sorted(maps.Keys(tx.touched))})
		if err == nil && len(text) > maxNotice {
			text, err = json.Marshal(notice{})
		}
		if err == nil {
			_, err = inner.Exec(ctx, "SELECT pg_notify($1, $2)", channel, string(text))
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("%s: %w", verb, err)
	}
	return nil
}

// raw finds the transaction under a connection of database/sql.
func raw(conn *sql.Conn, f func(tx pgx.Tx) error) error {
	return conn.Raw(func(driver any) error {
		c, ok := driver.(*stdlib.Conn)
		if !ok {
			return fmt.Errorf("the driver of the connection is %T and not that of pgx", driver)
		}
		if c.Conn().PgConn().TxStatus() != 'T' {
			return errors.New("the connection is not in a transaction")
		}
		return f(connTx{conn: c.Conn()})
	})
}

// connTx is a transaction that was begun on a connection by other means.
type connTx struct {
	pgx.Tx // none: nobody ends it or looks into it here
	conn   *pgx.Conn
}

func (t connTx) Begin(ctx context.Context) (pgx.Tx, error) {
	if _, err := t.conn.Exec(ctx, "SAVEPOINT gq"); err != nil {
		return nil, err
	}
	return t, nil
}

func (t connTx) Commit(ctx context.Context) error {
	_, err := t.conn.Exec(ctx, "RELEASE SAVEPOINT gq")
	return err
}

func (t connTx) Rollback(ctx context.Context) error {
	if t.conn.PgConn().TxStatus() != 'E' {
		return pgx.ErrTxClosed
	}
	_, err := t.conn.Exec(ctx, "ROLLBACK TO SAVEPOINT gq")
	return err
}

func (t connTx) Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error) {
	return t.conn.Exec(ctx, sql, args...)
}

func (t connTx) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	return t.conn.Query(ctx, sql, args...)
}

func (t connTx) QueryRow(ctx context.Context, sql string, args ...any) pgx.Row {
	return t.conn.QueryRow(ctx, sql, args...)
}

func (t connTx) SendBatch(ctx context.Context, b *pgx.Batch) pgx.BatchResults {
	return t.conn.SendBatch(ctx, b)
}
