package repo_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var (
	pictureName = regexp.MustCompile(`(\w+)\["([^"]+)"\]`)
	pictureEdge = regexp.MustCompile(`(?m)^ *(\w+)(?:\["[^"]+"\])? --> (\w+)`)
	packageRow  = regexp.MustCompile("(?m)^\\| `([^` ]+)` \\| [^|]+ \\|$")
	whereRow    = regexp.MustCompile("(?m)^\\| [^|]+ \\| `([^`]+)` \\| `([^`]+)` \\|$")
)

// TestArchitecturePage holds docs/architecture.md against the sources.
func TestArchitecturePage(t *testing.T) {
	raw, err := os.ReadFile("docs/architecture.md")
	if err != nil {
		t.Fatal(err)
	}
	page := string(raw)
	dirs := map[string]string{"gq": "."}
	for _, m := range pictureName.FindAllStringSubmatch(page, -1) {
		dirs[m[1]] = strings.TrimSuffix(m[2], " (root)")
		if m[1] == "gq" {
			dirs[m[1]] = "."
		}
	}
	edges := pictureEdge.FindAllStringSubmatch(page, -1)
	if len(edges) < 20 {
		t.Fatalf("the picture has %d arrows; is it still mermaid?", len(edges))
	}
	dirOf := func(name string) string {
		if dir, ok := dirs[name]; ok {
			return dir
		}
		return name
	}
	for _, e := range edges {
		from, to := dirOf(e[1]), dirOf(e[2])
		imported := modulePath
		if to != "." {
			imported = path.Join(modulePath, to)
		}
		if !slices.Contains(importsOf(t, from), imported) {
			t.Errorf("the picture has an arrow from %s to %s, and no file of %[1]s imports it", from, to)
		}
	}
	var named []string
	for _, m := range packageRow.FindAllStringSubmatch(page, -1) {
		named = append(named, m[1])
	}
	slices.Sort(named)
	existing := packagesOf(t, ".")
	for _, pkg := range existing {
		if !slices.Contains(named, pkg) {
			t.Errorf("the tables lack package %s: add a row that says what it does", pkg)
		}
	}
	for i, pkg := range named {
		if !slices.Contains(existing, pkg) {
			t.Errorf("the tables name %s, which is no package", pkg)
		}
		if i > 0 && pkg == named[i-1] {
			t.Errorf("the tables name %s twice", pkg)
		}
	}
	rows := whereRow.FindAllStringSubmatch(page, -1)
	if len(rows) < 10 {
		t.Fatalf("the page answers %d questions", len(rows))
	}
	for _, r := range rows {
		if !slices.Contains(functionsOf(t, r[1]), r[2]) {
			t.Errorf("%s has no function %s", r[1], r[2])
		}
	}
}

// packagesOf lists the directories of a module that have Go files.
func packagesOf(t *testing.T, root string) (dirs []string) {
	t.Helper()
	sources := os.DirFS(root)
	err := fs.WalkDir(sources, ".", func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && name != "." && foreignDirectory(sources, name):
			return fs.SkipDir
		case !d.IsDir() && path.Ext(name) == ".go":
			dirs = append(dirs, path.Dir(name))
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(dirs)
	return slices.Compact(dirs)
}

// importsOf lists what the files of a package import, without its tests.
func importsOf(t *testing.T, dir string) (all []string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil || len(files) == 0 {
		t.Errorf("there is no package %s: %v", dir, err)
	}
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ImportsOnly)
		if err != nil {
			t.Fatal(err)
		}
		for _, spec := range file.Imports {
			all = append(all, importPath(spec))
		}
	}
	return all
}

var protoCall = regexp.MustCompile(`(?m)^\s*rpc (\w+)\(`)

// functionsOf lists the functions and methods of a file: in Go also those of its interfaces.
func functionsOf(t *testing.T, name string) (all []string) {
	t.Helper()
	if strings.HasSuffix(name, ".proto") {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Error(err)
		}
		for _, found := range protoCall.FindAllStringSubmatch(string(text), -1) {
			all = append(all, found[1])
		}
		return all
	}
	file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
	if err != nil {
		t.Error(err)
		return nil
	}
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncDecl:
			all = append(all, n.Name.Name)
			return false
		case *ast.InterfaceType:
			for _, m := range n.Methods.List {
				for _, method := range m.Names {
					all = append(all, method.Name)
				}
			}
		}
		return true
	})
	return all
}
