package e2e_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/client"
	"github.com/gopherqueue/gq/internal/testing/cmdtest"
)

func httpGet(t testing.TB, url string) (int, string) {
	t.Helper()
	response, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	text, _ := io.ReadAll(response.Body)
	http.DefaultClient.CloseIdleConnections()
	return response.StatusCode, string(text)
}

func TestServing(t *testing.T) {
	cmdtest.Program(t)
	const soon = 2 * time.Second
	var dir string
	var s *served
	took := time.Hour
	for deadline := time.Now().Add(patience); took > soon && time.Now().Before(deadline); { // a busy machine is not always equally busy
		if s != nil {
			s.Signal(os.Kill)
			s.Ended()
		}
		dir = filepath.Join(t.TempDir(), "data")
		began := time.Now()
		s = startServer(t, nil, "--data", dir)
		took = time.Since(began)
	}
	if took > soon {
		t.Errorf("ready after %v", took)
	}
	if status, text := httpGet(t, "http://"+s.http+"/healthz"); status != 200 || text != "{\"status\":\"ok\"}\n" {
		t.Errorf("healthz: %d %s", status, text)
	}
	if status, text := httpGet(t, "http://"+s.http+"/readyz"); status != 200 {
		t.Errorf("readyz: %d %s", status, text)
	}
	submitted := s.gq("submit", "a", "--payload", `{"x":1}`)
	id := strings.TrimSpace(submitted.stdout)
	if submitted.status != 0 || len(id) != 36 {
		t.Fatalf("%+v", submitted)
	}
	if status, text := httpGet(t, "http://"+s.http+"/v1/jobs/"+id); status != 200 || !strings.Contains(text, `"payload":{"x":1}`) {
		t.Errorf("%d %s", status, text)
	}
	// The CLI and HTTP encode a job in the same way.
	got := s.gq("job", "get", id, "--json")
	_, over := httpGet(t, "http://"+s.http+"/v1/jobs/"+id)
	var a, b any
	if json.Unmarshal([]byte(got.stdout), &a) != nil || json.Unmarshal([]byte(over), &b) != nil || got.stdout != over {
		t.Errorf("the command line has\n%s\nand HTTP\n%s", got.stdout, over)
	}
	for status, args := range map[int][]string{
		3: {"job", "get", unknownID}, 2: {"job", "get", "x"}, 5: {"job", "replay", id}, 6: {"job", "wait", id, "--timeout", "50ms"},
	} {
		if got := s.gq(args...); got.status != status || got.stderr == "" {
			t.Errorf("gq %v: %+v, want status %d", args, got, status)
		}
	}
	// A second server on the same store is rejected.
	second := exec.Command(cmdtest.Program(t), "serve", "--data", dir, "--http", "127.0.0.1:0", "--grpc", "127.0.0.1:0")
	text, err := second.CombinedOutput()
	if err == nil || !strings.Contains(string(text), "in use") {
		t.Errorf("a second server: %v\n%s", err, text)
	}

	s.Signal(syscall.SIGTERM)
	if status := s.Ended(); status != 0 {
		t.Errorf("it ended with %d\n%s", status, s.Stderr.String())
	}
	if got := s.gq("stats"); got.status != 4 {
		t.Errorf("after the end: %+v", got)
	}
	// What was acknowledged is still there.
	again := startServer(t, nil, "--store", "file:"+dir)
	if got := again.gq("job", "get", id, "--payload"); got.stdout != `{"x":1}` {
		t.Errorf("%+v", got)
	}
	again.Signal(os.Interrupt)
	if status := again.Ended(); status != 0 {
		t.Errorf("it ended with %d\n%s", status, again.Stderr.String())
	}
}

func TestStoppingAnswersThoseWhoWait(t *testing.T) {
	s := startServer(t, nil, "--store", "memory:", "--drain", never)
	c, err := client.New(s.grpc, client.Options{RetryFor: -1})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	answers := make(chan string, 2)
	go func() {
		jobs, err := c.Claim(context.Background(), gq.ClaimRequest{Worker: "w", Wait: 2 * patience, N: 1})
		if err != nil || len(jobs) > 0 {
			answers <- "gRPC: " + errText(err)
			return
		}
		answers <- ""
	}()
	go func() {
		response, err := http.Post("http://"+s.http+"/v1/claim", "application/json", strings.NewReader(`{"worker":"v","wait":"4m"}`))
		if err != nil {
			answers <- "HTTP: " + err.Error()
			return
		}
		defer response.Body.Close()
		text, _ := io.ReadAll(response.Body)
		if string(text) != "{\"jobs\":[]}\n" {
			answers <- "HTTP: " + string(text)
			return
		}
		answers <- ""
	}()
	cmdtest.WaitFor(t, "two claims to wait", func() bool {
		workers, err := c.Workers(context.Background())
		waiting := 0
		for _, w := range workers {
			waiting += w.Waiting
		}
		return err == nil && waiting == 2
	})
	s.Signal(syscall.SIGTERM)
	if status := s.Ended(); status != 0 {
		t.Errorf("it ended with %d\n%s", status, s.Stderr.String())
	}
	for range 2 {
		if answer := <-answers; answer != "" {
			t.Error(answer)
		}
	}
	http.DefaultClient.CloseIdleConnections()
}

