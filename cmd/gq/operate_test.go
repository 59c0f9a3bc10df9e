package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/client"
	"github.com/gopherqueue/gq/machine"
)

func TestQueueCommands(t *testing.T) {
	d := newShell(t)
	d.want(3, "queue", "show", "mail")
	d.want(0, "pool", "set", "gpu", "--capacity", "8")
	q := d.json("queue", "set", "mail", "--max-running", "2", "--rate", "100/1m", "--burst", "5", "--fair", "--pool", "gpu", "--lease-ttl", "9s")
	rate, _ := q["rate"].(map[string]any)
	policy, _ := q["policy"].(map[string]any)
	if q["name"] != "mail" || q["max_running"] != 2.0 || rate["count"] != 100.0 || rate["per"] != "1m0s" || rate["burst"] != 5.0 || q["fair"] != true || policy["lease_ttl"] != "9s" {
		t.Errorf("%v", q)
	}
	if q := d.json("queue", "set", "mail", "--rate", "0", "--max-depth", "1"); q["rate"] != nil || q["max_running"] != 2.0 {
		t.Errorf("%v", q)
	}
	d.submit("a", "--queue", "mail")
	d.want(1, "submit", "a", "--queue", "mail")
	if q := d.json("queue", "pause", "mail"); q["paused"] != true || q["counts"] == nil {
		t.Errorf("%v", q)
	}
	if got := d.want(0, "queue", "list"); !strings.Contains(got, "mail") || !strings.Contains(got, "yes") || !strings.Contains(got, "pool gpu") {
		t.Errorf("%s", got)
	}
	if q := d.json("queue", "resume", "mail"); q["paused"] != false {
		t.Errorf("%v", q)
	}
	if all := d.json("queue", "list"); len(all["queues"].([]any)) != 1 {
		t.Errorf("%v", all)
	}
	if got := d.want(0, "queue", "show", "mail"); !strings.Contains(got, "jobmodel") || !strings.Contains(got, "1 live") {
		t.Errorf("%s", got)
	}
	if got := d.want(0, "pool", "list"); !strings.Contains(got, "gpu") {
		t.Errorf("%s", got)
	}
	if got := d.gq("queue", "pause", "mial"); got.status != 0 || got.stdout != "mial paused\n" || got.stderr != "gq: there was no queue mial before; did you mean mail?\n" {
		t.Errorf("%+v", got)
	}
	if got := d.gq("queue", "pause", "mial"); got.status != 0 || got.stderr != "" {
		t.Errorf("%+v", got)
	}
	if got := d.gq("queue", "resume", "mali"); got.status != 3 || !strings.Contains(got.stderr, "did you mean mail?") {
		t.Errorf("%+v", got)
	}
	for _, args := range [][]string{
		{"queue"},
		{"queue", "set", "mail"},
		{"queue", "set", "a b", "--fair"},
		{"queue", "set", "mail", "--rate", "fast"},
		{"queue", "set", "mail", "--burst", "2"},
		{"queue", "set", "mail", "--max-running", "-1"},
		{"queue", "set", "mail", "--preset", "x"},
		{"queue", "pause"},
		{"pool", "set", "x"},
		{"pool", "set", "x", "--capacity", "-1"},
	} {
		d.want(2, args...)
	}
}

