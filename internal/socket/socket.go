// Package socket accepts WebSockets. It answers a refused handshake with problem details, as every
// other request, and not with a line of text.
package socket

import (
	"net/http"

	"github.com/coder/websocket"

	"github.com/gopherqueue/gq/internal/wire"
)

// Accept upgrades a request to a WebSocket, without compression and only for pages of the same site.
// If it fails it has written nothing: the error is a [*wire.Problem], or nil if the connection is
// gone.
func Accept(w http.ResponseWriter, r *http.Request) (*websocket.Conn, error) {
	answer := &held{ResponseWriter: w}
	conn, err := websocket.Accept(answer, r, &websocket.AcceptOptions{CompressionMode: websocket.CompressionDisabled})
	switch {
	case err == nil:
		return conn, nil
	case answer.refused == 0 || answer.accepted:
		return nil, nil
	case answer.refused == http.StatusForbidden:
		return nil, wire.NewProblem(answer.refused, "cross_origin", "pages of other sites may not do this")
	case answer.refused == http.StatusUpgradeRequired:
		return nil, wire.NewProblem(answer.refused, "upgrade_required", "this is a WebSocket, and the request does not ask for one")
	}
	return nil, wire.NewProblem(answer.refused, "bad_handshake", err.Error())
}

// held keeps back the answer to a refused handshake.
type held struct {
	http.ResponseWriter
	accepted bool
	refused  int // its status
}

func (h *held) WriteHeader(status int) {
	if status >= http.StatusBadRequest {
		h.refused = status
		return
	}
	h.accepted = true
	h.ResponseWriter.WriteHeader(status)
}

func (h *held) Write(b []byte) (int, error) {
	if h.refused != 0 {
		return len(b), nil
	}
	return h.ResponseWriter.Write(b)
}

// Unwrap lets callers hijack the connection.
func (h *held) Unwrap() http.ResponseWriter { return h.ResponseWriter }
