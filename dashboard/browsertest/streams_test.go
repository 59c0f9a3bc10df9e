package browsertest

import (
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"
)

// counted returns the server behind a proxy that counts open streams.
func (s *server) counted() (outside *server, streams *atomic.Int64) {
	s.Helper()
	target, err := url.Parse("http://" + s.address)
	if err != nil {
		s.Fatal(err)
	}
	proxy := httputil.NewSingleHostReverseProxy(target)
	proxy.FlushInterval, proxy.ErrorLog = -1, log.New(io.Discard, "", 0)
	streams = new(atomic.Int64)
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/live" {
			streams.Add(1)
			defer streams.Add(-1)
		}
		proxy.ServeHTTP(w, r)
	}))
	s.Cleanup(front.Close)
	s.Cleanup(front.CloseClientConnections) // Close waits for streams
	copied := *s
	copied.address = strings.TrimPrefix(front.URL, "http://")
	return &copied, streams
}

// streamsOpen waits until so many streams are open.
func streamsOpen(t *testing.T, streams *atomic.Int64, want int64) {
	t.Helper()
	for until := time.Now().Add(patience); streams.Load() != want; time.Sleep(20 * time.Millisecond) {
		if time.Now().After(until) {
			t.Fatalf("%d streams are open, want %d", streams.Load(), want)
		}
	}
}

// A browser has six connections to a server, and any number of windows on it.
func TestManyWindows(t *testing.T) {
	outside, streams := start(t, "memory:").counted()
	first := outside.open()
	windows := []*tab{first}
	for len(windows) < 8 {
		windows = append(windows, first.another())
	}
	for _, b := range windows {
		b.visit("jobs")
		b.live()
	}
	streamsOpen(t, streams, 1)
	outside.submit(`{"type":"for.everybody","queue":"mail"}`)
	for _, b := range windows {
		b.sees("for.everybody")
	}
	for _, b := range windows[1:] {
		b.close()
	}
	outside.submit(`{"type":"for.the.first","queue":"mail"}`)
	first.sees("for.the.first")
	first.visit("about") // it does not change
	streamsOpen(t, streams, 0)
}

// A page that nobody sees has no stream, and is up to date when somebody looks at it again.
func TestAHiddenPageFollowsNothing(t *testing.T) {
	for _, shared := range []bool{true, false} {
		t.Run(fmt.Sprintf("shared=%t", shared), func(t *testing.T) {
			outside, streams := start(t, "memory:").counted()
			b := outside.open()
			if !shared { // as in a browser that has no shared workers
				if err := call(b.ctx, page.AddScriptToEvaluateOnNewDocument, page.AddScriptToEvaluateOnNewDocumentParams{Source: `delete window.SharedWorker`}); err != nil {
					t.Fatal(err)
				}
			}
			b.visit("jobs")
			b.live()
			streamsOpen(t, streams, 1)
			show := func(hidden bool) {
				b.do(chromedp.Evaluate[chromedp.Void](fmt.Sprintf(`Object.defineProperty(document, "hidden", {configurable: true, value: %t}); document.dispatchEvent(new Event("visibilitychange"))`, hidden)))
			}
			show(true)
			streamsOpen(t, streams, 0)
			outside.submit(`{"type":"while.away","queue":"mail"}`)
			show(false)
			b.sees("while.away")
			streamsOpen(t, streams, 1)
			outside.submit(`{"type":"while.here","queue":"mail"}`)
			b.sees("while.here")
		})
	}
}

// What somebody selects or points at stays where it is until the hand has gone.
func TestUpdatesWaitForTheHand(t *testing.T) {
	s := start(t, "memory:")
	for i := range 3 {
		s.submit(fmt.Sprintf(`{"type":"first.%d","queue":"mail"}`, i))
	}
	b := s.open()
	b.visit("jobs")
	b.live()
	b.do(chromedp.Evaluate[chromedp.Void](`getSelection().selectAllChildren(document.querySelector("main [data-row] td.grow"))`))
	s.submit(`{"type":"second","queue":"mail"}`)
	b.sees("waits for you")
	if text := b.value(`getSelection().toString().trim()`); text != "first.2" {
		t.Errorf("the selection has become %q", text)
	}
	if b.value(`document.body.innerText.includes("second")`) == true {
		t.Error("the part was replaced")
	}
	b.do(chromedp.Evaluate[chromedp.Void](`getSelection().removeAllRanges()`))
	b.sees("second")
	b.until(`document.getElementById("link").innerText === "live"`)

	var at struct{ X, Y float64 }
	place := b.value(`(() => { const r = document.querySelector("main [data-open]").getBoundingClientRect(); return JSON.stringify({X: r.x + r.width / 2, Y: r.y + r.height / 2}) })()`)
	if err := json.Unmarshal([]byte(place.(string)), &at); err != nil {
		t.Fatal(err)
	}
	b.do(chromedp.MouseEvent(input.DispatchMouseEventTypeMouseMoved, at.X, at.Y))
	under := fmt.Sprintf(`document.elementFromPoint(%f, %f).closest("a").href`, at.X, at.Y)
	before := b.value(under)
	s.submit(`{"type":"third","queue":"mail"}`)
	b.sees("waits for you")
	if now := b.value(under); now != before {
		t.Errorf("the pointer is on %v, and was on %v", now, before)
	}
	b.do(chromedp.MouseEvent(input.DispatchMouseEventTypeMouseMoved, 2, 400))
	b.sees("third")
}

// Many jobs are cancelled after their number was typed.
func TestManyJobsAreConfirmedByTheirNumber(t *testing.T) {
	s := start(t, "memory:")
	s.call("POST", "/v1/jobs/batch", `{"jobs":[`+strings.Repeat(`{"type":"import.row","queue":"bulk"},`, 999)+`{"type":"import.row","queue":"bulk"}]}`)
	b := s.open()
	b.visit("jobs?type=import.row")
	b.follow(`//button[text()="Cancel all…"]`)
	b.sees("1,000 jobs will be cancelled")
	b.do(chromedp.SendKeys(`input[name=typed]`, "100"))
	b.follow(`//button[text()="Cancel 1,000 jobs"]`)
	b.sees("That is not the number. Nothing was done.")
	b.do(chromedp.SendKeys(`input[name=typed]`, "1000"))
	b.follow(`//button[text()="Cancel 1,000 jobs"]`)
	b.sees("1,000 jobs were cancelled")
}

// A second click on an old page leads to the replay of the first.
func TestADeadLetterIsReplayedOnce(t *testing.T) {
	s := start(t, "memory:")
	id := s.submit(`{"type":"email.send","queue":"mail","policy":{"max_attempts":1}}`)
	s.call("POST", "/v1/leases/"+s.claim("mail")+"/fail", `{"message":"smtp does not answer"}`)
	first := s.open()
	first.visit("jobs/" + id)
	second := first.another()
	second.visit("jobs/" + id)
	first.follow(`//button[text()="Replay"]`)
	first.sees("This is the new job.")
	second.until(`document.getElementById("live-facts").innerText.includes("Replayed as")`)
	second.visit("dead")
	second.sees("1 that was replayed is not shown")
	if n := s.call("POST", "/v1/jobs/count", `{"queue":"mail","states":["SCHEDULED"]}`)["jobs"]; n != 1.0 {
		t.Errorf("%v jobs wait", n)
	}
}
