package browsertest

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
)

// scripts turns scripts on or off.
func (b *tab) scripts(on bool) {
	b.Helper()
	if err := call(b.ctx, emulation.SetScriptExecutionDisabled, emulation.SetScriptExecutionDisabledParams{Value: !on}); err != nil {
		b.Fatal(err)
	}
}

// scheme makes the browser prefer light or dark.
func (b *tab) scheme(name string) {
	b.Helper()
	if err := call(b.ctx, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
		Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: name}},
	}); err != nil {
		b.Fatal(err)
	}
}

// scene fills a server with something of everything, and returns its pages.
func scene(s *server) map[string]string {
	s.Helper()
	submit := func(n int, body string) (id string) {
		for range n {
			id = s.submit(body)
		}
		return id
	}
	done := func(queue string) {
		s.call("POST", "/v1/leases/"+s.claim(queue)+"/complete", `{"result":{"sent":true}}`)
	}
	large := `{"name":"import of 500 files","jobs":[{"ref":"split","type":"import.split","queue":"import"}`
	for i := range 500 {
		large += fmt.Sprintf(`,{"ref":"part-%d","type":"import.%s","queue":"import","needs":[{"ref":"split"}]}`, i, []string{"parse", "resize", "index"}[i%3])
	}
	largeID := s.call("POST", "/v1/workflows", large+`,{"ref":"join","type":"import.join","queue":"import","final":"EITHER"}]}`)["id"].(string)
	submit(9, `{"type":"email.send","queue":"mail","payload":{"to":"ada@example.org"},"tags":{"tenant":"acme"},"correlation_id":"order-1"}`)
	for range 6 {
		done("mail")
	}
	dead := ""
	for i := range 4 {
		kind, message := "card.charge", fmt.Sprintf("gateway timeout after %d ms", 3000+i)
		if i == 3 {
			kind, message = "invoice.print", "the printer is on fire"
		}
		dead = s.submit(fmt.Sprintf(`{"type":%q,"queue":"billing","policy":{"max_attempts":1}}`, kind))
		s.call("POST", "/v1/leases/"+s.claim("billing")+"/fail", fmt.Sprintf(`{"message":%q,"code":"unavailable"}`, message))
	}
	submit(2, `{"type":"report.build","queue":"reports"}`)
	delayed := s.submit(`{"type":"report.build","queue":"reports","delay":"2h","priority":"HIGH"}`)
	s.call("PUT", "/v1/queues/reports", `{"paused":true,"max_running":4,"max_depth":1000}`)
	running := s.submit(`{"type":"video.encode","queue":"video","payload":{"file":"talk.mov"},"tags":{"tenant":"acme","kind":"talk"},"correlation_id":"upload-7"}`)
	lease := s.claim("video")
	s.call("POST", "/v1/leases/"+lease+"/heartbeat", `{"progress":0.62,"note":"pass 2 of 3","checkpoint":{"frame":4711}}`)
	s.call("PUT", "/v1/pools/gpu", `{"capacity":8}`)
	s.call("PUT", "/v1/queues/render", `{"pool":"gpu"}`)
	s.submit(`{"type":"scene.render","queue":"render","cost_units":3}`)
	s.claim("render")
	// The jobs, more than a provider may hold, wait when it comes: a round that assigns some refuses the others. Rounds that
	// assign nothing are not recorded.
	for range 20 {
		s.call("POST", "/api/matching/jobs", `{"kind":"AI","spec":{"model":"small"}}`)
	}
	s.call("POST", "/api/matching/providers", `{"id":"provider-1","capabilities":["AI"],"models":["small","large"],"region":"eu","stake":1000,"attestation_expires_at":4000000000}`)
	round := refusing(s)
	deliveries(s)
	flowID := s.call("POST", "/v1/workflows", flow)["id"].(string)
	s.call("POST", "/v1/leases/"+s.claim("orders")+"/complete", `{}`)
	s.call("PUT", "/v1/schedules/nightly-report", `{"cron":"30 2 * * *","time_zone":"Europe/Berlin","job":{"type":"report.build","queue":"reports"}}`)
	s.call("PUT", "/v1/schedules/cleanup", `{"every":"15m","job":{"type":"files.clean","queue":"default"}}`)
	ship := ""
	for _, j := range s.call("GET", "/v1/workflows/"+flowID, "")["jobs"].([]any) {
		if job := j.(map[string]any); job["ref"] == "ship" {
			ship = job["id"].(string)
		}
	}
	return map[string]string{
		"job-waiting": "jobs/" + ship,
		"overview":    "", "overview-month": "?range=month", "queue-day": "queue?name=mail&range=day", "queue-held": "queue?name=render", "queues": "queues", "queue": "queue?name=mail", "queue-paused": "queue?name=reports", "limits": "queue/limits?name=reports",
		"jobs": "jobs", "jobs-filtered": "jobs?state=dead_letter&queue=billing", "jobs-none": "jobs?type=none", "jobs-wrong": "jobs?state=sleepy",
		"job-running": "jobs/" + running, "job-dead": "jobs/" + dead, "job-delayed": "jobs/" + delayed, "job-payload": "jobs/" + running + "?show=payload",
		"dead": "dead", "workflows": "workflows", "workflow": "workflows/" + flowID, "workflow-large": "workflows/" + largeID,
		"webhooks": "webhooks", "pools": "pools", "providers": "providers", "rounds": "rounds", "round": fmt.Sprintf("rounds/%v", round), "tokens": "tokens", "audit": "audit", "about": "about",
		"schedules": "schedules", "workers": "workers", "events": "events", "not-found": "nothing", "signin": "signin",
	}
}

