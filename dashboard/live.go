package dashboard

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/internal/wake"
)

// Limits of a stream of changes.
const (
	livePace  = 500 * time.Millisecond // between two messages, at least
	liveShare = 50 * time.Millisecond  // between two messages to any page: many open pages are updated less often
	liveBeat  = 15 * time.Second       // between two beats: a page that hears nothing for longer connects again
	liveStuck = 10 * time.Second       // a browser that accepts nothing for this long is cut off
	liveNames = 50                     // jobs or queues of one message; more are "many"
)

// change is a message to an open page: what has changed since the last one. The page reloads
// its parts if that concerns it.
type change struct {
	Jobs   []string `json:"jobs,omitempty"`
	Queues []string `json:"queues,omitempty"`
	Many   bool     `json:"many,omitempty"` // more than the message names
	Seq    uint64   `json:"seq,omitempty"`  // the newest event of which pages need not be told again
}

// collector gathers changes between two messages.
type collector struct {
	mu           sync.Mutex
	jobs, queues map[string]bool // guarded by mu
	many         bool            // guarded by mu
	seen         uint64          // the newest event; guarded by mu
	last         time.Time       // when the last change came; guarded by mu
}

// add adds the changes of events. It reports whether they are the first since the last message, and whether
// there are too many to name: further ones do not matter until the message is sent.
func (c *collector) add(events []gq.Event) (first, many bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.last, c.seen = time.Now(), events[len(events)-1].Seq
	first = len(c.jobs) == 0 && !c.many
	if c.jobs == nil {
		c.jobs, c.queues = make(map[string]bool), make(map[string]bool)
	}
	for i := range events {
		if c.many = c.many || len(c.jobs) >= liveNames || len(c.queues) >= liveNames; c.many {
			break
		}
		c.jobs[events[i].Job.String()] = true
		c.queues[events[i].Queue] = true
	}
	return first, c.many
}

// full reports whether there are too many changes to name.
func (c *collector) full() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.many
}

// take returns the changes since the last message, and the newest event and its time.
func (c *collector) take() (m change, seen uint64, last time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	m = change{Jobs: slices.Collect(maps.Keys(c.jobs)), Queues: slices.Collect(maps.Keys(c.queues)), Many: c.many, Seq: c.seen}
	c.jobs, c.queues, c.many = nil, nil, false
	return m, c.seen, c.last
}

// message returns the change as a server-sent event.
func (m change) message() string {
	data, _ := json.Marshal(m) // never fails
	return "event: change\ndata: " + string(data) + "\n\n"
}

func (m change) empty() bool { return len(m.Jobs) == 0 && !m.Many }

// and returns the changes of two messages.
func (m change) and(other change) change {
	union := func(a, b []string) []string {
		all := slices.Concat(a, b)
		slices.Sort(all)
		return slices.Compact(all)
	}
	m.Jobs, m.Queues, m.Many = union(m.Jobs, other.Jobs), union(m.Queues, other.Queues), m.Many || other.Many
	m.Seq = max(m.Seq, other.Seq)
	return m
}

// subscriber is a queue that limits how many callers follow it. A stream takes its place before it begins: a browser that
// was told of success could not be refused.
type subscriber interface {
	Subscribe(ctx context.Context) (free func(), err error)
}

// pace is the time between two messages to a page, which grows with the number of open pages.
func (d *Dashboard) pace() time.Duration {
	return max(livePace, time.Duration(d.streams.Load())*liveShare)
}

// sharedFor is how long a page that was rendered for one visitor is shown to others. It is never longer than the pace.
func (d *Dashboard) sharedFor() time.Duration { return max(livePace, d.pace()/2) }

