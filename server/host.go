package server

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/internal/access"
	"github.com/gopherqueue/gq/internal/httpx"
	"github.com/gopherqueue/gq/internal/wire"
)

// ownHost protects a server on loopback against DNS rebinding: it rejects requests that
// name a foreign host, unless a token is required and they have a valid one. A web site
// whose name was made to resolve to this machine could send such requests: the browser
// treats them as same-site and lets the page set any header. IP addresses, localhost and
// other names without a dot are safe, because nobody can register them.
type ownHost struct {
	insecure bool // accept everyone, under any host name
	gate     *access.Gate
	log      *slog.Logger
}

const foreignHost = "this server is not %.200q: call it by its IP address or as localhost, or with a valid token where tokens are required"

// http puts the check in front of an HTTP handler.
func (o ownHost) http(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		at, _ := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
		if r.TLS == nil && o.refuses(r.Context(), at, r.Host, r.URL.Path, r.Header.Values("Authorization")) {
			httpx.Refuse(o.log, w, r, wire.NewProblem(http.StatusForbidden, "foreign_host", fmt.Sprintf(foreignHost, r.Host)))
			return
		}
		next.ServeHTTP(w, r)
	})
}

// rpc checks the :authority of a gRPC call. Today browsers cannot make such calls.
func (o ownHost) rpc(ctx context.Context) error {
	p, ok := peer.FromContext(ctx)
	if !ok {
		return nil
	}
	if _, encrypted := p.AuthInfo.(credentials.TLSInfo); encrypted {
		return nil
	}
	for _, host := range metadata.ValueFromIncomingContext(ctx, ":authority") {
		if o.refuses(ctx, p.LocalAddr, host, "", metadata.ValueFromIncomingContext(ctx, "authorization")) {
			return fmt.Errorf(foreignHost+": %w", host, gq.ErrDenied)
		}
	}
	return nil
}

func (o ownHost) unary(ctx context.Context, request any, _ *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (any, error) {
	if err := o.rpc(ctx); err != nil {
		return nil, err
	}
	return handle(ctx, request)
}

func (o ownHost) stream(server any, s grpc.ServerStream, _ *grpc.StreamServerInfo, handle grpc.StreamHandler) error {
	if err := o.rpc(s.Context()); err != nil {
		return err
	}
	return handle(server, s)
}

func (o ownHost) refuses(ctx context.Context, at net.Addr, host, path string, authorization []string) bool {
	local, ok := at.(*net.TCPAddr)
	return !o.insecure && ok && local.IP.IsLoopback() && httpx.ForeignHost(host) && !o.gate.Admits(ctx, path, authorization)
}

// closeAfterChunked closes the connection after a request with a chunked body. This
// prevents request smuggling through a proxy that trusts an additional Content-Length.
func closeAfterChunked(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if len(r.TransferEncoding) > 0 {
			w.Header().Set("Connection", "close")
		}
		next.ServeHTTP(w, r)
	})
}
