package main

import (
	"fmt"
	"io"
	"os"
)

// progress is a line that is written over and over, on a terminal only.
type progress struct{ to io.Writer }

func newProgress(w io.Writer) progress {
	file, ok := w.(*os.File)
	if !ok {
		return progress{io.Discard}
	}
	info, err := file.Stat()
	if err != nil || info.Mode()&os.ModeCharDevice == 0 {
		return progress{io.Discard}
	}
	return progress{w}
}

const eraseLine = "\r\x1b[K"

func (p progress) show(format string, args ...any) {
	fmt.Fprintf(p.to, eraseLine+format, args...)
}

func (p progress) clear() { fmt.Fprint(p.to, eraseLine) }
