package client_test

import (
	"context"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/client"
	"github.com/gopherqueue/gq/engine"
	"github.com/gopherqueue/gq/internal/errs"
	"github.com/gopherqueue/gq/internal/faces/native"
	"github.com/gopherqueue/gq/store/local"
)

// A client of several servers uses the first one that it reaches, and another when it
// loses that connection.
func TestSeveralAddresses(t *testing.T) {
	store, err := local.OpenMemory(local.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close() //nolint:errcheck // it is in memory
	e, err := engine.New(store, engine.Options{})
	if err != nil {
		t.Fatal(err)
	}
	var addrs []string
	var stops []func()
	for range 3 {
		listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		server := native.NewGRPC(e, native.GRPCOptions{})
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			_ = server.Serve(listener)
		}()
		addrs = append(addrs, listener.Addr().String())
		stops = append(stops, func() { server.Stop(); <-ended })
	}
	defer stops[2]()
	c, err := client.New(strings.Join(addrs, ", "), client.Options{RetryFor: 5 * time.Minute, Token: "gqt_local"})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close() //nolint:errcheck // never fails
	for i := range 3 {
		if _, err := c.Queues(context.Background()); err != nil {
			t.Errorf("with %d servers left: %v", 3-i, err)
		}
		if i < 2 {
			stops[i]()
		}
	}
}

// An invalid address is reported before anything is called.
func TestWrongAddress(t *testing.T) {
	for address, want := range map[string]string{
		"localhost":                         "is not HOST:PORT",
		"127.0.0.1:0":                       "is not between 1 and 65535",
		"127.0.0.1:99999":                   "is not between 1 and 65535",
		"127.0.0.1:1,":                      "is not HOST:PORT",
		"unix:/tmp/a,127.0.0.1:1":           "has a scheme",
		"https://queue.example.org":         "is an HTTP address",
		"127.0.0.1:1,queue.example.org:wat": `has the port "wat"`,
	} {
		_, err := client.New(address, client.Options{})
		if errs.KindOf(err) != gq.KindInvalid || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q in it", address, err, want)
		}
	}
	if _, err := client.New("127.0.0.1:1,queue.example.org:2", client.Options{Token: "gqt_x"}); errs.KindOf(err) != gq.KindInvalid {
		t.Errorf("a token would go in the clear to one of two servers: %v", err)
	}
}