func TestScheduleCommands(t *testing.T) {
	d := newShell(t)
	s := d.json("schedule", "set", "nightly", "--cron", "30 2 * * *", "--time-zone", "Europe/Berlin", "--type", "report", "--payload", `{"x":1}`, "--missed", "skip")
	job, _ := s["job"].(map[string]any)
	if s["name"] != "nightly" || s["next_at"] == nil || job["type"] != "report" || s["missed"] != "skip" {
		t.Errorf("%v", s)
	}
	if got := d.want(0, "schedule", "list"); !strings.Contains(got, "30 2 * * * Europe/Berlin") {
		t.Errorf("%s", got)
	}
	if s := d.json("schedule", "pause", "nightly"); s["paused"] != true {
		t.Errorf("%v", s)
	}
	if s := d.json("schedule", "resume", "nightly"); s["paused"] != false {
		t.Errorf("%v", s)
	}
	if got := d.want(0, "schedule", "show", "nightly"); !strings.Contains(got, "report") {
		t.Errorf("%s", got)
	}
	if got := d.json("schedule", "delete", "nightly", "--yes"); got["deleted"] != "nightly" {
		t.Errorf("%v", got)
	}
	for _, verb := range []string{"show", "pause", "resume"} {
		d.want(3, "schedule", verb, "nightly")
	}
	d.want(3, "schedule", "delete", "nightly", "--yes")
	for _, args := range [][]string{
		{"set", "x"},
		{"set", "x", "--cron", "bad", "--type", "a"},
		{"set", "x", "--every", "1s", "--cron", "* * * * *", "--type", "a"},
		{"set", "x", "--every", "1s"},
		{"set", "x", "--every", "1s", "--type", "a", "--missed", "never"},
		{"set", "x", "--every", "1s", "--type", "a", "--start", "now"},
	} {
		d.want(2, append([]string{"schedule"}, args...)...)
	}
}

func TestScheduleFireCommands(t *testing.T) {
	d := newShell(t)
	s := d.json("schedule", "set", "hourly", "--every", "1h", "--type", "report", "--payload", `{"at":"{{slot}}"}`,
		"--overlap", "skip", "--jitter", "5m", "--end", "2190-01-01T00:00:00Z")
	if s["overlap"] != "skip" || s["jitter"] != "5m0s" || s["end"] != "2190-01-01T00:00:00Z" {
		t.Errorf("%v", s)
	}
	fired := d.json("schedule", "trigger", "hourly")
	id, _ := fired["job"].(string)
	job := d.json("job", "get", id)
	if payload, _ := job["payload"].(map[string]any); payload["at"] != fired["slot"] || fired["slot"] == nil {
		t.Errorf("triggered %v, and the job reads %v", fired, job)
	}
	backfill := []string{"schedule", "backfill", "hourly", "--from", "2020-01-01T00:00:00Z", "--to", "2020-01-01T05:59:59Z"}
	if got := d.json(append(backfill, "--dry-run")...); fmt.Sprint(got["missing"]) != "6" || fmt.Sprint(got["submitted"]) != "0" {
		t.Errorf("dry run: %v", got)
	}
	if got := d.want(0, append(backfill, "--limit", "4")...); !strings.Contains(got, "4 jobs submitted; continue with --from 2020-01-01T04:") {
		t.Errorf("%s", got)
	}
	if got := d.want(0, backfill...); !strings.Contains(got, "2 jobs submitted; all 6 slots have a job") {
		t.Errorf("%s", got)
	}
	d.want(3, "schedule", "trigger", "none")
	for _, args := range [][]string{
		{"backfill", "hourly"},
		{"backfill", "hourly", "--from", "yesterday", "--to", "2020-01-01T00:00:00Z"},
		{"backfill", "hourly", "--from", "2020-01-02T00:00:00Z", "--to", "2020-01-01T00:00:00Z"},
		{"set", "x", "--every", "1h", "--type", "a", "--overlap", "never"},
		{"set", "x", "--every", "1h", "--type", "a", "--jitter", "1h"},
		{"set", "x", "--every", "1h", "--type", "a", "--end", "2020-01-01T00:00:00Z"},
	} {
		d.want(2, append([]string{"schedule"}, args...)...)
	}
}

