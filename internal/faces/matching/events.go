package matching

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/coder/websocket"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/internal/httpx"
	"github.com/gopherqueue/gq/internal/matchmaker"
	"github.com/gopherqueue/gq/internal/socket"
	"github.com/gopherqueue/gq/internal/wire"
)

// noticeBody is one of the six kinds of notice.
type noticeBody struct {
	Seq    uint64    `json:"seq,omitzero"`
	Time   time.Time `json:"time"`
	Entity string    `json:"entity"`
	Type   string    `json:"type"`
	Data   any       `json:"data"`
}

// The payloads of the six notices, with exactly the specified members.
type (
	jobAssigned struct {
		JobID      gq.JobID   `json:"jobId"`
		ProviderID string     `json:"providerId"`
		LeaseID    gq.LeaseID `json:"leaseId"`
		Deadline   int64      `json:"deadline"`
	}
	jobCompleted struct {
		JobID      gq.JobID   `json:"jobId"`
		ProviderID string     `json:"providerId"`
		LeaseID    gq.LeaseID `json:"leaseId"`
		Digest     string     `json:"digest"`
	}
	jobExpired struct {
		JobID  gq.JobID `json:"jobId"`
		Reason string   `json:"reason"`
	}
	leaseRenewed struct {
		LeaseID  gq.LeaseID `json:"leaseId"`
		Deadline int64      `json:"deadline"`
	}
	leaseCancelled struct {
		LeaseID gq.LeaseID `json:"leaseId"`
		Reason  string     `json:"reason"`
	}
	providerSlashed struct {
		ProviderID string `json:"providerId"`
		Reason     string `json:"reason"`
		Penalty    int64  `json:"penalty"`
	}
)

// noticeOf encodes a notice for subscribers.
func noticeOf(n *matchmaker.Notice) noticeBody {
	out := noticeBody{Seq: n.Seq, Time: n.Time.UTC(), Entity: n.Job.String(), Type: n.Type}
	switch n.Type {
	case matchmaker.JobAssigned:
		out.Data = jobAssigned{n.Job, n.Provider, n.Lease, n.Deadline.Unix()}
	case matchmaker.JobCompleted:
		out.Data = jobCompleted{n.Job, n.Provider, n.Lease, n.Digest}
	case matchmaker.JobExpired:
		out.Data = jobExpired{n.Job, n.Reason}
	case matchmaker.LeaseRenewed:
		out.Data = leaseRenewed{n.Lease, n.Deadline.Unix()}
	case matchmaker.LeaseCancelled:
		out.Data = leaseCancelled{n.Lease, n.Reason}
	default:
		out.Entity, out.Data = n.Provider, providerSlashed{n.Provider, n.Reason, n.Penalty}
	}
	return out
}

// writeWithin is the time limit for sending one message.
const writeWithin = 10 * time.Second

// pingEvery is the ping interval, which keeps idle connections alive and detects dead
// ones.
const pingEvery = 30 * time.Second

// socket serves the feed of notices over a WebSocket: those after the event ?after, or
// new ones only. With ?all=1 it also sends every other event of the queue.
func (f *Face) socket(c *httpx.Call, in *socketInput) error {
	after, all, err := f.subscription(c.Request.Context(), in)
	if err != nil {
		return err
	}
	free, err := f.options.Guard.Subscribe(c.Request.Context())
	if err != nil {
		return fmt.Errorf("subscribe: %w", err)
	}
	defer free()
	_ = http.NewResponseController(c).SetWriteDeadline(time.Time{}) // each message sets its own deadline
	conn, err := socket.Accept(c, c.Request)
	if err != nil || conn == nil {
		return err // nil if the client has gone
	}
	defer conn.CloseNow() //nolint:errcheck // after a close it is closed
	conn.SetReadLimit(1 << 10)
	ctx, cancel := context.WithCancel(conn.CloseRead(context.WithoutCancel(c.Request.Context())))
	defer cancel()
	valid, release := f.options.Guard.WhileValid(ctx)
	defer release()
	defer context.AfterFunc(f.draining, cancel)()
	defer f.pings(ctx, cancel, conn)()

	place := after // where the subscriber can resume
	send := func(body any) error {
		if err := f.options.Guard.StillValid(ctx); err != nil {
			return err
		}
		var text bytes.Buffer
		if err := wire.EncodeJSON(&text, body); err != nil {
			return err
		}
		within, done := context.WithTimeout(ctx, writeWithin)
		defer done()
		return conn.Write(within, websocket.MessageText, bytes.TrimSpace(text.Bytes()))
	}
	move := func(to uint64, err error) error { // advances only after a successful send
		if err == nil {
			place = max(place, to)
		}
		return err
	}
	var other func(*gq.Event) error
	if all {
		other = func(e *gq.Event) error {
			return move(e.Seq, send(wire.EventOf(e)))
		}
	}
	err = f.dispatch.Subscribe(valid, after, func(n matchmaker.Notice) error { return move(n.Seq, send(noticeOf(&n))) }, other)
	if valid.Err() != nil && ctx.Err() == nil {
		if invalid := f.options.Guard.StillValid(ctx); invalid != nil {
			err = invalid
		}
	}
	code, reason := websocket.StatusGoingAway, fmt.Sprintf("resume after %d", place)
	if errors.Is(err, gq.ErrUnauthenticated) {
		code, reason = websocket.StatusPolicyViolation, "the token is no longer valid; "+reason
	} else if errors.Is(err, gq.ErrGone) {
		code, reason = websocket.StatusPolicyViolation, "events after this one are no longer kept"
	} else if err != nil && ctx.Err() == nil {
		f.options.Log.Warn("a feed of matching events ended", "request_id", c.ID, "error", err)
	}
	_ = conn.Close(code, reason) // the client may have gone
	return nil
}

// subscription parses the parameters of a subscription.
func (f *Face) subscription(ctx context.Context, in *socketInput) (after uint64, all bool, err error) {
	switch text := in.All; text {
	case "", "0", "false":
	case "1", "true":
		all = true
	default:
		return 0, false, &gq.InvalidError{Faults: []gq.Fault{{Field: "all", Problem: fmt.Sprintf("%.64q is neither 1 nor 0", text)}}}
	}
	last, err := f.events.LastEvent(ctx)
	text := in.After
	if text == "" || err != nil {
		return last, all, err
	}
	no := func(format string, args ...any) (uint64, bool, error) {
		return 0, false, &gq.InvalidError{Faults: []gq.Fault{{Field: "after", Problem: fmt.Sprintf(format, args...)}}}
	}
	if after, err = strconv.ParseUint(text, 10, 64); err != nil {
		return no("%.64q is not the number of an event", text)
	}
	if after > last {
		return no("%d is beyond the newest event, which is %d; this is not the log that it was in", after, last)
	}
	return after, all, nil
}

// pings pings the client until stop is called. It cancels the subscription of a
// connection that does not respond.
func (f *Face) pings(ctx context.Context, cancel context.CancelFunc, conn *websocket.Conn) (stop func()) {
	done := make(chan struct{})
	ctx, end := context.WithCancel(ctx)
	go func() {
		defer close(done)
		tick := time.NewTicker(pingEvery)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			within, stop := context.WithTimeout(ctx, writeWithin)
			err := conn.Ping(within)
			stop()
			if err != nil {
				cancel()
				return
			}
		}
	}()
	return func() { end(); <-done }
}