func errText(err error) string {
	if err == nil {
		return "a job came out of nowhere"
	}
	return err.Error()
}

// unfinished starts a request without sending its body, which keeps a server from
// stopping. finish sends the body and reads the response.
func (s *served) unfinished() (finish func() string) {
	s.t.Helper()
	conn, err := net.Dial("tcp", s.http)
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { conn.Close() })
	body := `{"type":"slow"}`
	if _, err := fmt.Fprintf(conn, "POST /v1/jobs HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\nExpect: 100-continue\r\n\r\n", len(body)); err != nil {
		s.t.Fatal(err)
	}
	answer := bufio.NewReader(conn)
	if line, err := answer.ReadString('\n'); err != nil || !strings.Contains(line, "100 Continue") {
		s.t.Fatalf("the server does not read: %q, %v", line, err)
	}
	return func() string {
		_, _ = io.WriteString(conn, body)
		text, _ := io.ReadAll(answer)
		return string(text)
	}
}

// notReady waits until the server reports that it is about to stop.
func (s *served) notReady() {
	s.t.Helper()
	cmdtest.WaitFor(s.t, "readiness to turn", func() bool {
		status, text := httpGet(s.t, "http://"+s.http+"/readyz")
		return status == 503 && strings.Contains(text, "about to stop")
	})
}

func TestASecondSignalEndsTheServerAtOnce(t *testing.T) {
	for _, sig := range []os.Signal{syscall.SIGTERM, os.Interrupt} {
		// As a shell starts background processes.
		s := launch(t, nil, exec.Command("sh", "-c", `trap '' INT; exec "$0" "$@"`, cmdtest.Program(t),
			"serve", "--http", "127.0.0.1:0", "--grpc", "127.0.0.1:0", "--store", "memory:", "--drain", never, "--limits-body-timeout", never))
		s.unfinished()
		s.Signal(sig)
		s.notReady()
		select {
		case <-s.Exited:
			t.Fatal("it ended although a call was under way")
		case <-time.After(100 * time.Millisecond):
		}
		_ = s.Command.Process.Signal(sig)
		if status := s.Ended(); status != 1 {
			t.Errorf("%v: it ended with %d", sig, status)
		}
	}
}

// A subscriber that does not respond to the end of its WebSocket delays the stop for the
// drain time at most, and nothing else is late.
func TestStoppingDoesNotWaitForSilentSubscribers(t *testing.T) {
	const soon = 4 * time.Second // the other side has five to respond
	took := time.Hour
	for deadline := time.Now().Add(patience); took > soon && time.Now().Before(deadline); { // a busy machine is not always equally busy
		took = endOfASilentSubscriber(t)
	}
	if took > soon {
		t.Errorf("it ended after %v", took)
	}
}

// endOfASilentSubscriber returns how long a server with such a subscriber takes to stop.
func endOfASilentSubscriber(t *testing.T) time.Duration {
	t.Helper()
	s := startServer(t, nil, "--store", "memory:", "--drain", "100ms")
	conn, err := net.Dial("tcp", s.http)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprintf(conn, "GET /v1/events/ws HTTP/1.1\r\nHost: %s\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"+
		"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n", s.http)
	if line, err := bufio.NewReader(conn).ReadString('\n'); err != nil || !strings.Contains(line, "101") {
		t.Fatalf("%q, %v", line, err)
	}
	began := time.Now()
	s.Signal(syscall.SIGTERM)
	if status := s.Ended(); status != 0 {
		t.Errorf("it ended with %d", status)
	}
	took := time.Since(began)
	if log := s.Stderr.String(); strings.Contains(log, "gRPC") && strings.Contains(log, "did not finish") {
		t.Errorf("it complains of calls that there were not: %s", log)
	}
	return took
}

