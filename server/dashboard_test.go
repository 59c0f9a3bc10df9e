package server_test

import (
	"bytes"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/server"
	"github.com/gopherqueue/gq/server/config"
)

const adminToken = "an-admin-token-of-the-test"

// visitor is a browser that has signed in to the dashboard of a server.
type visitor struct {
	*testing.T
	at   string
	http *http.Client
}

func (v visitor) do(r *http.Request) (int, string) {
	v.Helper()
	response, err := v.http.Do(r)
	if err != nil {
		v.Fatal(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		v.Fatal(err)
	}
	return response.StatusCode, string(body)
}

func (v visitor) get(path string) (int, string) {
	v.Helper()
	r, err := http.NewRequestWithContext(v.Context(), http.MethodGet, v.at+path, nil)
	if err != nil {
		v.Fatal(err)
	}
	r.Header.Set("Accept", "text/html")
	return v.do(r)
}

var csrf = regexp.MustCompile(`name="csrf" value="([^"]+)"`)

func (v visitor) post(path string, fields ...string) (int, string) {
	v.Helper()
	_, page := v.get("/signin")
	form := url.Values{"csrf": {csrf.FindStringSubmatch(page)[1]}}
	for i := 0; i < len(fields); i += 2 {
		form.Set(fields[i], fields[i+1])
	}
	r, err := http.NewRequestWithContext(v.Context(), http.MethodPost, v.at+path, strings.NewReader(form.Encode()))
	if err != nil {
		v.Fatal(err)
	}
	r.Header.Set("Accept", "text/html")
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	r.Header.Set("Origin", v.at)
	return v.do(r)
}

// enter signs in with a token.
func enter(t *testing.T, web *httptest.Server, token string) visitor {
	t.Helper()
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	v := visitor{t, web.URL, &http.Client{Jar: jar, Transport: web.Client().Transport}}
	if status, page := v.post("/signin", "token", token); status != http.StatusOK || !strings.Contains(page, "Sign out") {
		t.Fatalf("sign in: %d\n%s", status, page)
	}
	return v
}

// makeToken creates a token through the API.
func makeToken(t *testing.T, web *httptest.Server, body string) string {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, web.URL+"/v1/tokens", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Authorization", "Bearer "+adminToken)
	response, err := web.Client().Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	var made struct{ Token string }
	if err := json.NewDecoder(response.Body).Decode(&made); err != nil || made.Token == "" {
		t.Fatalf("no token: %d, %v", response.StatusCode, err)
	}
	return made.Token
}

func TestDashboardBesideTheAPIs(t *testing.T) {
	var lines logLines
	s, _ := embedded(t, server.Options{Log: slog.New(slog.NewJSONHandler(&lines, &slog.HandlerOptions{Level: slog.LevelDebug}))})
	web := httptest.NewServer(s.Handler())
	defer web.Close()
	v := visitor{t, web.URL, web.Client()}
	for path, want := range map[string]struct {
		status int
		html   bool
	}{
		"/": {200, true}, "/jobs": {200, true}, "/nothing": {404, true}, "/v1/nothing": {404, false}, "/v1/queues": {200, false},
		"/healthz": {200, false}, "/api/nothing": {404, false}, "/openapi.json": {200, false},
	} {
		if status, page := v.get(path); status != want.status || strings.Contains(page, "<!DOCTYPE html>") != want.html {
			t.Errorf("%s: %d %.100s", path, status, page)
		}
	}
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, web.URL+"/nothing", nil)
	if err != nil {
		t.Fatal(err)
	}
	if status, page := v.do(r); status != 404 || !strings.Contains(page, "no_such_route") {
		t.Errorf("a program gets %d %.100s", status, page)
	}
	r.URL.Path = "/jobs" // the scheduler API has it below its base only
	if status, page := v.do(r); status != 404 || !strings.Contains(page, "no_such_route") {
		t.Errorf("a program gets %d %.100s for a page of the dashboard", status, page)
	}
	r.Host = "evil.example"
	if status, page := v.do(r); status != 403 || !strings.Contains(page, "foreign_host") {
		t.Errorf("under a foreign name: %d %.100s", status, page)
	}
	r.Header.Set("Accept", "text/html")
	if status, _ := v.do(r); status != 403 {
		t.Errorf("the dashboard under a foreign name: %d", status)
	}
	web.Close() // its calls have ended and are logged
	for _, line := range []string{
		`"path":"/","status":200`, `"path":"/nothing","status":404`, `"path":"/v1/nothing","status":404`, `"path":"/jobs","status":403`, `"code":"foreign_host"`,
	} {
		if !strings.Contains(lines.text(), line) {
			t.Errorf("no line of the log has %s:\n%s", line, lines.text())
		}
	}
}

