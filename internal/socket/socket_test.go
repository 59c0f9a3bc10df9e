package socket_test

import (
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/coder/websocket"

	"github.com/gopherqueue/gq/internal/socket"
	"github.com/gopherqueue/gq/internal/wire"
)

func TestAccept(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		conn, err := socket.Accept(w, r)
		if problem, ok := errors.AsType[*wire.Problem](err); ok {
			w.Header().Set("Content-Type", wire.ProblemType)
			w.WriteHeader(problem.Status)
			_ = wire.EncodeJSON(w, problem)
			return
		}
		if conn == nil {
			t.Error("neither a connection nor a problem")
			return
		}
		_ = conn.Close(websocket.StatusNormalClosure, "bye")
	}))
	defer server.Close()
	upgrade := map[string]string{"Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Version": "13", "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ=="}
	for _, test := range []struct {
		name   string
		header map[string]string
		status int
		code   string
	}{
		{"a handshake", nil, 101, ""},
		{"a page of another site", map[string]string{"Origin": "https://evil.example"}, 403, "cross_origin"},
		{"no upgrade", map[string]string{"Upgrade": "h2c"}, 426, "upgrade_required"},
		{"an old version", map[string]string{"Sec-WebSocket-Version": "8"}, 400, "bad_handshake"},
		{"a bad key", map[string]string{"Sec-WebSocket-Key": "x"}, 400, "bad_handshake"},
	} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL, nil)
		if err != nil {
			t.Fatal(err)
		}
		for _, header := range []map[string]string{upgrade, test.header} {
			for name, value := range header {
				r.Header.Set(name, value)
			}
		}
		answer, err := http.DefaultTransport.RoundTrip(r)
		if err != nil {
			t.Fatal(err)
		}
		var problem wire.Problem
		if answer.StatusCode != test.status {
			t.Errorf("%s: %d, want %d", test.name, answer.StatusCode, test.status)
		} else if test.code != "" {
			err := json.NewDecoder(answer.Body).Decode(&problem)
			if err != nil || problem.Code != test.code || problem.Detail == "" || answer.Header.Get("Content-Type") != "application/problem+json" {
				t.Errorf("%s: %+v, %v, %v", test.name, problem, answer.Header, err)
			}
		}
		answer.Body.Close()
	}
}
