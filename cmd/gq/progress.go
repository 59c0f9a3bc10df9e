package main

import (
	"fmt"
	"io"
)

// progress is a line that is overwritten repeatedly, on a terminal only.
type progress struct{ to io.Writer }

func newProgress(w io.Writer) progress {
	if !isTerminal(w) {
		return progress{io.Discard}
	}
	return progress{w}
}

const eraseLine = "\r\x1b[K"

func (p progress) show(format string, args ...any) {
	fmt.Fprintf(p.to, eraseLine+format, args...)
}

func (p progress) clear() { fmt.Fprint(p.to, eraseLine) }
