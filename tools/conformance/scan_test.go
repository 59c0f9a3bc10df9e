package main

import (
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/gopherqueue/gq/internal/testing/spec"
)

const testModule = "example.com/m"

// tree builds a module from file names and contents.
func tree(files map[string]string) fstest.MapFS {
	sources := fstest.MapFS{"go.mod": {Data: []byte("module " + testModule + "\n\ngo 1.26\n")}}
	for name, text := range files {
		sources[name] = &fstest.MapFile{Data: []byte(text)}
	}
	return sources
}

const (
	callTest = `package a
import ("testing"; "example.com/m/internal/testing/spec")
func TestCall(t *testing.T) {
	spec.Covers(t, "Q-01", "Q-02")
	t.Run("sub", func(t *testing.T) { spec.Covers(t, "J-03") })
}
func helper(t *testing.T) { spec.Covers(t, "J-04") }
var unrelated = "Q-99"
`
	renamedImport = `package a
import ("testing"; req "example.com/m/internal/testing/spec")
func FuzzRenamed(f *testing.F) { req.Covers(f, "J-05") }
`
	suiteTable = `package suite
type testCase struct { Name string; Covers []string }
var cases = []testCase{{Name: "T-01", Covers: []string{"Q-59", "Q-62"}}}
`
	suiteRun = `package suite
import ("testing"; "example.com/m/internal/testing/spec")
func Run(t *testing.T) { for _, c := range cases { spec.Covers(t, c.Covers...) } }
`
)

func TestScanFindsLiteralIDs(t *testing.T) {
	mentions, err := scan(tree(map[string]string{
		"a/call_test.go":        callTest,
		"a/renamed_test.go":     renamedImport,
		"suite/cases.go":        suiteTable,
		"suite/run.go":          suiteRun,
		"other/other.go":        strings.ReplaceAll(suiteTable, "suite", "other"), // does not import spec
		"a/testdata/x_test.go":  "not Go",
		"a/.hidden/x_test.go":   "not Go",
		"nested/go.mod":         "module example.com/nested",
		"nested/nested_test.go": callTest,
		"part/go.mod":           "module example.com/m/part",
		"part/b/b_test.go":      renamedImport,
	}), testModule)
	if err != nil {
		t.Fatal(err)
	}
	want := []mention{
		{"Q-01", "a/call_test.go:4", "example.com/m/a", "TestCall"},
		{"Q-02", "a/call_test.go:4", "example.com/m/a", "TestCall"},
		{"J-03", "a/call_test.go:5", "example.com/m/a", "TestCall"},
		{"J-04", "a/call_test.go:7", "example.com/m/a", ""},
		{"J-05", "a/renamed_test.go:3", "example.com/m/a", "FuzzRenamed"},
		{"J-05", "part/b/b_test.go:3", "example.com/m/part/b", "FuzzRenamed"},
		{"Q-59", "suite/cases.go:3", "", ""},
		{"Q-62", "suite/cases.go:3", "", ""},
	}
	if !slices.Equal(mentions, want) {
		t.Errorf("scan found\n%v, want\n%v", mentions, want)
	}
}

func TestScanRefusesBadSources(t *testing.T) {
	for _, test := range []struct{ name, text, want string }{
		{"UnknownID", strings.ReplaceAll(callTest, "Q-01", "Q-999"), "a/x_test.go:4: no requirement Q-999"},
		{"MalformedID", strings.ReplaceAll(callTest, "Q-01", "Q-1"), "a/x_test.go:4: malformed requirement id"},
		{"Syntax", "package a\nfunc", "a/x_test.go"},
	} {
		t.Run(test.name, func(t *testing.T) {
			_, err := scan(tree(map[string]string{"a/x_test.go": test.text}), testModule)
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("scan = %v, want an error containing %q", err, test.want)
			}
		})
	}
}

func TestVerify(t *testing.T) {
	inTest := mention{id: "Q-01", position: "a/x_test.go:1", pkg: "example.com/m/a", test: "TestX"}
	inSuite := mention{id: "Q-01", position: "suite/cases.go:1"}
	record := func(pkg, test string, outcome spec.Outcome) spec.Record {
		return spec.Record{ID: "Q-01", Package: pkg, Test: test, Outcome: outcome}
	}
	const here, elsewhere = "example.com/m/a", "example.com/m/b"
	for _, test := range []struct {
		name     string
		mentions []mention
		records  []spec.Record
		want     string // part of the error, "" for none
	}{
		{"Passed", []mention{inTest}, []spec.Record{record(here, "TestX", spec.Pass)}, ""},
		{"PassedInSubtest", []mention{inTest}, []spec.Record{record(here, "TestX/sub", spec.Pass)}, ""},
		{"SuitePassedAnywhere", []mention{inSuite}, []spec.Record{record(elsewhere, "TestStore/x", spec.Pass)}, ""},
		{
			"PassedOnceAndSkippedOnce",
			[]mention{inSuite},
			[]spec.Record{record(here, "TestStore/x", spec.Skip), record(elsewhere, "TestStore/x", spec.Pass)},
			"",
		},
		{"NothingRecorded", []mention{inTest}, nil, "no records"},
		{
			"DidNotRun",
			[]mention{inTest, inSuite},
			[]spec.Record{record(elsewhere, "TestX", spec.Pass)},
			"a/x_test.go:1: Q-01 is named here but was not recorded",
		},
		{
			"AnotherTestOfThePackageRan",
			[]mention{inTest, inSuite},
			[]spec.Record{record(here, "TestXY", spec.Pass)},
			"a/x_test.go:1: Q-01 is named here but was not recorded",
		},
		{"Skipped", []mention{inTest}, []spec.Record{record(here, "TestX", spec.Skip)}, "no test of it passed"},
		{"Failed", []mention{inTest}, []spec.Record{record(here, "TestX", spec.Fail)}, "Q-01: example.com/m/a.TestX failed"},
		{
			"FailedInOneOfTwo",
			[]mention{inSuite},
			[]spec.Record{record(here, "TestStore/x", spec.Pass), record(elsewhere, "TestStore/x", spec.Fail)},
			"example.com/m/b.TestStore/x failed",
		},
		{"NotALiteral", []mention{inTest}, []spec.Record{
			record(here, "TestX", spec.Pass),
			{ID: "Q-02", Package: here, Test: "TestX", Outcome: spec.Pass},
		}, "Q-02: recorded by example.com/m/a.TestX, but no call"},
	} {
		t.Run(test.name, func(t *testing.T) {
			err := verify(test.mentions, test.records, false)
			switch {
			case test.want == "" && err != nil:
				t.Errorf("verify = %v, want no error", err)
			case test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)):
				t.Errorf("verify = %v, want an error containing %q", err, test.want)
			}
		})
	}
}
