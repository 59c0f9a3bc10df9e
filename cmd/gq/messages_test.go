package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"html"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/gopherqueue/gq"
	pb "github.com/gopherqueue/gq/api/gopherqueue/v1"
	"github.com/gopherqueue/gq/internal/cli"
	"github.com/gopherqueue/gq/internal/faces/native"
	"github.com/gopherqueue/gq/internal/pbconv"
	"github.com/gopherqueue/gq/internal/testing/pgtest"
	"github.com/gopherqueue/gq/server/config"
)

// An error message names what the user wrote and what to do.
func TestMessagesSayWhatToDo(t *testing.T) {
	d := newShell(t)
	const unknown = "11111111-1111-4111-8111-111111111111"
	for _, test := range []struct {
		args []string
		says []string
		not  string
	}{
		{[]string{"job", "list", "--state", "DONE"}, []string{`"DONE" is not one of [PENDING`, "DEAD_LETTER", "CANCELLED]"}, ""},
		{[]string{"schedule", "set", "x", "--type", "t"}, []string{"give --cron or --every"}, ""},
		{[]string{"submit", "x", "--after", unknown}, []string{`submit "x": invalid: after: ` + unknown + " does not exist"}, "depends_on"},
		{[]string{"submit", "x", "--delay", "240h"}, []string{"delay: 240h0m0s", "lifetime of 168h0m0s"}, ""},
		{[]string{"submit", "x", "--at", "2199-01-01T00:00:00Z"}, []string{"invalid: at: 2199-01-01T00:00:00Z is", "lifetime of 168h0m0s"}, "run_at"},
	} {
		got := d.gq(test.args...)
		if got.status != cli.ExitUsage {
			t.Errorf("gq %s: status %d, want %d", strings.Join(test.args, " "), got.status, cli.ExitUsage)
		}
		for _, part := range test.says {
			if !strings.Contains(got.stderr, part) {
				t.Errorf("gq %s: it says %q, want %q in it", strings.Join(test.args, " "), got.stderr, part)
			}
		}
		if test.not != "" && strings.Contains(got.stderr, test.not) {
			t.Errorf("gq %s: it says %q, with %q in it", strings.Join(test.args, " "), got.stderr, test.not)
		}
	}
	// JSON output uses the names of the API.
	if got := d.gq("submit", "x", "--after", unknown, "--json"); !strings.Contains(got.stderr, `"field":"depends_on[0].job"`) {
		t.Errorf("as JSON: %s", got.stderr)
	}
}

