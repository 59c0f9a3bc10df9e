package spec

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// DirVariable names the environment variable that turns recording on: the
// directory in which every test process appends to a file of its own.
const DirVariable = "GQ_CONFORMANCE_DIR"

// Covers declares that t pins the requirements with those ids: t fails if one
// of them is broken. An unknown or malformed id ends the test at once.
//
// With [DirVariable] set, one [Record] per id is written when t ends, so a call
// belongs at the top of the test: its cleanup then runs last and sees the final
// verdict. Covers starts no goroutine and uses no channel, and may be called
// from parallel tests and from inside a synctest bubble.
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
	dir := os.Getenv(DirVariable)
	if dir == "" {
		return
	}
	t.Cleanup(func() {
		records := make([]Record, len(ids))
		for i, id := range ids {
			records[i] = Record{ID: id, Package: testedPackage(), Test: t.Name(), Outcome: outcomeOf(t.Failed(), t.Skipped())}
		}
		if err := appendRecords(dir, records); err != nil {
			t.Errorf("spec.Covers: %v", err)
		}
	})
}

// An Outcome is the verdict on one test.
type Outcome string

// The outcomes a test can have.
const (
	Pass Outcome = "pass"
	Fail Outcome = "fail"
	Skip Outcome = "skip"
)

func outcomeOf(failed, skipped bool) Outcome {
	switch {
	case failed:
		return Fail
	case skipped:
		return Skip
	default:
		return Pass
	}
}

// A Record says how a test that names a requirement ended.
type Record struct {
	ID      string
	Package string // import path of the package under test
	Test    string // full name, subtests included
	Outcome Outcome
}

// line is the record as the recording file holds it. Test names contain no
// white space: package testing rewrites it.
func (r Record) line() string {
	return strings.Join([]string{r.ID, r.Package, r.Test, string(r.Outcome)}, "\t") + "\n"
}

// ReadRecords returns what the test processes wrote into dir, in no particular
// order.
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
	if !complete || len(cells) != 4 {
		return Record{}, fmt.Errorf("torn or malformed record %q", line)
	}
	r := Record{ID: cells[0], Package: cells[1], Test: cells[2], Outcome: Outcome(cells[3])}
	if r.Outcome != Pass && r.Outcome != Fail && r.Outcome != Skip {
		return Record{}, fmt.Errorf("unknown outcome in record %q", line)
	}
	return r, nil
}

const recordSuffix = ".records"

// recording keeps the lines of tests that end at the same time apart. A mutex
// is safe across synctest bubbles, where a shared channel is not.
var recording sync.Mutex

func appendRecords(dir string, records []Record) error {
	var text strings.Builder
	for _, r := range records {
		text.WriteString(r.line())
	}

	recording.Lock()
	defer recording.Unlock()
	// The process id alone may repeat within one run; with the package it
	// cannot, as each package's tests run in one process.
	name := strconv.Itoa(os.Getpid()) + "-" + strings.ReplaceAll(testedPackage(), "/", "_") + recordSuffix
	file, err := os.OpenFile(filepath.Join(dir, name), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return fmt.Errorf("record: %w", err)
	}
	_, err = file.WriteString(text.String())
	if closeErr := file.Close(); err == nil {
		err = closeErr
	}
	if err != nil {
		return fmt.Errorf("record: %w", err)
	}
	return nil
}

// testedPackage is the import path of the package whose test binary this is.
// The caller's own package would be wrong for a suite such as storetest, which
// runs inside the tests of each store.
var testedPackage = sync.OnceValue(func() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	return strings.TrimSuffix(info.Path, ".test")
})
