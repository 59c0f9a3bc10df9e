package main

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/gopherqueue/gq"
)

// Postgres is a [Database] in PostgreSQL, in the database that also holds the queue.
type Postgres struct {
	client *gq.Client
	db     *sql.DB
}

// NewPostgres creates the tables of the shop unless they exist.
func NewPostgres(ctx context.Context, client *gq.Client, db *sql.DB) (*Postgres, error) {
	_, err := db.ExecContext(ctx, `
		CREATE TABLE IF NOT EXISTS orders (
			id       text PRIMARY KEY,
			customer text NOT NULL,
			card     text NOT NULL,
			cents    int NOT NULL CHECK (cents > 0),
			state    text NOT NULL DEFAULT 'placed',
			workflow text NOT NULL,
			at       timestamptz NOT NULL DEFAULT now()
		);
		CREATE TABLE IF NOT EXISTS invoices (
			order_id text PRIMARY KEY REFERENCES orders,
			number   int NOT NULL GENERATED ALWAYS AS IDENTITY
		)`)
	return &Postgres{client, db}, err
}

// Place implements [Database]. The transaction is of database/sql, as it would be with GORM,
// ent, bun or sqlx. The workflow has its id at once and exists when the transaction commits.
func (p *Postgres) Place(ctx context.Context, o Order, flow *gq.Flow) error {
	tx, err := p.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback() // changes nothing after the commit
	workflow, err := p.client.In(tx).SubmitWorkflow(ctx, flow)
	if err != nil {
		return err
	}
	result, err := tx.ExecContext(ctx, `
		INSERT INTO orders (id, customer, card, cents, workflow) VALUES ($1, $2, $3, $4, $5)
		ON CONFLICT (id) DO NOTHING`,
		o.ID, o.Customer, o.Card, o.Cents, workflow.String())
	if err != nil {
		return err
	}
	if n, err := result.RowsAffected(); err != nil || n == 0 {
		return errors.Join(err, errKnownOrder) // rolls the workflow back too
	}
	return tx.Commit()
}

// Order implements [Database].
func (p *Postgres) Order(ctx context.Context, id string) (o PlacedOrder, err error) {
	var workflow string
	err = p.db.QueryRowContext(ctx, "SELECT id, customer, card, cents, state, workflow, at FROM orders WHERE id = $1", id).
		Scan(&o.ID, &o.Customer, &o.Card, &o.Cents, &o.State, &workflow, &o.At)
	if errors.Is(err, sql.ErrNoRows) {
		return PlacedOrder{}, errNoOrder
	}
	if err != nil {
		return PlacedOrder{}, err
	}
	return o, o.Workflow.UnmarshalText([]byte(workflow))
}

// SetState implements [Database].
func (p *Postgres) SetState(ctx context.Context, id string, s State) error {
	_, err := p.db.ExecContext(ctx, "UPDATE orders SET state = $2 WHERE id = $1", id, s)
	return err
}

// InvoiceNumber implements [Database].
func (p *Postgres) InvoiceNumber(ctx context.Context, order string) (number int, err error) {
	err = p.db.QueryRowContext(ctx, `
		INSERT INTO invoices (order_id) VALUES ($1)
		ON CONFLICT (order_id) DO UPDATE SET order_id = EXCLUDED.order_id
		RETURNING number`, order).Scan(&number)
	return number, err
}

// Sales implements [Database].
func (p *Postgres) Sales(ctx context.Context, from, until time.Time) (orders, cents int, err error) {
	err = p.db.QueryRowContext(ctx, `
		SELECT count(*), coalesce(sum(cents), 0) FROM orders
		WHERE state = 'shipped' AND at >= $1 AND at < $2`, from, until).Scan(&orders, &cents)
	return orders, cents, err
}