// TestReadinessTurnsBeforeTheListenersClose stops a server during a call: until that call
// is answered, others are served and learn that the server stops.
func TestReadinessTurnsBeforeTheListenersClose(t *testing.T) {
	s := startServer(t, nil, "--store", "memory:", "--drain", never, "--limits-body-timeout", never)
	finish := s.unfinished()
	s.Signal(syscall.SIGTERM)
	s.notReady()
	if status, text := httpGet(t, "http://"+s.http+"/healthz"); status != 200 {
		t.Errorf("healthz: %d %s", status, text)
	}
	if got := s.gq("submit", "late"); got.status != 0 {
		t.Errorf("a submission: %+v", got)
	}
	response, err := http.Post("http://"+s.http+"/v1/claim", "application/json", strings.NewReader(`{"worker":"w"}`))
	if err != nil {
		t.Fatal(err)
	}
	response.Body.Close()
	if response.StatusCode != http.StatusServiceUnavailable || !response.Close {
		t.Errorf("a claim: %d, close %t", response.StatusCode, response.Close)
	}
	c, err := client.New(s.grpc, client.Options{RetryFor: -1})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if jobs, err := c.Claim(t.Context(), gq.ClaimRequest{Worker: "w", N: 1}); !errors.Is(err, gq.ErrClosed) {
		t.Errorf("a claim over gRPC: %d jobs, %v", len(jobs), err)
	}
	if answer := finish(); !strings.Contains(answer, "201 Created") {
		t.Errorf("the call under way was answered\n%s", answer)
	}
	if status := s.Ended(); status != 0 || !stopsListening(s.http) || !stopsListening(s.grpc) {
		t.Errorf("it ended with %d\n%s", status, s.Stderr.String())
	}
}

func TestStoppingIsQuickUnlessThereIsALag(t *testing.T) {
	s := startServer(t, nil, "--store", "memory:", "--drain", never, "--limits-idle-timeout", never)
	idle, err := http.Get("http://" + s.http + "/healthz") // its connection stays open
	if err != nil {
		t.Fatal(err)
	}
	_, _ = io.Copy(io.Discard, idle.Body)
	idle.Body.Close()
	s.Signal(syscall.SIGTERM)
	if status := s.Ended(); status != 0 {
		t.Errorf("it ended with %d\n%s", status, s.Stderr.String())
	}
	s = startServer(t, nil, "--store", "memory:", "--drain-lag", "10m")
	s.Signal(syscall.SIGTERM)
	s.notReady()
	s.Signal(syscall.SIGTERM)
	if status := s.Ended(); status != 1 {
		t.Errorf("in the lag a second signal ended it with %d\n%s", status, s.Stderr.String())
	}
	lag := 500 * time.Millisecond
	s = startServer(t, nil, "--store", "memory:", "--drain-lag", lag.String())
	began := time.Now()
	s.Signal(syscall.SIGTERM)
	if status := s.Ended(); status != 0 {
		t.Errorf("it ended with %d\n%s", status, s.Stderr.String())
	}
	if took := time.Since(began); took < lag {
		t.Errorf("with a lag of %v it took %v", lag, took)
	}
}

func stopsListening(addr string) bool {
	conn, err := net.Dial("tcp", addr)
	if err == nil {
		conn.Close()
	}
	return err != nil
}

