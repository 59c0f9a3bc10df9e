package main

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/internal/testing/cmdtest"
	"github.com/gopherqueue/gq/internal/testing/pgtest"
)

var (
	aggregator = regexp.MustCompile(`([a-z_]+)\s*(?:(?:by|without)\s*\([^)]*\)\s*)?$`)
	exprLine   = regexp.MustCompile(`(?m)^\s*expr: (.*)$`)
)

// addedUp returns the metrics of an expression that are added up over the servers, or stand for
// each of them alone, of those that every server reports alike.
func addedUp(expr string, shared map[string]bool) (faults []string) {
	for _, at := range selector.FindAllStringSubmatchIndex(expr, -1) {
		name := expr[at[2]:at[3]]
		if !shared[histogram.ReplaceAllString(name, "")] {
			continue
		}
		around, depth := "", 0
		for i := at[2] - 1; i >= 0 && around == ""; i-- {
			switch expr[i] {
			case ')':
				depth++
			case '(':
				if depth--; depth >= 0 {
					continue
				}
				depth = 0
				if m := aggregator.FindStringSubmatch(expr[:i]); m != nil && slices.Contains([]string{"sum", "max", "min", "absent", "count"}, m[1]) {
					around = m[1]
				}
			}
		}
		if around != "max" && around != "min" && around != "absent" {
			faults = append(faults, fmt.Sprintf("%s is the same on every server, and stands in %q", name, around))
		}
	}
	return faults
}

// sharedMetrics are reported alike by every server on a database.
var sharedMetrics = []string{
	"gq_events_total", "gq_inbox_oldest_seconds", "gq_inbox_refused", "gq_inbox_waiting", "gq_jobs", "gq_leases", "gq_limit_keys",
	"gq_matching_eligible_providers", "gq_matching_leases", "gq_matching_provider_health_ratio", "gq_matching_provider_leases",
	"gq_matching_providers", "gq_matching_waiting_jobs", "gq_nodes", "gq_pool_capacity_units", "gq_pool_used_units", "gq_queue_depth",
	"gq_queue_oldest_seconds", "gq_queue_unserved_jobs", "gq_retries_total", "gq_schedule_lag_seconds", "gq_schedules",
	"gq_signal_timeouts_total", "gq_signals_waiting", "gq_start_deadlines_missed_total", "gq_webhooks_outstanding", "gq_workers", "gq_workflows",
}

// ownMetrics are those of one server or worker.
var ownMetrics = regexp.MustCompile(`^gq_(attempts_total|batch_size|call_seconds|claim_latency_seconds|claims_key_rate_limited_total|inbox_taken_in_total|` +
	`matching_(assignments_total|rounds?_[a-z]+|sink_[a-z_]+)|refused_total|run_seconds|schedule_(fired|skipped)_total|signals_received_total|` +
	`submissions_total|unique_collisions_total|webhooks_(delivered|failed|dead)_total|store_[a-z_]+|build_info|backup_[a-z_]+|certificate_[a-z_]+|worker_[a-z_]+)$`)

// What every server on a database reports alike is never added up, by the alert rules and by the
// board. Every metric is in one of the two lists, and what changes on a server that did nothing is
// in that of the shared ones.
func TestBoardWithTwoServers(t *testing.T) {
	t.Parallel()
	url := pgtest.Database(t)
	busy, idle := startServer(t, nil, "--store", url), startServer(t, nil, "--store", url)
	before := idle.Metrics()
	busy.gq("submit", "t", "--queue", "lonely", "--max-attempts", "1")
	busy.gq("submit", "dead", "--max-attempts", "1")
	c := busy.client()
	jobs, err := c.Claim(t.Context(), gq.ClaimRequest{Worker: "w", Types: []string{"dead"}, N: 1})
	if err != nil || len(jobs) != 1 {
		t.Fatal(jobs, err)
	}
	if _, err := c.Fail(t.Context(), jobs[0].State.Lease.Ref(), gq.Failure{Category: gq.CategoryTemporary}); err != nil {
		t.Fatal(err)
	}
	const dead = `gq_events_total{type="job.dead_lettered"}`
	cmdtest.WaitFor(t, "both servers to see the dead letter", func() bool { return busy.Metrics()[dead] == "1" && idle.Metrics()[dead] == "1" })
	shared := map[string]bool{}
	for _, name := range sharedMetrics {
		shared[name] = true
	}
	listed := func(name string) {
		name = histogram.ReplaceAllString(name, "")
		if strings.HasPrefix(name, "gq_") && shared[name] == ownMetrics.MatchString(name) {
			t.Errorf("%s must be in one of the lists: is it the same on every server of a database?", name)
		}
	}
	moved := map[string]bool{}
	for series, value := range idle.Metrics() {
		name, _, _ := strings.Cut(series, "{")
		listed(name)
		n, err := strconv.ParseFloat(value, 64)
		if !strings.HasPrefix(name, "gq_") || strings.HasPrefix(name, "gq_store_") || err != nil || n == 0 || before[series] == value {
			continue
		}
		if moved[name] = true; !shared[name] {
			t.Errorf("%s changes on a server that did nothing", name)
		}
	}
	for _, name := range []string{"gq_events_total", "gq_queue_depth", "gq_jobs"} {
		if !moved[name] {
			t.Errorf("%s is not the same on both servers: %v", name, moved)
		}
	}
	for series := range busy.Metrics() {
		name, _, _ := strings.Cut(series, "{")
		listed(name)
	}
	for _, expr := range expressions(t) {
		for _, m := range selector.FindAllStringSubmatch(expr, -1) {
			listed(m[1])
		}
	}
	for _, expr := range expressions(t) {
		for _, fault := range addedUp(expr, shared) {
			t.Errorf("%s: %s", expr, fault)
		}
	}
	if got := addedUp(`sum by (type) (rate(gq_events_total[5m])) > max(gq_jobs) + sum(max by (queue) (gq_jobs)) + gq_jobs`, shared); len(got) != 2 {
		t.Errorf("the check itself finds %q", got)
	}
	if got := addedUp(`sum(gq_pool_used_units) / max(gq_pool_capacity_units) + sum(gq_schedule_lag_seconds) + sum(rate(gq_submissions_total[5m]))`, shared); len(got) != 2 {
		t.Errorf("the check itself finds %q", got)
	}
}

