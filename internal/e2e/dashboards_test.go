package e2e_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"html"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/client"
	"github.com/gopherqueue/gq/internal/testing/pgtest"
)

var (
	dashboards      = flag.Int("dashboards", 100, "open pages of BenchmarkDashboards")
	dashboardsStore = flag.String("dashboards-store", "file", "its store: file or postgres")
	dashboardsPairs = flag.Int("dashboards-pairs", 4, "measurements with and without open pages")
	dashboardsFor   = flag.Duration("dashboards-for", 10*time.Second, "how long each of them takes")
	dashboardsMost  = flag.Float64("dashboards-most", 0, "fail if open pages cost more percent of the rate; 0 never fails")
)

// Load of BenchmarkDashboards: the batched row of gq bench, over gRPC.
const (
	dashboardCallers = 16
	dashboardBatch   = 100
	dashboardWarm    = 8 * time.Second // of load before each measurement: a store that was idle is faster for some seconds
)

// openPage is a page of the dashboard in a browser. It does what app.js does: it follows the
// stream of changes and fetches the page again after those that concern it.
type openPage struct {
	base, path string
	client     *http.Client
	watch      string        // of the page
	due        chan struct{} // the page is out of date
	updates    atomic.Int64
	bytes      atomic.Int64
	following  chan struct{} // closed once the server has said hello
	updated    chan struct{} // closed with the first update
}

var (
	watchedBy = regexp.MustCompile(`<html [^>]*data-watch="([^"]*)"`)
	shortest  = time.Second // between two updates, as in app.js
)

func newOpenPage(base, path string) *openPage {
	return &openPage{
		base: base, path: path, client: &http.Client{Transport: &http.Transport{}},
		due: make(chan struct{}, 1), following: make(chan struct{}), updated: make(chan struct{}),
	}
}

// get fetches the page and returns how long that took.
func (p *openPage) get(ctx context.Context, update bool) (body string, took time.Duration, err error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, p.base+p.path, http.NoBody)
	if err != nil {
		return "", 0, err
	}
	r.Header.Set("Accept", "text/html")
	if update {
		r.Header.Set("Gq-Reload", "1")
	}
	began := time.Now()
	response, err := p.client.Do(r)
	if err != nil {
		return "", 0, err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %d %s", p.path, response.StatusCode, text)
	}
	p.bytes.Add(int64(len(text)))
	return string(text), time.Since(began), err
}

// run keeps the page open until the context ends.
func (p *openPage) run(ctx context.Context) error {
	defer p.client.CloseIdleConnections()
	page, _, err := p.get(ctx, false)
	if err != nil {
		return err
	}
	found := watchedBy.FindStringSubmatch(page)
	if found == nil {
		return fmt.Errorf("%s follows nothing", p.path)
	}
	p.watch = html.UnescapeString(found[1])
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- p.follow(ctx) }()
	defer func() { <-ended }()
	var last time.Time
	took := time.Duration(0)
	for {
		select {
		case err := <-ended:
			ended <- nil
			return err
		case <-p.due:
		}
		if rest(ctx, time.Until(last.Add(max(shortest, 10*took)))); ctx.Err() != nil {
			return ctx.Err()
		}
		select { // what came meanwhile is in the page that is fetched now
		case <-p.due:
		default:
		}
		if _, took, err = p.get(ctx, true); err != nil {
			return err
		}
		last = time.Now()
		if p.updates.Add(1) == 1 {
			close(p.updated)
		}
	}
}

// follow reads the stream of changes.
func (p *openPage) follow(ctx context.Context) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, p.base+"/live", http.NoBody)
	if err != nil {
		return err
	}
	r.Header.Set("Accept", "text/event-stream")
	response, err := p.client.Do(r)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	event := ""
	lines := bufio.NewScanner(response.Body)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		if name, ok := strings.CutPrefix(lines.Text(), "event: "); ok {
			if event = name; event == "hello" {
				close(p.following)
			}
			continue
		}
		data, ok := strings.CutPrefix(lines.Text(), "data: ")
		if !ok || event != "change" {
			continue
		}
		if concerns, err := p.concerns(data); err != nil {
			return err
		} else if concerns {
			select {
			case p.due <- struct{}{}:
			default:
			}
		}
	}
	return errors.Join(lines.Err(), errors.New("the stream ended"))
}

func (p *openPage) concerns(data string) (bool, error) {
	var change struct {
		Queues []string
		Many   bool
	}
	if err := json.Unmarshal([]byte(data), &change); err != nil {
		return false, err
	}
	queue, one := strings.CutPrefix(p.watch, "queue:")
	return !one || change.Many || slices.Contains(change.Queues, queue), nil
}

// openPages opens pages and returns them once all follow the server. They stay open until the
// context ends; ended then waits for them.
func openPages(ctx context.Context, t testing.TB, base string, paths []string) (pages []*openPage, ended func()) {
	t.Helper()
	var open sync.WaitGroup
	for _, path := range paths {
		p := newOpenPage(base, path)
		pages = append(pages, p)
		open.Go(func() {
			if err := p.run(ctx); err != nil && ctx.Err() == nil {
				t.Errorf("page %s: %v", path, err)
			}
		})
	}
	for _, p := range pages {
		awaited(t, p.following, "an open page to follow the server")
	}
	return pages, open.Wait
}

