package client_test

import (
	"context"
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/client"
	"github.com/gopherqueue/gq/engine"
	"github.com/gopherqueue/gq/internal/faces/native"
	"github.com/gopherqueue/gq/store/local"
)

// A server that falls silent without closing its connections, as a machine without power or a
// broken network does, is noticed early enough for a worker to keep leases of 30 seconds
// through another server. A call that was under way is repeated there.
func TestSilentServer(t *testing.T) {
	t.Parallel()
	store, err := local.OpenMemory(local.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close() //nolint:errcheck // it is in memory
	e, err := engine.New(store, engine.Options{})
	if err != nil {
		t.Fatal(err)
	}
	listen := func() net.Listener {
		l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	serving := listen()
	server := native.NewGRPC(e, native.GRPCOptions{})
	var running sync.WaitGroup
	running.Go(func() { _ = server.Serve(serving) })
	defer running.Wait()
	defer server.Stop()
	wire := &silentWire{Listener: listen(), to: serving.Addr().String()}
	running.Go(func() { wire.serve(&running) })
	defer wire.close()

	c, err := client.New(wire.Addr().String()+","+serving.Addr().String(), client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close() //nolint:errcheck // never fails
	if _, err := c.Queues(t.Context()); err != nil {
		t.Fatal(err)
	}
	if wire.used() == 0 {
		t.Fatal("the client does not use the first server")
	}
	wire.silence()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	if _, err := c.Submit(ctx, gq.Spec{Type: "t"}); err != nil {
		t.Errorf("submit through the other server: %v", err)
	}
	if page, err := e.List(t.Context(), gq.Query{}); err != nil || len(page.Jobs) != 1 {
		t.Errorf("%d jobs, %v", len(page.Jobs), err)
	}
}

// silentWire forwards connections until it falls silent. Then it keeps them open and moves no bytes, and
// accepts no new ones.
type silentWire struct {
	net.Listener
	to string

	mu     sync.Mutex
	silent bool       // guarded by mu
	conns  []net.Conn // guarded by mu
}

func (w *silentWire) serve(running *sync.WaitGroup) {
	for {
		in, err := w.Accept()
		if err != nil {
			return
		}
		out, err := (&net.Dialer{}).DialContext(context.Background(), "tcp", w.to)
		if err != nil {
			_ = in.Close()
			continue
		}
		w.mu.Lock()
		w.conns = append(w.conns, in, out)
		w.mu.Unlock()
		running.Go(func() { _, _ = io.Copy(w.on(out), in) })
		running.Go(func() { _, _ = io.Copy(w.on(in), out) })
	}
}

// on returns a writer that drops everything after silence.
func (w *silentWire) on(to io.Writer) io.Writer { return silentWriter{w, to} }

type silentWriter struct {
	wire *silentWire
	to   io.Writer
}

func (s silentWriter) Write(p []byte) (int, error) {
	s.wire.mu.Lock()
	defer s.wire.mu.Unlock()
	if s.wire.silent {
		return len(p), nil
	}
	return s.to.Write(p)
}

func (w *silentWire) used() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.conns)
}

func (w *silentWire) silence() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.silent = true
	_ = w.Listener.Close()
}

func (w *silentWire) close() {
	w.mu.Lock()
	defer w.mu.Unlock()
	_ = w.Listener.Close()
	for _, c := range w.conns {
		_ = c.Close()
	}
}
