package dashboard_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/dashboard"
)

// hostile are names that a page must show as text.
var hostile = []string{
	`<script>alert(1)</script>`, `"><img src=x onerror=alert(1)>`, `' onmouseover='alert(1)`, `{{.CSRF}}`, `javascript:alert(1)`,
	"\u202eevil\u202c", "a\u200bb", "tab\tand more", strings.Repeat("x", 256), `</title><script>`, "</svg><script>alert(1)</script>",
}

var tags = regexp.MustCompile(`<[^>]*>`)

func TestHostileNamesAreText(t *testing.T) {
	s := newSite(t, dashboard.Options{})
	var ids []gq.JobID
	for _, name := range hostile {
		spec := gq.Spec{Queue: "mail", Type: name, Requester: "r", LimitKey: name, FairKey: name, Payload: gq.Payload{Data: []byte(name + "\xff\x1b[31m"), ContentType: "text/x"}}
		spec.Payload.ContentType = gq.OctetStream
		spec.Metadata = gq.Metadata{CorrelationID: name, Tags: map[string]string{name: "v"}}
		spec.Overrides.MaxAttempts = 1
		out, err := s.queue.Submit(t.Context(), spec)
		if err != nil {
			t.Logf("the queue refuses %q: %v", name, err)
			continue
		}
		ids = append(ids, out.ID())
		jobs, err := s.queue.Claim(t.Context(), gq.ClaimRequest{Worker: name, Queues: []string{"mail"}, N: 1})
		if err != nil {
			t.Logf("a worker cannot have the name %q: %v", name, err)
			if jobs, err = s.queue.Claim(t.Context(), gq.ClaimRequest{Worker: "w", Queues: []string{"mail"}, N: 1}); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := s.queue.Fail(t.Context(), jobs[0].State.Lease.Ref(), gq.Failure{Category: gq.CategoryTemporary, Message: strings.Repeat(name, 200)}); err != nil {
			t.Fatal(err)
		}
	}
	if len(ids) < 5 {
		t.Fatalf("only %d of the names were accepted", len(ids))
	}
	paths := []string{"", "queues", "queue?name=mail", "jobs", "dead", "events", "workers", "jobs?find=" + url.QueryEscape(hostile[0]), "jobs?type=" + url.QueryEscape(hostile[1])}
	for _, id := range ids {
		paths = append(paths, "jobs/"+id.String(), "jobs/"+id.String()+"?show=payload")
	}
	for _, q := range hostile {
		paths = append(paths, "queue?name="+url.QueryEscape(q), "jobs?state="+url.QueryEscape(q), "jobs?tag="+url.QueryEscape(q), "?done="+url.QueryEscape(q), "queues?find="+url.QueryEscape(q), "jobs/"+url.PathEscape(q))
	}
	for _, path := range paths {
		page := s.do(http.MethodGet, path, nil).body
		s.lacks(page, "<script>", "<img", " onmouseover='", "</svg><script", "\x1b", `href="javascript`)
		s.lacks(tags.ReplaceAllString(page, ""), "\u202e", "\u200b") // fields keep them
		s.lacks(page, "style=", "<style", "onclick=", "onload=")
		if strings.Count(page, "<script") > 1 { // app.js
			t.Errorf("%s has a second script", path)
		}
	}
}

func TestHeadersOfEveryResponse(t *testing.T) {
	s := newSite(t, dashboard.Options{})
	page := s.get("", http.StatusOK)
	assets := regexp.MustCompile(`assets/[a-z]+\.[0-9a-f]+\.[a-z]+`).FindAllString(page, -1)
	if len(assets) != 4 {
		t.Fatalf("the page has the assets %v", assets)
	}
	for _, path := range append(assets, "", "jobs", "nothing", "signin", "jobs?state=nothing") {
		a := s.do(http.MethodGet, path, nil)
		policy := a.Header.Get("Content-Security-Policy")
		for _, part := range []string{"default-src 'none'", "script-src 'self'", "style-src 'self'", "connect-src 'self'", "form-action 'self'", "frame-ancestors 'none'", "base-uri 'none'"} {
			if !strings.Contains(policy, part) {
				t.Errorf("%s: the policy lacks %s", path, part)
			}
		}
		if strings.Contains(policy, "unsafe") || strings.Contains(policy, "http") || strings.Contains(policy, "*") {
			t.Errorf("%s: the policy is %s", path, policy)
		}
		if a.Header.Get("X-Content-Type-Options") != "nosniff" || a.Header.Get("X-Frame-Options") != "DENY" {
			t.Errorf("%s: headers %v", path, a.Header)
		}
		if cached := strings.Contains(a.Header.Get("Cache-Control"), "immutable"); cached != strings.HasPrefix(path, "assets/") {
			t.Errorf("%s: Cache-Control %s", path, a.Header.Get("Cache-Control"))
		}
	}
	for _, link := range regexp.MustCompile(`(?:href|src|action)="([^"]*)"`).FindAllStringSubmatch(page, -1) {
		if strings.HasPrefix(link[1], "/") || strings.Contains(link[1], "//") {
			t.Errorf("the link %s is not relative", link[1])
		}
	}
}

func TestFormsOfOtherSites(t *testing.T) {
	s := newSite(t, dashboard.Options{})
	s.submit(gq.Spec{Queue: "mail", Type: "t"})
	page := s.get("queue?name=mail", http.StatusOK)
	good := url.Values{"csrf": {s.token(page)}, "name": {"mail"}}
	for name, attack := range map[string]struct {
		form   url.Values
		change func(*http.Request)
	}{
		"no token":     {url.Values{"name": {"mail"}}, func(*http.Request) {}},
		"wrong token":  {url.Values{"name": {"mail"}, "csrf": {"x"}}, func(*http.Request) {}},
		"other origin": {good, func(r *http.Request) { r.Header.Set("Origin", "https://evil.example") }},
		"null origin":  {good, func(r *http.Request) { r.Header.Set("Origin", "null") }},
		"no origin":    {good, func(r *http.Request) { r.Header.Del("Origin") }},
		"cross site":   {good, func(r *http.Request) { r.Header.Set("Sec-Fetch-Site", "cross-site") }},
		"same site":    {good, func(r *http.Request) { r.Header.Set("Sec-Fetch-Site", "same-site") }},
		"token in url": {url.Values{"name": {"mail"}}, func(r *http.Request) { r.URL.RawQuery = good.Encode() }},
		"foreign host": {good, func(r *http.Request) { r.Host = "evil.example"; r.Header.Set("Origin", "http://evil.example") }},
	} {
		if a := s.do(http.MethodPost, "queue/pause", attack.form, attack.change); a.StatusCode != http.StatusForbidden {
			t.Errorf("%s: %d", name, a.StatusCode)
		}
	}
	if q, err := s.queue.Queue(t.Context(), "mail"); err != nil || q.Paused {
		t.Errorf("the queue is %+v, %v", q, err)
	}
	for _, path := range []string{"queue/pause", "dead/replay", "signout", "schedules/pause"} {
		if a := s.do(http.MethodGet, path, nil); a.StatusCode == http.StatusOK || a.StatusCode == http.StatusSeeOther {
			t.Errorf("GET %s: %d", path, a.StatusCode)
		}
	}
}

// A form is accepted only in the session whose page it comes from.
func TestTokensBelongToTheirSession(t *testing.T) {
	s := newSite(t, dashboard.Options{Access: guests{"one": {"mail", ""}, "other": {"mail", ""}}})
	s.submit(gq.Spec{Queue: "mail", Type: "t"})
	s.signIn("one")
	first := s.get("queue?name=mail", http.StatusOK)
	s.signIn("other")
	form := url.Values{"csrf": {s.token(first)}, "name": {"mail"}}
	if a := s.do(http.MethodPost, "queue/pause", form); a.StatusCode != http.StatusForbidden {
		t.Errorf("a form of another session: %d", a.StatusCode)
	}
	s.signIn("one")
	if a := s.do(http.MethodPost, "queue/pause", form); a.StatusCode != http.StatusForbidden {
		t.Errorf("a form of an earlier session of the visitor: %d", a.StatusCode)
	}
	s.post(s.get("queue?name=mail", http.StatusOK), "queue/pause", "name", "mail")
}

func TestRebinding(t *testing.T) {
	s := newSite(t, dashboard.Options{Hosts: []string{"queue.example"}})
	for host, status := range map[string]int{
		"evil.example": 403, "evil.example:8780": 403, "127.0.0.1.evil.example": 403, "localhost": 200, "queue": 200, "[::1]:80": 200, "queue.example:80": 200,
	} {
		if a := s.do(http.MethodGet, "jobs", nil, func(r *http.Request) { r.Host = host }); a.StatusCode != status {
			t.Errorf("%s: %d, want %d", host, a.StatusCode, status)
		}
	}
}

func TestSignIn(t *testing.T) {
	g := guests{"all": {"mail", "reports", ""}}
	s := newSite(t, dashboard.Options{Access: g})
	page := s.get("jobs?state=failed", http.StatusUnauthorized)
	s.has(page, `name="token"`, `value="jobs?state=failed"`)
	s.lacks(page, "Overview</a>")
	form := url.Values{"csrf": {s.token(page)}, "token": {"wrong"}}
	if a := s.do(http.MethodPost, "signin", form); a.StatusCode != http.StatusUnauthorized || !strings.Contains(a.body, "not a valid token") || s.cookie != "" {
		t.Errorf("a wrong token: %d", a.StatusCode)
	}
	if a := s.do(http.MethodPost, "signin", url.Values{"token": {"all"}}); a.StatusCode != http.StatusForbidden {
		t.Errorf("without a form token: %d", a.StatusCode)
	}
	form = url.Values{"csrf": {s.token(page)}, "token": {"all"}, "next": {"jobs?state=failed"}}
	a := s.do(http.MethodPost, "signin", form)
	if a.StatusCode != http.StatusSeeOther || a.Header.Get("Location") != "./jobs?state=failed" {
		t.Errorf("signed in: %d %s", a.StatusCode, a.Header.Get("Location"))
	}
	if c := a.Header.Get("Set-Cookie"); !strings.Contains(c, "HttpOnly") || !strings.Contains(c, "SameSite=Strict") || strings.Contains(c, "all") {
		t.Errorf("the cookie is %s", c)
	}
	old := s.token(page)
	page = s.get("", http.StatusOK)
	s.has(page, "Signed in as name of all")
	if s.token(page) == old {
		t.Error("the form token does not depend on the session")
	}
	for _, next := range []string{"https://evil.example", "//evil.example", "/\\evil.example", "javascript:alert(1)", "\\\\evil"} {
		form.Set("next", next)
		form.Set("csrf", s.token(page))
		a := s.do(http.MethodPost, "signin", form)
		if a.Header.Get("Location") != "./" {
			t.Errorf("next=%s leads to %q", next, a.Header.Get("Location"))
		}
		page = s.get("", http.StatusOK)
	}
	was := s.cookie
	if to := s.post(page, "signout"); to != "signin" || s.cookie != "" {
		t.Errorf("signed out: %s %s", to, s.cookie)
	}
	s.cookie = was
	s.get("", http.StatusUnauthorized) // the session is gone on the server

	s.signIn("all")
	delete(g, "all")
	s.has(s.get("", http.StatusUnauthorized), `name="token"`)
}

// counted is guests who are counted when they sign in.
type counted struct {
	guests
	tries *atomic.Int64
}

func (c counted) SignIn(ctx context.Context, token, from string) (*dashboard.Visitor, error) {
	c.tries.Add(1)
	return c.guests.SignIn(ctx, token, from)
}

// After many wrong tokens of an address few others are tried, and a right one is still accepted.
func TestWrongSignIns(t *testing.T) {
	var tries atomic.Int64
	s := newSite(t, dashboard.Options{Access: counted{guests{"all": {""}}, &tries}})
	form := url.Values{"csrf": {s.token(s.get("signin", http.StatusOK))}, "token": {"wrong"}}
	began := time.Now()
	wrong := 0
	for ; wrong < 1000; wrong++ {
		a := s.do(http.MethodPost, "signin", form)
		if a.StatusCode == http.StatusTooManyRequests {
			if a.Header.Get("Retry-After") == "" || !strings.Contains(a.body, "This is not a valid token, and there were too many wrong ones within a minute. A valid one is accepted at any time.") {
				t.Errorf("refused with %v and %s", a.Header, a.body)
			}
			break
		}
	}
	if wrong != 20 {
		t.Errorf("%d wrong sign-ins", wrong)
	}
	if took := time.Since(began); took < time.Second {
		t.Errorf("one too many was tried after %v", took)
	}
	// As many as wait for their turn, and one too many, which is refused at once.
	sending, stop := context.WithCancel(t.Context())
	var waiting sync.WaitGroup
	var refused atomic.Int64
	tries.Store(0)
	began = time.Now()
	for range 20 {
		waiting.Go(func() {
			for refused.Load() == 0 && sending.Err() == nil && !t.Failed() {
				r, err := http.NewRequestWithContext(sending, http.MethodPost, s.server.URL+"/signin", strings.NewReader(form.Encode()))
				if err != nil {
					t.Error(err)
					return
				}
				r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
				r.Header.Set("Origin", s.server.URL)
				a, err := s.server.Client().Do(r)
				if err != nil {
					return // the test has seen enough
				}
				defer a.Body.Close()
				body, err := io.ReadAll(a.Body)
				if err != nil || !strings.Contains(string(body), "Now one a second is tried from your network, and 10 wait already.") {
					continue // it had its turn
				}
				if refused.Add(1); a.StatusCode != http.StatusTooManyRequests || a.Header.Get("Retry-After") == "" {
					t.Errorf("refused with %s and %v", a.Status, a.Header)
				}
				stop()
			}
		})
	}
	waiting.Wait()
	stop()
	if refused.Load() == 0 || tries.Load() > 2+int64(time.Since(began)/time.Second) {
		t.Errorf("%d sign-ins were refused while 10 waited, and %d tried", refused.Load(), tries.Load())
	}
	// Behind a proxy of this machine, others sign in at once meanwhile.
	form.Set("token", "all")
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.server.URL+"/signin", strings.NewReader(form.Encode()))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	r.Header.Set("Origin", s.server.URL)
	r.Header.Set("X-Forwarded-For", "192.0.2.1, 192.0.2.2")
	tries.Store(0)
	other, err := s.server.Client().Transport.RoundTrip(r) // which follows no redirect
	if err != nil {
		t.Fatal(err)
	}
	_ = other.Body.Close()
	if other.StatusCode != http.StatusSeeOther {
		t.Errorf("another client of the proxy: %s", other.Status)
	}
	began = time.Now()
	a := s.do(http.MethodPost, "signin", form)
	for ; strings.Contains(a.body, "wait already"); a = s.do(http.MethodPost, "signin", form) { // the server learns later that they left
		began = time.Now()
	}
	if a.StatusCode != http.StatusSeeOther || s.cookie == "" {
		t.Errorf("a right token then: %s", a.Status)
	}
	if took := time.Since(began); took < time.Second {
		t.Errorf("a right token was tried after %v", took)
	}
}

