package dashboard_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/dashboard"
	_ "github.com/gopherqueue/gq/driver/file"
	"github.com/gopherqueue/gq/internal/testing/leaktest"
)

// TestMain fails the package if a goroutine outlives its tests.
func TestMain(m *testing.M) { leaktest.Main(m) }

// site is a dashboard over a queue in memory, and a browser.
type site struct {
	*testing.T
	queue  *gq.Client
	dash   *dashboard.Dashboard
	server *httptest.Server
	prefix string
	cookie string
}

func newSite(t *testing.T, o dashboard.Options) *site {
	t.Helper()
	queue, err := gq.Open(t.Context(), "memory:")
	if err != nil {
		t.Fatal(err)
	}
	s := &site{T: t, queue: queue, prefix: o.Prefix}
	if s.dash, err = dashboard.New(queue, o); err != nil {
		t.Fatal(err)
	}
	s.server = httptest.NewServer(s.dash)
	t.Cleanup(func() {
		s.dash.Close()
		s.server.Close()
		if err := queue.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// answer is a response with its body.
type answer struct {
	*http.Response
	body string
}

// do sends a request as a browser on the page would.
func (s *site) do(method, path string, form url.Values, change ...func(*http.Request)) answer {
	s.Helper()
	r, err := http.NewRequestWithContext(s.Context(), method, s.server.URL+s.prefix+"/"+path, strings.NewReader(form.Encode()))
	if err != nil {
		s.Fatal(err)
	}
	if form != nil {
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		r.Header.Set("Origin", s.server.URL)
	}
	if s.cookie != "" {
		r.Header.Set("Cookie", s.cookie)
	}
	for _, f := range change {
		f(r)
	}
	client := http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	response, err := client.Do(r)
	if err != nil {
		s.Fatal(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		s.Fatal(err)
	}
	for _, c := range response.Cookies() {
		if c.MaxAge >= 0 {
			s.cookie = c.Name + "=" + c.Value
		} else {
			s.cookie = ""
		}
	}
	return answer{response, string(body)}
}

// get returns a page that must have a status.
func (s *site) get(path string, status int) string {
	s.Helper()
	a := s.do(http.MethodGet, path, nil)
	if a.StatusCode != status {
		s.Fatalf("GET %s: %d, want %d\n%s", path, a.StatusCode, status, a.body)
	}
	return a.body
}

var csrfField = regexp.MustCompile(`name="csrf" value="([^"]+)"`)

// token returns the form token of a page.
func (s *site) token(page string) string {
	s.Helper()
	found := csrfField.FindStringSubmatch(page)
	if found == nil {
		s.Fatal("the page has no form with a token")
	}
	return found[1]
}

// post sends a form of a page and returns where the browser goes next.
func (s *site) post(page, path string, fields ...string) string {
	s.Helper()
	form := url.Values{"csrf": {s.token(page)}}
	for i := 0; i < len(fields); i += 2 {
		form.Set(fields[i], fields[i+1])
	}
	a := s.do(http.MethodPost, path, form)
	if a.StatusCode != http.StatusSeeOther {
		s.Fatalf("POST %s: %d\n%s", path, a.StatusCode, a.body)
	}
	at, err := url.Parse("http://x" + s.prefix + "/" + path)
	if err != nil {
		s.Fatal(err)
	}
	to, err := at.Parse(a.Header.Get("Location"))
	if err != nil {
		s.Fatal(err)
	}
	return strings.TrimPrefix(strings.TrimPrefix(to.RequestURI(), s.prefix), "/")
}

// has fails unless the page has all of the texts.
func (s *site) has(page string, texts ...string) {
	s.Helper()
	for _, text := range texts {
		if !strings.Contains(page, text) {
			s.Errorf("the page lacks %q:\n%s", text, page)
		}
	}
}

// lacks fails if the page has one of the texts.
func (s *site) lacks(page string, texts ...string) {
	s.Helper()
	for _, text := range texts {
		if strings.Contains(page, text) {
			s.Errorf("the page has %q", text)
		}
	}
}

// submit submits a job.
func (s *site) submit(spec gq.Spec) gq.JobID {
	s.Helper()
	out, err := s.queue.Submit(s.Context(), spec)
	if err != nil {
		s.Fatal(err)
	}
	return out.ID()
}

// claim claims a job of a queue.
func (s *site) claim(queue string) gq.Job {
	s.Helper()
	jobs, err := s.queue.Claim(s.Context(), gq.ClaimRequest{Worker: "worker-1", Queues: []string{queue}, N: 1})
	if err != nil || len(jobs) != 1 {
		s.Fatalf("claimed %d jobs: %v", len(jobs), err)
	}
	return jobs[0]
}

// kill makes a dead letter.
func (s *site) kill(queue, kind, message string) gq.JobID {
	s.Helper()
	spec := gq.Spec{Queue: queue, Type: kind}
	spec.Overrides.MaxAttempts = 1
	id := s.submit(spec)
	job := s.claim(queue)
	if _, err := s.queue.Fail(s.Context(), job.State.Lease.Ref(), gq.Failure{Category: gq.CategoryTemporary, Code: "down", Message: message}); err != nil {
		s.Fatal(err)
	}
	return id
}

// guests are tokens with the queues that they see; a token that begins with read may not act.
type guests map[string][]string

func (g guests) Required(context.Context) bool { return true }

func (g guests) Anonymous() *dashboard.Visitor { return nil }

func (g guests) SignIn(_ context.Context, token, _ string) (*dashboard.Visitor, error) {
	queues, ok := g[token]
	if !ok {
		return nil, gq.ErrUnauthenticated
	}
	return &dashboard.Visitor{Name: "name of " + token, Key: token, May: func(p dashboard.Permission, queue string) bool {
		if p != dashboard.Read && strings.HasPrefix(token, "read") {
			return false
		}
		for _, q := range queues {
			if q == queue {
				return true
			}
		}
		return false
	}, Valid: func(context.Context) error {
		if _, ok := g[token]; !ok {
			return errors.New("revoked")
		}
		return nil
	}}, nil
}

// signIn signs a visitor in.
func (s *site) signIn(token string) {
	s.Helper()
	s.cookie = ""
	s.post(s.get("signin", http.StatusOK), "signin", "token", token)
	if s.cookie == "" {
		s.Fatal("there is no session")
	}
}

func soon() time.Duration { return time.Hour }
