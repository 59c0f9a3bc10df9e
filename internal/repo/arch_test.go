package repo_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const modulePath = "github.com/gopherqueue/gq"

// An arrow says what one package may import. Packages are named by their
// directory, the root by "."; a last element * stands for anything below.
type arrow struct {
	pkg     string
	imports []string // packages of the module, besides the package itself
	tests   []string // more of them for its _test.go files, besides testHelpers
	pure    bool     // reaches nothing but its arguments: see purityFaults
}

// arrows is the whole architecture: imports point down this list and never
// back. Packages that do not exist yet have their row already where their place
// is decided; every package that exists must have one.
var arrows = []arrow{
	// What a program reads first. It imports nothing of ours; drivers register with it.
	{pkg: ".", tests: []string{"store/codec", "worker", "driver/*"}},

	// The rules: pure functions on the nouns of the root.
	{pkg: "internal/enum", pure: true},
	{pkg: "internal/errs", imports: []string{"."}, pure: true},
	{pkg: "machine", imports: []string{"."}, tests: []string{"classify", "store/codec", "view/semantics"}, pure: true},
	{pkg: "classify", imports: []string{"."}}, // a function, but it knows the errors of packages that are not pure
	{pkg: "internal/sha256batch"},             // a function, but it asks the processor what it can do
	{pkg: "match", imports: []string{".", "internal/sha256batch"}, pure: true},

	// How the receiver of a webhook checks it, and how it is signed.
	{pkg: "webhook", imports: []string{"."}},

	// A heap, and how goroutines wait.
	{pkg: "internal/heap", pure: true},
	{pkg: "internal/retry"},
	{pkg: "internal/wake"},

	// The form of a checkpoint that has recorded steps.
	{pkg: "internal/steps", pure: true},

	// The trace context of submissions, in all its forms.
	{pkg: "internal/tracing", imports: []string{"."}},

	// Which release a program was built from.
	{pkg: "internal/version"},

	// The binary forms that stores keep.
	{pkg: "store/codec", imports: []string{"."}, pure: true},

	// The port, its contract, its implementations. A store knows no other.
	{pkg: "store", imports: []string{".", "store/codec"}},
	{pkg: "store/storetest", imports: []string{".", "store", "internal/testing/scribble", "internal/testing/spec"}},
	{pkg: "store/simple", imports: []string{".", "store", "internal/wake"}},
	{pkg: "store/local", imports: []string{".", "store", "store/codec", "internal/wake"}},
	{pkg: "store/postgres", imports: []string{".", "store", "store/codec", "match", "internal/projection", "internal/wake", "internal/retry"}}, // match and projection: the views' columns

	// Measures any store through the port.
	{pkg: "internal/bench", imports: []string{".", "internal/quantity", "store", "engine", "worker"}, tests: []string{"store/local", "store/codec", "match", "api/*", "internal/pbconv", "internal/faces/native"}},

	// Carries everything from one store to another, or to a file and back.
	{pkg: "internal/transfer", imports: []string{".", "store", "store/codec"}, tests: []string{"store/local", "store/postgres"}},

	// The engine sees a store only through the port.
	{pkg: "internal/history", imports: []string{"."}, pure: true},
	{pkg: "engine", imports: []string{".", "internal/quantity", "match", "store", "store/codec", "internal/history", "internal/tracing", "internal/wake", "internal/version"}, tests: []string{"store/local", "store/simple", "store/postgres", "worker"}},

	// What users put into their own programs. The generated messages are data,
	// not a layer.
	{pkg: "worker", imports: []string{".", "classify", "internal/retry", "internal/spelling", "internal/steps", "internal/tracing", "internal/wake"}, tests: []string{"engine", "store", "store/local"}},
	{pkg: "middleware/encrypt", imports: []string{"."}, tests: []string{"worker", "gqtest", "driver/file"}},
	{pkg: "middleware/compress", imports: []string{"."}, tests: []string{"worker", "gqtest"}},
	{pkg: "internal/workerstats", imports: []string{"worker"}},
	{pkg: "worker/workerprom", imports: []string{"worker", "internal/workerstats"}, tests: []string{".", "engine", "store/local"}},
	{pkg: "worker/workerotel", imports: []string{"worker", "internal/workerstats", "internal/tracing"}, tests: []string{".", "engine", "store/local"}},
	{pkg: "client", imports: []string{".", "api/*", "internal/retry", "internal/tracing", "internal/wire", "internal/pbconv", "internal/wake", "internal/version"}, tests: []string{"engine", "store", "store/local", "internal/faces/native", "internal/access", "internal/feed", "worker", "driver/remote"}},
	{pkg: "gqtest", imports: []string{".", "store", "store/simple", "engine", "worker", "internal/steps", "internal/wake"}},
	{pkg: "driver/file", imports: []string{".", "engine", "store", "store/local", "internal/storeurl"}},
	{pkg: "driver/postgres", imports: []string{".", "engine", "store", "store/postgres", "internal/wire"}}, // wire: the requests of gq.submit
	{pkg: "driver/remote", imports: []string{".", "client"}},
	{pkg: "api/*"},

	// How the vocabulary is written outside of a Go program, by servers and by
	// clients.
	{pkg: "internal/spelling", pure: true},
	{pkg: "internal/quantity", pure: true},
	{pkg: "internal/wire", imports: []string{".", "internal/spelling"}},
	{pkg: "internal/pbconv", imports: []string{".", "api/*", "internal/wire"}},
	{pkg: "internal/socket", imports: []string{"internal/wire"}},
	{pkg: "internal/httpx", imports: []string{".", "internal/wire"}},

	// A job in the words of a document.
	{pkg: "internal/listing", imports: []string{"."}},
	{pkg: "view/semantics", imports: []string{".", "classify", "internal/listing", "internal/wire"}, tests: viewTests},
	{pkg: "view/jobmodel", imports: []string{".", "internal/listing", "internal/wire"}, tests: viewTests},
	{pkg: "internal/view", imports: []string{".", "internal/listing", "view/semantics", "view/jobmodel"}},

	// Who may do what, what has happened, and whom to tell of it: over the
	// engine's methods and the documents of any store.
	{pkg: "internal/access", imports: []string{".", "store", "engine"}, tests: []string{"store/local"}},
	{pkg: "internal/feed", imports: []string{".", "api/*", "internal/retry", "internal/wire", "internal/pbconv"}},
	{pkg: "internal/delivery", imports: []string{".", "store", "webhook", "internal/heap", "internal/wire", "internal/wake", "internal/retry"}, tests: []string{"engine", "store/local"}},
	{pkg: "internal/observe", imports: []string{".", "store", "engine", "internal/logline", "internal/tracing", "internal/version"}, tests: []string{"store/local", "internal/access"}},
	{pkg: "internal/trail", imports: []string{".", "engine", "store", "internal/access", "internal/errs"}, tests: []string{"store/simple"}},
	{pkg: "internal/admin", imports: []string{"webhook", ".", "internal/access", "internal/delivery", "internal/trail", "store"}},

	// How values read in a log.
	{pkg: "internal/logline"},

	// Gives out jobs that are matched with providers and not claimed. Its decisions
	// are package match's; what it knows between them is in parts that do no I/O.
	{pkg: "internal/matchmaker/ledger", imports: []string{".", "match", "internal/heap"}, tests: []string{"store"}, pure: true},
	{pkg: "internal/matchmaker/registry", imports: []string{".", "match", "internal/matchmaker/ledger"}, pure: true},
	{pkg: "internal/matchmaker/backlog", imports: []string{".", "match", "internal/heap", "internal/matchmaker/ledger"}, pure: true},
	{pkg: "internal/matchmaker/audit", imports: []string{".", "match", "store", "internal/matchmaker/backlog"}},
	{pkg: "internal/matchmaker/sink", imports: []string{".", "match", "webhook"}},
	{pkg: "internal/matchmaker", imports: []string{".", "internal/projection", "match", "store", "engine", "internal/matchmaker/*", "internal/wake", "internal/retry"}, tests: []string{"store/local", "store/postgres"}},

	// What the faces call the states of a job.
	{pkg: "internal/projection", imports: []string{"."}, pure: true},

	// Faces translate between the outside and the engine and never see a
	// concrete store.
	{pkg: "internal/faces/native", imports: append([]string{"webhook", "internal/wire", "internal/pbconv", "internal/httpx", "internal/socket", "internal/access", "internal/trail", "internal/feed", "internal/delivery", "internal/view", "view/semantics", "view/jobmodel", "match"}, faceImports...), tests: append([]string{"internal/admin"}, faceTests...)}, // match: the units that a job counts
	{pkg: "internal/faces/scheduler", imports: append([]string{"internal/projection", "internal/wire", "internal/httpx"}, faceImports...), tests: append([]string{"store/postgres"}, faceTests...)},
	{pkg: "internal/faces/taskqueue", imports: append([]string{"internal/projection", "internal/taskwork", "internal/retry"}, faceImports...), tests: append([]string{"internal/faces/native", "internal/testing/taskqueuetest", "store/postgres"}, faceTests...)},
	{pkg: "internal/faces/matching", imports: append([]string{"internal/wire", "internal/httpx", "internal/socket", "internal/access", "internal/matchmaker"}, faceImports...), tests: append([]string{"store/postgres"}, faceTests...)},

	// The dashboard is a face that a program can mount too. It knows a queue only by
	// its driver, and the engine for what a schedule means.
	{pkg: "dashboard", imports: []string{".", "engine", "internal/httpx", "internal/wake"}, tests: []string{"driver/file", "driver/postgres"}},

	// The work of the task queue's jobs.
	{pkg: "internal/taskwork", pure: true},

	// What the programs have in common.
	{pkg: "internal/cli", imports: []string{".", "internal/wire", "internal/version"}},

	// The server: every face over one engine, and what it can be told.
	{pkg: "internal/storeurl", imports: []string{"."}},
	{pkg: "server/config", imports: []string{".", "match", "store", "internal/spelling", "internal/faces/scheduler", "internal/matchmaker/sink"}},
	{pkg: "server", imports: []string{
		"webhook", ".", "store", "store/local", "store/postgres", "engine", "api/*", "server/config",
		"internal/faces/native", "internal/faces/scheduler", "internal/faces/taskqueue", "internal/faces/matching", "match", "internal/matchmaker", "internal/matchmaker/sink",
		"internal/admin", "internal/access", "internal/trail", "internal/feed", "internal/observe", "internal/storeurl", "internal/delivery", "internal/wire", "internal/httpx", "dashboard",
	}, tests: []string{"client"}},

	// Tests and their tools. Nothing that is shipped may import these.
	{pkg: "internal/e2e", tests: []string{".", "api/*", "client", "internal/cli", "internal/taskwork", "internal/testing/taskqueuetest", "match", "store/postgres", "worker"}},
	{pkg: "internal/repo", tests: []string{"."}},
	{pkg: "internal/testing/scribble"},
	{pkg: "internal/testing/spec"},
	{pkg: "internal/testing/cmdtest"},
	{pkg: "internal/testing/leaktest"},
	{pkg: "internal/testing/promptly"},
	{pkg: "internal/testing/race"},
	{pkg: "internal/testing/pgtest", imports: []string{"internal/testing/spec"}},
	{pkg: "internal/testing/taskqueuetest", imports: []string{"api/*", "internal/retry", "internal/testing/spec", "internal/taskwork"}},

	// Programs of the build.
	{pkg: "tools/conformance", imports: []string{"internal/testing/spec"}},
	{pkg: "tools/diagram", imports: []string{"."}},
	{pkg: "tools/crosscheck"},
	{pkg: "tools/size"},
	{pkg: "tools/guardgen"},

	// The one place where everything meets; nothing imports it.
	{pkg: "cmd/gq", imports: []string{
		"webhook", ".", "classify", "match", "store", "store/local", "store/postgres", "engine", "worker", "client", "api/*",
		"server", "server/config", "internal/faces/native", "internal/faces/matching", "internal/faces/scheduler", "internal/bench", "internal/transfer",
		"internal/wire", "internal/pbconv", "internal/view", "internal/cli", "internal/version", "internal/spelling", "internal/quantity", "internal/storeurl", "internal/access", "internal/delivery", "internal/observe", "internal/logline", "internal/tracing", "internal/retry", "worker/workerprom",
	}, tests: []string{"internal/matchmaker"}},

	// What a user's program looks like: it imports what users import.
	{pkg: "examples/shop", imports: []string{".", "worker", "driver/*", "dashboard"}, tests: []string{"gqtest"}},

	// The laboratory, a module of its own: six services that know each other only over gRPC,
	// the same six in one process, and what measures them from outside. No package above
	// imports one of these.
	{pkg: "services/api/*", imports: []string{"api/taskqueue/v1"}},
	{pkg: "services/internal/rpc", imports: []string{"internal/logline", "internal/retry"}, tests: []string{"api/*", "services/api/*", "services/internal/servicetest", "internal/testing/taskqueuetest"}},
	{pkg: "services/internal/servicetest", imports: []string{"services/internal/rpc", "internal/testing/taskqueuetest"}},
	{pkg: "services/internal/monolith", imports: append([]string{"services/*"}, serviceImports...), tests: serviceTests},
	{pkg: "services/internal/load", imports: serviceImports, tests: serviceTests},
	{pkg: "services/internal/compare", imports: append([]string{"services/internal/load"}, serviceImports...), tests: serviceTests},
	{pkg: "services/internal/dockertest"},
	{pkg: "services/internal/containers", tests: append([]string{"api/*", "services/internal/compare", "services/internal/dockertest", "services/internal/load", "services/internal/rpc"}, serviceTests...)},
	{pkg: "services/cmd/gqlab", imports: []string{
		".", "api/*", "server", "server/config", "internal/cli", "internal/observe", "services/*",
	}, tests: serviceTests},
	{pkg: "services", tests: append([]string{"api/*", "internal/taskwork", "services/*"}, serviceTests...)},
	{pkg: "services/job", imports: append([]string{"."}, serviceImports...), tests: serviceTests},
	{pkg: "services/*", imports: serviceImports, tests: serviceTests},
}

