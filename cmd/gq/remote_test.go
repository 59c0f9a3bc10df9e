package main

import (
	"bytes"
	"context"
	"encoding/json"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/engine"
	"github.com/gopherqueue/gq/internal/cli"
	"github.com/gopherqueue/gq/store/local"
)

// shell is a command line for a queue in the same process.
type shell struct {
	t     testing.TB
	queue queue
	stdin string
	mu    sync.Mutex
	addr  string // of the last command; guarded by mu
	env   map[string]string
}

// memoryEngine returns an engine, which nobody runs, and its store in memory.
func memoryEngine(t testing.TB) (*local.Store, *engine.Engine) {
	t.Helper()
	s, err := local.OpenMemory(local.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	e, err := engine.New(s, engine.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return s, e
}

func newShell(t testing.TB) *shell {
	t.Helper()
	_, e := memoryEngine(t)
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- e.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return &shell{t: t, queue: e, env: map[string]string{}}
}

// gq runs the program.
func (d *shell) gq(args ...string) outcome { return d.gqIn(d.t.Context(), args...) }

func (d *shell) gqIn(ctx context.Context, args ...string) outcome {
	var stdout, stderr bytes.Buffer
	status := runIn(ctx, args, process{
		getenv: func(name string) string { return d.env[name] },
		stdin:  strings.NewReader(d.stdin), stdout: &stdout, stderr: &stderr,
		dial: func(addr string, _ time.Duration, _ func(bool)) (queue, func() error, error) {
			d.mu.Lock()
			defer d.mu.Unlock()
			d.addr = addr
			return d.queue, func() error { return nil }, nil
		},
	})
	return outcome{status, stdout.String(), stderr.String()}
}

// want runs the program, checks its exit status and returns standard output.
func (d *shell) want(status int, args ...string) string {
	d.t.Helper()
	got := d.gq(args...)
	if got.status != status {
		d.t.Fatalf("gq %s: status %d, want %d\n%s%s", strings.Join(args, " "), got.status, status, got.stdout, got.stderr)
	}
	return got.stdout
}

// json runs a command that prints one JSON object.
func (d *shell) json(args ...string) map[string]any {
	d.t.Helper()
	text := d.want(0, append(args, "--json")...)
	var out map[string]any
	if err := json.Unmarshal([]byte(text), &out); err != nil {
		d.t.Fatalf("gq %s printed what is not JSON: %v\n%s", strings.Join(args, " "), err, text)
	}
	return out
}

// submit submits a job and returns its id.
func (d *shell) submit(args ...string) string {
	d.t.Helper()
	return strings.TrimSpace(d.want(0, append([]string{"submit"}, args...)...))
}

// settle claims one job and settles it.
func (d *shell) settle(verdict gq.Outcome) gq.Job {
	d.t.Helper()
	jobs, err := d.queue.Claim(d.t.Context(), gq.ClaimRequest{Worker: "w", N: 1})
	if err != nil || len(jobs) != 1 {
		d.t.Fatalf("claimed %d jobs: %v", len(jobs), err)
	}
	verdict.Lease = jobs[0].State.Lease.Ref()
	answers, err := d.queue.Settle(d.t.Context(), []gq.Outcome{verdict})
	if err == nil {
		err = answers[0].Err
	}
	if err != nil {
		d.t.Fatal(err)
	}
	return jobs[0]
}

const unknownID = "00000000-0000-4000-8000-000000000000"

func TestTheAddressOfTheServer(t *testing.T) {
	d := newShell(t)
	d.want(0, "stats")
	if d.addr != "127.0.0.1:8790" {
		t.Errorf("by default %s", d.addr)
	}
	d.env["GQ_ADDR"] = "a:1"
	d.want(0, "stats")
	if d.addr != "a:1" {
		t.Errorf("by the environment %s", d.addr)
	}
	d.want(0, "stats", "--addr", "b:2")
	if d.addr != "b:2" {
		t.Errorf("by the flag %s", d.addr)
	}
}

func TestSubmitting(t *testing.T) {
	d := newShell(t)
	id := d.submit("email.send", "--payload", `{"n":12345678901234567890}`, "--queue", "mail", "--priority", "high", "--tag", "a=b", "--tag", "c=d=e",
		"--callback", "https://example.com/", "--correlation-id", "x", "--max-attempts", "7", "--execution-timeout", "2m")
	job := d.json("job", "get", id)
	if job["id"] != id || job["type"] != "email.send" || job["queue"] != "mail" || job["priority"] != "HIGH" || job["state"] != "SCHEDULED" {
		t.Errorf("%v", job)
	}
	tags, _ := job["tags"].(map[string]any)
	policy, _ := job["policy"].(map[string]any)
	if tags["a"] != "b" || tags["c"] != "d=e" || policy["max_attempts"] != 7.0 || policy["execution_timeout"] != "2m0s" || policy["preset"] != "jobmodel" || policy["lease_ttl"] != nil {
		t.Errorf("%v %v", tags, policy)
	}
	if got := d.want(0, "job", "get", id, "--payload"); got != `{"n":12345678901234567890}` {
		t.Errorf("payload %q", got)
	}
	delayed := d.json("submit", "a", "--delay", "1h")
	if delayed["state"] != "DELAYED" {
		t.Errorf("%v", delayed)
	}
	tomorrow := time.Now().UTC().Add(24 * time.Hour).Truncate(time.Second).Format(time.RFC3339)
	at := d.json("submit", "a", "--at", tomorrow)
	if at["run_at"] != tomorrow {
		t.Errorf("%v", at)
	}
	after := d.json("submit", "a", "--after", id)
	if after["state"] != "PENDING" {
		t.Errorf("%v", after)
	}
	// A repeated key finds the job.
	first := d.submit("a", "--key", "k")
	again := d.gq("submit", "a", "--key", "k")
	if strings.TrimSpace(again.stdout) != first || again.status != 0 || !strings.Contains(again.stderr, "another job holds the key") {
		t.Errorf("%+v", again)
	}
	d.stdin = "\x00\xffraw"
	binary := d.submit("a", "--payload", "-")
	if got := d.want(0, "job", "get", binary, "--payload"); got != d.stdin {
		t.Errorf("payload %q", got)
	}
	if job := d.json("job", "get", binary); job["content_type"] != "application/octet-stream" || job["payload_base64"] == nil {
		t.Errorf("%v", job)
	}
	if job := d.json("submit", "a", "--payload", "plain text"); job["content_type"] != "text/plain" {
		t.Errorf("%v", job)
	}
	if job := d.json("submit", "a"); job["content_type"] != "application/json" {
		t.Errorf("%v", job)
	}
	for _, args := range [][]string{
		{"submit"},
		{"submit", "a", "b"},
		{"submit", ""},
		{"submit", "a", "--priority", "soon"},
		{"submit", "a", "--at", "tomorrow"},
		{"submit", "a", "--tag", "novalue"},
		{"submit", "a", "--after", "x"},
		{"submit", "a", "--payload", "@/does/not/exist"},
		{"submit", "a", "--delay", "5"},
		{"submit", "a", "--queue", "a b"},
		{"submit", "a", "--preset", "none"},
		{"submit", "a", "--max-attempts", "-1"},
		{"submit", "a", "--nope"},
	} {
		d.want(2, args...)
	}
}

func TestWaitingTellsHowItEnded(t *testing.T) {
	d := newShell(t)
	for _, test := range []struct {
		verdict gq.Outcome
		status  int
		says    string
	}{
		{gq.Outcome{Verdict: gq.VerdictComplete, Result: []byte(`{"x":1}`)}, 0, "COMPLETED"},
		{gq.Outcome{Verdict: gq.VerdictFail, Failure: gq.Failure{Category: gq.CategoryPermanent, Code: "bad", Message: "no\x1b[31m way"}}, 1, "FAILED: no�[31m way (bad)"},
		{gq.Outcome{Verdict: gq.VerdictFail, Failure: gq.Failure{Category: gq.CategoryCancelled}}, 1, "CANCELLED"},
	} {
		id := d.submit("a")
		done := make(chan outcome, 1)
		go func() { done <- d.gq("job", "wait", id) }()
		d.settle(test.verdict)
		if got := <-done; got.status != test.status || !strings.HasPrefix(got.stdout, test.says) {
			t.Errorf("%+v, want %d and %q", got, test.status, test.says)
		}
	}
	id := d.submit("a")
	if got := d.gq("job", "wait", id, "--timeout", "10ms"); got.status != 6 || got.stdout != "" {
		t.Errorf("%+v", got)
	}
	done := make(chan outcome, 1)
	go func() { done <- d.gq("submit", "b", "--queue", "other", "--wait", "--json", "--timeout", "1m") }()
	jobs, err := d.queue.Claim(t.Context(), gq.ClaimRequest{Worker: "w", Queues: []string{"other"}, Wait: time.Minute, N: 1})
	if err != nil || len(jobs) != 1 {
		t.Fatal(err)
	}
	if _, err := d.queue.Settle(t.Context(), []gq.Outcome{{Lease: jobs[0].State.Lease.Ref(), Verdict: gq.VerdictComplete, Result: []byte(`[1]`)}}); err != nil {
		t.Fatal(err)
	}
	got := <-done
	if got.status != 0 || !strings.Contains(got.stdout, `"state":"COMPLETED"`) || !strings.Contains(got.stdout, `"result":[1]`) {
		t.Errorf("%+v", got)
	}
	d.want(3, "job", "wait", unknownID)
}

func TestJobCommands(t *testing.T) {
	d := newShell(t)
	id := d.submit("a", "--tag", "x=1")
	d.want(0, "job", "update", id, "--priority", "0", "--tag", "y=2", "--untag", "x", "--correlation-id", "c")
	job := d.json("job", "get", id)
	if tags, _ := job["tags"].(map[string]any); tags["y"] != "2" || tags["x"] != nil || job["priority"] != "CRITICAL" || job["correlation_id"] != "c" {
		t.Errorf("%v", job)
	}
	if got := d.want(0, "job", "explain", id); !strings.Contains(got, "SCHEDULED") || !strings.Contains(got, "job.submitted") {
		t.Errorf("%s", got)
	}
	if x := d.json("job", "explain", id); x["cause"] != "no_worker" || x["job"] != id {
		t.Errorf("%v", x)
	}
	d.settle(gq.Outcome{Verdict: gq.VerdictComplete, Result: []byte("\xff\x00")})
	if got := d.want(0, "job", "get", id, "--result"); got != "\xff\x00" {
		t.Errorf("result %q", got)
	}
	if got := d.want(0, "job", "get", id); !strings.Contains(got, "COMPLETED") || !strings.Contains(got, "2 bytes") {
		t.Errorf("%s", got)
	}
	lines := strings.Split(strings.TrimSpace(d.want(0, "job", "events", id, "--json")), "\n")
	if len(lines) < 4 {
		t.Errorf("events %v", lines)
	}
	for _, line := range lines {
		var e map[string]any
		if err := json.Unmarshal([]byte(line), &e); err != nil || e["entity"] != id || e["seq"] == nil || e["time"] == nil || e["type"] == nil || e["data"] == nil {
			t.Errorf("event %s: %v", line, err)
		}
	}
	if got := d.want(0, "job", "events", id); !strings.Contains(got, "job.completed") {
		t.Errorf("%s", got)
	}
	again := strings.TrimSpace(d.want(0, "job", "replay", id))
	if job := d.json("job", "get", again); job["replay_of"] != id {
		t.Errorf("%v", job)
	}
	if got := d.want(0, "job", "cancel", again, "--reason", "no"); !strings.Contains(got, "CANCELLED") {
		t.Errorf("%s", got)
	}
	d.want(5, "job", "cancel", id)
	d.want(5, "job", "update", id, "--tag", "a=b")
	d.want(5, "job", "replay", d.submit("a"))
	if got := d.gq("job", "replay"); strings.Contains(got.stderr, "--all") {
		t.Errorf("replay has no --all: %s", got.stderr)
	}
	if got := d.gq("job", "cancel"); !strings.Contains(got.stderr, "--all") {
		t.Errorf("cancel has --all: %s", got.stderr)
	}
	for _, args := range [][]string{
		{"get"},
		{"get", "x"},
		{"get", id, "--payload", "--result"},
		{"list", "extra"},
		{"list", "--limit", "0"},
		{"list", "--state", "NOPE"},
		{"list", "--since", "x"},
		{"update", id},
		{"update", id, "--priority", "9"},
		{"cancel"},
		{"cancel", id, "--all"},
		{"replay"},
		{"events"},
		{"wait", "y"},
		{"explain", ""},
		{"nope"},
		{},
	} {
		d.want(2, append([]string{"job"}, args...)...)
	}
	for _, verb := range []string{"get", "cancel", "replay", "events", "explain"} {
		d.want(3, "job", verb, unknownID)
	}
	d.want(3, "job", "update", unknownID, "--tag", "a=b")
}

// TestCommonRefusals checks that the most common errors are one clause.
func TestCommonRefusals(t *testing.T) {
	d := newShell(t)
	const unknown = "01234567-89ab-4def-8123-456789abcdef"
	id := d.submit("a")
	d.settle(gq.Outcome{Verdict: gq.VerdictComplete})
	for _, c := range []struct {
		status int
		args   []string
		want   string
	}{
		{cli.ExitNotFound, []string{"job", "get", unknown}, "job " + unknown + " not found"},
		{cli.ExitNotFound, []string{"job", "cancel", unknown}, "job " + unknown + " not found"},
		{cli.ExitNotFound, []string{"job", "events", unknown}, "job " + unknown + " not found"},
		{cli.ExitNotFound, []string{"job", "explain", unknown}, "job " + unknown + " not found"},
		{cli.ExitNotFound, []string{"job", "wait", unknown}, "job " + unknown + " not found"},
		{cli.ExitConflict, []string{"job", "cancel", id}, "job " + id + " is already COMPLETED"},
		{cli.ExitUsage, []string{"submit", "b", "--payload", "{bad", "--content-type", "application/json"}, "payload: is not JSON (byte 2"},
	} {
		out := d.gq(c.args...)
		line, _, _ := strings.Cut(strings.TrimPrefix(out.stderr, "gq: "), "\n")
		if out.status != c.status || !strings.Contains(line, c.want) || c.status != cli.ExitUsage && line != c.want {
			t.Errorf("gq %s: status %d, %q, want %d, %q", strings.Join(c.args, " "), out.status, out.stderr, c.status, c.want)
		}
	}
	if got := d.json("job", "get", d.submit("c", "--payload", "{bad")); got["content_type"] != "text/plain" {
		t.Errorf("a payload without a content type: %v", got)
	}
}

// TestAWaitingJobIsShownWithoutItsOldLease checks the output for a job that waits for its
// next attempt.
func TestAWaitingJobIsShownWithoutItsOldLease(t *testing.T) {
	d := newShell(t)
	id := d.submit("a")
	d.settle(gq.Outcome{Verdict: gq.VerdictFail, Failure: gq.Failure{Category: gq.CategoryTemporary, Message: "later"}})
	if got := d.want(0, "job", "get", id); !strings.Contains(got, "RETRYING") || strings.Contains(got, "lease") {
		t.Errorf("%s", got)
	}
	if got := d.json("job", "get", id); got["lease"] != nil || got["lease_version"] == nil {
		t.Errorf("%v", got)
	}
}

func TestListingJobs(t *testing.T) {
	d := newShell(t)
	for range 3 {
		d.submit("a", "--queue", "q")
	}
	d.submit("later", "--delay", "1h")
	page := d.json("job", "list", "--queue", "q", "--limit", "2")
	jobs, _ := page["jobs"].([]any)
	cursor, _ := page["next_cursor"].(string)
	if len(jobs) != 2 || cursor == "" {
		t.Fatalf("%v", page)
	}
	if page := d.json("job", "list", "--queue", "q", "--limit", "2", "--cursor", cursor); len(page["jobs"].([]any)) != 1 || page["next_cursor"] != "" {
		t.Errorf("%v", page)
	}
	if page := d.json("job", "list", "--state", "delayed", "--since", "1h"); len(page["jobs"].([]any)) != 1 {
		t.Errorf("%v", page)
	}
	got := d.gq("job", "list", "--queue", "q", "--limit", "2")
	if !strings.Contains(got.stdout, "SCHEDULED") || !strings.Contains(got.stderr, "--cursor") || strings.Contains(got.stdout, "\x1b") {
		t.Errorf("%+v", got)
	}
	for args, n := range map[string]string{"--queue q": "3", "--all": "4", "--queue q --state SCHEDULED": "3", "--all --json": "4"} {
		got := d.gq(append([]string{"job", "cancel"}, strings.Fields(args)...)...)
		if got.status != 2 || !strings.Contains(got.stderr, "the flags select "+n+" jobs; say --yes to cancel them") {
			t.Errorf("%s: %+v", args, got)
		}
	}
	if report := d.json("job", "cancel", "--queue", "q", "--state", "COMPLETED"); report["cancelled"] != 0.0 {
		t.Errorf("%v", report)
	}
	if report := d.json("job", "cancel", "--queue", "q", "--yes"); report["cancelled"] != 3.0 {
		t.Errorf("%v", report)
	}
}

// TestListingByTypeAndTag has more other jobs than the server reads for a page: the
// command asks again until the page is full.
func TestListingByTypeAndTag(t *testing.T) {
	d := newShell(t)
	rare := d.submit("rare", "--tag", "a=b", "--tag", "c=d")
	specs := make([]gq.Spec, engine.MaxScan+10)
	for i := range specs {
		specs[i] = gq.Spec{Type: "common"}
	}
	for some := range slices.Chunk(specs, 1000) {
		if _, err := d.queue.(*engine.Engine).SubmitBatch(t.Context(), some); err != nil {
			t.Fatal(err)
		}
	}
	for _, args := range []string{"--type rare", "--type rare --type none", "--tag a=b", "--tag a=b --tag c=d", "--type rare --limit 1", "--type rare --oldest-first"} {
		page := d.json(append([]string{"job", "list"}, strings.Fields(args)...)...)
		if jobs, _ := page["jobs"].([]any); len(jobs) != 1 || jobs[0].(map[string]any)["id"] != rare || page["next_cursor"] != "" {
			t.Errorf("%s: %v", args, page)
		}
	}
	page := d.json("job", "list", "--type", "common", "--limit", "1000")
	if len(page["jobs"].([]any)) != 1000 || page["next_cursor"] == "" {
		t.Errorf("%d jobs, next %v", len(page["jobs"].([]any)), page["next_cursor"])
	}
	if report := d.json("job", "cancel", "--tag", "a=x"); report["cancelled"] != 0.0 {
		t.Errorf("%v", report)
	}
	if report := d.json("job", "cancel", "--type", "rare"); report["cancelled"] != 1.0 {
		t.Errorf("%v", report)
	}
	d.want(2, "job", "list", "--tag", "a")
	d.want(2, "job", "list", "--type", "")
	d.want(2, "job", "cancel", "--tag", "a")
	d.want(2, "job", "cancel", "--tag", "a=1", "--tag", "a=2")
}

// slow is a queue that takes its time to store a job.
type slow struct {
	queue
	takes time.Duration
}

func (s slow) Submit(ctx context.Context, spec gq.Spec) (gq.SubmitResult, error) {
	<-time.After(s.takes)
	return s.queue.Submit(ctx, spec)
}

// A server that cannot reach its store answers late. The command says within two seconds what it
// waits for.
func TestSubmittingSlowlySaysWhatItWaitsFor(t *testing.T) {
	d := newShell(t)
	fast := d.queue
	for _, c := range []struct {
		takes time.Duration
		want  string
	}{{0, ""}, {2 * time.Second, "gq: waiting for the server to store the job; perhaps it cannot reach its store, or its disk is full (server 127.0.0.1:8790)\n"}} {
		d.queue = slow{fast, c.takes}
		if got := d.gq("submit", "t", "--key", "abc"+c.takes.String()); got.status != 0 || got.stderr != c.want {
			t.Errorf("after %v: status %d, %q", c.takes, got.status, got.stderr)
		}
	}
}
