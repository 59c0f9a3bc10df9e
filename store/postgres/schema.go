package postgres

import (
	"context"
	"fmt"
	"hash/fnv"
	"net/url"
	"regexp"
	"strings"
	"sync"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/gopherqueue/gq"
)

// DefaultSchema is the schema of a queue that names no other.
const DefaultSchema = "gq"

// schemaParameter is the parameter of a URL that names the schema.
const schemaParameter = "gq_schema"

// schemaNames are the names that need no quotes anywhere.
var schemaNames = regexp.MustCompile(`^[a-z_][a-z0-9_]{0,39}$`)

// dialect turns the statements of this package, which say gq, into those of another schema. The
// nil dialect is that of the schema gq and changes nothing.
//
// The search path would be simpler, but a pooler gives every transaction another connection.
type dialect struct {
	schema string
	known  sync.Map // statements by what this package says
}

// newDialect refuses names that are no plain identifiers, and those that PostgreSQL keeps for
// itself.
func newDialect(schema string) (*dialect, error) {
	switch {
	case schema == "" || schema == DefaultSchema:
		return nil, nil
	case !schemaNames.MatchString(schema) || strings.HasPrefix(schema, "pg_") || schema == "public" || schema == "information_schema":
		return nil, gq.ErrInvalid.Errorf(
			"schema %.64q: want up to 40 lower-case letters, digits and underscores that begin with no digit, and no schema of PostgreSQL's own", schema)
	}
	return &dialect{schema: schema}, nil
}

// cutSchema takes the schema out of a URL, since PostgreSQL does not know the parameter.
func cutSchema(address string) (rest string, d *dialect, err error) {
	u, err := url.Parse(address)
	if err != nil || !strings.Contains(u.RawQuery, schemaParameter) {
		return address, nil, nil // what is wrong with it is told when it is used
	}
	query, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return "", nil, gq.ErrInvalid.Errorf("%s: %v", schemaParameter, err)
	}
	if d, err = newDialect(query.Get(schemaParameter)); err != nil {
		return "", nil, err
	}
	query.Del(schemaParameter)
	u.RawQuery = query.Encode()
	return u.String(), d, nil
}

func (d *dialect) name() string {
	if d == nil {
		return DefaultSchema
	}
	return d.schema
}

// channel is where the nodes of this schema tell each other of commits.
func (d *dialect) channel() string { return d.name() + "_news" }

var (
	qualified = regexp.MustCompile(`\bgq\.`)
	itself    = regexp.MustCompile(`(CREATE SCHEMA |to_regnamespace\(')gq\b`)
	locking   = regexp.MustCompile(`(pg_(?:try_)?advisory_xact_lock(?:_shared)?\(\$\d+)`)
)

// of is a statement as this schema has it. Advisory locks are of the whole database, so their
// class differs by schema too.
func (d *dialect) of(sql string) string {
	if d == nil {
		return sql
	}
	if known, ok := d.known.Load(sql); ok {
		return known.(string)
	}
	text := qualified.ReplaceAllString(sql, d.schema+".")
	text = itself.ReplaceAllString(text, "${1}"+d.schema)
	h := fnv.New32a()
	h.Write([]byte(d.schema)) //nolint:errcheck // a hash never fails
	text = locking.ReplaceAllString(text, fmt.Sprintf("${1} + %d", h.Sum32()&0x07ffff00))
	if len(sql) < maxKnownStatement {
		d.known.Store(sql, text)
		d.known.Store(text, text) // so that it does no harm to say it twice
	}
	return text
}

// maxKnownStatement is up to how many bytes a statement is remembered. The schema itself, which
// is executed once, is longer.
const maxKnownStatement = 16 << 10

// batch is a batch as this schema has it.
func (d *dialect) batch(b *pgx.Batch) *pgx.Batch {
	if d != nil {
		for _, q := range b.QueuedQueries {
			q.SQL = d.of(q.SQL)
		}
	}
	return b
}

// database is a pool whose statements are those of a schema.
type database struct {
	*pgxpool.Pool
	dialect *dialect
}

func (p database) Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error) {
	return p.Pool.Exec(ctx, p.dialect.of(sql), args...)
}

func (p database) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	return p.Pool.Query(ctx, p.dialect.of(sql), args...)
}

func (p database) QueryRow(ctx context.Context, sql string, args ...any) pgx.Row {
	return p.Pool.QueryRow(ctx, p.dialect.of(sql), args...)
}

func (p database) Begin(ctx context.Context) (pgx.Tx, error) { return p.BeginTx(ctx, pgx.TxOptions{}) }

func (p database) BeginTx(ctx context.Context, options pgx.TxOptions) (pgx.Tx, error) {
	tx, err := p.Pool.BeginTx(ctx, options)
	if err != nil {
		return nil, err
	}
	return p.dialect.within(tx), nil
}

// within has the statements of a transaction be those of this schema.
func (d *dialect) within(tx pgx.Tx) pgx.Tx {
	if d == nil {
		return tx
	}
	return schemaTx{tx, d}
}

type schemaTx struct {
	pgx.Tx
	dialect *dialect
}

func (t schemaTx) Begin(ctx context.Context) (pgx.Tx, error) {
	inner, err := t.Tx.Begin(ctx)
	if err != nil {
		return nil, err
	}
	return t.dialect.within(inner), nil
}

func (t schemaTx) Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error) {
	return t.Tx.Exec(ctx, t.dialect.of(sql), args...)
}

func (t schemaTx) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	return t.Tx.Query(ctx, t.dialect.of(sql), args...)
}

func (t schemaTx) QueryRow(ctx context.Context, sql string, args ...any) pgx.Row {
	return t.Tx.QueryRow(ctx, t.dialect.of(sql), args...)
}

func (t schemaTx) SendBatch(ctx context.Context, b *pgx.Batch) pgx.BatchResults {
	return t.Tx.SendBatch(ctx, t.dialect.batch(b))
}

// connection is a connection whose transactions are those of a schema, for migrations.
type connection struct {
	*pgx.Conn
	dialect *dialect
}

func (c connection) Begin(ctx context.Context) (pgx.Tx, error) {
	tx, err := c.Conn.Begin(ctx)
	if err != nil {
		return nil, err
	}
	return c.dialect.within(tx), nil
}

func (c connection) QueryRow(ctx context.Context, sql string, args ...any) pgx.Row {
	return c.Conn.QueryRow(ctx, c.dialect.of(sql), args...)
}