func TestCookieIsSecureOutsideOfLoopback(t *testing.T) {
	s := newSite(t, dashboard.Options{Access: guests{"all": nil}})
	for name, row := range map[string]struct {
		host, proto string
		secure      bool
	}{
		"loopback": {"127.0.0.1:80", "", false}, "localhost": {"localhost", "", false}, "elsewhere": {"queue.example", "", true}, "proxy": {"localhost", "https", true},
	} {
		change := func(r *http.Request) {
			r.Host = row.host
			r.Header.Set("Origin", "http://"+row.host)
			if row.proto != "" {
				r.Header.Set("X-Forwarded-Proto", row.proto)
			}
		}
		page := s.do(http.MethodGet, "signin", nil, change).body
		if warned := strings.Contains(page, "unencrypted connection"); warned != (name == "elsewhere") {
			t.Errorf("%s: warned %v", name, warned)
		}
		a := s.do(http.MethodPost, "signin", url.Values{"csrf": {s.token(page)}, "token": {"all"}}, change)
		if got := strings.Contains(a.Header.Get("Set-Cookie"), "Secure"); got != row.secure {
			t.Errorf("%s: the cookie is %s", name, a.Header.Get("Set-Cookie"))
		}
		s.cookie = ""
	}
}

func TestReadersSeeNoActions(t *testing.T) {
	var did []dashboard.Action
	s := newSite(t, dashboard.Options{
		Access: guests{"read": {"mail", ""}, "all": {"mail", ""}},
		Audit:  func(_ context.Context, a dashboard.Action) { did = append(did, a) },
	})
	id := s.kill("mail", "email.send", "down")
	live := s.submit(gq.Spec{Queue: "mail", Type: "t", Delay: soon()})
	paths := []string{"queue?name=mail", "jobs?queue=mail&state=dead_letter", "jobs/" + id.String(), "jobs/" + live.String(), "dead", "schedules"}
	s.signIn("read")
	for _, path := range paths {
		page := s.get(path, http.StatusOK)
		if n := strings.Count(page, `method="post"`); n != 1 { // sign out
			t.Errorf("%s offers %d actions to a reader", path, n-1)
		}
	}
	s.has(s.get("jobs/"+id.String()+"?show=payload", http.StatusOK), "Redacted: your token may not read the payload")
	s.lacks(s.get("queue/limits?name=mail", http.StatusForbidden), `name="max_running"`)
	s.signIn("all")
	for _, path := range paths[:4] {
		if page := s.get(path, http.StatusOK); strings.Count(page, `method="post"`) < 2 {
			t.Errorf("%s offers no actions", path)
		}
	}
	s.post(s.get("queue?name=mail", http.StatusOK), "queue/pause", "name", "mail")
	if len(did) != 1 || did[0].Visitor != "name of all" || did[0].Name != "pause" || did[0].Target != "queue mail" || did[0].Err != nil || did[0].From == "" {
		t.Errorf("the trail is %+v", did)
	}
}

