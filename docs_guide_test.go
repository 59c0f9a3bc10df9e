package gq_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
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
	vet := exec.CommandContext(t.Context(), "go", "vet", "-mod=mod", "./...")
	vet.Dir = dir
	if out, err := vet.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
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
