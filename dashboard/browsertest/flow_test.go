package browsertest

import (
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
)

func TestAJobAppearsAndFinishesLive(t *testing.T) {
	onEachStore(t, func(t *testing.T, s *server) {
		b := s.open()
		b.visit("jobs")
		b.live()
		b.do(chromedp.Evaluate[chromedp.Void](`window.same = true`)) // the page is not loaded again
		s.submit(`{"type":"email.send","queue":"mail"}`)
		b.sees("email.send")
		b.sees("scheduled")
		lease := s.claim("mail")
		b.sees("running")
		s.call("POST", "/v1/leases/"+lease+"/complete", `{"result":{"ok":true}}`)
		b.sees("completed")
		if b.value(`window.same`) != true {
			t.Error("the page was loaded again")
		}
	})
}

func TestProgressOfAJobIsLive(t *testing.T) {
	onEachStore(t, func(t *testing.T, s *server) {
		id := s.submit(`{"type":"video.encode","queue":"video"}`)
		b := s.open()
		b.visit("jobs/" + id)
		b.live()
		b.sees("Why is it not running?")
		lease := s.claim("video")
		b.sees("What is it doing?")
		s.call("POST", "/v1/leases/"+lease+"/complete", `{"result":{"frames":7}}`)
		b.sees("How did it end?")
		b.until(`document.getElementById("live-why").classList.contains("t-good")`) // not only its text
		b.follow(`//a[contains(., "Result")]`)
		b.sees(`"frames": 7`)
	})
}

func TestFilterOpenCancel(t *testing.T) {
	onEachStore(t, func(t *testing.T, s *server) {
		id := s.submit(`{"type":"report.build","queue":"reports","delay":"1h"}`)
		s.submit(`{"type":"email.send","queue":"mail"}`)
		b := s.open()
		b.visit("jobs")
		b.sees("email.send")
		b.do(chromedp.SetValue(`select[name=state]`, "delayed"))
		b.follow(`main form.filter button`)
		b.sees("report.build")
		if n := b.value(`document.querySelectorAll("main [data-row]").length`); n != 1.0 {
			t.Errorf("%v jobs are delayed", n)
		}
		b.follow(`main [data-open]`)
		b.sees("Why is it not running?")
		b.do(chromedp.Click(`//summary[contains(., "Cancel")]`), chromedp.SendKeys(`input[name=reason]`, "not needed"))
		b.follow(`//button[contains(., "Cancel the job")]`)
		b.sees("The job was cancelled.")
		b.sees("not needed")
		if state := s.state(id); state != "CANCELLED" {
			t.Errorf("the job is %s", state)
		}
	})
}

func TestReplayAGroupOfDeadLetters(t *testing.T) {
	onEachStore(t, func(t *testing.T, s *server) {
		for i := range 3 {
			s.submit(`{"type":"email.send","queue":"mail","policy":{"max_attempts":1}}`)
			s.call("POST", "/v1/leases/"+s.claim("mail")+"/fail", fmt.Sprintf(`{"message":"smtp-%d does not answer","code":"smtp_down"}`, i))
		}
		b := s.open()
		b.visit("dead")
		b.sees("smtp_down")
		b.follow(`//button[contains(., "Replay 3")]`)
		b.sees("3 jobs were submitted again.")
		if n := s.call("POST", "/v1/jobs/count", `{"queue":"mail","states":["SCHEDULED"]}`)["jobs"]; n != 3.0 {
			t.Errorf("%v jobs wait", n)
		}
	})
}

func TestPauseAQueue(t *testing.T) {
	onEachStore(t, func(t *testing.T, s *server) {
		s.submit(`{"type":"email.send","queue":"mail"}`)
		b := s.open()
		b.visit("")
		b.follow(`//main//a[text()="mail"]`)
		b.follow(`//button[text()="Pause"]`)
		b.sees("The queue is paused.")
		if s.call("GET", "/v1/queues/mail", "")["paused"] != true {
			t.Error("the queue is not paused")
		}
		b.follow(`//button[text()="Resume"]`)
		b.sees("The queue is no longer paused.")
	})
}

