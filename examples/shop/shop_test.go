package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/gqtest"
	"github.com/gopherqueue/gq/worker"
)

// world is a shop in virtual time, and what it did to the world outside.
type world struct {
	*gqtest.Queue
	Pretend
	shop *Shop
	web  http.Handler

	charged, refunded, labels []string
	mails, reports            []string     // to customers and to the owner
	pickup                    func() error // called by OrderPickup
}

func newWorld(t *testing.T) *world {
	t.Helper()
	q := gqtest.New(t)
	quiet := slog.New(slog.DiscardHandler)
	w := &world{Queue: q, Pretend: Pretend{quiet}, pickup: func() error { return nil }}
	w.shop = &Shop{Client: q.Client, DB: NewMemory(q.Client, q.Now), Services: w}
	if err := w.shop.Configure(t.Context()); err != nil {
		t.Fatal(err)
	}
	work := worker.New(q, worker.Config{Logger: quiet})
	w.shop.Handle(work)
	q.AddWorker(work)
	w.web = w.shop.Web()
	return w
}

func (w *world) Charge(ctx context.Context, key, card string, cents int) (string, error) {
	receipt, err := w.Pretend.Charge(ctx, key, card, cents)
	if err == nil {
		w.charged = append(w.charged, receipt)
	}
	return receipt, err
}

func (w *world) Refund(_ context.Context, receipt string) error {
	w.refunded = append(w.refunded, receipt)
	return nil
}

func (w *world) PrintLabel(ctx context.Context, key, customer string) (string, error) {
	w.labels = append(w.labels, key)
	return w.Pretend.PrintLabel(ctx, key, customer)
}

func (w *world) OrderPickup(context.Context, string) error { return w.pickup() }

func (w *world) Mail(_ context.Context, _, to, subject, body string) error {
	if to == owner {
		w.reports = append(w.reports, subject+": "+body)
	} else {
		w.mails = append(w.mails, fmt.Sprintf("%s: %s: %s", to, subject, body))
	}
	return nil
}

// call sends a request to the shop and returns status and body of the answer.
func (w *world) call(t *testing.T, method, path, body string) (int, string) {
	t.Helper()
	answer := httptest.NewRecorder()
	w.web.ServeHTTP(answer, httptest.NewRequestWithContext(t.Context(), method, path, strings.NewReader(body)))
	return answer.Code, strings.TrimSpace(answer.Body.String())
}

func (w *world) order(t *testing.T, id, customer, card string, cents int) {
	t.Helper()
	body := fmt.Sprintf(`{"id": %q, "customer": %q, "card": %q, "cents": %d}`, id, customer, card, cents)
	if status, answer := w.call(t, "POST", "/orders", body); status != http.StatusOK {
		t.Fatalf("order %s: %d %s", id, status, answer)
	}
}

func (w *world) want(t *testing.T, order string, s State, mails ...string) {
	t.Helper()
	o, err := w.shop.DB.Order(t.Context(), order)
	if err != nil || o.State != s || !slices.Equal(w.mails, mails) {
		t.Errorf("order %s is %s (%v), want %s; mails:\n%s\nwant:\n%s\n%s",
			order, o.State, err, s, strings.Join(w.mails, "\n"), strings.Join(mails, "\n"), w.Graph())
	}
}

const sorry = "ada@x: Your order a-1: We are sorry: we cannot deliver it. You have paid nothing."

func TestOrder(t *testing.T) {
	w := newWorld(t)
	w.order(t, "a-1", "ada@x", "4711", 4200)
	w.order(t, "a-1", "ada@x", "4711", 4200) // the browser has sent it twice
	w.want(t, "a-1", Placed)
	w.RunUntilIdle()
	w.want(t, "a-1", Shipped, "ada@x: Your order a-1: parcel-a-1 is on its way, invoice 1: 42.00 EUR")
	if !slices.Equal(w.charged, []string{"receipt-a-1"}) {
		t.Errorf("charged %q", w.charged)
	}
	if _, picture := w.call(t, "GET", "/orders/a-1/workflow", ""); !strings.HasPrefix(picture, "charge order.charge COMPLETED\n") {
		t.Errorf("the workflow:\n%s", picture)
	}
}

