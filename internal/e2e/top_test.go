//go:build linux

package e2e_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/creack/pty"
	"github.com/hinshun/vt10x"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/internal/testing/cmdtest"
	"github.com/gopherqueue/gq/worker"
)

// terminal is a program in a pseudo-terminal, and what a user sees there.
type terminal struct {
	*testing.T
	file    *os.File
	command *exec.Cmd
	ended   chan error

	mu     sync.Mutex
	screen vt10x.Terminal // guarded by mu
	raw    strings.Builder
}

func startTerminal(t *testing.T, width, height int, args ...string) *terminal {
	t.Helper()
	x := &terminal{T: t, command: exec.Command(cmdtest.Program(t), args...), ended: make(chan error, 1), screen: vt10x.New(vt10x.WithSize(width, height))}
	x.command.Env = append(os.Environ(), "TERM=xterm-256color", "NO_COLOR=")
	var err error
	if x.file, err = pty.StartWithSize(x.command, &pty.Winsize{Rows: uint16(height), Cols: uint16(width)}); err != nil {
		t.Fatal(err)
	}
	copied := make(chan struct{})
	go func() {
		defer close(copied)
		_, _ = io.Copy(writerFunc(x.show), x.file) // ends with an error when the program does
	}()
	go func() { x.ended <- x.command.Wait() }()
	t.Cleanup(func() {
		_ = x.command.Process.Kill()
		_ = x.file.Close()
		<-copied
	})
	return x
}

type writerFunc func([]byte)

func (f writerFunc) Write(p []byte) (int, error) { f(p); return len(p), nil }

func (x *terminal) show(p []byte) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.raw.Write(p)
	_, _ = x.screen.Write(p)
}

// text returns the lines on the screen.
func (x *terminal) text() string {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.screen.String()
}

func (x *terminal) press(keys string) {
	x.Helper()
	if _, err := x.file.WriteString(keys); err != nil {
		x.Fatal(err)
	}
}