const flow = `{"name":"order 4711","jobs":[{"ref":"charge","type":"order.charge","queue":"orders"},
	{"ref":"pack","type":"order.pack","queue":"orders","needs":[{"ref":"charge"}]},
	{"ref":"approve","signal_within":"1h","queue":"orders","needs":[{"ref":"charge"}]},
	{"ref":"ship","type":"order.ship","queue":"orders","needs":[{"ref":"pack"},{"ref":"approve"}]}]}`

func TestGraph(t *testing.T) {
	onEachStore(t, func(t *testing.T, s *server) {
		id := s.call("POST", "/v1/workflows", flow)["id"].(string)
		b := s.open()
		b.visit("workflows/" + id)
		b.live()
		if n := b.value(`document.querySelectorAll(".graph .node").length`); n != 4.0 {
			t.Errorf("the graph has %v boxes", n)
		}
		if w := b.value(`document.querySelector(".graph .node").getBoundingClientRect().width`).(float64); w < 100 {
			t.Errorf("a box is %v wide", w)
		}
		s.call("POST", "/v1/leases/"+s.claim("orders")+"/complete", `{}`)
		b.until(`document.querySelectorAll(".graph .node.t-good").length === 1`)
		b.follow(`//*[name()="a" and contains(@aria-label, "ship")]`)
		b.sees("Waits for 2 jobs")
	})
}

func TestChartsAreLive(t *testing.T) {
	onEachStore(t, func(t *testing.T, s *server) {
		b := s.open()
		b.visit("")
		b.live()
		b.sees("Nothing in this time")
		s.submit(`{"type":"email.send","queue":"mail"}`)
		s.call("POST", "/v1/leases/"+s.claim("mail")+"/complete", `{}`)
		b.until(`document.querySelector(".legend").innerText.includes("completed 1")`)
		if h := b.value(`document.querySelector(".plot .m-fill").getBoundingClientRect().height`).(float64); h < 20 {
			t.Errorf("the bar of the only job is %v high", h)
		}
		b.follow(`//nav[@class="reaches"]/a[text()="Month"]`)
		b.sees("The last month")
		b.until(`document.querySelector(".legend").innerText.includes("completed 1")`)
		b.follow(`//main//a[text()="mail"]`)
		b.until(`document.querySelectorAll("figure.chart").length === 3`)
		b.do(chromedp.Click(`//summary[contains(., "Figures of the last hour")]`))
		b.until(`document.querySelector(".figures tbody tr").innerText.length > 0 && document.querySelector(".figures").open`)
	})
}

func TestAReader(t *testing.T) {
	for name := range strings.SplitSeq(*stores, ",") {
		t.Run(name, func(t *testing.T) {
			s := start(t, storeOf(t, name), "the-token-of-an-administrator")
			id := s.submit(`{"type":"email.send","queue":"mail"}`)
			foreign := s.submit(`{"type":"payroll.run","queue":"payroll"}`)
			token := s.call("POST", "/v1/tokens", `{"name":"reader","grants":[{"scopes":["read"],"queues":["mail"]}]}`)["token"].(string)
			b := s.open()
			b.expect("Failed to load resource") // pages that are refused
			b.visit("jobs/" + id)
			b.sees("Sign in")
			b.do(chromedp.SendKeys(`input[name=token]`, token))
			b.follow(`main button`)
			b.sees("Why is it not running?") // the page that was asked for
			if n := b.value(`document.querySelectorAll("main form[method=post]").length`); n != 0.0 {
				t.Errorf("a reader is offered %v actions", n)
			}
			b.visit("")
			b.live()
			b.sees("mail")
			if b.value(`document.body.innerText.includes("payroll")`) == true {
				t.Error("a foreign queue is listed")
			}
			for _, path := range []string{"jobs/" + foreign, "queue?name=payroll"} {
				b.visit(path)
				b.sees("Not allowed")
			}
			// An action that the page does not offer.
			b.visit("")
			b.value(`fetch("queue/pause", {method: "POST", body: new URLSearchParams({name: "mail", csrf: document.querySelector("[name=csrf]").value})}).then(r => window.status = r.status), 0`)
			b.until(`Number(window.status) === 403`)
			if s.call("GET", "/v1/queues/mail", "")["paused"] == true {
				t.Error("a reader paused a queue")
			}
			s.call("DELETE", "/v1/tokens/reader", "")
			b.visit("jobs")
			b.sees("Sign in")
		})
	}
}