// A large order waits until somebody approves it.
func TestApproval(t *testing.T) {
	w := newWorld(t)
	w.order(t, "a-1", "ada@x", "4711", largeOrder)
	w.Advance(23 * time.Hour)
	w.want(t, "a-1", Placed)
	if status, answer := w.call(t, "POST", "/orders/a-1/approval", `{"by": "bob"}`); status != http.StatusOK {
		t.Fatal(status, answer)
	}
	w.RunUntilIdle()
	w.want(t, "a-1", Shipped, "ada@x: Your order a-1: parcel-a-1 is on its way, invoice 1: 1000.00 EUR")
	charge := gqtest.Submitted(w.Queue, Charge)[0]
	if receipt, err := Charge.Wait(t.Context(), w.Client, charge.State.ID); err != nil || receipt.ApprovedBy != "bob" {
		t.Errorf("%+v, %v", receipt, err)
	}
	if status, _ := w.call(t, "POST", "/orders/a-1/approval", `{"by": "eve"}`); status != http.StatusConflict {
		t.Errorf("another approval: %d", status)
	}
}

func TestNoApproval(t *testing.T) {
	w := newWorld(t)
	w.order(t, "a-1", "ada@x", "4711", largeOrder)
	w.Advance(approvalTime)
	w.want(t, "a-1", Failed, sorry)
	if len(w.charged)+len(w.refunded) > 0 {
		t.Errorf("charged %q, refunded %q", w.charged, w.refunded)
	}
}

func TestDeclinedCard(t *testing.T) {
	w := newWorld(t)
	w.order(t, "a-1", "ada@x", "declined", 4200)
	w.RunUntilIdle()
	w.want(t, "a-1", Failed, sorry)
}

// The bank is down for an hour.
func TestOutage(t *testing.T) {
	w := newWorld(t)
	w.FailNext(Charge, 8, errors.New("no route to host"))
	w.order(t, "a-1", "ada@x", "4711", 4200)
	w.Advance(time.Hour)
	w.want(t, "a-1", Shipped, "ada@x: Your order a-1: parcel-a-1 is on its way, invoice 1: 42.00 EUR")
}

// The carrier fails for good after the charge: the customer gets the money back, once.
func TestRefund(t *testing.T) {
	w := newWorld(t)
	w.pickup = func() error { return gq.Permanent(errors.New("we do not go there"), "no_such_place") }
	w.order(t, "a-1", "ada@x", "4711", 4200)
	w.RunUntilIdle()
	w.want(t, "a-1", Failed, sorry)
	if !slices.Equal(w.refunded, w.charged) || len(w.charged) != 1 {
		t.Errorf("charged %q, refunded %q", w.charged, w.refunded)
	}
}

// The second step of a job fails, and the next worker loses its lease in it. The first step
// runs once.
func TestSteps(t *testing.T) {
	w := newWorld(t)
	calls := 0
	w.pickup = func() error {
		calls++
		switch calls {
		case 1:
			return errors.New("the carrier's line is busy")
		case 2:
			w.LoseLease(gqtest.Submitted(w.Queue, Ship)[0].State.ID)
		}
		return nil
	}
	w.order(t, "a-1", "ada@x", "4711", 4200)
	w.Advance(time.Hour)
	w.want(t, "a-1", Shipped, "ada@x: Your order a-1: parcel-a-1 is on its way, invoice 1: 42.00 EUR")
	if calls != 3 || len(w.labels) != 1 {
		t.Errorf("%d calls for a pickup, labels %q", calls, w.labels)
	}
}

// At the bank each customer has one charge at a time, however many orders.
func TestLimitPerCustomer(t *testing.T) {
	w := newWorld(t)
	for i := range 5 {
		w.order(t, fmt.Sprint("a-", i), "ada@x", "4711", 4200)
	}
	w.order(t, "b-0", "bob@x", "4712", 4200)
	claimed, err := w.Claim(t.Context(), gq.ClaimRequest{Worker: "w", Queues: []string{"payments"}, N: 10})
	if err != nil {
		t.Fatal(err)
	}
	var customers []string
	for _, j := range claimed {
		customers = append(customers, j.Spec.LimitKey)
	}
	if !slices.Equal(customers, []string{"ada@x", "bob@x"}) {
		t.Errorf("charges at once: %q", customers)
	}
}

