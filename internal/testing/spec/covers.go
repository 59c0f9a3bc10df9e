package spec

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// The attributes of a test in the output of go test -json. They are part of a cached
// result, so a package that has not changed need not run again to be counted.
const (
	// CoversAttribute has the ids of the requirements that a test pins.
	CoversAttribute = "covers"
	// NeedsAttribute has what a test needs that this run does without.
	NeedsAttribute = "needs"
)

// Covers declares that t pins the requirements with those ids: t fails if one
// of them is broken. An unknown or malformed id ends the test at once.
//
// It may be called from parallel tests and from inside a synctest bubble. A test that
// [Needs] something calls Covers first.
func Covers(t testing.TB, ids ...string) {
	t.Helper()
	if len(ids) == 0 {
		t.Fatal("spec.Covers: no requirement id given")
	}
	for _, id := range ids {
		if _, err := Lookup(id); err != nil {
			t.Fatalf("spec.Covers: %v", err)
		}
	}
	t.Attr(CoversAttribute, strings.Join(ids, " "))
}

// WithoutVariable names the environment variable with what a run of the tests does
// without, separated by spaces. In make test that is all that takes more than Go and
// PostgreSQL; in make test-all it is empty.
const WithoutVariable = "GQ_TEST_WITHOUT"

// Needs skips t if this run does without what it needs: a word such as "python". The
// run then lists the test and its requirements as left out.
func Needs(t testing.TB, what string) {
	t.Helper()
	if !Has(what) {
		t.Attr(NeedsAttribute, what)
		t.Skipf("this run does without %s (%s); make test-all has it", what, WithoutVariable)
	}
}

// Has reports whether this run has what a part of a test needs.
func Has(what string) bool {
	return !slices.Contains(strings.Fields(os.Getenv(WithoutVariable)), what)
}

// An Outcome is the verdict on one test.
type Outcome string

// The outcomes a test can have.
const (
	Pass Outcome = "pass"
	Fail Outcome = "fail"
	Skip Outcome = "skip"
	Left Outcome = "left" // skipped because the run does without what it needs
)

// A Record says how a test that names a requirement ended.
type Record struct {
	ID      string
	Package string // import path of the package under test
	Test    string // full name, subtests included
	Outcome Outcome
	Needs   string // what the run did without, if Left
}

// line is the record as the recording file holds it. Test names contain no
// white space: package testing rewrites it.
func (r Record) line() string {
	return strings.Join([]string{r.ID, r.Package, r.Test, string(r.Outcome), r.Needs}, "\t") + "\n"
}

// ReadRecords returns what [WriteRecords] wrote into dir, in no particular order.
func ReadRecords(dir string) ([]Record, error) {
	names, err := filepath.Glob(filepath.Join(dir, "*"+recordSuffix))
	if err != nil {
		return nil, fmt.Errorf("list records: %w", err)
	}
	var records []Record
	for _, name := range names {
		text, err := os.ReadFile(name)
		if err != nil {
			return nil, fmt.Errorf("read records: %w", err)
		}
		for line := range strings.Lines(string(text)) {
			r, err := parseRecord(line)
			if err != nil {
				return nil, fmt.Errorf("read records: %s: %w", name, err)
			}
			records = append(records, r)
		}
	}
	return records, nil
}

func parseRecord(line string) (Record, error) {
	complete := strings.HasSuffix(line, "\n")
	cells := strings.Split(strings.TrimSuffix(line, "\n"), "\t")
	if !complete || len(cells) != 5 {
		return Record{}, fmt.Errorf("torn or malformed record %q", line)
	}
	r := Record{ID: cells[0], Package: cells[1], Test: cells[2], Outcome: Outcome(cells[3]), Needs: cells[4]}
	if !slices.Contains([]Outcome{Pass, Fail, Skip, Left}, r.Outcome) || (r.Outcome == Left) != (r.Needs != "") {
		return Record{}, fmt.Errorf("unknown outcome in record %q", line)
	}
	return r, nil
}

const recordSuffix = ".records"

// WriteRecords writes records to a file that [ReadRecords] finds in dir.
func WriteRecords(dir, name string, records []Record) error {
	var text strings.Builder
	for _, r := range records {
		text.WriteString(r.line())
	}
	if err := os.WriteFile(filepath.Join(dir, name+recordSuffix), []byte(text.String()), 0o644); err != nil {
		return fmt.Errorf("write records: %w", err)
	}
	return nil
}