func TestServingIsRefused(t *testing.T) {
	busy, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer busy.Close()
	notAStore := t.TempDir()
	if err := os.WriteFile(filepath.Join(notAStore, "letter.txt"), []byte("dear"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		args   []string
		status int
		want   string
	}{
		{[]string{"--http", "0.0.0.0:0", "--store", "memory:"}, 2, "http: 0.0.0.0:0 is reachable from other hosts"},
		{[]string{"--grpc", ":0", "--store", "memory:"}, 2, "grpc: :0 is reachable"},
		{[]string{"--http", "192.0.2.1:80", "--grpc", "[::]:0", "--store", "memory:"}, 2, "grpc: [::]:0 is reachable"},
		{[]string{"--http", busy.Addr().String(), "--store", "memory:"}, 1, "address already in use"},
		{[]string{"--grpc", busy.Addr().String(), "--store", "memory:"}, 1, "address already in use"},
		{[]string{"--store", "redis:x"}, 2, "unknown kind of store \"redis\"; want memory:, file:DIR or postgres://…"},
		{[]string{"--store", "file:" + notAStore}, 2, "open the store file:" + notAStore},
		{[]string{"--store", "memory:", "--data", "x"}, 2, "contradicts"},
		{[]string{"--drain", "soon"}, 2, "--drain: drain: \"soon\" is not a duration"},
		{[]string{"extra"}, 2, "takes no arguments"},
		{[]string{"--config", "/does/not/exist"}, 2, "there is no file"},
	} {
		got := runGQ(t, append([]string{"serve", "--http", "127.0.0.1:0", "--grpc", "127.0.0.1:0"}, test.args...)...)
		if got.status != test.status || !strings.Contains(got.stderr, test.want) || got.stdout != "" {
			t.Errorf("gq serve %v: %+v, want %d and %q", test.args, got, test.status, test.want)
		}
	}
}

func TestSystemdIsTold(t *testing.T) {
	dir, err := os.MkdirTemp("", "gq") //nolint:usetesting // short, since names of sockets are
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir) //nolint:errcheck // it is empty but for a socket
	socket, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: filepath.Join(dir, "n"), Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer socket.Close()
	read := func() string {
		buffer := make([]byte, 100)
		_ = socket.SetReadDeadline(time.Now().Add(patience))
		n, err := socket.Read(buffer)
		if err != nil {
			t.Error(err)
		}
		return string(buffer[:n])
	}
	s := startServer(t, []string{"NOTIFY_SOCKET=" + filepath.Join(dir, "n")}, "--store", "memory:")
	if got := read(); got != "READY=1" {
		t.Errorf("first %q", got)
	}
	s.Signal(syscall.SIGTERM)
	if got := read(); got != "STOPPING=1" {
		t.Errorf("then %q", got)
	}
	s.Ended()
}

func TestCapacityIsThatOfAPool(t *testing.T) {
	s := startServer(t, nil, "--store", "memory:", "--capacity", "9")
	if got := s.gq("pool", "list"); !strings.Contains(got.stdout, "scheduler  9") {
		t.Errorf("%+v", got)
	}
	// What is used is told too.
	s.gq("queue", "set", "q", "--pool", "scheduler")
	s.gq("submit", "t", "--queue", "q", "--cost", "7")
	if jobs, err := s.client().Claim(t.Context(), gq.ClaimRequest{Worker: "w", N: 1, Queues: []string{"q"}, MaxCost: 9}); err != nil || len(jobs) != 1 {
		t.Fatalf("claimed %d jobs: %v", len(jobs), err)
	}
	if pools, err := s.client().Pools(t.Context()); err != nil || len(pools) != 1 || pools[0].Used != 7 {
		t.Errorf("pools %+v: %v", pools, err)
	}
	if got := s.gq("pool", "list", "--json"); !strings.Contains(got.stdout, `"used":7`) {
		t.Errorf("%+v", got)
	}
	s.Signal(syscall.SIGTERM)
	s.Ended()
}

func TestMatchingBeginsWithThePolicyOfItsConfiguration(t *testing.T) {
	s := startServer(t, []string{"GQ_MATCHING_QUEUE_LEASE_RENEW_BETA=0.25"}, "--store", "memory:", "--matching-queue-batch-size", "7")
	status, policy := httpGet(t, "http://"+s.http+"/api/matching/policy")
	if status != 200 || !strings.Contains(policy, `"batch_size":7,`) || !strings.Contains(policy, `"renew_beta":0.25,`) {
		t.Errorf("%d %s", status, policy)
	}
	s.Signal(syscall.SIGTERM)
	s.Ended()
}

// TestWaitingForAServerIsTold runs commands that outlast a restart of the server while
// there is no server: they say at once what they wait for, and when the wait is over.
func TestWaitingForAServerIsTold(t *testing.T) {
	addr := freeAddress(t)
	said := make(map[string]*bufio.Reader)
	for name, args := range map[string][]string{
		"work": {"work", "--type", "t", "--exec", "true"},
		"wait": {"job", "wait", unknownID, "--json"},
	} {
		c := exec.Command(cmdtest.Program(t), append(args, "--addr", addr)...)
		stderr, err := c.StderrPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			_ = c.Process.Kill()
			_ = c.Wait()
		})
		said[name] = bufio.NewReader(stderr)
	}
	until := func(name, text string) {
		t.Helper()
		for {
			line, err := said[name].ReadString('\n')
			if err != nil {
				t.Fatalf("%s did not say %q: %v", name, text, err)
			}
			if strings.Contains(line, text) {
				return
			}
			if strings.Contains(line, "call to the queue failed") {
				t.Fatalf("%s said nothing until a call had failed", name)
			}
		}
	}
	until("work", "gq: cannot reach the server; trying again (server "+addr+")")
	until("wait", `"message":"cannot reach the server; trying again"`)
	s := launch(t, nil, exec.Command(cmdtest.Program(t), "serve", "--http", "127.0.0.1:0", "--grpc", addr, "--store", "memory:"))
	until("work", "gq: the server is reached again")
	until("wait", "the server is reached again")
	until("wait", `"code":"not_found"`)
	s.Signal(syscall.SIGTERM)
	s.Ended()
}

