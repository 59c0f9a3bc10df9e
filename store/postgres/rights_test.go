package postgres_test

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/internal/testing/pgtest"
	"github.com/gopherqueue/gq/store"
	"github.com/gopherqueue/gq/store/postgres"
)

// tomorrow is a clock that makes a store begin a day.
type tomorrow struct{}

func (tomorrow) Now() time.Time { return time.Now().Add(72 * time.Hour) }

// TestMissingRightsAreNamed opens a store as a role without rights, then does what the error says,
// until it opens.
func TestMissingRightsAreNamed(t *testing.T) {
	url := pgtest.Database(t)
	execute(t, url, `CREATE ROLE "le-sser" LOGIN; CREATE ROLE "own er"`)
	defer func() { execute(t, url, `DROP OWNED BY "le-sser", "own er" CASCADE; DROP ROLE "le-sser", "own er"`) }()
	lesser := withParameter(url, "options=-c%20role%3Dle-sser")
	refused := func(want string) {
		t.Helper()
		_, openError := postgres.Open(t.Context(), lesser, store.Config{})
		_, upError := postgres.MigrateUp(t.Context(), lesser)
		for _, err := range []error{openError, upError} {
			if err == nil || !strings.Contains(err.Error(), "permission denied") || !strings.Contains(err.Error(), want) {
				t.Errorf("the error is %v, want one with %s", err, want)
			}
		}
	}
	var database string
	if err := connect(t, url).QueryRow(t.Context(), "SELECT quote_ident(current_database())").Scan(&database); err != nil {
		t.Fatal(err)
	}
	refused("GRANT CREATE ON DATABASE " + database + ` TO "le-sser"`)
	execute(t, url, "GRANT CREATE ON DATABASE "+database+` TO "le-sser", "own er"`)
	if err := open(t, withParameter(url, "options=-c%20role%3Down%5C%20er"), store.Config{}).Close(); err != nil {
		t.Fatal(err)
	}
	refused(`GRANT "own er" TO "le-sser"; ALTER ROLE "le-sser" SET role = "own er"`)
	execute(t, url, `GRANT USAGE ON SCHEMA gq TO "le-sser"; GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA gq TO "le-sser"`)
	if _, err := postgres.Open(t.Context(), lesser, store.Config{Clock: tomorrow{}}); err == nil || !strings.Contains(err.Error(), `GRANT "own er" TO "le-sser"`) {
		t.Errorf("with all rights on the tables, but not as their owner: %v", err)
	}
	execute(t, url, `GRANT "own er" TO "le-sser"`)
	s := open(t, lesser, store.Config{})
	defer s.Close()
	mustInsert(t, s, newSpec("q"))
}