// live streams changes as server-sent events until the browser, its session or the dashboard goes. The parameter
// after is the newest event that the page may know: if there are newer ones, the page is told to reload.
func (d *Dashboard) live(v *visit) error {
	after, err := d.queue.LastEvent(v.ctx)
	if err != nil {
		return err
	}
	if q, ok := d.queue.(subscriber); ok {
		free, err := q.Subscribe(v.ctx)
		if err != nil {
			return err
		}
		defer free()
	}
	ctx, cancel := context.WithCancel(v.ctx)
	defer cancel()
	defer context.AfterFunc(d.serving, cancel)()
	h := v.w.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("X-Accel-Buffering", "no") // turns off buffering in proxies
	control := http.NewResponseController(v.w)
	send := func(text string) error {
		_ = control.SetWriteDeadline(time.Now().Add(liveStuck)) // test recorders have no deadline
		if _, err := v.w.Write([]byte(text)); err != nil {
			return err
		}
		return control.Flush()
	}
	v.w.WriteHeader(http.StatusOK)
	var missed change
	hello := fmt.Sprintf("retry: 2000\nevent: hello\ndata: {\"seq\":%d}\n\n", after)
	if known, err := strconv.ParseUint(v.r.URL.Query().Get("after"), 10, 64); err == nil && known < after {
		missed.Many = true
		hello = "retry: 2000\nevent: hello\ndata: {}\n\n" + missed.message()
		missed.Seq = after // once it is told again
	}
	if v.r.Method == http.MethodHead || send(hello) != nil {
		return nil
	}
	d.streams.Add(1)
	defer d.streams.Add(-1)
	l := stream{d: d, v: v, send: send, news: make(chan struct{}, 1), resume: make(chan uint64, 1)}
	followed := make(chan error, 1)
	go func() { followed <- l.follow(ctx, after) }()
	err = l.pump(ctx, followed, missed)
	cancel()
	if !errors.Is(err, errFollowEnded) {
		<-followed
	}
	return nil
}

// errFollowEnded says that the goroutine that follows the log has ended by itself.
var errFollowEnded = errors.New("the log cannot be followed")

// errEnough ends following the log until the next message is sent.
var errEnough = errors.New("there is enough to tell")

// stream tells an open page what has changed.
type stream struct {
	d      *Dashboard
	v      *visit
	send   func(string) error
	c      collector
	news   chan struct{} // there is something to tell
	resume chan uint64   // the event after which to follow the log again
}

// follow collects the changes after an event. While there are more than a message can name it does not read
// the log: the message that says so covers everything before it.
func (l *stream) follow(ctx context.Context, after uint64) error {
	for {
		err := l.d.queue.Follow(ctx, after, func(events []gq.Event) error {
			first, many := l.c.add(events)
			if first {
				wake.Up(l.news)
			}
			if many {
				return errEnough
			}
			return nil
		})
		if !errors.Is(err, errEnough) {
			return err
		}
		select {
		case after = <-l.resume:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// collected returns what has changed since the last message, and whether a page that was rendered a short time ago
// may lack some of it.
func (l *stream) collected(ctx context.Context) (m change, recent bool, err error) {
	var upTo uint64
	full := l.c.full()
	if full { // what the message covers need not be read
		if upTo, err = l.d.queue.LastEvent(ctx); err != nil {
			return m, false, err
		}
	}
	m, seen, last := l.c.take()
	if m.Many {
		m.Seq = max(seen, upTo)
		l.resume <- m.Seq
	}
	return m, full || !m.empty() && time.Since(last) < l.d.sharedFor(), nil
}

// pump sends what has changed, at most once every livePace, and a beat every liveBeat. Equal pages are shared for a
// short time, so a page that reloads at once may show what was before the last change: it is told again
// after that time. told is what the page was told last.
func (l *stream) pump(ctx context.Context, followed <-chan error, told change) error {
	beat := time.NewTicker(liveBeat)
	defer beat.Stop()
	pace := time.NewTimer(l.d.pace())
	defer pace.Stop()
	repeat := told             // to be told again
	waiting := !repeat.empty() // a message is due soon
	var last time.Time         // of the last message with changes
	if waiting {
		last = time.Now()
	} else {
		pace.Stop()
	}
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-followed:
			return errFollowEnded // the page reconnects
		case <-l.news:
			if !waiting {
				waiting = true
				pace.Reset(max(0, l.d.pace()-time.Since(last)))
			}
		case <-beat.C:
			if err := l.tell(ctx, "event: beat\ndata: {}\n\n"); err != nil {
				return err
			}
		case <-pace.C:
			m, recent, err := l.collected(ctx)
			if err != nil {
				return err
			}
			if all := m.and(repeat); !all.empty() {
				if recent {
					all.Seq = 0
				}
				if err := l.tell(ctx, all.message()); err != nil {
					return err
				}
				last = time.Now()
			}
			waiting, repeat = recent, change{}
			if recent {
				repeat = m
				pace.Reset(l.d.pace())
			}
		}
	}
}

// tell sends a message unless the visitor has to sign in again.
func (l *stream) tell(ctx context.Context, text string) error {
	if l.v.session != "" && !l.d.sessions.lasts(l.v.session, l.d.now()) {
		return gq.ErrUnauthenticated
	}
	if l.v.who.Valid != nil && l.v.who.Valid(ctx) != nil {
		return gq.ErrUnauthenticated
	}
	return l.send(text)
}
