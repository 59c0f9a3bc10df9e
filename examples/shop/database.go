package main

import (
	"context"
	"errors"
	"time"

	"github.com/gopherqueue/gq"
)

// State says how far an order is.
type State string

// The states of an order.
const (
	Placed  State = "placed"
	Shipped State = "shipped"
	Failed  State = "failed"
)

// PlacedOrder is an order as the database has it.
type PlacedOrder struct {
	Order
	State    State
	Workflow gq.WorkflowID
	At       time.Time
}

var (
	errNoOrder    = errors.New("there is no such order")
	errKnownOrder = errors.New("there is an order with this id")
	errBadRequest = errors.New("bad request")
)

// Database keeps orders and invoices.
type Database interface {
	// Place stores an order and submits its workflow: both or neither. The error is
	// errKnownOrder if there is an order with this id.
	Place(ctx context.Context, o Order, flow *gq.Flow) error
	// Order returns an order, or errNoOrder.
	Order(ctx context.Context, id string) (PlacedOrder, error)
	SetState(ctx context.Context, id string, s State) error
	// InvoiceNumber returns the number of an order's invoice, the same in every call.
	InvoiceNumber(ctx context.Context, order string) (int, error)
	// Sales counts the shipped orders that were placed in a period.
	Sales(ctx context.Context, from, until time.Time) (orders, cents int, err error)
}
