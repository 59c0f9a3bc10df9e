package e2e_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/client"
	"github.com/gopherqueue/gq/internal/cli"
	"github.com/gopherqueue/gq/internal/testing/cmdtest"
	"github.com/gopherqueue/gq/internal/testing/spec"
)

// gqAs runs the program with additional environment variables.
func (s *served) gqAs(env []string, args ...string) outcome {
	s.t.Helper()
	c := exec.Command(cmdtest.Program(s.t), args...)
	c.Env = append(append(os.Environ(), "GQ_ADDR="+s.grpc), env...)
	var stdout, stderr bytes.Buffer
	c.Stdout, c.Stderr = &stdout, &stderr
	_ = c.Run()
	return outcome{c.ProcessState.ExitCode(), stdout.String(), stderr.String()}
}

// Tokens created while no server runs work with the next server; the bootstrap token
// creates others; a revoked one is rejected.
func TestTokensOfAServer(t *testing.T) {
	dir := t.TempDir()
	store := "file:" + dir
	for _, bad := range []struct {
		status int
		args   []string
	}{
		{cli.ExitUsage, []string{"create", "ops", "--grant", "admin", "--store", "memory:"}}, // nobody could ever use it
		{cli.ExitNotFound, []string{"list", "--store", store + "/typo"}},
		{cli.ExitNotFound, []string{"revoke", "ops", "--yes", "--store", store + "/typo"}},
	} {
		c := exec.Command(cmdtest.Program(t), append([]string{"token"}, bad.args...)...)
		if text, _ := c.CombinedOutput(); c.ProcessState.ExitCode() != bad.status {
			t.Errorf("%q: %d, %s", bad.args, c.ProcessState.ExitCode(), text)
		}
	}
	if _, err := os.Stat(dir + "/typo"); err == nil {
		t.Error("a look at tokens makes a store")
	}
	made := exec.Command(cmdtest.Program(t), "token", "create", "ops", "--grant", "admin", "--store", store, "--json")
	text, err := made.Output()
	if err != nil {
		t.Fatal(err)
	}
	var token struct{ Token, ID string }
	if err := json.Unmarshal(text, &token); err != nil || !strings.HasPrefix(token.Token, "gq_"+token.ID+"_") {
		t.Fatalf("%s: %v", text, err)
	}
	s := startServer(t, []string{"GQ_ADMIN_TOKEN=bootstrap-bootstrap"}, "--store", store)
	ops, boot := []string{"GQ_TOKEN=" + token.Token}, []string{"GQ_TOKEN=bootstrap-bootstrap"}
	if out := s.gqAs(nil, "stats"); out.status != cli.ExitFailure || !strings.Contains(out.stderr, "token") {
		t.Errorf("without a token: %+v", out)
	}
	for _, env := range [][]string{ops, boot} {
		if out := s.gqAs(env, "submit", "t", "--queue", "mail.out"); out.status != 0 {
			t.Errorf("with a token: %+v", out)
		}
	}
	out := s.gqAs(boot, "token", "create", "mailer", "--scope", "submit", "--queue", "mail.*", "--rate", "1000", "--expires", "1h")
	if out.status != 0 {
		t.Fatalf("%+v", out)
	}
	mailer := []string{"GQ_TOKEN=" + strings.TrimSpace(out.stdout)}
	if out := s.gqAs(mailer, "submit", "t", "--queue", "mail.in"); out.status != 0 {
		t.Errorf("its own queue: %+v", out)
	}
	if out := s.gqAs(mailer, "submit", "t", "--queue", "mail.in", "--json"); out.status != 0 || !strings.HasPrefix(out.stdout, `{"id":"`) {
		t.Errorf("a job that it may not read: %+v", out)
	}
	if out := s.gqAs(mailer, "submit", "t", "--queue", "mail.in", "--json", "--wait"); out.status != cli.ExitFailure || !strings.Contains(out.stderr, " was submitted: ") {
		t.Errorf("a job that it may not wait for: %+v", out)
	}
	if out := s.gqAs(mailer, "submit", "t", "--queue", "sms"); out.status != cli.ExitFailure || !strings.Contains(out.stderr, "lacks the scope submit on queue sms") {
		t.Errorf("a foreign queue: %+v", out)
	}
	if out := s.gqAs(mailer, "token", "list"); out.status != cli.ExitFailure {
		t.Errorf("tokens: %+v", out)
	}
	if out := s.gqAs(ops, "token", "list"); out.status != 0 || !strings.Contains(out.stdout, "submit@mail.*") || strings.Contains(out.stdout, token.Token) {
		t.Errorf("the list: %+v", out)
	}
	if out := s.gqAs(ops, "token", "revoke", "mailer", "--yes"); out.status != 0 {
		t.Errorf("%+v", out)
	}
	if out := s.gqAs(mailer, "submit", "t", "--queue", "mail.in"); out.status != cli.ExitFailure {
		t.Errorf("a revoked token: %+v", out)
	}
	s.Signal(os.Interrupt)
	s.Ended()
	if logged := s.Stderr.String(); strings.Contains(logged, token.Token[20:]) || strings.Contains(logged, "bootstrap-bootstrap") {
		t.Errorf("a token is in the log:\n%s", logged)
	}
}

