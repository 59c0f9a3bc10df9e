package dashboard_test

import (
	"bufio"
	"context"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/dashboard"
)

// placed is a queue with places for some followers.
type placed struct {
	gq.Driver
	taken chan struct{}
}

func (p placed) Subscribe(context.Context) (func(), error) {
	select {
	case p.taken <- struct{}{}:
		return func() { <-p.taken }, nil
	default:
		return nil, noPlace{}
	}
}

type noPlace struct{}

func (noPlace) Error() string             { return "2 event subscriptions are open, as many as one server allows" }
func (noPlace) RetryAfter() time.Duration { return 4 * time.Second }
func (noPlace) Unwrap() error             { return gq.ErrTooMany }

// A stream for which there is no place is refused with the number before it begins. Others give their place back.
func TestStreamsTakePlaces(t *testing.T) {
	s := newSite(t, dashboard.Options{})
	queue := placed{s.queue, make(chan struct{}, 2)}
	d, err := dashboard.New(queue, dashboard.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	s.server.Config.Handler = d
	ctx, leave := context.WithCancel(t.Context())
	defer leave()
	for range cap(queue.taken) {
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, s.server.URL+"/live", http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		response, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer response.Body.Close()
		for lines, line := bufio.NewReader(response.Body), ""; line != "event: hello\n"; {
			if line, err = lines.ReadString('\n'); err != nil {
				t.Fatal(err)
			}
		}
	}
	refused := s.do(http.MethodGet, "live", nil)
	if refused.StatusCode != http.StatusTooManyRequests || !strings.Contains(refused.body, "2 event subscriptions are open") || refused.Header.Get("Retry-After") != "4" {
		t.Errorf("a third stream is answered with %d, %q, Retry-After %q", refused.StatusCode, refused.body, refused.Header.Get("Retry-After"))
	}
	leave()
	for range cap(queue.taken) {
		select {
		case queue.taken <- struct{}{}:
		case <-time.After(time.Minute):
			t.Fatal("a stream that has ended keeps its place")
		}
	}
}
