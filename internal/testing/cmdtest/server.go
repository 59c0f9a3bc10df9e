package cmdtest

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"time"
)

// Patience is how long to wait for something that must happen, even on a busy machine.
const Patience = 2 * time.Minute

// Server is a server in another process.
type Server struct {
	Command    *exec.Cmd
	HTTP, GRPC string       // addresses
	Stderr     bytes.Buffer // to be read after the process has ended
	Exited     chan error

	t testing.TB
}

var firstLine = regexp.MustCompile(`^listening http=(\S+:\d+) grpc=(\S+:\d+)\n$`)

// Serve starts gq serve on free ports.
func Serve(t testing.TB, env []string, args ...string) *Server {
	t.Helper()
	return Launch(t, env, exec.Command(Program(t), append([]string{"serve", "--http", "127.0.0.1:0", "--grpc", "127.0.0.1:0"}, args...)...))
}

// Launch starts a server with a command.
func Launch(t testing.TB, env []string, command *exec.Cmd) *Server {
	t.Helper()
	s := &Server{t: t, Command: command, Exited: make(chan error, 1)}
	s.Command.Env = append(os.Environ(), env...)
	s.Command.Stderr = &s.Stderr
	pipe, err := s.Command.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout := bufio.NewReader(pipe)
	if err := s.Command.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := stdout.ReadString('\n')
	match := firstLine.FindStringSubmatch(line)
	if match == nil {
		if err == nil {
			_ = s.Command.Process.Kill()
		}
		_ = s.Command.Wait()
		t.Fatalf("the first line is %q: %v\n%s", line, err, s.Stderr.String())
	}
	s.HTTP, s.GRPC = match[1], match[2]
	reaped := make(chan struct{})
	go func() {
		defer close(reaped)
		_, _ = io.Copy(io.Discard, stdout)
		s.Exited <- s.Command.Wait()
	}()
	t.Cleanup(func() { // nothing of it outlives the test
		_ = s.Command.Process.Kill()
		<-reaped
	})
	return s
}

// Signal sends the process a signal.
func (s *Server) Signal(sig os.Signal) {
	s.t.Helper()
	if err := s.Command.Process.Signal(sig); err != nil {
		s.t.Fatal(err)
	}
}

// Ended waits for the process and returns its exit status, -1 if a signal ended it.
func (s *Server) Ended() int {
	s.t.Helper()
	select {
	case <-s.Exited:
		return s.Command.ProcessState.ExitCode()
	case <-time.After(Patience):
		s.t.Fatal("the server does not end")
		return 0
	}
}

// Metrics reads the metrics page, by series.
func (s *Server) Metrics() map[string]string {
	s.t.Helper()
	answer, err := http.Get("http://" + s.HTTP + "/metrics")
	if err != nil {
		s.t.Fatal(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil || answer.StatusCode != http.StatusOK {
		s.t.Fatalf("metrics: %d %s %v", answer.StatusCode, text, err)
	}
	all := map[string]string{}
	for line := range strings.Lines(string(text)) {
		if i := strings.LastIndexByte(line, ' '); i > 0 && line[0] != '#' {
			all[line[:i]] = strings.TrimSpace(line[i+1:])
		}
	}
	return all
}

// Run runs gq with more variables in its environment and returns what its user sees.
func Run(t testing.TB, env []string, args ...string) (status int, stdout, stderr string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), Patience)
	defer cancel()
	c := exec.CommandContext(ctx, Program(t), args...)
	c.Env = append(os.Environ(), env...)
	var out, complaints bytes.Buffer
	c.Stdout, c.Stderr = &out, &complaints
	_ = c.Run()
	return c.ProcessState.ExitCode(), out.String(), complaints.String()
}

// WaitFor waits until something is so.
func WaitFor(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(Patience); !ok(); {
		if time.Now().After(deadline) {
			t.Fatalf("waited in vain for %s", what)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// Member returns a member of an object decoded from JSON, and of the objects in it; nil if
// there is none.
func Member(object map[string]any, names ...string) any {
	var at any = object
	for _, name := range names {
		m, _ := at.(map[string]any)
		at = m[name]
	}
	return at
}
