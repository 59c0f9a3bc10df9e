package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/worker"
)

// Cart is a cart that a customer has filled but not ordered yet.
type Cart struct {
	Customer string `json:"customer"`
}

// The jobs that write to customers. The key of their limit is the customer.
var (
	Confirm   = gq.NewKind[Order, gq.None]("mail.confirm", gq.InQueue("mail"), gq.Resilient)
	Apologise = gq.NewKind[Order, gq.None]("mail.apologise", gq.InQueue("mail"), gq.Resilient)

	// RemindCart waits until a customer has left the cart alone for an hour: each submission
	// postpones the job that already waits.
	RemindCart = gq.NewKind[Cart, gq.None]("mail.cart", gq.InQueue("mail"), gq.Resilient,
		gq.UniqueBy("customer"), gq.Debounce(time.Hour))
)

// confirm ends the workflow of an order that succeeded. Its results came with the job.
func (s *Shop) confirm(ctx context.Context, job *worker.Job[Order]) error {
	invoice, err := worker.ResultOf(job, MakeInvoice, "invoice")
	if err != nil {
		return err
	}
	parcel, err := worker.ResultOf(job, Ship, "ship")
	if err != nil {
		return err
	}
	if err := s.DB.SetState(ctx, job.Args.ID, Shipped); err != nil {
		return err
	}
	return s.Services.Mail(ctx, job.ID().String(), job.Args.Customer,
		"Your order "+job.Args.ID, fmt.Sprintf("%s is on its way, %s", parcel, invoice))
}

// apologise ends the workflow of an order that did not succeed, whatever the reason: a declined
// card, no approval, a carrier that was down for too long.
func (s *Shop) apologise(ctx context.Context, job *worker.Job[Order]) error {
	receipt, err := worker.ResultOf(job, Charge, "charge")
	var unpaid *gq.JobError
	switch {
	case errors.As(err, &unpaid): // there is nothing to refund
	case err != nil:
		return err
	default:
		_, err := worker.Step(ctx, job, "refund", func(ctx context.Context) (gq.None, error) {
			return gq.None{}, s.Services.Refund(ctx, receipt.Number)
		})
		if err != nil {
			return err
		}
	}
	if err := s.DB.SetState(ctx, job.Args.ID, Failed); err != nil {
		return err
	}
	return s.Services.Mail(ctx, job.ID().String(), job.Args.Customer,
		"Your order "+job.Args.ID, "We are sorry: we cannot deliver it. You have paid nothing.")
}

func (s *Shop) remindCart(ctx context.Context, job *worker.Job[Cart]) error {
	return s.Services.Mail(ctx, job.ID().String(), job.Args.Customer, "Your cart", "You have left something in your cart.")
}
