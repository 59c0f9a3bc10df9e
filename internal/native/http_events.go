package native

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"strings"
	"time"

	"github.com/coder/websocket"
	"github.com/danielgtaylor/huma/v2"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/internal/enum"
	"github.com/gopherqueue/gq/internal/feed"
	"github.com/gopherqueue/gq/internal/openapi"
	"github.com/gopherqueue/gq/internal/socket"
	"github.com/gopherqueue/gq/internal/wire"
)

func (h *HTTP) registerEvents() {
	if h.options.Feed == nil {
		return
	}
	h.mux.HandleFunc("GET /v1/events", h.eventStream)
	h.mux.HandleFunc("GET /v1/events/ws", h.eventSocket)
	event := h.schema(reflect.TypeFor[wire.Event]())
	stream, upgrade := h.refusals(), h.refusals()
	stream["200"] = &huma.Response{
		Description: "Events in order, without a gap or a repetition.",
		Content: map[string]*huma.MediaType{
			"text/event-stream": {Schema: openapi.Lines("Server-sent events whose data is one Event as JSON.", event)},
		},
	}
	upgrade["101"] = &huma.Response{Description: "Then one Event as JSON a message, in order, without a gap or a repetition."}
	upgrade["426"] = &huma.Response{Description: "The request did not ask for a WebSocket.", Content: upgrade["default"].Content}
	for _, o := range []struct {
		path, id, summary, description string
		responses                      map[string]*huma.Response
	}{
		{"/v1/events", "stream-events", "Follow events", "Server-sent events, each with its sequence number as id; a final event named end tells where to resume.", stream},
		{"/v1/events/ws", "socket-events", "Follow events over a WebSocket", "One event a message. The reason with which the socket is closed tells where to resume.", upgrade},
	} {
		h.api.OpenAPI().AddOperation(&huma.Operation{
			Method: http.MethodGet, Path: o.path, OperationID: o.id, Tags: []string{"events"}, Summary: o.summary, Description: o.description,
			Parameters: []*huma.Param{
				{Name: "after", In: "query", Description: "Begin after this sequence number; absent is from now on. One beyond the newest event is refused: it is from another log.", Schema: &huma.Schema{Type: huma.TypeInteger, Format: "int64"}},
				{Name: "queue", In: "query", Description: "Events of this queue; may be given more than once.", Schema: textsSchema()},
				{Name: "type", In: "query", Description: "Events of this type; may be given more than once.", Schema: &huma.Schema{Type: huma.TypeArray, Items: enumSchema(names(enum.All[gq.EventType]()))}},
				{Name: "job", In: "query", Description: "Events of this job.", Schema: &huma.Schema{Type: huma.TypeString, Format: "uuid"}},
			},
			Responses: o.responses,
		})
	}
}

// open begins the subscription that a request asks for, or answers why not.
func (h *HTTP) open(w http.ResponseWriter, r *http.Request) *feed.Subscription {
	after, filter, err := eventQuery(r)
	if err == nil {
		var s *feed.Subscription
		if s, err = subscribe(r.Context(), h.engine, h.options.Feed, after, filter); err == nil {
			return s
		}
	}
	c := callOf(r.Context())
	h.refuse(w, c, h.problem(r.Context(), err))
	return nil
}