func awaited(t testing.TB, done <-chan struct{}, what string) {
	t.Helper()
	select {
	case <-done:
	case <-time.After(patience):
		t.Fatalf("waited %v for %s", patience, what)
	}
}

// cycle submits, claims and completes batches of jobs until the context ends, and counts the
// completed jobs.
func cycle(ctx context.Context, c *client.Client, worker string, completed *atomic.Int64) error {
	specs := make([]gq.Spec, dashboardBatch)
	for i := range specs {
		specs[i] = gq.Spec{Queue: "bench", Type: "bench", Payload: gq.Payload{Data: []byte(`{"n":1}`)}}
	}
	for ctx.Err() == nil {
		if _, err := c.SubmitBatch(ctx, specs); err != nil {
			return err
		}
		jobs, err := c.Claim(ctx, gq.ClaimRequest{Worker: worker, Queues: []string{"bench"}, N: dashboardBatch})
		if err != nil {
			return err
		}
		outcomes := make([]gq.Outcome, len(jobs))
		for i := range jobs {
			outcomes[i] = gq.Outcome{Lease: jobs[i].State.Lease.Ref(), Verdict: gq.VerdictComplete}
		}
		settled, err := c.Settle(ctx, outcomes)
		for i := range settled {
			err = errors.Join(err, settled[i].Err)
		}
		if err != nil {
			return err
		}
		completed.Add(int64(len(jobs)))
	}
	return nil
}

// openCost is a measurement of the cycle with open pages.
type openCost struct {
	rate    float64       // jobs a second
	cpu     time.Duration // of the server and its database, for each job
	updates float64       // of the pages, a second
	bytes   float64       // that they got, a second
	others  float64       // CPU time that other processes used, percent of the machine
}

// measureOpen measures the cycle while pages are open. Every page has been updated before the
// measurement begins: the first updates come all at once.
func measureOpen(b *testing.B, s *served, database int, paths []string) (m openCost) {
	b.Helper()
	c, err := client.New(s.grpc, client.Options{SendOnce: true})
	if err != nil {
		b.Fatal(err)
	}
	defer c.Close()
	ctx, stop := context.WithCancel(b.Context())
	pages, ended := openPages(ctx, b, "http://"+s.http, paths)
	defer ended()
	defer stop()
	var completed atomic.Int64
	var callers sync.WaitGroup
	defer callers.Wait()
	defer stop()
	for i := range dashboardCallers {
		callers.Go(func() {
			if err := cycle(ctx, c, fmt.Sprintf("worker-%d", i), &completed); err != nil && ctx.Err() == nil {
				b.Errorf("a caller: %v", err)
			}
		})
	}
	warm := time.Now().Add(dashboardWarm)
	for _, p := range pages {
		awaited(b, p.updated, "the first update of "+p.path)
	}
	rest(ctx, time.Until(warm))
	sum := func() (updates, bytes int64) {
		for _, p := range pages {
			updates, bytes = updates+p.updates.Load(), bytes+p.bytes.Load()
		}
		return updates, bytes
	}
	used := func() time.Duration { return cpuTime(b, s.Command.Process.Pid) + clusterTime(b, database) }
	own := func() time.Duration { return cpuTime(b, os.Getpid()) }
	began, jobs, cpu, mine := time.Now(), completed.Load(), used(), own()
	updates, bytes := sum()
	busy, whole := machineTime(b)
	rest(ctx, *dashboardsFor)
	took, ran := time.Since(began).Seconds(), completed.Load()-jobs
	usedNow := used() - cpu
	busyNow, wholeNow := machineTime(b)
	updatesNow, bytesNow := sum()
	if ran == 0 {
		b.Fatal("no job was completed")
	}
	m.rate, m.cpu = float64(ran)/took, usedNow/time.Duration(ran)
	m.updates, m.bytes = float64(updatesNow-updates)/took, float64(bytesNow-bytes)/took
	m.others = 100 * float64(busyNow-busy-usedNow-(own()-mine)) / float64(wholeNow-whole)
	return m
}

// machineTime returns the CPU time that all processes have used, and all there was.
func machineTime(t testing.TB) (busy, whole time.Duration) {
	t.Helper()
	text, err := os.ReadFile("/proc/stat")
	if err != nil {
		t.Fatal(err)
	}
	var n [8]int64 // user, nice, system, idle, iowait, irq, softirq, steal
	if _, err := fmt.Sscanf(string(text), "cpu %d %d %d %d %d %d %d %d", &n[0], &n[1], &n[2], &n[3], &n[4], &n[5], &n[6], &n[7]); err != nil {
		t.Fatal(err)
	}
	const tick = time.Second / 100
	for i, ticks := range n {
		whole += time.Duration(ticks) * tick
		if i <= 2 || i == 7 {
			busy += time.Duration(ticks) * tick
		}
	}
	return busy, whole
}

