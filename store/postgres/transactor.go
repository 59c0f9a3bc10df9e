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

// Tx makes the store work within the application's transaction: inserts and updates take
// effect if and only if that transaction commits, and are invisible until then. Pass the
// result to an engine ([engine.Engine.In]) rather than calling it.
//
// Until the transaction ends it holds locks: on updated jobs, on the idempotency keys and
// the dependencies of new jobs, and on their queues if these are fair or have a maximum
// depth. Only transactions that need the same locks wait for it. At an isolation level
// other than READ COMMITTED the transaction may fail because of concurrent ones; the
// application must then retry it.
//
// [engine.Engine.In]: https://pkg.go.dev/github.com/gopherqueue/gq/engine#Engine.In
func (s *Store) Tx(tx pgx.Tx) store.Transaction {
	t := pgxTransaction{s: s, tx: tx}
	if conn := tx.Conn(); conn != nil {
		t.types = conn.TypeMap()
	}
	return t
}

// SQL is [Store.Tx] for database/sql with the pgx driver. The transaction is the one that
// the application began with conn.BeginTx.
func (s *Store) SQL(conn *sql.Conn) store.Transaction { return sqlTransaction{s, conn} }

type pgxTransaction struct {
	s     *Store
	tx    pgx.Tx
	types *pgtype.Map // of its connection; nil if the connection is not known
}

// Insert implements [store.Transaction].
func (t pgxTransaction) Insert(ctx context.Context, groups []store.Group) (out []store.Inserted, err error) {
	registerIDs(t.types)
	err = t.s.within(ctx, t.tx, func(tx *txn) error {
		out, err = t.s.insertValid(groups, func(valid []store.Group) ([]store.Inserted, error) {
			return tx.insert(ctx, valid, jobsOf(valid), nil)
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
	err = t.s.within(ctx, t.tx, func(tx *txn) error {
		if len(updates) == 0 {
			return nil
		}
		out, err = tx.updateAll(ctx, updates)
		return err
	})
	if err != nil {
		return nil, err
	}
	store.OwnUpdated(out)
	return out, nil
}

// Change implements [store.Transaction].
func (t pgxTransaction) Change(ctx context.Context, c store.Change) (out store.Changed, err error) {
	registerIDs(t.types)
	if err := t.s.checkChange(c); err != nil {
		return out, err
	}
	err = t.s.within(ctx, t.tx, func(tx *txn) error {
		out, err = tx.change(ctx, c)
		return err
	})
	return owned(out, err)
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

// Change implements [store.Transaction].
func (t sqlTransaction) Change(ctx context.Context, c store.Change) (out store.Changed, err error) {
	err = raw(t.conn, func(tx *connTx) error {
		out, err = pgxTransaction{t.s, tx, tx.conn.TypeMap()}.Change(ctx, c)
		return err
	})
	return out, err
}

// within runs f in the application's transaction. It neither begins nor ends it and leaves
// its settings alone. If f fails, its writes are rolled back to a savepoint, so that the
// transaction can continue.
func (s *Store) within(ctx context.Context, outer pgx.Tx, f func(tx *txn) error) error {
	if err := s.enter(); err != nil {
		return err
	}
	defer s.leave()
	again := false
	work := func(inner pgx.Tx) error {
		tx := &txn{Tx: inner, s: s, careful: true, again: again}
		if err := f(tx); err != nil || !tx.written {
			return err
		}
		return s.announceWithin(ctx, inner, &tx.changes)
	}
	var err error
	for range maxTries {
		if err = pgx.BeginFunc(ctx, s.pool.dialect.within(outer), work); !errors.Is(err, errMoved) && !keyTaken(err) {
			break
		}
		again = true
	}
	return s.explainWithin(err, ownersRights)
}

// announceWithin notifies of what a transaction changes, when it commits. It refuses a transaction
// that is outdated, or in another database.
func (s *Store) announceWithin(ctx context.Context, inner pgx.Tx, c *effects) error {
	// The notices name no node, so this node receives them like the others.
	text, err := json.Marshal(notice{Queues: names(c.opened), Freed: names(c.freed), Due: c.due, Fresh: true})
	if err == nil && len(text) > maxNotice {
		text, err = json.Marshal(notice{Fresh: true})
	}
	texts := []string{string(text)}
	for _, n := range new(notifier).cancelNotices(c.cancels) {
		text, fault := json.Marshal(n)
		texts, err = append(texts, string(text)), errors.Join(err, fault)
	}
	var outdated, foreign bool
	for _, text := range texts {
		if err == nil {
			err = inner.QueryRow(ctx, noticeWithin, s.pool.dialect.channel(), text, s.ids.hash).Scan(&outdated, &foreign)
		}
	}
	switch {
	case err != nil:
		return err
	case foreign:
		return errForeign
	case outdated:
		return errOutdated
	}
	return nil
}

// noticeWithin notifies of the commit, and selects whether the transaction's snapshot
// contains a partition that has since been dropped. The transaction does not see what was
// copied out of it: a job that it releases would be lost, and a key would seem free. After
// its first write no other partition can be dropped. It also selects whether the tables are those
// of another queue, which have another key of job ids. The key itself is no argument, because servers
// can be configured to log these.
const noticeWithin = `
	SELECT current_setting('transaction_isolation') <> 'read committed' AND EXISTS (
		SELECT FROM pg_inherits WHERE inhparent = 'gq.done'::regclass AND pg_relation_filenode(inhrelid) IS NULL
	), sha256((SELECT secret FROM gq.id_key)) <> $3
	FROM pg_notify($1, $2)`

// errOutdated means that the application must retry its transaction.
var errOutdated = fmt.Errorf("the transaction began before history was moved and does not see all of it: roll it back and try again: %w", gq.ErrConflict)

// raw runs f with the transaction of a database/sql connection.
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

// connTx is a transaction on a connection: one that the application began, a savepoint in
// it, or one that begins with its first statement.
type connTx struct {
	pgx.Tx  // nil; only for the methods not defined here, which are never called
	conn    *pgx.Conn
	dialect *dialect
	begin   string // statements to send first; "" once they are sent
	piped   bool   // begin may be sent with a batch
	ended   bool   // the savepoint has ended
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

// start begins the transaction if it has not begun.
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

// pending reports whether nothing has been sent yet and begin may be sent with a batch.
func (t *connTx) pending() bool { return t.begin != "" && t.piped }

// SendBatch sends a batch, with begin in front if that is pending.
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

// sendAlone sends a batch without begin, so that PostgreSQL runs it as a transaction of
// its own. The transaction of t remains pending.
func (t *connTx) sendAlone(ctx context.Context, b *pgx.Batch) pgx.BatchResults {
	return t.conn.SendBatch(ctx, t.dialect.batch(b))
}

// brokenRow is the row of a query that could not be sent.
type brokenRow struct{ err error }

func (r brokenRow) Scan(...any) error { return r.err }

// brokenBatch is the result of a batch that could not be sent.
type brokenBatch struct{ err error }

func (b brokenBatch) Exec() (pgconn.CommandTag, error) { return pgconn.CommandTag{}, b.err }
func (b brokenBatch) Query() (pgx.Rows, error)         { return nil, b.err }
func (b brokenBatch) QueryRow() pgx.Row                { return brokenRow(b) }
func (b brokenBatch) Close() error                     { return b.err }
