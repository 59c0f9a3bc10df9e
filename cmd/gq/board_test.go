package main

import (
	"bufio"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/goccy/go-yaml"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/gopherqueue/gq/internal/testing/cmdtest"
)

// exposed has the label values of every metric that a server or a worker exposes.
type exposed map[string]map[string][]string

func (e exposed) scrape(t *testing.T, url string) {
	t.Helper()
	web := &http.Client{Transport: &http.Transport{
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, DisableKeepAlives: true, //nolint:gosec // its own server
	}}
	response, err := web.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	parser := expfmt.NewTextParser(model.LegacyValidation)
	families, err := parser.TextToMetricFamilies(response.Body)
	if err != nil || response.StatusCode != http.StatusOK {
		t.Fatalf("%s: %d, %v", url, response.StatusCode, err)
	}
	for name, f := range families {
		names := []string{name}
		if f.GetType() == dto.MetricType_HISTOGRAM {
			names = []string{name + "_bucket", name + "_sum", name + "_count"}
		}
		for _, name := range names {
			if e[name] == nil {
				e[name] = map[string][]string{}
			}
			for _, m := range f.GetMetric() {
				for _, l := range m.GetLabel() {
					e[name][l.GetName()] = append(e[name][l.GetName()], l.GetValue())
				}
			}
			if strings.HasSuffix(name, "_bucket") {
				e[name]["le"] = []string{"+Inf"}
			}
		}
	}
}

var (
	quoted    = regexp.MustCompile(`"(?:[^"\\]|\\.)*"`)
	selector  = regexp.MustCompile(`([a-zA-Z_:][a-zA-Z0-9_:]*)\s*(\{[^}]*\})?`)
	grouping  = regexp.MustCompile(`\b(?:by|without)\s*\(([^)]*)\)`)
	matcher   = regexp.MustCompile(`([a-zA-Z_]\w*)\s*(=~|!~|!=|=)\s*("(?:[^"\\]|\\.)*")`)
	histogram = regexp.MustCompile(`_(bucket|sum|count)$`)
	window    = regexp.MustCompile(`\[[^\]]*\]`)
)

// functions and words of PromQL that the board and the rules use. An unknown word is taken for a
// metric, and so must be exposed.
var words = []string{"sum", "max", "min", "rate", "increase", "histogram_quantile", "absent", "time", "by", "without", "and", "or", "unless", "label_values"}

// faults lists what an expression uses and nobody exposes.
func (e exposed) faults(expr string) (faults []string) {
	var used []string
	text := window.ReplaceAllString(expr, "")
	groups := grouping.FindAllStringSubmatch(text, -1)
	text = grouping.ReplaceAllString(text, "")
	for _, m := range selector.FindAllStringSubmatch(text, -1) {
		name := m[1]
		if slices.Contains(words, name) {
			continue
		}
		labels, ok := e[name]
		if !ok {
			faults = append(faults, fmt.Sprintf("no metric %s", name))
			continue
		}
		used = append(used, name)
		for _, l := range matcher.FindAllStringSubmatch(m[2], -1) {
			values, ok := labels[l[1]]
			if value := strings.Trim(l[3], `"`); !ok {
				faults = append(faults, fmt.Sprintf("metric %s has no label %s", name, l[1]))
			} else if l[2] == "=" && !slices.Contains(values, value) {
				faults = append(faults, fmt.Sprintf("metric %s never has %s=%q; it has %q", name, l[1], value, values))
			}
		}
	}
	if len(used) == 0 && len(faults) == 0 {
		faults = append(faults, "no metric at all")
	}
	for _, g := range groups {
		for label := range strings.SplitSeq(g[1], ",") {
			label = strings.TrimSpace(label)
			if !slices.ContainsFunc(used, func(name string) bool { return e[name][label] != nil }) {
				faults = append(faults, fmt.Sprintf("none of %v has the label %s", used, label))
			}
		}
	}
	if strings.Count(expr, "(") != strings.Count(expr, ")") || strings.Count(quoted.ReplaceAllString(expr, ""), "{") != strings.Count(quoted.ReplaceAllString(expr, ""), "}") {
		faults = append(faults, "brackets do not match")
	}
	return faults
}

