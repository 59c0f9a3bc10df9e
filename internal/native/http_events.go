package native

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"strconv"
	"strings"
	"time"

	"github.com/coder/websocket"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/internal/enum"
	"github.com/gopherqueue/gq/internal/errs"
	"github.com/gopherqueue/gq/internal/feed"
	"github.com/gopherqueue/gq/internal/httpx"
	"github.com/gopherqueue/gq/internal/socket"
	"github.com/gopherqueue/gq/internal/wire"
	"github.com/gopherqueue/gq/machine"
)

// eventsInput is what a subscriber asks for.
type eventsInput struct {
	After afterText   `query:"after" doc:"Begin after this sequence number; absent is from now on. One beyond the newest event is refused: it is from another log."`
	Queue []string    `query:"queue,explode" doc:"Events of this queue; may be given more than once."`
	Type  []eventText `query:"type,explode" doc:"Events of this type; may be given more than once."`
	Job   string      `query:"job" doc:"Events of this job." format:"uuid"`
}

func (h *HTTP) eventRoutes(schemas *httpx.Schemas) []httpx.Route {
	if h.options.Feed == nil {
		return nil
	}
	event := schemas.Of(reflect.TypeFor[wire.Event]())
	upgrade := httpx.AnyRefusals()
	upgrade["426"] = "The request did not ask for a WebSocket."
	return []httpx.Route{
		httpx.Stream(httpx.Route{
			Method: http.MethodGet, Path: "/v1/events", ID: "stream-events", Tag: "events", Summary: "Follow events",
			Description: "Server-sent events, each with its sequence number as id; a final event named end tells where to resume.",
			Responses: map[string]*httpx.Response{"200": {
				Description: "Events in order, without a gap or a repetition.",
				Content:     httpx.Content{"text/event-stream": {Schema: httpx.Lines("Server-sent events whose data is one Event as JSON.", event)}},
			}},
		}, h.eventStream),
		httpx.Stream(httpx.Route{
			Method: http.MethodGet, Path: "/v1/events/ws", ID: "socket-events", Tag: "events", Summary: "Follow events over a WebSocket",
			Description: "One event a message. The reason with which the socket is closed tells where to resume.", Refusals: upgrade,
			Responses: map[string]*httpx.Response{"101": {Description: "Then one Event as JSON a message, in order, without a gap or a repetition."}},
		}, h.eventSocket),
	}
}

// open begins the subscription that a request asks for.
func (h *HTTP) open(c *httpx.Call, in *eventsInput) (*feed.Subscription, error) {
	after, filter, err := in.read(c.Request.Header.Get("Last-Event-ID"))
	if err != nil {
		return nil, err
	}
	return subscribe(c.Request.Context(), h.engine, h.options.Feed, after, filter)
}

// read reads what a subscriber asks for. A browser that comes back names the last event
// it has seen.
func (in *eventsInput) read(last string) (after *uint64, f feed.Filter, err error) {
	var p parameters
	if text := cmp.Or(last, string(in.After)); text != "" {
		n, err := strconv.ParseUint(text, 10, 63)
		if err != nil {
			p.fault("after", "%.64q is not a sequence number", text)
		}
		after = &n
	}
	f.Queues = split(in.Queue)
	for i, q := range f.Queues {
		for _, fault := range errs.FaultsOf(machine.CheckQueueName(q)) {
			p.fault(fmt.Sprintf("queue[%d]", i), "%s", fault.Problem)
		}
	}
	for _, name := range split(in.Type) {
		t, err := enum.Parse[gq.EventType](name)
		p.faults = append(p.faults, errs.FaultsOf(err)...)
		f.Types = append(f.Types, t)
	}
	if in.Job != "" {
		f.Job = p.jobID(in.Job)
	}
	if len(f.Queues) > 1000 || len(f.Types) > 1000 {
		p.fault("queue", "more than 1000 queues or types")
	}
	return after, f, p.err()
}

// eventStream is the feed as server-sent events.
func (h *HTTP) eventStream(w *httpx.Call, in *eventsInput) error {
	r := w.Request
	s, err := h.open(w, in)
	if err != nil {
		return err
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
	if r.Method == http.MethodHead || write([]byte("retry: 2000\n\n")) != nil {
		return nil
	}
	var room []byte // for what a filter picks
	err = s.Run(ctx, limits.Beat, func(b feed.Batch, upTo uint64) error {
		text := b.Frames(room[:0])
		if b.Len() == 0 { // a comment that moves the place to resume
			text = fmt.Appendf(nil, "id: %d\n: beat\n\n", upTo)
		} else if b.Picked() && cap(text) <= 64<<10 { // else it was a burst
			room = text
		}
		return limits.timely(func() error { return write(text) })
	})
	if r.Context().Err() != nil {
		return nil // the client has left
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
	return nil
}

// eventSocket is the feed over a WebSocket. Subscribers have nothing to say: a
// message ends the connection.
func (h *HTTP) eventSocket(w *httpx.Call, in *eventsInput) error {
	r := w.Request
	s, err := h.open(w, in)
	if err != nil {
		return err
	}
	defer s.Close()
	if !strings.EqualFold(r.Header.Get("Upgrade"), "websocket") {
		w.Header().Set("Upgrade", "websocket")
		return wire.NewProblem(http.StatusUpgradeRequired, "upgrade_required",
			"this is a WebSocket; GET /v1/events has the same as server-sent events")
	}
	boundBuffer(r.Context())
	_ = http.NewResponseController(w).SetWriteDeadline(time.Time{}) // each message gets its own
	line := &corking{ResponseWriter: w}
	conn, err := socket.Accept(line, r)
	if err != nil || conn == nil {
		return err // nil where the client has left
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
			return nil // it has left
		}
		code, reason = websocket.StatusPolicyViolation, "subscribers have nothing to say"
	default:
	}
	_ = conn.Close(code, reason) // it may have left
	return nil
}