// TestRateOfAToken calls faster than a token allows, on each of the HTTP faces.
func TestRateOfAToken(t *testing.T) {
	s := startServer(t, []string{"GQ_ADMIN_TOKEN=bootstrap-bootstrap"}, "--store", "memory:")
	for _, path := range []string{"/v1/queues", "/api/scheduler/stats/snapshot", "/api/matching/providers"} {
		out := s.gqAs([]string{"GQ_TOKEN=bootstrap-bootstrap"}, "token", "create", "hasty"+strings.ReplaceAll(path, "/", "-"), "--scope", "read", "--rate", "1")
		if out.status != 0 {
			t.Fatalf("%+v", out)
		}
		var last *http.Response
		// If a request takes a second, no rate is exceeded.
		for deadline := time.Now().Add(patience); time.Now().Before(deadline); {
			r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+s.http+path, http.NoBody)
			if err != nil {
				t.Fatal(err)
			}
			r.Header.Set("Authorization", "Bearer "+strings.TrimSpace(out.stdout))
			if last, err = http.DefaultClient.Do(r); err != nil {
				t.Fatal(err)
			}
			_ = last.Body.Close()
			if last.StatusCode != http.StatusOK {
				break
			}
		}
		if last.StatusCode != http.StatusTooManyRequests || last.Header.Get("Retry-After") != "1" {
			t.Errorf("%s: %d, Retry-After %q", path, last.StatusCode, last.Header.Get("Retry-After"))
		}
	}
}

// TestTheFirstTokenIsAnAdministrators checks that a server without authentication stays
// manageable after its first token.
func TestTheFirstTokenIsAnAdministrators(t *testing.T) {
	s := startServer(t, nil, "--store", "memory:")
	for _, grant := range []string{"read", "submit,work@*", "admin@mail.*"} {
		out := s.gqAs(nil, "token", "create", "x", "--grant", grant)
		if out.status != cli.ExitUsage || !strings.Contains(out.stderr, "the first token must have admin on all queues") || !strings.Contains(out.stderr, "GQ_ADMIN_TOKEN") {
			t.Errorf("%s: %+v", grant, out)
		}
	}
	if out := s.gqAs(nil, "stats"); out.status != 0 {
		t.Fatalf("nobody is let in: %+v", out)
	}
	out := s.gqAs(nil, "token", "create", "ops", "--grant", "admin")
	if out.status != 0 {
		t.Fatalf("%+v", out)
	}
	ops := []string{"GQ_TOKEN=" + strings.TrimSpace(out.stdout)}
	if out := s.gqAs(nil, "stats"); out.status != cli.ExitFailure {
		t.Errorf("without a token: %+v", out)
	}
	if out := s.gqAs(ops, "token", "create", "x", "--grant", "read"); out.status != 0 {
		t.Errorf("the second: %+v", out)
	}
	s.Signal(os.Interrupt)
	s.Ended()
}

// A server without authentication does not start on non-loopback addresses.
func TestListeningBeyondLoopback(t *testing.T) {
	for _, c := range []struct {
		env  []string
		args []string
		ok   bool
	}{
		{nil, nil, false},
		{nil, []string{"--insecure"}, true},
		{[]string{"GQ_ADMIN_TOKEN=bootstrap-bootstrap"}, nil, true},
		{nil, []string{"--auth-required"}, true},
	} {
		command := exec.Command(cmdtest.Program(t), append([]string{"serve", "--store", "memory:", "--http", "0.0.0.0:0", "--grpc", "0.0.0.0:0"}, c.args...)...)
		command.Env = append(os.Environ(), c.env...)
		stdout, err := command.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := command.Start(); err != nil {
			t.Fatal(err)
		}
		line, _ := bufio.NewReader(stdout).ReadString('\n')
		_ = command.Process.Kill()
		_ = command.Wait()
		if (line != "") != c.ok {
			t.Errorf("%v %v: %q, may start %t", c.env, c.args, line, c.ok)
		}
	}
	// A server that does not start leaves no store behind.
	dir := filepath.Join(t.TempDir(), "data")
	got := runGQ(t, "serve", "--data", dir, "--http", "0.0.0.0:0", "--grpc", "127.0.0.1:0")
	if got.status != cli.ExitUsage || !strings.Contains(got.stderr, "is reachable from other hosts") {
		t.Errorf("%+v", got)
	}
	if _, err := os.Stat(dir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("there is a store: %v", err)
	}
}