func TestPrefix(t *testing.T) {
	s := newSite(t, dashboard.Options{Prefix: "/admin/queue/"})
	s.prefix = "/admin/queue"
	id := s.submit(gq.Spec{Queue: "mail", Type: "t", Delay: soon()})
	s.has(s.get("", http.StatusOK), `href="./queue?name=mail"`)
	page := s.get("jobs/"+id.String(), http.StatusOK)
	s.has(page, `href="../queue?name=mail"`, `action="../jobs/`+id.String()+`/run"`)
	if to := s.post(page, "jobs/"+id.String()+"/run"); !strings.HasPrefix(to, "jobs/"+id.String()) {
		t.Errorf("the action leads to %s", to)
	}
	if a := s.do(http.MethodGet, "../../jobs", nil); a.StatusCode != http.StatusNotFound {
		t.Errorf("outside of the prefix: %d", a.StatusCode)
	}
	if _, err := dashboard.New(s.queue, dashboard.Options{Prefix: "queue"}); err == nil {
		t.Error("a prefix without a slash was accepted")
	}

	// Behind a proxy that removes a prefix.
	stripped := httptest.NewServer(http.StripPrefix("/tools", mustNew(t, s.queue)))
	defer stripped.Close()
	response, err := http.Get(stripped.URL + "/tools/jobs/" + id.String()) //nolint:noctx // a test
	if err != nil || response.StatusCode != http.StatusOK {
		t.Fatalf("%v %v", response, err)
	}
	_ = response.Body.Close()
}

