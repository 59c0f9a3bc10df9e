package spec

import (
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestCatalogue(t *testing.T) {
	rows, err := parse(catalogueText)
	if err != nil {
		t.Fatal(err)
	}
	counts := make(map[Document]int)
	for _, r := range rows {
		counts[r.Document()]++
		// parse has proved the order; equal count and number prove that
		// nothing is left out.
		if got := positionOf(r.ID).number; got != counts[r.Document()] {
			t.Fatalf("%s stands where number %d of its document is due", r.ID, counts[r.Document()])
		}
	}
	want := map[Document]int{Semantics: 107, JobModel: 150, Scheduler: 144, Matching: 162, TaskQueue: 283}
	for _, d := range Documents() {
		if counts[d] != want[d] {
			t.Errorf("%s: %d requirements, want %d", d.Title(), counts[d], want[d])
		}
	}
	if len(rows) != 846 {
		t.Errorf("%d requirements in all, want 846", len(rows))
	}
}

// Faces that are not divided into layers have one layer throughout, and the two core
// documents never have a face's layer.
func TestLayersFitDocuments(t *testing.T) {
	whole := map[Document]Layer{Scheduler: LayerScheduler, Matching: LayerMatching, TaskQueue: LayerTaskQueue}
	for _, r := range All() {
		want, face := whole[r.Document()]
		if face && r.Layer != want {
			t.Errorf("%s has layer %s, want %s", r.ID, r.Layer, want)
		}
		if !face && slices.Contains([]Layer{LayerScheduler, LayerMatching, LayerTaskQueue}, r.Layer) {
			t.Errorf("%s has the layer of a face, %s", r.ID, r.Layer)
		}
	}
}

func TestStatementsAreOneShortLine(t *testing.T) {
	const limit = 200
	seen := make(map[string]string)
	for _, r := range All() {
		if n := len([]rune(r.Statement)); n > limit {
			t.Errorf("%s: statement of %d characters, want at most %d", r.ID, n, limit)
		}
		if other, ok := seen[r.Statement]; ok {
			t.Errorf("%s and %s have the same statement", other, r.ID)
		}
		seen[r.Statement] = r.ID
	}
}

func TestParseRefusesDamage(t *testing.T) {
	for _, test := range []struct{ name, text, want string }{
		{"MissingCell", "Q-01\tdomain\n", "2 cells"},
		{"BlankLine", "Q-01\tdomain\tone\n\nQ-02\tdomain\ttwo\n", "line 2"},
		{"MalformedID", "Q-1\tdomain\tone\n", "malformed id"},
		{"UnknownLayer", "Q-01\tcellar\tone\n", "unknown layer"},
		{"EmptyStatement", "Q-01\tdomain\t\n", "empty or padded"},
		{"PaddedStatement", "Q-01\tdomain\tone \n", "empty or padded"},
		{"Duplicate", "Q-01\tdomain\tone\nQ-01\tdomain\tagain\n", "duplicate or out of order"},
		{"Numbers", "Q-02\tdomain\ttwo\nQ-01\tdomain\tone\n", "duplicate or out of order"},
		{"Documents", "J-01\tdomain\tone\nQ-01\tdomain\tone\n", "duplicate or out of order"},
	} {
		t.Run(test.name, func(t *testing.T) {
			_, err := parse(test.text)
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("parse = %v, want an error containing %q", err, test.want)
			}
		})
	}
}

func TestCompareFollowsTheCatalogue(t *testing.T) {
	ids := []string{"T-283", "Q-107", "J-02", "M-01", "Q-02", "S-99", "S-100"}
	slices.SortFunc(ids, Compare)
	want := []string{"Q-02", "Q-107", "J-02", "S-99", "S-100", "M-01", "T-283"}
	if !slices.Equal(ids, want) {
		t.Errorf("sorted %v, want %v", ids, want)
	}
}

// A fakeTB stands for a test that ends as the case requires. Its end runs the cleanups.
type fakeTB struct {
	testing.TB // only for the unexported method; nil, so anything else panics
	name       string
	failed     bool
	skipped    bool
	fatal      bool
	cleanups   []func()
}

func (f *fakeTB) Helper()               {}
func (f *fakeTB) Name() string          { return f.name }
func (f *fakeTB) Failed() bool          { return f.failed }
func (f *fakeTB) Skipped() bool         { return f.skipped }
func (f *fakeTB) Cleanup(fn func())     { f.cleanups = append(f.cleanups, fn) }
func (f *fakeTB) Errorf(string, ...any) { f.failed = true }
func (f *fakeTB) Fatal(...any)          { f.fatal = true; panic(f) }
func (f *fakeTB) Fatalf(string, ...any) { f.fatal = true; panic(f) }

