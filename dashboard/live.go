package dashboard

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/gopherqueue/gq"
)

// Limits of a stream of changes.
const (
	livePace  = 500 * time.Millisecond // between two messages
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
	jobs, queues map[string]bool
	many         bool
}

func (c *collector) add(events []gq.Event) {
	if c.jobs == nil {
		c.jobs, c.queues = make(map[string]bool), make(map[string]bool)
	}
	for i := range events {
		if len(c.jobs) >= liveNames || len(c.queues) >= liveNames {
			c.many = true
			return
		}
		c.jobs[events[i].Job.String()] = true
		c.queues[events[i].Queue] = true
	}
}

func (c *collector) take() (m change, any bool) {
	for id := range c.jobs {
		m.Jobs = append(m.Jobs, id)
	}
	for name := range c.queues {
		m.Queues = append(m.Queues, name)
	}
	m.Many = c.many
	any = len(m.Jobs) > 0 || m.Many
	*c = collector{}
	return m, any
}

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
	news := make(chan []gq.Event)
	followed := make(chan error, 1)
	go func() {
		followed <- d.queue.Follow(ctx, after, func(events []gq.Event) error {
			select {
			case news <- events:
			case <-ctx.Done():
			}
			return nil
		})
	}()
	err = d.pump(ctx, v, news, followed, send)
	cancel()
	if !errors.Is(err, errFollowEnded) {
		<-followed
	}
	return nil
}

// errFollowEnded says that the goroutine that follows the log has ended by itself.
var errFollowEnded = errors.New("the log cannot be followed")

// pump sends what has changed, at most once every livePace.
func (d *Dashboard) pump(ctx context.Context, v *visit, news <-chan []gq.Event, followed <-chan error, send func(string) error) error {
	var c collector
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
		case events := <-news:
			c.add(events)
			if !waiting {
				waiting = true
				pace.Reset(max(0, livePace-time.Since(last)))
			}
		case <-pace.C:
			text := ": beat\n\n"
			if m, any := c.take(); any {
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
			waiting, last = false, time.Now()
			pace.Reset(liveBeat)
		}
	}
}