func mustNew(t *testing.T, q gq.Driver) *dashboard.Dashboard {
	t.Helper()
	d, err := dashboard.New(q, dashboard.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(d.Close)
	return d
}

// stream opens a stream of changes and returns its lines.
func (s *site) stream(path string) (lines *bufio.Scanner, end func()) {
	s.Helper()
	ctx, cancel := context.WithCancel(s.Context())
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, s.server.URL+"/"+path, nil)
	if err != nil {
		s.Fatal(err)
	}
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		s.Fatal(err)
	}
	return bufio.NewScanner(response.Body), func() {
		cancel()
		response.Body.Close()
	}
}

func TestLive(t *testing.T) {
	s := newSite(t, dashboard.Options{})
	lines, end := s.stream("live")
	defer end()
	next := func(prefix string) string {
		t.Helper()
		for lines.Scan() {
			if rest, ok := strings.CutPrefix(lines.Text(), prefix); ok {
				return rest
			}
		}
		t.Fatalf("the stream ended before %s", prefix)
		return ""
	}
	next("event: hello")
	id := s.submit(gq.Spec{Queue: "mail", Type: "t"})
	next("event: change")
	if data := next("data: "); !strings.Contains(data, id.String()) || !strings.Contains(data, `"mail"`) {
		t.Errorf("the change is %s", data)
	}
	s.dash.Close()
	for lines.Scan() {
	}
	if err := lines.Err(); err != nil {
		t.Errorf("the stream ended with %v", err)
	}
}

