package main

import (
	"context"
	"fmt"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/worker"
)

// Invoice is the result of MakeInvoice.
type Invoice struct {
	Number  int    `json:"number"`
	Receipt string `json:"receipt"`
	Cents   int    `json:"cents"`
}

// MakeInvoice gives an order its invoice number.
var MakeInvoice = gq.NewKind[Order, Invoice]("invoice.make", gq.Resilient)

// makeInvoice runs after the charge and reads its result. It may run twice, and an order must
// have one invoice: the database gives each order one number, however often it is asked.
func (s *Shop) makeInvoice(ctx context.Context, job *worker.Job[Order]) (Invoice, error) {
	receipt, err := worker.ResultOf(job, Charge, "charge")
	if err != nil {
		return Invoice{}, err
	}
	number, err := s.DB.InvoiceNumber(ctx, job.Args.ID)
	if err != nil {
		return Invoice{}, err
	}
	return Invoice{Number: number, Receipt: receipt.Number, Cents: job.Args.Cents}, nil
}

func (i Invoice) String() string {
	return fmt.Sprintf("invoice %d: %d.%02d EUR", i.Number, i.Cents/100, i.Cents%100)
}