func TestHostileNames(t *testing.T) {
	onEachStore(t, func(t *testing.T, s *server) {
		names := []string{`<script>document.title='owned'</script>`, `\"><img src=x onerror=alert(1)>`, `\u202egnp.exe`, strings.Repeat("long", 60)}
		for _, name := range names {
			s.submit(fmt.Sprintf(`{"type":"%s","queue":"mail","correlation_id":"%s","tags":{"%s":"x"},"policy":{"max_attempts":1},"payload":{"p":"</pre><script>%s"}}`, name, name, name[:10], name))
			s.call("POST", "/v1/leases/"+s.claim("mail")+"/fail", fmt.Sprintf(`{"message":"%s"}`, strings.Repeat(name+" ", 15)))
		}
		b := s.open()
		for _, path := range []string{"", "jobs", "dead", "events", "queue?name=mail", "queues"} {
			b.visit(path)
			if b.value(`document.querySelectorAll("main script, main img, main style").length`) != 0.0 {
				t.Errorf("%s: a name became an element", path)
			}
			if b.value(`document.title`) == "owned" {
				t.Errorf("%s: a name became a script", path)
			}
			if b.value(`document.documentElement.scrollWidth > innerWidth`) == true {
				t.Errorf("%s: a name makes the page wider than the window", path)
			}
		}
		b.visit("jobs")
		b.follow(`main [data-open]`)
		b.follow(`//a[text()="Payload"]`)
		b.sees("</pre><script>")
	})
}

func TestTheServerGoesAndComesBack(t *testing.T) {
	onEachStore(t, func(t *testing.T, s *server) {
		b := s.open()
		b.expect("Failed to load resource")
		b.visit("jobs")
		b.live()
		s.stop()
		b.until(`document.getElementById("link").dataset.state === "lost"`)
		b.sees("disconnected")
		b.sees("The server does not answer. This page shows what was known")
		for _, scheme := range []string{"dark", "light"} {
			b.scheme(scheme)
			b.shoot("disconnected-"+scheme, false)
		}
		s.run(s.address)
		b.live()
		b.until(`document.getElementById("lost").hidden`)
		s.submit(`{"type":"after.restart","queue":"mail"}`)
		b.sees("after.restart")
	})
}

// What happens between the reading of a page and the beginning of its stream is not lost.
func TestAChangeBeforeTheStream(t *testing.T) {
	s := start(t, "memory:")
	target, err := url.Parse("http://" + s.address)
	if err != nil {
		t.Fatal(err)
	}
	proxy := httputil.NewSingleHostReverseProxy(target)
	proxy.FlushInterval, proxy.ErrorLog = -1, log.New(io.Discard, "", 0)
	var once sync.Once
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/live" {
			once.Do(func() { s.submit(`{"type":"just.before","queue":"mail"}`) })
		}
		proxy.ServeHTTP(w, r)
	}))
	defer front.Close()
	defer front.CloseClientConnections() // Close waits for streams
	outside := *s
	outside.address = strings.TrimPrefix(front.URL, "http://")
	b := outside.open()
	b.visit("jobs")
	b.sees("just.before")
}

// An open page of a visitor whose token is revoked asks for another one by itself.
func TestATokenIsRevoked(t *testing.T) {
	if testing.Short() {
		t.Skip("takes up to half a minute")
	}
	s := start(t, "memory:", "the-token-of-an-administrator")
	token := s.call("POST", "/v1/tokens", `{"name":"reader","grants":[{"scopes":["read"],"queues":["mail"]}]}`)["token"].(string)
	b := s.open()
	b.expect("Failed to load resource")
	signIn(b, token)
	b.visit("jobs")
	b.live()
	s.call("DELETE", "/v1/tokens/reader", "")
	b.do(chromedp.WaitVisible(`input[name=token]`)) // unlike an expression it can be waited for while the page changes
	b.sees("Your session has ended. Sign in again.")
}

// A server that hangs closes no connection: the page notices that it hears nothing.
func TestTheServerHangs(t *testing.T) {
	if testing.Short() {
		t.Skip("takes more than half a minute; make test-browser runs it")
	}
	s := start(t, storeOf(t, "file"))
	b := s.open()
	b.expect("Failed to load resource")
	b.visit("jobs")
	b.live()
	if err := s.process.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	resume := sync.OnceFunc(func() {
		if err := s.process.Process.Signal(syscall.SIGCONT); err != nil {
			t.Error(err)
		}
	})
	defer resume()
	b.until(`document.getElementById("link").dataset.state === "lost"`)
	b.sees("The server does not answer. This page shows what was known")
	resume()
	b.live()
	s.submit(`{"type":"after.pause","queue":"mail"}`)
	b.sees("after.pause")
}

