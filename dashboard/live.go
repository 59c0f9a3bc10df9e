package dashboard

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/internal/wake"
)

// Limits of a stream of changes.
const (
	livePace  = 500 * time.Millisecond // between two messages, at least
	liveShare = 50 * time.Millisecond  // between two messages to any page: many open pages are updated less often
	liveBeat  = 15 * time.Second       // between two messages while nothing happens
	liveStuck = 10 * time.Second       // a browser that accepts nothing for this long is cut off
	liveNames = 50                     // jobs or queues of one message; more are "many"
)

// change is a message to an open page: what has changed since the last one. The page reloads
// its parts if that concerns it.
type change struct {
	Jobs   []string `json:"jobs,omitempty"`
	Queues []string `json:"queues,omitempty"`
	Many   bool     `json:"many,omitempty"` // more than the message names
}

// collector gathers changes between two messages.
type collector struct {
	mu           sync.Mutex
	jobs, queues map[string]bool // guarded by mu
	many         bool            // guarded by mu
	last         time.Time       // of the last change; guarded by mu
}

// add adds the changes of events. It reports whether they are the first since the last message. Once
// there are many, single ones do not matter.
func (c *collector) add(events []gq.Event) (first bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.last = time.Now()
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
	return first
}

// take returns the changes since the last message.
func (c *collector) take() (m change, any bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for id := range c.jobs {
		m.Jobs = append(m.Jobs, id)
	}
	for name := range c.queues {
		m.Queues = append(m.Queues, name)
	}
	m.Many = c.many
	c.jobs, c.queues, c.many = nil, nil, false
	return m, len(m.Jobs) > 0 || m.Many
}

// changed is when the last change was.
func (c *collector) changed() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.last
}

// again adds the changes of a message that is to be repeated.
func (c *collector) again(m change) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.jobs == nil {
		c.jobs, c.queues = make(map[string]bool), make(map[string]bool)
	}
	for _, id := range m.Jobs {
		c.jobs[id] = true
	}
	for _, name := range m.Queues {
		c.queues[name] = true
	}
	c.many = c.many || m.Many
}

// pace is the time between two messages to a page, which grows with the number of open pages.
func (d *Dashboard) pace() time.Duration {
	return max(livePace, time.Duration(d.streams.Load())*liveShare)
}

// sharedFor is how long a page that was rendered for one visitor is shown to others. It is never longer than the pace.
func (d *Dashboard) sharedFor() time.Duration { return max(livePace, d.pace()/2) }

// live streams changes as server-sent events until the browser or the dashboard goes.
func (d *Dashboard) live(v *visit) error {
	after, err := d.queue.LastEvent(v.ctx)
	if err != nil {
		return err
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
	if v.r.Method == http.MethodHead || send("retry: 2000\nevent: hello\ndata: {}\n\n") != nil {
		return nil
	}
	d.streams.Add(1)
	defer d.streams.Add(-1)
	var c collector
	news := make(chan struct{}, 1)
	followed := make(chan error, 1)
	go func() {
		followed <- d.queue.Follow(ctx, after, func(events []gq.Event) error {
			if c.add(events) {
				wake.Up(news)
			}
			return nil
		})
	}()
	err = d.pump(ctx, v, &c, news, followed, send)
	cancel()
	if !errors.Is(err, errFollowEnded) {
		<-followed
	}
	return nil
}

// errFollowEnded says that the goroutine that follows the log has ended by itself.
var errFollowEnded = errors.New("the log cannot be followed")

// pump sends what has changed, at most once every livePace. Equal pages are shared for a
// short time, so a page that reloads at once may show what was before the last change: it is told again
// after that time.
func (d *Dashboard) pump(ctx context.Context, v *visit, c *collector, news <-chan struct{}, followed <-chan error, send func(string) error) error {
	pace := time.NewTimer(liveBeat)
	defer pace.Stop()
	waiting := false // a message is due soon
	last := time.Time{}
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-followed:
			return errFollowEnded // the page reconnects
		case <-news:
			if !waiting {
				waiting = true
				pace.Reset(max(0, d.pace()-time.Since(last)))
			}
		case <-pace.C:
			text := ": beat\n\n"
			m, any := c.take()
			if any {
				data, err := json.Marshal(m)
				if err != nil {
					return err
				}
				text = fmt.Sprintf("event: change\ndata: %s\n\n", data)
			}
			if v.who.Valid != nil && v.who.Valid(ctx) != nil {
				return gq.ErrUnauthenticated
			}
			if err := send(text); err != nil {
				return err
			}
			last = time.Now()
			if waiting = any && time.Since(c.changed()) < d.sharedFor(); waiting {
				c.again(m)
				pace.Reset(d.pace())
			} else {
				pace.Reset(liveBeat)
			}
		}
	}
}