var (
	faceImports = []string{".", "match", "engine", "api/*"}
	faceTests   = []string{"store", "store/local"}

	viewTests = []string{"driver/file"}

	serviceImports = []string{"api/*", "services/api/*", "internal/taskwork", "services/internal/rpc"}
	serviceTests   = []string{"internal/testing/taskqueuetest", "services/internal/servicetest"}

	// nouns are the packages that whoever imports the root may import too.
	nouns = []string{"machine", "internal/enum", "internal/errs"}

	// internalGroups are the folders of internal that hold packages; matchmaker is a package
	// too, and holds its parts.
	internalGroups = []string{"faces", "testing", "matchmaker"}

	// testHelpers may be imported by any test.
	testHelpers = []string{"internal/testing/scribble", "internal/testing/spec", "internal/testing/cmdtest", "internal/testing/leaktest", "internal/testing/pgtest", "internal/testing/promptly", "internal/testing/race", "store/storetest"}
)

func TestArchitecture(t *testing.T) {
	faults, err := architectureFaults(os.DirFS("."), arrows)
	if err != nil {
		t.Fatal(err)
	}
	for _, fault := range faults {
		t.Error(fault)
	}
}

// A program that opens a queue in its own process must not have to build gRPC. Only the
// client of a server needs it.
func TestInProcessUseLinksNoGRPC(t *testing.T) {
	for _, pkg := range []string{".", "./worker", "./driver/file", "./driver/postgres", "./gqtest", "./dashboard", "./middleware/..."} {
		linked := dependencies(t, pkg)
		if len(linked) == 0 {
			t.Errorf("go list says that %s depends on nothing", pkg)
		}
		for _, dependency := range linked {
			if strings.HasPrefix(dependency, "google.golang.org/grpc") {
				t.Errorf("%s links %s", pkg, dependency)
				break
			}
		}
	}
	if !slices.Contains(dependencies(t, "./driver/remote"), "google.golang.org/grpc") {
		t.Error("driver/remote does not link google.golang.org/grpc: this test looks for the wrong name")
	}
}

