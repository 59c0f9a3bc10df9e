// Package browsertest runs the dashboard of the built gq in a real Chromium. It is a module of
// its own, so that users of the queue do not get the browser's driver.
//
//	make test-browser                                  everything, on file: and postgres:
//	go test -run TestPages -shots /tmp/shots           screenshots of every page
//	go test -run TestPages -shots /tmp/shots -busy 20m with 20 minutes of work in the charts, as in the README
//	go test -run TestManyJobs -v -many 1000000         search and cancel a million jobs, and tell how long that takes
package browsertest

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"log"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/input"
	cdplog "github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"

	"github.com/gopherqueue/gq/internal/testing/pgtest"
)

var (
	shots  = flag.String("shots", "", "directory for screenshots of every page; none without it")
	stores = flag.String("stores", "file", "stores to test with: file, postgres or both, with a comma")
	only   = flag.String("pages", ".", "regular expression of the names of the pages that TestPages looks at")
	many   = flag.Int("many", 3000, "jobs in the store of TestManyJobs; a search and a cancellation take several parts from about 300,000 on")
	busy   = flag.Duration("busy", 0, "how long TestPages keeps the server busy before it takes pictures, so that charts have something to show")
)

var (
	program string          // the built gq
	browser context.Context // of Chromium
)

func TestMain(m *testing.M) {
	flag.Parse()
	os.Exit(func() int {
		dir, err := os.MkdirTemp("", "gq-browsertest-")
		if err != nil {
			log.Print(err)
			return 1
		}
		defer os.RemoveAll(dir) //nolint:errcheck // nothing of value is in it
		if program, err = build(dir); err != nil {
			log.Print(err)
			return 1
		}
		options := append(chromedp.DefaultExecAllocatorOptions[:],
			chromedp.Flag("host-resolver-rules", "MAP evil.example 127.0.0.1"),
			chromedp.Flag("force-color-profile", "srgb"),
			chromedp.WSURLReadTimeout(patience), // Chromium may take as long to start
			chromedp.NoSandbox)                  // tests run as root in containers
		allocator, stop := chromedp.NewExecAllocator(context.Background(), options...)
		defer stop()
		var end context.CancelFunc
		browser, end = chromedp.NewContext(allocator, chromedp.WithErrorf(func(string, ...any) {})) // it does not know all events of newer browsers
		defer end()
		if err := chromedp.Do(browser); err != nil {
			log.Printf("start Chromium: %v", err)
			return 1
		}
		return m.Run()
	}())
}

// build returns the program that scripts/test has built, or builds it.
func build(dir string) (string, error) {
	if ready := os.Getenv("GQ_TEST_PROGRAMS"); ready != "" {
		return filepath.Join(ready, "gq"), nil
	}
	to := filepath.Join(dir, "gq")
	c := exec.Command("go", "build", "-trimpath", "-o", to, "./cmd/gq")
	c.Dir, c.Env = "../..", append(os.Environ(), "CGO_ENABLED=0")
	if out, err := c.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build gq: %w\n%s", err, out)
	}
	return to, nil
}

// onEachStore runs a test with a server on each store.
func onEachStore(t *testing.T, f func(t *testing.T, s *server)) {
	t.Helper()
	for name := range strings.SplitSeq(*stores, ",") {
		t.Run(name, func(t *testing.T) { f(t, start(t, storeOf(t, name))) })
	}
}

func storeOf(t *testing.T, name string) string {
	t.Helper()
	switch name {
	case "file":
		return "file:" + t.TempDir()
	case "postgres":
		return pgtest.Own(t).URL("postgres")
	}
	t.Fatalf("there is no store %s", name)
	return ""
}

// server is a running gq serve.
type server struct {
	*testing.T
	store   string
	token   string // of administrators; "" without access control
	address string
	process *exec.Cmd
	output  *lockedBuffer
}

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// start starts a server. With a token it requires one.
func start(t *testing.T, store string, token ...string) *server {
	t.Helper()
	s := &server{T: t, store: store}
	if len(token) > 0 {
		s.token = token[0]
	}
	s.run("127.0.0.1:0")
	t.Cleanup(func() {
		s.stop()
		if t.Failed() {
			t.Logf("the server wrote:\n%s", s.output)
		}
	})
	return s
}

var listening = regexp.MustCompile(`listening http=(\S+)`)

