package main

import (
	"context"
	"log/slog"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/worker"
)

// Shop is the whole shop. main.go gives it a real queue and database, and shop_test.go a queue
// in virtual time.
type Shop struct {
	Client   *gq.Client
	DB       Database
	Services Services
}

// Configure declares the queues with their limits, and the schedules. An operator can change a
// queue later: the next start of the program keeps that change.
func (s *Shop) Configure(ctx context.Context) error {
	for _, q := range []gq.Queue{
		{Name: "payments", MaxRunning: 10, KeyLimit: 1}, // ten calls to the bank at once, one for each customer
		{
			Name:    "mail",
			Rate:    gq.Rate{Count: 50, Per: time.Second, Burst: 50}, // what the mail server takes
			KeyRate: gq.Rate{Count: 10, Per: time.Hour, Burst: 5},    // what a customer bears
		},
	} {
		if _, err := s.Client.DeclareQueue(ctx, q); err != nil {
			return err
		}
	}
	return s.scheduleNightly(ctx)
}

// Handle registers the handlers of all jobs.
func (s *Shop) Handle(w *worker.Worker) {
	worker.HandleResult(w, Charge, s.charge)
	worker.HandleResult(w, MakeInvoice, s.makeInvoice)
	worker.HandleResult(w, Ship, s.ship)
	worker.Handle(w, Confirm, s.confirm)
	worker.Handle(w, Apologise, s.apologise)
	worker.Handle(w, RemindCart, s.remindCart)
	worker.Handle(w, ReportSales, s.reportSales)
}

// Services are the systems outside of the shop. A call with a key that was used before
// returns the first answer: handlers can run twice.
type Services interface {
	Charge(ctx context.Context, key, card string, cents int) (receipt string, err error)
	Refund(ctx context.Context, receipt string) error
	PrintLabel(ctx context.Context, key, customer string) (parcel string, err error)
	OrderPickup(ctx context.Context, parcel string) error
	Mail(ctx context.Context, key, to, subject, body string) error
}

// Pretend implements [Services] without anybody outside.
type Pretend struct{ Log *slog.Logger }

// Charge declines the card "declined".
func (p Pretend) Charge(_ context.Context, key, card string, cents int) (string, error) {
	if card == "declined" {
		return "", gq.Permanent(errDeclined, "card_declined")
	}
	p.Log.Info("bank: charged", "cents", cents)
	return "receipt-" + key, nil
}

// Refund implements [Services].
func (p Pretend) Refund(_ context.Context, receipt string) error {
	p.Log.Info("bank: refunded", "receipt", receipt)
	return nil
}

// PrintLabel implements [Services].
func (p Pretend) PrintLabel(_ context.Context, key, _ string) (string, error) {
	return "parcel-" + key, nil
}

// OrderPickup implements [Services].
func (p Pretend) OrderPickup(_ context.Context, parcel string) error {
	p.Log.Info("carrier: pickup ordered", "parcel", parcel)
	return nil
}

// Mail implements [Services].
func (p Pretend) Mail(_ context.Context, _, to, subject, body string) error {
	p.Log.Info("mail", "to", to, "subject", subject, "body", body)
	return nil
}
