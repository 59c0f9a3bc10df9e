package main

import (
	"context"
	"sync"
	"time"

	"github.com/gopherqueue/gq"
)

// Memory is a [Database] without a database, for a first look and for tests.
type Memory struct {
	client *gq.Client
	now    func() time.Time

	mu       sync.Mutex
	orders   map[string]*PlacedOrder // guarded by mu
	invoices map[string]int          // by order; guarded by mu
}

// NewMemory returns an empty database whose orders are placed at the time that now tells.
func NewMemory(client *gq.Client, now func() time.Time) *Memory {
	return &Memory{client: client, now: now, orders: make(map[string]*PlacedOrder), invoices: make(map[string]int)}
}

// Place implements [Database].
func (m *Memory) Place(ctx context.Context, o Order, flow *gq.Flow) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.orders[o.ID] != nil {
		return errKnownOrder
	}
	id, err := m.client.SubmitWorkflow(ctx, flow)
	if err != nil {
		return err
	}
	m.orders[o.ID] = &PlacedOrder{Order: o, State: Placed, Workflow: id, At: m.now()}
	return nil
}

// Order implements [Database].
func (m *Memory) Order(_ context.Context, id string) (PlacedOrder, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	o := m.orders[id]
	if o == nil {
		return PlacedOrder{}, errNoOrder
	}
	return *o, nil
}

// SetState implements [Database].
func (m *Memory) SetState(_ context.Context, id string, s State) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.orders[id] == nil {
		return errNoOrder
	}
	m.orders[id].State = s
	return nil
}

// InvoiceNumber implements [Database].
func (m *Memory) InvoiceNumber(_ context.Context, order string) (int, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.invoices[order] == 0 {
		m.invoices[order] = len(m.invoices) + 1
	}
	return m.invoices[order], nil
}

// Sales implements [Database].
func (m *Memory) Sales(_ context.Context, from, until time.Time) (orders, cents int, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, o := range m.orders {
		if o.State == Shipped && !o.At.Before(from) && o.At.Before(until) {
			orders++
			cents += o.Cents
		}
	}
	return orders, cents, nil
}
