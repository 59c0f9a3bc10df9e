package dashboard

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gopherqueue/gq"
)

// logBatch is the number of events that a log gives at once, more than a message names.
const logBatch = 2 * liveNames

// log is a driver with events only.
type log struct {
	gq.Driver
	mu    sync.Mutex
	last  uint64        // guarded by mu
	grown chan struct{} // closed when last grows; guarded by mu
	given atomic.Int64  // events that were followed
}

func (l *log) add(n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.last += uint64(n)
	close(l.grown)
	l.grown = make(chan struct{})
}

func (l *log) state() (last uint64, grown <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.last, l.grown
}

func (l *log) LastEvent(context.Context) (uint64, error) {
	last, _ := l.state()
	return last, nil
}

func (l *log) Follow(ctx context.Context, after uint64, f func([]gq.Event) error) error {
	for {
		last, grown := l.state()
		for after < last {
			var events []gq.Event
			for ; after < last && len(events) < logBatch; after++ {
				events = append(events, gq.Event{Seq: after + 1, Job: gq.JobID{15: byte(after), 14: byte(after >> 8)}, Queue: "mail"})
			}
			l.given.Add(int64(len(events)))
			if err := f(events); err != nil {
				return err
			}
		}
		select {
		case <-grown:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// TestLiveMessages checks what an open page is told: every change, again after the time for which pages are shared,
// and not more often than the pace. While there are more changes than a message names, the log is not read.
func TestLiveMessages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		events := &log{grown: make(chan struct{})}
		told := make(chan string, 1000)
		l := stream{
			d: &Dashboard{queue: events}, v: &visit{who: &Visitor{}}, news: make(chan struct{}, 1), resume: make(chan uint64, 1),
			send: func(text string) error { told <- text; return nil },
		}
		ctx, stop := context.WithCancel(t.Context())
		followed, ended := make(chan error, 1), make(chan error, 1)
		go func() { followed <- l.follow(ctx, 0) }()
		go func() { ended <- l.pump(ctx, followed, change{Many: true}) }()
		last := "" // of the messages with changes
		// changes waits and returns how many messages named changes, and how many said that there are many.
		changes := func(d time.Duration) (named, many int) {
			time.Sleep(d)
			synctest.Wait()
			for range len(told) {
				text := <-told
				if strings.Contains(text, "event: change") {
					last = text
				}
				switch {
				case strings.Contains(text, `"many":true`):
					many++
				case strings.Contains(text, "event: change"):
					named++
				}
			}
			return named, many
		}
		check := func(what string, d time.Duration, wantNamed, wantMany int) {
			t.Helper()
			if named, many := changes(d); named != wantNamed || many != wantMany {
				t.Errorf("%s: %d messages with names and %d with many, want %d and %d", what, named, many, wantNamed, wantMany)
			}
		}
		check("what the page had missed, told at once, is told again", livePace, 0, 1)
		check("nothing happened", time.Minute, 0, 0)
		events.add(1)
		check("a change, told at once", time.Millisecond, 1, 0)
		if strings.Contains(last, `"seq"`) {
			t.Errorf("a page that reads itself now may show what was before, and is told that it need not read again: %s", last)
		}
		check("told again", livePace, 1, 0)
		if !strings.Contains(last, `"seq":1`) {
			t.Errorf("the last message does not say which event it covers: %s", last)
		}
		check("and no more", time.Minute, 0, 0)

		events.add(1000)
		check("many changes", time.Millisecond, 0, 1)
		events.add(1) // another one before the message is repeated
		check("told again with another change", livePace, 0, 1)
		check("which is told again too", livePace, 1, 0)
		check("and no more after many", time.Minute, 0, 0)

		events.given.Store(0)
		for range 100 { // for ten seconds
			events.add(10_000)
			time.Sleep(livePace / 5)
		}
		if named, many := changes(time.Minute); named != 0 || many < 20 || many > 25 {
			t.Errorf("under load: %d messages with names and %d with many", named, many)
		}
		if most := 25 * logBatch; events.given.Load() > int64(most) {
			t.Errorf("%d of a million events were read for a page, want at most %d", events.given.Load(), most)
		}
		events.add(1)
		check("a change afterwards", 2*livePace, 2, 0)
		stop()
		<-ended
	})
}

// TestStreamEndsWithTheSession checks that an open page gets beats while its visitor is signed in, and nothing after that.
func TestStreamEndsWithTheSession(t *testing.T) {
	for name, end := range map[string]func(d *Dashboard, session string, valid *atomic.Bool){
		"sign-out":      func(d *Dashboard, session string, _ *atomic.Bool) { d.sessions.end(session) },
		"revoked token": func(_ *Dashboard, _ string, valid *atomic.Bool) { valid.Store(false) },
		"idle":          func(*Dashboard, string, *atomic.Bool) { time.Sleep(sessionIdle) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				events := &log{grown: make(chan struct{})}
				d := &Dashboard{queue: events, now: time.Now}
				var valid atomic.Bool
				valid.Store(true)
				who := &Visitor{Valid: func(context.Context) error {
					if !valid.Load() {
						return gq.ErrUnauthenticated
					}
					return nil
				}}
				session := d.sessions.begin(who, d.now())
				told := make(chan string, 1000)
				l := stream{
					d: d, v: &visit{d: d, who: who, session: session}, news: make(chan struct{}, 1), resume: make(chan uint64, 1),
					send: func(text string) error { told <- text; return nil },
				}
				ctx, stop := context.WithCancel(t.Context())
				followed, ended := make(chan error, 1), make(chan error, 1)
				go func() { followed <- l.follow(ctx, 0) }()
				go func() { ended <- l.pump(ctx, followed, change{}) }()
				time.Sleep(4*liveBeat + time.Second)
				synctest.Wait()
				for range 4 {
					if text := <-told; !strings.HasPrefix(text, "event: beat\n") {
						t.Errorf("an idle page is told %q", text)
					}
				}
				if len(told) != 0 {
					t.Errorf("%d more messages than beats", len(told))
				}
				end(d, session, &valid)
				for len(told) > 0 {
					<-told
				}
				events.add(1)
				if err := <-ended; !errors.Is(err, gq.ErrUnauthenticated) {
					t.Errorf("the stream ended with %v", err)
				}
				if len(told) != 0 {
					t.Errorf("a page without a session is told %q", <-told)
				}
				stop()
				<-followed
			})
		})
	}
}
