package repo_test

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// retiredWords are names that nobody guessed, with what the field says instead. A word
// also counts as part of an identifier: insertDesk, desk_size. Words of several parts,
// such as tellsAtOnce, count as parts of one identifier.
var retiredWords = []retiredWord{
	{word: "becoming", instead: "next"},
	{word: "birth", instead: "submission"},
	{word: "births", instead: "inserts"},
	{word: "books", instead: "ledger"},
	{word: "born", instead: "submitted"},
	{word: "census", instead: "queue registry"},
	{word: "desk", instead: "wait queue"},
	{word: "examined", instead: "checked or read"},
	{word: "glance", instead: "the verb for what is read"},
	{word: "herald", instead: "notifier"},
	{word: "lane", instead: "bucket, band or queue set", below: matchingLane},
	{word: "lanes", instead: "buckets, bands or queue sets", below: matchingLane},
	{word: "litter", instead: "garbage"},
	{word: "manner", instead: "mode"},
	{word: "manners", instead: "modes"},
	{word: "poke", instead: "wake"},
	{word: "prompt", instead: "fast path", inNames: true},
	{word: "soundly", instead: "what makes it valid"},
	{word: "stubborn", instead: "retrying"},
	{word: "tellsAtOnce", instead: "notifies"},
	{word: "tidy", instead: "compact", except: regexp.MustCompile(`(?i)mod tidy|tidy-check|check-tidy`)},
}

// matchingLane is where lane has its one meaning: the jobs that matching keeps from starving.
var matchingLane = []string{"match/", "internal/matchmaker/", "internal/faces/matching/", "docs/matching.md", "docs/decisions/"}

type retiredWord struct {
	word, instead string
	inNames       bool           // alone it is an ordinary word
	below         []string       // where it still has a meaning
	except        *regexp.Regexp // what contains it and is fine
}

// wordFiles are what the words are looked for in.
var wordFiles = regexp.MustCompile(`\.(go|sql|proto|md|sh|ya?ml)$|(^|/)(Makefile|Dockerfile)$|^scripts/[^/]+$|^\.ci/`)

// wordless are generated files and quotations: the texts of requirements and the
// reports of measurements, and this list.
var wordless = []string{".git/", "api/", "services/api/", "results/", "docs/conformance.md", "internal/testing/spec/", "internal/repo/words_test.go"}

// TestRetiredWords fails where a word comes back that was given up.
func TestRetiredWords(t *testing.T) {
	err := filepath.WalkDir(".", func(file string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (d.Name() == "node_modules" || slices.Contains(wordless, filepath.ToSlash(file)+"/")):
			return fs.SkipDir
		case d.IsDir() || !wordFiles.MatchString(filepath.ToSlash(file)) || slices.Contains(wordless, filepath.ToSlash(file)):
			return nil
		}
		text, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		for _, found := range findRetired(filepath.ToSlash(file), string(text)) {
			t.Error(found)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestRetiredWordsAreFound(t *testing.T) {
	for _, test := range []struct {
		file, text string
		found      int
	}{
		{"engine/x.go", "a queue\nfunc (d *desk) insertDesk() {}", 2},
		{"engine/x.go", "DeskSize desk_size DESK", 3},
		{"engine/x.go", "desktop, helpdesks", 0},
		{"docs/x.md", "Type it at the prompt.", 0},
		{"store/x.go", "s.insertPrompt(ctx)", 1},
		{"store/x.go", "if s.tellsAtOnce { tellsAt(once) }", 1},
		{"store/x.sql", "-- the census of queues", 1},
	} {
		if found := findRetired(test.file, test.text); len(found) != test.found {
			t.Errorf("%s: %q: found %q, want %d words", test.file, test.text, found, test.found)
		}
	}
	if found := findRetired("x.go", "one\n// the desk"); !slices.Equal(found, []string{`x.go:2: "desk" is retired: write wait queue`}) {
		t.Errorf("%q", found)
	}
}

var (
	identifier = regexp.MustCompile(`[A-Za-z0-9_]+`)
	namePart   = regexp.MustCompile(`[A-Z]+(?:[a-z]+)?|[a-z]+`)
)

// nameParts splits an identifier into words: insertDesk_now is insert, desk, now.
func nameParts(name string) []string {
	parts := namePart.FindAllString(name, -1)
	for i := range parts {
		parts[i] = strings.ToLower(parts[i])
	}
	return parts
}

func findRetired(file, text string) (found []string) {
	lines := strings.Split(text, "\n")
	lower := strings.ToLower(text)
	for _, w := range retiredWords {
		if slices.ContainsFunc(w.below, func(dir string) bool { return strings.HasPrefix(file, dir) }) {
			continue
		}
		parts := nameParts(w.word)
		if !strings.Contains(lower, parts[0]) { // the usual case, and cheap
			continue
		}
		for i, line := range lines {
			if !strings.Contains(strings.ToLower(line), parts[0]) {
				continue
			}
			if w.except != nil {
				line = w.except.ReplaceAllString(line, "")
			}
			for _, name := range identifier.FindAllString(line, -1) {
				in := nameParts(name)
				if w.inNames && len(in) == len(parts) {
					continue
				}
				for at := range in {
					if end := at + len(parts); end <= len(in) && slices.Equal(in[at:end], parts) {
						found = append(found, fmt.Sprintf("%s:%d: %q is retired: write %s", file, i+1, w.word, w.instead))
					}
				}
			}
		}
	}
	return found
}