func TestDeadLetters(t *testing.T) {
	d := newShell(t)
	var ids []string
	for range 2 {
		ids = append(ids, d.submit("a", "--max-attempts", "1"))
		d.settle(gq.Outcome{Verdict: gq.VerdictFail, Failure: gq.Failure{Category: gq.CategoryTemporary, Message: "down"}})
	}
	if page := d.json("dlq", "list"); len(page["jobs"].([]any)) != 2 {
		t.Errorf("%v", page)
	}
	for args, want := range map[string]int{"--type a": 2, "--type b": 0, "--tag x=y": 0} {
		if page := d.json(append([]string{"dlq", "list"}, strings.Fields(args)...)...); len(page["jobs"].([]any)) != want {
			t.Errorf("%s: %v", args, page)
		}
	}
	if report := d.json("dlq", "purge", "--type", "b", "--yes"); report["purged"] != 0.0 {
		t.Errorf("%v", report)
	}
	if got := d.want(0, "dlq", "list"); !strings.Contains(got, "DEAD_LETTER") || !strings.Contains(got, "down") {
		t.Errorf("%s", got)
	}
	if again := strings.TrimSpace(d.want(0, "dlq", "replay", ids[0])); d.json("job", "get", again)["replay_of"] != ids[0] {
		t.Errorf("replayed as %s", again)
	}
	if twice := d.gq("job", "replay", ids[0]); strings.TrimSpace(twice.stdout) != d.json("job", "list", "--key", ids[0])["jobs"].([]any)[0].(map[string]any)["id"] ||
		!strings.Contains(twice.stderr, "was replayed before") {
		t.Errorf("replayed again as %+v", twice)
	}
	if got := d.gq("dlq", "replay", "--all"); len(strings.Fields(got.stdout)) != 1 || !strings.Contains(got.stderr, "1 already replayed") {
		t.Errorf("replayed as %+v", got)
	}
	d.want(5, "dlq", "replay", d.submit("b"))
	if got := d.gq("dlq", "purge", ids[0]); got.status != 2 || !strings.Contains(got.stderr, "say --yes") {
		t.Errorf("nobody was asked: %+v", got)
	}
	live := d.submit("b")
	d.want(5, "dlq", "purge", live, "--yes")
	d.want(2, "dlq", "purge", "--yes")
	d.want(2, "dlq", "purge", ids[0], "--all", "--yes")
	d.want(2, "dlq", "purge", "zzz", "--yes")
	if got := d.want(0, "dlq", "purge", ids[0], "--yes"); got != "1 purged\n" {
		t.Errorf("%q", got)
	}
	d.want(3, "dlq", "purge", ids[0], "--yes")
	d.want(3, "job", "get", ids[0])
	d.want(0, "job", "get", ids[1])
	if report := d.json("dlq", "purge", "--queue", "elsewhere", "--yes"); report["purged"] != 0.0 {
		t.Errorf("%v", report)
	}
	if report := d.json("dlq", "purge", "--all", "--yes"); report["purged"] != 1.0 {
		t.Errorf("%v", report)
	}
	d.want(0, "job", "get", live)
	if page := d.json("dlq", "list"); len(page["jobs"].([]any)) != 0 {
		t.Errorf("%v", page)
	}
	d.want(2, "dlq", "replay")
	d.want(2, "dlq", "replay", live, "--all")
	d.want(2, "dlq", "list", "--limit", "0")
	d.want(3, "dlq", "replay", unknownID)
}

// hopeless is a queue whose replayed jobs die at once.
type hopeless struct {
	queue
	replayed int
}

func (h *hopeless) Replay(ctx context.Context, id gq.JobID) (gq.SubmitResult, error) {
	if h.replayed++; h.replayed > 5000 {
		return gq.SubmitResult{}, errors.New("this does not end")
	}
	out, err := h.queue.Replay(ctx, id)
	if err != nil {
		return out, err
	}
	return out, giveUp(ctx, h.queue, 1)
}

