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