// run runs the program at an address and waits until it listens.
func (s *server) run(address string) {
	s.Helper()
	s.output = &lockedBuffer{}
	s.process = exec.Command(program, "serve", "--store", s.store, "--http", address, "--grpc", "127.0.0.1:0", "--drain", "1s")
	s.process.Stdout, s.process.Stderr = s.output, s.output
	s.process.Env = append(os.Environ(), "GQ_ADMIN_TOKEN="+s.token, "GQ_WEBHOOKS_ALLOW=127.0.0.1")
	if err := s.process.Start(); err != nil {
		s.Fatal(err)
	}
	for until := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) {
		if found := listening.FindStringSubmatch(s.output.String()); found != nil {
			s.address = found[1]
			return
		}
		if time.Now().After(until) {
			s.Fatalf("the server does not listen:\n%s", s.output)
		}
	}
}

func (s *server) stop() {
	if s.process == nil {
		return
	}
	_ = s.process.Process.Signal(os.Interrupt) // it may have ended
	_ = s.process.Wait()
	s.process = nil
}

// call calls the HTTP API and returns the answer.
func (s *server) call(method, path, body string) map[string]any {
	s.Helper()
	r, err := http.NewRequestWithContext(s.Context(), method, "http://"+s.address+path, strings.NewReader(body))
	if err != nil {
		s.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	if s.token != "" {
		r.Header.Set("Authorization", "Bearer "+s.token)
	}
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		s.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil || response.StatusCode >= 300 {
		s.Fatalf("%s %s: %d %s, %v", method, path, response.StatusCode, text, err)
	}
	out := map[string]any{}
	if len(text) > 0 {
		if err := json.Unmarshal(text, &out); err != nil {
			s.Fatalf("%s %s: %v", method, path, err)
		}
	}
	return out
}

// submit submits a job and returns its id.
func (s *server) submit(body string) string {
	s.Helper()
	return s.call("POST", "/v1/jobs", body)["id"].(string)
}

// claim claims a job of a queue and returns its lease.
func (s *server) claim(queue string) string {
	s.Helper()
	jobs := s.call("POST", "/v1/claim", fmt.Sprintf(`{"worker":"worker-1","queues":[%q]}`, queue))["jobs"].([]any)
	if len(jobs) != 1 {
		s.Fatalf("claimed %d jobs", len(jobs))
	}
	return jobs[0].(map[string]any)["lease"].(map[string]any)["id"].(string)
}

// state returns the state of a job.
func (s *server) state(id string) string {
	s.Helper()
	return s.call("GET", "/v1/jobs/"+id, "")["state"].(string)
}

// patience is how long a test waits for what must come, on a machine that is busy with other work.
const patience = 2 * time.Minute

// tab is a browser tab on the dashboard. Anything that the browser complains about fails the
// test.
type tab struct {
	*testing.T
	server *server
	ctx    context.Context
	close  func()

	mu         sync.Mutex
	complaints []string // guarded by mu
	excused    string   // complaints with this text are expected; guarded by mu
}

// open opens a tab with cookies of its own.
func (s *server) open() *tab {
	s.Helper()
	return s.openIn(browser, chromedp.WithNewBrowserContext())
}

// another opens a further window with the same cookies.
func (b *tab) another() *tab {
	b.Helper()
	return b.server.openIn(b.ctx)
}

func (s *server) openIn(parent context.Context, options ...chromedp.ContextOption) *tab {
	s.Helper()
	ctx, end := chromedp.NewContext(parent, options...)
	ctx, cancel := context.WithTimeout(ctx, 5*patience)
	b := &tab{T: s.T, server: s, ctx: ctx}
	b.do(chromedp.EmulateViewport(1280, 900))
	for _, err := range []error{call(ctx, network.Enable, network.EnableParams{}), call(ctx, cdplog.Enable, cdp.Empty{}), call(ctx, runtime.Enable, cdp.Empty{})} {
		if err != nil {
			s.Fatal(err)
		}
	}
	listen(b, runtime.ExceptionThrown, func(e runtime.EventExceptionThrown) string { return "exception: " + e.ExceptionDetails.Text })
	listen(b, runtime.ConsoleAPICalled, func(e runtime.EventConsoleAPICalled) string {
		if e.Type != "error" && e.Type != "warning" || len(e.Args) == 0 {
			return ""
		}
		return fmt.Sprintf("console: %s %s", e.Type, e.Args[0].Value)
	})
	listen(b, cdplog.EntryAdded, func(e cdplog.EventEntryAdded) string { // among them violations of the content security policy
		if e.Entry.Level != "error" && e.Entry.Level != "warning" {
			return ""
		}
		return fmt.Sprintf("log: %s %s", e.Entry.Text, e.Entry.URL)
	})
	own := "http://" + s.address // a server that is started again has the same
	listen(b, network.RequestWillBeSent, func(e network.EventRequestWillBeSent) string {
		if at := e.Request.URL; strings.HasPrefix(at, "http") && !strings.HasPrefix(at, own) {
			return "request to " + at
		}
		return ""
	})
	b.close = sync.OnceFunc(func() {
		b.mu.Lock()
		for _, text := range b.complaints {
			s.Errorf("the browser complains: %s", text)
		}
		b.mu.Unlock()
		cancel()
		end()
	})
	s.Cleanup(b.close)
	return b
}

// call runs a command of the browser.
func call[P, R any](ctx context.Context, c cdp.Command[P, R], p P) error {
	_, err := chromedp.Call(ctx, c, p)
	return err
}

// listen lets the tab complain about events.
func listen[E any](b *tab, event cdp.Event[E], text func(E) string) {
	events := chromedp.Events(b.ctx, event)
	go func() {
		for e, err := range events {
			if err != nil {
				return // the tab is closed
			}
			if text := text(e); text != "" {
				b.complain(text)
			}
		}
	}()
}

func (b *tab) complain(text string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.excused == "" || !strings.Contains(text, b.excused) {
		b.complaints = append(b.complaints, text)
	}
}

// expect excuses complaints with a text from now on.
func (b *tab) expect(text string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.excused = text
}

// do runs actions in the tab.
func (b *tab) do(actions ...chromedp.Action[chromedp.Void]) {
	b.Helper()
	if err := chromedp.Do(b.ctx, actions...); err != nil {
		text, _ := chromedp.Run(b.ctx, chromedp.Evaluate[string](`location.href + "\n" + document.body?.innerText`)) // helps to see why
		b.Fatalf("%v\nat %.3000s", err, text)
	}
}

// visit opens a page.
func (b *tab) visit(path string) {
	b.Helper()
	b.do(chromedp.Navigate("http://"+b.server.address+"/"+path), chromedp.WaitReady("main"))
}

// until waits until an expression is true in the page.
func (b *tab) until(expression string) {
	b.Helper()
	b.do(chromedp.Poll[chromedp.Void](expression, chromedp.WithPollingInterval(30*time.Millisecond), chromedp.WithPollingTimeout(patience)))
}

// sees waits until the page shows a text.
func (b *tab) sees(text string) {
	b.Helper()
	quoted, _ := json.Marshal(text)
	b.until(fmt.Sprintf(`document.body.innerText.includes(%s)`, quoted))
}

// live waits until the page follows the server.
func (b *tab) live() {
	b.Helper()
	b.until(`document.getElementById("link").dataset.state === "live"`)
}

// follow clicks on something that leads to another page, and waits for that.
func (b *tab) follow(selector string) {
	b.Helper()
	if _, err := chromedp.RunResponse(b.ctx, chromedp.Click(selector, chromedp.NodeVisible)); err != nil {
		b.Fatalf("click on %s: %v", selector, err)
	}
	b.do(chromedp.WaitReady("main"))
}

// press presses a key that a page may keep from typing its character.
func (b *tab) press(key string) {
	b.Helper()
	for _, p := range []input.DispatchKeyEventParams{{Type: "keyDown", Key: key, Text: key}, {Type: "keyUp", Key: key}} {
		if err := call(b.ctx, input.DispatchKeyEvent, p); err != nil {
			b.Fatal(err)
		}
	}
}

// value returns the value of an expression.
func (b *tab) value(expression string) any {
	b.Helper()
	v, err := chromedp.Run(b.ctx, chromedp.Evaluate[any](expression))
	if err != nil {
		b.Fatalf("%s: %v", expression, err)
	}
	return v
}

// shoot writes a screenshot of the whole page, or of what the window shows of it.
func (b *tab) shoot(name string, whole bool) {
	b.Helper()
	if *shots == "" {
		return
	}
	shot, err := chromedp.Call(b.ctx, page.CaptureScreenshot, page.CaptureScreenshotParams{CaptureBeyondViewport: &whole})
	if err != nil {
		b.Fatal(err)
	}
	if err := os.MkdirAll(*shots, 0o755); err != nil {
		b.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(*shots, name+".png"), shot.Data, 0o644); err != nil {
		b.Fatal(err)
	}
}
