// Command conformance turns the records of a test run into docs/conformance.md.
//
// Tests name the requirements they pin with spec.Covers. Run them with
// GQ_CONFORMANCE_DIR set to an empty directory and without cached results, then
// point this command at the directory:
//
//	go run ./internal/conformance -dir DIR          # write docs/conformance.md
//	go run ./internal/conformance -dir DIR -check   # compare with it instead
//
// It refuses to report on a run in which a requirement that the sources name
// did not run or did not pass, so the document cannot claim more than was seen.
// Equal runs give equal bytes.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/gopherqueue/gq/internal/spec"
)

func main() { os.Exit(run(os.Args[1:], os.Stderr)) }

// run answers 0 when the document was written or is up to date, 1 when it is
// not or the run was not good enough, 2 on wrong usage.
func run(args []string, stderr io.Writer) int {
	flags := flag.NewFlagSet("conformance", flag.ContinueOnError)
	flags.SetOutput(stderr)
	root := flags.String("root", ".", "directory of the module")
	dir := flags.String("dir", "", "directory with the records of a test run (required)")
	output := flags.String("o", filepath.Join("docs", "conformance.md"), "document to write, relative to the module")
	check := flags.Bool("check", false, "compare with the document instead of writing it")
	if err := flags.Parse(args); err != nil {
		return 2
	}
	if *dir == "" || flags.NArg() > 0 {
		fmt.Fprintln(stderr, "conformance: want -dir DIR and no arguments")
		return 2
	}
	if err := report(*root, *dir, *output, *check); err != nil {
		fmt.Fprintf(stderr, "conformance: %v\n", err)
		return 1
	}
	return 0
}

func report(root, dir, output string, check bool) error {
	sources := os.DirFS(root)
	module, err := modulePath(sources)
	if err != nil {
		return err
	}
	mentions, err := scan(sources, module)
	if err != nil {
		return err
	}
	records, err := spec.ReadRecords(dir)
	if err != nil {
		return err
	}
	if err := verify(mentions, records); err != nil {
		return err
	}

	path := filepath.Join(root, output)
	text := render(spec.All(), records, module)
	if !check {
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			return fmt.Errorf("write document: %w", err)
		}
		return nil
	}
	committed, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("read document: %w", err)
	}
	return compare(output, string(committed), text, records)
}

// compare explains the first difference: enough to see whether a test was
// added, lost or skipped on this machine.
func compare(name, committed, fresh string, records []spec.Record) error {
	if committed == fresh {
		return nil
	}
	before, after := strings.Split(committed, "\n"), strings.Split(fresh, "\n")
	line := 0
	for line < min(len(before), len(after)) && before[line] == after[line] {
		line++
	}
	var why strings.Builder
	fmt.Fprintf(&why, "%s is out of date; run `make generate` and commit the result\n", name)
	fmt.Fprintf(&why, "first difference, line %d:\n- %s\n+ %s", line+1, at(before, line), at(after, line))
	for _, r := range records {
		if r.Outcome == spec.Skip {
			fmt.Fprintf(&why, "\nskipped in this run: %s (%s)", r.Test, r.ID)
		}
	}
	return errors.New(why.String())
}

func at(lines []string, i int) string {
	if i < len(lines) {
		return lines[i]
	}
	return "(end of document)"
}
