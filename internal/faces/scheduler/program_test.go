package scheduler

import (
	"bufio"
	"bytes"
	"io"
	"net/http"
	"net/url"
	"os/exec"
	"regexp"
	"strconv"
	"sync"
	"testing"

	"github.com/gopherqueue/gq/internal/testing/cmdtest"
	"github.com/gopherqueue/gq/internal/testing/pgtest"
)

// A place is where a server keeps its jobs: the value of --store.
type place string

// places are the kinds of stores that survive a process.
var places = []struct {
	name string
	open func(t testing.TB) place
}{
	{"file", func(t testing.TB) place { return place("file:" + t.TempDir()) }},
	{"postgres", func(t testing.TB) place { return place(pgtest.Database(t) + "&pool_max_conns=5") }},
}

// flags returns options as command-line flags.
func (o Options) flags() (all []string) {
	set := func(name, value string) { all = append(all, "--"+name, value) }
	if o.Capacity != nil {
		set("capacity", strconv.FormatInt(*o.Capacity, 10))
	}
	if o.ClaimHold != 0 {
		set("scheduler-claim-hold", o.ClaimHold.String())
	}
	if o.LeaseTTL != 0 {
		set("scheduler-lease-ttl", o.LeaseTTL.String())
	}
	if o.Requeue {
		set("scheduler-on-lease-expiry", "requeue")
	}
	if o.NoIdempotency {
		all = append(all, "--scheduler-idempotency=false")
	}
	if o.MaxBody != 0 {
		set("limits-body-bytes", strconv.FormatInt(o.MaxBody, 10))
	}
	return all
}

// process is a running gq serve.
type process struct {
	command *exec.Cmd
	stderr  bytes.Buffer // to be read after it has ended
	address string
	ended   chan struct{}
	stop    sync.Once
}

var firstLine = regexp.MustCompile(`^listening http=(\S+:\d+) grpc=\S+:\d+\n$`)

func (p place) start(t testing.TB, args ...string) *process {
	t.Helper()
	s := &process{ended: make(chan struct{})}
	s.command = exec.Command(cmdtest.Program(t), append([]string{"serve", "--http", "127.0.0.1:0", "--grpc", "127.0.0.1:0", "--store", string(p)}, args...)...)
	s.command.Stderr = &s.stderr
	stdout, err := s.command.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := s.command.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		s.kill()
		if t.Failed() {
			t.Logf("the server said\n%s", s.stderr.String())
		}
	})
	out := bufio.NewReader(stdout)
	line, err := out.ReadString('\n')
	match := firstLine.FindStringSubmatch(line)
	go func() {
		defer close(s.ended)
		_, _ = io.Copy(io.Discard, out)
		_ = s.command.Wait() // ended by any signal
	}()
	if err != nil || match == nil {
		s.kill()
		t.Fatalf("the first line is %q (%v)\n%s", line, err, s.stderr.String())
	}
	s.address = match[1]
	return s
}

// kill ends the process like a crash.
func (s *process) kill() {
	s.stop.Do(func() {
		_ = s.command.Process.Kill() // it may have ended
		<-s.ended
	})
}

// client opens a separate connection.
func (s *process) client(t testing.TB) *client {
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	return &client{base: func() string { return "http://" + s.address + Base }, http: &http.Client{Transport: transport}}
}

// serve starts the program with the given options. A restart after a kill uses the same
// store.
func (p place) serve(t testing.TB, o Options) *fixture {
	t.Helper()
	s := p.start(t, o.flags()...)
	f := s.fixture(t)
	f.again = func(o Options) *fixture {
		s.kill()
		return p.serve(t, o)
	}
	return f
}

func (s *process) fixture(t testing.TB) *fixture {
	c := s.client(t)
	f := &fixture{TB: t, connect: func() *client { return s.client(t) }}
	f.send = func(r *http.Request) answer {
		t.Helper()
		r.URL = &url.URL{Scheme: "http", Host: s.address, Path: r.URL.Path, RawQuery: r.URL.RawQuery}
		r.Host = ""
		got, err := c.http.Do(r)
		if err != nil {
			t.Fatalf("%s %s: %v", r.Method, r.URL, err)
		}
		defer got.Body.Close()
		raw, err := io.ReadAll(got.Body)
		if err != nil {
			t.Fatalf("%s %s: %v", r.Method, r.URL, err)
		}
		return answer{status: got.StatusCode, header: got.Header, raw: raw}
	}
	return f
}