// A closed terminal or a reload by a service manager sends SIGHUP, and it may come together
// with SIGTERM: neither ends a call in progress.
func TestSIGHUPStopsTheServerGracefully(t *testing.T) {
	heedHangups()
	for _, signals := range [][]syscall.Signal{{syscall.SIGHUP}, {syscall.SIGHUP, syscall.SIGHUP}, {syscall.SIGTERM, syscall.SIGHUP}} {
		s := startServer(t, nil, "--store", "memory:", "--log-format", "json", "--drain", never, "--limits-body-timeout", never)
		finish := s.unfinished()
		for _, sig := range signals {
			s.Signal(sig)
			s.notReady()
		}
		if text := finish(); !strings.Contains(text, "HTTP/1.1 201") {
			t.Errorf("%v: the call in progress was answered with %q", signals, text)
		}
		if status := s.Ended(); status != 0 {
			t.Errorf("%v: it ended with %d", signals, status)
		}
		if log := s.Stderr.String(); strings.Count(log, `"message":"stopping"`) != 1 || !strings.Contains(log, "stopped by the signal: "+signals[0].String()) {
			t.Errorf("%v: the log does not name the signal:\n%s", signals, log)
		}
	}
}

// heedHangups makes programs that are started from now on heed SIGHUP, even if the tests run under
// nohup: what a program catches is not ignored by those that it starts.
func heedHangups() { signal.Notify(make(chan os.Signal, 1), syscall.SIGHUP) }

// Under nohup a closed terminal does not matter.
func TestSIGHUPIsIgnoredUnderNohup(t *testing.T) {
	s := launch(t, nil, exec.Command("sh", "-c", `trap '' HUP; exec "$0" "$@"`, cmdtest.Program(t), "serve", "--http", "127.0.0.1:0", "--grpc", "127.0.0.1:0", "--store", "memory:"))
	s.Signal(syscall.SIGHUP)
	s.Signal(syscall.SIGHUP)
	if status, text := httpGet(t, "http://"+s.http+"/readyz"); status != http.StatusOK {
		t.Errorf("%d %s", status, text)
	}
	s.Signal(syscall.SIGTERM)
	if status := s.Ended(); status != 0 {
		t.Errorf("it ended with %d", status)
	}
}

// A worker finishes its job after SIGHUP and gives nothing back.
func TestSIGHUPStopsAWorkerGracefully(t *testing.T) {
	heedHangups()
	s := startServer(t, nil, "--store", "memory:")
	first, second := s.gq("submit", "t"), s.gq("submit", "t")
	dir := t.TempDir()
	work := exec.Command(cmdtest.Program(t), "work", "--addr", s.grpc, "--type", "t", "--drain", never, "--json",
		"--exec", `touch begun; while [ ! -e go ]; do sleep 0.05; done`)
	work.Dir = dir
	stderr, err := work.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := work.Start(); err != nil {
		t.Fatal(err)
	}
	log := bufio.NewScanner(stderr)
	said := func(what string) string {
		for log.Scan() {
			if strings.Contains(log.Text(), what) {
				return log.Text()
			}
		}
		return ""
	}
	cmdtest.WaitFor(t, "the job to begin", func() bool { _, err := os.Stat(filepath.Join(dir, "begun")); return err == nil })
	if err := work.Process.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	if line := said(`"stopping"`); !strings.Contains(line, "stopped by the signal: hangup") {
		t.Errorf("the log does not name the signal: %q", line)
	}
	if err := os.WriteFile(filepath.Join(dir, "go"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if line := said(`"stopped"`); !strings.Contains(line, `"succeeded":1`) || !strings.Contains(line, `"given_back":0`) {
		t.Errorf("the worker stopped with %q", line)
	}
	if err := work.Wait(); err != nil {
		t.Error(err)
	}
	for want, id := range map[string]string{`"state":"COMPLETED"`: first.stdout, `"attempt":0`: second.stdout} {
		if got := s.gq("job", "get", strings.TrimSpace(id), "--json"); !strings.Contains(got.stdout, want) {
			t.Errorf("want %s: %+v", want, got)
		}
	}
}
