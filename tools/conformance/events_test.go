package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gopherqueue/gq/internal/testing/spec"
)

// events writes go test -json of a package, each event as its action, its test (- for none)
// and its value.
func events(pkg string, words ...string) string {
	var text strings.Builder
	for _, word := range words {
		action, rest, _ := strings.Cut(word, " ")
		test, value, _ := strings.Cut(rest, " ")
		e := event{Action: action, Package: pkg, Test: strings.TrimPrefix(test, "-")}
		switch action {
		case "output":
			e.Output = value + "\n"
		case "covers", "needs":
			e.Action, e.Key, e.Value = "attr", action, value
		}
		line, _ := json.Marshal(e) // strings only
		text.Write(append(line, '\n'))
	}
	return text.String()
}

func TestReadRun(t *testing.T) {
	const p = "example.com/m/a"
	record := func(id, test string, outcome spec.Outcome, needs string) string {
		return strings.Join([]string{id, p, test, string(outcome), needs}, " ")
	}
	for _, test := range []struct {
		name    string
		events  []string
		records []string
		prints  string
		fails   string
	}{
		{
			"Passed",
			[]string{"covers TestX Q-01 Q-02", "output TestX quiet", "pass TestX", "output - ok", "pass"},
			[]string{record("Q-01", "TestX", spec.Pass, ""), record("Q-02", "TestX", spec.Pass, "")}, "ok\n", "",
		},
		{
			"Failed",
			[]string{"covers TestX Q-01", "output TestX wrong", "fail TestX", "output - FAIL", "fail"},
			[]string{record("Q-01", "TestX", spec.Fail, "")}, "wrong\nFAIL\n", "failed: " + p,
		},
		{
			"ProcessEnded",
			[]string{"covers TestX Q-01", "output TestX panic", "fail"},
			[]string{record("Q-01", "TestX", spec.Fail, "")}, "panic\n", "failed: " + p,
		},
		{
			"LeftOut",
			[]string{"covers TestX Q-01", "needs TestX python", "skip TestX", "pass"},
			[]string{record("Q-01", "TestX", spec.Left, "python")}, "left out, needs python: " + p + ".TestX\n", "",
		},
		{
			"Skipped",
			[]string{"covers TestX Q-01", "skip TestX", "pass"},
			[]string{record("Q-01", "TestX", spec.Skip, "")}, "", "",
		},
		{"Nothing", nil, nil, "", "no events of a package"},
	} {
		t.Run(test.name, func(t *testing.T) {
			var out strings.Builder
			got, err := readRun(strings.NewReader(events(p, test.events...)), &out)
			if test.fails == "" && err != nil || test.fails != "" && (err == nil || !strings.Contains(err.Error(), test.fails)) {
				t.Errorf("error %v, want %q", err, test.fails)
			}
			var lines []string
			for _, r := range got {
				lines = append(lines, strings.Join([]string{r.ID, r.Package, r.Test, string(r.Outcome), r.Needs}, " "))
			}
			if strings.Join(lines, ";") != strings.Join(test.records, ";") {
				t.Errorf("records %q, want %q", lines, test.records)
			}
			if out.String() != test.prints {
				t.Errorf("printed %q, want %q", out.String(), test.prints)
			}
		})
	}
}

func TestReadRunOfWhatCannotBeBuilt(t *testing.T) {
	in := `{"ImportPath":"m/a","Action":"build-output","Output":"a.go:1: syntax\n"}
{"ImportPath":"m/a","Action":"build-fail"}
go: a word of the go command
{"Action":"fail","Package":"m/a"}
`
	var out strings.Builder
	if _, err := readRun(strings.NewReader(in), &out); err == nil || !strings.Contains(err.Error(), "m/a") {
		t.Errorf("error %v, want one about m/a", err)
	}
	if want := "a.go:1: syntax\ngo: a word of the go command\n"; out.String() != want {
		t.Errorf("printed %q, want %q", out.String(), want)
	}
}

// The command keeps what a failed run recorded, and fails.
func TestRecord(t *testing.T) {
	dir := t.TempDir()
	in := strings.NewReader(events("m/a", "covers TestX Q-01", "fail TestX", "fail"))
	var out bytes.Buffer
	if code := command([]string{"-record", filepath.Join(dir, "product")}, in, &out, &out); code != 1 {
		t.Errorf("exit %d, want 1; printed %s", code, out.String())
	}
	records, err := spec.ReadRecords(dir)
	if want := (spec.Record{ID: "Q-01", Package: "m/a", Test: "TestX", Outcome: spec.Fail}); err != nil || len(records) != 1 || records[0] != want {
		t.Errorf("kept %v, %v, want %v", records, err, want)
	}
	if _, err := os.Stat(filepath.Join(dir, "product.records")); err != nil {
		t.Error(err)
	}
}
