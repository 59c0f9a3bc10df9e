package repo_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/gopherqueue/gq/internal/testing/pgtest"
)

// TestGuideCompiles builds every Go program of docs/guide.md.
func TestGuideCompiles(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("docs/guide.md")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	foreignModule(t, dir)
	blocks := strings.Split(string(text), "```go\n")[1:]
	if len(blocks) < 5 {
		t.Fatalf("the guide has %d Go programs; is the fence still ```go?", len(blocks))
	}
	for i, block := range blocks {
		code, _, _ := strings.Cut(block, "```")
		program := filepath.Join(dir, fmt.Sprintf("p%d", i))
		if err := os.Mkdir(program, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(program, "program.go"), []byte(code), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	build := exec.CommandContext(t.Context(), "go", "build", "-trimpath", "-mod=mod", "./...")
	build.Dir, build.Env = dir, append(os.Environ(), "CGO_ENABLED=0") // compiled as cmdtest does
	if out, err := build.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

// TestGuideTransactionRuns runs the program that submits and completes jobs within
// its own transactions.
func TestGuideTransactionRuns(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("docs/guide.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(text), "## Submitting with your own rows")
	_, code, _ := strings.Cut(section, "```go\n")
	code, _, found := strings.Cut(code, "```")
	if !found {
		t.Fatal("the guide has no such program")
	}
	dir := t.TempDir()
	foreignModule(t, dir)
	if err := os.WriteFile(filepath.Join(dir, "main.go"), []byte(code), 0o644); err != nil {
		t.Fatal(err)
	}
	url := pgtest.Own(t).Database(t)
	program := exec.CommandContext(t.Context(), "go", "run", "-trimpath", "-mod=mod", ".")
	program.Dir = dir
	program.Env = append(os.Environ(), "CGO_ENABLED=0", "DATABASE_URL="+url)
	var complaints strings.Builder
	program.Stderr = &complaints
	out, err := program.Output()
	if err != nil || string(out) != "mailed a-2 <nil>\n" {
		t.Fatalf("%v\n%s%s", err, out, &complaints)
	}
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	var orders, jobs, done int
	err = conn.QueryRow(t.Context(), "SELECT (SELECT count(*) FROM orders WHERE mailed), (SELECT count(*) FROM gq.live) + (SELECT count(*) FROM gq.done), (SELECT count(*) FROM gq.done)").Scan(&orders, &jobs, &done)
	if err != nil || orders != 1 || jobs != 1 || done != 1 {
		t.Errorf("%d orders mailed, %d jobs, %d done, %v; want one of each", orders, jobs, done, err)
	}
}

// foreignModule makes a directory a module of its own that requires this one, as
// a user's would.
func foreignModule(t *testing.T, dir string) {
	t.Helper()
	root, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	own, err := os.ReadFile("go.mod")
	if err != nil {
		t.Fatal(err)
	}
	mod := strings.Replace(string(own), "module "+modulePath+"\n", "module example.org/guide\n", 1) +
		fmt.Sprintf("\nrequire %s v0.0.0\n\nreplace %s => %s\n", modulePath, modulePath, root)
	sum, err := os.ReadFile("go.sum")
	if err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string][]byte{"go.mod": []byte(mod), "go.sum": sum} {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o644); err != nil {
			t.Fatal(err)
		}
	}
}