// inbox records the ids of received webhooks.
type inbox struct {
	*httptest.Server
	mu  sync.Mutex
	got map[string]int // guarded by mu
}

func newInbox(t *testing.T) *inbox {
	t.Helper()
	b := &inbox{got: map[string]int{}}
	b.Server = httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		var body struct {
			Data struct{ ID string } `json:"data"`
		}
		if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
			t.Error(err)
		}
		b.mu.Lock()
		defer b.mu.Unlock()
		b.got[body.Data.ID]++
	}))
	t.Cleanup(b.Close)
	return b
}

func (b *inbox) missing(ids []gq.JobID) (n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, id := range ids {
		if b.got[id.String()] == 0 {
			n++
		}
	}
	return n
}

// A server that is killed repeatedly loses no webhook, and a follower of its events that
// resumes sees each event once.
func TestKillsLoseNoWebhookAndNoEvent(t *testing.T) {
	spec.Covers(t, "J-147")
	t.Parallel()
	b := newInbox(t)
	store := "file:" + t.TempDir()
	var ids []gq.JobID
	var after uint64
	seen := map[uint64]bool{}
	const rounds, jobs = 4, 60
	for round := range rounds + 1 {
		s := startServer(t, nil, "--store", store, "--webhooks-allow", "loopback")
		ctx, cancel := context.WithCancel(t.Context())
		followed := make(chan struct{})
		go func() {
			defer close(followed)
			after = follow(ctx, t, s.http, after, seen)
		}()
		if round < rounds {
			ids = append(ids, s.finish(ctx, b.URL, jobs)...)
		} else {
			cmdtest.WaitFor(t, "all webhooks", func() bool { return b.missing(ids) == 0 })
			cmdtest.WaitFor(t, "all events", func() bool { return s.lastEvent() <= maxSeen(seen) })
		}
		s.Signal(os.Kill)
		s.Ended()
		cancel()
		<-followed
	}
	if n := len(ids); n < rounds*jobs/2 {
		t.Fatalf("only %d jobs were finished", n)
	}
	guard.Lock()
	defer guard.Unlock()
	for n := uint64(1); n <= after; n++ {
		if !seen[n] {
			t.Fatalf("event %d of %d was not seen", n, after)
		}
	}
	t.Logf("%d jobs, %d events", len(ids), after)
}

// A job that is purged as soon as it has ended is still delivered.
func TestPurgedJobsAreToldOf(t *testing.T) {
	b := newInbox(t)
	s := startServer(t, nil, "--store", "memory:", "--webhooks-allow", "loopback")
	var ids []gq.JobID
	for range 10 {
		id := s.finish(t.Context(), b.URL, 1)[0]
		ids = append(ids, id)
		r, err := http.NewRequestWithContext(t.Context(), http.MethodDelete, "http://"+s.http+"/v1/jobs/"+id.String(), http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		answer, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		answer.Body.Close()
		if answer.StatusCode != http.StatusNoContent {
			t.Errorf("%s", answer.Status)
		}
	}
	cmdtest.WaitFor(t, "all webhooks", func() bool { return b.missing(ids) == 0 })
	http.DefaultClient.CloseIdleConnections()
	s.Signal(os.Interrupt)
	s.Ended()
}

var guard sync.Mutex // guards what followers have seen

func maxSeen(seen map[uint64]bool) (last uint64) {
	guard.Lock()
	defer guard.Unlock()
	for n := range seen {
		last = max(last, n)
	}
	return last
}

// follow reads events until the server is gone, and returns the last one.
func follow(ctx context.Context, t *testing.T, addr string, after uint64, seen map[uint64]bool) uint64 {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, fmt.Sprintf("http://%s/v1/events?after=%d", addr, after), nil)
	if err != nil {
		t.Error(err)
		return after
	}
	answer, err := http.DefaultTransport.RoundTrip(r)
	if err != nil {
		return after
	}
	defer answer.Body.Close()
	lines := bufio.NewScanner(answer.Body)
	for lines.Scan() {
		data, ok := strings.CutPrefix(lines.Text(), "data: ")
		var e struct{ Seq uint64 }
		if !ok || json.Unmarshal([]byte(data), &e) != nil || e.Seq == 0 {
			continue
		}
		guard.Lock()
		if seen[e.Seq] || e.Seq != after+1 {
			t.Errorf("event %d follows %d, seen before: %t", e.Seq, after, seen[e.Seq])
		}
		seen[e.Seq] = true
		guard.Unlock()
		after = e.Seq
	}
	return after
}

