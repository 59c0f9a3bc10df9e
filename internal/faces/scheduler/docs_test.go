package scheduler

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gopherqueue/gq/internal/testing/cmdtest"
	"github.com/gopherqueue/gq/internal/testing/spec"
)

const page = "../../../docs/scheduler-api.md"

// The documented examples work as written.
func TestDocumentedExamples(t *testing.T) {
	if testing.Short() {
		t.Skip("starts the program")
	}
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	for _, language := range []struct {
		fence   string
		program []string
		needs   string
		says    string
	}{
		{"sh", []string{"sh", "-eu"}, "curl", `"capacity":{"total":70,"used":0,"reserved":0}`},
		{"python", []string{"python3"}, "python", "done: 5"},
	} {
		t.Run(language.fence, func(t *testing.T) {
			spec.Needs(t, language.needs)
			s := place("memory:").start(t)
			blocks := strings.Split(string(text), "```"+language.fence+"\n")[1:]
			if len(blocks) == 0 {
				t.Fatalf("there are no examples in %s", language.fence)
			}
			script := ""
			for _, b := range blocks { // later ones build on what earlier ones did
				text, _, _ := strings.Cut(b, "\n```")
				script += text + "\n"
			}
			file := filepath.Join(t.TempDir(), "example")
			if err := os.WriteFile(file, []byte(script), 0o600); err != nil {
				t.Fatal(err)
			}
			c := exec.CommandContext(t.Context(), language.program[0], append(language.program[1:], file)...)
			c.Env = append(os.Environ(), "GQ=http://"+s.address, "GQ_HTTP="+s.address, "PATH="+filepath.Dir(cmdtest.Program(t))+":"+os.Getenv("PATH"))
			out, err := c.CombinedOutput()
			if err != nil || !strings.Contains(string(out), language.says) {
				t.Errorf("%v\n%s", err, out)
			}
		})
	}
}

// The documentation lists every code, route and metric, and no others.
func TestDocumentedTables(t *testing.T) {
	raw, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	text := string(raw)
	_, errorsPart, _ := strings.Cut(text, "## Errors")
	errorsPart, _, _ = strings.Cut(errorsPart, "\n## ")
	for _, m := range meanings {
		if row := fmt.Sprintf("| `%s` | %d | %s |", m.Code, m.Status, m.Text); !strings.Contains(errorsPart, row) {
			t.Errorf("the table of codes lacks %s", row)
		}
	}
	if rows := strings.Count(errorsPart, "\n| `"); rows != len(meanings) {
		t.Errorf("the table of codes has %d rows, want %d", rows, len(meanings))
	}
	for _, r := range routes(nil) {
		if !strings.Contains(text, "`"+r.Method+" "+r.Path+"`") {
			t.Errorf("%s %s is not documented", r.Method, r.Path)
		}
	}
	for _, name := range metricNames() {
		if !strings.Contains(text, "`"+name+"`") {
			t.Errorf("metric %s is not documented", name)
		}
	}
}