// TestLiveTellsWhatThePageMissed checks that a change between the reading of a page and its stream is not lost.
func TestLiveTellsWhatThePageMissed(t *testing.T) {
	s := newSite(t, dashboard.Options{})
	after := func() string {
		t.Helper()
		found := regexp.MustCompile(`data-watch="all" data-after="([0-9]+)"`).FindStringSubmatch(s.get("jobs", http.StatusOK))
		if found == nil {
			t.Fatal("the page does not say which event it may know")
		}
		return found[1]
	}
	first := func(after string) string {
		t.Helper()
		lines, end := s.stream("live?after=" + after)
		defer end()
		for lines.Scan() {
			switch data, ok := strings.CutPrefix(lines.Text(), "data: "); {
			case lines.Text() == "event: hello": // also sent if nothing was missed
				lines.Scan()
				s.submit(gq.Spec{Queue: "later", Type: "t"})
			case ok:
				return data
			}
		}
		t.Fatal("the stream ended")
		return ""
	}
	known := after()
	if got := first(known); !strings.Contains(got, `"later"`) {
		t.Errorf("a page that knows everything is told %s before anything happens", got)
	}
	known = after()
	s.submit(gq.Spec{Queue: "mail", Type: "t"})
	if got := first(known); !strings.Contains(got, `"many":true`) {
		t.Errorf("a page that has missed a change is told %s", got)
	}
	if got := first("nonsense"); !strings.Contains(got, `"later"`) {
		t.Errorf("a page with a strange address is told %s", got)
	}
}

