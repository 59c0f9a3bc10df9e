package dashboard_test

import (
	"net/http"
	"net/http/httptest"
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
	s.signIn("read") // signing in makes pages be read again, so everybody does first
	reader := s.cookie
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

	s.cookie = reader
	s.lacks(reload(page), "queue/resume")
	s.cookie = one
	s.has(reload(page), "queue/resume")

	s.submit(gq.Spec{Queue: "secret", Type: "hidden"}) // pages of one path with other queries are others
	s.lacks(reload("queue?name=mail"), `name=secret`)
	s.has(reload("queue?name=secret"), `name=secret`)
	s.has(reload("jobs?queue=secret"), "hidden")
	if a := s.do(http.MethodGet, "live", nil, func(r *http.Request) { r.Method = http.MethodHead; r.Header.Set("Gq-Reload", "1") }); a.StatusCode != http.StatusOK {
		t.Errorf("the stream of changes: %d", a.StatusCode)
	}
}

// TestOpenPagesThatFail checks that nobody waits for a page that could not be rendered for another visitor.
func TestOpenPagesThatFail(t *testing.T) {
	s := newSite(t, dashboard.Options{})
	s.dash.PretendOpen(1_000_000)
	missing := "jobs/00000000-0000-4000-8000-000000000000"
	for range 2 {
		a := s.do(http.MethodGet, missing, nil, func(r *http.Request) { r.Header.Set("Gq-Reload", "1") })
		if a.StatusCode != http.StatusNotFound {
			t.Fatalf("%d, want %d\n%s", a.StatusCode, http.StatusNotFound, a.body)
		}
	}
}

// slowBrowser accepts a page only once it is released.
type slowBrowser struct {
	*httptest.ResponseRecorder
	writes, release chan struct{}
}

func (b slowBrowser) Write(p []byte) (int, error) {
	close(b.writes)
	<-b.release
	return b.ResponseRecorder.Write(p)
}

// TestNobodyWaitsForASlowBrowser checks that a page is shared once it is rendered, not once the first browser has got it.
func TestNobodyWaitsForASlowBrowser(t *testing.T) {
	s := newSite(t, dashboard.Options{})
	s.dash.PretendOpen(1_000_000)
	s.submit(gq.Spec{Queue: "mail", Type: "t"})
	request := func() *http.Request {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/queue?name=mail", nil)
		r.Header.Set("Gq-Reload", "1")
		return r
	}
	slow := slowBrowser{httptest.NewRecorder(), make(chan struct{}), make(chan struct{})}
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.dash.ServeHTTP(slow, request())
	}()
	<-slow.writes
	other := httptest.NewRecorder()
	s.dash.ServeHTTP(other, request())
	close(slow.release)
	<-done
	if other.Code != http.StatusOK || other.Body.String() != slow.Body.String() {
		t.Errorf("the other browser got %d and %d bytes, want the page of %d bytes", other.Code, other.Body.Len(), slow.Body.Len())
	}
}
