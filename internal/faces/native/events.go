package native

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/coder/websocket"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/gopherqueue/gq"
	pb "github.com/gopherqueue/gq/api/gopherqueue/v1"
	"github.com/gopherqueue/gq/engine"
	"github.com/gopherqueue/gq/internal/enum"
	"github.com/gopherqueue/gq/internal/errs"
	"github.com/gopherqueue/gq/internal/feed"
	"github.com/gopherqueue/gq/internal/httpx"
	"github.com/gopherqueue/gq/internal/socket"
	"github.com/gopherqueue/gq/internal/view"
	"github.com/gopherqueue/gq/internal/wire"
	"github.com/gopherqueue/gq/machine"
)

// EventLimits are time limits for subscribers. The zero value selects the defaults.
type EventLimits struct {
	Beat  time.Duration // interval of keep-alive messages while idle; 0 is 15 s
	Slow  time.Duration // a subscriber slower than this for one batch is cut off; 0 is 5 s
	Stuck time.Duration // one that accepts nothing for this long is cut off without notice; 0 is 15 s
}

func (l EventLimits) withDefaults() EventLimits {
	for _, d := range []struct {
		value    *time.Duration
		standard time.Duration
	}{{&l.Beat, 15 * time.Second}, {&l.Slow, 5 * time.Second}, {&l.Stuck, 15 * time.Second}} {
		if *d.value == 0 {
			*d.value = d.standard
		}
	}
	return l
}

// errSlow ends a subscription whose subscriber cannot keep up.
var errSlow = errors.New("slow consumer")

// errLate is errSlow for a batch that arrived nevertheless.
var errLate = fmt.Errorf("%w: %w", errSlow, feed.ErrEnough)

// timely calls send and returns errLate if it took too long, which makes this batch the
// last.
func (l EventLimits) timely(send func() error) error {
	began := time.Now()
	if err := send(); err != nil {
		return err
	}
	if time.Since(began) > l.Slow {
		return errLate
	}
	return nil
}

// subscribe opens a subscription. It rejects a position beyond the newest event: the
// subscriber saw another store, or this one before it was restored from a backup, and
// would silently miss all events up to that number.
func subscribe(ctx context.Context, e engine.API, f *feed.Feed, after *uint64, filter feed.Filter) (*feed.Subscription, error) {
	s, err := f.Open(ctx, after, filter)
	if err != nil || after == nil || *after == 0 {
		return s, err
	}
	last, err := e.LastEvent(ctx)
	if err == nil && *after > last {
		var p parameters
		p.fault("after", "%d is beyond the newest event, which is %d; this is not the log that it was in", *after, last)
		err = p.err()
	}
	if err != nil {
		s.Close()
		return nil, fmt.Errorf("subscribe: %w", err)
	}
	return s, nil
}

// farewell says why a subscription ended and where to resume it.
func farewell(err error, draining bool, after uint64) string {
	reason := "the feed has ended"
	switch {
	case errors.Is(err, errSlow):
		reason = errSlow.Error()
	case errors.Is(err, gq.ErrUnauthenticated):
		reason = "the token is no longer valid"
	case errors.Is(err, gq.ErrGone):
		reason = "the events that follow are no longer kept"
	case draining:
		reason = "the server is about to stop"
	}
	return fmt.Sprintf("%s; resume with after=%d", reason, after)
}

// whileServing returns a context that ends with ctx or when the server drains.
func whileServing(ctx, draining context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(draining, cancel)
	return ctx, func() {
		stop()
		cancel()
	}
}

// eventsInput has the parameters of a subscription.
type eventsInput struct {
	After afterText   `query:"after" doc:"Begin after this sequence number; absent is from now on. One beyond the newest event is refused: it is from another log."`
	Queue []string    `query:"queue,explode" doc:"Events of this queue; may be given more than once."`
	Type  []eventText `query:"type,explode" doc:"Events of this type; may be given more than once."`
	Job   string      `query:"job" doc:"Events of this job." format:"uuid"`
	View  *viewText   `query:"view" doc:"Changes of state in the states and members of a document, and no others."`

	view *view.View // set by read
}