// work keeps a server busy for a while: jobs of several queues, of which some fail.
func work(s *server, long time.Duration) {
	s.Helper()
	s.call("PUT", "/v1/queues/thumbnails", `{"max_running":8}`)
	for n, until := 0, time.Now().Add(long); time.Now().Before(until); n++ {
		some := 8 + 7*math.Sin(float64(n)/11)
		for i := range int(some) {
			queue := []string{"thumbnails", "mail", "thumbnails", "search"}[(n+i)%4]
			s.submit(fmt.Sprintf(`{"type":"%s.run","queue":%q,"policy":{"max_attempts":1}}`, queue, queue))
			lease := s.claim(queue)
			time.Sleep(time.Duration(5+(n*i)%60) * time.Millisecond)
			if (n+i)%23 == 0 {
				s.call("POST", "/v1/leases/"+lease+"/fail", `{"message":"connection refused","code":"unavailable"}`)
			} else {
				s.call("POST", "/v1/leases/"+lease+"/complete", `{}`)
			}
		}
		time.Sleep(700 * time.Millisecond)
	}
}

// deliveries lets a receiver answer webhooks: one is delivered, one given up, one tried again.
func deliveries(s *server) {
	s.Helper()
	receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		status, _ := strconv.Atoi(r.URL.Path[1:])
		w.WriteHeader(status)
	}))
	s.Cleanup(receiver.Close)
	for _, status := range []int{http.StatusOK, http.StatusGone, http.StatusServiceUnavailable} {
		s.submit(fmt.Sprintf(`{"type":"order.notify","queue":"callbacks","callback_url":"%s/%d"}`, receiver.URL, status))
		s.call("POST", "/v1/leases/"+s.claim("callbacks")+"/complete", `{}`)
	}
	for until := time.Now().Add(patience); time.Now().Before(until); time.Sleep(50 * time.Millisecond) {
		states := make(map[string]bool)
		for _, d := range s.call("GET", "/v1/webhooks/deliveries", "")["deliveries"].([]any) {
			states[d.(map[string]any)["state"].(string)] = true
		}
		if states["delivered"] && states["dead"] {
			return
		}
	}
	s.Fatal("nothing was delivered")
}

// refusing waits for a round of matching that refused jobs and returns its number.
func refusing(s *server) float64 {
	s.Helper()
	for until := time.Now().Add(patience); time.Now().Before(until); time.Sleep(50 * time.Millisecond) {
		for _, r := range s.call("GET", "/api/matching/rounds", "")["rounds"].([]any) {
			if round := r.(map[string]any); round["requeued"].(float64) > 0 {
				return round["round"].(float64)
			}
		}
	}
	s.Fatal("no round refused a job")
	return 0
}