// logLines are those of the log of a server.
type logLines struct {
	mu  sync.Mutex
	all bytes.Buffer // guarded by mu
}

func (l *logLines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.all.Write(p)
}

func (l *logLines) text() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.all.String()
}

// A token sees exactly the queues of its scopes, and a token that only reads cannot act,
// whatever it sends.
func TestDashboardRoles(t *testing.T) {
	s, e := embedded(t, server.Options{AdminToken: adminToken})
	web := httptest.NewServer(s.Handler())
	defer web.Close()
	ids := make(map[string]string)
	for _, queue := range []string{"mail", "secret"} {
		out, err := e.Submit(t.Context(), gq.Spec{Queue: queue, Type: queue + ".type"})
		if err != nil {
			t.Fatal(err)
		}
		ids[queue] = out.ID().String()
	}
	if status, page := (visitor{t, web.URL, web.Client()}).get("/"); status != http.StatusUnauthorized || strings.Contains(page, "mail") {
		t.Errorf("without a session: %d", status)
	}
	reader := enter(t, web, makeToken(t, web, `{"name":"reader","grants":[{"scopes":["read"],"queues":["mail"]}]}`))
	for _, path := range []string{"/", "/queues", "/jobs", "/workers", "/dead", "/workflows", "/schedules", "/events", "/queue?name=mail", "/jobs/" + ids["mail"]} {
		status, page := reader.get(path)
		if status != http.StatusOK {
			t.Errorf("%s: %d\n%s", path, status, page)
		}
		if strings.Contains(page, "secret") || strings.Contains(page, ids["secret"]) {
			t.Errorf("%s shows a foreign queue\n%s", path, page)
		}
		if n := strings.Count(page, `method="post"`); n != 1 {
			t.Errorf("%s offers %d actions", path, n-1)
		}
	}
	for _, path := range []string{"/queue?name=secret", "/jobs/" + ids["secret"], "/jobs?queue=secret", "/queue/limits?name=secret"} {
		if status, page := reader.get(path); status != http.StatusForbidden || strings.Contains(page, "secret.type") {
			t.Errorf("%s: %d", path, status)
		}
	}
	_, first := reader.get("/")
	for _, link := range regexp.MustCompile(`<a href="\.(/[^"]*)" data-key="`).FindAllStringSubmatch(first, -1) {
		if status, _ := reader.get(link[1]); status != http.StatusOK {
			t.Errorf("the navigation leads a reader to %s: %d", link[1], status)
		}
	}
	for path, fields := range map[string][]string{
		"/queue/pause": {"name", "mail"}, "/queue/limits": {"name", "mail", "max_running", "1", "apply", "1"},
		"/jobs/" + ids["mail"] + "/cancel": nil, "/jobs/" + ids["mail"] + "/priority": {"priority", "HIGH"}, "/jobs/" + ids["mail"] + "/purge": nil,
		"/jobs/bulk": {"queue", "mail", "action", "cancel", "confirm", "1"},
	} {
		if status, _ := reader.post(path, fields...); status != http.StatusForbidden {
			t.Errorf("%s of a reader: %d", path, status)
		}
	}
	counts, err := e.Counts(t.Context(), "mail")
	if err != nil || counts[0].By[gq.StatusScheduled] != 1 {
		t.Errorf("there are %+v, %v", counts, err)
	}

	admin := enter(t, web, adminToken)
	if status, page := admin.post("/jobs/"+ids["secret"]+"/cancel", "reason", "over"); status != http.StatusOK || !strings.Contains(page, "cancelled in the dashboard by bootstrap: over") {
		t.Errorf("cancel by an administrator: %d\n%s", status, page)
	}
}

