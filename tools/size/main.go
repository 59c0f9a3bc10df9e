// Command size prints how large the project is, one number a line, so that a change
// shows what it adds and what it takes away.
//
//	go run ./tools/size
package main

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"regexp"
	"slices"
	"strings"
	"text/tabwriter"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintf(os.Stderr, "size: %v\n", err)
		os.Exit(1)
	}
}

func run() error {
	root := os.DirFS(".")
	product, err := count(root, ".")
	if err != nil {
		return err
	}
	out := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	row := func(name string, n int) { fmt.Fprintf(out, "%s\t%d\n", name, n) }
	row("lines written by hand, without tests", product.lines)
	row("lines of tests", product.tests)
	row("lines generated", product.generated)
	others, err := modules(root)
	if err != nil {
		return err
	}
	for _, dir := range others {
		c, err := count(root, dir)
		if err != nil {
			return err
		}
		if c.lines+c.tests > 0 {
			row("  module "+dir+", without tests", c.lines)
			row("  module "+dir+", tests", c.tests)
		}
	}
	mod, err := fs.ReadFile(root, "go.mod")
	if err != nil {
		return err
	}
	row("modules required in go.mod", len(requirement.FindAll(mod, -1)))
	short, err := command("go", "doc", "-short", ".")
	if err != nil {
		return err
	}
	row("lines of go doc -short of the root package", lines(short))
	row("exported types of the root package", product.types)
	row("entries of the first folder", product.entries)
	for _, t := range []struct{ dir, name string }{
		{"engine", "Engine"}, {"store/local", "Store"}, {"store/local", "txn"}, {"store/postgres", "Store"}, {"store/postgres", "txn"},
	} {
		row("methods of "+t.dir+"."+t.name, product.methods[t.dir+"."+t.name])
	}
	return out.Flush()
}

// A tally is what count has seen of one module.
type tally struct {
	lines, tests, generated int
	types, entries          int            // of the root package, and of its folder
	methods                 map[string]int // by directory and type
}

var generated = regexp.MustCompile(`(?m)^// Code generated .* DO NOT EDIT\.$`)

// A requirement is a module with its version, alone or in a block.
var requirement = regexp.MustCompile(`(?m)^(?:require )?\s*[^\s/]+\.[^\s]+/?[^\s]* v[0-9][^\s]*`)

// count reads the Go files of the module in dir, without those of modules within it.
func count(root fs.FS, dir string) (tally, error) {
	t := tally{methods: map[string]int{}}
	err := fs.WalkDir(root, dir, func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if path.Dir(name) == dir && name != dir {
			t.entries++
		}
		if d.IsDir() {
			if name != dir && skipped(root, name) {
				return fs.SkipDir
			}
			return nil
		}
		if path.Ext(name) != ".go" {
			return nil
		}
		text, err := fs.ReadFile(root, name)
		if err != nil {
			return err
		}
		n := bytes.Count(text, []byte("\n"))
		switch {
		case generated.Match(text):
			t.generated += n
			return nil
		case strings.HasSuffix(name, "_test.go"):
			t.tests += n
			return nil
		}
		t.lines += n
		return t.declarations(path.Dir(name), name, text)
	})
	return t, err
}

// declarations counts methods of types, and the exported types of the root package.
func (t *tally) declarations(dir, name string, text []byte) error {
	file, err := parser.ParseFile(token.NewFileSet(), name, text, parser.SkipObjectResolution)
	if err != nil {
		return err
	}
	for _, declaration := range file.Decls {
		switch d := declaration.(type) {
		case *ast.FuncDecl:
			if d.Recv != nil {
				t.methods[dir+"."+receiver(d.Recv.List[0].Type)]++
			}
		case *ast.GenDecl:
			for _, s := range d.Specs {
				if s, ok := s.(*ast.TypeSpec); ok && dir == "." && s.Name.IsExported() {
					t.types++
				}
			}
		}
	}
	return nil
}

func receiver(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.StarExpr:
		return receiver(e.X)
	case *ast.IndexExpr:
		return receiver(e.X)
	case *ast.IndexListExpr:
		return receiver(e.X)
	case *ast.Ident:
		return e.Name
	default:
		return ""
	}
}

// skipped says which directories are not of the module, like the go command.
func skipped(root fs.FS, dir string) bool {
	base := path.Base(dir)
	if base == "testdata" || base == "node_modules" || strings.HasPrefix(base, ".") || strings.HasPrefix(base, "_") {
		return true
	}
	_, err := fs.Stat(root, path.Join(dir, "go.mod"))
	return err == nil
}

// modules returns the directories of the other modules of the repository.
func modules(root fs.FS) (dirs []string, err error) {
	err = fs.WalkDir(root, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && (path.Base(name) == "node_modules" || strings.HasPrefix(path.Base(name), ".") && name != ".") {
			return fs.SkipDir
		}
		if path.Base(name) == "go.mod" && name != "go.mod" {
			dirs = append(dirs, path.Dir(name))
		}
		return nil
	})
	slices.Sort(dirs)
	return dirs, err
}

func command(name string, args ...string) (string, error) {
	c := exec.Command(name, args...) //nolint:noctx // ends by itself
	c.Stderr = os.Stderr
	out, err := c.Output()
	if err != nil {
		return "", fmt.Errorf("%s %s: %w", name, strings.Join(args, " "), err)
	}
	return string(out), nil
}

func lines(text string) int { return strings.Count(text, "\n") }
