package dashboard

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

func TestSessionsEnd(t *testing.T) {
	var s sessions
	now := time.Date(2026, time.January, 1, 0, 0, 0, 0, time.UTC)
	v := &Visitor{Name: "v"}
	idle, busy := s.begin(v, now), s.begin(v, now)
	for at := now; at.Sub(now) < sessionLife; at = at.Add(time.Hour) {
		if s.find(busy, at) != v {
			t.Fatalf("a session in use ended after %v", at.Sub(now))
		}
	}
	if s.find(idle, now.Add(sessionIdle+time.Second)) != nil {
		t.Error("an idle session did not end")
	}
	if s.find(busy, now.Add(sessionLife+time.Second)) != nil {
		t.Error("a session in use never ends")
	}
	if s.find("", now) != nil || s.find("guess", now) != nil {
		t.Error("there is a session that nobody began")
	}
}

func TestSessionsAreFew(t *testing.T) {
	var s sessions
	now := time.Date(2026, time.January, 1, 0, 0, 0, 0, time.UTC)
	ids := make(map[string]bool)
	first := ""
	for i := range maxSessions + 10 {
		id := s.begin(&Visitor{Name: fmt.Sprint(i)}, now.Add(time.Duration(i)*time.Second))
		if first == "" {
			first = id
		}
		ids[id] = true
	}
	if len(ids) != maxSessions+10 || len(s.byID) != maxSessions {
		t.Errorf("%d ids and %d sessions", len(ids), len(s.byID))
	}
	if s.find(first, now.Add(time.Minute)) != nil {
		t.Error("the least recently used session did not end")
	}
}

// A visitor's sessions end only that visitor's, and visitors with few keep theirs when many others sign in.
func TestSessionsOfOthersStay(t *testing.T) {
	var s sessions
	now := time.Date(2026, time.January, 1, 0, 0, 0, 0, time.UTC)
	operator := s.begin(&Visitor{Name: "operator"}, now)
	second := s.begin(&Visitor{Name: "second", Key: "k"}, now)
	first := s.begin(&Visitor{Name: "greedy"}, now)
	for i := range maxOfOne {
		s.begin(&Visitor{Name: "greedy"}, now.Add(time.Duration(i+1)*time.Second))
	}
	if len(s.byID) != maxOfOne+2 || s.find(first, now) != nil {
		t.Errorf("one visitor has %d sessions", len(s.byID)-2)
	}
	for i := range 2 * maxSessions { // more than all, of many tokens
		s.begin(&Visitor{Name: "greedy", Key: fmt.Sprint(i % 100)}, now.Add(time.Hour))
	}
	if len(s.byID) != maxSessions {
		t.Errorf("there are %d sessions", len(s.byID))
	}
	if s.find(operator, now.Add(time.Hour)) == nil || s.find(second, now.Add(time.Hour)) == nil {
		t.Error("the sessions of others ended the only one of a visitor")
	}
}

// Of a visitor with too many sessions the one ends that was not used for the longest time, whichever began first.
func TestTheLeastUsedSessionEnds(t *testing.T) {
	var s sessions
	now := time.Date(2026, time.January, 1, 0, 0, 0, 0, time.UTC)
	v := &Visitor{Name: "v"}
	first, second := s.begin(v, now), s.begin(v, now.Add(time.Second))
	for i := range maxOfOne - 2 {
		s.begin(v, now.Add(time.Duration(i+2)*time.Second))
	}
	now = now.Add(time.Minute)
	if s.find(first, now) == nil {
		t.Fatal("a session ended before there were too many")
	}
	s.begin(v, now.Add(time.Second))
	if s.find(first, now) == nil || s.find(second, now) != nil {
		t.Error("the session that was used last ended")
	}
}

// Wrong sign-ins are limited for each address and for all together, until the minute is over. Right
// ones do not count.
func TestGuessesAreFew(t *testing.T) {
	var g guesses
	now := time.Date(2026, time.January, 1, 0, 0, 0, 0, time.UTC)
	slowed := func(remote string) bool {
		one := &guess{of: &g, from: networkOf(remote)}
		within := g.enter(one, now)
		if within != (one.line == nil) {
			t.Fatalf("%s may be tried: %t, and its line is %v", remote, within, one.line)
		}
		if within {
			one.end(true)
		} else {
			one.leave()
		}
		rest, slowed := one.slowed(now)
		if slowed && (rest <= 0 || rest > wrongPeriod) {
			t.Errorf("%s has to wait for %v", remote, rest)
		}
		return slowed
	}
	wrong := func(format string) (n int) {
		for ; n < 2*maxWrongAll; n++ {
			if slowed(fmt.Sprintf(format, n)) {
				break
			}
		}
		return n
	}
	for range 2 * maxWrongAll {
		one := &guess{of: &g, from: networkOf("192.0.2.1:1")}
		if !g.enter(one, now) {
			t.Fatal("right sign-ins count")
		}
		one.end(false)
	}
	if n := wrong("192.0.2.1:%d"); n != maxWrong {
		t.Errorf("%d wrong sign-ins of one address", n)
	}
	if n := wrong("[2001:db8::%x]:99"); n != maxWrong {
		t.Errorf("%d wrong sign-ins of one network", n)
	}
	if slowed("[2001:db8:0:1::1]:99") {
		t.Error("a network has to wait for its neighbour")
	}
	if n := wrong("192.0.3.%d:99"); n != maxWrongAll-2*maxWrong-1 {
		t.Errorf("%d wrong sign-ins of many addresses", n)
	}
	if !slowed("198.51.100.1:1") {
		t.Error("there is no limit for all addresses")
	}
	if len(g.lines) > 0 {
		t.Errorf("%d lines are left", len(g.lines))
	}
	now = now.Add(wrongPeriod)
	if n := wrong("192.0.2.1:%d"); n != maxWrong {
		t.Errorf("a minute later, %d wrong sign-ins of one address", n)
	}
}

