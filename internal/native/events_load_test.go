//go:build unix

package native

import (
	"context"
	"io"
	"net"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/internal/auth"
	"github.com/gopherqueue/gq/internal/feed"
	"github.com/gopherqueue/gq/store/local"
)

// inUse is what the process has taken from the system for its heap and stacks.
func inUse() uint64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapInuse + m.StackInuse
}

// 2,000 idle subscribers cost less than 100 MB, whichever way they came; the
// other ends of the connections included.
func TestIdleSubscribers(t *testing.T) {
	if testing.Short() {
		t.Skip("-short leaves out 2,000 connections; make test opens them")
	}
	n := newNewsroom(t, EventLimits{Beat: time.Minute})
	n.submit(1, "a")
	const subscribers, most = 2000, 100 << 20
	for name, path := range map[string]string{"SSE": "/v1/events", "WebSocket": "/v1/events/ws"} {
		before := inUse()
		conns := make([]net.Conn, 0, subscribers)
		for range subscribers {
			c, err := net.Dial("tcp", n.web.Listener.Addr().String())
			if err != nil {
				t.Fatalf("%d connections: %v", len(conns), err)
			}
			conns = append(conns, c)
			request := "GET " + path + "?after=0 HTTP/1.1\r\nHost: x\r\n"
			if name == "WebSocket" {
				request += "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
			}
			if _, err := io.WriteString(c, request+"\r\n"); err != nil {
				t.Fatal(err)
			}
			buffer := make([]byte, 256)
			if _, err := c.Read(buffer); err != nil {
				t.Fatal(err)
			}
			if want := map[string]string{"SSE": "200", "WebSocket": "101"}[name]; !strings.Contains(string(buffer), want) {
				t.Fatalf("%s: %s", name, buffer)
			}
		}
		used := inUse() - before
		t.Logf("%s: %d idle subscribers use %.1f MB, %d bytes each", name, subscribers, float64(used)/(1<<20), used/subscribers)
		if used > most {
			t.Errorf("%s: %d subscribers use %d bytes, want at most %d", name, subscribers, used, most)
		}
		for _, c := range conns {
			c.Close()
		}
	}
}

// fanOut is how many jobs a writer gets into a store on disk in a while, with so
// many live subscribers that are handed all events as they are sent. What their
// sockets cost depends on how much they ask for, and is not counted. Each must have
// got everything in the end.
func fanOut(t testing.TB, subscribers int, long time.Duration) (rate, cpuPerJob float64) {
	t.Helper()
	s, err := local.Open(t.TempDir(), local.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	n := newNewsroomOver(t, s, EventLimits{})
	ctx, cancel := context.WithCancel(auth.With(t.Context(), auth.Everyone()))
	defer cancel()
	var handed, bytes atomic.Int64
	var wait sync.WaitGroup
	defer wait.Wait()
	defer cancel()
	for range subscribers {
		sub, err := n.feed.Open(ctx, nil, feed.Filter{})
		if err != nil {
			t.Fatal(err)
		}
		wait.Go(func() {
			defer sub.Close()
			_ = sub.Run(ctx, 0, func(b feed.Batch, _ uint64) error {
				handed.Add(int64(b.Len()))
				bytes.Add(int64(len(b.Frames(nil))))
				return nil
			})
		})
	}
	specs := make([]gq.Spec, 50)
	for i := range specs {
		specs[i] = gq.Spec{Type: "t", Payload: gq.Payload{Data: []byte(`{"n":1}`)}}
	}
	jobs := 0
	cpu := cpuTime()
	began := time.Now()
	for time.Since(began) < long {
		if _, err := n.engine.SubmitBatch(ctx, specs); err != nil {
			t.Fatal(err)
		}
		jobs += len(specs)
	}
	rate = float64(jobs) / time.Since(began).Seconds()
	last, err := n.engine.LastEvent(ctx)
	if err != nil {
		t.Fatal(err)
	}
	late := time.After(10 * time.Second)
	for tick := time.Tick(time.Millisecond); handed.Load() < int64(last)*int64(subscribers); {
		select {
		case <-tick:
		case <-late:
			t.Fatalf("%d subscribers were handed %d of %d events each", subscribers, handed.Load()/int64(subscribers), last)
		}
	}
	if got := handed.Load(); got != int64(last)*int64(subscribers) || bytes.Load() < 100*got {
		t.Fatalf("%d subscribers were handed %d events of %d bytes, of %d", subscribers, got, bytes.Load(), last)
	}
	return rate, (cpuTime() - cpu).Seconds() / float64(jobs)
}

// cpuTime is what the process has used of the processors.
func cpuTime() time.Duration {
	var u syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// BenchmarkFanOut measures what 100 live subscribers cost the writer. The bound
// is 10 % of its rate, on a machine that does nothing else; what they cost in
// processor time can be told on any.
func BenchmarkFanOut(b *testing.B) {
	for b.Loop() {
		var without, with, cpuWithout, cpuWith float64
		for range 3 { // in turn, so that both see the same machine
			rate, cpu := fanOut(b, 0, time.Second)
			without, cpuWithout = max(without, rate), cpuWithout+cpu
			rate, cpu = fanOut(b, 100, time.Second)
			with, cpuWith = max(with, rate), cpuWith+cpu
		}
		b.ReportMetric(without, "jobs/s-alone")
		b.ReportMetric(with, "jobs/s-100")
		b.ReportMetric(100*(1-with/without), "%rate-lost")
		b.ReportMetric(1e6*cpuWithout/3, "cpu-us/job-alone")
		b.ReportMetric(1e6*cpuWith/3, "cpu-us/job-100")
	}
}

// A subscriber that floods a server with connections is refused, and others go
// on.
func TestTooManySubscribers(t *testing.T) {
	n := newNewsroom(t, EventLimits{})
	n.http.options.Feed = feed.NewFeed(feed.New(n.engine), auth.NewGuard(n.engine, nil), 2)
	for i := range 3 {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, n.web.URL+"/v1/events", nil)
		if err != nil {
			t.Fatal(err)
		}
		answer, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer answer.Body.Close()
		want := http.StatusOK
		if i == 2 {
			want = http.StatusTooManyRequests
		}
		if answer.StatusCode != want {
			t.Errorf("subscriber %d: %s", i+1, answer.Status)
		}
	}
}
