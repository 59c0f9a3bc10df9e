package repo_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"testing/fstest"
)

// In log lines the keys of durations and sizes end in their unit. The handler of a program that
// uses our packages would write a time.Duration as a number of nanoseconds without saying so.
func TestLogLinesHaveUnits(t *testing.T) {
	faults, calls, err := logUnitFaults(os.DirFS("."))
	if err != nil {
		t.Fatal(err)
	}
	if calls < 100 {
		t.Errorf("only %d log calls were found", calls)
	}
	for _, fault := range faults {
		t.Error(fault)
	}
}

// unitless are keys of quantities without a unit.
var unitless = regexp.MustCompile(`^((.*_)?(took|duration|elapsed|latency|delay|wait|waited|timeout|interval|ttl|age|grace|drain|period|size|bytes_\w+|length|memory)|after|limit|bytes|byte|time)$`)

// wrongUnits are units that our logs do not use.
var wrongUnits = regexp.MustCompile(`_(s|sec|secs|seconds|millis|msec|us|micros|ns|nanos|minutes|hours|kb|mb|gb|kib|mib|gib|size)$`)

func logUnitFaults(sources fs.FS) (faults []string, calls int, err error) {
	err = fs.WalkDir(sources, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			if name != "." && (foreignDirectory(sources, name) || name == "api") {
				return fs.SkipDir
			}
			return nil
		}
		if path.Ext(name) != ".go" || strings.HasSuffix(name, "_test.go") {
			return nil
		}
		text, err := fs.ReadFile(sources, name)
		if err != nil {
			return err
		}
		fset := token.NewFileSet()
		file, err := parser.ParseFile(fset, name, text, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		ast.Inspect(file, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok {
				return true
			}
			fault := func(format string, args ...any) {
				faults = append(faults, fmt.Sprintf("%s:%d: ", name, fset.Position(call.Pos()).Line)+fmt.Sprintf(format, args...))
			}
			keys, isLog := logKeys(call)
			if isLog {
				calls++
			}
			for _, key := range keys {
				if unitless.MatchString(key) || wrongUnits.MatchString(key) {
					fault("the key %q of a log line does not end in _ms or _bytes", key)
				}
			}
			if s, ok := call.Fun.(*ast.SelectorExpr); ok && s.Sel.Name == "Duration" && isNamed(s.X, "slog") {
				fault("slog.Duration has no unit; use a number with a key that ends in _ms")
			}
			return true
		})
		return nil
	})
	return faults, calls, err
}

// logKeys returns the literal keys of a log call or of a slog attribute.
func logKeys(call *ast.CallExpr) (keys []string, isLog bool) {
	s, ok := call.Fun.(*ast.SelectorExpr)
	if !ok {
		return nil, false
	}
	first := 0 // argument
	switch s.Sel.Name {
	case "Info", "Warn", "Error", "Debug":
		first, isLog = 1, true
	case "InfoContext", "WarnContext", "ErrorContext", "DebugContext":
		first, isLog = 2, true
	case "Log":
		first, isLog = 3, true
	case "Int", "Int64", "Uint64", "Float64", "Any", "Group":
		if !isNamed(s.X, "slog") || len(call.Args) == 0 {
			return nil, false
		}
		return literal(call.Args[0]), false
	default:
		return nil, false
	}
	if len(call.Args) <= first || len(literal(call.Args[first-1])) == 0 && s.Sel.Name != "Log" {
		return nil, isLog && len(call.Args) > 0
	}
	for i := first; i+1 < len(call.Args); i += 2 {
		if _, attr := call.Args[i].(*ast.CallExpr); attr {
			i-- // one argument, not two
			continue
		}
		keys = append(keys, literal(call.Args[i])...)
	}
	return keys, isLog
}

func isNamed(x ast.Expr, name string) bool {
	id, ok := x.(*ast.Ident)
	return ok && id.Name == name
}

func literal(x ast.Expr) []string {
	if l, ok := x.(*ast.BasicLit); ok && l.Kind == token.STRING {
		if text, err := strconv.Unquote(l.Value); err == nil {
			return []string{text}
		}
	}
	return nil
}

func TestLogUnitFaults(t *testing.T) {
	for line, want := range map[string]int{
		`log.Info("x", "took_ms", 5)`:                         0,
		`log.Info("x", "took", 5)`:                            1,
		`log.Warn("x", "error", err, "cut_bytes", 1, "n", 2)`: 0,
		`log.Warn("x", slog.Int("a", 1), "size", 2)`:          1,
		`log.Error("x", "file_size", 1, "wait_seconds", 2)`:   2,
		`log.Debug("x", slog.Duration("took_ms", d))`:         1,
		`log.InfoContext(ctx, "x", "bytes", 1)`:               1,
		`log.LogAttrs(ctx, l, "x", slog.Int64("delay", 1))`:   1,
	} {
		faults, _, err := logUnitFaults(fstest.MapFS{"x.go": {Data: []byte("package x\nfunc f() { " + line + " }\n")}})
		if err != nil || len(faults) != want {
			t.Errorf("%s: %q, %v, want %d faults", line, faults, err, want)
		}
	}
}
