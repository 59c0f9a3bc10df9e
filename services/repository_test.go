package services_test

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"

	"github.com/gopherqueue/gq/internal/testing/spec"
)

type composeFile struct {
	Services map[string]struct {
		Image       string            `yaml:"image"`
		Command     []string          `yaml:"command"`
		Environment map[string]string `yaml:"environment"`
		Ports       []string          `yaml:"ports"`
		Profiles    []string          `yaml:"profiles"`
	} `yaml:"services"`
}

func readCompose(t *testing.T, name string) (c composeFile) {
	t.Helper()
	if err := yaml.Unmarshal([]byte(readFile(t, "../docker/"+name)), &c); err != nil {
		t.Fatal(err)
	}
	return c
}

func readFile(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestComposeA(t *testing.T) {
	spec.Covers(t, "T-05", "T-06", "T-15", "T-17", "T-59", "T-114", "T-256", "T-268", "T-271")
	c := readCompose(t, "compose.a.yaml")
	var nodes []string
	for name, s := range c.Services {
		if s.Image != "gopherqueue/gq:local" {
			t.Errorf("%s runs %s", name, s.Image)
		}
		if len(s.Profiles) > 0 {
			continue // the load generator is not a node
		}
		nodes = append(nodes, name)
		if !slices.Equal(s.Command[:2], []string{"svc", name}) {
			t.Errorf("%s runs %v", name, s.Command)
		}
		if (len(s.Ports) > 0) != (name == "gateway") {
			t.Errorf("%s publishes %v", name, s.Ports)
		}
		if slices.Contains(s.Command, "--listen") == (name == "worker") {
			t.Errorf("%s runs %v", name, s.Command)
		}
	}
	slices.Sort(nodes)
	if !slices.Equal(nodes, []string{"coordinator", "gateway", "job", "queue", "result", "worker"}) {
		t.Errorf("nodes %v", nodes)
	}
	if at := slices.Index(c.Services["worker"].Command, "--slots"); at < 0 || c.Services["worker"].Command[at+1] != "${TOTAL_WORKER_SLOTS:-6}" {
		t.Errorf("worker runs %v", c.Services["worker"].Command)
	}
	if load := c.Services["load"]; len(load.Profiles) != 1 || !slices.Contains(load.Command, "gateway:7000") {
		t.Errorf("load %v", load)
	}
}

func TestComposeB(t *testing.T) {
	spec.Covers(t, "T-06", "T-07", "T-16", "T-268", "T-271")
	c := readCompose(t, "compose.b.yaml")
	nodes := 0
	for name, s := range c.Services {
		if len(s.Profiles) > 0 {
			continue
		}
		index := s.Environment["GQ_INDEX"]
		if name != "node-"+index || !slices.Equal(s.Command, []string{"node"}) || s.Environment["GQ_SLOTS"] != "${NODE_SLOTS:-1}" ||
			strings.Split(s.Environment["GQ_PEERS"], ",")[int(index[0]-'0')] != name+":7000" || s.Image != "gopherqueue/gq:local" ||
			!slices.Equal(s.Ports, []string{"127.0.0.1:700" + index + ":7000"}) {
			t.Errorf("%s: %+v", name, s)
		}
		nodes++
	}
	if nodes != 6 || len(c.Services) != 7 {
		t.Errorf("%d nodes among %d services", nodes, len(c.Services))
	}
}

// The load generator of each Compose file has the settings of the comparison, and without a
// file the values of the full plan.
func TestComposeLoadTakesTheSettings(t *testing.T) {
	settings := make(map[string]string)
	for line := range strings.Lines(readFile(t, "../docker/settings.env")) {
		if name, value, found := strings.Cut(strings.TrimSpace(line), "="); found && !strings.HasPrefix(line, "#") {
			settings[name] = value
		}
	}
	for _, file := range []string{"compose.a.yaml", "compose.b.yaml", "compose.c.yaml"} {
		load := readCompose(t, file).Services["load"]
		for variable, setting := range map[string]string{
			"GQ_CONCURRENCY": "MIX_CLIENTS", "GQ_WORK": "LOAD_WORK", "GQ_MIX": "LOAD_MIX", "GQ_CONNECTIONS": "CONNECTIONS", "GQ_WARMUP": "WARMUP", "GQ_DURATION": "DURATION", "GQ_DRAIN": "DRAIN",
			"GQ_PAYLOAD": "PAYLOAD_SIZE_BYTES", "GQ_SEED": "SEED",
		} {
			if got, want := load.Environment[variable], "${"+setting+":-"+settings[setting]+"}"; got != want {
				t.Errorf("%s: %s of the load is %q, want %q", file, variable, got, want)
			}
		}
	}
}

// Design C in containers has as many slots as the others, and one store.
func TestComposeC(t *testing.T) {
	c := readCompose(t, "compose.c.yaml")
	servers := 0
	for name, s := range c.Services {
		if !strings.HasPrefix(name, "server-") {
			continue
		}
		if s.Image != "gopherqueue/gq:local" || !slices.Equal(s.Command, []string{"serve"}) || s.Environment["GQ_TASKQUEUE_SLOTS"] != "${SERVER_SLOTS:-2}" ||
			!strings.HasPrefix(s.Environment["GQ_STORE"], "postgres://gq:gq@postgres:5432/") ||
			s.Ports[0] != "127.0.0.1:700"+strings.TrimPrefix(name, "server-")+":7000" {
			t.Errorf("%s: %+v", name, s)
		}
		servers++
	}
	if servers != 3 || len(c.Services) != 5 || len(c.Services["postgres"].Ports) > 0 {
		t.Errorf("%d servers among %d services", servers, len(c.Services))
	}
}

func TestImageHasNothingButTheProgram(t *testing.T) {
	text := readFile(t, "../docker/Dockerfile")
	if !strings.Contains(text, "FROM scratch") || strings.Count(text, "FROM ") != 1 || strings.Contains(text, "RUN ") {
		t.Errorf("Dockerfile:\n%s", text)
	}
	if build := readFile(t, "../scripts/docker-build"); !strings.Contains(build, "CGO_ENABLED=0") || strings.Contains(build, "docker pull") {
		t.Errorf("docker-build:\n%s", build)
	}
}

func TestRepositoryLayout(t *testing.T) {
	spec.Covers(t, "T-281", "T-282", "T-283")
	for _, name := range []string{
		"README.md", "proto/taskqueue_public.proto", "proto/taskqueue_internal.proto", "services/gateway", "services/job", "services/queue",
		"services/coordinator", "services/worker", "services/result", "docker", "scripts", "results",
	} {
		if _, err := os.Stat("../" + name); err != nil {
			t.Error(err)
		}
	}
}

// The README has a section that says how to run each design, its load and the comparison. Every
// file and every flag that it names is there.
func TestReadmeDocumentsTheRun(t *testing.T) {
	spec.Covers(t, "T-280")
	_, section, found := strings.Cut(readFile(t, "../README.md"), "\n## The task queue and its comparison\n")
	if !found {
		t.Fatal("README.md has no section about the task queue")
	}
	section, _, _ = strings.Cut(section, "\n## ")
	words := strings.Join(strings.Fields(section), " ")
	for _, want := range []string{
		"Design A is six services, B six identical nodes", "scripts/docker-build #", "docker compose -f docker/compose.a.yaml up -d ",
		"docker compose -f docker/compose.a.yaml --profile load run --rm load docker compose", "docker compose -f docker/compose.a.yaml down -v",
		"compose.b.yaml", "compose.c.yaml", "scripts/compare --quick ", "](docs/taskqueue.md)", "](docs/change-control.md)", "](results/full/report.md)", "](proto/taskqueue_public.proto)",
	} {
		if !strings.Contains(words, want) {
			t.Errorf("the section does not say %q", want)
		}
	}
	for _, path := range regexp.MustCompile(`\b(?:docs|results|proto|scripts|docker)/[\w./-]*\w`).FindAllString(section, -1) {
		if _, err := os.Stat("../" + path); err != nil {
			t.Errorf("the section names a file that is not there: %v", err)
		}
	}
	if a := readCompose(t, "compose.a.yaml"); !slices.Equal(a.Services["load"].Profiles, []string{"load"}) {
		t.Errorf("load has the profiles %q", a.Services["load"].Profiles)
	}
}

// Each entry of the change control says what changed, why, and its impact.
func TestChangeControl(t *testing.T) {
	spec.Covers(t, "T-263", "T-267", "T-268", "T-269", "T-270", "T-271", "T-272", "T-278")
	head, rest, _ := strings.Cut(readFile(t, "../docs/change-control.md"), "\n## ")
	for _, want := range []string{"2026-02-10", "six services", "six monoliths", "load generator", "gRPC with Protocol Buffers", "two proto files", "in\nmemory", "at-least-once", "durability", "consensus and leader election", "exactly-once\nexecution", "hardened security", "more than one region"} {
		if !strings.Contains(head, want) {
			t.Errorf("the frozen decisions do not name %q", want)
		}
	}
	for i, entry := range strings.Split(rest, "\n## ") {
		if !strings.HasPrefix(entry, fmt.Sprintf("%d. ", i+1)) {
			t.Errorf("entry %d begins %.20q", i+1, entry)
		}
		what, why, impact := strings.Index(entry, "**What:**"), strings.Index(entry, "**Why:**"), strings.Index(entry, "**Impact:**")
		if what < 0 || why < what || impact < why {
			t.Errorf("entry %d lacks a part", i+1)
		}
	}
	for _, want := range []string{"Go instead of Python", "`spec` on `GetJobRecordResponse`", "`cancel_job_ids` on `WorkerHeartbeatResponse`", "A third design", "Layout", "`WORKER_LOST` after three deliveries", "puts a job back", "a submit wakes a slot"} {
		if !strings.Contains(rest, want) {
			t.Errorf("no entry about %s", want)
		}
	}
}

func TestTaskQueueIsDocumented(t *testing.T) {
	spec.Covers(t, "T-22", "T-33", "T-267", "T-270")
	text := readFile(t, "../docs/taskqueue.md")
	for _, want := range []string{
		"the jobs of the node that is asked", "without authentication", "A and B keep everything in memory", "| killed | lost | stays |",
		"scripts/docker-build", "docker compose -f docker/compose.a.yaml up", "gqlab compare --quick", "scripts/compare",
		"TaskQueuePublicService", "JobInternalService", "QueueInternalService", "CoordinatorInternalService", "ResultInternalService",
	} {
		if !strings.Contains(strings.ToLower(strings.Join(strings.Fields(text), " ")), strings.ToLower(want)) {
			t.Errorf("docs/taskqueue.md does not say %q", want)
		}
	}
	names := regexp.MustCompile(`\b(TaskQueuePublic|JobInternal|QueueInternal|CoordinatorInternal|ResultInternal)Service\b`)
	other := regexp.MustCompile(`\b[A-Z]\w*(Public|Internal)Service\b`)
	for _, found := range other.FindAllString(text, -1) {
		if !names.MatchString(found) {
			t.Errorf("%s is no name of a service", found)
		}
	}
}
