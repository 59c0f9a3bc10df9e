package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gopherqueue/gq"
)

// The line that says why a program failed comes first, and whatever is cut off, no line is halved.
func TestSaying(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("noise line that is rather long\n", 200)
	for _, c := range []struct{ name, stderr, first string }{
		{"nothing", "", "exit status 2"},
		{"one line", "why\n", "exit status 2: why"},
		{"shell", "noise\nmore\n\ncp: no such file\n\n", "exit status 2: cp: no such file"},
		{"Python", "noise\nTraceback (most recent call last):\n  File \"x.py\"\nValueError: why\n", "exit status 2: ValueError: why"},
		{"Go", "noise\npanic: why\n\ngoroutine 1 [running]:\nmain.main()\n\t/x/main.go:4 +0x1d\n", "exit status 2: panic: why"},
		{"Java", "noise\njava.lang.IllegalStateException: outer\n\tat A.main(A.java:1)\nCaused by: java.io.IOException: why\n\t... 1 more\n", "exit status 2: Caused by: java.io.IOException: why"},
		{"Node", "/x/y.js:3\n\tthrow e\n\nTypeError: why\n    at main\n\nNode.js v22\n", "exit status 2: TypeError: why"},
		{"much", long + "why\n", "exit status 2: why"},
		{"one endless line", strings.Repeat("x", 3*tailBytes), "exit status 2: " + strings.Repeat("x", tailBytes)},
		{"only indented", "\n  a", "exit status 2: a"},
	} {
		tail := &lastBytes{most: tailBytes}
		for i := range len(c.stderr) {
			_, _ = tail.Write([]byte(c.stderr[i : i+1]))
		}
		got := saying("exit status 2", tail.String())
		first, rest, more := strings.Cut(got, "\n")
		if first != c.first {
			t.Errorf("%s: the first line is %.200q, not %.200q", c.name, first, c.first)
		}
		if more && (!strings.HasPrefix(c.stderr, rest) && !strings.Contains(c.stderr, "\n"+rest)) {
			t.Errorf("%s: the end begins within a line: %.100q", c.name, rest)
		}
	}
}

func TestProgramsThatDoNotExist(t *testing.T) {
	d := newShell(t)
	for _, command := range []string{"nosuchprogram", "nosuchprogram --flag 'x y'", " ./no/such/program", "/no/such/program"} {
		got := d.gq("work", "--type", "x", "--exec", command)
		if got.status != 2 || !strings.Contains(got.stderr, "there is no program "+strings.Fields(command)[0]) {
			t.Errorf("%q: %+v", command, got)
		}
	}
	plain := filepath.Join(t.TempDir(), "plain")
	if err := os.WriteFile(plain, []byte("#!/bin/sh\n"), 0o644); err != nil { //nolint:gosec // it is not executable: that is the test
		t.Fatal(err)
	}
	for _, program := range []string{plain, filepath.Dir(plain)} {
		if got := d.gq("work", "--type", "x", "--exec", program+" --flag"); got.status != 2 || !strings.Contains(got.stderr, program+" is not an executable file") {
			t.Errorf("%q: %+v", program, got)
		}
	}
	for _, command := range []string{"sh -c x", "exec ./later", "if true; then x; fi", "x=1 nosuch", "$PROGRAM", "'quoted program'", "true;false", "/bin/sh", "\n# comment\nx"} {
		if err := checkCommand(command); err != nil {
			t.Errorf("%q: %v", command, err)
		}
	}
}

// A program that the shell cannot find or start may be there at the next attempt.
func TestRetryWhatCannotStart(t *testing.T) {
	t.Parallel()
	for status, want := range map[int]string{126: "exit_126", 127: "exit_127"} {
		err := exitError(status, "sh: x: not found", nil)
		if f := classifyExit(err); f.Category != gq.CategoryTemporary || f.Code != want || !strings.HasSuffix(f.Message, "sh: x: not found") {
			t.Errorf("exit status %d: %+v", status, f)
		}
	}
}
