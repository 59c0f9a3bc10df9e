package postgres

import (
	"context"
	"fmt"
	"hash/fnv"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"sync"
	"unicode"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/gopherqueue/gq"
)

// DefaultSchema is the schema of a store unless it is opened with another.
const DefaultSchema = "gq"

// schemaParameter is the URL parameter that names the schema.
const schemaParameter = "gq_schema"

// maxSchemaName is how many bytes of a name PostgreSQL keeps.
const maxSchemaName = 63

// dialect rewrites the statements of this package, which name the schema gq, for another
// schema. The nil dialect is for the schema gq and changes nothing.
//
// Setting search_path would be simpler, but behind a pooler every transaction may run on
// another connection.
type dialect struct {
	schema string
	names  [3]string // the schema and those beside it in quotes, in the order of besides
	known  sync.Map  // rewritten statements by the original
}

// newDialect returns the dialect of a schema. Any name will do that PostgreSQL keeps as it
// is and that is not one of its own schemas.
func newDialect(schema string) (*dialect, error) {
	refuse := func(why string) (*dialect, error) {
		return nil, &gq.InvalidError{Faults: []gq.Fault{{Field: "schema", Problem: fmt.Sprintf("%.80q %s", schema, why)}}}
	}
	switch {
	case schema == "" || schema == DefaultSchema:
		return nil, nil
	case len(schema) > maxSchemaName:
		return refuse(fmt.Sprintf("has %d bytes; PostgreSQL keeps up to %d", len(schema), maxSchemaName))
	case !utf8.ValidString(schema) || strings.ContainsFunc(schema, unicode.IsControl):
		return refuse("is not text without control characters")
	case dollarQuote.MatchString(schema):
		return refuse("has two dollar signs, which quote the bodies of functions")
	case strings.HasPrefix(schema, "pg_") || schema == "information_schema":
		return refuse("is reserved by PostgreSQL")
	case schema == "public":
		return refuse("is where applications keep their own tables; choose a schema for the queue alone")
	}
	d := &dialect{schema: schema}
	for i, suffix := range besides {
		d.names[i] = pgx.Identifier{beside(schema, suffix)}.Sanitize()
	}
	return d, nil
}

// besides are what the schemas of a store end in: that of its tables, and those of the views for the
// documents on matching and on the scheduler.
var besides = [...]string{"", "_matching", "_scheduler"}

// beside is the name of a schema for views. PostgreSQL would cut a longer name, so it has the beginning
// of the name and a hash.
func beside(schema, suffix string) string {
	if len(schema)+len(suffix) <= maxSchemaName {
		return schema + suffix
	}
	h := fnv.New32a()
	h.Write([]byte(schema)) //nolint:errcheck // a hash never fails
	end := fmt.Sprintf("_%08x%s", h.Sum32(), suffix)
	return strings.ToValidUTF8(schema[:maxSchemaName-len(end)], "") + end
}

// cutSchema removes the schema from a URL, since PostgreSQL does not know the parameter.
func cutSchema(address string) (rest string, d *dialect, err error) {
	u, err := url.Parse(address)
	if err != nil || !strings.Contains(u.RawQuery, schemaParameter) {
		return address, nil, nil // an invalid URL fails when it is used
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

// defaultChannel is the notification channel of the schema gq.
const defaultChannel = "gq_news"

// channel is the notification channel of the nodes that use this schema. It has a hash of
// the name, which may be as long as the name of a channel.
func (d *dialect) channel() string {
	if d == nil {
		return defaultChannel
	}
	h := fnv.New64a()
	h.Write([]byte(d.schema)) //nolint:errcheck // a hash never fails
	return fmt.Sprintf("%s_%016x", defaultChannel, h.Sum64())
}

var (
	dollarQuote = regexp.MustCompile(`\$\w*\$`)

	// A string literal that names something of a schema begins with its name.
	qualified = regexp.MustCompile(`('?)\bgq(_matching|_scheduler)?\.`)
	itself    = regexp.MustCompile(`(CREATE SCHEMA (?:IF NOT EXISTS )?|to_regnamespace\(')gq(_matching|_scheduler)?\b`)
	locking   = regexp.MustCompile(`pg_(?:try_)?advisory_xact_lock(?:_shared)?\(\$\d+`)
)

// of rewrites a statement for this schema. Advisory locks belong to the whole database, so
// their class depends on the schema too.
func (d *dialect) of(sql string) string {
	if d == nil {
		return sql
	}
	if known, ok := d.known.Load(sql); ok {
		return known.(string)
	}
	text := replaceEach(qualified, sql, func(quote, suffix string) string { return quote + d.quoted(suffix, quote != "") + "." })
	text = replaceEach(itself, text, func(before, suffix string) string {
		return before + d.quoted(suffix, strings.HasSuffix(before, "'"))
	})
	text = strings.ReplaceAll(text, "'"+defaultChannel+"'", "'"+d.channel()+"'")
	h := fnv.New32a()
	h.Write([]byte(d.schema)) //nolint:errcheck // a hash never fails
	class := fmt.Sprintf(" + %d", h.Sum32()&0x07ffff00)
	text = locking.ReplaceAllStringFunc(text, func(found string) string { return found + class })
	if len(sql) < maxKnownStatement {
		d.known.Store(sql, text)
		d.known.Store(text, text) // rewriting twice must not change it again
	}
	return text
}

// quoted is the schema that ends in a suffix.
func (d *dialect) quoted(suffix string, inLiteral bool) string {
	name := d.names[slices.Index(besides[:], suffix)]
	if inLiteral {
		return strings.ReplaceAll(name, "'", "''")
	}
	return name
}

// replaceEach replaces all matches of an expression with two groups.
func replaceEach(e *regexp.Regexp, text string, f func(first, last string) string) string {
	return e.ReplaceAllStringFunc(text, func(found string) string {
		groups := e.FindStringSubmatch(found)
		return f(groups[1], groups[2])
	})
}

// maxKnownStatement limits the size of cached statements in bytes. schema.sql, which is
// executed once, is longer.
const maxKnownStatement = 16 << 10

// batch rewrites the statements of a batch for this schema.
func (d *dialect) batch(b *pgx.Batch) *pgx.Batch {
	if d != nil {
		for _, q := range b.QueuedQueries {
			q.SQL = d.of(q.SQL)
		}
	}
	return b
}

// database is a connection pool that rewrites statements for a schema.
type database struct {
	*pgxpool.Pool
	dialect  *dialect
	borrowed bool // the pool is the application's
}

func (p database) close() {
	if !p.borrowed {
		p.Pool.Close()
	}
}

// connect opens a connection outside the pool, with the pool's settings.
func (p database) connect(ctx context.Context) (*pgx.Conn, error) {
	settings := p.Config()
	if settings.BeforeConnect != nil { // for example for a password that changes
		if err := settings.BeforeConnect(ctx, settings.ConnConfig); err != nil {
			return nil, err
		}
	}
	return dial(ctx, settings.ConnConfig)
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

// within returns a transaction that rewrites statements for this schema.
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

// connection is a connection that rewrites statements for a schema, for migrations.
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