// TestPages checks every page for what makes it hard to use, and takes its picture.
func TestPages(t *testing.T) {
	source, err := os.ReadFile("node_modules/axe-core/axe.min.js")
	if err != nil {
		t.Fatalf("%v; scripts/install-chromium installs it", err)
	}
	onEachStore(t, func(t *testing.T, s *server) {
		work(s, *busy)
		checkPages(s, scene(s), looks, string(source), func(*tab) {})
	})
	if testing.Short() {
		return
	}
	t.Run("tokens", func(t *testing.T) {
		s := start(t, "memory:", "the-token-of-an-administrator")
		s.submit(`{"type":"email.send","queue":"mail"}`)
		s.submit(`{"type":"payroll.run","queue":"payroll"}`)
		reader := s.call("POST", "/v1/tokens", `{"name":"reader","grants":[{"scopes":["read"],"queues":["mail"]}]}`)["token"].(string)
		s.call("POST", "/v1/tokens", `{"name":"workers of mail","grants":[{"scopes":["work"],"queues":["mail"]},{"scopes":["submit","read"],"queues":["mail.*"]}]}`)
		checkPages(s, map[string]string{"signin-form": "signin"}, looks, string(source), func(*tab) {})
		checkPages(s, map[string]string{"tokens-listed": "tokens"}, looks, string(source), func(b *tab) { signIn(b, s.token) })
		checkPages(s, map[string]string{"overview-reader": "", "queue-reader": "queue?name=mail", "queue-foreign": "queue?name=payroll"}, looks, string(source), func(b *tab) { signIn(b, reader) })
	})
}

// TestStatesOfPages looks at pages with nothing to show, with one job, and with names as long as they may be, and at
// what opens on a click.
func TestStatesOfPages(t *testing.T) {
	if testing.Short() {
		t.Skip("TestPages looks at the main pages")
	}
	source, err := os.ReadFile("node_modules/axe-core/axe.min.js")
	if err != nil {
		t.Fatalf("%v; scripts/install-chromium installs it", err)
	}
	s := start(t, "memory:")
	empty := make(map[string]string)
	for _, name := range []string{"", "queues", "jobs", "dead", "workflows", "schedules", "workers", "events", "webhooks", "pools", "providers", "rounds", "audit"} {
		empty["empty-"+cmp.Or(name, "overview")] = name
	}
	checkPages(s, empty, looks, string(source), func(*tab) {})
	s.submit(`{"type":"hello","queue":"default"}`)
	checkPages(s, map[string]string{"one-overview": "", "one-queue": "queue?name=default"}, looks, string(source), func(*tab) {})
	checkPages(s, longNames(s), looks, string(source), func(*tab) {})
	open := func(name, path string, act func(b *tab)) {
		if !regexp.MustCompile(*only).MatchString(name) {
			return
		}
		b := s.open()
		defer b.close()
		for _, l := range looks {
			b.scheme(l.scheme)
			b.do(chromedp.EmulateViewport(l.width, l.height))
			b.visit(path)
			act(b)
			b.shoot(name+"-"+l.name, false)
			rules := l.rules
			if l.name == "phone" {
				rules = `["scrollable-region-focusable"]` // what is open covers targets below it
			}
			for _, finding := range axe(b, string(source), rules) {
				t.Errorf("%s, %s: %s", name, l.name, finding)
			}
		}
	}
	open("open-help", "", func(b *tab) {
		b.do(chromedp.KeyEvent("?"))
		b.until(`document.getElementById("help").open`)
	})
	open("open-more", "", func(b *tab) { b.do(chromedp.Click(`.more summary`)) })
	open("open-cancel", "jobs/"+s.submit(`{"type":"hello","queue":"default"}`), func(b *tab) { b.do(chromedp.Click(`//summary[contains(., "Cancel")]`)) })
	open("open-bulk", "jobs?queue=default", func(b *tab) { b.follow(`form.bulk button`) })
	open("open-limits", "queue/limits?name=default", func(b *tab) {
		b.do(chromedp.SetValue(`input[name=max_running]`, "2"))
		b.follow(`button[name=preview]`)
	})
}