// eventStream is the feed as server-sent events.
func (h *HTTP) eventStream(w http.ResponseWriter, r *http.Request) {
	s := h.open(w, r)
	if s == nil {
		return
	}
	defer s.Close()
	boundBuffer(r.Context())
	ctx, cancel := whileServing(r.Context(), h.draining)
	defer cancel()
	limits := h.options.Events.withDefaults()
	control := http.NewResponseController(w)
	write := func(text []byte) error {
		_ = control.SetWriteDeadline(time.Now().Add(limits.Stuck)) // recorders have none
		if _, err := w.Write(text); err != nil {
			return err
		}
		return control.Flush()
	}
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("X-Accel-Buffering", "no") // for proxies
	w.WriteHeader(http.StatusOK)
	if write([]byte("retry: 2000\n\n")) != nil {
		return
	}
	var room []byte // for what a filter picks
	err := s.Run(ctx, limits.Beat, func(b feed.Batch, upTo uint64) error {
		text := b.Frames(room[:0])
		if b.Len() == 0 { // a comment that moves the place to resume
			text = fmt.Appendf(nil, "id: %d\n: beat\n\n", upTo)
		} else if b.Picked() && cap(text) <= 64<<10 { // else it was a burst
			room = text
		}
		return limits.timely(func() error { return write(text) })
	})
	if r.Context().Err() != nil {
		return // the client has left
	}
	reason := farewell(err, h.draining.Err() != nil, s.After)
	var text bytes.Buffer
	text.WriteString("event: end\ndata: ")
	_ = wire.EncodeJSON(&text, struct {
		Reason string `json:"reason"`
		After  uint64 `json:"resume_after"`
	}{reason, s.After})
	text.WriteString("\n")
	_ = write(text.Bytes()) // it may have left
}

// eventSocket is the feed over a WebSocket. Subscribers have nothing to say: a
// message ends the connection.
func (h *HTTP) eventSocket(w http.ResponseWriter, r *http.Request) {
	s := h.open(w, r)
	if s == nil {
		return
	}
	defer s.Close()
	if !strings.EqualFold(r.Header.Get("Upgrade"), "websocket") {
		w.Header().Set("Upgrade", "websocket")
		h.refuse(w, callOf(r.Context()), wire.NewProblem(http.StatusUpgradeRequired, "upgrade_required",
			"this is a WebSocket; GET /v1/events has the same as server-sent events"))
		return
	}
	boundBuffer(r.Context())
	_ = http.NewResponseController(w).SetWriteDeadline(time.Time{}) // each message gets its own
	line := &corking{ResponseWriter: w}
	conn, err := socket.Accept(line, r)
	if err != nil {
		h.refuse(w, callOf(r.Context()), h.problem(r.Context(), err))
		return
	}
	if conn == nil {
		return // it has left
	}
	h.sockets.Add(1)
	defer h.sockets.Done()
	ctx, cancel := whileServing(context.WithoutCancel(r.Context()), h.draining)
	defer cancel()
	talked := make(chan bool, 1)
	go func() { // answers pings and notices the end of the connection
		conn.SetReadLimit(1 << 10)
		_, _, err := conn.Read(context.WithoutCancel(ctx))
		talked <- err == nil
		cancel()
	}()
	defer func() {
		_ = conn.CloseNow() // after a close it is closed
		<-talked
	}()
	limits := h.options.Events.withDefaults()
	err = s.Run(ctx, limits.Beat, func(b feed.Batch, _ uint64) error {
		within, cancel := context.WithTimeout(context.WithoutCancel(ctx), limits.Stuck)
		defer cancel()
		if b.Len() == 0 {
			return conn.Ping(within)
		}
		return limits.timely(func() error {
			line.conn.cork()
			for i := range b.Len() {
				if err := conn.Write(within, websocket.MessageText, b.JSON(i)); err != nil {
					return errors.Join(err, line.conn.uncork(0))
				}
			}
			return line.conn.uncork(limits.Stuck)
		})
	})
	code, reason := websocket.StatusGoingAway, farewell(err, h.draining.Err() != nil, s.After)
	switch {
	case errors.Is(err, errSlow):
		code = websocket.StatusTryAgainLater
	case errors.Is(err, gq.ErrUnauthenticated):
		code = websocket.StatusPolicyViolation
	}
	select {
	case said := <-talked:
		talked <- said
		if !said {
			return // it has left
		}
		code, reason = websocket.StatusPolicyViolation, "subscribers have nothing to say"
	default:
	}
	_ = conn.Close(code, reason) // it may have left
}
