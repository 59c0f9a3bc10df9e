package spec

import (
	"os"
	"slices"
	"strings"
	"testing"
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

// A fakeTB stands for a test and keeps what Covers and Needs do to it.
type fakeTB struct {
	testing.TB // only for the unexported method; nil, so anything else panics
	fatal      bool
	skipped    bool
	attributes []string
}

func (f *fakeTB) Helper()                {}
func (f *fakeTB) Attr(key, value string) { f.attributes = append(f.attributes, key+"="+value) }
func (f *fakeTB) Skipf(string, ...any)   { f.skipped = true }
func (f *fakeTB) Fatal(...any)           { f.fatal = true; panic(f) }
func (f *fakeTB) Fatalf(string, ...any)  { f.fatal = true; panic(f) }

// covers runs Covers as package testing would: a fatal error unwinds.
func (f *fakeTB) covers(ids ...string) {
	defer func() {
		if r := recover(); r != nil && r != any(f) {
			panic(r)
		}
	}()
	Covers(f, ids...)
}

func TestCoversRefusesBadIDs(t *testing.T) {
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
		tb := &fakeTB{}
		tb.covers(ids...)
		if !tb.fatal {
			t.Errorf("Covers(%q) was accepted", ids)
		}
		if len(tb.attributes) > 0 {
			t.Errorf("Covers(%q) left %q", ids, tb.attributes)
		}
	}
}

func TestCoversNamesTheRequirements(t *testing.T) {
	tb := &fakeTB{}
	tb.covers("Q-01", "J-150")
	if want := []string{"covers=Q-01 J-150"}; !slices.Equal(tb.attributes, want) || tb.fatal {
		t.Errorf("attributes %q, fatal %t, want %q", tb.attributes, tb.fatal, want)
	}
}

func TestNeeds(t *testing.T) {
	for _, test := range []struct {
		without string
		left    bool
	}{{"", false}, {"browser python", true}, {"python", true}, {"python3 pythons", false}} {
		t.Setenv(WithoutVariable, test.without)
		tb := &fakeTB{}
		Needs(tb, "python")
		if tb.skipped != test.left || slices.Contains(tb.attributes, "needs=python") != test.left {
			t.Errorf("without %q: skipped %t, attributes %q, want left out: %t", test.without, tb.skipped, tb.attributes, test.left)
		}
	}
}

func TestRecordsAreReadAsWritten(t *testing.T) {
	dir := t.TempDir()
	want := []Record{
		{ID: "Q-01", Package: "example.com/m/a", Test: "TestX/y", Outcome: Pass},
		{ID: "Q-02", Package: "example.com/m/a", Test: "TestX", Outcome: Left, Needs: "python"},
	}
	for i, name := range []string{"one", "two"} {
		if err := WriteRecords(dir, name, want[i:i+1]); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := ReadRecords(dir); err != nil || !slices.Equal(got, want) {
		t.Errorf("read %v, %v, want %v", got, err, want)
	}
	if err := WriteRecords(dir+"/missing", "one", want); err == nil {
		t.Error("records were lost without an error")
	}
}

func TestReadRecordsRefusesDamage(t *testing.T) {
	for _, test := range []struct{ name, text string }{
		{"Torn", "Q-01\tp\tTestX\tpass\t"},
		{"MissingCell", "Q-01\tp\tTestX\tpass\n"},
		{"UnknownOutcome", "Q-01\tp\tTestX\tmaybe\t\n"},
		{"LeftForNothing", "Q-01\tp\tTestX\tleft\t\n"},
		{"NeedsAndPassed", "Q-01\tp\tTestX\tpass\tpython\n"},
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
