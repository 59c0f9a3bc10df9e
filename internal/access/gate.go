package access

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"

	"github.com/gopherqueue/gq"
)

// Gate authenticates callers over HTTP and gRPC and adds the identity to the context of
// the call.
type Gate struct {
	ring     *Keyring
	log      *slog.Logger
	tell     func(error) // learns of each refusal
	required atomic.Bool
	refused  atomic.Int64 // since the last log line
	logged   atomic.Int64 // time of that line in Unix nanoseconds
}

// NewGate creates a gate. If tokens are not required, everyone may do everything until
// the first token exists: from then on a token is always required.
func NewGate(k *Keyring, required bool, log *slog.Logger) *Gate {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	g := &Gate{ring: k, log: log, tell: func(error) {}}
	g.required.Store(required)
	return g
}

// OnRefused sets what learns of each refusal. Call it before the first call.
func (g *Gate) OnRefused(f func(error)) { g.tell = f }

// Required reports whether callers must present a token.
func (g *Gate) Required(ctx context.Context) bool {
	if g.required.Load() {
		return true
	}
	g.ring.refresh(ctx)
	if s := g.ring.known.Load(); s != nil && len(s.keys) > 0 {
		g.required.Store(true)
		return true
	}
	return false
}

// Identify adds the caller's identity to a context. authorization has the values of the
// Authorization header: there must be exactly one, with a bearer token.
func (g *Gate) Identify(ctx context.Context, authorization []string, from string) (context.Context, error) {
	return g.identify(ctx, authorization, from, trustFor)
}

// identify is Identify that relies on tokens read up to trust ago.
func (g *Gate) identify(ctx context.Context, authorization []string, from string, trust time.Duration) (context.Context, error) {
	if !g.Required(ctx) {
		return With(ctx, everyone), nil
	}
	return g.verify(ctx, authorization, trust, func() string { return from })
}

// verify is identify if a token is required. It calls from only for a rejected caller.
func (g *Gate) verify(ctx context.Context, authorization []string, trust time.Duration, from func() string) (context.Context, error) {
	text, ok := bearer(authorization)
	var i *Identity
	err := error(gq.ErrUnauthenticated)
	if ok {
		i, err = g.ring.verify(ctx, text, trust)
	}
	if err != nil {
		if errors.Is(err, gq.ErrUnauthenticated) {
			g.tell(err)
			g.note(ctx, text, from())
		}
		return nil, err
	}
	return With(ctx, i), nil
}

func bearer(authorization []string) (string, bool) {
	if len(authorization) != 1 || len(authorization[0]) > MaxTokenBytes+len("Bearer ") {
		return "", false
	}
	scheme, text, ok := strings.Cut(authorization[0], " ")
	return text, ok && strings.EqualFold(scheme, "Bearer")
}

// note logs rejections, at most one line a second. It logs only the id of a token.
func (g *Gate) note(ctx context.Context, text, from string) {
	g.refused.Add(1)
	now, last := time.Now().UnixNano(), g.logged.Load()
	if now-last < int64(time.Second) || !g.logged.CompareAndSwap(last, now) {
		return
	}
	id, _, ok := split(text)
	if !ok || strings.Trim(id, "abcdefghijklmnopqrstuvwxyz234567") != "" {
		id = ""
	}
	g.log.WarnContext(ctx, "callers without a valid token were refused",
		"event", "unauthenticated", "refused", g.refused.Swap(0), "caller", from, "token", id)
}

// Run keeps the tokens fresh enough to end streams in time, until the context ends.
func (g *Gate) Run(ctx context.Context) error {
	g.ring.Watch(ctx)
	return nil
}

// Admits reports whether a token is required and the Authorization header of a call to an HTTP
// path, or of a gRPC call if it is empty, has a valid one. It does not log and does not count
// against a rate.
func (g *Gate) Admits(ctx context.Context, path string, authorization []string) bool {
	text, ok := bearer(authorization)
	if !ok || !g.Required(ctx) {
		return false
	}
	_, err := g.ring.verify(ctx, text, trustAt(path))
	return err == nil
}

// openPaths need no token: they reveal nothing about jobs.
var openPaths = map[string]bool{
	"/healthz": true, "/readyz": true, "/docs": true, "/openapi.json": true,
	"/api/scheduler/openapi.json": true, "/api/matching/openapi.json": true,
}

// trustAt returns how old the tokens may be that the server relies on at a path. The page of metrics
// answers without the store, and operators need it most while the store is down.
func trustAt(path string) time.Duration {
	if path == "/metrics" {
		return trustOffline
	}
	return trustFor
}

// HTTP authenticates the caller of a request.
func (g *Gate) HTTP(r *http.Request) (context.Context, error) {
	if openPaths[r.URL.Path] {
		return With(r.Context(), probe), nil
	}
	ctx, err := g.identify(r.Context(), r.Header.Values("Authorization"), r.RemoteAddr, trustAt(r.URL.Path))
	if err != nil {
		return nil, err
	}
	return Through(ctx, Via{Face: "http", From: r.RemoteAddr}), nil
}

// openService is the prefix of gRPC methods that need no token.
const openService = "/grpc.health.v1.Health/"

func (g *Gate) rpc(ctx context.Context, method string) (context.Context, error) {
	if strings.HasPrefix(method, openService) {
		return With(ctx, probe), nil
	}
	if !g.Required(ctx) {
		return Through(With(ctx, everyone), Via{Face: "grpc"}), nil
	}
	ctx, err := g.verify(ctx, metadata.ValueFromIncomingContext(ctx, "authorization"), trustFor, func() string {
		if p, ok := peer.FromContext(ctx); ok {
			return p.Addr.String()
		}
		return ""
	})
	if err != nil {
		return nil, err
	}
	return Through(ctx, Via{Face: "grpc"}), nil
}

// Unary authenticates the caller of a unary call.
func (g *Gate) Unary(ctx context.Context, request any, info *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (any, error) {
	ctx, err := g.rpc(ctx, info.FullMethod)
	if err != nil {
		return nil, err
	}
	return handle(ctx, request)
}

// Stream authenticates the caller of a stream. The guard checks each request on it.
func (g *Gate) Stream(server any, s grpc.ServerStream, info *grpc.StreamServerInfo, handle grpc.StreamHandler) error {
	ctx, err := g.rpc(s.Context(), info.FullMethod)
	if err != nil {
		return err
	}
	return handle(server, &identified{s, ctx})
}

type identified struct {
	grpc.ServerStream
	ctx context.Context //nolint:containedctx // a stream has one
}

func (s *identified) Context() context.Context { return s.ctx }
