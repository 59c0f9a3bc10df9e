package postgres

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/internal/wake"
	"github.com/gopherqueue/gq/store"
)

const (
	// pollEvery is how often a node polls if it receives no notifications, and
	// pollRarely if it does: a notification is a hint and may be lost.
	pollEvery  = time.Second
	pollRarely = 15 * time.Second

	// probeWithin is how long a node waits for its own notification. None arrives
	// through a pooler that may run each transaction on another connection.
	probeWithin = 2 * time.Second
	// probeAgain is how long it polls before it probes again.
	probeAgain = time.Minute

	// A node that hears of no other does not notify: joinWithin after its probe, which others
	// answer, and again forgetAfter the last message of another node. A node that listens
	// says so each time it polls.
	joinWithin  = 2 * time.Second
	forgetAfter = 3 * pollRarely
)

// notice is the content of a notification, for which PostgreSQL allows 8,000 bytes.
type notice struct {
	Node    string     `json:"n"`
	Queues  []string   `json:"q"` // queues with jobs that may be claimable; null means any queue
	Freed   []string   `json:"f,omitempty"`
	Due     int64      `json:"d,omitempty"` // see effects
	Event   int64      `json:"e,omitempty"`
	Fresh   bool       `json:"u,omitempty"` // there may be events without numbers
	Probe   bool       `json:"p,omitempty"` // a node has begun to listen
	Here    bool       `json:"h,omitempty"` // a node listens, and nothing has changed
	Cancels []gq.JobID `json:"c,omitempty"` // running jobs that are asked to stop
	Inbox   bool       `json:"i,omitempty"` // there are submissions to take in; see gq.announce

	Relayed json.RawMessage `json:"r,omitempty"` // see store.Relay
}

const (
	maxNotice = 7500
	// maxCancels is how many jobs a notification names as asked to stop.
	maxCancels = 150
)

// cancelNotices returns notifications that name jobs which are asked to stop.
func (h *notifier) cancelNotices(jobs []gq.JobID) (out []notice) {
	for some := range slices.Chunk(jobs, maxCancels) {
		out = append(out, notice{Node: h.node, Queues: []string{}, Cancels: some})
	}
	return out
}

// names lists queues. The result is never nil.
func names(queues map[string]bool) []string {
	return slices.AppendSeq(make([]string, 0, len(queues)), maps.Keys(queues))
}

func nodeName() string {
	b := random()
	return hex.EncodeToString(b[:8])
}

// notify notifies the other nodes. It runs in its own transaction, because commits that
// notify wait for each other.
func (h *notifier) notify(ctx context.Context, c *effects, last int64, fresh bool) {
	n := notice{Node: h.node, Queues: names(c.opened), Freed: names(c.freed), Due: c.due, Event: last, Fresh: fresh}
	if text, err := json.Marshal(n); err == nil && len(text) > maxNotice {
		n.Queues, n.Freed = nil, nil
	}
	for _, n := range append([]notice{n}, h.cancelNotices(c.cancels)...) {
		_ = h.send(ctx, n) // a hint
	}
}

func (h *notifier) send(ctx context.Context, n notice) error {
	text, err := json.Marshal(n)
	if err != nil {
		return err
	}
	_, err = h.s.pool.Exec(ctx, "SELECT pg_notify($1, $2)", h.s.pool.dialect.channel(), string(text))
	return err
}

// Relay implements [store.Relay].
func (s *Store) Relay(ctx context.Context, messages [][]byte) error {
	h := &s.notifier
	h.mu.Lock()
	alone := h.aloneLocked()
	h.mu.Unlock()
	if alone {
		return nil
	}
	if err := s.enter(); err != nil {
		return err
	}
	defer s.leave()
	for _, m := range messages {
		if err := h.send(ctx, notice{Node: h.node, Relayed: m}); err != nil {
			return err
		}
	}
	return nil
}

// aloneLocked reports whether no other node listens.
func (h *notifier) aloneLocked() bool {
	return !h.joined.IsZero() && time.Since(h.joined) > joinWithin && (h.met.IsZero() || time.Since(h.met) > forgetAfter)
}

// meet records a message of another node. If this node had believed to be alone, it had not
// notified, so it announces that anything may have changed. It answers a probe.
func (h *notifier) meet(probe bool) {
	h.mu.Lock()
	alone := h.aloneLocked()
	h.met = time.Now()
	last := h.last
	h.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), notifierWithin)
	defer cancel()
	switch {
	case alone:
		_ = h.send(ctx, notice{Node: h.node, Event: last, Fresh: true}) // hints, both
	case probe:
		_ = h.send(ctx, notice{Node: h.node, Here: true})
	}
}

// join records since when this node receives notifications; zero means that it does not.
func (h *notifier) join(at time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.joined = at
}

