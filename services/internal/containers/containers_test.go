// Package containers_test runs the designs of the task queue in containers of a real
// Docker engine, the way docs/taskqueue.md tells.
package containers_test

import (
	"context"
	"crypto/rand"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	publicpb "github.com/gopherqueue/gq/api/taskqueue/v1"
	"github.com/gopherqueue/gq/internal/testing/spec"
	"github.com/gopherqueue/gq/internal/testing/taskqueuetest"
	"github.com/gopherqueue/gq/services/internal/compare"
	"github.com/gopherqueue/gq/services/internal/dockertest"
	"github.com/gopherqueue/gq/services/internal/load"
	"github.com/gopherqueue/gq/services/internal/rpc"
)

func TestMain(m *testing.M) { dockertest.Main(m) }

// checkout is a copy of this repository without what builds leave in it, and with
// the images built.
var checkout = sync.OnceValues(func() (dir string, err error) {
	if dir, err = os.MkdirTemp("", "gq-checkout-"); err != nil {
		return "", err
	}
	if err := copyTree("../../..", dir); err != nil {
		return "", err
	}
	var postgres error
	var other sync.WaitGroup
	other.Go(func() { postgres = command(dir, "scripts/docker-postgres") })
	err = command(dir, "scripts/docker-build")
	other.Wait()
	if err := errors.Join(err, postgres); err != nil {
		return "", err
	}
	return dir, os.Setenv("GQ_POSTGRES_IMAGE", "gopherqueue/postgres:local") // nothing is pulled
})

func copyTree(from, to string) error {
	return filepath.WalkDir(from, func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		inside, err := filepath.Rel(from, name)
		if err != nil {
			return err
		}
		switch {
		case d.IsDir() && (inside == ".git" || d.Name() == "node_modules"):
			return fs.SkipDir
		case d.IsDir():
			return os.MkdirAll(filepath.Join(to, inside), 0o755)
		case inside == "docker/gq" || inside == "docker/gqlab" || !d.Type().IsRegular():
			return nil
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		text, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		return os.WriteFile(filepath.Join(to, inside), text, info.Mode().Perm())
	})
}

// failed is a command that did not succeed.
type failed struct {
	line string
	err  error
	out  []byte
}

func (f *failed) Error() string { return f.line + ": " + f.err.Error() + "\n" + string(f.out) }

func command(dir, line string) error {
	c := exec.Command("bash", "-c", line)
	c.Dir = dir
	if out, err := c.CombinedOutput(); err != nil {
		return &failed{line, err, out}
	}
	return nil
}

func built(t *testing.T) (dir string, compose []string) {
	t.Helper()
	dir, err := checkout()
	if err != nil {
		t.Fatal(err)
	}
	if compose, err = dockertest.Compose(); err != nil {
		t.Fatal(err)
	}
	return dir, compose
}

// What the document tells to type works in a fresh checkout.
func TestDocumentedCommands(t *testing.T) {
	spec.Covers(t, "T-44")
	dir, compose := built(t)
	text, err := os.ReadFile("../../../docs/taskqueue.md")
	if err != nil {
		t.Fatal(err)
	}
	_, after, _ := strings.Cut(string(text), "\nIn containers")
	_, after, _ = strings.Cut(after, "```sh\n")
	block, _, found := strings.Cut(after, "```")
	if !found || !strings.Contains(block, "compose.a.yaml up") || !strings.Contains(block, "gqlab compare") {
		t.Fatalf("the commands are not where they were:\n%s", block)
	}
	t.Cleanup(func() { // what a failed command leaves would be in the way of the next test
		if t.Failed() {
			_ = command(dir, strings.Join(compose, " ")+" -f docker/compose.a.yaml down -v")
		}
	})
	for line := range strings.Lines(block) {
		line, _, _ = strings.Cut(line, "#")
		line = strings.TrimSpace(line)
		line = strings.Replace(line, "docker compose", strings.Join(compose, " "), 1)
		if rest, ok := strings.CutPrefix(line, "gqlab compare "); ok { // as short as can be
			line = "GQ_COMPOSE='" + strings.Join(compose, " ") + "' docker/gqlab compare --design B --duration 200ms --warmup 50ms " + rest
		}
		if line == "scripts/docker-build" { // was done already
			continue
		}
		start := time.Now()
		err := command(dir, line)
		for range 2 { // requests time out while the machine has no time for a second
			if err == nil || !strings.HasSuffix(line, " load") {
				break
			}
			t.Logf("again: %v", err)
			err = command(dir, line)
		}
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("%.1f s: %s", time.Since(start).Seconds(), line)
	}
	reports, err := filepath.Glob(filepath.Join(dir, "results/*-quick/report.md"))
	if err != nil || len(reports) != 1 {
		t.Fatalf("reports %v, %v", reports, err)
	}
	report, err := os.ReadFile(reports[0])
	if err != nil || !strings.Contains(string(report), "containers of one Docker engine") || !strings.Contains(string(report), "0 were not accounted for") ||
		!regexp.MustCompile(`\| processor time of other processes \| [0-9.]+ cores on average`).Match(report) {
		t.Errorf("%v: %.2000s", err, report)
	}
}

