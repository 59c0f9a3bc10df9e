package main

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/gopherqueue/gq/internal/testing/spec"
)

var (
	someRequirements = []spec.Requirement{
		{ID: "Q-01", Layer: spec.LayerStore, Statement: "first | with a bar"},
		{ID: "Q-02", Layer: spec.LayerDomain, Statement: "second"},
		{ID: "J-01", Layer: spec.LayerDocs, Statement: "third"},
	}
	someRecords = []spec.Record{
		{ID: "Q-01", Package: testModule + "/store/local", Test: "TestStore/Claim", Outcome: spec.Pass},
		{ID: "Q-01", Package: testModule, Test: "TestRoot", Outcome: spec.Pass},
		{ID: "Q-01", Package: testModule, Test: "TestRoot#01", Outcome: spec.Pass},
		{ID: "J-01", Package: testModule, Test: "TestDocs", Outcome: spec.Skip},
	}
)

const someDocument = preamble + `
## Summary

| document | covered | of |
|---|---:|---:|
| Queue semantics (Q) | 1 | 2 |
| Job model (J) | 0 | 1 |
| Scheduler API (S) | 0 | 0 |
| Matching (M) | 0 | 0 |
| Task queue (T) | 0 | 0 |
| **all** | **1** | **3** |

By layer, the lowest part of the system that can prove a requirement:

| layer | covered | of |
|---|---:|---:|
| domain | 0 | 1 |
| store | 1 | 1 |
| postgres | 0 | 0 |
| engine | 0 | 0 |
| worker | 0 | 0 |
| server | 0 | 0 |
| docs | 0 | 1 |
| scheduler | 0 | 0 |
| matching | 0 | 0 |
| taskqueue | 0 | 0 |

## Queue semantics

| id | requirement | tests |
|---|---|---|
| Q-01 | first \| with a bar | ` + "`m.TestRoot`<br>`store/local.TestStore/Claim`" + ` |

## Open

### Queue semantics, domain

- Q-02 second

### Job model, docs

- J-01 third
`

func TestRender(t *testing.T) {
	if got := render(someRequirements, someRecords, testModule); got != someDocument {
		t.Errorf("render =\n%s\nwant\n%s", got, someDocument)
	}
}

func TestRenderIgnoresTheOrderOfRecords(t *testing.T) {
	reversed := slices.Clone(someRecords)
	slices.Reverse(reversed)
	if got := render(someRequirements, reversed, testModule); got != someDocument {
		t.Errorf("render of reversed records =\n%s\nwant\n%s", got, someDocument)
	}
}

func TestRenderWithNothingOpen(t *testing.T) {
	got := render(someRequirements[:1], someRecords, testModule)
	if !strings.HasSuffix(got, "\n## Open\n\nNone.\n") {
		t.Errorf("render ends in %q", got[max(0, len(got)-40):])
	}
}

func TestStableName(t *testing.T) {
	for _, test := range []struct{ test, want string }{
		{"TestX", "TestX"},
		{"TestX/Claim/Stale", "TestX/Claim/Stale"},
		{"TestX/case#01", "TestX/case"},
		{"TestX#12/case#03", "TestX/case"},
		{"TestX/attempt_3", "TestX/attempt_3"},
		{"TestX/seed=123456", "TestX/seed"},
		{"TestX/seed_0xBEEF1/step", "TestX/seed/step"},
		{"TestSeeded/x", "TestSeeded/x"},
		{"FuzzX/seed#0", "FuzzX"},
		{"FuzzX/582528ddfad69eb5", "FuzzX"},
	} {
		if got := stableName(test.test); got != test.want {
			t.Errorf("stableName(%q) = %q, want %q", test.test, got, test.want)
		}
	}
}

// A workspace is a module on disk whose one test names, and a
// directory of records.
type workspace struct{ root, records string }

