package repo_test

import (
	"fmt"
	"go/ast"
	"go/doc/comment"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
)

// TestDocLinks fails where a comment links to a name of the module that does not exist.
func TestDocLinks(t *testing.T) {
	faults, links, err := docLinkFaults(os.DirFS("."))
	if err != nil {
		t.Fatal(err)
	}
	if links < 500 {
		t.Errorf("only %d links were found", links)
	}
	for _, fault := range faults {
		t.Error(fault)
	}
}

func TestDocLinkFaults(t *testing.T) {
	sources := fstest.MapFS{
		"gq.go":      {Data: []byte("package gq\n\ntype Job struct{ ID string }\n\nfunc (Job) State() {}\n\ntype Base interface{ Stop() }\n\ntype Client struct{ Base }\n")},
		"x/other.go": {Data: []byte("package x\n\nconst Limit = 1\n")},
	}
	const header = "package x\n\nimport (\n\t\"errors\"\n\n\t\"github.com/gopherqueue/gq\"\n)\n\n"
	for _, test := range []struct {
		comment string
		faults  int
	}{
		{"[gq.Job], [gq.Job.State], [gq.Job.ID], [gq.Client.Stop], [*gq.Job], [Limit], [Local.field], [errors.Is]", 0},
		{"[gq.Job.Cancel]", 1},
		{"[gq.Jobs]", 1},
		{"[gq.Jobs.State]", 1},
		{"[Local.Missing] and [gq.Client.Start]", 2},
		{"[missing.Package], [start, end), x[i], [1]", 0},
	} {
		sources["x/x.go"] = &fstest.MapFile{Data: []byte(header + "// Local has " + test.comment + ".\ntype Local struct{ field int }\n")}
		faults, _, err := docLinkFaults(sources)
		if err != nil || len(faults) != test.faults {
			t.Errorf("%s: %q, %v, want %d faults", test.comment, faults, err, test.faults)
		}
	}
}

// docPackage is what a package declares.
type docPackage struct {
	files   map[string]*ast.File
	names   map[string]bool     // Job, and Job.State
	embeds  map[string][]string // the types that a type embeds, as Name or IMPORTPATH.Name
	imports map[string]string   // of all files, as in go/doc: local name to import path
}

// docLinkFaults holds the links in the comments of all Go files against what the packages of
// the module declare, and counts the links. Links into other modules are taken for good.
func docLinkFaults(sources fs.FS) (faults []string, links int, err error) {
	fset := token.NewFileSet()
	packages := make(map[string]*docPackage) // by import path; tests of another package as PATH_test
	err = fs.WalkDir(sources, ".", func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && name != "." && (foreignDirectory(sources, name) || name == "api"):
			return fs.SkipDir
		case d.IsDir() || path.Ext(name) != ".go":
			return nil
		}
		text, err := fs.ReadFile(sources, name)
		if err != nil {
			return err
		}
		file, err := parser.ParseFile(fset, name, text, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		key := path.Join(modulePath, path.Dir(name))
		if strings.HasSuffix(file.Name.Name, "_test") {
			key += "_test"
		}
		if packages[key] == nil {
			packages[key] = &docPackage{make(map[string]*ast.File), make(map[string]bool), make(map[string][]string), make(map[string]string)}
		}
		packages[key].add(name, file)
		return nil
	})
	if err != nil {
		return nil, 0, err
	}
	for key, p := range packages {
		for name, file := range p.files {
			for _, group := range file.Comments {
				for _, link := range linksOf(group, p.imports) {
					links++
					target := key
					if link.ImportPath != "" {
						target = link.ImportPath
					}
					if !declared(packages, target, link.Recv, link.Name) {
						faults = append(faults, fmt.Sprintf("%s:%d: a comment links to %s, which is not declared", name, fset.Position(group.Pos()).Line, textOf(link)))
					}
				}
			}
		}
	}
	slices.Sort(faults)
	return faults, links, nil
}

// add notes what a file declares.
func (p *docPackage) add(name string, file *ast.File) {
	p.files[name] = file
	imports := make(map[string]string)
	for _, spec := range file.Imports {
		imported := importPath(spec)
		local := path.Base(strings.TrimSuffix(imported, "/v2"))
		if spec.Name != nil {
			local = spec.Name.Name
		}
		imports[local] = imported
	}
	maps.Copy(p.imports, imports)
	for _, declaration := range file.Decls {
		switch d := declaration.(type) {
		case *ast.FuncDecl:
			if d.Recv == nil {
				p.names[d.Name.Name] = true
			} else {
				p.names[typeName(d.Recv.List[0].Type, nil)+"."+d.Name.Name] = true
			}
		case *ast.GenDecl:
			for _, spec := range d.Specs {
				switch s := spec.(type) {
				case *ast.ValueSpec:
					for _, n := range s.Names {
						p.names[n.Name] = true
					}
				case *ast.TypeSpec:
					p.names[s.Name.Name] = true
					p.addMembers(s, imports)
				}
			}
		}
	}
}

