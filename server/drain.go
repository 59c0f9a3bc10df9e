package server

import (
	"context"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"

	"github.com/gopherqueue/gq/store"
)

// stop stops the server without losing responses. Readiness turns false at once and waits
// end, but both listeners stay open until the calls in progress are done, and at least
// for the lag, so that load balancers can react. Then they close, and remaining calls get
// the rest of the drain time.
func (s *Server) stop(atOnce bool) {
	lag, drain := s.config.DrainLag, s.config.Drain
	if atOnce {
		lag, drain = 0, min(drain, time.Second)
	}
	limit, cancel := context.WithTimeout(context.Background(), lag+drain)
	defer cancel()
	for _, unready := range s.unready {
		unready()
	}
	earlier := s.calls.stopCounting()
	s.web.SetKeepAlivesEnabled(false)
	if lag > 0 {
		<-time.After(lag)
	}
	select {
	case <-earlier:
	case <-limit.Done():
	}

	calls := make(chan struct{})
	go func() {
		defer close(calls)
		s.grpc.GracefulStop()
	}()
	if err := s.web.Shutdown(limit); err != nil {
		s.log.Warn("HTTP calls did not finish in time", "drain_ms", drain.Milliseconds())
		_ = s.web.Close() // remaining calls are cut off
	}
	sockets := make(chan struct{})
	go func() {
		defer close(sockets)
		s.http.Wait()
	}()
	inTime(limit, sockets) // their clients may never close them
	if !inTime(limit, calls) {
		if s.calls.remote.Load() > 0 { // otherwise only idle connections are left open
			s.log.Warn("gRPC calls did not finish in time", "drain_ms", drain.Milliseconds())
		}
		s.grpc.Stop()
		<-calls
	}
}

// inTime waits for done and reports whether it closed before the context ended.
func inTime(limit context.Context, done <-chan struct{}) bool {
	select {
	case <-done:
		return true
	case <-limit.Done():
	}
	select {
	case <-done:
		return true
	default:
		return false
	}
}

// calls counts the calls in progress until the server stops. Later ones are served but
// not waited for: under load there is always one.
type calls struct {
	mu      sync.Mutex
	running int           // guarded by mu, as is drained
	drained chan struct{} // closed when none of the earlier ones is left; nil before stopCounting

	remote atomic.Int64 // all gRPC calls in progress
}

// begin counts a call; the caller runs end when it is over.
func (c *calls) begin() (end func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.drained != nil {
		return func() {}
	}
	c.running++
	return c.end
}

func (c *calls) end() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.running--; c.running == 0 && c.drained != nil {
		close(c.drained)
	}
}

// stopCounting stops counting new calls. The returned channel is closed when the earlier
// ones have ended.
func (c *calls) stopCounting() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.drained = make(chan struct{})
	if c.running == 0 {
		close(c.drained)
	}
	return c.drained
}

func (c *calls) http(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer c.begin()()
		next.ServeHTTP(w, r.WithContext(store.Together(r.Context())))
	})
}

func (c *calls) overGRPC() (end func()) {
	c.remote.Add(1)
	return func() { c.remote.Add(-1) }
}

func (c *calls) grpc() []grpc.ServerOption {
	return []grpc.ServerOption{
		grpc.ChainUnaryInterceptor(func(ctx context.Context, r any, _ *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
			defer c.begin()()
			defer c.overGRPC()()
			return next(store.Together(ctx), r)
		}),
		grpc.ChainStreamInterceptor(func(srv any, stream grpc.ServerStream, _ *grpc.StreamServerInfo, next grpc.StreamHandler) error {
			defer c.begin()()
			defer c.overGRPC()()
			return next(srv, stream)
		}),
	}
}