func (s *served) lastEvent() uint64 {
	r, err := http.Get("http://" + s.http + "/v1/jobs?limit=1")
	if err != nil {
		return 1 << 62
	}
	defer r.Body.Close()
	var page struct {
		Jobs []struct{ ID string }
	}
	if json.NewDecoder(r.Body).Decode(&page) != nil || len(page.Jobs) == 0 {
		return 1 << 62
	}
	events, err := http.Get("http://" + s.http + "/v1/jobs/" + page.Jobs[0].ID + "/events")
	if err != nil {
		return 1 << 62
	}
	defer events.Body.Close()
	text, _ := io.ReadAll(events.Body)
	last := uint64(0)
	for line := range strings.Lines(string(text)) {
		var e struct{ Seq uint64 }
		_ = json.Unmarshal([]byte(line), &e)
		last = max(last, e.Seq)
	}
	return last
}

// finish completes jobs with callbacks, and returns those whose completion was
// acknowledged.
func (s *served) finish(ctx context.Context, callback string, n int) (ids []gq.JobID) {
	s.t.Helper()
	c, err := client.New(s.grpc, client.Options{RetryFor: patience})
	if err != nil {
		s.t.Fatal(err)
	}
	defer c.Close()
	for range n {
		if _, err := c.Submit(ctx, gq.Spec{Type: "t", Metadata: gq.Metadata{CallbackURL: callback}}); err != nil {
			s.t.Fatal(err)
		}
		jobs, err := c.Claim(ctx, gq.ClaimRequest{Worker: "w", Wait: patience, N: 1})
		if err != nil || len(jobs) == 0 {
			s.t.Fatalf("%d jobs, %v", len(jobs), err)
		}
		answers, err := c.Settle(ctx, []gq.Outcome{{Lease: jobs[0].State.Lease.Ref(), Verdict: gq.VerdictComplete}})
		if err != nil || answers[0].Err != nil {
			s.t.Fatal(err, answers)
		}
		ids = append(ids, jobs[0].Spec.ID)
	}
	return ids
}

func TestTLS(t *testing.T) {
	ours, others := cmdtest.NewAuthority(t, "ours"), cmdtest.NewAuthority(t, "others")
	cert, key := ours.Issue("server")
	clientCert, clientKey := ours.Issue("client")
	strangerCert, strangerKey := others.Issue("stranger")
	ca := filepath.Join(ours.Dir, "ca.pem")
	for _, mutual := range []bool{false, true} {
		args := []string{"--store", "memory:", "--auth-tls-cert", cert, "--auth-tls-key", key}
		if mutual {
			args = append(args, "--auth-client-ca", ca)
		}
		s := startServer(t, nil, args...)
		for _, c := range []struct {
			name string
			env  []string
			ok   bool
		}{
			{"in the clear", nil, false},
			{"TLS", []string{"GQ_TLS_CA=" + ca}, !mutual},
			{"TLS with another authority", []string{"GQ_TLS_CA=" + filepath.Join(others.Dir, "ca.pem")}, false},
			{"mutual TLS", []string{"GQ_TLS_CA=" + ca, "GQ_TLS_CERT=" + clientCert, "GQ_TLS_KEY=" + clientKey}, true},
			{"mutual TLS of a stranger", []string{"GQ_TLS_CA=" + ca, "GQ_TLS_CERT=" + strangerCert, "GQ_TLS_KEY=" + strangerKey}, !mutual},
		} {
			if out := s.gqAs(c.env, "stats"); (out.status == 0) != c.ok {
				t.Errorf("mutual %t, %s: %+v", mutual, c.name, out)
			}
		}
		roots := x509.NewCertPool()
		roots.AddCert(ours.Cert)
		config := &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}
		if mutual {
			pair, err := tls.LoadX509KeyPair(clientCert, clientKey)
			if err != nil {
				t.Fatal(err)
			}
			config.Certificates = []tls.Certificate{pair}
		}
		web := &http.Client{Transport: &http.Transport{TLSClientConfig: config, DisableKeepAlives: true}}
		answer, err := web.Get("https://" + s.http + "/healthz")
		if err != nil {
			t.Fatal(err)
		}
		answer.Body.Close()
		if answer.StatusCode != http.StatusOK {
			t.Errorf("over HTTPS: %s", answer.Status)
		}
		s.Signal(os.Interrupt)
		s.Ended()
	}
}
