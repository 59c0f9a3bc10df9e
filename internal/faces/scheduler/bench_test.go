package scheduler

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gopherqueue/gq"
)

var others = flag.Int("others", 100_000, "queued jobs of other addons beside which BenchmarkRoundTrips measures")

const connections = 64

// BenchmarkRoundTrips measures calls to the built program over separate connections, next
// to an echo of the same body in another process, which shows the cost of net/http and
// encoding/json alone; with an otherwise empty store, and with many queued jobs of other
// addons.
//
//	go test -run - -bench RoundTrips -benchtime 20000x ./internal/faces/scheduler -others 1000000
func BenchmarkRoundTrips(b *testing.B) {
	claim := `{"addon_id":"visuals","worker_id":"w","limit":1,"accept_job_types":["load30","render_image"],"max_cost_units":40,"constraints_capabilities":{"gpu_available":false}}`
	b.Run("echo", func(b *testing.B) {
		measured(b, startEcho(b), func(int) (string, string) { return "/", claim })
	})
	for _, where := range places {
		b.Run(where.name, func(b *testing.B) {
			kept := where.open(b)
			server := kept.start(b, Options{Capacity: units(gq.MaxCapacity), ClaimHold: gq.MaxDuration / 10}.flags()...)
			t := &benched{b, target{"http://" + server.address, server.command.Process.Pid, kept.database()}}
			t.submit("visuals", 1)
			for _, n := range []int{0, *others} {
				t.fill("others", n)
				b.Run(fmt.Sprintf("others=%d", n), func(b *testing.B) {
					b.Run("claim", func(b *testing.B) {
						measured(b, t.target, func(int) (string, string) { return Base + "/jobs/claim", claim }, func(n int) { t.fill("visuals", n) })
					})
					b.Run("lease", func(b *testing.B) {
						var ids []string
						measured(b, t.target, func(i int) (string, string) {
							return Base + "/lease/request", `{"job_id":"` + ids[i] + `","addon_id":"visuals","job_type":"load30","cost_units":30,"priority":"NORMAL","constraints":{},"ttl_sec":86400}`
						}, func(n int) { ids = t.claimed(n) })
					})
					b.Run("snapshot", func(b *testing.B) {
						measured(b, t.target, func(int) (string, string) { return Base + "/stats/snapshot", "" })
					})
				})
			}
		})
	}
}

// measured calls a server over one connection and over many.
func measured(b *testing.B, to target, call func(i int) (path, body string), before ...func(n int)) {
	b.Helper()
	for _, many := range []int{1, connections} {
		b.Run(fmt.Sprintf("connections=%d", many), func(b *testing.B) {
			for _, prepare := range before {
				prepare(b.N)
			}
			server, database := cpu(to.pid), childrenCPU(to.database)
			roundTrips(b, to.url, many, call)
			report := func(used time.Duration, unit string) {
				if used > 0 {
					b.ReportMetric(float64(used.Microseconds())/float64(b.N), unit)
				}
			}
			report(cpu(to.pid)-server, "server-µs/call")
			report(childrenCPU(to.database)-database, "database-µs/call")
		})
	}
}

// roundTrips makes b.N calls over many connections.
func roundTrips(b *testing.B, base string, many int, call func(i int) (path, body string)) {
	b.Helper()
	transport := &http.Transport{MaxIdleConnsPerHost: many, MaxConnsPerHost: many}
	defer transport.CloseIdleConnections()
	client := &http.Client{Transport: transport}
	var next atomic.Int64
	done := make(chan error, many)
	b.ResetTimer()
	for range many {
		go func() {
			for {
				i := int(next.Add(1) - 1)
				if i >= b.N {
					done <- nil
					return
				}
				path, body := call(i)
				if status, raw, err := send(b.Context(), client, base+path, body); err != nil || status != http.StatusOK {
					done <- fmt.Errorf("%s: %d %s %w", path, status, raw, err)
					return
				}
			}
		}()
	}
	for range many {
		if err := <-done; err != nil {
			b.Error(err)
		}
	}
	b.StopTimer()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "calls/s")
}

// send posts a body, or gets if there is none.
func send(ctx context.Context, client *http.Client, to, body string) (status int, raw []byte, err error) {
	method := http.MethodPost
	if body == "" {
		method = http.MethodGet
	}
	r, err := http.NewRequestWithContext(ctx, method, to, strings.NewReader(body))
	if err != nil {
		return 0, nil, err
	}
	r.Header.Set("Content-Type", "application/json")
	answer, err := client.Do(r)
	if err != nil {
		return 0, nil, err
	}
	defer answer.Body.Close()
	raw, err = io.ReadAll(answer.Body)
	return answer.StatusCode, raw, err
}

// target is a server in another process.
type target struct {
	url      string
	pid      int
	database int // the process that starts the database's processes; 0 for none
}