// Each of several faults has its own line.
func TestFaultsStandOnLines(t *testing.T) {
	file := filepath.Join(t.TempDir(), "gq.yaml")
	if err := os.WriteFile(file, []byte("drain: 2h\nlog:\n  level: loud\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	got := gqIn(t.Context(), t.TempDir(), "config", "check", file)
	lines := strings.Split(strings.TrimSpace(got.stderr), "\n")
	if got.status != cli.ExitUsage || len(lines) != 3 || !strings.HasPrefix(lines[0], "gq: ") ||
		!strings.Contains(lines[1], "drain:") || !strings.Contains(lines[2], "log.level:") {
		t.Errorf("status %d, and it says\n%s", got.status, got.stderr)
	}
}

// locked is a queue that requires a token.
type locked struct{ queue }

func (locked) Stats(context.Context) (gq.Stats, error) { return gq.Stats{}, gq.ErrUnauthenticated }

func TestTokenIsNamed(t *testing.T) {
	d := newShell(t)
	d.queue = locked{d.queue}
	if got := d.gq("stats"); got.status != cli.ExitFailure || !strings.Contains(got.stderr, "set GQ_TOKEN") {
		t.Errorf("without a token: status %d, %s", got.status, got.stderr)
	}
	d.env["GQ_TOKEN"] = "gqt_x"
	if got := d.gq("stats"); got.status != cli.ExitFailure || !strings.Contains(got.stderr, "does not know the token in GQ_TOKEN") {
		t.Errorf("with a wrong token: status %d, %s", got.status, got.stderr)
	}
}

// An invalid address is a usage error, reported at once, even by commands that wait for a
// server.
func TestAddressesAreChecked(t *testing.T) {
	web := httptest.NewServer(nil)
	t.Cleanup(web.Close)
	port := web.Listener.Addr().String()
	for addr, want := range map[string]string{
		"localhost":             `"localhost" is not HOST:PORT`,
		"a b:1":                 `"a b:1" is not HOST:PORT`,
		"127.0.0.1:x":           `has the port "x"`,
		"127.0.0.1:1,nonsense":  `"nonsense" is not HOST:PORT`,
		"http://127.0.0.1:8780": "is an HTTP address; give the gRPC address",
		port:                    port + " is an HTTP port; give the gRPC address (default 127.0.0.1:8790)",
	} {
		for _, args := range [][]string{{"stats"}, {"submit", "x"}, {"work", "--type", "x", "--exec", "true"}} {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			got := gqIn(ctx, t.TempDir(), append(args, "--addr", addr)...)
			cancel()
			if got.status != cli.ExitUsage || !strings.Contains(got.stderr, want) {
				t.Errorf("gq %s at %s: status %d, want %d; it says %q, want %q in it", args[0], addr, got.status, cli.ExitUsage, got.stderr, want)
			}
		}
	}
}

// Hints for people do not go to files and journals.
func TestGreetingIsForTerminals(t *testing.T) {
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close() //nolint:errcheck // nobody has called
	var stdout bytes.Buffer
	cfg := config.Default()
	greet(process{stdout: &stdout, getenv: func(string) string { return "" }}, cfg, listener.Addr(), listener.Addr())
	if got := stdout.String(); got != "store file:gq-data\npreset jobmodel, for queues without a policy of their own: 3 attempts (--default-preset resilient retries through an outage of hours)\n" {
		t.Errorf("a file gets\n%s", got)
	}
}

// watched is a buffer that signals when a text was written.
type watched struct {
	mu   sync.Mutex
	text bytes.Buffer // guarded by mu
	want string
	seen chan struct{}
	once sync.Once
}

func (w *watched) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.text.Write(p)
	if strings.Contains(w.text.String(), w.want) {
		w.once.Do(func() { close(w.seen) })
	}
	return len(p), nil
}

// gq submit outlasts a restart of the server, creates one job, and says that it waits;
// with --retry-for 0 it does not wait.
func TestSubmitWaitsForTheServer(t *testing.T) {
	for range 10 {
		if submitOutlastsARestart(t) {
			return
		}
	}
	t.Fatal("other processes took ten ports while nobody listened on them")
}

// submitOutlastsARestart returns false if another process took the server's port
// meanwhile.
func submitOutlastsARestart(t *testing.T) bool {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := listener.Addr().String()
	_ = listener.Close() // no server is there
	if got := gqIn(t.Context(), t.TempDir(), "submit", "x", "--addr", addr, "--retry-for", "0s"); got.status != cli.ExitUnreachable {
		t.Errorf("without patience: status %d\n%s", got.status, got.stderr)
	}
	stderr := &watched{want: "trying again", seen: make(chan struct{})}
	var stdout bytes.Buffer
	ended := make(chan int, 1)
	go func() {
		ended <- run(ctx, []string{"submit", "x", "--addr", addr, "--retry-for", "5m"}, func(string) string { return "" }, strings.NewReader(""), &stdout, stderr)
	}()
	select {
	case <-stderr.seen:
	case status := <-ended:
		t.Fatalf("it gave up with status %d:\n%s", status, stderr.text.String())
	}
	_, e := memoryEngine(t)
	if listener, err = (&net.ListenConfig{}).Listen(t.Context(), "tcp", addr); err != nil {
		cancel()
		<-ended
		return false
	}
	server := native.NewGRPC(e, native.GRPCOptions{})
	serving := make(chan error, 1)
	go func() { serving <- server.Serve(listener) }()
	if status := <-ended; status != cli.ExitOK {
		t.Errorf("status %d:\n%s", status, stderr.text.String())
	}
	page, err := e.List(t.Context(), gq.Query{})
	if err != nil || len(page.Jobs) != 1 || page.Jobs[0].State.ID.String() != strings.TrimSpace(stdout.String()) {
		t.Errorf("there are %d jobs, %v; it printed %q", len(page.Jobs), err, stdout.String())
	}
	server.Stop()
	if err := <-serving; err != nil {
		t.Error(err)
	}
	return true
}

// innerStep is the name of a step within a call, or of a package, which means nothing to a user.
var innerStep = regexp.MustCompile(`(?im)(^|gq: |: )(insert|update|updates\[\d+\]|change|write|read|put [a-z]+|peek|waiting|spawn|collect|documents?( \S+)?|due|release|take in|local|postgres|engine|machine|codec|wire): `)

// What a server refuses it refuses with what the user gave and what is wrong with it, over every
// API and on both stores: without the steps within the call.
func TestRefusalsNameNoInnerStep(t *testing.T) {
	t.Parallel()
	const nobody = "11111111-1111-4111-8111-111111111111"
	for name, store := range map[string]func() string{
		"File":       func() string { return "file:" + t.TempDir() },
		"PostgreSQL": func() string { return pgtest.Database(t) },
	} {
		t.Run(name, func(t *testing.T) {
			s := startServer(t, nil, "--store", store())
			check := func(face, call, text string) {
				if step := innerStep.FindString(text); step != "" || text == "" {
					t.Errorf("%s: %s says %q, with the step %q", face, call, text, step)
				}
			}
			for _, call := range []string{
				`PUT /v1/queues/full {"max_depth":1}`, `POST /v1/jobs {"type":"t","queue":"full"}`,
				`POST /v1/jobs {"type":"t","queue":"full"}`, `POST /v1/jobs/batch {"jobs":[{"type":"t","queue":"full"}]}`,
				`POST /v1/jobs/batch {"atomic":true,"jobs":[{"type":"t","queue":"full"}]}`,
				`POST /v1/jobs {"type":"t","depends_on":[{"job":"` + nobody + `"}]}`, `POST /v1/jobs {"paylod":1}`,
				`GET /v1/jobs/` + nobody, `GET /v1/jobs/` + nobody + `/events`, `GET /v1/jobs?cursor=!`, `GET /v1/jobs?limit=x`,
				`POST /v1/leases/` + nobody + `/complete {}`, `POST /v1/leases/` + nobody + `/heartbeat {}`, `POST /v1/leases/` + nobody + `/start {}`,
				`PUT /v1/queues/a%20b {}`, `PUT /v1/queues/q {"max_depth":-1}`, `DELETE /v1/queues/full`, `PUT /v1/schedules/s {}`,
				`POST /v1/schedules/nosuch/pause`, `GET /v1/workflows/` + nobody, `PUT /v1/pools/p {"capacity":-1}`, `POST /v1/claim {}`,
			} {
				var method, path, body string
				_, _ = fmt.Sscan(call, &method, &path)
				body = strings.TrimPrefix(call, method+" "+path)
				r, err := http.NewRequestWithContext(t.Context(), method, "http://"+s.http+path, strings.NewReader(body))
				if err != nil {
					t.Fatal(err)
				}
				r.Header.Set("Content-Type", "application/json")
				answer, err := http.DefaultClient.Do(r)
				if err != nil {
					t.Fatal(err)
				}
				text, _ := io.ReadAll(answer.Body)
				_ = answer.Body.Close()
				var problem struct {
					Detail string `json:"detail"`
					Jobs   []struct {
						Problem struct {
							Detail string `json:"detail"`
						} `json:"problem"`
					} `json:"jobs"`
				}
				if err := json.Unmarshal(text, &problem); err != nil || answer.StatusCode == http.StatusInternalServerError {
					t.Errorf("%s: %d %s", call, answer.StatusCode, text)
				} else if len(problem.Jobs) > 0 {
					check("HTTP", call, problem.Jobs[0].Problem.Detail)
				} else if answer.StatusCode >= http.StatusBadRequest {
					check("HTTP", call, problem.Detail)
				}
			}
			c := s.client()
			_, err := c.Submit(t.Context(), gq.Spec{Type: "t", Queue: "full"})
			check("Go", "submit", fmt.Sprint(err))
			all, err := c.SubmitBatch(t.Context(), []gq.Spec{{Type: "t", Queue: "full"}})
			check("Go", "submit a batch", fmt.Sprint(all, err))
			beats, err := c.Heartbeat(t.Context(), []gq.Heartbeat{{Lease: gq.LeaseRef{ID: nobody, Version: 1}}})
			check("Go", "heartbeat", fmt.Sprint(beats[0].Err, err))
			_, err = c.Explain(t.Context(), gq.JobID{1})
			check("Go", "explain", fmt.Sprint(err))
			for _, line := range []string{
				"submit t --queue full", "submit t --after " + nobody, "job get " + nobody, "job cancel " + nobody, "job explain " + nobody,
				"job list --state X", "queue set full --max-depth -2", "queue delete full --yes", "queue resume nosuch", "schedule pause nosuch",
				"schedule set s --type t --cron x", "workflow get " + nobody, "queue show nosuch",
			} {
				got := gqIn(t.Context(), t.TempDir(), append(strings.Fields(line), "--addr", s.grpc)...)
				if got.status == 0 {
					t.Errorf("gq %s is accepted", line)
				}
				check("command line", line, got.stderr)
			}
			for call, text := range rawRefusals(t, s.grpc, nobody) {
				check("gRPC", call, text)
			}
			for call, text := range pageRefusals(t, s.http, nobody) {
				check("dashboard", call, text)
			}
		})
	}
}

// rawRefusals makes calls over gRPC, without the client, that the server refuses, and returns what it says.
func rawRefusals(t *testing.T, address, nobody string) map[string]string {
	t.Helper()
	conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	said, ctx := map[string]string{}, t.Context()
	refused := func(call string, err error) {
		if code := status.Code(err); code == codes.OK || code == codes.Internal || code == codes.Unknown {
			t.Errorf("%s: %v", call, err)
		}
		said[call] = status.Convert(err).Message()
	}
	inside := func(call string, problem *pb.Problem, err error) {
		if err != nil || problem == nil {
			t.Errorf("%s: %v, %v", call, problem, err)
		}
		said[call] = fmt.Sprint(pbconv.ErrorFromProblem(problem))
	}
	jobs, workers, queues := pb.NewJobsServiceClient(conn), pb.NewWorkersServiceClient(conn), pb.NewQueuesServiceClient(conn)
	schedules, flows := pb.NewSchedulesServiceClient(conn), pb.NewWorkflowsServiceClient(conn)
	full, lease := &pb.Spec{Type: "t", Queue: "full"}, &pb.LeaseRef{Id: nobody, Version: 1}
	_, err = jobs.Submit(ctx, &pb.SubmitRequest{Spec: full})
	refused("Submit to a full queue", err)
	_, err = jobs.Submit(ctx, &pb.SubmitRequest{Spec: &pb.Spec{Type: "t", DependsOn: []*pb.Dependency{{JobId: nobody, Kind: pb.DependencyKind_DEPENDENCY_KIND_AFTER}}}})
	refused("Submit after an unknown job", err)
	batch, err := jobs.SubmitBatch(ctx, &pb.SubmitBatchRequest{Specs: []*pb.Spec{full}})
	inside("SubmitBatch", batch.GetSubmitted()[0].GetProblem(), err)
	_, err = jobs.SubmitGraph(ctx, &pb.SubmitGraphRequest{Drafts: []*pb.Draft{{Spec: full}}})
	refused("SubmitGraph", err)
	_, err = jobs.Get(ctx, &pb.GetRequest{Id: nobody})
	refused("Get", err)
	_, err = jobs.Cancel(ctx, &pb.CancelRequest{Id: nobody})
	refused("Cancel", err)
	_, err = jobs.Explain(ctx, &pb.ExplainRequest{Id: nobody})
	refused("Explain", err)
	_, err = jobs.List(ctx, &pb.ListRequest{Cursor: "!"})
	refused("List", err)
	_, err = workers.Claim(ctx, &pb.ClaimRequest{})
	refused("Claim", err)
	_, err = workers.Start(ctx, &pb.StartRequest{Lease: lease})
	refused("Start", err)
	beats, err := workers.Heartbeat(ctx, &pb.HeartbeatRequest{Beats: []*pb.Beat{{Lease: lease}}})
	inside("Heartbeat", beats.GetAnswers()[0].GetProblem(), err)
	ends, err := workers.Settle(ctx, &pb.SettleRequest{Outcomes: []*pb.Outcome{{Lease: lease, Verdict: &pb.Outcome_Complete{Complete: &pb.Completion{}}}}})
	inside("Settle", ends.GetAnswers()[0].GetProblem(), err)
	_, err = queues.SetQueue(ctx, &pb.SetQueueRequest{Name: "a b"})
	refused("SetQueue", err)
	_, err = queues.DeleteQueue(ctx, &pb.DeleteQueueRequest{Name: "full"})
	refused("DeleteQueue", err)
	_, err = schedules.PauseSchedule(ctx, &pb.PauseScheduleRequest{Name: "nosuch"})
	refused("PauseSchedule", err)
	_, err = flows.GetWorkflow(ctx, &pb.GetWorkflowRequest{Id: "01890000-0000-7000-8000-000000000000"})
	refused("GetWorkflow", err)
	_, err = flows.SubmitWorkflow(ctx, &pb.SubmitWorkflowRequest{Jobs: []*pb.Draft{{Spec: full, Ref: "a"}}})
	refused("SubmitWorkflow", err)
	return said
}

var (
	formToken   = regexp.MustCompile(`name="csrf" value="([^"]+)"`)
	pageRefusal = regexp.MustCompile(`(?s)<section class="failure">.*?</section>|<div class="note bad" role="alert">.*?</div>`)
	markup      = regexp.MustCompile(`<[^>]*>`)
)

// pageRefusals opens pages and sends forms that the dashboard refuses, and returns what the pages say.
func pageRefusals(t *testing.T, address, nobody string) map[string]string {
	t.Helper()
	ask := func(method, path string, form url.Values) (code int, page string) {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), method, "http://"+address+path, strings.NewReader(form.Encode()))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Accept", "text/html")
		if method == http.MethodPost {
			r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
			r.Header.Set("Origin", "http://"+address)
		}
		answer, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer answer.Body.Close()
		text, err := io.ReadAll(answer.Body)
		if err != nil {
			t.Fatal(err)
		}
		return answer.StatusCode, string(text)
	}
	_, page := ask(http.MethodGet, "/queue?name=full", nil)
	token := formToken.FindStringSubmatch(page)
	if token == nil {
		t.Fatalf("the page of a queue has no form: %s", page)
	}
	const workflow = "01890000-0000-7000-8000-000000000000"
	said := map[string]string{}
	for _, call := range []string{
		"GET /jobs/" + nobody, "GET /jobs/x", "GET /workflows/" + workflow, "GET /queue?name=nosuch",
		"POST /jobs/" + nobody + "/cancel", "POST /jobs/" + nobody + "/replay", "POST /jobs/" + nobody + "/run", "POST /jobs/" + nobody + "/purge",
		"POST /jobs/" + nobody + "/priority?priority=HIGH", "POST /queue/pause?name=nosuch",
		"POST /schedules/pause?name=nosuch", "POST /workflows/" + workflow + "/cancel", "POST /workflows/" + workflow + "/signal?name=a&value=1",
		"POST /queue/limits?name=full&max_depth=x",
	} {
		method, path, _ := strings.Cut(call, " ")
		form := url.Values{}
		if method == http.MethodPost {
			at, err := url.Parse(path)
			if err != nil {
				t.Fatal(err)
			}
			form, path = at.Query(), at.Path
			form.Set("csrf", token[1])
		}
		code, page := ask(method, path, form)
		text := pageRefusal.FindString(page)
		if code < http.StatusBadRequest || code == http.StatusInternalServerError || code == http.StatusForbidden || text == "" {
			t.Errorf("the dashboard answers %s with %d: %s", call, code, page)
		}
		said[call] = strings.TrimSpace(html.UnescapeString(markup.ReplaceAllString(text, "\n")))
	}
	return said
}
