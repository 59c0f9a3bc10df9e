// Diagram writes the state machine into the documentation: it replaces what
// stands between the marks in docs/semantics.md with a diagram and a table made
// from [machine.Moves]. With -check it changes nothing and fails if the file is out
// of date.
//
//go:generate go run . -file ../../docs/semantics.md
package main

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/internal/enum"
	"github.com/gopherqueue/gq/machine"
)

func main() { os.Exit(run(os.Args[1:], os.Stderr)) }

// run returns the exit status: 0, 1 where the file is out of date or cannot be
// read or written, 2 for wrong usage.
func run(args []string, stderr io.Writer) int {
	flags := flag.NewFlagSet("diagram", flag.ContinueOnError)
	flags.SetOutput(stderr)
	file := flags.String("file", "docs/semantics.md", "document to bring up to date")
	check := flags.Bool("check", false, "only say whether it is")
	if err := flags.Parse(args); err != nil {
		return 2
	}
	if flags.NArg() > 0 {
		fmt.Fprintf(stderr, "diagram: unexpected argument %q\n", flags.Arg(0))
		return 2
	}
	if err := update(*file, *check); err != nil {
		fmt.Fprintln(stderr, "diagram:", err)
		return 1
	}
	return 0
}

var errOutOfDate = errors.New("out of date: run go generate ./tools/diagram")

func update(name string, check bool) error {
	text, err := os.ReadFile(name)
	if err != nil {
		return err
	}
	fresh, err := splice(text, render(machine.Moves()))
	switch {
	case err != nil:
		return fmt.Errorf("%s: %w", name, err)
	case bytes.Equal(fresh, text):
		return nil
	case check:
		return fmt.Errorf("%s: %w", name, errOutOfDate)
	}
	return os.WriteFile(name, fresh, 0o644)
}

const (
	beginMark = "<!-- moves:begin -->\n"
	endMark   = "<!-- moves:end -->\n"
)

// splice puts block between the marks of text. Each mark stands once, on a line
// of its own.
func splice(text, block []byte) ([]byte, error) {
	before, rest, ok := bytes.Cut(text, []byte(beginMark))
	if !ok {
		return nil, fmt.Errorf("no line %q", beginMark)
	}
	_, after, ok := bytes.Cut(rest, []byte(endMark))
	if !ok {
		return nil, fmt.Errorf("no line %q behind %q", endMark, beginMark)
	}
	if bytes.Contains(after, []byte(beginMark)) || bytes.Contains(after, []byte(endMark)) {
		return nil, errors.New("the marks stand there twice")
	}
	return bytes.Join([][]byte{before, []byte(beginMark), block, []byte(endMark), after}, nil), nil
}

// render is the state machine as a Mermaid diagram, which GitHub draws, and as
// a table.
func render(moves []machine.Move) []byte {
	var b bytes.Buffer
	b.WriteString("<!-- Made from the table in status.go by tools/diagram. Change it there. -->\n\n")
	b.WriteString("```mermaid\nstateDiagram-v2\n")
	for _, m := range moves {
		fmt.Fprintf(&b, "    %s --> %s: %s\n", origin(m.From, "[*]"), m.To, m.Why)
	}
	for _, s := range enum.All[gq.Status]() {
		if s.Terminal() {
			fmt.Fprintf(&b, "    %s --> [*]\n", s)
		}
	}
	b.WriteString("```\n\n| from | to | when |\n|---|---|---|\n")
	for _, m := range moves {
		fmt.Fprintf(&b, "| %s | %s | %s |\n", origin(m.From, "(new)"), m.To, m.Why)
	}
	b.WriteString("\n")
	return b.Bytes()
}

// origin is the name of a move's start; start has one in each notation.
func origin(from gq.Status, start string) string {
	if from == 0 {
		return start
	}
	return from.String()
}