// addMembers notes the fields or methods of a type, and what it embeds.
func (p *docPackage) addMembers(s *ast.TypeSpec, imports map[string]string) {
	var members *ast.FieldList
	switch t := s.Type.(type) {
	case *ast.StructType:
		members = t.Fields
	case *ast.InterfaceType:
		members = t.Methods
	default:
		p.embeds[s.Name.Name] = append(p.embeds[s.Name.Name], typeName(t, imports)) // an alias has the members of its type
		return
	}
	for _, m := range members.List {
		for _, n := range m.Names {
			p.names[s.Name.Name+"."+n.Name] = true
		}
		if len(m.Names) == 0 {
			embedded := typeName(m.Type, imports)
			p.embeds[s.Name.Name] = append(p.embeds[s.Name.Name], embedded)
			p.names[s.Name.Name+"."+embedded[strings.LastIndexByte(embedded, '.')+1:]] = true
		}
	}
}

// typeName names a type as Name or IMPORTPATH.Name, without its pointer and type arguments.
func typeName(x ast.Expr, imports map[string]string) string {
	switch x := x.(type) {
	case *ast.Ident:
		return x.Name
	case *ast.StarExpr:
		return typeName(x.X, imports)
	case *ast.IndexExpr:
		return typeName(x.X, imports)
	case *ast.IndexListExpr:
		return typeName(x.X, imports)
	case *ast.SelectorExpr:
		if pkg, ok := x.X.(*ast.Ident); ok {
			return imports[pkg.Name] + "." + x.Sel.Name
		}
	}
	return ""
}

// declared tells whether a package has a name, or a type of it a field or method.
func declared(packages map[string]*docPackage, pkg, recv, name string) bool {
	if _, ours := inModule(pkg); !ours || strings.HasPrefix(pkg, modulePath+"/api/") {
		return true
	}
	p := packages[pkg]
	if p == nil {
		tested, ok := strings.CutSuffix(pkg, "_test")
		return ok && declared(packages, tested, recv, name)
	}
	switch {
	case recv == "" && p.names[name], recv != "" && p.names[recv+"."+name]:
		return true
	case strings.HasSuffix(pkg, "_test"):
		return declared(packages, strings.TrimSuffix(pkg, "_test"), recv, name)
	}
	return slices.ContainsFunc(p.embeds[recv], func(embedded string) bool {
		i := strings.LastIndexByte(embedded, '.')
		if i >= 0 {
			return declared(packages, embedded[:i], embedded[i+1:], name)
		}
		return embedded != "" && embedded != recv && p.names[embedded] && declared(packages, pkg, embedded, name)
	})
}

// linksOf lists the links of a comment.
func linksOf(group *ast.CommentGroup, imports map[string]string) (links []*comment.DocLink) {
	text := group.Text()
	if !strings.Contains(text, "[") {
		return nil
	}
	p := comment.Parser{
		LookupPackage: func(name string) (string, bool) {
			imported, ok := imports[name]
			return imported, ok
		},
		LookupSym: func(recv, name string) bool { return true },
	}
	walk := func(texts []comment.Text) {
		for _, x := range texts {
			if link, ok := x.(*comment.DocLink); ok && link.Name != "" {
				links = append(links, link)
			}
		}
	}
	var blocks func(all []comment.Block)
	blocks = func(all []comment.Block) {
		for _, b := range all {
			switch b := b.(type) {
			case *comment.Paragraph:
				walk(b.Text)
			case *comment.Heading:
				walk(b.Text)
			case *comment.List:
				for _, item := range b.Items {
					blocks(item.Content)
				}
			}
		}
	}
	blocks(p.Parse(text).Content)
	return links
}

func textOf(link *comment.DocLink) string {
	var parts []string
	for _, part := range []string{path.Base(link.ImportPath), link.Recv, link.Name} {
		if part != "" && part != "." {
			parts = append(parts, part)
		}
	}
	return "[" + strings.Join(parts, ".") + "]"
}