// listen passes on news from other nodes while the store is open. It receives
// notifications if they arrive, and polls otherwise.
func (h *notifier) listen() {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	h.all.Go(func() {
		<-h.quit
		cancel()
	})
	for ctx.Err() == nil {
		wait := probeAgain
		if errors.Is(h.receive(ctx), errLost) {
			wait = jitter(pollEvery) // notifications arrived before, so retry soon
		}
		for until := time.Now().Add(wait); time.Now().Before(until) && ctx.Err() == nil; {
			h.poll(ctx)
			if !h.pause(jitter(pollEvery)) {
				return
			}
		}
	}
}

// receive passes on notifications until the connection ends. It returns errLost if
// notifications had been arriving.
func (h *notifier) receive(ctx context.Context) error {
	conn, err := h.s.pool.connect(ctx)
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx)) //nolint:errcheck // nothing was written
	if _, err := conn.Exec(ctx, "LISTEN "+pgx.Identifier{h.s.pool.dialect.channel()}.Sanitize()); err != nil {
		return err
	}
	if err := h.probe(ctx, conn); err != nil {
		return err
	}
	h.join(time.Now())
	defer h.join(time.Time{})
	for {
		h.poll(ctx) // for lost notifications, and those from before LISTEN
		_ = h.send(ctx, notice{Node: h.node, Here: true})
		for until := time.Now().Add(jitter(pollRarely)); time.Now().Before(until); {
			waiting, cancel := context.WithDeadline(ctx, until)
			got, err := conn.WaitForNotification(waiting)
			timedOut := waiting.Err() != nil && ctx.Err() == nil
			cancel()
			switch {
			case err == nil:
				h.heard(got.Payload)
			case timedOut && !conn.IsClosed():
			default:
				return errLost
			}
		}
	}
}

// probe checks that a notification sent through the pool, like all others, arrives.
func (h *notifier) probe(ctx context.Context, conn *pgx.Conn) error {
	ctx, cancel := context.WithTimeout(ctx, probeWithin)
	defer cancel()
	if err := h.send(ctx, notice{Node: h.node, Probe: true}); err != nil {
		return err
	}
	for {
		got, err := conn.WaitForNotification(ctx)
		if err != nil {
			return err
		}
		var n notice
		if json.Unmarshal([]byte(got.Payload), &n) == nil && n.Probe && n.Node == h.node {
			return nil
		}
		h.heard(got.Payload)
	}
}

// heard passes on a notification from another node.
func (h *notifier) heard(payload string) {
	var n notice
	if json.Unmarshal([]byte(payload), &n) != nil || n.Node == h.node {
		return
	}
	if n.Inbox { // from an application
		h.spread(store.News{Inbox: true, DueKnown: true})
		return
	}
	if h.meet(n.Probe); n.Probe || n.Here {
		return
	}
	if n.Relayed != nil {
		h.spread(store.News{Relayed: n.Relayed, DueKnown: true})
		return
	}
	h.mu.Lock()
	if n.Fresh && h.followers > 0 {
		wake.Up(h.wake)
	}
	h.mu.Unlock()
	if n.Queues == nil {
		h.tellAll()
		return
	}
	h.s.registry.hear(n.Queues)
	news := store.News{Queues: n.Queues, Freed: n.Freed, Event: uint64(n.Event), Cancels: n.Cancels, DueKnown: true}
	if n.Due != 0 {
		news.Due = instant(n.Due)
	}
	h.spread(news)
}

// tellAll tells the listeners that any queue may have changed, and reports whether it
// could read the list of queues.
func (h *notifier) tellAll() bool {
	ctx, cancel := context.WithTimeout(context.Background(), notifierWithin)
	defer cancel()
	rows, err := h.s.pool.Query(ctx, "SELECT DISTINCT queue FROM "+tally)
	if err != nil {
		return false
	}
	queues, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return false
	}
	h.s.registry.hear(queues)
	h.mu.Lock()
	last := h.last
	h.mu.Unlock()
	h.spread(store.News{Queues: queues, Event: uint64(last)})
	return true
}

// poll asks the database for events that this node does not know. If there are none, it
// costs one query.
func (h *notifier) poll(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, notifierWithin)
	defer cancel()
	var last int64
	var waiting, inbox bool
	err := h.s.pool.QueryRow(ctx, unheard).Scan(&last, &waiting, &inbox)
	if err != nil {
		return
	}
	if inbox {
		h.spread(store.News{Inbox: true, DueKnown: true})
	}
	if waiting {
		if last, err = h.s.sequence(ctx); err != nil {
			return
		}
	}
	h.mu.Lock()
	h.last = max(h.last, last)
	news := last > h.polled
	h.mu.Unlock()
	if news && h.tellAll() {
		h.mu.Lock()
		h.polled = max(h.polled, last)
		h.mu.Unlock()
	}
}
