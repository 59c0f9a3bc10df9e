package matchmaker_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/gopherqueue/gq/internal/testing/spec"
)

// sources parses the non-test files of a package.
func sources(t *testing.T, dir string) (files []*ast.File) {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil || len(names) == 0 {
		t.Fatalf("no sources in %s: %v", dir, err)
	}
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, file)
	}
	return files
}

// chance lists the functions of a file that use a package of random numbers, and the
// packages that it imports.
func chance(file *ast.File) (users, imports []string) {
	local := map[string]bool{}
	for _, i := range file.Imports {
		path := strings.Trim(i.Path.Value, `"`)
		imports = append(imports, path)
		if strings.Contains(path, "rand") {
			local["rand"] = true
			if i.Name != nil {
				local[i.Name.Name] = true
			}
		}
	}
	for _, decl := range file.Decls {
		name := ""
		if f, ok := decl.(*ast.FuncDecl); ok {
			name = f.Name.Name
		}
		ast.Inspect(decl, func(n ast.Node) bool {
			if s, ok := n.(*ast.SelectorExpr); ok {
				if x, ok := s.X.(*ast.Ident); ok && local[x.Name] {
					users = append(users, name)
				}
			}
			return true
		})
	}
	return users, imports
}

// No decision draws a random number: the function has no source of them, and the
// dispatcher has one, for the name of its process. Retries of a job draw nothing either
// (advance passes an empty draw).
func TestChanceComesFromTheSeedAlone(t *testing.T) {
	spec.Covers(t, "M-129")
	for _, file := range sources(t, "../../match") {
		users, imports := chance(file)
		for _, path := range imports {
			if strings.Contains(path, "rand") || path == "hash/maphash" || path == "unsafe" {
				t.Errorf("package match imports %s", path)
			}
		}
		if len(users) > 0 {
			t.Errorf("package match draws in %v", users)
		}
	}
	var drawn []string
	for _, dir := range []string{".", "audit", "backlog", "ledger", "registry"} {
		for _, file := range sources(t, dir) {
			users, _ := chance(file)
			drawn = append(drawn, users...)
		}
	}
	if !slices.Equal(drawn, []string{"newProcessName"}) {
		t.Errorf("random numbers are drawn in %v, want newProcessName alone", drawn)
	}
}

// Each component of the specification is owned by one package, and docs/matching.md says
// which.
func TestEachComponentHasOneOwner(t *testing.T) {
	spec.Covers(t, "M-160")
	page, err := os.ReadFile("../../docs/matching.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range []struct {
		component, pkg string
		declares       []string // declarations that make it the owner
	}{
		{"priority", "match", []string{"Priority", "Cached", "Score"}},
		{"quotas", "match", []string{"Quotas", "hasRoom", "count"}},
		{"dispatcher", "internal/matchmaker", []string{"Dispatcher", "Run", "Round"}},
		{"assignment", "match", []string{"Assignment", "Match"}},
		{"storage", "store", []string{"Store", "Changer"}},
		{"retry", "machine", []string{"Delay", "HashBackoff"}},
		{"ttl", "machine", []string{"LifeEnd"}},
		{"receiver", "internal/matchmaker", []string{"Complete", "Ack"}},
		{"event socket", "internal/faces/matching", []string{"socket", "noticeOf"}},
		{"config", "match", []string{"Settings", "DefaultSettings"}},
	} {
		declared := declarations(t, filepath.Join("../..", v.pkg))
		for _, name := range v.declares {
			if !declared[name] {
				t.Errorf("%s: package %s does not declare %s", v.component, v.pkg, name)
			}
		}
		shown := v.pkg
		if shown == "." {
			shown = "gq"
		}
		if line := "| " + v.component + " | `" + shown + "` |"; !strings.Contains(string(page), line) {
			t.Errorf("docs/matching.md does not say %q", line)
		}
		for _, other := range []string{".", "match", "store", "engine", "internal/matchmaker", "internal/faces/matching"} {
			if other == v.pkg {
				continue
			}
			all := declarations(t, filepath.Join("../..", other))
			if !slices.ContainsFunc(v.declares, func(name string) bool { return !all[name] }) {
				t.Errorf("%s: package %s declares all of %v too", v.component, other, v.declares)
			}
		}
	}
}

// declarations returns the names of a package's types, functions and methods.
func declarations(t *testing.T, dir string) map[string]bool {
	t.Helper()
	names := map[string]bool{}
	for _, file := range sources(t, dir) {
		for _, decl := range file.Decls {
			switch d := decl.(type) {
			case *ast.FuncDecl:
				names[d.Name.Name] = true
			case *ast.GenDecl:
				for _, s := range d.Specs {
					if typ, ok := s.(*ast.TypeSpec); ok {
						names[typ.Name.Name] = true
					}
				}
			}
		}
	}
	return names
}