// giveUp fails jobs that have one attempt.
func giveUp(ctx context.Context, q queue, n int) error {
	jobs, err := q.Claim(ctx, gq.ClaimRequest{Worker: "w", N: n})
	if err != nil || len(jobs) != n {
		return fmt.Errorf("claimed %d of %d: %w", len(jobs), n, err)
	}
	outcomes := make([]gq.Outcome, n)
	for i := range jobs {
		outcomes[i] = gq.Outcome{Lease: jobs[i].State.Lease.Ref(), Verdict: gq.VerdictFail, Failure: gq.Failure{Category: gq.CategoryTemporary}}
	}
	_, err = q.Settle(ctx, outcomes)
	return err
}

// Replayed jobs that die again during the replay are not replayed once more.
func TestReplayingDeadLettersEnds(t *testing.T) {
	d := newShell(t)
	const jobs = 600 // more than one page
	once := machine.DefaultPolicy()
	once.MaxAttempts = 1
	for range jobs {
		if _, err := d.queue.Submit(t.Context(), gq.Spec{Type: "a", Policy: once}); err != nil {
			t.Fatal(err)
		}
	}
	if err := giveUp(t.Context(), d.queue, jobs); err != nil {
		t.Fatal(err)
	}
	d.queue = &hopeless{queue: d.queue}
	if got := strings.Fields(d.want(0, "dlq", "replay", "--all")); len(got) != jobs {
		t.Errorf("%d jobs were submitted again, want %d", len(got), jobs)
	}
}

func TestStatsWorkersAndDoctor(t *testing.T) {
	d := newShell(t)
	if got := d.gq("doctor"); got.status != 0 {
		t.Errorf("an empty queue: %+v", got)
	}
	d.submit("a")
	got := d.gq("doctor")
	if got.status != 1 || !strings.Contains(got.stdout, "default has 1 ready job that no worker asks for") {
		t.Errorf("%+v", got)
	}
	d.settle(gq.Outcome{Verdict: gq.VerdictComplete})
	d.want(0, "doctor")
	var checks struct{ Checks []finding }
	if err := json.Unmarshal([]byte(d.want(0, "doctor", "--json")), &checks); err != nil || len(checks.Checks) < 3 {
		t.Errorf("%+v, %v", checks, err)
	}
	stats := d.json("stats")
	total, _ := stats["total"].(map[string]any)
	if total["COMPLETED"] != 1.0 || stats["live"] != 0.0 {
		t.Errorf("%v", stats)
	}
	if got := d.want(0, "stats"); !strings.Contains(got, "COMPLETED") || !strings.Contains(got, "default") {
		t.Errorf("%s", got)
	}
	workers := d.json("worker", "list")
	if all, _ := workers["workers"].([]any); len(all) != 1 || all[0].(map[string]any)["name"] != "w" {
		t.Errorf("%v", workers)
	}
	if got := d.want(0, "worker", "list"); !strings.Contains(got, "WORKER") {
		t.Errorf("%s", got)
	}
}

// lost is a queue behind a connection that broke before the answer.
type lost struct{ queue }

func (lost) Submit(context.Context, gq.Spec) (gq.SubmitResult, error) {
	return gq.SubmitResult{}, fmt.Errorf("%w: error reading from server: EOF", client.ErrOutcomeUnknown)
}

// A submission whose answer was lost is not told as one that reached no server.
func TestAnUnknownOutcome(t *testing.T) {
	d := &shell{t: t, queue: lost{}, env: map[string]string{}}
	got := d.gq("submit", "mail", "--addr", "somewhere:1")
	if got.status != 4 || !strings.Contains(got.stderr, "the outcome is unknown") || !strings.Contains(got.stderr, "somewhere:1") ||
		strings.Contains(got.stderr, "no server can be reached") || strings.Contains(got.stderr, "is gq serve running") {
		t.Errorf("%+v", got)
	}
}

// down is an unreachable queue.
type down struct{ queue }

func (down) Stats(context.Context) (gq.Stats, error) { return gq.Stats{}, gq.ErrClosed }