// BenchmarkDashboards measures what open pages of the dashboard cost the cycle of a server: the
// rate of jobs that are submitted, claimed and completed over gRPC, with and without open pages in
// turn, on an otherwise idle machine. The CPU time of a job counts the server and its database, and
// is meaningful on a machine with other work too. The goal is that 100 pages cost less than 10 %:
//
//	go test ./cmd/gq -run '^$' -bench Dashboards -benchtime 1x -dashboards-store postgres
func BenchmarkDashboards(b *testing.B) {
	kinds := map[string][]string{
		"overview": {"/"},
		"mixed":    {"/", "/queue?name=bench", "/jobs", "/queues", "/events", "/workers", "/dead", "/jobs?queue=bench&state=completed"},
	}
	for _, name := range []string{"overview", "mixed"} {
		b.Run(name, func(b *testing.B) {
			store, database := "file:"+filepath.Join(b.TempDir(), "data"), 0
			if *dashboardsStore == "postgres" {
				store = pgtest.Own(b).Database(b)
				database = postmaster(b, store)
			}
			s := startServer(b, nil, "--store", store)
			paths := make([]string, *dashboards)
			for i := range paths {
				paths[i] = kinds[name][i%len(kinds[name])]
			}
			for b.Loop() {
				compareOpen(b, s, database, paths)
			}
		})
	}
}

func compareOpen(b *testing.B, s *served, database int, paths []string) {
	b.Helper()
	var rates, costs, shares []float64 // with pages, compared with none
	var alone, with openCost
	for pair := range *dashboardsPairs {
		var one, two openCost
		if pair%2 == 0 {
			one, two = measureOpen(b, s, database, nil), measureOpen(b, s, database, paths)
		} else {
			two = measureOpen(b, s, database, paths)
			one = measureOpen(b, s, database, nil)
		}
		rates, costs = append(rates, two.rate/one.rate), append(costs, float64(two.cpu)/float64(one.cpu))
		shares = append(shares, (two.cpu-one.cpu).Seconds()*two.rate/float64(runtime.NumCPU()))
		b.Logf("%7.0f and %7.0f jobs/s, ratio %.3f; CPU of a job %v and %v, ratio %.3f; %.0f updates/s, %.1f MB/s; others used %.0f and %.0f %% of the machine",
			one.rate, two.rate, two.rate/one.rate, one.cpu, two.cpu, float64(two.cpu)/float64(one.cpu), two.updates, two.bytes/1e6, one.others, two.others)
		alone.add(one, *dashboardsPairs)
		with.add(two, *dashboardsPairs)
	}
	slices.Sort(rates)
	slices.Sort(costs)
	slices.Sort(shares)
	lost := 100 * (1 - median(rates))
	b.ReportMetric(alone.rate, "jobs/s-alone")
	b.ReportMetric(with.rate, "jobs/s-open")
	b.ReportMetric(lost, "%rate-lost")
	b.ReportMetric(100*(median(costs)-1), "%cpu-added")
	b.ReportMetric(100*median(shares), "%machine") // CPU time that the pages took, of all cores
	b.ReportMetric(with.updates, "updates/s")
	b.ReportMetric((alone.others+with.others)/2, "%others")
	if *dashboardsMost > 0 && lost > *dashboardsMost {
		b.Errorf("%d open pages cost %.1f %% of the rate, more than %.1f %%", len(paths), lost, *dashboardsMost)
	}
}

// add adds one of n measurements to their mean.
func (m *openCost) add(one openCost, n int) {
	m.rate += one.rate / float64(n)
	m.cpu += one.cpu / time.Duration(n)
	m.updates += one.updates / float64(n)
	m.bytes += one.bytes / float64(n)
	m.others += one.others / float64(n)
}

// median returns the middle of sorted values.
func median(sorted []float64) float64 {
	n := len(sorted)
	return (sorted[(n-1)/2] + sorted[n/2]) / 2
}

// TestOpenPagesFollow checks the pages of the benchmark themselves: each is updated after a change
// that concerns it.
func TestOpenPagesFollow(t *testing.T) {
	s := startServer(t, nil, "--store", "memory:")
	for _, queue := range []string{"bench", "other"} {
		if got := s.gq("submit", "t", "--queue", queue); got.status != 0 {
			t.Fatalf("%+v", got)
		}
	}
	ctx, stop := context.WithCancel(t.Context())
	pages, ended := openPages(ctx, t, "http://"+s.http, []string{"/", "/queue?name=bench", "/queue?name=other"})
	defer ended()
	defer stop()
	if got := s.gq("submit", "t", "--queue", "bench"); got.status != 0 {
		t.Fatalf("%+v", got)
	}
	for _, p := range pages[:2] {
		awaited(t, p.updated, "the update of "+p.path)
	}
	for data, want := range map[string][]bool{
		`{"jobs":["1"],"queues":["bench"]}`: {true, true, false}, `{"jobs":["1"],"queues":["other","bench"]}`: {true, true, true}, `{"many":true}`: {true, true, true},
	} {
		for i, p := range pages {
			if got, err := p.concerns(data); err != nil || got != want[i] {
				t.Errorf("%s concerns %s: %t, %v", data, p.path, got, err)
			}
		}
	}
}
