package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/gopherqueue/gq/internal/testing/spec"
)

// An event is one line of go test -json.
type event struct {
	Action     string
	Package    string
	ImportPath string // of a package that is built
	Test       string
	Output     string
	Key, Value string // of an attribute
}

// A run collects the events of go test -json.
type run struct {
	out      io.Writer
	tests    map[testName]*testRun
	failed   []string // packages
	finished int      // packages
	records  []spec.Record
	left     map[string][]string // tests, by what they need
}

type testName struct{ pkg, test string }

// A testRun is what a test that has not ended has done so far.
type testRun struct {
	covers []string
	needs  string
	output strings.Builder
}

// readRun prints what go test prints without -json: a line for each package, and all
// that a failed test wrote. Then it lists the tests that were left out. It returns the records of the tests, and an error if one
// failed or none ran.
func readRun(in io.Reader, out io.Writer) ([]spec.Record, error) {
	r := run{out: out, tests: map[testName]*testRun{}, left: map[string][]string{}}
	lines := bufio.NewReader(in)
	for {
		line, err := lines.ReadBytes('\n')
		if len(line) > 0 {
			var e event
			if json.Unmarshal(line, &e) == nil && e.Action != "" {
				r.see(e)
			} else if _, err := out.Write(line); err != nil { // the go command's own words
				return nil, err
			}
		}
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, fmt.Errorf("read the events of go test: %w", err)
		}
	}
	for _, needs := range slices.Sorted(maps.Keys(r.left)) {
		fmt.Fprintf(out, "left out, needs %s: %s\n", needs, strings.Join(r.left[needs], " "))
	}
	switch {
	case len(r.failed) > 0:
		return r.records, fmt.Errorf("failed: %s", strings.Join(r.failed, " "))
	case r.finished == 0:
		return nil, errors.New("no events of a package: pipe go test -json into this command")
	default:
		return r.records, nil
	}
}

func (r *run) see(e event) {
	if e.Test == "" {
		r.seePackage(e)
		return
	}
	name := testName{e.Package, e.Test}
	t := r.tests[name]
	if t == nil {
		t = &testRun{}
		r.tests[name] = t
	}
	switch e.Action {
	case "output":
		t.output.WriteString(e.Output)
	case "attr":
		switch e.Key {
		case spec.CoversAttribute:
			t.covers = append(t.covers, strings.Fields(e.Value)...)
		case spec.NeedsAttribute:
			t.needs = e.Value
		}
	case "pass", "fail", "skip":
		r.end(name, t, spec.Outcome(e.Action))
	}
}

// end records how a test ended, and prints what it wrote if it failed.
func (r *run) end(name testName, t *testRun, outcome spec.Outcome) {
	delete(r.tests, name)
	if outcome == spec.Skip && t.needs != "" {
		outcome = spec.Left
		r.left[t.needs] = append(r.left[t.needs], name.pkg+"."+name.test)
	} else {
		t.needs = ""
	}
	for _, id := range t.covers {
		r.records = append(r.records, spec.Record{ID: id, Package: name.pkg, Test: name.test, Outcome: outcome, Needs: t.needs})
	}
	if outcome == spec.Fail {
		fmt.Fprint(r.out, t.output.String())
	}
}

func (r *run) seePackage(e event) {
	switch e.Action {
	case "output":
		if e.Output != "PASS\n" {
			fmt.Fprint(r.out, e.Output)
		}
	case "build-output":
		fmt.Fprint(r.out, e.Output)
	case "build-fail":
		r.failed = append(r.failed, e.ImportPath)
	case "fail":
		// A test that ended with the whole process, by a panic or a timeout, has not ended by itself.
		for name, t := range r.tests {
			if name.pkg == e.Package {
				r.end(name, t, spec.Fail)
			}
		}
		if !slices.Contains(r.failed, e.Package) {
			r.failed = append(r.failed, e.Package)
		}
		r.finished++
	case "pass", "skip":
		r.finished++
	}
}