// running has the metrics of a server and a worker after jobs that completed and failed.
func running(t *testing.T) exposed {
	t.Helper()
	s := startServer(t, nil, "--store", "file:"+filepath.Join(t.TempDir(), "data"), "--backup-dir", t.TempDir(), "--matching-sinks-rounds", "queue:rounds", "--capacity", "70")
	for path, body := range map[string]string{
		"PUT /v1/pools/gpu":            `{"capacity":8}`,
		"POST /api/matching/providers": `{"id":"p","capabilities":["AI"],"models":["m"],"region":"eu","stake":10000,"attestation_expires_at":8589934591}`,
	} {
		method, path, _ := strings.Cut(path, " ")
		request, err := http.NewRequestWithContext(t.Context(), method, "http://"+s.http+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		request.Header.Set("Content-Type", "application/json")
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		response.Body.Close()
		if response.StatusCode/100 != 2 {
			t.Fatalf("%s: %d", path, response.StatusCode)
		}
	}
	work := exec.Command(cmdtest.Program(t), "work", "--addr", s.grpc, "--type", "good,bad", "--slots", "2", "--metrics", ":0", "--exec", `test "$GQ_JOB_TYPE" = good`, "--json")
	stderr, err := work.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := work.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(stderr)
	var url string
	for url == "" && lines.Scan() {
		var line struct{ URL string }
		if json.Unmarshal(lines.Bytes(), &line) == nil {
			url = line.URL
		}
	}
	drained := make(chan struct{})
	go func() {
		defer close(drained)
		for lines.Scan() { //nolint:revive // nobody reads the rest
		}
	}()
	defer func() {
		_ = work.Process.Signal(syscall.SIGTERM)
		<-drained
		_ = work.Wait()
	}()
	if !strings.HasPrefix(url, "http://127.0.0.1:") {
		t.Fatalf("the worker serves its metrics at %q", url)
	}
	for _, typ := range []string{"good", "bad"} {
		s.gq("submit", typ, "--wait")
	}
	s.gq("submit", "nobody", "--queue", "lonely")
	e := exposed{}
	for deadline := time.Now().Add(30 * time.Second); e["gq_queue_oldest_seconds"] == nil && time.Now().Before(deadline); time.Sleep(100 * time.Millisecond) {
		e.scrape(t, "http://"+s.http+"/metrics") // the age is looked for every 15 seconds
	}
	e.scrape(t, url)
	cert, key := cmdtest.NewAuthority(t, "ours").Issue("server")
	secure := startServer(t, nil, "--store", "memory:", "--auth-tls-cert", cert, "--auth-tls-key", key)
	e.scrape(t, "https://"+secure.http+"/metrics")
	e["up"] = map[string][]string{"job": {"gopherqueue"}} // Prometheus itself adds these
	for _, labels := range e {
		labels["instance"] = []string{"server:8780"}
	}
	return e
}

// Every metric and label of the Grafana board and of the alert rules is exposed by a running
// server or worker, every panel has a unit, and no metric of the workers is missing on the board.
func TestBoardAndAlerts(t *testing.T) {
	live := running(t)
	var board struct {
		UID        string
		Templating struct {
			List []struct{ Name, Type, Definition string }
		}
		Panels []struct {
			ID          int
			Type, Title string
			FieldConfig struct{ Defaults struct{ Unit string } }
			Targets     []struct{ Expr, LegendFormat, RefID string }
			GridPos     struct{ H, W, X, Y int }
		}
	}
	text, err := os.ReadFile("../../deploy/grafana/gopherqueue.json")
	if err == nil {
		err = json.Unmarshal(text, &board)
	}
	if err != nil || board.UID == "" || len(board.Panels) < 10 {
		t.Fatalf("%d panels: %v", len(board.Panels), err)
	}
	var all strings.Builder
	ids := map[int]bool{}
	for _, p := range board.Panels {
		if ids[p.ID] {
			t.Errorf("panel %q has the id of another one", p.Title)
		}
		ids[p.ID] = true
		if p.Type == "row" {
			continue
		}
		if p.FieldConfig.Defaults.Unit == "" || p.Title == "" || len(p.Targets) == 0 || p.GridPos.X+p.GridPos.W > 24 {
			t.Errorf("panel %q has the unit %q, %d targets and the place %+v", p.Title, p.FieldConfig.Defaults.Unit, len(p.Targets), p.GridPos)
		}
		for _, target := range p.Targets {
			all.WriteString(target.Expr + "\n")
			for _, fault := range live.faults(target.Expr) {
				t.Errorf("panel %q: %s: %s", p.Title, target.Expr, fault)
			}
			if strings.Contains(target.Expr, "_seconds") && p.FieldConfig.Defaults.Unit != "s" || strings.Contains(target.Expr, "_bytes") && p.FieldConfig.Defaults.Unit != "bytes" {
				t.Errorf("panel %q shows %s in %q", p.Title, target.Expr, p.FieldConfig.Defaults.Unit)
			}
		}
	}
	for _, v := range board.Templating.List {
		if v.Type == "query" && len(live.faults(strings.Replace(v.Definition, ", "+v.Name, "", 1))) > 0 {
			t.Errorf("variable %s: %s", v.Name, v.Definition)
		}
	}
	for name := range live {
		base := histogram.ReplaceAllString(name, "")
		if strings.HasPrefix(name, "gq_") && !strings.Contains(all.String(), base) {
			t.Errorf("no panel shows %s", name)
		}
	}

	pages, err := filepath.Glob("../../docs/*.md")
	if err != nil || len(pages) < 10 {
		t.Fatal(pages, err)
	}
	for _, name := range pages {
		if page, err := os.ReadFile(name); err != nil || len(live.undocumented(string(page))) > 0 {
			t.Errorf("%s names metrics or labels that nobody exposes: %q %v", name, live.undocumented(string(page)), err)
		}
	}
	for text, want := range map[string]int{
		"`gq_nodes`, `process_*`, `gq_refused_total{call,reason}` and `gq_queue_depth{queue=\"lonely\"}`": 0, "| `gq_worker_jobs_running`, `_unsettled` |": 0,
		"`gq_nodes` and `gq_nonsense`": 1, "`gq_refused_total{cause}`": 1, "`gq_queue_depth{queue=\"nobody\"}`": 1, "`process_nonsense`": 1, "| `gq_worker_jobs_running`, `_nonsense` |": 1,
	} {
		if got := live.undocumented(text); len(got) != want {
			t.Errorf("the check itself finds %q in %s", got, text)
		}
	}
	var rules struct {
		Groups []struct {
			Name  string
			Rules []struct {
				Alert, Expr, For    string
				Labels, Annotations map[string]string
			}
		}
	}
	text, err = os.ReadFile("../../deploy/prometheus/alerts.yml")
	if err == nil {
		err = yaml.UnmarshalWithOptions(text, &rules, yaml.Strict())
	}
	if err != nil || len(rules.Groups) == 0 || len(rules.Groups[0].Rules) < 5 {
		t.Fatalf("%+v: %v", rules, err)
	}
	seen := map[string]bool{}
	for _, g := range rules.Groups {
		for _, r := range g.Rules {
			if r.Alert == "" || seen[r.Alert] || r.Labels["severity"] == "" || r.Annotations["summary"] == "" || r.Annotations["description"] == "" {
				t.Errorf("alert %q lacks a name of its own, a severity, a summary or a description", r.Alert)
			}
			seen[r.Alert] = true
			if _, err := time.ParseDuration(r.For); r.For != "" && err != nil {
				t.Errorf("alert %s: %v", r.Alert, err)
			}
			for _, fault := range live.faults(r.Expr) {
				t.Errorf("alert %s: %s: %s", r.Alert, r.Expr, fault)
			}
			for _, fault := range commandFaults(r.Annotations["description"]) {
				t.Errorf("alert %s: %s", r.Alert, fault)
			}
			if !strings.ContainsAny(quoted.ReplaceAllString(r.Expr, ""), "<>=") && !strings.HasPrefix(r.Expr, "absent(") {
				t.Errorf("alert %s compares nothing: %s", r.Alert, r.Expr)
			}
		}
	}
}

var namedCommand = regexp.MustCompile(`\bgq ([^.:;]+)`)

// commandFaults lists the commands that a text names and that gq does not have.
func commandFaults(text string) (faults []string) {
	root := newRoot(process{getenv: os.Getenv, stdin: strings.NewReader(""), stdout: io.Discard, stderr: io.Discard})
	for _, m := range namedCommand.FindAllStringSubmatch(text, -1) {
		c, rest, err := root.Find(strings.Fields(m[1]))
		if err != nil || c.HasSubCommands() {
			faults = append(faults, fmt.Sprintf("no command gq %s", m[1]))
			continue
		}
		for _, word := range rest {
			if name, ok := strings.CutPrefix(word, "--"); ok && c.Flags().Lookup(name) == nil {
				faults = append(faults, fmt.Sprintf("%s has no flag %s", c.CommandPath(), word))
			}
		}
	}
	return faults
}

// The check of the board finds what it is for.
func TestBoardFaults(t *testing.T) {
	e := exposed{"gq_a": {"queue": {"q"}}, "gq_b_bucket": {"le": {"+Inf"}}}
	for expr, want := range map[string]string{
		`sum by (queue) (rate(gq_a{queue="q"}[5m]))`:                   "",
		`histogram_quantile(0.9, sum by (le) (rate(gq_b_bucket[5m])))`: "",
		`max(gq_c)`:                "no metric gq_c",
		`gq_a{type="x"}`:           "metric gq_a has no label type",
		`gq_a{queue="z"}`:          `metric gq_a never has queue="z"; it has ["q"]`,
		`gq_a{queue=~"z.*"}`:       "",
		`sum by (state) (gq_a)`:    "none of [gq_a] has the label state",
		`sum(gq_a`:                 "brackets do not match",
		`sum(nonsense_fn(gq_a))`:   "no metric nonsense_fn",
		`1 + 1`:                    "no metric at all",
		`gq_a > 5 and gq_b_bucket`: "",
	} {
		if got := strings.Join(e.faults(expr), "; "); got != want {
			t.Errorf("%s: got %q, want %q", expr, got, want)
		}
	}
	for text, want := range map[string]string{
		"Jobs wait. gq job explain names the reason; see gq dlq list.": "",
		"gq explain names the reason.":                                 "no command gq explain names the reason",
		"rows wait: gq inbox.":                                         "no command gq inbox",
		"gq job list --stat FAILED shows them.":                        "gq job list has no flag --stat",
	} {
		if got := strings.Join(commandFaults(text), "; "); got != want {
			t.Errorf("%s: got %q, want %q", text, got, want)
		}
	}
}
