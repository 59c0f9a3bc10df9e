package browsertest

import (
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
)

var liveJobs = regexp.MustCompile(`(?s)<div id="live-jobs" data-live>.*?</nav>\s*</div>`)

// searching returns the server behind a proxy where the list of jobs on each page of a search is what the test sends.
func (s *server) searching(pages <-chan string) *server {
	s.Helper()
	target, err := url.Parse("http://" + s.address)
	if err != nil {
		s.Fatal(err)
	}
	proxy := &httputil.ReverseProxy{FlushInterval: -1, ErrorLog: log.New(io.Discard, "", 0), Rewrite: func(r *httputil.ProxyRequest) {
		r.SetURL(target)
		r.Out.Host = r.In.Host
		r.Out.Header.Del("Accept-Encoding")
		q := r.Out.URL.Query()
		q.Del("cursor") // the test has made it up
		r.Out.URL.RawQuery = q.Encode()
	}, ModifyResponse: func(r *http.Response) error {
		if r.Request.URL.Path != "/jobs" || r.Request.Header.Get("Gq-Reload") != "" {
			return nil
		}
		page, err := io.ReadAll(r.Body)
		if err != nil {
			return err
		}
		select {
		case list := <-pages:
			page = liveJobs.ReplaceAllLiteral(page, []byte(`<div id="live-jobs" data-live>`+list+`</div>`))
		case <-r.Request.Context().Done():
			return r.Request.Context().Err()
		}
		r.Body = io.NopCloser(strings.NewReader(string(page)))
		r.ContentLength = int64(len(page))
		r.Header.Set("Content-Length", strconv.Itoa(len(page)))
		return nil
	}}
	front := httptest.NewServer(proxy)
	s.Cleanup(front.Close)
	s.Cleanup(front.CloseClientConnections) // Close waits for streams
	outside := *s
	outside.address = strings.TrimPrefix(front.URL, "http://")
	return &outside
}

// A search goes on by itself, keeps what it has found, says how far it has come, and stops when somebody wants that.
func TestASearchGoesOnUntilItIsStopped(t *testing.T) {
	s := start(t, "memory:")
	s.submit(`{"type":"email.send","queue":"mail"}`)
	pages := make(chan string, 1)
	page := func(found string, searched int) string {
		rows := `<div class="empty"><h2>Nothing found yet</h2></div>`
		if found != "" {
			rows = fmt.Sprintf(`<div class="scroll"><table class="rows"><tbody><tr data-row><td><a href="./jobs/%s" data-open>%[1]s</a></td></tr></tbody></table></div>`, found)
		}
		return fmt.Sprintf(`%s<p class="dim" role="status">Searched %d of 9000 jobs</p><nav class="pager"><a rel="next" data-further href="./jobs?correlation=x&amp;cursor=c%d&amp;searched=%[2]d">Look further</a></nav>`, rows, searched, searched)
	}
	b := s.searching(pages).open()
	pages <- page("", 1000)
	b.visit("jobs?correlation=x")
	stop := `//button[text()="Stop"]`
	b.do(chromedp.WaitVisible(stop))
	b.sees("Searched 1000 of 9000 jobs")
	pages <- page("found-1", 2000)
	b.sees("found-1")
	b.do(chromedp.Evaluate[chromedp.Void](`getSelection().selectAllChildren(document.querySelector("#live-jobs tbody td"))`))
	pages <- page("found-2", 3000)
	b.sees("Searched 3000 of 9000 jobs")
	if text := b.value(`getSelection().toString().trim()`); text != "found-1" {
		t.Errorf("the selection has become %q", text)
	}
	rows := `[...document.querySelectorAll("#live-jobs tbody tr")].map(r => r.innerText.trim()).join()`
	if got := b.value(rows); got != "found-1,found-2" {
		t.Errorf("the page shows %v", got)
	}
	b.do(chromedp.Click(stop))
	pages <- page("found-3", 4000) // which the page was waiting for
	b.sees("Searched 4000 of 9000 jobs")
	if b.value(`Boolean(document.querySelector("#live-jobs a[data-further]"))`) != true {
		t.Fatal("the search goes on")
	}
	if got := b.value(rows); got != "found-1,found-2,found-3" {
		t.Errorf("the page shows %v", got)
	}
	pages <- page("found-4", 5000)
	b.follow(`a[data-further]`)
	b.sees("found-4")
	if at, _ := b.value(`location.search`).(string); !strings.Contains(at, "cursor=c4000") {
		t.Errorf("the search goes on at %s", at)
	}
}

