package postgres

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/store"
)

// Tx has the store work within the application's own transaction: its jobs exist,
// and its updates hold, if and only if that commits, and nobody sees them before.
// Give it to an engine ([engine.Engine.In]) rather than calling it.
//
// Until the transaction ends it holds what was written: the jobs that were
// updated, the idempotency keys of new ones, the jobs these depend on, and a queue
// that is fair or has a depth. Others that need the same wait for it; everyone
// else does not. A transaction of another level than READ COMMITTED may fail
// because of others and must then be tried again.
//
// [engine.Engine.In]: https://pkg.go.dev/github.com/gopherqueue/gq/engine#Engine.In
func (s *Store) Tx(tx pgx.Tx) store.Transaction {
	t := pgxTransaction{s: s, tx: tx}
	if conn := tx.Conn(); conn != nil {
		t.types = conn.TypeMap()
	}
	return t
}

// SQL is [Store.Tx] for database/sql with the driver of pgx: the transaction is the
// one that was begun on conn, with conn.BeginTx.
func (s *Store) SQL(conn *sql.Conn) store.Transaction { return sqlTransaction{s, conn} }

type pgxTransaction struct {
	s     *Store
	tx    pgx.Tx
	types *pgtype.Map // of its connection; nil where that is not known
}

// Insert implements [store.Transaction].
func (t pgxTransaction) Insert(ctx context.Context, groups []store.Group) (out []store.Inserted, err error) {
	registerIDs(t.types)
	err = t.s.within(ctx, "insert", t.tx, func(tx *txn) error {
		out, err = t.s.insertValid(groups, func(valid []store.Group) ([]store.Inserted, error) {
			return tx.insert(ctx, valid, jobsOf(valid))
		})
		return err
	})
	if err != nil {
		return nil, err
	}
	store.OwnInserted(out)
	return out, nil
}