// Rows come and go while somebody walks through them: the focus stays on what it was on.
func TestFocusStaysOnItsRow(t *testing.T) {
	onEachStore(t, func(t *testing.T, s *server) {
		die := func(kind string) {
			s.submit(fmt.Sprintf(`{"type":%q,"queue":"mail","policy":{"max_attempts":1}}`, kind))
			s.call("POST", "/v1/leases/"+s.claim("mail")+"/fail", `{"message":"smtp does not answer"}`)
		}
		die("first")
		die("second")
		b := s.open()
		b.visit("dead")
		b.live()
		group := `document.activeElement.closest("section")?.innerText`
		b.do(chromedp.Evaluate[chromedp.Void](`[...document.querySelectorAll("main section")].find(s => s.innerText.includes("first")).querySelector("button").focus()`))
		for range 3 {
			die("second")
			die("third")
		}
		b.sees("Replay 3")
		b.until(group + `?.includes("first")`)

		id := s.submit(`{"type":"chosen","queue":"slow","delay":"1h"}`)
		b.visit("jobs?queue=slow")
		b.live()
		b.do(chromedp.KeyEvent("j"))
		b.until(`document.activeElement.closest("[data-row]")?.innerText.includes("chosen")`)
		s.submit(`{"type":"newer","queue":"slow","delay":"1h"}`)
		b.sees("newer")
		if at, _ := b.value(`document.querySelector("[data-row].at")?.innerText`).(string); !strings.Contains(at, "chosen") {
			t.Errorf("the selected row is %q", at)
		}
		if _, err := chromedp.RunResponse(b.ctx, chromedp.KeyEvent(kb.Enter)); err != nil {
			t.Fatal(err)
		}
		b.until(fmt.Sprintf(`location.pathname.endsWith(%q)`, id))
	})
}

// A proxy gives the dashboard a path of its own. Everything works there: signing in, live updates, links and
// actions.
func TestBehindAProxy(t *testing.T) {
	s := start(t, "memory:", "the-token-of-an-administrator")
	s.submit(`{"type":"email.send","queue":"mail"}`)
	target, err := url.Parse("http://" + s.address)
	if err != nil {
		t.Fatal(err)
	}
	proxy := &httputil.ReverseProxy{FlushInterval: -1, ErrorLog: log.New(io.Discard, "", 0), Rewrite: func(r *httputil.ProxyRequest) {
		r.SetURL(target)
		r.Out.Host = r.In.Host
	}}
	front := httptest.NewServer(http.StripPrefix("/tools/queue", proxy))
	defer front.Close()
	outside := *s
	outside.address = strings.TrimPrefix(front.URL, "http://") + "/tools/queue"
	b := outside.open()
	b.expect("Failed to load resource") // before the visitor has signed in
	b.visit("queue?name=mail")
	b.do(chromedp.SendKeys(`input[name=token]`, s.token))
	b.follow(`main button`)
	b.live()
	b.follow(`//button[text()="Pause"]`)
	b.sees("The queue is paused.")
	b.follow(`//a[text()="All jobs"]`)
	b.live()
	s.submit(`{"type":"through.proxy","queue":"mail"}`)
	b.sees("through.proxy")
	b.follow(`main [data-open]`)
	b.sees("Why is it not running?")
	b.follow(`//nav//a[text()="Overview"]`)
	b.sees("The last hour")
	if at, _ := b.value(`location.pathname`).(string); at != "/tools/queue/" {
		t.Errorf("the overview is at %s", at)
	}
	b.follow(`//button[contains(., "Sign out")]`)
	b.sees("The token decides")
	b.close()
}