func (h *HTTP) eventRoutes(schemas *httpx.Schemas) []httpx.Route {
	if h.options.Feed == nil {
		return nil
	}
	upgrade := httpx.AnyRefusals()
	upgrade["426"] = "The request did not ask for a WebSocket."
	return []httpx.Route{
		httpx.Stream(httpx.Route{
			Method: http.MethodGet, Path: "/v1/events", ID: "stream-events", Tag: "events", Summary: "Follow events",
			Description: "Server-sent events, each with its sequence number as id; a final event named end tells where to resume.",
			Responses: map[string]*httpx.Response{"200": {
				Description: "Events in order, without a gap or a repetition.",
				Content:     httpx.Content{"text/event-stream": {Schema: httpx.Lines("Server-sent events whose data is one Event as JSON, or that of the view.", eventForms(schemas))}},
			}},
		}, h.eventStream),
		httpx.Stream(httpx.Route{
			Method: http.MethodGet, Path: "/v1/events/ws", ID: "socket-events", Tag: "events", Summary: "Follow events over a WebSocket",
			Description: "One event a message, in a view with its seq. The reason with which the socket is closed tells where to resume.", Refusals: upgrade,
			Responses: map[string]*httpx.Response{"101": {
				Description: "Then one Event as JSON a message, or that of the view, in order, without a gap or a repetition.",
				Content:     httpx.Content{"application/json": {Schema: messageForms(schemas)}},
			}},
		}, h.eventSocket),
	}
}

// open opens the subscription that a request asks for.
func (h *HTTP) open(c *httpx.Call, in *eventsInput) (*feed.Subscription, error) {
	after, filter, err := in.read(c.Request.Header.Get("Last-Event-ID"))
	if err != nil {
		return nil, err
	}
	return subscribe(c.Request.Context(), h.engine, h.options.Feed, after, filter)
}

// read parses the parameters. last is the Last-Event-ID header, which browsers send when
// they reconnect.
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
	in.view = p.view(in.View)
	if len(f.Queues) > 1000 || len(f.Types) > 1000 {
		p.fault("queue", "more than 1000 queues or types")
	}
	return after, f, p.err()
}

// eventStream serves the feed as server-sent events.
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
		_ = control.SetWriteDeadline(time.Now().Add(limits.Stuck)) // test recorders have no deadline
		if _, err := w.Write(text); err != nil {
			return err
		}
		return control.Flush()
	}
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("X-Accel-Buffering", "no") // turns off buffering in proxies
	w.WriteHeader(http.StatusOK)
	if r.Method == http.MethodHead || write([]byte("retry: 2000\n\n")) != nil {
		return nil
	}
	var room []byte // reused buffer for filtered batches
	err = s.Run(ctx, limits.Beat, func(b feed.Batch, upTo uint64) error {
		var text []byte
		if in.view != nil {
			text = viewFrames(in.view, b.Events())
		} else {
			text = b.Frames(room[:0])
		}
		if len(text) == 0 { // a comment that advances the resume position
			text = fmt.Appendf(nil, "id: %d\n: beat\n\n", upTo)
		} else if b.Picked() && cap(text) <= 64<<10 { // do not keep the buffer of a burst
			room = text
		}
		return limits.timely(func() error { return write(text) })
	})
	if r.Context().Err() != nil {
		return nil // the client has gone
	}
	reason := farewell(err, h.draining.Err() != nil, s.After)
	var text bytes.Buffer
	text.WriteString("event: end\ndata: ")
	_ = wire.EncodeJSON(&text, struct {
		Reason string `json:"reason"`
		After  uint64 `json:"resume_after"`
	}{reason, s.After})
	text.WriteString("\n")
	_ = write(text.Bytes()) // the client may have gone
	return nil
}

// eventSocket serves the feed over a WebSocket. Clients must not send: any message closes
// the connection.
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
	_ = http.NewResponseController(w).SetWriteDeadline(time.Time{}) // each message sets its own deadline
	line := &corking{ResponseWriter: w}
	conn, err := socket.Accept(line, r)
	if err != nil || conn == nil {
		return err // nil if the client has gone
	}
	h.sockets.Add(1)
	defer h.sockets.Done()
	ctx, cancel := whileServing(context.WithoutCancel(r.Context()), h.draining)
	defer cancel()
	talked := make(chan bool, 1)
	go func() { // responds to pings and detects the end of the connection
		conn.SetReadLimit(1 << 10)
		_, _, err := conn.Read(context.WithoutCancel(ctx))
		talked <- err == nil
		cancel()
	}()
	defer func() {
		_ = conn.CloseNow() // no effect after Close
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
			for _, message := range messages(in.view, b) {
				if err := conn.Write(within, websocket.MessageText, message); err != nil {
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
			return nil // the client has gone
		}
		code, reason = websocket.StatusPolicyViolation, "subscribers have nothing to say"
	default:
	}
	_ = conn.Close(code, reason) // the client may have gone
	return nil
}

