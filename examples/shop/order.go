package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/worker"
)

// Order is what a customer sends, and the argument of every job of its workflow.
type Order struct {
	ID       string `json:"id"`       // chosen by the customer's browser, so that a repeat is recognised
	Customer string `json:"customer"` // a mail address
	Card     string `json:"card"`
	Cents    int    `json:"cents"`
}

// Receipt is the result of a charge.
type Receipt struct {
	Number     string `json:"number"`
	ApprovedBy string `json:"approved_by,omitempty"`
}

// Approval is the value of the signal that large orders wait for.
type Approval struct {
	By string `json:"by"`
}

// The jobs of an order. Resilient: each is tried for about nine hours, because a bank or a
// carrier can be down for a while, unless its handler says that the failure is permanent.
var (
	Charge = gq.NewKind[Order, Receipt]("order.charge", gq.InQueue("payments"), gq.Resilient)
	Ship   = gq.NewKind[Order, string]("order.ship", gq.Resilient)

	// Approved reads the value of the signal; no handler runs such a job.
	Approved = gq.NewKind[gq.None, Approval](gq.SignalType)
)

const (
	largeOrder   = 100_000 // cents; a person looks at orders from this on
	approvalTime = 24 * time.Hour
)

var errDeclined = errors.New("the bank declined the card")

// orderWorkflow returns the workflow of an order:
//
//	approved (large orders) → charge → invoice → confirm, or else apologise
//	                                 ↘ ship    ↗
func orderWorkflow(o Order) *gq.Flow {
	flow := gq.NewWorkflow("order " + o.ID)
	var first []gq.Option
	if o.Cents >= largeOrder {
		first = append(first, gq.After(flow.Signal("approved", approvalTime)))
	}
	charge := flow.Add("charge", Charge.With(o, gq.LimitKey(o.Customer)), first...)
	flow.Add("invoice", MakeInvoice.With(o), gq.After(charge))
	flow.Add("ship", Ship.With(o), gq.After(charge))
	flow.Finally("confirm", Confirm.With(o, gq.LimitKey(o.Customer)), gq.OnSuccess)
	flow.Finally("apologise", Apologise.With(o, gq.LimitKey(o.Customer)), gq.OnFailure)
	return flow
}

func (s *Shop) charge(ctx context.Context, job *worker.Job[Order]) (Receipt, error) {
	var approval Approval
	if job.Args.Cents >= largeOrder {
		var err error
		if approval, err = worker.ResultOf(job, Approved, "approved"); err != nil {
			return Receipt{}, err
		}
	}
	number, err := s.Services.Charge(ctx, job.Args.ID, job.Args.Card, job.Args.Cents)
	if err != nil {
		return Receipt{}, err
	}
	return Receipt{Number: number, ApprovedBy: approval.By}, nil
}

// ship calls the carrier twice. If the second call fails, the retry does not repeat the first.
func (s *Shop) ship(ctx context.Context, job *worker.Job[Order]) (parcel string, err error) {
	parcel, err = worker.Step(ctx, job, "label", func(ctx context.Context) (string, error) {
		return s.Services.PrintLabel(ctx, job.Args.ID, job.Args.Customer)
	})
	if err != nil {
		return "", err
	}
	_, err = worker.Step(ctx, job, "pickup", func(ctx context.Context) (gq.None, error) {
		return gq.None{}, s.Services.OrderPickup(ctx, parcel)
	})
	return parcel, err
}

// Place accepts an order: the row and the workflow exist together or not at all.
func (s *Shop) Place(ctx context.Context, o Order) error {
	if o.ID == "" || o.Customer == "" || o.Cents <= 0 {
		return fmt.Errorf("%w: an order needs an id, a customer and cents above 0", errBadRequest)
	}
	return s.DB.Place(ctx, o, orderWorkflow(o))
}

// Approve lets a large order go on.
func (s *Shop) Approve(ctx context.Context, id string, a Approval) error {
	placed, err := s.DB.Order(ctx, id)
	if err != nil {
		return err
	}
	_, err = s.Client.Signal(ctx, placed.Workflow, "approved", a)
	return err
}
