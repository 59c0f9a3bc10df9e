package wire

import (
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/internal/errs"
)

// This package knows the codes of all sentinels of package gq.
func TestSentinelsAreTotal(t *testing.T) {
	file, err := parser.ParseFile(token.NewFileSet(), "../../errors.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	ast.Inspect(file, func(node ast.Node) bool {
		call, ok := node.(*ast.CallExpr)
		if !ok || len(call.Args) != 3 {
			return true
		}
		if f, ok := call.Fun.(*ast.Ident); !ok || f.Name != "sentinel" {
			return true
		}
		code := strings.Trim(call.Args[1].(*ast.BasicLit).Value, `"`)
		n++
		if sentinels[code] == nil {
			t.Errorf("code %q is not known", code)
		} else if cause := CauseOf(code, "internal"); !errors.Is(cause, sentinels[code]) || errs.CodeOf(cause) != code {
			t.Errorf("code %q stands for %v", code, cause)
		}
		return true
	})
	if n == 0 || n != len(sentinels) {
		t.Errorf("package gq has %d sentinels, this package %d", n, len(sentinels))
	}
}

// What retention has removed was there once, so a client need not look for a mistake of its own.
func TestGoneIsNotMissing(t *testing.T) {
	gone := fmt.Errorf("events up to 3 are dropped: %w", gq.ErrGone)
	if p := ProblemOf(gone, "r"); p.Status != 410 || p.Code != "gone" || p.Title != "Gone" || p.RequestID != "r" || p.Detail != gone.Error() {
		t.Errorf("%+v", p)
	}
	if p := ProblemOf(gq.ErrNotFound, ""); p.Status != 404 {
		t.Errorf("%+v", p)
	}
}

// What passes by itself says when to ask again.
func TestAskLater(t *testing.T) {
	for err, want := range map[error]string{
		gq.ErrDiskFull: "5", fmt.Errorf("insert: %w", gq.ErrDiskFull): "5", gq.ErrUnavailable: "5", gq.ErrQueueFull: "", gq.ErrNotFound: "",
	} {
		h := http.Header{}
		if AskLater(h, err); h.Get("Retry-After") != want {
			t.Errorf("%v: %q, want %q", err, h.Get("Retry-After"), want)
		}
	}
}

// The list of codes has those of the sentinel errors, and those that the sources of HTTP give.
func TestCodesAreListed(t *testing.T) {
	found := map[string]bool{"internal": true}
	for pattern, code := range map[string]*regexp.Regexp{
		"../../errors.go":      regexp.MustCompile(`sentinel\(Kind\w+, "(\w+)"`),
		"../../server/*.go":    regexp.MustCompile(`NewProblem\([^"\n]*"(\w+)"`),
		"../*/*.go":            regexp.MustCompile(`NewProblem\([^"\n]*"(\w+)"`),
		"../faces/native/*.go": regexp.MustCompile(`NewProblem\([^"\n]*"(\w+)"`),
	} {
		files, err := filepath.Glob(pattern)
		if err != nil || len(files) == 0 {
			t.Fatalf("%s: %v", pattern, err)
		}
		for _, name := range files {
			if strings.HasSuffix(name, "_test.go") {
				continue
			}
			text, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			for _, m := range code.FindAllStringSubmatch(string(text), -1) {
				found[m[1]] = true
			}
		}
	}
	if diff := cmp.Diff(slices.Sorted(maps.Keys(found)), Codes()); diff != "" {
		t.Errorf("codes (-in the sources +listed):\n%s", diff)
	}
}