// submitMany fills a queue with jobs.
func (s *server) submitMany(n int) {
	s.Helper()
	const row, most = `{"type":"import.row","queue":"bulk"}`, 10_000
	for ; n > 0; n -= most {
		s.call("POST", "/v1/jobs/batch", `{"jobs":[`+strings.Repeat(row+",", min(n, most)-1)+row+`]}`)
	}
}

// In a store with many jobs a search finds the oldest one, by key at once, and all jobs are cancelled after their number
// was typed. Where that takes several parts, the page says how far they have come.
func TestManyJobs(t *testing.T) {
	const large = 1_000_000
	onEachStore(t, func(t *testing.T, s *server) {
		oldest := s.submit(`{"type":"import.first","queue":"bulk","idempotency_key":"row-first","correlation_id":"order-7","tags":{"tenant":"rare"}}`)
		began := time.Now()
		s.submitMany(*many)
		t.Logf("%d jobs were submitted in %v", *many, time.Since(began).Round(time.Millisecond))
		b := s.open()
		found := fmt.Sprintf(`[...document.querySelectorAll("#live-jobs tbody a[data-open]")].some(a => a.href.endsWith(%q))`, oldest)
		status := func() string {
			text, _ := b.value(`document.querySelector("#live-jobs [role=status]")?.innerText || ""`).(string)
			return text
		}
		for _, search := range []string{"find=row-first", "correlation=order-7", "tag=tenant%3Drare", "type=import.first"} {
			began := time.Now()
			b.visit("jobs?" + search)
			first, said := time.Since(began), status()
			b.until(found)
			t.Logf("%s: the first answer after %v (%q), found after %v", search, first.Round(time.Millisecond), said, time.Since(began).Round(time.Millisecond))
			if byKey := search == "find=row-first"; *many >= large && (said == "") != byKey {
				t.Errorf("%s: the first page says %q", search, said)
			}
		}
		b.visit("jobs?correlation=nowhere")
		if b.value(`Boolean(document.querySelector("#live-jobs nav button"))`) == true {
			b.do(chromedp.Click(`//button[text()="Stop"]`))
			b.sees("Look further")
			said := status()
			t.Logf("stopped: %q", said)
			if !strings.HasPrefix(said, "Searched ") || !strings.Contains(said, " of ") {
				t.Errorf("a search that was stopped says %q", said)
			}
		} else if *many >= large {
			t.Error("a search cannot be stopped")
		}

		number := strconv.Itoa(*many + 1)
		b.visit("jobs?queue=bulk")
		began = time.Now()
		b.follow(`//button[text()="Cancel all…"]`)
		asked, _ := b.value(`document.querySelector(".confirm").innerText.replaceAll(",", "")`).(string)
		if !strings.Contains(asked, number+" jobs will be cancelled") || !strings.Contains(asked, "Type "+number+" to confirm") {
			t.Fatalf("the page asks: %s", asked)
		}
		t.Logf("the number is there after %v", time.Since(began).Round(time.Millisecond))
		began = time.Now()
		b.do(chromedp.SendKeys(`input[name=typed]`, number))
		b.follow(`button.danger[name=confirm]`)
		first := time.Since(began)
		var parts []string
		for until := began.Add(4 * patience); ; time.Sleep(100 * time.Millisecond) {
			// The page goes while the next part is done.
			text, _ := chromedp.Run(b.ctx, chromedp.Evaluate[string](`document.querySelector(".prog")?.innerText || document.body.innerText`))
			if text = strings.ReplaceAll(text, ",", ""); strings.Contains(text, number+" jobs were cancelled") {
				break
			}
			if strings.Contains(text, " of "+number) && !slices.Contains(parts, text) {
				parts = append(parts, text)
			}
			if time.Now().After(until) {
				t.Fatalf("the jobs are not cancelled: %q, %.500s", parts, text)
			}
		}
		t.Logf("cancelled in %v; the first answer after %v, then %q", time.Since(began).Round(time.Millisecond), first.Round(time.Millisecond), parts)
		if n := s.call("POST", "/v1/jobs/count", `{"queue":"bulk","states":["CANCELLED"]}`)["jobs"]; n != float64(*many+1) {
			t.Errorf("%v jobs are cancelled", n)
		}
	})
}
