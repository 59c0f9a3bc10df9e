// Package postgres opens queues in a PostgreSQL database, which all processes that use the
// database share: postgres://…. Import it for its effect:
//
//	import _ "github.com/gopherqueue/gq/driver/postgres"
//
// The parameter gq_schema of the URL names the schema of the queue's tables, which is gq
// otherwise: postgres://host/database?gq_schema=billing. Queues in different schemas of a database
// share nothing. A program that already has a connection pool calls [Open] with it, or
// [OpenSchema].
package postgres

import (
	"context"
	"database/sql"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/engine"
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

// Open opens a queue in the database of a connection pool that the program has, with the
// pool's settings: how it connects, authenticates and encrypts. The queue has up to 16
// connections of its own; the pool stays the program's.
func Open(ctx context.Context, pool *pgxpool.Pool, options ...gq.OpenOption) (*gq.Client, error) {
	return OpenSchema(ctx, pool, postgres.DefaultSchema, options...)
}

// OpenSchema does what [Open] does, with the queue's tables in a schema of that name: up to 40
// lower-case letters, digits and underscores.
func OpenSchema(ctx context.Context, pool *pgxpool.Pool, schema string, options ...gq.OpenOption) (*gq.Client, error) {
	var o gq.OpenOptions
	for _, set := range options {
		set(&o)
	}
	s, err := postgres.OpenLike(ctx, pool, schema, configOf(o))
	if err != nil {
		return nil, err
	}
	d, err := start(s, o)
	if err != nil {
		return nil, err
	}
	return &gq.Client{Driver: d}, nil
}

func configOf(o gq.OpenOptions) store.Config {
	return store.Config{Limits: o.Limits, Backoffs: o.Backoffs}
}

func start(s *postgres.Store, o gq.OpenOptions) (gq.Driver, error) {
	e, err := engine.Start(s, engine.Options{Log: o.Log, Preset: o.DefaultPreset})
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
	default:
		return nil, gq.ErrInvalid.Errorf("a %T is no transaction that the queue can take part in; want a pgx.Tx, or the *sql.Conn on which a transaction of database/sql was begun", tx)
	}
}
