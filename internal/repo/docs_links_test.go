package repo_test

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var (
	inlineLink     = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	referenceLink  = regexp.MustCompile(`\]\[([^\]]+)\]`)
	linkDefinition = regexp.MustCompile(`(?m)^\[([^\]]+)\]: (\S+)$`)
	heading        = regexp.MustCompile(`(?m)^#+ (.*)$`)
	notInAnchor    = regexp.MustCompile(`[^\p{L}\p{N} _-]`)
	codeBlock      = regexp.MustCompile("(?ms)^```.*?^```")
	inlineCode     = regexp.MustCompile("`[^`\n]*`")
)

// TestDocumentLinks follows every link from one file of the repository to another, to the heading.
func TestDocumentLinks(t *testing.T) {
	files := []string{"README.md", "CONTRIBUTING.md", "SECURITY.md"}
	for _, pattern := range []string{"docs/*.md", "docs/decisions/*.md", "examples/*/README.md"} {
		found, err := filepath.Glob(pattern)
		if err != nil || len(found) == 0 {
			t.Fatalf("%s: %v, %v", pattern, found, err)
		}
		files = append(files, found...)
	}
	for _, name := range files {
		text := proseOf(t, name)
		var links []string
		for _, m := range inlineLink.FindAllStringSubmatch(text, -1) {
			links = append(links, m[1])
		}
		defined := make(map[string]bool)
		for _, m := range linkDefinition.FindAllStringSubmatch(text, -1) {
			defined[m[1]] = false
			links = append(links, m[2])
		}
		for _, m := range referenceLink.FindAllStringSubmatch(text, -1) {
			if _, ok := defined[m[1]]; !ok && len(defined) > 0 {
				t.Errorf("%s: [%s] is not defined", name, m[1])
			}
			defined[m[1]] = true
		}
		for ref, used := range defined {
			if !used {
				t.Errorf("%s: [%s] is not used", name, ref)
			}
		}
		for _, link := range links {
			checkLink(t, name, link)
		}
	}
}

func checkLink(t *testing.T, from, link string) {
	t.Helper()
	if strings.Contains(link, "://") || strings.HasPrefix(link, "mailto:") {
		return
	}
	file, anchor, _ := strings.Cut(link, "#")
	target := from
	if file != "" {
		target = filepath.Join(filepath.Dir(from), file)
	}
	if _, err := os.Stat(target); err != nil {
		t.Errorf("%s: a link leads to %s, which is not there", from, link)
		return
	}
	if anchor != "" && filepath.Ext(target) == ".md" && !slices.Contains(anchorsOf(t, target), anchor) {
		t.Errorf("%s: %s has no heading #%s", from, target, anchor)
	}
}

// proseOf reads a document without its code.
func proseOf(t *testing.T, name string) string {
	t.Helper()
	raw, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return inlineCode.ReplaceAllString(codeBlock.ReplaceAllString(string(raw), ""), "code")
}

// anchorsOf lists the anchors of a document's headings as GitHub makes them.
func anchorsOf(t *testing.T, name string) (all []string) {
	t.Helper()
	raw, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range heading.FindAllStringSubmatch(codeBlock.ReplaceAllString(string(raw), ""), -1) {
		all = append(all, strings.ReplaceAll(notInAnchor.ReplaceAllString(strings.ToLower(m[1]), ""), " ", "-"))
	}
	return all
}