type eventsServer struct {
	pb.UnimplementedEventsServiceServer
	*GRPC
}

// subscriptionOf parses the filter of a subscription.
func subscriptionOf(r *pb.SubscribeRequest) (f feed.Filter, err error) {
	var p parameters
	if len(r.GetQueues()) > 1000 || len(r.GetTypes()) > 1000 {
		p.fault("queues", "more than 1000 queues or types")
		return f, p.err()
	}
	f.Queues = r.GetQueues()
	for i, q := range f.Queues {
		for _, fault := range errs.FaultsOf(machine.CheckQueueName(q)) {
			p.fault(fmt.Sprintf("queues[%d]", i), "%s", fault.Problem)
		}
	}
	for i, t := range r.GetTypes() {
		if event := gq.EventType(t); t < 0 || int(t) > 255 || !event.Valid() {
			p.fault(fmt.Sprintf("types[%d]", i), "%d is not an event type", t)
		} else {
			f.Types = append(f.Types, event)
		}
	}
	if id := r.GetJobId(); id != "" {
		f.Job = p.jobID(id)
	}
	return f, p.err()
}

func (s *eventsServer) Subscribe(r *pb.SubscribeRequest, stream grpc.ServerStreamingServer[pb.SubscribeResponse]) error {
	filter, err := subscriptionOf(r)
	v, unknown := view.Named(r.GetView())
	if err = errors.Join(err, unknown); err != nil {
		return fmt.Errorf("subscribe: %w", err)
	}
	sub, err := subscribe(stream.Context(), s.engine, s.options.Feed, r.After, filter)
	if err != nil {
		return err
	}
	defer sub.Close()
	ctx, cancel := s.whileServing(stream.Context())
	defer cancel()
	limits := s.options.Events.withDefaults()
	if err := stream.SendHeader(nil); err != nil { // tells the client that the subscription is open
		return err
	}
	err = s.subscribe(ctx, sub, limits, v, stream)
	text := farewell(err, s.draining.Err() != nil, sub.After)
	switch {
	case stream.Context().Err() != nil:
		return stream.Context().Err()
	case errors.Is(err, errSlow):
		return status.Error(codes.ResourceExhausted, text)
	case err == nil:
		return status.Error(codes.Unavailable, text)
	default:
		return fmt.Errorf("%s: %w", text, err)
	}
}

func (s *eventsServer) ListEvents(ctx context.Context, r *pb.ListEventsRequest) (*pb.ListEventsResponse, error) {
	v, err := view.Named(r.GetView())
	if err != nil {
		return nil, fmt.Errorf("list events: %w", err)
	}
	limit := r.GetLimit()
	if limit < 0 || limit > maxEvents {
		var p parameters
		p.fault("limit", "%d is not between 0 and %d", limit, maxEvents)
		return nil, fmt.Errorf("list events: %w", p.err())
	}
	if limit == 0 {
		limit = maxEvents
	}
	events, err := s.engine.Events(ctx, r.GetAfter(), int(limit))
	if err != nil {
		return nil, err
	}
	position := r.GetAfter()
	if len(events) > 0 {
		position = events[len(events)-1].Seq
	}
	return &pb.ListEventsResponse{Events: protoEventsIn(v, events), Position: position}, nil
}

// maxEvents is the most events that one call returns.
const maxEvents = 1000

func (s *eventsServer) LastEvent(ctx context.Context, _ *pb.LastEventRequest) (*pb.LastEventResponse, error) {
	seq, err := s.engine.LastEvent(ctx)
	if err != nil {
		return nil, err
	}
	return &pb.LastEventResponse{Seq: seq}, nil
}

// subscribe sends events to the stream. Only the end of the call unblocks a stuck send,
// so each send runs in a goroutine that may be abandoned: it ends with the call.
func (s *eventsServer) subscribe(ctx context.Context, sub *feed.Subscription, l EventLimits, v *view.View, stream grpc.ServerStreamingServer[pb.SubscribeResponse]) error {
	sent := make(chan error, 1)
	timer := time.NewTimer(l.Stuck)
	defer timer.Stop()
	return sub.Run(ctx, l.Beat, func(b feed.Batch, upTo uint64) error {
		message := &pb.SubscribeResponse{Position: upTo}
		if v != nil {
			message.Events = protoEventsIn(v, b.Events())
		} else {
			message.Events = b.Messages()
		}
		return l.timely(func() error {
			timer.Reset(l.Stuck)
			go func() { sent <- stream.Send(message) }()
			select {
			case err := <-sent:
				return err
			case <-timer.C:
				return errSlow
			}
		})
	})
}