// expressions returns those of the alert rules and of the board.
func expressions(t *testing.T) (all []string) {
	t.Helper()
	rules, err := os.ReadFile("../../deploy/prometheus/alerts.yml")
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range exprLine.FindAllStringSubmatch(string(rules), -1) {
		all = append(all, m[1])
	}
	text, err := os.ReadFile("../../deploy/grafana/gopherqueue.json")
	if err != nil {
		t.Fatal(err)
	}
	var board struct {
		Panels []struct{ Targets []struct{ Expr string } }
	}
	if err := json.Unmarshal(text, &board); err != nil {
		t.Fatal(err)
	}
	for _, p := range board.Panels {
		for _, target := range p.Targets {
			all = append(all, target.Expr)
		}
	}
	if len(all) < 60 {
		t.Fatalf("only %d expressions", len(all))
	}
	return all
}

var (
	namedMetric  = regexp.MustCompile(`\b((?:gq|process|go)_[a-z0-9_]*[a-z0-9*])(\{[^}` + "`" + `]*\})?`)
	shortMetric  = regexp.MustCompile("`(_[a-z_]+)`")
	namedLabel   = regexp.MustCompile(`([a-z_]+)(?:="([^"]*)")?`)
	notMetrics   = []string{"gq_schema", "gq_matching", "gq_scheduler"}
	metricTables = regexp.MustCompile(`(?m)^\|.*$`)
)

// named returns the labels of a metric that a text names, of a histogram too.
func (e exposed) named(name string) map[string][]string {
	if labels := e[name]; labels != nil {
		return labels
	}
	return e[name+"_bucket"]
}

// undocumented lists the metrics and labels that a page names and that nobody exposes. In a row of a
// table, _b after gq_x_a is gq_x_b.
func (e exposed) undocumented(page string) (faults []string) {
	for _, m := range namedMetric.FindAllStringSubmatch(page, -1) {
		prefix, any := strings.CutSuffix(m[1], "*")
		labels := e.named(m[1])
		switch {
		case slices.Contains(notMetrics, m[1]):
		case any && slices.ContainsFunc(slices.Collect(maps.Keys(e)), func(name string) bool { return strings.HasPrefix(name, prefix) }):
		case labels == nil:
			faults = append(faults, m[1])
		default:
			for _, l := range namedLabel.FindAllStringSubmatch(m[2], -1) {
				if values, ok := labels[l[1]]; !ok || l[2] != "" && !slices.Contains(values, l[2]) {
					faults = append(faults, m[1]+"{"+l[0]+"}")
				}
			}
		}
	}
	for _, row := range metricTables.FindAllString(page, -1) {
		first := namedMetric.FindStringSubmatch(row)
		if first == nil {
			continue
		}
		for _, m := range shortMetric.FindAllStringSubmatch(row, -1) {
			found := false
			for i, c := range first[1] {
				found = found || c == '_' && e.named(first[1][:i]+m[1]) != nil
			}
			if !found {
				faults = append(faults, m[1]+" after "+first[1])
			}
		}
	}
	return faults
}