// TestTransactionWithoutRights submits in transactions of a role that may not.
func TestTransactionWithoutRights(t *testing.T) {
	url := pgtest.Database(t)
	s := open(t, url, store.Config{})
	defer s.Close()
	execute(t, url, "CREATE ROLE shopper")
	defer func() { execute(t, url, "DROP OWNED BY shopper; DROP ROLE shopper") }()
	conn := connect(t, url)
	db, err := sql.Open("pgx", url)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	submit := func() []error {
		t.Helper()
		own, err := conn.Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer own.Rollback(t.Context()) //nolint:errcheck // nothing is to stay
		tx, err := db.BeginTx(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		defer tx.Rollback() //nolint:errcheck // nothing is to stay
		if _, err := own.Exec(t.Context(), "SET LOCAL ROLE shopper"); err != nil {
			t.Fatal(err)
		}
		if _, err := tx.ExecContext(t.Context(), "SET LOCAL ROLE shopper"); err != nil {
			t.Fatal(err)
		}
		_, err = s.Tx(own).Insert(t.Context(), []store.Group{store.One(newSpec("q"))})
		_, inboxErr := s.InboxTx(tx).Insert(t.Context(), []store.Group{store.One(newSpec("q"))})
		return []error{err, inboxErr}
	}
	for _, err := range submit() {
		if err == nil || !strings.Contains(err.Error(), "permission denied") || !strings.Contains(err.Error(), `GRANT USAGE ON SCHEMA "gq"`) || !strings.Contains(err.Error(), `GRANT INSERT ON "gq".inbox`) {
			t.Errorf("the error names no right: %v", err)
		}
	}
	execute(t, url, `GRANT USAGE ON SCHEMA "gq" TO shopper; GRANT INSERT ON "gq".inbox TO shopper`)
	if errs := submit(); errs[0] == nil || errs[1] != nil {
		t.Errorf("with the rights for the inbox: %v", errs)
	}
}

// arguments collects the arguments of all statements of a connection.
type arguments struct{ all []any }

func (a *arguments) TraceQueryStart(ctx context.Context, _ *pgx.Conn, d pgx.TraceQueryStartData) context.Context {
	a.all = append(a.all, d.Args...)
	return ctx
}

func (*arguments) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

func (a *arguments) TraceBatchStart(ctx context.Context, _ *pgx.Conn, d pgx.TraceBatchStartData) context.Context {
	for _, q := range d.Batch.QueuedQueries {
		a.all = append(a.all, q.Arguments...)
	}
	return ctx
}

func (*arguments) TraceBatchQuery(context.Context, *pgx.Conn, pgx.TraceBatchQueryData) {}

func (*arguments) TraceBatchEnd(context.Context, *pgx.Conn, pgx.TraceBatchEndData) {}

// TestKeyOfIDsIsNoArgument submits two jobs in transactions of the application. Its server may log the
// arguments of statements, so the key of job ids is none of them.
func TestKeyOfIDsIsNoArgument(t *testing.T) {
	url := pgtest.Database(t)
	s := open(t, url, store.Config{})
	defer s.Close()
	var key []byte
	if err := connect(t, url).QueryRow(t.Context(), "SELECT secret FROM gq.id_key").Scan(&key); err != nil {
		t.Fatal(err)
	}
	cfg, err := pgx.ParseConfig(url)
	if err != nil {
		t.Fatal(err)
	}
	var sent arguments
	cfg.Tracer = &sent
	conn, err := pgx.ConnectConfig(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.WithoutCancel(t.Context())) //nolint:errcheck // it has committed
	for range 2 {
		err := pgx.BeginFunc(t.Context(), conn, func(tx pgx.Tx) error {
			out, err := s.Tx(tx).Insert(t.Context(), []store.Group{store.One(newSpec("q"))})
			if err == nil {
				err = out[0].Err
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, a := range sent.all {
		if b, ok := a.([]byte); ok && bytes.Contains(b, key) {
			t.Error("a statement has the key of job ids as an argument")
		}
	}
	if len(sent.all) == 0 {
		t.Error("no statement with arguments was seen")
	}
}

// TestTransactionOfAnotherDatabase submits in transactions of a database without a queue, and of one
// with a queue of its own.
func TestTransactionOfAnotherDatabase(t *testing.T) {
	s := open(t, pgtest.Database(t), store.Config{})
	defer s.Close()
	empty, other := pgtest.Database(t), pgtest.Database(t)
	second := open(t, other, store.Config{})
	defer second.Close()
	for _, test := range []struct {
		url, want string
	}{
		{empty, `without the queue's schema "gq"`}, {other, "with another queue"},
	} {
		conn := connect(t, test.url)
		err := pgx.BeginFunc(t.Context(), conn, func(tx pgx.Tx) error {
			_, err := s.Tx(tx).Insert(t.Context(), []store.Group{store.One(newSpec("q"))})
			if !errors.Is(err, gq.ErrInvalid) || !strings.Contains(err.Error(), test.want) || !strings.Contains(err.Error(), "begin it in the database") {
				t.Errorf("the error is %v, want one with %s", err, test.want)
			}
			return tx.QueryRow(t.Context(), "SELECT").Scan() // the transaction can continue
		})
		if err != nil {
			t.Error(err)
		}
	}
	if n := len(everyJob(t, second)); n != 0 {
		t.Errorf("the other queue has %d jobs", n)
	}
	db, err := sql.Open("pgx", empty)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	tx, err := db.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback() //nolint:errcheck // nothing is to stay
	if _, err := s.InboxTx(tx).Insert(t.Context(), []store.Group{store.One(newSpec("q"))}); !errors.Is(err, gq.ErrInvalid) || !strings.Contains(err.Error(), "without the queue's schema") {
		t.Errorf("with a transaction of database/sql: %v", err)
	}
}