func TestAnUnreachableServer(t *testing.T) {
	d := &shell{t: t, queue: down{}, env: map[string]string{}}
	got := d.gq("stats", "--addr", "nowhere:1")
	if got.status != 4 || !strings.Contains(got.stderr, "nowhere:1") || strings.Contains(got.stderr, "is gq serve running") || got.stdout != "" {
		t.Errorf("%+v", got)
	}
	got = d.gq("doctor")
	if got.status != 4 || !strings.Contains(got.stdout, "fail") {
		t.Errorf("%+v", got)
	}
	// And a real one.
	d.env["GQ_ADDR"] = "127.0.0.1:1"
	if got := gqIn(t.Context(), t.TempDir(), "stats", "--addr", "127.0.0.1:1"); got.status != 4 || !strings.Contains(got.stderr, "is gq serve running there?") {
		t.Errorf("%+v", got)
	}
}

func TestConfigCommands(t *testing.T) {
	d := newShell(t)
	file := filepath.Join(t.TempDir(), "gq.yaml")
	write := func(text string) {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("http: 127.0.0.1:1234\nretention:\n  completed: 48h\n")
	if got := d.want(0, "config", "check", "--config", file); got != "ok\n" {
		t.Errorf("%q", got)
	}
	d.env["GQ_DRAIN"] = "7s"
	got := d.want(0, "config", "print", "--config", file, "--log-level", "debug", "--insecure")
	for _, want := range []string{
		"http: \"127.0.0.1:1234\" # " + file + ":1", "  completed: 48h0m0s # " + file + ":3", "drain: 7s # GQ_DRAIN", "  level: debug # --log-level", "insecure: true # --insecure",
		"store: \"file:gq-data\" # default",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("%q is not in\n%s", want, got)
		}
	}
	if v := d.json("config", "print", "--config", file); v["drain"].(map[string]any)["value"] != "7s" {
		t.Errorf("%v", v["drain"])
	}
	write("htpp: x\ndrain: long\n")
	bad := d.gq("config", "check", "--config", file, "--capacity", "lots", "--store", "redis:x")
	if bad.status != 2 || bad.stdout != "" {
		t.Errorf("%+v", bad)
	}
	delete(d.env, "GQ_DRAIN")
	for _, want := range []string{":1: htpp: is not a known key; did you mean http?", ":2: drain: \"long\" is not a duration", "--capacity: capacity: \"lots\" is not"} {
		if !strings.Contains(bad.stderr, want) {
			t.Errorf("%q is not in\n%s", want, bad.stderr)
		}
	}
	// Everything that a server would reject is reported at once, each with its line.
	write("store: redis:x\nwebhooks:\n  secret: " + strings.Repeat("x", 70) + "\n  allow: [10.0.0.0/99]\nhtpp: x\n")
	bad = d.gq("config", "check", "--config", file)
	for _, want := range []string{":1: store: \"redis:x\": unknown kind", ":3: webhooks.secret: is neither whsec_", ":4: webhooks.allow: \"10.0.0.0/99\" is not an address", ":5: htpp"} {
		if bad.status != 2 || !strings.Contains(bad.stderr, want) {
			t.Errorf("%q is not in\n%+v", want, bad)
		}
	}
	for _, secret := range []string{"short", "whsec_!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!"} {
		d.want(2, "config", "check", "--webhooks-secret", secret)
	}
	d.want(2, "config", "check", "--config", "/does/not/exist")
	d.want(2, "config", "check", "--store", "redis:x")
	d.want(0, "config", "check", "--store", "postgres://u:p@h/db")
	if got := d.want(0, "config", "print", "--store", "postgres://u:p@h/db"); strings.Contains(got, ":p@") {
		t.Errorf("the password is told:\n%s", got)
	}
}

