package main

import (
	"bytes"
	"cmp"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/internal/cli"
)

// tailBytes is how much of a program's standard error a failure keeps. Its reason is added.
const tailBytes = gq.MaxMessageBytes / 2

// lastBytes keeps the last bytes written to it.
type lastBytes struct {
	data []byte
	most int
	cut  bool // there was more
}

func (l *lastBytes) Write(p []byte) (int, error) {
	l.data = append(l.data, p...)
	if extra := len(l.data) - l.most; extra > 0 {
		l.data, l.cut = append(l.data[:0], l.data[extra:]...), true
	}
	return len(p), nil
}

// String returns what was kept, without the part of a line that it begins with.
func (l *lastBytes) String() string {
	data := l.data
	if _, lines, ok := bytes.Cut(data, []byte("\n")); ok && l.cut && len(bytes.TrimSpace(lines)) > 0 {
		data = lines
	}
	return strings.TrimLeft(strings.TrimRight(strings.ToValidUTF8(string(data), "�"), "\r\n\t "), "\r\n")
}

// errorLine matches the line with which a program names its error: of Go, Python, JavaScript, Ruby
// and Java.
var errorLine = regexp.MustCompile(`^((panic|fatal error|Caused by|(Uncaught )?[\w.$:]*(Error|Exception)): |Exception in thread )`)

// saying describes how a program ended. The line of its standard error that gives the reason
// comes first, because lists show only one line: the last that names an error, or else the last
// that is not indented.
func saying(what, said string) string {
	if said == "" {
		return what
	}
	var reason, last string
	for line := range strings.Lines(said) {
		line = strings.TrimRight(line, "\r\n\t ")
		switch {
		case errorLine.MatchString(line):
			reason = line
		case line != "" && strings.TrimLeft(line, " \t") == line:
			last = line
		}
	}
	what += ": " + strings.TrimSpace(cmp.Or(reason, last, said))
	if !strings.Contains(said, "\n") {
		return what
	}
	return what + "\n" + said
}

// checkCommand refuses a command whose program does not exist or is not executable. Only the shell
// knows what a command with quotes or operators runs.
func checkCommand(command string) error {
	first, _, _ := strings.Cut(strings.TrimSpace(command), " ")
	if !plainWord.MatchString(first) {
		return nil
	}
	if err := exec.Command("/bin/sh", "-c", "command -v "+first).Run(); err != nil { //nolint:gosec // the word has no special characters
		if _, exists := os.Stat(first); exists == nil && strings.Contains(first, "/") {
			return notExecutable(first)
		}
		return cli.Invalid("exec", fmt.Sprintf("there is no program %s; give its path, or set PATH", first))
	}
	if strings.Contains(first, "/") { // not every shell looks whether it may be run
		if info, err := os.Stat(first); err == nil && (info.IsDir() || info.Mode()&0o111 == 0) {
			return notExecutable(first)
		}
	}
	return nil
}

func notExecutable(program string) error {
	return cli.Invalid("exec", fmt.Sprintf("%s is not an executable file; make it one with chmod +x, or run it with its interpreter", program))
}

var plainWord = regexp.MustCompile(`^[\w./][\w./+-]*$`)

// Exit statuses of the shell for a program that it cannot run.
const (
	exitNoPermission = 126
	exitNotFound     = 127
)

// noProgramError means that the shell could not run the program. A deployment can mend it.
type noProgramError struct {
	status int
	text   string
}

func (e *noProgramError) Error() string { return e.text }
func (e *noProgramError) code() string  { return "exit_" + strconv.Itoa(e.status) }
