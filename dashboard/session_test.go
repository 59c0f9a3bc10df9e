package dashboard

import (
	"fmt"
	"testing"
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

// Wrong sign-ins are limited for each address and for all together, until the minute is over.
func TestGuessesAreFew(t *testing.T) {
	var g guesses
	now := time.Date(2026, time.January, 1, 0, 0, 0, 0, time.UTC)
	wrong := func(format string) (n int) {
		for ; n < 2*maxWrongAll; n++ {
			if wait := g.wrong(fmt.Sprintf(format, n), now); wait > 0 {
				if wait > wrongPeriod {
					t.Errorf("%s has to wait for %v", format, wait)
				}
				break
			}
		}
		return n
	}
	if n := wrong("192.0.2.1:%d"); n != maxWrong {
		t.Errorf("%d wrong sign-ins of one address", n)
	}
	if n := wrong("[2001:db8::%x]:99"); n != maxWrong {
		t.Errorf("%d wrong sign-ins of one network", n)
	}
	if wait := g.wrong("[2001:db8:0:1::1]:99", now); wait > 0 {
		t.Error("a network has to wait for its neighbour")
	}
	if n := wrong("192.0.3.%d:99"); n != maxWrongAll-2*maxWrong-1 {
		t.Errorf("%d wrong sign-ins of many addresses", n)
	}
	if wait := g.wrong("198.51.100.1:1", now); wait == 0 {
		t.Error("there is no limit for all addresses")
	}
	now = now.Add(wrongPeriod)
	if n := wrong("192.0.2.1:%d"); n != maxWrong {
		t.Errorf("a minute later, %d wrong sign-ins of one address", n)
	}
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