func TestLiveNeedsASession(t *testing.T) {
	s := newSite(t, dashboard.Options{Access: guests{"all": nil}})
	if a := s.do(http.MethodGet, "live", nil); a.StatusCode != http.StatusUnauthorized {
		t.Errorf("without a session: %d", a.StatusCode)
	}
}

// At level debug each request is a line with its id and status, and none has a query or a form.
func TestRequestsAreLogged(t *testing.T) {
	var lines bytes.Buffer
	level := new(slog.LevelVar)
	level.Set(slog.LevelDebug)
	s := newSite(t, dashboard.Options{Log: slog.New(slog.NewJSONHandler(&lines, &slog.HandlerOptions{Level: level}))})
	ask := func(method, path, form string) int {
		r := httptest.NewRequestWithContext(t.Context(), method, path, strings.NewReader(form))
		r.Host = "localhost"
		r.Header.Set("X-Request-Id", "mine")
		if form != "" {
			r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		}
		w := httptest.NewRecorder()
		lines.Reset()
		s.dash.ServeHTTP(w, r)
		return w.Code
	}
	for _, test := range []struct {
		method, path, form string
		status             int
	}{
		{"GET", "/?x=SECRET", "", 200}, {"GET", "/queues", "", 200}, {"GET", "/nothing", "", 404}, {"GET", "/jobs/nothing?x=SECRET", "", 404},
		{"POST", "/queue/pause", "name=SECRET", 403}, {"GET", "/assets/nothing", "", 404},
	} {
		got := ask(test.method, test.path, test.form)
		path, _, _ := strings.Cut(test.path, "?")
		var line map[string]any
		if err := json.Unmarshal(lines.Bytes(), &line); err != nil || got != test.status || line["msg"] != "call" || line["request_id"] != "mine" ||
			line["method"] != test.method || line["path"] != path || line["status"] != float64(test.status) || line["took_ms"] == nil || strings.Contains(lines.String(), "SECRET") {
			t.Errorf("%s %s: %d, %v: %s", test.method, test.path, got, err, lines.String())
		}
	}
	level.Set(slog.LevelInfo)
	if ask("GET", "/nothing", ""); lines.Len() > 0 {
		t.Errorf("at level info: %s", lines.String())
	}
}