// longNames makes jobs with names as long as they may be, and returns pages that show them.
func longNames(s *server) map[string]string {
	s.Helper()
	long := func(seed string) string { return strings.Repeat(seed, 256/len(seed)) }
	queue := long("customer-emails.")
	submit := func() string {
		return s.submit(fmt.Sprintf(`{"type":%q,"queue":%q,"correlation_id":%q,"idempotency_key":"%.230s%d","limit_key":%q,"tags":{"tenant":%q},"policy":{"max_attempts":1}}`,
			long("SendAnEmail"), queue, long("c0ffee"), long("k"), time.Now().UnixNano(), long("limit"), strings.Repeat("a long value ", 60)))
	}
	claim := func() string {
		jobs := s.call("POST", "/v1/claim", fmt.Sprintf(`{"worker":%q,"queues":[%q]}`, long("worker-of-mail-"), queue))["jobs"].([]any)
		return jobs[0].(map[string]any)["lease"].(map[string]any)["id"].(string)
	}
	dead := submit()
	s.call("POST", "/v1/leases/"+claim()+"/fail", fmt.Sprintf(`{"message":%q,"code":%q}`, strings.Repeat("goroutine 1 [running]: main.main() /src/main.go:12 ", 60), long("code")))
	running := submit()
	s.call("POST", "/v1/leases/"+claim()+"/heartbeat", fmt.Sprintf(`{"progress":0.5,"note":%q}`, strings.Repeat("a note ", 100)))
	submit()
	at := url.QueryEscape(queue)
	return map[string]string{
		"long-overview": "", "long-queues": "queues", "long-queue": "queue?name=" + at, "long-jobs": "jobs", "long-jobs-filtered": "jobs?queue=" + at + "&state=dead_letter",
		"long-job": "jobs/" + running, "long-job-dead": "jobs/" + dead, "long-dead": "dead", "long-events": "events", "long-workers": "workers", "long-limits": "queue/limits?name=" + at,
	}
}

func signIn(b *tab, token string) {
	b.Helper()
	b.visit("signin")
	b.do(chromedp.SendKeys(`input[name=token]`, token))
	b.follow(`main button`)
}

// checkPages checks pages in each look and takes pictures of them.
func checkPages(s *server, pages map[string]string, looks []look, source string, prepare func(*tab)) {
	s.Helper()
	wanted := regexp.MustCompile(*only)
	for _, name := range slices.Sorted(maps.Keys(pages)) {
		if !wanted.MatchString(name) {
			continue
		}
		if testing.Short() && !slices.Contains([]string{"overview", "job-waiting", "dead"}, name) {
			continue
		}
		b := s.open()
		b.expect("Failed to load resource") // the pages that are not there or not possible
		prepare(b)
		for _, l := range looks {
			b.scheme(l.scheme)
			b.do(chromedp.EmulateViewport(l.width, l.height))
			b.visit(pages[name])
			b.shoot(name+"-"+l.name, true)
			if file := pictures[name]; l.name == "light" && file != "" {
				b.do(chromedp.EmulateViewport(1280, 760))
				b.visit(pages[name])
				b.live()
				b.shoot(file, false)
				b.do(chromedp.EmulateViewport(l.width, l.height))
			}
			if b.value(`document.documentElement.scrollWidth > innerWidth`) == true {
				s.Errorf("%s, %s: wider than the window", name, l.name)
			}
			for _, finding := range axe(b, source, l.rules) {
				s.Errorf("%s, %s: %s", name, l.name, finding)
			}
		}
		b.close()
	}
}

// pictures are the screenshots of the README.
var pictures = map[string]string{"overview": "readme-overview", "job-waiting": "readme-job"}

// look is how a page is looked at, and the rules that may find something new there: as JSON, or
// null for all.
type look struct {
	name, scheme  string
	width, height int64
	rules         string
}

var looks = []look{{"light", "light", 1280, 900, "null"}, {"dark", "dark", 1280, 900, `["color-contrast"]`}, {"phone", "light", 390, 844, `["scrollable-region-focusable", "target-size"]`}}

const serious = `axe.run(document, {resultTypes: ["violations"], ...(rules ? {runOnly: {type: "rule", values: rules}} : {})}).then(r => r.violations
	.filter(v => v.impact === "serious" || v.impact === "critical")
	.map(v => v.id + ": " + v.help + ": " + v.nodes.slice(0, 3).map(n => n.html.slice(0, 200) + " " + (n.any[0]?.message || "")).join(" | ")))`

// axe returns the serious findings of the accessibility checker.
func axe(b *tab, source, rules string) []string {
	b.Helper()
	b.do(chromedp.Evaluate[chromedp.Void](source))
	findings, err := chromedp.Run(b.ctx, chromedp.Evaluate[[]string]("(rules => "+serious+")("+rules+")", func(p *runtime.EvaluateParams) { p.AwaitPromise = new(true) }))
	if err != nil {
		b.Fatal(err)
	}
	return findings
}