// Update implements [store.Transaction].
func (t pgxTransaction) Update(ctx context.Context, updates []store.Update) (out []store.Updated, err error) {
	registerIDs(t.types)
	err = t.s.within(ctx, "update", t.tx, func(tx *txn) error {
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
	store.OwnUpdated(out)
	return out, nil
}

type sqlTransaction struct {
	s    *Store
	conn *sql.Conn
}

// Insert implements [store.Transaction].
func (t sqlTransaction) Insert(ctx context.Context, groups []store.Group) (out []store.Inserted, err error) {
	err = raw(t.conn, func(tx *connTx) error {
		out, err = pgxTransaction{t.s, tx, tx.conn.TypeMap()}.Insert(ctx, groups)
		return err
	})
	return out, err
}

// Update implements [store.Transaction].
func (t sqlTransaction) Update(ctx context.Context, updates []store.Update) (out []store.Updated, err error) {
	err = raw(t.conn, func(tx *connTx) error {
		out, err = pgxTransaction{t.s, tx, tx.conn.TypeMap()}.Update(ctx, updates)
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
	again := false
	work := func(inner pgx.Tx) error {
		tx := &txn{Tx: inner, s: s, careful: true, again: again}
		if err := f(tx); err != nil || !tx.written {
			return err
		}
		// This node hears of the commit as the others do.
		text, err := json.Marshal(notice{Queues: names(tx.changes.opened), Freed: names(tx.changes.freed), Due: tx.changes.due, Fresh: true})
		if err == nil && len(text) > maxNotice {
			text, err = json.Marshal(notice{Fresh: true})
		}
		var outdated bool
		if err == nil {
			err = inner.QueryRow(ctx, noticeWithin, s.pool.dialect.channel(), string(text)).Scan(&outdated)
		}
		if outdated {
			err = errOutdated
		}
		return err
	}
	var err error
	for range maxTries {
		if err = pgx.BeginFunc(ctx, s.pool.dialect.within(outer), work); !errors.Is(err, errMoved) {
			break
		}
		again = true
	}
	if err != nil {
		return fmt.Errorf("%s: %w", verb, err)
	}
	return nil
}

// noticeWithin tells of a commit to come, and whether the transaction reads from a
// snapshot that shows a partition which is gone by now. What was carried over from there it
// does not see: a job that it gives back would go nowhere, and a key would seem to be free.
// From its first write on nobody can drop another one.
const noticeWithin = `
	SELECT current_setting('transaction_isolation') <> 'read committed' AND EXISTS (
		SELECT FROM pg_inherits WHERE inhparent = 'gq.done'::regclass AND pg_relation_filenode(inhrelid) IS NULL
	)
	FROM pg_notify($1, $2)`

// errOutdated is a transaction that has to be tried again.
var errOutdated = fmt.Errorf("the transaction began before history was moved and does not see all of it: roll it back and try again: %w", gq.ErrConflict)

// raw finds the transaction under a connection of database/sql.
func raw(conn *sql.Conn, f func(tx *connTx) error) error {
	return conn.Raw(func(driver any) error {
		c, ok := driver.(*stdlib.Conn)
		if !ok {
			return fmt.Errorf("the driver of the connection is %T and not that of pgx", driver)
		}
		if c.Conn().PgConn().TxStatus() != 'T' {
			return errors.New("the connection is not in a transaction")
		}
		return f(&connTx{conn: c.Conn()})
	})
}

// connTx is a transaction on a connection: one that was begun by other means, a
// savepoint in it, or one that begins with the first statement.
type connTx struct {
	pgx.Tx  // none: nobody looks into it here
	conn    *pgx.Conn
	dialect *dialect
	begin   string // to be sent before anything else; "" once it is
	piped   bool   // it may travel with a batch
	ended   bool   // the savepoint
}

func (t *connTx) Begin(ctx context.Context) (pgx.Tx, error) {
	if _, err := t.conn.Exec(ctx, "SAVEPOINT gq"); err != nil {
		return nil, err
	}
	return &connTx{conn: t.conn, dialect: t.dialect}, nil
}

func (t *connTx) Commit(ctx context.Context) error { return t.end(ctx, "RELEASE SAVEPOINT gq") }

func (t *connTx) Rollback(ctx context.Context) error {
	return t.end(ctx, "ROLLBACK TO SAVEPOINT gq; RELEASE SAVEPOINT gq")
}

func (t *connTx) end(ctx context.Context, how string) error {
	if t.ended {
		return pgx.ErrTxClosed
	}
	t.ended = true
	_, err := t.conn.Exec(ctx, how)
	return err
}

// start begins the transaction if that is still to be done.
func (t *connTx) start(ctx context.Context) error {
	if t.begin == "" {
		return nil
	}
	_, err := t.conn.Exec(ctx, t.begin, pgx.QueryExecModeSimpleProtocol)
	t.begin = ""
	return err
}

func (t *connTx) Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error) {
	if err := t.start(ctx); err != nil {
		return pgconn.CommandTag{}, err
	}
	return t.conn.Exec(ctx, t.dialect.of(sql), args...)
}

func (t *connTx) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	if err := t.start(ctx); err != nil {
		return nil, err
	}
	return t.conn.Query(ctx, t.dialect.of(sql), args...)
}

func (t *connTx) QueryRow(ctx context.Context, sql string, args ...any) pgx.Row {
	if err := t.start(ctx); err != nil {
		return brokenRow{err}
	}
	return t.conn.QueryRow(ctx, t.dialect.of(sql), args...)
}

// pending reports whether nothing has been sent of a transaction that may begin
// with any batch.
func (t *connTx) pending() bool { return t.begin != "" && t.piped }

// SendBatch sends a batch, and the beginning of the transaction with it.
func (t *connTx) SendBatch(ctx context.Context, b *pgx.Batch) pgx.BatchResults {
	if t.pending() {
		var all pgx.Batch
		for sql := range strings.SplitSeq(t.begin, ";") {
			all.Queue(sql)
		}
		all.QueuedQueries = append(all.QueuedQueries, b.QueuedQueries...)
		t.begin, b = "", &all
	}
	if err := t.start(ctx); err != nil {
		return brokenBatch{err}
	}
	return t.conn.SendBatch(ctx, t.dialect.batch(b))
}

// sendAlone sends a batch that is a transaction of its own, which a batch is where
// nobody has begun one. What follows begins as if nothing had been sent.
func (t *connTx) sendAlone(ctx context.Context, b *pgx.Batch) pgx.BatchResults {
	return t.conn.SendBatch(ctx, t.dialect.batch(b))
}

// brokenRow is the row of a query that could not be sent.
type brokenRow struct{ err error }

func (r brokenRow) Scan(...any) error { return r.err }

// brokenBatch is the answer to a batch that could not be sent.
type brokenBatch struct{ err error }

func (b brokenBatch) Exec() (pgconn.CommandTag, error) { return pgconn.CommandTag{}, b.err }
func (b brokenBatch) Query() (pgx.Rows, error)         { return nil, b.err }
func (b brokenBatch) QueryRow() pgx.Row                { return brokenRow(b) }
func (b brokenBatch) Close() error                     { return b.err }
