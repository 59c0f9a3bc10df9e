// Command conformance turns runs of the tests into docs/conformance.md.
//
// Tests name the requirements they pin with spec.Covers. Pipe a run into
//
//	go test -json ./... | conformance -record DIR/NAME
//
// which prints what go test prints without -json and keeps the outcomes in DIR. Then
//
//	conformance -dir DIR                 # write docs/conformance.md
//	conformance -dir DIR -check          # compare with it instead
//	conformance -dir DIR -check -part    # the same for a run that left tests out;
//	                                     # -without DIR for those of a nested module
//	conformance -check                   # compare it with the sources
//
// The last one needs no run: within a second it detects that a test was added, renamed
// or removed without renewing the document, or that the document was edited by hand.
//
// It fails if a requirement that the sources name did not run or did not pass, so the
// document cannot claim more than was tested. With -part, what the run did without (see
// spec.Needs) is listed with its requirements instead. Equal runs give equal bytes.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/gopherqueue/gq/internal/testing/spec"
)

func main() { os.Exit(command(os.Args[1:], os.Stdin, os.Stdout, os.Stderr)) }

// command returns 0 if the document was written or is up to date, 1 if it is outdated or
// the run failed or was incomplete, 2 on a usage error.
func command(args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	flags := flag.NewFlagSet("conformance", flag.ContinueOnError)
	flags.SetOutput(stderr)
	root := flags.String("root", ".", "directory of the module")
	dir := flags.String("dir", "", "directory with the records of a test run; with -check it may be left out")
	output := flags.String("o", filepath.Join("docs", "conformance.md"), "document to write, relative to the module")
	record := flags.String("record", "", "file for the outcomes of the run on standard input, the output of go test -json")
	part := flags.Bool("part", false, "the run left tests out, which are listed; only with -dir and -check")
	without := flags.String("without", "", "directory of a module whose tests -part leaves out")
	check := flags.Bool("check", false, "compare with the document instead of writing it")
	if err := flags.Parse(args); err != nil {
		return 2
	}
	recording := *record != "" && *dir == "" && !*check
	if (!recording && (*record != "" || *dir == "" && !*check)) || (*part && (*dir == "" || !*check)) || (*without != "" && !*part) || flags.NArg() > 0 {
		fmt.Fprintln(stderr, "conformance: want -record FILE, or -dir DIR, -check or both, and no arguments")
		return 2
	}
	var err error
	if recording {
		err = keep(*record, stdin, stdout)
	} else {
		err = request{*root, *dir, *output, *check, *part, *without}.answer(stdout)
	}
	if err != nil {
		fmt.Fprintf(stderr, "conformance: %v\n", err)
		return 1
	}
	return 0
}

// keep records a run. What it saw of a run that failed is kept too.
func keep(file string, events io.Reader, out io.Writer) error {
	records, err := readRun(events, out)
	return errors.Join(err, spec.WriteRecords(filepath.Dir(file), filepath.Base(file), records))
}

// A request says what to compare or write, as the flags of the command do.
type request struct {
	root, dir, output string
	check, part       bool
	without           string
}

func (q request) answer(out io.Writer) error {
	sources := os.DirFS(q.root)
	module, err := modulePath(sources, ".")
	if err != nil {
		return err
	}
	mentions, err := scan(sources, module)
	if err != nil {
		return err
	}
	page := filepath.Join(q.root, q.output)
	committed, err := os.ReadFile(page)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("read document: %w", err)
	}
	before := listed(string(committed), module)
	if q.dir == "" {
		if err := compareSources(q.output, mentions, before); err != nil {
			return err
		}
		return compare(q.output, string(committed), render(spec.All(), before, module), nil)
	}
	records, err := spec.ReadRecords(q.dir)
	if err != nil {
		return err
	}
	if q.without != "" {
		records = append(records, leave(before, path.Join(module, q.without))...)
	}
	if err := verify(mentions, records, q.part); err != nil {
		return err
	}
	if q.part {
		records = fillIn(records, before)
		listLeft(out, records)
	}
	text := render(spec.All(), records, module)
	if q.check {
		return compare(q.output, string(committed), text, records)
	}
	if err := os.WriteFile(page, []byte(text), 0o644); err != nil {
		return fmt.Errorf("write document: %w", err)
	}
	return nil
}

// compare shows the differences: enough to see whether a test was added, lost or
// skipped on this machine.
func compare(name, committed, fresh string, records []spec.Record) error {
	if committed == fresh {
		return nil
	}
	var why strings.Builder
	fmt.Fprintf(&why, "%s is out of date; run `make generate` and commit the result", name)
	before, after := strings.Split(committed, "\n"), strings.Split(fresh, "\n")
	writeExtra(&why, "-", before, after)
	writeExtra(&why, "+", after, before)
	for _, r := range sorted(records) {
		if r.Outcome == spec.Skip {
			fmt.Fprintf(&why, "\nskipped in this run: %s.%s (%s)", r.Package, r.Test, r.ID)
		}
	}
	return errors.New(why.String())
}

// compareSources shows where a document and the tests named in the sources disagree. It
// ignores what only a run can show, such as the subtests.
func compareSources(name string, mentions []mention, records []spec.Record) error {
	var why strings.Builder
	for _, m := range mentions {
		if !slices.ContainsFunc(records, m.matches) {
			fmt.Fprintf(&why, "\n%s: %s is named here", m.position, m.id)
		}
	}
	for _, r := range records {
		if !slices.ContainsFunc(mentions, func(m mention) bool { return m.matches(r) }) {
			fmt.Fprintf(&why, "\n%s: no call of spec.Covers or field Covers in %s.%s", r.ID, r.Package, r.Test)
		}
	}
	if why.Len() == 0 {
		return nil
	}
	return fmt.Errorf("%s is out of date; run `make generate` and commit the result%s", name, why.String())
}

// writeExtra writes the first lines that the other document lacks.
func writeExtra(why *strings.Builder, sign string, lines, other []string) {
	const limit = 10
	known := make(map[string]bool, len(other))
	for _, line := range other {
		known[line] = true
	}
	shown := 0
	for _, line := range lines {
		if known[line] {
			continue
		}
		if shown == limit {
			fmt.Fprintf(why, "\n%s …", sign)
			return
		}
		fmt.Fprintf(why, "\n%s %s", sign, line)
		shown++
	}
}
