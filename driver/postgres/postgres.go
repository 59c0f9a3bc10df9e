// Package postgres opens queues in a PostgreSQL database, which all processes that use the
// database share: postgres://…. Import it for its effect:
//
//	import _ "github.com/gopherqueue/gq/driver/postgres"
//
// The parameter gq_schema of the URL names the schema of the queue's tables, which is gq
// otherwise: postgres://host/database?gq_schema=billing. Queues in different schemas of a database
// share nothing. A program that already has a connection pool calls [Open]:
//
//	client, err := postgres.Open(ctx, postgres.WithPool(pool), postgres.WithSchema("jobs"))
package postgres

import (
	"context"
	"database/sql"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/engine"
	"github.com/gopherqueue/gq/internal/wire"
	"github.com/gopherqueue/gq/store"
	"github.com/gopherqueue/gq/store/postgres"
)

func init() {
	gq.RegisterDriver("postgres", open)
	gq.RegisterDriver("postgresql", open)
}

func open(ctx context.Context, url string, o gq.OpenOptions) (gq.Driver, error) {
	s, err := postgres.Open(ctx, url, configOf(o))
	if err != nil {
		return nil, err
	}
	return start(s, o)
}

// Option is a setting of [Open].
type Option func(*settings)

type settings struct {
	pool   *pgxpool.Pool
	schema string
	common gq.OpenOptions
}

// WithPool makes the queue use the connections of a pool that the program has. The pool stays
// the program's: closing the client leaves it open, and it must be open for as long as the
// client is. The queue listens for notifications on one more connection, which it opens with
// the pool's settings. The pool needs MaxConns of at least 2; a queue with connections of its
// own has up to 16.
func WithPool(pool *pgxpool.Pool) Option { return func(s *settings) { s.pool = pool } }

// WithSchema puts the queue's tables into a schema of that name; otherwise it is gq. The schema
// is created unless it exists. It may have any name that PostgreSQL allows, except public and
// those that PostgreSQL reserves.
func WithSchema(name string) Option { return func(s *settings) { s.schema = name } }

// With adds options that all drivers have, such as [gq.Log].
func With(options ...gq.OpenOption) Option {
	return func(s *settings) {
		for _, set := range options {
			set(&s.common)
		}
	}
}

// Open opens a queue on the pool of [WithPool]. To open one by its URL call [gq.Open].
func Open(ctx context.Context, options ...Option) (*gq.Client, error) {
	var o settings
	for _, set := range options {
		set(&o)
	}
	s, err := postgres.OpenPool(ctx, o.pool, o.schema, configOf(o.common))
	if err != nil {
		return nil, err
	}
	d, err := start(s, o.common)
	if err != nil {
		return nil, err
	}
	return (&gq.Client{Driver: d}).With(o.common.Middleware...), nil
}

func configOf(o gq.OpenOptions) store.Config {
	return store.Config{Limits: o.Limits, Backoffs: o.Backoffs}
}

func start(s *postgres.Store, o gq.OpenOptions) (gq.Driver, error) {
	if err := s.ViewsError(); err != nil && o.Log != nil {
		o.Log.Warn("the database has no views of this version; gq migrate up makes them", "error", err)
	}
	e, err := engine.Start(s, engine.Options{Log: o.Log, Preset: o.DefaultPreset, ReadRequest: wire.ReadRequest})
	if err != nil {
		return nil, err
	}
	return driver{e, s}, nil
}

// driver is an engine that can take part in transactions of the program.
type driver struct {
	*engine.Running
	store *postgres.Store
}

// Within is the queue within a transaction.
func (d driver) Within(tx any) (gq.Submitter, error) {
	switch tx := tx.(type) {
	case pgx.Tx:
		return d.In(d.store.Tx(tx)), nil
	case *sql.Conn:
		return d.In(d.store.SQL(tx)), nil
	case postgres.SQLTx:
		return d.In(d.store.InboxTx(tx)), nil
	default:
		return nil, gq.ErrInvalid.Errorf("a %T is no transaction that the queue can take part in; want a pgx.Tx, a *sql.Tx or a type that wraps one, or the *sql.Conn on which a transaction of database/sql was begun", tx)
	}
}