// What a page shows can change without an event of a job: such pages load their parts again by the clock.
func TestPagesFollowTheClock(t *testing.T) {
	if testing.Short() {
		t.Skip("-short leaves out what waits for the clock; make test-browser runs it")
	}
	s := start(t, "memory:", "the-token-of-an-administrator")
	trail, tokens, queue := s.open(), s.open(), s.open()
	for path, b := range map[string]*tab{"audit": trail, "tokens": tokens, "queue?name=mail": queue} {
		signIn(b, s.token)
		if path == "queue?name=mail" {
			s.call("PUT", "/v1/queues/mail", `{}`)
		}
		b.visit(path)
		b.live()
		b.do(chromedp.Evaluate[chromedp.Void](`window.same = true`))
	}
	s.call("POST", "/v1/tokens", `{"name":"a new one","grants":[{"scopes":["read"],"queues":["mail"]}]}`)
	s.call("PUT", "/v1/queues/mail", `{"paused":true}`)
	for b, text := range map[*tab]string{trail: "a new one", tokens: "a new one", queue: "paused"} {
		b.until(fmt.Sprintf(`document.querySelector("main").innerText.includes(%q)`, text))
		if b.value(`window.same`) != true {
			t.Errorf("%s: the page was loaded again", text)
		}
	}
}

// Somebody who has signed in follows a link on another site: browsers keep the cookie back at first.
func TestALinkOnAnotherSite(t *testing.T) {
	s := start(t, "memory:", "the-token-of-an-administrator")
	at := "http://" + s.address + "/jobs/" + s.submit(`{"type":"email.send","queue":"mail"}`)
	other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		_, _ = fmt.Fprintf(w, `<link rel=icon href="data:,"><main><a href="%s">look</a></main>`, at)
	}))
	defer other.Close()
	_, port, _ := strings.Cut(strings.TrimPrefix(other.URL, "http://"), ":")
	for signedIn, text := range map[bool]string{true: "Why is it not running?", false: "The token decides"} {
		b := s.open()
		if signedIn {
			signIn(b, s.token)
		}
		b.do(chromedp.Navigate("http://evil.example:"+port+"/"), chromedp.WaitReady("main"), chromedp.Click("main a"))
		seen := false
		for until := time.Now().Add(patience); !seen && time.Now().Before(until); time.Sleep(30 * time.Millisecond) {
			// The page goes while it loads itself again.
			seen, _ = chromedp.Run(b.ctx, chromedp.Evaluate[bool](fmt.Sprintf(`performance.getEntriesByType("navigation")[0].name === %q && document.body.innerText.includes(%q) && document.referrer.indexOf("evil") < 0`, at, text)))
		}
		if !seen {
			t.Errorf("signed in %v: the page is %v", signedIn, b.value(`document.body.innerText`))
		}
		b.mu.Lock()
		b.complaints = nil // the other site, and the first page without a session
		b.mu.Unlock()
	}
}

func TestOtherSites(t *testing.T) {
	s := start(t, "memory:")
	s.submit(`{"type":"t","queue":"mail"}`)
	evil := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		_, _ = fmt.Fprintf(w, `<form id=f method=post action="http://%s/queue/pause"><input name=name value=mail></form><script>f.submit()</script>`, s.address)
	}))
	defer evil.Close()
	b := s.open()
	b.expect("") // what another site does is its business
	b.do(chromedp.Navigate(evil.URL), chromedp.WaitReady("main"))
	b.sees("This request came from another site")
	if s.call("GET", "/v1/queues/mail", "")["paused"] == true {
		t.Error("another site paused a queue")
	}
	// A name of another site that resolves to this machine.
	_, port, _ := strings.Cut(s.address, ":")
	b.do(chromedp.Navigate("http://evil.example:"+port+"/jobs"), chromedp.WaitReady("main"))
	b.sees("Not allowed")
	b.mu.Lock()
	b.complaints = nil
	b.mu.Unlock()
}