// Every design starts in containers and is what the contract says; its nodes can
// be killed and paused, one after the other, and it goes on without a restart of
// the others.
func TestContainers(t *testing.T) {
	spec.Covers(t, "T-01", "T-279")
	for _, test := range []struct {
		design string
		nodes  []string
		keeps  bool // what it has accepted
	}{
		{design: "A", nodes: []string{"gateway", "job", "queue", "coordinator", "worker", "result"}},
		{design: "B", nodes: []string{"node-4"}},
		{design: "C", nodes: []string{"server-2", "postgres"}, keeps: true},
	} {
		t.Run(test.design, func(t *testing.T) {
			s := start(t, test.design)
			taskqueuetest.Run(t, taskqueuetest.Target{Addresses: s.Addresses(), Slots: 6})
			var ids []string
			for _, node := range test.nodes {
				if test.keeps {
					ids = append(ids, s.submit(t, 12)...)
				}
				s.docker(t, "kill", node, "exited")
				s.docker(t, "start", node, "running")
				s.works(t, "a kill of "+node)
				s.docker(t, "pause", node, "paused")
				s.docker(t, "unpause", node, "running")
				s.works(t, "a pause of "+node)
			}
			s.done(t, ids)
		})
	}
}

// started is a design in containers.
type started struct {
	compare.System
	project string
}

func start(t *testing.T, design string) started {
	t.Helper()
	dir, compose := built(t)
	d, err := compare.Find(design)
	if err != nil {
		t.Fatal(err)
	}
	system, err := compare.Compose(compose, filepath.Join(dir, "docker"))(t.Context(), d)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := system.Stop(); err != nil {
			t.Error(err)
		}
	})
	return started{system, "gq-" + strings.ToLower(design)}
}

// patience is how long something may take that happens in the end.
const patience = 4 * time.Minute

// docker does something to the container of a node, which must have a state then.
func (s started) docker(t *testing.T, verb, node, want string) {
	t.Helper()
	id := dockertest.Docker(t, "ps", "--all", "--quiet", "--filter", "label=com.docker.compose.project="+s.project, "--filter", "label=com.docker.compose.service="+node)
	dockertest.Docker(t, verb, id)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for {
		state := dockertest.Docker(t, "inspect", "--format", "{{.State.Status}}", id)
		if state == want {
			return
		}
		if !rpc.Wait(ctx, 50*time.Millisecond) {
			t.Fatalf("after %s the container of %s is %s", verb, node, state)
		}
	}
}

// works wants a load without a wrong answer, soon: a node that comes back needs a
// moment.
func (s started) works(t *testing.T, after string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	l := load.DefaultSettings()
	l.Targets, l.Concurrency, l.Warmup, l.Duration, l.Drain, l.Payload = s.Addresses(), 4, 50*time.Millisecond, 100*time.Millisecond, 3*time.Second, 16
	for {
		report, err := load.Run(ctx, l)
		if err != nil {
			t.Fatalf("after %s: %v", after, err)
		}
		errors := 0
		for _, m := range report.Methods {
			for _, n := range m.Errors {
				errors += n
			}
		}
		if report.Correct() && errors == 0 && report.Jobs.Done > 0 {
			return
		}
		t.Logf("after %s, not yet: %d errors, %+v %v", after, errors, report.Jobs, report.Examples)
	}
}

func (s started) client(t *testing.T) publicpb.TaskQueuePublicServiceClient {
	t.Helper()
	conn, err := rpc.DialPatiently(s.Addresses()[0], "test", patience)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return publicpb.NewTaskQueuePublicServiceClient(conn)
}

// submit makes jobs of which some run and some wait when the next fault comes.
func (s started) submit(t *testing.T, n int) (ids []string) {
	t.Helper()
	c := s.client(t)
	for range n {
		// With a key, so that it may be repeated where a server was too slow.
		answer, err := c.SubmitJob(t.Context(), &publicpb.SubmitJobRequest{Spec: &publicpb.JobSpec{JobType: "kept", WorkDurationMs: 300}, ClientRequestId: rand.Text()})
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, answer.GetJobId())
	}
	return ids
}

// done waits for jobs to be done.
func (s started) done(t *testing.T, ids []string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	c := s.client(t)
	for _, id := range ids {
		for {
			now, err := c.GetJobStatus(ctx, &publicpb.GetJobStatusRequest{JobId: id})
			if now.GetStatus() == publicpb.JobStatus_DONE {
				break
			}
			if now.GetStatus() > publicpb.JobStatus_RUNNING || !rpc.Wait(ctx, 20*time.Millisecond) {
				t.Fatalf("%s is %v, %v", id, now, err)
			}
		}
	}
}