func TestWorkingWithAProgram(t *testing.T) {
	d := newShell(t)
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan outcome, 1)
	script := `
case "$GQ_JOB_TYPE" in
  shout) tr a-z A-Z ;;
  env) echo "$GQ_JOB_ID $GQ_ATTEMPT $GQ_LEASE_VERSION $GQ_QUEUE" ;;
  later) [ "$GQ_ATTEMPT" = 2 ] || { echo "not yet" >&2; exit 75; }; echo done ;;
  never) echo noise >&2; echo "bad input" >&2; exit 3 ;;
  one) [ "$GQ_ATTEMPT" = 2 ] || exit 1; echo done ;;
  crash) kill -9 $$ ;;
  slow) sleep 600 ;;
esac`
	go func() {
		done <- d.gqIn(ctx, "work", "--type", "shout,env,later,never,one,crash,slow", "--queue", "q", "--slots", "3", "--exec", script, "--name", "me", "--drain", "100ms")
	}()
	submit := func(typ string, more ...string) string {
		return d.submit(append([]string{typ, "--queue", "q"}, more...)...)
	}
	wait := func(id string) map[string]any {
		got := d.gq("job", "wait", id, "--timeout", patience.String(), "--json")
		var job map[string]any
		if err := json.Unmarshal([]byte(got.stdout), &job); err != nil {
			t.Fatalf("%v: %+v", err, got)
		}
		return job
	}
	id := submit("shout", "--payload", "\"h\u00fc\"")
	if job := wait(id); job["state"] != "COMPLETED" || job["result"] != "Hü" {
		t.Errorf("%v", job)
	}
	id = submit("env")
	wait(id)
	if got := d.want(0, "job", "get", id, "--result"); got != id+" 1 1 q\n" {
		t.Errorf("the environment is %q", got)
	}
	id = submit("later")
	if job := wait(id); job["state"] != "COMPLETED" || job["attempt"] != 2.0 {
		t.Errorf("%v", job)
	}
	job := wait(submit("never"))
	failure, _ := job["failure"].(map[string]any)
	if job["state"] != "FAILED" || failure["category"] != "PERMANENT" || failure["code"] != "exit_3" || !strings.Contains(failure["message"].(string), "bad input") {
		t.Errorf("%v", job)
	}
	for _, args := range [][]string{{"job", "get", job["id"].(string)}, {"job", "list", "--state", "FAILED"}} {
		if got := d.want(0, args...); !strings.Contains(got, "exit status 3: bad input") {
			t.Errorf("gq %v does not show the reason:\n%s", args, got)
		}
	}
	if job := wait(submit("one")); job["state"] != "FAILED" {
		t.Errorf("exit status 1: %v", job)
	}
	if job := wait(submit("one", "--preset", "resilient")); job["state"] != "COMPLETED" || job["attempt"] != 2.0 {
		t.Errorf("exit status 1 of a resilient job: %v", job)
	}
	job = wait(submit("crash", "--max-attempts", "1"))
	failure, _ = job["failure"].(map[string]any)
	if job["state"] != "DEAD_LETTER" || failure["category"] != "SYSTEM" {
		t.Errorf("%v", job)
	}
	// A job in progress when the command ends is released.
	id = submit("slow")
	for d.json("job", "get", id)["state"] != "RUNNING" {
		time.Sleep(10 * time.Millisecond)
	}
	began := time.Now()
	stop()
	if got := <-done; got.status != 0 || !strings.Contains(got.stderr, "stopped") {
		t.Errorf("%+v", got)
	}
	if took := time.Since(began); took > patience {
		t.Errorf("stopping took %v", took)
	}
	if state := d.json("job", "get", id)["state"]; state != "SCHEDULED" && state != "RETRYING" {
		t.Errorf("the job is %v", state)
	}
	for _, args := range [][]string{{"work"}, {"work", "--type", "a"}, {"work", "--exec", "x"}, {"work", "--type", "a", "--exec", "x", "--slots", "0"}, {"work", "--type", "a", "--exec", "x", "--queue", "a b"}} {
		if got := d.gq(args...); got.status != 2 {
			t.Errorf("gq %v: %+v", args, got)
		}
	}
}
