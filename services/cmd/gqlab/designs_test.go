package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"io"
	"os"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gopherqueue/gq/internal/cli"
	"github.com/gopherqueue/gq/internal/testing/leaktest"
	"github.com/gopherqueue/gq/internal/testing/spec"
	"github.com/gopherqueue/gq/services/internal/load"
	"github.com/gopherqueue/gq/services/internal/servicetest"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// outcome is what a user sees of a run.
type outcome struct {
	status         int
	stdout, stderr string
}

func gqlab(ctx context.Context, args ...string) outcome {
	var stdout, stderr bytes.Buffer
	status := run(ctx, args, func(string) string { return "" }, &stdout, &stderr)
	return outcome{status, stdout.String(), stderr.String()}
}

// waitFor waits for a condition.
func waitFor(t *testing.T, what string, so func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !so(); time.Sleep(10 * time.Millisecond) { //nolint:forbidigo // another goroutine's doing
		if time.Now().After(deadline) {
			t.Fatal("waited in vain for " + what)
		}
	}
}

func TestTaskQueueUsage(t *testing.T) {
	for _, test := range []struct {
		args   string
		status int
		want   string
	}{
		{"svc --help", 0, "gqlab svc worker      --coordinator ADDR [--slots 6]"},
		{"node --help", 0, "FNV-1a"},
		{"load --help", 0, "from the moment\na request was due"},
		{"compare --help", 0, "six identical nodes"},
		{"svc", 2, "a command is missing after gqlab svc; want one of coordinator, gateway, job, queue, result, worker"},
		{"svc gateway", 2, "job: its address is missing"},
		{"svc coordinator --job a:1 --result b:1", 2, "queue: its address is missing"},
		{"svc worker", 2, "coordinator: its address is missing"},
		{"svc worker --coordinator a:1 --slots 0", 2, "slots: 0 is less than 1"},
		{"svc worker --listen :1", 2, "unknown flag"},
		{"svc job --log-level loud", 2, "log-level: \"loud\" is not one of"},
		{"svc job extra", 2, "takes no arguments"},
		{"svc job --listen nowhere:99999", 1, "listen"},
		{"node --peers a:1,b:1 --index 2", 2, "index: 2 is not between 0 and 1"},
		{"node --slots 0", 2, "slots: 0 is less than 1"},
		{"load", 2, "targets: none given"},
		{"load --target a:1 --mix submit=x", 2, "mix"},
		{"load --target a:1 --concurrency 0 --duration 0s", 2, "concurrency: 0"},
		{"compare --design Z", 2, "\"Z\" is not one of A, B"},
		{"compare up", 2, "name one design: A or B"},
		{"compare up Q", 2, "\"Q\" is not one of"},
		{"compare up A --base-port 65534", 2, "base-port"},
	} {
		t.Run(test.args, func(t *testing.T) {
			got := gqlab(t.Context(), strings.Fields(test.args)...)
			said := got.stdout
			if test.status != 0 {
				said = got.stderr
			}
			if got.status != test.status || !strings.Contains(said, test.want) {
				t.Errorf("status %d, it said\n%s\nwant %d and %q", got.status, said, test.status, test.want)
			}
		})
	}
}

// running is a command in progress.
type running struct {
	line   string // first line on standard output
	stderr *servicetest.Journal
	end    func() int
}

// begin runs a command until end is called.
func begin(t *testing.T, env map[string]string, args ...string) running {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	out, in := io.Pipe()
	r := running{stderr: &servicetest.Journal{}}
	ended := make(chan int, 1)
	go func() {
		ended <- run(ctx, args, func(name string) string { return env[name] }, in, r.stderr)
		in.Close()
	}()
	lines := bufio.NewReader(out)
	r.line, _ = lines.ReadString('\n')
	go io.Copy(io.Discard, lines) //nolint:errcheck // nothing more is expected
	r.end = sync.OnceValue(func() int { cancel(); return <-ended })
	t.Cleanup(func() { r.end() })
	return r
}

var listening = regexp.MustCompile(`^listening grpc=(127\.0\.0\.1:\d+)\n$`)

func (r running) addr(t *testing.T) string {
	t.Helper()
	m := listening.FindStringSubmatch(r.line)
	if m == nil {
		t.Fatalf("first line %q, and %v", r.line, r.stderr.Lines(t, ""))
	}
	return m[1]
}

// loadUntilNot repeats a load, longer each time, until a condition is false: a machine
// may be busy for all of a short one.
func loadUntilNot(t *testing.T, so func(stdout string) bool, flags ...string) outcome {
	t.Helper()
	for length := 300 * time.Millisecond; ; length *= 5 {
		got := gqlab(t.Context(), append([]string{
			"load", "--concurrency", "2", "--warmup", "50ms", "--duration", length.String(), "--drain", "2s",
		}, flags...)...)
		late := got.status == cli.ExitFailure && strings.Contains(got.stderr, "requests failed") && strings.Contains(got.stderr, "DEADLINE_EXCEEDED")
		if got.status != 0 && !late || got.status == 0 && !so(got.stdout) || length > time.Minute {
			return got
		}
	}
}