// A token with the scope observe sees that jobs exist and how they fare, nothing of what is in
// them, and cannot act.
func TestDashboardForAnObserver(t *testing.T) {
	s, e := embedded(t, server.Options{AdminToken: adminToken})
	web := httptest.NewServer(s.Handler())
	defer web.Close()
	const secret = "4111-1111-1111-1111"
	submit := func(kind string) gq.Job {
		t.Helper()
		spec := gq.Spec{Queue: "mail", Type: kind, Payload: gq.Payload{Data: []byte(`{"card":"` + secret + `"}`), ContentType: gq.JSON}}
		spec.Overrides.MaxAttempts = 1
		if _, err := e.Submit(t.Context(), spec); err != nil {
			t.Fatal(err)
		}
		jobs, err := e.Claim(t.Context(), gq.ClaimRequest{Worker: "w", Queues: []string{"mail"}, N: 1})
		if err != nil || len(jobs) != 1 {
			t.Fatalf("%d jobs, %v", len(jobs), err)
		}
		lease := jobs[0].State.Lease.Ref()
		beats, err := e.Heartbeat(t.Context(), []gq.Heartbeat{{Lease: lease, Progress: 0.5, Note: "charges " + secret, Checkpoint: []byte(`"at ` + secret + `"`)}})
		if err != nil || beats[0].Err != nil {
			t.Fatal(beats, err)
		}
		return jobs[0]
	}
	completed := submit("card.charge")
	if _, err := e.Complete(t.Context(), completed.State.Lease.Ref(), []byte(`"charged `+secret+`"`)); err != nil {
		t.Fatal(err)
	}
	dead := submit("card.refund")
	if _, err := e.Fail(t.Context(), dead.State.Lease.Ref(), gq.Failure{Category: gq.CategoryTemporary, Code: "declined", Message: "no such card: " + secret}); err != nil {
		t.Fatal(err)
	}
	held := submit("card.check")
	paths := []string{"/", "/queues", "/queue?name=mail", "/jobs", "/jobs?state=dead_letter", "/jobs?queue=mail&state=completed", "/dead", "/events", "/workers", "/workflows", "/schedules"}
	for _, j := range []gq.Job{completed, dead, held} {
		for _, show := range []string{"", "?show=payload", "?show=result", "?show=checkpoint"} {
			paths = append(paths, "/jobs/"+j.Spec.ID.String()+show)
		}
	}
	observer := enter(t, web, makeToken(t, web, `{"name":"observer","grants":[{"scopes":["observe"],"queues":["*"]}]}`))
	for _, path := range paths {
		status, page := observer.get(path)
		if status != http.StatusOK {
			t.Errorf("%s: %d\n%s", path, status, page)
		}
		if strings.Contains(page, secret) {
			t.Errorf("%s shows an observer what is in a job", path)
		}
		if n := strings.Count(page, `method="post"`); n != 1 { // sign out
			t.Errorf("%s offers an observer %d actions", path, n-1)
		}
		if _, part, ok := strings.Cut(path, "?show="); ok && !strings.Contains(page, "Redacted: your token may not read the "+part) {
			t.Errorf("%s does not say why there is nothing", path)
		}
	}
	for path, fields := range map[string][]string{
		"/queue/pause": {"name", "mail"}, "/jobs/" + held.Spec.ID.String() + "/cancel": nil, "/jobs/" + dead.Spec.ID.String() + "/replay": nil,
		"/jobs/bulk": {"queue", "mail", "action", "cancel", "confirm", "1"},
	} {
		if status, _ := observer.post(path, fields...); status != http.StatusForbidden {
			t.Errorf("%s of an observer: %d", path, status)
		}
	}
	if counts, err := e.Counts(t.Context(), "mail"); err != nil || counts[0].Held() != 1 || counts[0].By[gq.StatusDeadLetter] != 1 || counts[0].By[gq.StatusCompleted] != 1 {
		t.Errorf("there are %+v, %v", counts, err)
	}
	// The same pages show it to a token with read.
	reader := enter(t, web, makeToken(t, web, `{"name":"reader","grants":[{"scopes":["read"],"queues":["*"]}]}`))
	for _, path := range []string{
		"/jobs/" + completed.Spec.ID.String() + "?show=payload", "/jobs/" + completed.Spec.ID.String() + "?show=result",
		"/jobs/" + held.Spec.ID.String() + "?show=checkpoint", "/jobs/" + held.Spec.ID.String(), "/dead", "/jobs?state=dead_letter", "/events", "/",
	} {
		if status, page := reader.get(path); status != http.StatusOK || !strings.Contains(page, secret) {
			t.Errorf("%s shows a reader nothing of a job: %d", path, status)
		}
	}
}

