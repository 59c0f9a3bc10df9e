package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/gopherqueue/gq/internal/testing/spec"
)

// A mention is one place in the sources where a test names a requirement.
type mention struct {
	id       string
	position string // file:line
	// pkg and test restrict which test must have recorded the id. They are empty if the
	// source does not say: a suite runs in the packages that import it, and any test of
	// a package may use its helpers and tables.
	pkg  string
	test string
}

func (m mention) matches(r spec.Record) bool {
	return m.id == r.ID &&
		(m.pkg == "" || m.pkg == r.Package) &&
		(m.test == "" || m.test == r.Test || strings.HasPrefix(r.Test, m.test+"/"))
}

// modulePath reads the name of the module in a directory from its go.mod.
func modulePath(sources fs.FS, dir string) (string, error) {
	text, err := fs.ReadFile(sources, path.Join(dir, "go.mod"))
	if err != nil {
		return "", fmt.Errorf("find module: %w", err)
	}
	lines := bufio.NewScanner(bytes.NewReader(text))
	for lines.Scan() {
		if name, ok := strings.CutPrefix(lines.Text(), "module "); ok {
			return strings.TrimSpace(name), nil
		}
	}
	return "", errors.New("find module: go.mod has no module line")
}

// scan finds the literal ids in calls of spec.Covers and in fields named Covers of
// composite literals, which table-driven suites use. It reads every package of the
// module with a file that imports package spec.
func scan(sources fs.FS, module string) ([]mention, error) {
	packages, err := parsePackages(sources, module)
	if err != nil {
		return nil, err
	}
	var mentions []mention
	var faults []error
	for _, p := range packages {
		if !slices.ContainsFunc(p.files, func(f file) bool { return f.specName(module) != "" }) {
			continue
		}
		for _, f := range p.files {
			found, err := f.mentions(module, p.dir)
			mentions = append(mentions, found...)
			faults = append(faults, err)
		}
	}
	return mentions, errors.Join(faults...)
}

// A parsedPackage is the Go files of one directory, tests included.
type parsedPackage struct {
	dir   string
	files []file
}

type file struct {
	name   string
	syntax *ast.File
	fset   *token.FileSet
}

// parsePackages reads the module's own packages, and those of nested modules whose
// paths continue its own, in the order of their directories; like the go command it
// skips testdata, vendor, hidden directories and other nested modules.
func parsePackages(sources fs.FS, module string) ([]*parsedPackage, error) {
	var packages []*parsedPackage
	fset := token.NewFileSet()
	err := fs.WalkDir(sources, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			if name != "." && skipped(sources, module, name) {
				return fs.SkipDir
			}
			return nil
		}
		if path.Ext(name) != ".go" {
			return nil
		}
		text, err := fs.ReadFile(sources, name)
		if err != nil {
			return err
		}
		syntax, err := parser.ParseFile(fset, name, text, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		dir := path.Dir(name)
		i := slices.IndexFunc(packages, func(p *parsedPackage) bool { return p.dir == dir })
		if i < 0 {
			i = len(packages)
			packages = append(packages, &parsedPackage{dir: dir})
		}
		packages[i].files = append(packages[i].files, file{name, syntax, fset})
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("scan sources: %w", err)
	}
	return packages, nil
}

func skipped(sources fs.FS, module, dir string) bool {
	base := path.Base(dir)
	if base == "testdata" || base == "vendor" || strings.HasPrefix(base, ".") || strings.HasPrefix(base, "_") {
		return true
	}
	nested, err := modulePath(sources, dir)
	return !errors.Is(err, fs.ErrNotExist) && nested != path.Join(module, dir)
}

// specName returns the name by which the file refers to package spec, "" if it does not
// import it.
func (f file) specName(module string) string {
	for _, imported := range f.syntax.Imports {
		if imported.Path.Value != strconv.Quote(module+"/internal/testing/spec") {
			continue
		}
		if imported.Name != nil {
			return imported.Name.Name
		}
		return "spec"
	}
	return ""
}

func (f file) mentions(module, dir string) ([]mention, error) {
	specName := f.specName(module)
	var found []mention
	var faults []error
	for _, declaration := range f.syntax.Decls {
		test := nameOfTest(declaration)
		collect := func(expressions ...ast.Expr) {
			for _, literal := range stringLiterals(expressions) {
				m := mention{position: f.position(literal)}
				m.id, _ = strconv.Unquote(literal.Value) // the parser has accepted it
				if _, err := spec.Lookup(m.id); err != nil {
					faults = append(faults, fmt.Errorf("%s: %w", m.position, err))
					continue
				}
				if strings.HasSuffix(f.name, "_test.go") {
					m.pkg, m.test = path.Join(module, dir), test
				}
				found = append(found, m)
			}
		}
		ast.Inspect(declaration, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.CallExpr:
				if specName != "" && isSelector(n.Fun, specName, "Covers") {
					collect(n.Args...)
				}
			case *ast.KeyValueExpr:
				if key, ok := n.Key.(*ast.Ident); ok && key.Name == "Covers" {
					collect(n.Value)
				}
			}
			return true
		})
	}
	return found, errors.Join(faults...)
}

func (f file) position(n ast.Node) string {
	p := f.fset.Position(n.Pos())
	return fmt.Sprintf("%s:%d", p.Filename, p.Line)
}

// nameOfTest returns the name of a top-level test, benchmark or fuzz target, "" for any
// other declaration.
func nameOfTest(declaration ast.Decl) string {
	function, ok := declaration.(*ast.FuncDecl)
	if !ok || function.Recv != nil {
		return ""
	}
	for _, prefix := range []string{"Test", "Fuzz", "Benchmark"} {
		if strings.HasPrefix(function.Name.Name, prefix) {
			return function.Name.Name
		}
	}
	return ""
}

func isSelector(expression ast.Expr, pkg, name string) bool {
	selector, ok := expression.(*ast.SelectorExpr)
	if !ok || selector.Sel.Name != name {
		return false
	}
	ident, ok := selector.X.(*ast.Ident)
	return ok && ident.Name == pkg
}

func stringLiterals(expressions []ast.Expr) []*ast.BasicLit {
	var literals []*ast.BasicLit
	for _, expression := range expressions {
		ast.Inspect(expression, func(n ast.Node) bool {
			if literal, ok := n.(*ast.BasicLit); ok && literal.Kind == token.STRING {
				literals = append(literals, literal)
			}
			return true
		})
	}
	return literals
}