// What a visitor says of where he comes from counts only behind a proxy of this machine, which adds what it knows
// at the end.
func TestClientOfARequest(t *testing.T) {
	for _, c := range []struct {
		remote    string
		forwarded []string
		want      string
	}{
		{"192.0.2.1:1", nil, "192.0.2.1:1"},
		{"192.0.2.1:1", []string{"198.51.100.1"}, "192.0.2.1:1"},
		{"[2001:db8::1]:1", []string{"198.51.100.1"}, "[2001:db8::1]:1"},
		{"127.0.0.1:1", nil, "127.0.0.1:1"},
		{"127.0.0.1:1", []string{""}, "127.0.0.1:1"},
		{"127.0.0.1:1", []string{"198.51.100.1"}, "198.51.100.1"},
		{"[::1]:1", []string{"198.51.100.1, 192.0.2.1"}, "192.0.2.1"},
		{"[::ffff:127.0.0.1]:1", []string{"198.51.100.1", "198.51.100.2 , 2001:db8::1"}, "2001:db8::1"},
	} {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/signin", nil)
		r.RemoteAddr, r.Header["X-Forwarded-For"] = c.remote, c.forwarded
		if got := clientOf(r); got != c.want {
			t.Errorf("a request from %s for %q comes from %s, want %s", c.remote, c.forwarded, got, c.want)
		}
	}
}

// Beyond the limits the sign-ins of a network are tried one at a time, with pauses; networks do not
// wait for each other.
func TestGuessesWaitInLine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var g guesses
		networks := []string{"192.0.2.1:1", "[2001:db8::1]:1"}
		for _, remote := range networks {
			for range maxWrong {
				one, err := g.begin(t.Context(), remote, time.Now())
				if err != nil {
					t.Fatal(err)
				}
				one.end(true)
			}
		}
		began := time.Now()
		const takes = 200 * time.Millisecond
		gone, leave := context.WithCancel(t.Context())
		var sent sync.WaitGroup
		for _, remote := range networks {
			var trying, tried, refused, left atomic.Int64
			for n := range maxGuesses + 3 {
				ctx := t.Context()
				if n%5 == 4 { // two of those that wait
					ctx = gone
				}
				sent.Go(func() {
					one, err := g.begin(ctx, remote, time.Now())
					switch {
					case errors.Is(err, errCrowded):
						if refused.Add(1); !time.Now().Equal(began) {
							t.Error("a refusal took its time")
						}
						return
					case err != nil:
						left.Add(1)
						return
					}
					if trying.Add(1) > 1 {
						t.Error("two sign-ins of a network are tried at once")
					}
					time.Sleep(takes)
					trying.Add(-1)
					tried.Add(1)
					one.end(n%2 == 0)
				})
				synctest.Wait() // they come in this order
			}
			defer func() {
				if tried.Load() != maxGuesses-2 || refused.Load() != 3 || left.Load() != 2 {
					t.Errorf("%s: %d were tried, %d refused, and %d left", remote, tried.Load(), refused.Load(), left.Load())
				}
			}()
		}
		leave()
		sent.Wait()
		if took, want := time.Since(began), (maxGuesses-2)*(guessPause+takes); took != want {
			t.Errorf("they took %v, want %v", took, want)
		}
		if len(g.lines) > 0 {
			t.Errorf("%d lines are left", len(g.lines))
		}
	})
}

func TestPatternsOfMessages(t *testing.T) {
	for message, want := range map[string]string{
		"connection 4 refused": "connection # refused", "host db-7.local: timeout after 30s": "host # timeout after #",
		"no such user\nat line 3": "no such user …", "": "",
	} {
		if got := pattern(message); got != want {
			t.Errorf("%q has the pattern %q, want %q", message, got, want)
		}
	}
}

func TestTextIsPrintable(t *testing.T) {
	for text, want := range map[string]string{
		"plain": "plain", "\x1b[31mred": `\u001b[31mred`, "a\xffb": `a\xffb`, "\u202eevil": `\u202eevil`, "line\nnext\ttab": "line\nnext\ttab", "€\ufffd": "€\ufffd",
	} {
		if got := printable(text); got != want {
			t.Errorf("%q is shown as %q, want %q", text, got, want)
		}
	}
	if got := oneLine(string(make([]byte, 100_000))); len(got) > 10*maxLine {
		t.Errorf("a long line has %d bytes", len(got))
	}
}
