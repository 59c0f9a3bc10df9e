package main

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/internal/testing/cmdtest"
	"github.com/gopherqueue/gq/internal/testing/pgtest"
	"github.com/gopherqueue/gq/worker"
)

func TestMain(m *testing.M) {
	defer cmdtest.Remove()
	pgtest.Main(m)
}

// onPostgres opens the shop on an empty database, without workers.
func onPostgres(t *testing.T) (*Shop, *sql.DB) {
	t.Helper()
	url := pgtest.Database(t)
	client, err := gq.Open(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close() })
	tables, err := sql.Open("pgx", url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { tables.Close() })
	db, err := NewPostgres(t.Context(), client, tables)
	if err != nil {
		t.Fatal(err)
	}
	shop := &Shop{Client: client, DB: db, Services: Pretend{slog.New(slog.DiscardHandler)}}
	if err := shop.Configure(t.Context()); err != nil {
		t.Fatal(err)
	}
	return shop, tables
}

// A shop on PostgreSQL does what the shop in virtual time does.
func TestPostgres(t *testing.T) {
	shop, _ := onPostgres(t)
	work := worker.New(shop.Client, worker.Config{Logger: slog.New(slog.DiscardHandler)})
	shop.Handle(work)
	defer work.Start(t.Context()).Stop()
	server := httptest.NewServer(shop.Web())
	defer server.Close()

	post := func(path, body string) orderView { return request(t, http.MethodPost, server.URL+path, body) }
	get := func(path string) orderView { return request(t, http.MethodGet, server.URL+path, "") }
	began := time.Now()
	small := post("/orders", `{"id": "a-1", "customer": "ada@x", "card": "4711", "cents": 4200}`)
	if again := post("/orders", `{"id": "a-1", "customer": "ada@x", "card": "4711", "cents": 4200}`); again.Workflow != small.Workflow {
		t.Errorf("the same order again has workflow %s, the first %s", again.Workflow, small.Workflow)
	}
	post("/orders", `{"id": "a-2", "customer": "ada@x", "card": "declined", "cents": 4200}`)
	post("/orders", `{"id": "a-3", "customer": "ada@x", "card": "4711", "cents": 100000}`)
	post("/orders/a-3/approval", `{"by": "bob"}`)
	for id, want := range map[string]State{"a-1": Shipped, "a-2": Failed, "a-3": Shipped} {
		if got := get("/orders/" + id + "?wait=1m"); got.State != want {
			t.Errorf("order %s is %s, want %s", id, got.State, want)
		}
	}
	for range 2 {
		if n, err := shop.DB.InvoiceNumber(t.Context(), "a-1"); err != nil || n < 1 || n > 2 {
			t.Errorf("invoice %d, %v", n, err)
		}
	}
	orders, cents, err := shop.DB.Sales(t.Context(), began.Add(-time.Minute), began.Add(time.Hour))
	if err != nil || orders != 2 || cents != 104200 {
		t.Errorf("%d orders, %d cents, %v", orders, cents, err)
	}
}

func request(t *testing.T, method, url, body string) (v orderView) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	if err := json.NewDecoder(answer.Body).Decode(&v); err != nil || answer.StatusCode != http.StatusOK {
		t.Fatalf("%s %s: %s, %v", method, url, answer.Status, err)
	}
	return v
}

// An order that the database refuses has no workflow, and a workflow that the queue refuses has
// no order.
func TestOneTransaction(t *testing.T) {
	shop, tables := onPostgres(t)
	o := Order{ID: "a-1", Customer: "ada@x", Card: "4711", Cents: -1}
	if err := shop.DB.Place(t.Context(), o, orderWorkflow(o)); err == nil {
		t.Error("the database accepted a negative price")
	}
	o.Cents = 4200
	var invalid *gq.InvalidError
	if err := shop.DB.Place(t.Context(), o, gq.NewWorkflow("empty")); !errors.As(err, &invalid) {
		t.Errorf("the queue accepted an empty workflow: %v", err)
	}
	count := func() (orders, workflows int) {
		t.Helper()
		if err := tables.QueryRowContext(t.Context(), "SELECT count(*) FROM orders").Scan(&orders); err != nil {
			t.Fatal(err)
		}
		page, err := shop.Client.Workflows(t.Context(), gq.WorkflowQuery{})
		if err != nil {
			t.Fatal(err)
		}
		return orders, len(page.Workflows)
	}
	if orders, workflows := count(); orders != 0 || workflows != 0 {
		t.Errorf("%d orders and %d workflows after two refused ones", orders, workflows)
	}
	for range 2 {
		if err := shop.DB.Place(t.Context(), o, orderWorkflow(o)); err != nil && !errors.Is(err, errKnownOrder) {
			t.Fatal(err)
		}
	}
	placed, err := shop.DB.Order(t.Context(), "a-1")
	if err != nil {
		t.Fatal(err)
	}
	if w, err := shop.Client.Workflow(t.Context(), placed.Workflow); err != nil || w.Name != "order a-1" {
		t.Errorf("%+v, %v", w, err)
	}
	if orders, workflows := count(); orders != 1 || workflows != 1 {
		t.Errorf("%d orders and %d workflows, want one of each", orders, workflows)
	}
}

// stopper is an output that calls stop when it has seen a text.
type stopper struct {
	bytes.Buffer
	at   string
	stop func()
}

func (s *stopper) Write(p []byte) (int, error) { // the logger writes one line at a time
	if strings.Contains(string(p), s.at) {
		s.stop()
	}
	return s.Buffer.Write(p)
}

// The program ends when it is told to, with and without a database.
func TestRun(t *testing.T) {
	for _, url := range []string{"", pgtest.Database(t)} {
		ctx, stop := context.WithCancel(t.Context())
		out := &stopper{at: "msg=open", stop: stop}
		if err := run(ctx, []string{"-addr", "127.0.0.1:0"}, url, out); err != nil {
			t.Error(err)
		}
		if want := fmt.Sprintf("postgres=%t", url != ""); !strings.Contains(out.String(), want) {
			t.Errorf("it printed no %s:\n%s", want, out)
		}
	}
}
