package e2e_test

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gopherqueue/gq/internal/testing/cmdtest"
	"github.com/gopherqueue/gq/internal/testing/spec"
)

// fence is a code block in a document.
type fence struct{ language, text string }

// fences returns the code blocks of a section, or of a whole document.
func fences(document, section string) (all []fence) {
	inside, wanted := false, section == ""
	var now fence
	for line := range strings.Lines(document) {
		switch {
		case strings.HasPrefix(line, "```") && inside:
			inside = false
			if wanted {
				all = append(all, now)
			}
		case strings.HasPrefix(line, "```"):
			inside, now = true, fence{language: strings.TrimSpace(line[3:])}
		case inside:
			now.text += line
		case strings.HasPrefix(line, "## ") && section != "":
			wanted = strings.TrimSpace(line[3:]) == section
		}
	}
	return all
}

// The quick start of the README works as written, except that the server uses free ports.
func TestReadmeQuickStart(t *testing.T) {
	spec.Needs(t, "curl")
	text, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	blocks := fences(string(text), "Quick start with a server")
	if len(blocks) != 6 || !strings.Contains(blocks[0].text, "gq serve") || !strings.HasPrefix(blocks[1].text, "gq work ") {
		t.Fatalf("the quick start is no longer what this test knows: %d blocks", len(blocks))
	}
	dir := t.TempDir()
	s := startServer(t, nil, "--data", filepath.Join(dir, "gq-data"))
	here := func(text string) string {
		return strings.NewReplacer("127.0.0.1:8780", s.http, "127.0.0.1:8790", s.grpc).Replace(text)
	}
	command := func(ctx context.Context, name string, args ...string) *exec.Cmd {
		c := exec.CommandContext(ctx, name, args...)
		c.Dir = dir
		c.Env = append(os.Environ(), "GQ_ADDR="+s.grpc, "PATH="+filepath.Dir(cmdtest.Program(t))+":"+os.Getenv("PATH"))
		return c
	}
	// The worker of the second terminal runs until the end.
	working := command(context.Background(), "/bin/sh", "-c", "exec "+here(blocks[1].text))
	var workerLog bytes.Buffer
	working.Stderr = &workerLog
	if err := working.Start(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	for i, want := range map[int][]string{
		2: {"COMPLETED", `"HELLO"`, "job.completed", "DELAYED", "QUEUE"},
		3: {`"result":"HELLO AGAIN"`, `"type":"job.started"`, `"next_cursor"`},
		4: {`"state":"COMPLETED"`, `"result_bytes":1`},
	} {
		out, err := command(ctx, "/bin/sh", "-euc", here(blocks[i].text)).CombinedOutput()
		if err != nil {
			t.Errorf("block %d: %v\n%s\n%s", i, err, blocks[i].text, out)
		}
		for _, w := range want {
			if !strings.Contains(string(out), w) {
				t.Errorf("block %d does not print %q:\n%s\n%s", i, w, blocks[i].text, out)
			}
		}
	}
	if got := runGo(ctx, t, dir, here(blocks[5].text)); got != "FROM GO\n" {
		t.Errorf("the Go client printed %q", got)
	}
	if err := working.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := working.Wait(); err != nil {
		t.Errorf("the worker ended with %v\n%s", err, workerLog.String())
	}
	s.Signal(os.Interrupt)
	if status := s.Ended(); status != 0 {
		t.Errorf("the server ended with %d\n%s", status, s.Stderr.String())
	}
}

// The example of steps over HTTP in the guide works as written, except for the port.
func TestGuideWorkersOverHTTP(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../docs/guide.md")
	if err != nil {
		t.Fatal(err)
	}
	blocks := fences(string(text), "Workers over HTTP")
	if len(blocks) != 1 || blocks[0].language != "sh" {
		t.Fatalf("the section has %d blocks of code", len(blocks))
	}
	s := startServer(t, nil, "--store", "memory:")
	c := exec.CommandContext(t.Context(), "/bin/sh", "-euc", strings.ReplaceAll(blocks[0].text, "127.0.0.1:8780", s.http))
	c.Dir = t.TempDir()
	out, err := c.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "\n"+`"checkpoint":{"charge":"receipt-17"}`+"\n") || !strings.Contains(string(out), `"state":"COMPLETED"`) {
		t.Errorf("%v\n%s", err, out)
	}
	if got := s.gq("worker", "list", "--json"); got.status != 0 || strings.Contains(got.stdout, "shop-1") {
		t.Errorf("the worker has stopped: %+v", got)
	}
}

// The program at the top of the README prints what it says.
func TestReadmeProgram(t *testing.T) {
	text, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	blocks := fences(string(text), "Try it")
	if len(blocks) != 2 || blocks[1].language != "go" || !strings.HasSuffix(blocks[0].text, "\nCGO_ENABLED=0 go run ./cmd/gq demo\n") {
		t.Fatalf("the first screen is no longer what this test knows: %v", blocks)
	}
	got, warnings := runProgram(t.Context(), t, t.TempDir(), blocks[1].text)
	if got != "Hello, Ada <nil>\n" {
		t.Errorf("it printed %q", got)
	}
	_, program, _ := strings.Cut(blocks[1].text, "\n)\n")
	lines := 0
	for line := range strings.Lines(program) {
		if strings.TrimSpace(line) != "" {
			lines++
		}
	}
	if lines > 20 || strings.Contains(program, "Must") || strings.Contains(program, "json") {
		t.Errorf("without its imports it has %d lines, more than 20, or what a first program should not need:\n%s", lines, program)
	}
	if strings.Contains(warnings, "WARN") || strings.Contains(warnings, "ERROR") {
		t.Errorf("it does not end quietly:\n%s", warnings)
	}
}

// runGo builds a program as part of this module, runs it in a directory and returns its
// output.
func runGo(ctx context.Context, t testing.TB, dir, program string) string {
	t.Helper()
	out, _ := runProgram(ctx, t, dir, program)
	return out
}

// runProgram is runGo that also returns standard error.
func runProgram(ctx context.Context, t testing.TB, dir, program string) (output, errors string) {
	t.Helper()
	source, binary := filepath.Join(dir, "main.go"), filepath.Join(dir, "program")
	if err := os.WriteFile(source, []byte(program), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := cmdtest.Build(binary, source); err != nil {
		t.Fatal(err)
	}
	c := exec.CommandContext(ctx, binary)
	c.Dir = dir
	var stderr bytes.Buffer
	c.Stderr = &stderr
	out, err := c.Output()
	if err != nil {
		t.Errorf("%v\n%s", err, stderr.String())
	}
	return string(out), stderr.String()
}
