package dashboard

import (
	"context"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gopherqueue/gq"
)

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
		for ; after < last; after++ {
			l.given.Add(1)
			id := gq.JobID{15: byte(after), 14: byte(after >> 8)}
			if err := f([]gq.Event{{Seq: after + 1, Job: id, Queue: "mail"}}); err != nil {
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
		go func() { ended <- l.pump(ctx, followed) }()
		// changes waits and returns how many messages named changes, and how many said that there are many.
		changes := func(d time.Duration) (named, many int) {
			time.Sleep(d)
			synctest.Wait()
			for range len(told) {
				text := <-told
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
		check("nothing happened", time.Minute, 0, 0)
		events.add(1)
		check("a change, told at once", time.Millisecond, 1, 0)
		check("told again", livePace, 1, 0)
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
		if most := 25 * 2 * liveNames; events.given.Load() > int64(most) {
			t.Errorf("%d of a million events were read for a page, want at most %d", events.given.Load(), most)
		}
		events.add(1)
		check("a change afterwards", 2*livePace, 2, 0)
		stop()
		<-ended
	})
}