// A customer gets five mails at once, and then one every six minutes. Others do not wait for that.
func TestRatePerCustomer(t *testing.T) {
	w := newWorld(t)
	for i := range 7 {
		w.order(t, fmt.Sprint("a-", i), "ada@x", "4711", 4200)
	}
	w.order(t, "b-0", "bob@x", "4712", 4200)
	to := func(customer string) (n int) {
		for _, m := range w.mails {
			if strings.HasPrefix(m, customer) {
				n++
			}
		}
		return n
	}
	for _, want := range []int{5, 6, 7, 7} {
		w.RunUntilIdle()
		if to("ada@x") != want || to("bob@x") != 1 {
			t.Errorf("at %s: %d mails, want %d; %d to the other customer", w.Now().Format(time.TimeOnly), to("ada@x"), want, to("bob@x"))
		}
		w.Advance(6 * time.Minute)
	}
}

// The reminder comes an hour after the customer last touched the cart.
func TestCartReminder(t *testing.T) {
	w := newWorld(t)
	touch := func() {
		t.Helper()
		if status, answer := w.call(t, "POST", "/carts", `{"customer": "ada@x"}`); status != http.StatusOK {
			t.Fatal(status, answer)
		}
	}
	touch()
	w.Advance(50 * time.Minute)
	touch()
	w.Advance(59 * time.Minute)
	if len(w.mails) > 0 {
		t.Errorf("too early: %q", w.mails)
	}
	w.Advance(time.Minute)
	if !slices.Equal(w.mails, []string{"ada@x: Your cart: You have left something in your cart."}) {
		t.Errorf("mails %q", w.mails)
	}
}

// The owner gets a report each night about the day before. Tests begin on 1 January at 00:00 UTC,
// which is 01:00 in the shop's time zone.
func TestNightlyReport(t *testing.T) {
	w := newWorld(t)
	w.order(t, "a-1", "ada@x", "4711", 4200)
	w.order(t, "a-2", "ada@x", "declined", 100)
	w.RunUntilIdle()
	w.AdvanceTo(time.Date(2026, 1, 2, 1, 29, 59, 0, time.UTC))
	if !slices.Equal(w.reports, []string{"Sales of 2025-12-31: 0 orders, 0.00 EUR"}) {
		t.Errorf("reports %q", w.reports)
	}
	w.Advance(time.Second)
	if len(w.reports) != 2 || w.reports[1] != "Sales of 2026-01-01: 1 orders, 42.00 EUR" {
		t.Errorf("reports %q", w.reports)
	}
}

// What an operator changed survives a restart of the shop.
func TestRestart(t *testing.T) {
	w := newWorld(t)
	if _, err := w.PauseSchedule(t.Context(), "nightly-sales"); err != nil {
		t.Fatal(err)
	}
	if _, err := w.ChangeQueue(t.Context(), "payments", func(q *gq.Queue) { q.MaxRunning = 1 }); err != nil {
		t.Fatal(err)
	}
	if err := w.shop.Configure(t.Context()); err != nil {
		t.Fatal(err)
	}
	w.Advance(48 * time.Hour)
	if len(w.reports) > 0 {
		t.Errorf("a paused schedule reported %q", w.reports)
	}
	if q, err := w.Client.Queue(t.Context(), "payments"); err != nil || q.MaxRunning != 1 || q.KeyLimit != 1 {
		t.Errorf("%+v, %v", q, err)
	}
}

func TestBadRequests(t *testing.T) {
	w := newWorld(t)
	w.order(t, "small", "ada@x", "4711", 4200)
	for _, test := range []struct {
		method, path, body string
		want               int
	}{
		{"POST", "/orders", `{"id": "a-1"}`, http.StatusBadRequest},
		{"POST", "/orders", `{`, http.StatusBadRequest},
		{"GET", "/orders/nobody", "", http.StatusNotFound},
		{"GET", "/orders/nobody/workflow", "", http.StatusNotFound},
		{"GET", "/orders/small?wait=long", "", http.StatusBadRequest},
		{"POST", "/orders/small/approval", `{"by": "bob"}`, http.StatusNotFound}, // it waits for none
		{"POST", "/orders/nobody/approval", `{"by": "bob"}`, http.StatusNotFound},
	} {
		if got, answer := w.call(t, test.method, test.path, test.body); got != test.want {
			t.Errorf("%s %s %s: %d, want %d: %s", test.method, test.path, test.body, got, test.want, answer)
		}
	}
}
