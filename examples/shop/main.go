// Shop is a small web shop on GopherQueue: orders and their jobs in one transaction, a workflow
// for each order, limits per customer, mails, invoices and a nightly report. README.md shows how
// to run it and what to read first.
package main

import (
	"context"
	"database/sql"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib" // the database/sql driver "pgx"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/dashboard"
	_ "github.com/gopherqueue/gq/driver/file"     // memory:
	_ "github.com/gopherqueue/gq/driver/postgres" // postgres://
	"github.com/gopherqueue/gq/worker"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Getenv("DATABASE_URL"), os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "shop:", err)
		os.Exit(1)
	}
}

// run serves the shop until ctx ends. Without a database it keeps everything in memory.
func run(ctx context.Context, args []string, databaseURL string, out io.Writer) error {
	flags := flag.NewFlagSet("shop", flag.ContinueOnError)
	addr := flags.String("addr", "localhost:8080", "address to serve")
	if err := flags.Parse(args); err != nil {
		return err
	}
	log := slog.New(slog.NewTextHandler(out, nil))

	queueURL := "memory:"
	if databaseURL != "" {
		queueURL = databaseURL
	}
	client, err := gq.Open(ctx, queueURL, gq.Log(log))
	if err != nil {
		return err
	}
	defer client.Close()

	var db Database = NewMemory(client, time.Now)
	if databaseURL != "" {
		tables, err := sql.Open("pgx", databaseURL)
		if err != nil {
			return err
		}
		defer tables.Close()
		if db, err = NewPostgres(ctx, client, tables); err != nil {
			return err
		}
	}

	shop := &Shop{Client: client, DB: db, Services: Pretend{log}}
	if err := shop.Configure(ctx); err != nil {
		return err
	}
	work := worker.New(client, worker.Config{Slots: 20, Logger: log})
	shop.Handle(work)
	defer work.Start(ctx).Stop()

	listener, err := net.Listen("tcp", *addr)
	if err != nil {
		return err
	}
	// Who reaches the dashboard may do everything. A real shop puts its own sign-in in front of it.
	board, err := dashboard.New(client, dashboard.Options{Prefix: "/queue", Log: log})
	if err != nil {
		return err
	}
	defer board.Close()
	web := http.NewServeMux()
	web.Handle("/", shop.Web())
	web.Handle("/queue/", board)

	log.Info("open", "url", "http://"+listener.Addr().String(), "postgres", databaseURL != "")
	return serve(ctx, listener, web)
}

// serve answers requests until ctx ends.
func serve(ctx context.Context, listener net.Listener, handler http.Handler) error {
	server := &http.Server{Handler: handler, ReadHeaderTimeout: 10 * time.Second}
	stopped := make(chan error, 1)
	defer context.AfterFunc(ctx, func() {
		last, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
		defer cancel()
		stopped <- server.Shutdown(last)
	})()
	if err := server.Serve(listener); err != http.ErrServerClosed {
		return err
	}
	return <-stopped
}
