package main

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

func TestForeignHosts(t *testing.T) {
	for host, want := range map[string]bool{
		"127.0.0.1:8780": false, "127.0.0.1": false, "[::1]:8780": false, "::1": false, "localhost:8780": false, "LOCALHOST.": false,
		"gq.localhost": false, "10.0.0.7:80": false, "queue:8780": false, "": false,
		"evil.example": true, "evil.example:8780": true, "127.0.0.1.evil.example": true, "localhost.evil.example:8780": true,
	} {
		if foreign(host) != want {
			t.Errorf("%q is foreign: %v, want %v", host, !want, want)
		}
	}
}

// What is refused before a face has seen it has a request id all the same.
func TestAForeignHostIsRefused(t *testing.T) {
	r := httptest.NewRequestWithContext(context.WithValue(t.Context(), http.LocalAddrContextKey, &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)}), "GET", "http://evil.example/v1/stats", nil)
	w := httptest.NewRecorder()
	ownHost(false, http.NotFoundHandler()).ServeHTTP(w, r)
	id := w.Header().Get("X-Request-Id")
	if w.Code != http.StatusForbidden || id == "" || !strings.Contains(w.Body.String(), `"request_id":"`+id+`"`) {
		t.Errorf("%d %v %s", w.Code, w.Header(), w.Body)
	}
}
