package dashboard_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/dashboard"
)

// TestOpenPagesShare checks that equal open pages are rendered once, each with the form token of its session, and
// that nobody sees the page of somebody with other rights.
func TestOpenPagesShare(t *testing.T) {
	s := newSite(t, dashboard.Options{Access: guests{"admin": {"mail", "secret"}, "read": {"mail"}}})
	s.dash.PretendOpen(1_000_000) // pages are shared for longer than the test takes
	reload := func(path string) string {
		t.Helper()
		a := s.do(http.MethodGet, path, nil, func(r *http.Request) { r.Header.Set("Gq-Reload", "1") })
		if a.StatusCode != http.StatusOK {
			t.Fatalf("%s: %d\n%s", path, a.StatusCode, a.body)
		}
		return a.body
	}
	const page = "queue?name=mail"
	s.submit(gq.Spec{Queue: "mail", Type: "before"})
	s.signIn("admin")
	one := s.cookie
	s.signIn("admin")
	two := s.cookie
	s.cookie = one
	first := reload(page)
	s.submit(gq.Spec{Queue: "mail", Type: "after"})
	s.cookie = two
	second := reload(page)
	if s.token(first) == s.token(second) {
		t.Fatal("two sessions have the same form token")
	}
	if strings.ReplaceAll(first, s.token(first), "") != strings.ReplaceAll(second, s.token(second), "") {
		t.Error("an open page was rendered again for a visitor with the same rights")
	}
	if strings.Contains(second, s.token(first)) {
		t.Error("a visitor got the form token of another one")
	}
	s.has(s.get(page, http.StatusOK), "after") // who comes anew sees everything up to now
	s.has(reload("jobs?queue=mail"), "after")

	s.post(second, "queue/pause", "name", "mail") // the token works, and pages are read again after an action
	s.cookie = one
	s.has(reload(page), "after", "queue/resume")

	s.signIn("read")
	s.lacks(reload(page), "queue/resume")
	if a := s.do(http.MethodGet, "live", nil, func(r *http.Request) { r.Method = http.MethodHead; r.Header.Set("Gq-Reload", "1") }); a.StatusCode != http.StatusOK {
		t.Errorf("the stream of changes: %d", a.StatusCode)
	}
}