// covers runs Covers as package testing would: a fatal error unwinds.
func (f *fakeTB) covers(ids ...string) {
	defer func() {
		if r := recover(); r != nil && r != any(f) {
			panic(r)
		}
	}()
	Covers(f, ids...)
}

func (f *fakeTB) end() {
	for _, fn := range slices.Backward(f.cleanups) {
		fn()
	}
}

func TestCoversRefusesBadIDs(t *testing.T) {
	t.Setenv(DirVariable, t.TempDir())
	for _, ids := range [][]string{
		{},
		{""},
		{"Q-7"},    // one spelling per id: Q-07
		{"Q-00"},   // ids start at one
		{"Q-108"},  // past the end
		{"X-01"},   // no such document
		{"q-01"},   // letters are capitals
		{"Q-01 "},  // no white space
		{"Q-0001"}, // no padding
		{"Q-01", "J-151"},
	} {
		tb := &fakeTB{name: "TestX"}
		tb.covers(ids...)
		if !tb.fatal {
			t.Errorf("Covers(%q) was accepted", ids)
		}
		if len(tb.cleanups) > 0 {
			t.Errorf("Covers(%q) left a cleanup behind", ids)
		}
	}
}

func TestCoversRecordsTheFinalOutcome(t *testing.T) {
	dir := t.TempDir()
	t.Setenv(DirVariable, dir)
	for _, test := range []struct {
		name string
		end  func(*fakeTB)
		want Outcome
	}{
		{"TestPass", func(*fakeTB) {}, Pass},
		{"TestFail", func(f *fakeTB) { f.failed = true }, Fail},
		{"TestSkip", func(f *fakeTB) { f.skipped = true }, Skip},
		{"TestFailThenSkip", func(f *fakeTB) { f.failed, f.skipped = true, true }, Fail},
		{"TestLateCleanup", func(f *fakeTB) { f.Cleanup(func() { f.failed = true }) }, Fail},
	} {
		tb := &fakeTB{name: test.name}
		tb.covers("Q-01", "J-150")
		test.end(tb)
		tb.end()

		records, err := ReadRecords(dir)
		if err != nil {
			t.Fatal(err)
		}
		for _, id := range []string{"Q-01", "J-150"} {
			want := Record{ID: id, Package: "github.com/gopherqueue/gq/internal/testing/spec", Test: test.name, Outcome: test.want}
			if !slices.Contains(records, want) {
				t.Errorf("%s: no record %v in %v", test.name, want, records)
			}
		}
	}
}

func TestCoversWritesNothingUnasked(t *testing.T) {
	t.Setenv(DirVariable, "")
	tb := &fakeTB{name: "TestX"}
	tb.covers("Q-01")
	if len(tb.cleanups) > 0 {
		t.Error("Covers registered a cleanup although recording is off")
	}
}

func TestCoversFailsWhenItCannotRecord(t *testing.T) {
	dir := t.TempDir()
	t.Setenv(DirVariable, dir+"/missing")
	tb := &fakeTB{name: "TestX"}
	tb.covers("Q-01")
	tb.end()
	if !tb.failed {
		t.Error("a record was lost without failing the test")
	}
}

func TestCoversInParallelTestsAndBubbles(t *testing.T) {
	dir := t.TempDir()
	t.Setenv(DirVariable, dir)
	const tests = 50
	done := make(chan struct{})
	for range tests {
		go func() {
			defer func() { done <- struct{}{} }()
			tb := &fakeTB{name: "TestParallel"}
			tb.covers("Q-01", "Q-02")
			tb.end()
		}()
	}
	synctest.Test(t, func(t *testing.T) {
		Covers(t, "Q-03") // the bubble's own t: cleaned up inside the bubble
		time.Sleep(time.Hour)
	})
	for range tests {
		<-done
	}

	records, err := ReadRecords(dir)
	if err != nil {
		t.Fatal(err)
	}
	counts := make(map[string]int)
	for _, r := range records {
		counts[r.ID]++
	}
	if counts["Q-01"] != tests || counts["Q-02"] != tests || counts["Q-03"] != 1 {
		t.Errorf("recorded %v, want %d times Q-01 and Q-02 and once Q-03", counts, tests)
	}
}

func TestReadRecordsRefusesDamage(t *testing.T) {
	for _, test := range []struct{ name, text string }{
		{"Torn", "Q-01\tp\tTestX\tpass"},
		{"MissingCell", "Q-01\tp\tTestX\n"},
		{"UnknownOutcome", "Q-01\tp\tTestX\tmaybe\n"},
	} {
		t.Run(test.name, func(t *testing.T) {
			dir := t.TempDir()
			if err := os.WriteFile(dir+"/1"+recordSuffix, []byte(test.text), 0o644); err != nil {
				t.Fatal(err)
			}
			if _, err := ReadRecords(dir); err == nil {
				t.Errorf("ReadRecords accepted %q", test.text)
			}
		})
	}
}