// A visitor with a session gets a page of the dashboard, however long or strange the address is.
func TestDashboardAddresses(t *testing.T) {
	s, e := embedded(t, server.Options{AdminToken: adminToken})
	web := httptest.NewServer(s.Handler())
	defer web.Close()
	if _, err := e.Submit(t.Context(), gq.Spec{Queue: "mail", Type: "t"}); err != nil {
		t.Fatal(err)
	}
	admin := enter(t, web, adminToken)
	for _, text := range []string{"%00", "%ff%fe", "%e2%80%ae", "-1", "0", "18446744073709551615", "18446744073709551616", "'", strings.Repeat("x", 4000), strings.Repeat("x", 9000), strings.Repeat("9", 60_000)} {
		for _, path := range []string{
			"/", "/?x=", "/jobs/", "/jobs?queue=", "/jobs?type=", "/jobs?tag=a=", "/jobs?cursor=", "/jobs?find=", "/queue?name=", "/queues?after=", "/events?queue=", "/dead?queue=",
			"/workflows/", "/workflows?cursor=", "/rounds/", "/rounds?before=", "/providers?after=", "/audit?by=", "/audit?verb=", "/audit?cursor=", "/webhooks?state=", "/webhooks?cursor=",
		} {
			status, page := admin.get(path + text)
			if status == http.StatusUnauthorized || status >= http.StatusInternalServerError || !strings.Contains(page, "Signed in as bootstrap") {
				t.Errorf("%s%.40s (%d characters): %d %.300s", path, text, len(text), status, page)
			}
		}
	}
}

// A session ends with its token.
func TestDashboardSessionEndsWithItsToken(t *testing.T) {
	s, _ := embedded(t, server.Options{AdminToken: adminToken})
	web := httptest.NewServer(s.Handler())
	defer web.Close()
	v := enter(t, web, makeToken(t, web, `{"name":"gone","grants":[{"scopes":["read"],"queues":["*"]}]}`))
	r, err := http.NewRequestWithContext(t.Context(), http.MethodDelete, web.URL+"/v1/tokens/gone", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+adminToken)
	if status, text := (visitor{t, web.URL, web.Client()}).do(r); status != http.StatusOK {
		t.Fatalf("revoke: %d %s", status, text)
	}
	if status, page := v.get("/jobs"); status != http.StatusUnauthorized || !strings.Contains(page, `name="token"`) {
		t.Errorf("after it was revoked: %d", status)
	}
}

// Pages of a server that a queue alone does not have.
func TestDashboardPagesOfAServer(t *testing.T) {
	s, e := embedded(t, server.Options{AdminToken: adminToken, Version: "gq v9"})
	web := httptest.NewServer(s.Handler())
	defer web.Close()
	token := makeToken(t, web, `{"name":"reader","grants":[{"scopes":["read"],"queues":["mail.*"]}]}`)
	if err := e.PutPool(t.Context(), gq.Pool{Name: "gpu", Capacity: 8}); err != nil {
		t.Fatal(err)
	}
	if _, err := e.ChangeQueue(t.Context(), "render", func(q *gq.Queue) { q.Pool = "gpu" }); err != nil {
		t.Fatal(err)
	}
	if _, err := e.Submit(t.Context(), gq.Spec{Queue: "render", Type: "scene", CostUnits: 3}); err != nil {
		t.Fatal(err)
	}
	if _, err := e.Claim(t.Context(), gq.ClaimRequest{Worker: "big-machine", Queues: []string{"render"}, N: 1}); err != nil {
		t.Fatal(err)
	}
	reader := enter(t, web, token)
	for _, path := range []string{"/tokens", "/pools"} {
		if status, _ := reader.get(path); status != http.StatusForbidden {
			t.Errorf("%s for a reader of some queues: %d", path, status)
		}
	}
	if status, page := reader.get("/about"); status != http.StatusOK || strings.Contains(page, "retention.completed") {
		t.Errorf("about for a reader: %d", status)
	}
	admin := enter(t, web, adminToken)
	for path, texts := range map[string][]string{
		"/tokens": {"reader", "read@mail.*", "now</time>"}, "/pools": {"3 of 8 cost units", "big-machine", "render"}, "/webhooks": {"No deliveries"},
		"/providers": {"No providers"}, "/about": {"gq v9", "retention.completed"},
	} {
		status, page := admin.get(path)
		if status != http.StatusOK {
			t.Errorf("%s: %d", path, status)
		}
		for _, text := range texts {
			if !strings.Contains(page, text) {
				t.Errorf("%s lacks %q\n%s", path, text, page)
			}
		}
		if strings.Contains(page, token) || strings.Contains(page, token[len(token)-20:]) {
			t.Errorf("%s shows a secret", path)
		}
	}
}