func newWorkspace(t *testing.T) workspace {
	t.Helper()
	w := workspace{t.TempDir(), t.TempDir()}
	for name, text := range map[string]string{
		"go.mod": "module " + testModule + "\n",
		"a/a_test.go": `package a
import ("testing"; "example.com/m/internal/testing/spec")
func TestX(t *testing.T) { spec.Covers(t, "Q-01", "Q-02") }
`,
	} {
		path := filepath.Join(w.root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	w.record(t, "1.records", "Q-01\texample.com/m/a\tTestX\tpass\t\n")
	w.record(t, "2.records", "Q-02\texample.com/m/a\tTestX\tpass\t\n")
	return w
}

func (w workspace) record(t *testing.T, name, text string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(w.records, name), []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func (w workspace) run(args ...string) (code int, stderr string) {
	var out bytes.Buffer
	code = command(append([]string{"-root", w.root, "-dir", w.records, "-o", "conformance.md"}, args...), nil, &out, &out)
	return code, out.String()
}

func TestRunWritesAndChecks(t *testing.T) {
	w := newWorkspace(t)
	if code, stderr := w.run("-check"); code != 1 || !strings.Contains(stderr, "make generate") {
		t.Errorf("check without a document: exit %d, %q", code, stderr)
	}
	if code, stderr := w.run(); code != 0 {
		t.Fatalf("write: exit %d, %q", code, stderr)
	}
	if code, stderr := w.run("-check"); code != 0 {
		t.Errorf("check after write: exit %d, %q", code, stderr)
	}
	text, err := os.ReadFile(filepath.Join(w.root, "conformance.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"| Queue semantics (Q) | 2 | 107 |", "`a.TestX`", "- Q-03 "} {
		if !strings.Contains(string(text), want) {
			t.Errorf("document lacks %q", want)
		}
	}

	w.record(t, "3.records", "Q-02\texample.com/m/a\tTestX/more\tpass\t\n")
	code, stderr := w.run("-check")
	if code != 1 || !strings.Contains(stderr, "\n+ | Q-02 |") || !strings.Contains(stderr, "a.TestX/more") {
		t.Errorf("check with another test: exit %d, %q, want 1 and the line that differs", code, stderr)
	}
	w.record(t, "3.records", "Q-02\texample.com/m/a\tTestX/less\tskip\t\n")
	w.record(t, "4.records", "Q-02\texample.com/m/a\tTestX/new\tpass\t\n")
	code, stderr = w.run("-check")
	if code != 1 || !strings.Contains(stderr, "skipped in this run: example.com/m/a.TestX/less (Q-02)") {
		t.Errorf("check with a skipped test: exit %d, %q, want 1 and the test", code, stderr)
	}
}

func TestCheckWithoutARun(t *testing.T) {
	w := newWorkspace(t)
	check := func() (int, string) {
		var out bytes.Buffer
		return command([]string{"-root", w.root, "-o", "conformance.md", "-check"}, nil, &out, &out), out.String()
	}
	if code, stderr := check(); code != 1 {
		t.Errorf("without a document: exit %d, %q, want 1", code, stderr)
	}
	if code, stderr := w.run(); code != 0 {
		t.Fatalf("write: exit %d, %q", code, stderr)
	}
	if code, stderr := check(); code != 0 {
		t.Errorf("a new document: exit %d, %q, want 0", code, stderr)
	}
	source := filepath.Join(w.root, "a/a_test.go")
	text, err := os.ReadFile(source)
	if err != nil {
		t.Fatal(err)
	}
	for _, change := range []struct{ from, to, want string }{
		{`"Q-02")`, `"Q-02", "Q-03")`, "a/a_test.go:3: Q-03 is named here"},
		{`"Q-01", "Q-02"`, `"Q-01"`, "Q-02: no call of spec.Covers or field Covers in example.com/m/a.TestX"},
		{"TestX(", "TestY(", "a/a_test.go:3: Q-01 is named here"},
	} {
		changed := strings.Replace(string(text), change.from, change.to, 1)
		if err := os.WriteFile(source, []byte(changed), 0o644); err != nil {
			t.Fatal(err)
		}
		code, stderr := check()
		if code != 1 || !strings.Contains(stderr, change.want) || !strings.Contains(stderr, "make generate") {
			t.Errorf("%s for %s: exit %d, %q, want 1 and %q", change.to, change.from, code, stderr, change.want)
		}
	}
	if err := os.WriteFile(source, text, 0o644); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(w.root, "conformance.md")
	document, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	edited := strings.Replace(string(document), "`a.TestX`", "`a.TestX/more`<br>`a.TestX`", 1)
	if err := os.WriteFile(path, []byte(edited), 0o644); err != nil {
		t.Fatal(err)
	}
	if code, stderr := check(); code != 1 || !strings.Contains(stderr, "`a.TestX`<br>`a.TestX/more`") {
		t.Errorf("tests out of order in the document: exit %d, %q, want 1 and the line as it should be", code, stderr)
	}
}

func TestRunRefusesABadRun(t *testing.T) {
	w := newWorkspace(t)
	w.record(t, "2.records", "Q-02\texample.com/m/a\tTestX\tskip\t\n")
	if code, stderr := w.run(); code != 1 || !strings.Contains(stderr, "Q-02") {
		t.Errorf("skipped test: exit %d, %q, want 1 and the id", code, stderr)
	}
	if _, err := os.Stat(filepath.Join(w.root, "conformance.md")); !os.IsNotExist(err) {
		t.Errorf("a refused run left a document behind: %v", err)
	}
}

// A run that left a test out is compared with what the document lists for the others.
func TestCheckOfAPart(t *testing.T) {
	w := newWorkspace(t)
	if code, stderr := w.run(); code != 0 {
		t.Fatalf("write: exit %d, %q", code, stderr)
	}
	w.record(t, "2.records", "Q-02\texample.com/m/a\tTestX\tleft\tpython\n")
	if code, stderr := w.run("-check"); code != 1 || !strings.Contains(stderr, "Q-02 is named here but no test of it passed") {
		t.Errorf("the whole: exit %d, %q, want 1 and Q-02", code, stderr)
	}
	code, out := w.run("-check", "-part")
	if want := "left out, needs python: requirements Q-02, tests: 1\n"; code != 0 || out != want {
		t.Errorf("a part: exit %d, %q, want 0 and %q", code, out, want)
	}
	w.record(t, "1.records", "Q-01\texample.com/m/other\tTestX\tpass\t\n")
	if code, out := w.run("-check", "-part", "-without", "a"); code != 1 || !strings.Contains(out, "other") {
		t.Errorf("without a, and with a test of another package: exit %d, %q, want 1 and the package", code, out)
	}
	w.record(t, "1.records", "")
	code, out = w.run("-check", "-part", "-without", "a")
	if want := "left out, needs the module in a: requirements Q-01 Q-02, tests: 1\n"; code != 0 || !strings.Contains(out, want) {
		t.Errorf("without a: exit %d, %q, want 0 and %q", code, out, want)
	}
	w.record(t, "1.records", "Q-01\texample.com/m/a\tTestX\tskip\t\n")
	if code, out := w.run("-check", "-part"); code != 1 || !strings.Contains(out, "Q-01") {
		t.Errorf("a part with a test skipped for another reason: exit %d, %q, want 1 and Q-01", code, out)
	}
	w.record(t, "1.records", "Q-01\texample.com/m/a\tTestX\tpass\t\nQ-01\texample.com/m/a\tTestX/new\tpass\t\n")
	if code, out := w.run("-check", "-part"); code != 1 || !strings.Contains(out, "a.TestX/new") {
		t.Errorf("a part with a test that the document lacks: exit %d, %q, want 1 and the test", code, out)
	}
}

func TestRunUsage(t *testing.T) {
	for _, args := range [][]string{
		{}, {"-dir", ""}, {"-dir", "x", "extra"}, {"-nonsense"}, {"-record", "x", "-check"}, {"-record", "x", "-dir", "x"},
		{"-part"}, {"-check", "-part"}, {"-dir", "x", "-part"},
		{"-dir", "x", "-check", "-without", "a"},
	} {
		if code := command(args, nil, &bytes.Buffer{}, &bytes.Buffer{}); code != 2 {
			t.Errorf("command(%q) = %d, want 2", args, code)
		}
	}
}