// database returns the process id of the PostgreSQL server; 0 if there is none.
func (p place) database() int {
	at, err := url.Parse(string(p))
	if err != nil || at.Query().Get("host") == "" {
		return 0
	}
	raw, _ := os.ReadFile(filepath.Join(at.Query().Get("host"), "data", "postmaster.pid"))
	first, _, _ := strings.Cut(string(raw), "\n")
	pid, _ := strconv.Atoi(first)
	return pid
}

// cpu returns the CPU time that a process has used, which is independent of other load
// on the machine. It is 0 if unknown.
func cpu(pid int) time.Duration {
	return stat(pid).cpu
}

// childrenCPU is cpu for the running children of a process and those that have ended.
func childrenCPU(pid int) time.Duration {
	if pid == 0 {
		return 0
	}
	sum := stat(pid).ended
	all, _ := filepath.Glob("/proc/[0-9]*")
	for _, dir := range all {
		child, _ := strconv.Atoi(filepath.Base(dir))
		if s := stat(child); s.parent == pid {
			sum += s.cpu
		}
	}
	return sum
}

// process times as Linux shows them; zero elsewhere.
type times struct {
	parent     int
	cpu, ended time.Duration // of the process, and of its children that have ended
}

func stat(pid int) (t times) {
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return t
	}
	_, rest, _ := strings.Cut(string(raw), ") ")
	fields := strings.Fields(rest)
	if len(fields) < 15 {
		return t
	}
	number := func(i int) int {
		n, _ := strconv.Atoi(fields[i])
		return n
	}
	const tick = 10 * time.Millisecond // Linux counts in hundredths of a second
	t.parent = number(1)
	t.cpu, t.ended = time.Duration(number(11)+number(12))*tick, time.Duration(number(13)+number(14))*tick
	return t
}

// benched is a server to measure.
type benched struct {
	*testing.B
	target
}

func (t *benched) must(path, body string, want int) []byte {
	t.Helper()
	status, raw, err := send(t.Context(), http.DefaultClient, t.url+path, body)
	if err != nil || status != want {
		t.Fatalf("%s: %d %.300s %v", path, status, raw, err)
	}
	return raw
}

func (t *benched) submit(addon string, n int) {
	t.Helper()
	for range n {
		t.must(Base+"/jobs/submit", string(encoded(submission("addon_id", addon, "constraints", object{}))), http.StatusCreated)
	}
}

// fill submits many jobs.
func (t *benched) fill(addon string, n int) {
	t.Helper()
	if n == 0 {
		return
	}
	t.submit(addon, 1) // makes the queue an addon
	for n--; n > 0; n -= min(n, 1000) {
		jobs := make([]object, min(n, 1000))
		for i := range jobs {
			jobs[i] = object{"queue": addon, "type": "load30", "cost_units": 30, "payload": object{"model": "sdxl"}}
		}
		t.must("/v1/jobs/batch", string(encoded(object{"jobs": jobs})), http.StatusOK)
	}
}

// claimed submits and claims jobs.
func (t *benched) claimed(n int) []string {
	t.Helper()
	t.fill("visuals", n)
	ids := make([]string, n)
	for i := range ids {
		var got struct {
			Job struct {
				JobID string `json:"job_id"`
			}
		}
		if err := json.Unmarshal(t.must(Base+"/jobs/claim", `{"addon_id":"visuals","worker_id":"w"}`, http.StatusOK), &got); err != nil {
			t.Fatal(err)
		}
		ids[i] = got.Job.JobID
	}
	return ids
}

// echoVariable turns a test process into an echo server.
const echoVariable = "GQ_SCHEDULER_ECHO"

// startEcho runs the echo server in another process.
func startEcho(b *testing.B) target {
	b.Helper()
	self, err := os.Executable()
	if err != nil {
		b.Fatal(err)
	}
	c := exec.Command(self)
	c.Env = append(os.Environ(), echoVariable+"=1")
	out, err := c.StdoutPipe()
	if err != nil {
		b.Fatal(err)
	}
	if err := c.Start(); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		_ = c.Process.Kill()
		_ = c.Wait() // killed
	})
	var address string
	if _, err := fmt.Fscanln(out, &address); err != nil {
		b.Fatal(err)
	}
	return target{url: "http://" + address, pid: c.Process.Pid}
}

// serveEcho is the main function of that process.
func serveEcho() error {
	l, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	fmt.Fprintln(os.Stdout, l.Addr())
	return http.Serve(l, http.HandlerFunc(echo)) //nolint:gosec // for the test that started it
}

func echo(w http.ResponseWriter, r *http.Request) {
	raw, err := io.ReadAll(r.Body)
	var v map[string]any
	if err == nil {
		err = json.Unmarshal(raw, &v)
	}
	var out bytes.Buffer
	if err == nil {
		err = json.NewEncoder(&out).Encode(v)
	}
	if err != nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(out.Bytes()) // an error means that the client has gone
}