// A round says who got a job and why others got none.
func TestDashboardRounds(t *testing.T) {
	s, _ := embedded(t, server.Options{})
	web := httptest.NewServer(s.Handler())
	defer web.Close()
	v := visitor{t, web.URL, web.Client()}
	post := func(path, body string) {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, web.URL+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Content-Type", "application/json")
		if status, text := v.do(r); status >= 300 {
			t.Fatalf("%s: %d %s", path, status, text)
		}
	}
	post("/api/matching/providers", `{"id":"provider-1","capabilities":["AI"],"models":["small"],"stake":1000,"attestation_expires_at":4000000000}`)
	for range 20 { // 16 fit
		post("/api/matching/jobs", `{"kind":"AI","spec":{"model":"small"}}`)
	}
	refused := regexp.MustCompile(`rounds/(\d+)" data-open>\d+</a></td>(?:<td class="num">.*?</td>){3}<td class="num">[1-9]`)
	var found []string
	for found == nil {
		_, page := v.get("/rounds")
		found = refused.FindStringSubmatch(page)
	}
	status, page := v.get("/rounds/" + found[1])
	if status != http.StatusOK || !strings.Contains(page, "provider-1") || !strings.Contains(page, "Why no provider took it") {
		t.Errorf("the round: %d\n%s", status, page)
	}
	for path, want := range map[string]int{"/rounds/0": 404, "/rounds/x": 404, "/rounds/999999": 404, "/rounds?before=x": 400, "/providers": 200} {
		if status, _ := v.get(path); status != want {
			t.Errorf("%s: %d, want %d", path, status, want)
		}
	}
}

func TestWithoutDashboard(t *testing.T) {
	cfg := config.Default()
	cfg.Store, cfg.HTTP, cfg.GRPC, cfg.Dashboard = "memory:", "", "", false
	s, err := server.Open(t.Context(), cfg, server.Options{})
	if err != nil {
		t.Fatal(err)
	}
	web := httptest.NewServer(s.Handler())
	defer web.Close()
	v := visitor{t, web.URL, web.Client()}
	for _, path := range []string{"/", "/jobs", "/signin"} {
		if status, text := v.get(path); status != http.StatusNotFound || !strings.Contains(text, "no_such_route") {
			t.Errorf("%s: %d %.100s", path, status, text)
		}
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

// TestAuditTrail makes a change through each API and finds all of them in the trail, with the
// name of the token.
func TestAuditTrail(t *testing.T) {
	s, _ := embedded(t, server.Options{AdminToken: adminToken})
	web := httptest.NewServer(s.Handler())
	defer web.Close()
	ops := makeToken(t, web, `{"name":"ops","grants":[{"scopes":["admin"],"queues":["*"]}]}`)
	reader := makeToken(t, web, `{"name":"reader","grants":[{"scopes":["read"],"queues":["*"]}]}`)
	call := func(token, method, path, body string) (int, string) {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), method, web.URL+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("Authorization", "Bearer "+token)
		return visitor{t, web.URL, web.Client()}.do(r)
	}
	if status, text := call(ops, "POST", "/v1/queues/mail/pause", ""); status != http.StatusOK {
		t.Fatalf("pause: %d %s", status, text)
	}
	if status, text := call(reader, "POST", "/v1/queues/mail/resume", ""); status != http.StatusForbidden {
		t.Fatalf("resume by a reader: %d %s", status, text)
	}
	browser := enter(t, web, ops)
	if status, text := browser.post("/queue/resume", "name", "mail"); status != http.StatusOK {
		t.Fatalf("resume: %d %s", status, text)
	}
	status, text := call(ops, "GET", "/v1/audit", "")
	var page struct {
		Entries []struct{ By, Face, Verb, Object, Outcome string }
	}
	if err := json.Unmarshal([]byte(text), &page); err != nil || status != http.StatusOK {
		t.Fatalf("%d %s", status, text)
	}
	var got []string
	for _, e := range page.Entries {
		got = append(got, strings.Join([]string{e.By, e.Face, e.Verb, e.Object, e.Outcome}, " "))
	}
	want := []string{
		"ops dashboard resume queue mail ok", "ops http pause queue mail ok",
		"bootstrap http create token reader ok", "bootstrap http create token ops ok",
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("the trail has\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	for _, secret := range []string{ops, reader, adminToken} {
		if strings.Contains(text, secret) {
			t.Errorf("the trail has a secret: %s", text)
		}
	}
	if status, text := call(reader, "GET", "/v1/audit", ""); status != http.StatusForbidden {
		t.Errorf("a reader: %d %s", status, text)
	}
	if status, text := browser.get("/audit"); status != http.StatusOK || !strings.Contains(text, "queue mail") || !strings.Contains(text, "dashboard") {
		t.Errorf("the page: %d\n%s", status, text)
	}
	if status, _ := enter(t, web, reader).get("/audit"); status != http.StatusForbidden {
		t.Errorf("the page for a reader: %d", status)
	}
}