// All six services, connected by flags and environment, run a job.
func TestServicesByHand(t *testing.T) {
	spec.Covers(t, "T-05", "T-39", "T-197", "T-198", "T-260")
	job, queue, result := begin(t, nil, "svc", "job"), begin(t, nil, "svc", "queue"), begin(t, nil, "svc", "result")
	to := []string{"--job", job.addr(t), "--queue", queue.addr(t), "--result", result.addr(t)}
	coordinator := begin(t, nil, append([]string{"svc", "coordinator"}, to...)...)
	gateway := begin(t, map[string]string{"GQ_JOB": job.addr(t), "GQ_QUEUE": queue.addr(t), "GQ_RESULT": result.addr(t), "GQ_LISTEN": "127.0.0.1:0"}, "svc", "gateway")
	named := begin(t, map[string]string{"WORKER_ID": "by-name", "GQ_SLOTS": "2"}, "svc", "worker", "--coordinator", coordinator.addr(t))
	if named.line != "working worker_id=by-name\n" {
		t.Errorf("worker says %q", named.line)
	}
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	unnamed := begin(t, nil, "svc", "worker", "--coordinator", coordinator.addr(t))
	if unnamed.line != "working worker_id="+host+"\n" {
		t.Errorf("worker says %q", unnamed.line)
	}

	var report struct {
		Jobs struct{ Accepted, Done int }
	}
	got := loadUntilNot(t, func(stdout string) bool {
		return json.Unmarshal([]byte(stdout), &report) == nil && report.Jobs.Done == 0
	}, "--target", gateway.addr(t), "--json")
	if got.status != 0 || report.Jobs.Done == 0 {
		t.Errorf("status %d, %s%s", got.status, got.stdout, got.stderr)
	}
	workers := make(map[string]bool)
	waitFor(t, "two workers", func() bool {
		for _, l := range coordinator.stderr.Lines(t, "worker_available") {
			workers[l.Text("worker_id")] = true
		}
		return len(workers) >= 2
	})
	if len(workers) != 2 || !workers["by-name"] || !workers[host] {
		t.Errorf("workers %v", workers)
	}
	for name, r := range map[string]running{"named": named, "gateway": gateway, "coordinator": coordinator, "job": job} {
		if status := r.end(); status != 0 {
			t.Errorf("%s ended with %d", name, status)
		}
	}
}

func TestNodeByHand(t *testing.T) {
	spec.Covers(t, "T-08")
	node := begin(t, map[string]string{"GQ_LISTEN": "127.0.0.1:0", "GQ_LOG_LEVEL": "debug"}, "node")
	got := loadUntilNot(t, func(string) bool { return false }, "--target", node.addr(t), "--rate", "200")
	if got.status != 0 || !strings.Contains(got.stdout, "GetJobResult") || !strings.Contains(got.stdout, " 0 wrong answers") {
		t.Errorf("status %d\n%s%s", got.status, got.stdout, got.stderr)
	}
	if status := node.end(); status != 0 {
		t.Errorf("ended with %d", status)
	}
}

func TestEnvironmentThatDoesNotFit(t *testing.T) {
	var stdout, stderr bytes.Buffer
	status := run(t.Context(), []string{"node"}, func(name string) string {
		return map[string]string{"GQ_SLOTS": "many", "GQ_INDEX": "x"}[name]
	}, &stdout, &stderr)
	if status != 2 || !strings.Contains(stderr.String(), "GQ_SLOTS") || !strings.Contains(stderr.String(), "GQ_INDEX") {
		t.Errorf("status %d: %s", status, stderr.String())
	}
}

func TestLoadOfNobody(t *testing.T) {
	got := gqlab(t.Context(), "load", "--target", "127.0.0.1:1", "--warmup", "0s", "--duration", "100ms", "--concurrency", "1")
	if got.status != cli.ExitFailure || !strings.Contains(got.stdout, "0 jobs accepted") || !strings.Contains(got.stderr, " UNAVAILABLE, such as: ") {
		t.Errorf("status %d\n%s%s", got.status, got.stdout, got.stderr)
	}
}

// gqlab load prints what failed, and exits with an error.
func TestLoadTellsFailures(t *testing.T) {
	r := &load.Report{Errors: map[string]int{"UNAUTHENTICATED": 3}, ErrorExamples: map[string]string{"UNAUTHENTICATED": "a valid token is required"}}
	if err := failures(r); err == nil || err.Error() != "3 requests failed\n  3 UNAUTHENTICATED, such as: a valid token is required" {
		t.Errorf("it says %v", err)
	}
	if err := failures(&load.Report{PerSecond: 10}); err != nil {
		t.Errorf("nothing failed, and it says %v", err)
	}
}