// sees waits until the screen shows all of these texts and none of those that begin with "!".
func (x *terminal) sees(what string, texts ...string) {
	x.Helper()
	deadline := time.Now().Add(time.Minute)
	for {
		now, missing := x.text(), ""
		for _, want := range texts {
			not, absent := strings.CutPrefix(want, "!")
			if strings.Contains(now, not) == absent {
				missing = want
			}
		}
		switch {
		case missing == "":
			return
		case time.Now().After(deadline):
			x.Fatalf("%s: the screen does not show %q:\n%s", what, missing, now)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// A user looks at queues, sorts, filters, pauses and resumes one, opens it and a job in it,
// looks at workers and failures, resizes the window and quits. What others wrote into names and
// errors is text: no control sequence reaches the terminal.
func TestTop(t *testing.T) {
	t.Parallel()
	site := newCrashSite(t, "file:"+t.TempDir())
	site.start()
	c := site.client()
	const hostile = "\x1b[2J\x1b]0;owned\x07 and more"
	submit := func(s gq.Spec) gq.JobID {
		t.Helper()
		out, err := c.Submit(t.Context(), s)
		if err != nil {
			t.Fatal(err)
		}
		return out.ID()
	}
	for i := range 30 {
		submit(gq.Spec{Type: "fill", Queue: fmt.Sprintf("other-%02d", i)})
	}
	var first gq.JobID
	for range 3 {
		if id := submit(gq.Spec{Type: "mail.send", Queue: "mail"}); first.IsZero() {
			first = id
		}
	}
	x := startTerminal(t, 80, 24, "top", "--addr", site.grpc, "--interval", "500ms")
	x.sees("the first frame", "gq top", "31 queues", "QUEUE", "mail", "q quit", "!other-29")
	x.press("G")
	x.sees("the end of the list", "other-29", "!mail ")
	x.press("gs")
	x.sees("sorted by waiting jobs", "▾WAITING", "mail ")
	x.press("/mai\r")
	x.sees("filtered", "filter: mai", "mail", "!other")
	x.press("p")
	x.sees("a question", "pause queue mail? y/n")
	x.press("n")
	x.sees("its refusal", "nothing was changed")
	x.press("p")
	x.sees("the question again", "pause queue mail? y/n")
	x.press("y")
	x.sees("paused", "paused queue mail", "mail (paused)")
	if q, err := c.Queue(t.Context(), "mail"); err != nil || !q.Paused {
		t.Errorf("the queue is %+v, %v", q, err)
	}
	x.press("\r")
	x.sees("its jobs", "queue mail: live jobs", first.String()[:8], "mail.send", "WORKER")
	x.press("\r")
	x.sees("a job", "job "+first.String(), "queue mail is paused", "gq queue resume mail", "job.submitted")
	x.press("\x1b")
	x.sees("back", "queue mail: live jobs")
	x.press("py")
	x.sees("resumed", "resumed queue mail")

	// A worker fails all jobs with a message for the terminal.
	w := worker.New(c, worker.Config{Name: "hand", QueueSets: []worker.QueueSet{{Queues: []string{"mail"}}}, Logger: slog.New(slog.DiscardHandler)})
	w.HandleFunc("mail.send", func(context.Context, *worker.Run) error {
		return gq.Permanent(errors.New(hostile), "broken")
	})
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- w.Run(ctx) }()
	defer func() {
		stop()
		<-ended
	}()
	x.press("2")
	x.sees("workers", "WORKER", "hand", "mail")
	x.press("3")
	x.sees("failures", "FAILED", "�[2J�]0;owned� and more", "mail")
	x.press("1/\x1b") // clears the filter
	x.sees("failures counted", "other-00", "3 failed")

	if err := pty.Setsize(x.file, &pty.Winsize{Rows: 40, Cols: 120}); err != nil {
		t.Fatal(err)
	}
	x.mu.Lock()
	x.screen.Resize(120, 40)
	x.mu.Unlock()
	x.sees("a larger window", "other-29", "mail ")
	x.press("?")
	x.sees("help", "pause or resume the selected queue")
	x.press("q")
	select {
	case err := <-x.ended:
		if err != nil {
			t.Errorf("gq top ended with %v", err)
		}
	case <-time.After(time.Minute):
		t.Error("gq top did not end")
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	if strings.Contains(x.raw.String(), "owned\x07") || strings.Contains(x.raw.String(), "\x1b]0;owned") {
		t.Error("a control sequence reached the terminal")
	}
}

// The server goes away and comes back: the frame says so, and recovers by itself.
func TestTopWithoutServer(t *testing.T) {
	t.Parallel()
	site := newCrashSite(t, "file:"+t.TempDir())
	site.start()
	c := site.client()
	if _, err := c.Submit(t.Context(), gq.Spec{Type: "t", Queue: "kept"}); err != nil {
		t.Fatal(err)
	}
	job, err := c.Submit(t.Context(), gq.Spec{Type: "t", Queue: "kept"})
	if err != nil {
		t.Fatal(err)
	}
	claimed, err := c.Claim(t.Context(), gq.ClaimRequest{Worker: "w", Queues: []string{"kept"}, N: 2})
	if err != nil {
		t.Fatal(err)
	}
	for i := range claimed {
		if claimed[i].State.ID != job.ID() {
			continue
		}
		if _, err := c.Fail(t.Context(), claimed[i].State.Lease.Ref(), gq.Failure{Category: gq.CategoryPermanent, Message: "broken before"}); err != nil {
			t.Fatal(err)
		}
	}
	x := startTerminal(t, 100, 24, "top", "--addr", site.grpc, "--interval", "500ms")
	x.sees("the first frame", "kept", "!no answer")
	x.press("3")
	x.sees("failures before the start", "FAILED", "broken before")
	x.press("1")
	site.kill()
	x.sees("without a server", "no answer", "kept")
	site.start()
	x.sees("again", "kept", "!no answer")
	x.press("\x03")
	if err := <-x.ended; err != nil {
		t.Errorf("gq top ended with %v", err)
	}
}

// One frame goes to a pipe, with rates and without colors.
func TestTopOnce(t *testing.T) {
	t.Parallel()
	site := newCrashSite(t, "file:"+t.TempDir())
	site.start()
	c := site.client()
	for i := range 40 {
		if _, err := c.Submit(t.Context(), gq.Spec{Type: "t", Queue: fmt.Sprintf("q-%02d", i)}); err != nil {
			t.Fatal(err)
		}
	}
	var out, errs strings.Builder
	run := func(args ...string) int {
		out.Reset()
		errs.Reset()
		cmd := exec.Command(cmdtest.Program(t), append([]string{"top", "--addr", site.grpc}, args...)...)
		cmd.Stdout, cmd.Stderr = &out, &errs
		_ = cmd.Run()
		return cmd.ProcessState.ExitCode()
	}
	if status := run("--once", "--interval", "500ms"); status != 0 || strings.Contains(out.String(), "\x1b") {
		t.Fatalf("exit status %d\n%s%s", status, out.String(), errs.String())
	}
	for _, want := range []string{"gq top", "40 queues", "40 waiting", "QUEUE", "q-00", "q-39", "DONE/S"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in\n%s", want, out.String())
		}
	}
	if run("--once", "--queue", "q-1"); strings.Contains(out.String(), "q-20") || !strings.Contains(out.String(), "q-12") {
		t.Errorf("filtered:\n%s", out.String())
	}
	// In a terminal the frame has its width.
	x := startTerminal(t, 80, 50, "top", "--addr", site.grpc, "--once", "--interval", "500ms")
	if err := <-x.ended; err != nil {
		t.Errorf("--once in a terminal: %v", err)
	}
	x.sees("one frame", "q-39", "FAIL/S")
	for i, line := range strings.Split(strings.TrimRight(x.text(), " \n"), "\n") {
		if first, _, _ := strings.Cut(strings.TrimSpace(line), "-"); i > 3 && first != "q" {
			t.Errorf("line %d is not a queue: %q", i, line)
		}
	}
	for _, args := range [][]string{nil, {"--once", "--interval", "1ms"}, {"--once", "--json"}} {
		if status := run(args...); status != 2 || errs.String() == "" {
			t.Errorf("%v: exit status %d, %s", args, status, errs.String())
		}
	}
}