// foreignFlags are flags of other programs that the texts name.
var foreignFlags = []string{"compose", "rm", "profile", "base-port", "target", "help", "retry-for", "a-b-c", "quick", "settings", "env-file", "cacert", "cert"}

var (
	flagged    = regexp.MustCompile(`(?:^|[\s` + "`" + `(\[|"'])--([a-z][a-z0-9-]+)`)
	commanded  = regexp.MustCompile(`(?m)(?:^\s*|` + "`" + `)gq ((?:[a-z][a-z-]*[ \t]+)+)([^\n` + "`" + `|;#&()]*)`)
	subcommand = regexp.MustCompile(`^[a-z][a-z-]*$`)
	inQuotes   = regexp.MustCompile(`'[^']*'|"[^"]*"`)
)

// flagFaults lists the flags that a text names and that no command has, those that a command
// named before them does not have, and the commands of a group that do not exist.
func flagFaults(root *cobra.Command, known map[string]bool, text string) (faults []string) {
	for _, m := range flagged.FindAllStringSubmatch(text, -1) {
		if !known[m[1]] {
			faults = append(faults, "no command has --"+m[1])
		}
	}
	for _, m := range commanded.FindAllStringSubmatch(text, -1) {
		c, _, err := root.Find(strings.Fields(m[1]))
		if err != nil || c == root {
			continue // prose
		}
		if next := strings.Fields(m[1] + m[2]); c.HasSubCommands() && !c.Runnable() && len(next) > strings.Count(c.CommandPath(), " ") {
			if word := next[strings.Count(c.CommandPath(), " ")]; subcommand.MatchString(word) && !slices.ContainsFunc(c.Commands(), func(sub *cobra.Command) bool { return sub.Name() == word || sub.HasAlias(word) }) {
				faults = append(faults, fmt.Sprintf("%s has no command %s", c.CommandPath(), word))
			}
		}
		rest, _, _ := strings.Cut(" "+inQuotes.ReplaceAllString(m[2], "")+" ", " -- ")
		for _, f := range flagged.FindAllStringSubmatch(rest, -1) {
			if c.Flags().Lookup(f[1]) == nil && c.InheritedFlags().Lookup(f[1]) == nil && f[1] != "help" {
				faults = append(faults, fmt.Sprintf("%s has no --%s", c.CommandPath(), f[1]))
			}
		}
	}
	return faults
}

// Every flag and command that the documents, the README and the help name exists.
func TestFlagsInTexts(t *testing.T) {
	root := newRoot(process{getenv: os.Getenv, stdin: strings.NewReader(""), stdout: io.Discard, stderr: io.Discard})
	known := map[string]bool{}
	for _, name := range foreignFlags {
		known[name] = true
	}
	texts := map[string]string{}
	var visit func(c *cobra.Command)
	visit = func(c *cobra.Command) {
		if c.Name() == "completion" { // its texts are cobra's
			return
		}
		text := c.Long + "\n" + c.Example
		c.Flags().VisitAll(func(f *pflag.Flag) {
			known[f.Name] = true
			text += "\n" + f.Usage
		})
		texts["the help of "+c.CommandPath()] = text
		for _, sub := range c.Commands() {
			visit(sub)
		}
	}
	visit(root)
	for _, pattern := range []string{"../../*.md", "../../docs/*.md"} {
		files, err := filepath.Glob(pattern)
		if err != nil || len(files) == 0 {
			t.Fatalf("%s: %v", pattern, err)
		}
		for _, name := range files {
			text, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			texts[name] = string(text)
		}
	}
	for name, text := range texts {
		if filepath.Base(name) == "conformance.md" || filepath.Base(name) == "CONTRIBUTING.md" { // of tests
			continue
		}
		for _, fault := range flagFaults(root, known, text) {
			t.Errorf("%s: %s", name, fault)
		}
	}
	for text, want := range map[string]string{
		"`gq doctor --json` and `--store`":        "",
		"run gq doctor, then others --store":      "",
		"gq doctor --stroe x":                     "no command has --stroe; gq doctor has no --stroe",
		"run `gq doctor --store file:x` now":      "gq doctor has no --store",
		"backups that `gq backup --server` takes": "gq backup has no --server",
		"with `gq job get` or `gq job show`":      "gq job has no command show",
		"  gq job show ID\n  gq job ID":           "gq job has no command show",
		"gq work --exec 'grep --color' --type t":  "",
		"the flag (`--no-such-flag`) of a server": "no command has --no-such-flag",
	} {
		if got := strings.Join(flagFaults(root, known, strings.ReplaceAll(text, "grep --color", "grep -c")), "; "); got != want {
			t.Errorf("%s: got %q, want %q", text, got, want)
		}
	}
}
