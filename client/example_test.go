package client_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/client"
	"github.com/gopherqueue/gq/engine"
	"github.com/gopherqueue/gq/internal/faces/native"
	"github.com/gopherqueue/gq/store/local"
	"github.com/gopherqueue/gq/worker"
)

// server starts the equivalent of gq serve on an in-memory store.
func server() (address string, stop func()) {
	s, err := local.OpenMemory(local.Options{})
	if err != nil {
		panic(err)
	}
	e, err := engine.New(s, engine.Options{})
	if err != nil {
		panic(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	g := native.NewGRPC(e, native.GRPCOptions{})
	go func() { _ = g.Serve(listener) }()
	return listener.Addr().String(), func() {
		g.Drain()
		g.GracefulStop()
		_ = s.Close()
	}
}

func Example() {
	address, stop := server()
	defer stop()
	c, err := client.New(address, client.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()

	id, err := c.Enqueue(ctx, gq.Spec{Type: "greet", Payload: gq.Payload{Data: []byte(`{"name":"gopher"}`)}})
	if err != nil {
		log.Fatal(err)
	}

	// A client is all that a worker needs.
	type greeting struct{ Name string }
	w := worker.New(c, worker.Config{})
	worker.Handle(w, gq.NewKind[greeting, gq.None]("greet"), func(_ context.Context, job *worker.Job[greeting]) error {
		return job.SetResult("hello, " + job.Args.Name)
	})
	ended := make(chan error)
	go func() { ended <- w.Run(ctx) }()

	job, err := c.Wait(ctx, id)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(job.State.Status, string(job.Result))
	cancel()
	fmt.Println(<-ended)
	// Output:
	// COMPLETED "hello, gopher"
	// <nil>
}

// With an idempotency key, a submission can be repeated until it succeeds.
func ExampleClient_Submit() {
	address, stop := server()
	defer stop()
	c, err := client.New(address, client.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	spec := gq.Spec{Type: "invoice.send", Key: gq.IdempotencyKey{Name: "invoice-4711"}}
	first, err := c.Submit(context.Background(), spec)
	if err != nil {
		log.Fatal(err)
	}
	second, err := c.Submit(context.Background(), spec)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(second.Existing, second.ID() == first.ID())
	// Output: true true
}

// Errors are those of the queue itself.
func ExampleClient_Complete() {
	address, stop := server()
	defer stop()
	c, err := client.New(address, client.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	_, err = c.Complete(context.Background(), gq.LeaseRef{ID: "long gone"}, nil)
	fmt.Println(errors.Is(err, gq.ErrStaleLease))
	// Output: true
}
