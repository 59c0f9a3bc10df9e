package client_test

import (
	"bytes"
	"context"
	"log/slog"
	"net"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/test/bufconn"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/client"
	"github.com/gopherqueue/gq/engine"
	"github.com/gopherqueue/gq/internal/access"
	"github.com/gopherqueue/gq/internal/faces/native"
	"github.com/gopherqueue/gq/internal/feed"
	"github.com/gopherqueue/gq/internal/testing/leaktest"
	"github.com/gopherqueue/gq/store"
	"github.com/gopherqueue/gq/store/local"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// fixture is a server on an in-memory store, with a client.
type fixture struct {
	testing.TB
	*client.Client
	engine  *engine.Engine
	native  engine.API // what the server serves; the engine unless a test replaces it
	options native.GRPCOptions
	client  client.Options
	limits  gq.Limits
	log     *book
	events  bool // serve events too

	mu       sync.Mutex
	server   *native.GRPC
	listener *bufconn.Listener
	serving  chan struct{}
	conns    []net.Conn // of the client; guarded by mu
	down     bool       // the server cannot be reached; guarded by mu
}

// serve starts everything. Tests pass functions that change the fixture first.
func serve(t testing.TB, change ...func(*fixture)) *fixture {
	t.Helper()
	f := &fixture{TB: t, log: &book{}}
	for _, c := range change {
		c(f)
	}
	s, err := local.OpenMemory(local.Options{Config: store.Config{Limits: f.limits}})
	if err != nil {
		t.Fatal(err)
	}
	f.serveOn(s)
	return f
}

func (f *fixture) serveOn(s store.Store) {
	f.Helper()
	e, err := engine.New(s, engine.Options{})
	if err != nil {
		f.Fatal(err)
	}
	f.engine = e
	if f.native == nil {
		f.native = e
	}
	if f.events {
		f.serveEvents(e, s)
	}
	if f.options.Log == nil {
		f.options.Log = slog.New(slog.NewJSONHandler(f.log, nil))
	}
	f.options.Limits = f.limits
	if f.client.RetryFor == 0 {
		f.client.RetryFor = 2 * time.Minute // long enough for a busy machine
	}
	f.start()
	f.client.Dial = append(f.client.Dial, grpc.WithContextDialer(f.dial))
	c, err := client.New("passthrough:///127.0.0.1:1", f.client)
	if err != nil {
		f.Fatal(err)
	}
	f.Client = c
	f.Cleanup(func() {
		if err := c.Close(); err != nil {
			f.Error(err)
		}
		f.stop()
		if err := s.Close(); err != nil {
			f.Error(err)
		}
	})
}

// serveEvents makes the server serve events, to everyone.
func (f *fixture) serveEvents(e *engine.Engine, s store.Store) {
	f.Helper()
	ring, err := access.NewKeyring(s, "")
	if err != nil {
		f.Fatal(err)
	}
	gate, guard, hub := access.NewGate(ring, false, nil), access.NewGuard(e), feed.New(e)
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- hub.Run(ctx) }()
	f.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			f.Error(err)
		}
	})
	f.native, f.options.Feed = guard, feed.NewFeed(hub, guard)
	f.options.Unary = append(f.options.Unary, gate.Unary)
	f.options.Stream = append(f.options.Stream, gate.Stream)
}

// start starts a server.
func (f *fixture) start() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.listener, f.server, f.serving = bufconn.Listen(1<<20), native.NewGRPC(f.native, f.options), make(chan struct{})
	server, listener, serving := f.server, f.listener, f.serving
	go func() {
		defer close(serving)
		if err := server.Serve(listener); err != nil {
			f.Errorf("serve: %v", err)
		}
	}()
}

// stop stops the server gracefully.
func (f *fixture) stop() {
	f.server.Drain()
	f.server.GracefulStop()
	<-f.serving
}

// kill stops the server at once.
func (f *fixture) kill() {
	f.server.Stop()
	<-f.serving
}

func (f *fixture) dial(ctx context.Context, _ string) (net.Conn, error) {
	f.mu.Lock()
	listener, down := f.listener, f.down
	f.mu.Unlock()
	if down {
		return nil, net.ErrClosed
	}
	conn, err := listener.DialContext(ctx)
	if err == nil {
		f.mu.Lock()
		f.conns = append(f.conns, conn)
		f.mu.Unlock()
	}
	return conn, err
}

// cut breaks the connections of the client; it cannot reconnect until mend.
func (f *fixture) cut() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.down = true
	for _, c := range f.conns {
		_ = c.Close()
	}
	f.conns = nil
}

func (f *fixture) mend() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.down = false
}

// must fails the test if there was an error.
func must[T any](v T, err error) func(t testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

// job submits a job of type "work".
func (f *fixture) job(change ...func(*gq.Spec)) gq.JobID {
	f.Helper()
	s := gq.Spec{Type: "work", Payload: gq.Payload{Data: []byte(`{"a":1}`)}}
	for _, c := range change {
		c(&s)
	}
	return must(f.Enqueue(f.Context(), s))(f.TB)
}

// claim claims one job.
func (f *fixture) claim() gq.Job {
	f.Helper()
	jobs := must(f.Claim(f.Context(), gq.ClaimRequest{Worker: "w", Wait: time.Minute, N: 1}))(f.TB)
	if len(jobs) != 1 {
		f.Fatalf("claimed %d jobs", len(jobs))
	}
	return jobs[0]
}

// book keeps log output.
type book struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (b *book) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *book) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}
