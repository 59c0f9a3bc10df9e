package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/internal/enum"
	"github.com/gopherqueue/gq/machine"
)

func TestDocumentIsUpToDate(t *testing.T) {
	if err := update("../../docs/semantics.md", true); err != nil {
		t.Error(err)
	}
}

func TestRenderShowsEveryMove(t *testing.T) {
	text := string(render(machine.Moves()))
	for _, m := range machine.Moves() {
		arrow := fmt.Sprintf("    %s --> %s: %s\n", origin(m.From, "[*]"), m.To, m.Why)
		row := fmt.Sprintf("| %s | %s | %s |\n", origin(m.From, "(new)"), m.To, m.Why)
		if strings.Count(text, arrow) != 1 || strings.Count(text, row) != 1 {
			t.Errorf("%v to %v is not shown once as an arrow and once as a row", m.From, m.To)
		}
		// These end a label in a diagram or a cell in a table.
		if strings.ContainsAny(m.Why, ":;|\n") {
			t.Errorf("the reason %q would break the diagram", m.Why)
		}
	}
	for _, s := range enum.All[gq.Status]() {
		if got := strings.Contains(text, fmt.Sprintf("    %s --> [*]\n", s)); got != s.Terminal() {
			t.Errorf("%v is drawn as an end: %v", s, got)
		}
	}
	if strings.Contains(text, "unknown(") {
		t.Errorf("a state has no name:\n%s", text)
	}
}

func TestSplice(t *testing.T) {
	const begin, end = beginMark, endMark
	for _, test := range []struct{ name, text, want string }{
		{"Empty", "a\n" + begin + end + "b\n", "a\n" + begin + "new\n" + end + "b\n"},
		{"Replace", begin + "old\nold\n" + end, begin + "new\n" + end},
		{"NoBegin", "a\n" + end, ""},
		{"NoEnd", begin + "a\n", ""},
		{"Swapped", end + begin, ""},
		{"TwoBlocks", begin + end + begin + end, ""},
		{"TwoEnds", begin + end + end, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			got, err := splice([]byte(test.text), []byte("new\n"))
			if string(got) != test.want || (err == nil) != (test.want != "") {
				t.Errorf("%q, %v; want %q", got, err, test.want)
			}
		})
	}
}

func TestRun(t *testing.T) {
	name := filepath.Join(t.TempDir(), "semantics.md")
	stale := []byte("# Title\n" + beginMark + "old\n" + endMark + "rest\n")
	if err := os.WriteFile(name, stale, 0o644); err != nil {
		t.Fatal(err)
	}
	var stderr bytes.Buffer
	step := func(want int, args ...string) {
		t.Helper()
		stderr.Reset()
		if got := run(args, &stderr); got != want {
			t.Fatalf("diagram %q ends with %d, want %d: %s", args, got, want, &stderr)
		}
	}
	step(1, "-check", "-file", name)
	if text, err := os.ReadFile(name); err != nil || !bytes.Equal(text, stale) {
		t.Errorf("-check changed the file: %q, %v", text, err)
	}
	if err := update(name, true); !errors.Is(err, errOutOfDate) {
		t.Errorf("%v", err)
	}
	step(0, "-file", name)
	step(0, "-check", "-file", name)
	text, err := os.ReadFile(name)
	if err != nil || !bytes.HasPrefix(text, []byte("# Title\n")) || !bytes.HasSuffix(text, []byte("rest\n")) {
		t.Errorf("what is outside the marks changed: %q, %v", text, err)
	}

	step(1, "-file", filepath.Join(t.TempDir(), "missing.md"))
	step(2, "-unknown")
	step(2, "file.md")
}