func TestKeyboard(t *testing.T) {
	onEachStore(t, func(t *testing.T, s *server) {
		for i := range 3 {
			s.submit(fmt.Sprintf(`{"type":"type-%d","queue":"mail","delay":"1h"}`, i))
		}
		b := s.open()
		b.visit("")
		keys := func(text string) {
			t.Helper()
			if _, err := chromedp.RunResponse(b.ctx, chromedp.KeyEvent(text)); err != nil {
				t.Fatal(err)
			}
			b.do(chromedp.WaitReady("main"))
		}
		b.do(chromedp.KeyEvent("?"))
		b.until(`document.getElementById("help").open`)
		b.do(chromedp.KeyEvent(kb.Escape))
		b.until(`!document.getElementById("help").open`)
		b.do(chromedp.KeyEvent("g"))
		keys("j")
		b.until(`document.querySelector("h1").textContent === "Jobs"`)
		b.do(chromedp.KeyEvent("j"), chromedp.KeyEvent("j"), chromedp.KeyEvent("j"), chromedp.KeyEvent("k"))
		b.until(`document.activeElement.closest("[data-row]")?.innerText.includes("type-1")`)
		keys(kb.Enter)
		b.sees("Why is it not running?")
		b.until(`document.querySelector("h1").innerText.includes("type-1")`)
		// Cancel with nothing but the keyboard: tab to the action, open it, tab to its button.
		tabTo := func(text string) {
			t.Helper()
			for range 60 {
				b.do(chromedp.KeyEvent(kb.Tab))
				if at, _ := b.value(`document.activeElement.innerText || ""`).(string); strings.Contains(at, text) {
					if b.value(`(e => { const s = getComputedStyle(e); return s.outlineStyle !== "none" && parseFloat(s.outlineWidth) > 0 })(document.activeElement)`) != true {
						t.Errorf("the focus on %s is not visible", text)
					}
					return
				}
			}
			t.Fatalf("the keyboard does not reach %s", text)
		}
		tabTo("Cancel…")
		b.do(chromedp.KeyEvent(kb.Enter))
		tabTo("Cancel the job")
		keys(kb.Enter)
		b.sees("The job was cancelled.")
		// Search.
		id := s.submit(`{"type":"found","queue":"mail"}`)
		b.press("/")
		b.until(`document.activeElement.id === "find"`)
		b.do(chromedp.KeyEvent(id))
		keys(kb.Enter)
		b.until(`document.querySelector("h1").innerText.includes("found")`)
		if b.value(`document.querySelector(".skip") !== null`) != true {
			t.Error("nothing skips the navigation")
		}
	})
}

// No address makes a store fail: PostgreSQL, for example, takes neither NUL nor invalid UTF-8.
func TestStrangeAddresses(t *testing.T) {
	onEachStore(t, func(t *testing.T, s *server) {
		s.submit(`{"type":"email.send","queue":"mail"}`)
		for _, text := range []string{"%00", "mail%00", "%ff%fe", "-1", "18446744073709551616", "'", strings.Repeat("x", 9000)} {
			for _, path := range []string{
				"jobs/", "jobs?queue=", "jobs?type=", "jobs?tag=a=", "jobs?correlation=", "jobs?find=", "jobs?cursor=", "queue?name=", "queue/limits?name=", "queues?after=", "queues?find=", "dead?queue=",
				"events?queue=", "workflows/", "workflows?cursor=", "rounds/", "rounds?before=", "providers?after=", "audit?by=", "audit?verb=", "audit?cursor=", "webhooks?cursor=",
			} {
				request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+s.address+"/"+path+text, nil)
				if err != nil {
					t.Fatal(err)
				}
				request.Header.Set("Accept", "text/html")
				response, err := http.DefaultClient.Do(request)
				if err != nil {
					t.Fatal(err)
				}
				page, err := io.ReadAll(response.Body)
				_ = response.Body.Close()
				if err != nil || response.StatusCode >= http.StatusInternalServerError || !strings.Contains(string(page), "<!DOCTYPE html>") {
					t.Errorf("%s%.20s: %d, %v", path, text, response.StatusCode, err)
				}
			}
		}
	})
}

func TestWithoutJavaScript(t *testing.T) {
	s := start(t, "memory:")
	s.submit(`{"type":"email.send","queue":"mail","delay":"1h"}`)
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+s.address+"/jobs", nil)
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Accept", "text/html")
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	page, err := io.ReadAll(response.Body)
	if err != nil || !strings.Contains(string(page), "email.send") {
		t.Errorf("the page needs a script: %v", err)
	}
	b := s.open()
	b.scripts(false)
	b.visit("jobs")
	b.follow(`main [data-open]`)
	b.follow(`//button[text()="Run now"]`)
	text, err := chromedp.Run(b.ctx, chromedp.Text("main"))
	if err != nil || !strings.Contains(text, "The job can run now.") {
		t.Errorf("the page is %s", text)
	}
}