// dependencies returns all packages that a package links.
func dependencies(t *testing.T, pkg string) []string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "go", "list", "-deps", pkg).Output()
	if err != nil {
		t.Fatalf("go list %s: %v", pkg, err)
	}
	return strings.Fields(string(out))
}

// architectureFaults holds every Go file of the module, whatever its build
// tags, against the rules.
func architectureFaults(sources fs.FS, rules []arrow) (faults []string, err error) {
	unlisted := make(map[string]bool)
	err = fs.WalkDir(sources, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			if name != "." && foreignDirectory(sources, name) {
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
		f := sourceFile{name: name, fset: token.NewFileSet()}
		f.syntax, err = parser.ParseFile(f.fset, name, text, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		faults = append(faults, f.placeFaults()...)
		rule, ok := arrowFor(rules, f.pkg())
		switch {
		case ok:
			faults = append(faults, f.importFaults(rule)...)
			if rule.pure && !f.isTest() {
				faults = append(faults, f.purityFaults()...)
			}
		case !unlisted[f.pkg()]:
			unlisted[f.pkg()] = true
			faults = append(faults, fmt.Sprintf("%s: package %s has no row: add one to arrows in internal/repo/arch_test.go that says what it may import", name, f.pkg()))
		}
		return nil
	})
	return faults, err
}

// laboratory is the module of the task queue's designs. Its path is this module's and its
// directory, so its packages are named as if they were of this one.
const laboratory = "services"

// foreignDirectory tells the directories the go command ignores and modules of
// their own, except the laboratory.
func foreignDirectory(sources fs.FS, dir string) bool {
	if dir == laboratory {
		return false
	}
	base := path.Base(dir)
	if base == "testdata" || base == "vendor" || strings.HasPrefix(base, ".") || strings.HasPrefix(base, "_") {
		return true
	}
	_, err := fs.Stat(sources, path.Join(dir, "go.mod"))
	return err == nil
}

func arrowFor(rules []arrow, pkg string) (arrow, bool) {
	i := slices.IndexFunc(rules, func(r arrow) bool { return matchesPackage(r.pkg, pkg) })
	if i < 0 {
		return arrow{}, false
	}
	rule := rules[i]
	if slices.Contains(rule.imports, ".") {
		rule.imports = append(slices.Clip(rule.imports), nouns...)
	}
	rule.tests = append(slices.Clip(rule.tests), nouns...)
	return rule, true
}

func matchesPackage(pattern, pkg string) bool {
	if parent, ok := strings.CutSuffix(pattern, "/*"); ok {
		return strings.HasPrefix(pkg, parent+"/")
	}
	return pattern == pkg
}

type sourceFile struct {
	name   string
	fset   *token.FileSet
	syntax *ast.File
}

func (f sourceFile) pkg() string  { return path.Dir(f.name) }
func (f sourceFile) isTest() bool { return strings.HasSuffix(f.name, "_test.go") }

func (f sourceFile) fault(at ast.Node, format string, args ...any) string {
	return fmt.Sprintf("%s:%d: ", f.name, f.fset.Position(at.Pos()).Line) + fmt.Sprintf(format, args...)
}

// placeFaults checks where the file lies.
func (f sourceFile) placeFaults() (faults []string) {
	elements := strings.Split(strings.TrimPrefix(f.pkg(), laboratory+"/"), "/")
	depth := 2
	if len(elements) > 1 && slices.Contains(internalGroups, elements[1]) {
		depth = 3
	}
	if f.pkg() == "internal/matchmaker" {
		depth = 2
	}
	if i := slices.Index(elements, "internal"); i > 0 || (i == 0 && len(elements) != depth) {
		faults = append(faults, f.fault(f.syntax, "internal packages lie directly below a module's internal or in one of its groups, not in %s", f.pkg()))
	}
	if ast.IsGenerated(f.syntax) && elements[0] != "api" && f.pkg() != "internal/access" { // which tools/guardgen writes
		faults = append(faults, f.fault(f.syntax, "generated code belongs under api"))
	}
	return faults
}

// importFaults checks the arrows that start in the file.
func (f sourceFile) importFaults(rule arrow) (faults []string) {
	allowed := rule.imports
	if f.isTest() {
		allowed = slices.Concat(rule.imports, rule.tests, testHelpers)
	}
	for _, spec := range f.syntax.Imports {
		target, ok := inModule(importPath(spec))
		if !ok || target == f.pkg() {
			continue
		}
		if !slices.ContainsFunc(allowed, func(pattern string) bool { return matchesPackage(pattern, target) }) {
			faults = append(faults, f.fault(spec, "package %s may not import %s", f.pkg(), target))
		}
	}
	return faults
}

// inModule turns an import path into the name of a package of the module.
func inModule(imported string) (pkg string, ok bool) {
	if imported == modulePath {
		return ".", true
	}
	return strings.CutPrefix(imported, modulePath+"/")
}

func importPath(spec *ast.ImportSpec) string {
	imported, _ := strconv.Unquote(spec.Path.Value) // the parser has accepted it
	return imported
}

// impurePackages reach outside the process or are not a function of their
// arguments. What is below one of them counts too, except purePackages.
var (
	impurePackages = []string{
		"crypto/rand", "database", "embed", "expvar", "io/fs", "io/ioutil", "log", "net", "os",
		"path/filepath", "plugin", "runtime", "syscall", "testing",
	}
	purePackages = []string{"net/netip", "net/url"}
)

// impureFunctions read the clock or start timers.
var impureFunctions = map[string][]string{
	"time":    {"After", "AfterFunc", "NewTicker", "NewTimer", "Now", "Since", "Sleep", "Tick", "Until"},
	"context": {"WithDeadline", "WithDeadlineCause", "WithTimeout", "WithTimeoutCause"},
}

// seededRandom is what may be used of math/rand: what takes a source. All other
// functions of it draw from the process's own.
var seededRandom = []string{"ChaCha8", "New", "NewChaCha8", "NewPCG", "NewSource", "NewZipf", "PCG", "Rand", "Source", "Source64", "Zipf"}

func (f sourceFile) purityFaults() (faults []string) {
	names := make(map[string]string) // local name to import path
	for _, spec := range f.syntax.Imports {
		imported := importPath(spec)
		first, _, _ := strings.Cut(imported, "/")
		_, ours := inModule(imported)
		switch {
		case strings.Contains(first, ".") && !ours:
			faults = append(faults, f.fault(spec, "pure package imports %s from outside the standard library", imported))
		case impureImport(imported):
			faults = append(faults, f.fault(spec, "pure package imports %s", imported))
		case spec.Name != nil && spec.Name.Name == ".":
			faults = append(faults, f.fault(spec, "a dot import of %s would hide calls from this test", imported))
		case spec.Name != nil:
			names[spec.Name.Name] = imported
		default:
			names[path.Base(strings.TrimSuffix(imported, "/v2"))] = imported
		}
	}
	ast.Inspect(f.syntax, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.GoStmt:
			faults = append(faults, f.fault(n, "pure package starts a goroutine"))
		case *ast.SelectorExpr:
			ident, ok := n.X.(*ast.Ident)
			if !ok {
				return true
			}
			imported := names[ident.Name]
			random := imported == "math/rand" || imported == "math/rand/v2"
			if slices.Contains(impureFunctions[imported], n.Sel.Name) || (random && !slices.Contains(seededRandom, n.Sel.Name)) {
				faults = append(faults, f.fault(n, "pure package uses %s.%s", ident.Name, n.Sel.Name))
			}
		}
		return true
	})
	return faults
}

func impureImport(imported string) bool {
	if slices.Contains(purePackages, imported) {
		return false
	}
	return slices.ContainsFunc(impurePackages, func(p string) bool {
		return imported == p || strings.HasPrefix(imported, p+"/")
	})
}
