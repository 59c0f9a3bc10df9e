package main

import (
	"crypto/rand"
	"net"
	"net/http"
	"strings"

	"github.com/gopherqueue/gq/internal/wire"
)

// ownHost refuses requests to a server on loopback that name a foreign host and
// bring no token. A page of another site whose name was made to lead here would
// send such: to the browser it is the same site then. Numbers, localhost and other
// names without a dot are nobody's to lead anywhere.
func ownHost(insecure bool, next http.Handler) http.Handler {
	if insecure {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") == "" && r.TLS == nil && onLoopback(r) && foreign(r.Host) {
			p := wire.NewProblem(http.StatusForbidden, "foreign_host", "this server is not "+r.Host+": call it by its address or as localhost, or with a token")
			p.RequestID = nameRequest(w)
			w.Header().Set("Content-Type", p.ContentType(""))
			w.WriteHeader(p.Status)
			_ = wire.EncodeJSON(w, p) // the client has left
			return
		}
		next.ServeHTTP(w, r)
	})
}

// nameRequest gives a request an id that no face has seen.
func nameRequest(w http.ResponseWriter) string {
	id := rand.Text()
	w.Header().Set("X-Request-Id", id)
	return id
}

// oneEnd lets nothing follow a request whose body is sent in chunks. If it names a
// length besides, which net/http does not tell, a proxy in front may go by that:
// what it took for the body would be a request of somebody else's here.
func oneEnd(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if len(r.TransferEncoding) > 0 {
			w.Header().Set("Connection", "close")
		}
		next.ServeHTTP(w, r)
	})
}

func onLoopback(r *http.Request) bool {
	at, ok := r.Context().Value(http.LocalAddrContextKey).(*net.TCPAddr)
	return ok && at.IP.IsLoopback()
}

func foreign(host string) bool {
	name := host
	if h, _, err := net.SplitHostPort(host); err == nil {
		name = h
	}
	name = strings.TrimSuffix(strings.ToLower(strings.Trim(name, "[]")), ".")
	return strings.Contains(name, ".") && !strings.HasSuffix(name, ".localhost") && net.ParseIP(name) == nil
}
