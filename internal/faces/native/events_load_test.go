//go:build unix

package native

import (
	"bytes"
	"context"
	"errors"
	"fmt"
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

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/gopherqueue/gq"
	pb "github.com/gopherqueue/gq/api/gopherqueue/v1"
	"github.com/gopherqueue/gq/internal/access"
	"github.com/gopherqueue/gq/internal/feed"
	"github.com/gopherqueue/gq/store/local"
)

// inUse returns the memory that the process has obtained for heap and stacks.
func inUse() uint64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapInuse + m.StackInuse
}

// idlers are the ways to subscribe, each as a connection that only listens.
var idlers = []struct {
	name string
	dial func(*newsroom) (net.Conn, error)
}{
	{"SSE", func(n *newsroom) (net.Conn, error) { return n.dialHTTP("/v1/events", "", "200 OK") }},
	{"WebSocket", func(n *newsroom) (net.Conn, error) {
		return n.dialHTTP("/v1/events/ws", "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n", "101 Switching")
	}},
	{"gRPC", (*newsroom).dialGRPC},
}

func (n *newsroom) dialHTTP(path, headers, want string) (net.Conn, error) {
	c, err := net.Dial("tcp", n.web.Listener.Addr().String())
	if err != nil {
		return nil, err
	}
	if _, err := io.WriteString(c, "GET "+path+"?after=0 HTTP/1.1\r\nHost: x\r\n"+headers+"\r\n"); err != nil {
		return c, err
	}
	answer := make([]byte, 256)
	k, err := c.Read(answer)
	if err == nil && !strings.Contains(string(answer[:k]), want) {
		err = fmt.Errorf("%s instead of %s", answer[:k], want)
	}
	return c, err
}

// dialGRPC speaks just enough HTTP/2, so that the measured memory is the server's.
func (n *newsroom) dialGRPC() (net.Conn, error) {
	c, err := net.Dial("tcp", n.grpcAddress)
	if err != nil {
		return nil, err
	}
	var head, out bytes.Buffer
	fields := hpack.NewEncoder(&head)
	for _, f := range [][2]string{
		{":method", "POST"},
		{":scheme", "http"},
		{":path", pb.EventsService_Subscribe_FullMethodName},
		{":authority", "x"},
		{"content-type", "application/grpc"},
		{"te", "trailers"},
	} {
		_ = fields.WriteField(hpack.HeaderField{Name: f[0], Value: f[1]}) // writes to memory
	}
	out.WriteString(http2.ClientPreface)
	framer := http2.NewFramer(&out, c)
	err = errors.Join(framer.WriteSettings(), framer.WriteSettingsAck(),
		framer.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: head.Bytes(), EndHeaders: true}),
		framer.WriteData(1, true, make([]byte, 5))) // an empty request
	if err == nil {
		_, err = c.Write(out.Bytes())
	}
	for err == nil { // until the subscription is open
		var f http2.Frame
		if f, err = framer.ReadFrame(); err == nil && f.Header().Type == http2.FrameHeaders {
			if f.Header().Flags.Has(http2.FlagHeadersEndStream) {
				err = errors.New("the subscription has ended")
			}
			break
		}
	}
	return c, err
}

// idle returns the memory that idle subscribers use, including the client ends of their
// connections.
func idle(t testing.TB, n *newsroom, dial func(*newsroom) (net.Conn, error), subscribers int) (used int64) {
	t.Helper()
	before := inUse()
	conns := make([]net.Conn, 0, subscribers)
	defer func() {
		for _, c := range conns {
			c.Close()
		}
	}()
	for range subscribers {
		c, err := dial(n)
		if c != nil {
			conns = append(conns, c)
		}
		if err != nil {
			t.Fatalf("%d connections: %v", len(conns), err)
		}
	}
	return int64(inUse()) - int64(before)
}

// 2,000 idle subscribers use less than 100 MB, whatever the protocol.
func TestIdleSubscribers(t *testing.T) {
	if testing.Short() {
		t.Skip("-short leaves out 2,000 connections; make test opens them")
	}
	const subscribers, most = 2000, 100 << 20
	for _, way := range idlers {
		t.Run(way.name, func(t *testing.T) {
			n := newNewsroom(t, EventLimits{Beat: time.Minute})
			n.submit(1, "a")
			used := idle(t, n, way.dial, subscribers)
			t.Logf("%d idle subscribers use %.1f MB, %d bytes each", subscribers, float64(used)/(1<<20), used/subscribers)
			if used > most {
				t.Errorf("%d subscribers use %d bytes, want at most %d", subscribers, used, most)
			}
		})
	}
}

// BenchmarkIdle measures the memory of 2,000 idle subscribers. The limit is 100 MB.
func BenchmarkIdle(b *testing.B) {
	const subscribers = 2000
	for _, way := range idlers {
		b.Run(way.name, func(b *testing.B) {
			for b.Loop() {
				n := newNewsroom(b, EventLimits{Beat: time.Minute})
				b.ReportMetric(float64(idle(b, n, way.dial, subscribers))/(1<<20), "MB")
			}
		})
	}
}

// fanOut measures how fast a writer submits jobs to a store on disk, with live
// subscribers that get all events. The cost of their sockets depends on what they request
// and is not counted. Each subscriber must get everything in the end.
func fanOut(t testing.TB, subscribers int, long time.Duration) (rate, cpuPerJob float64) {
	t.Helper()
	s, err := local.Open(t.TempDir(), local.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	n := newNewsroomOver(t, s, EventLimits{})
	ctx, cancel := context.WithCancel(access.With(t.Context(), access.Everyone()))
	defer cancel()
	var handed, size atomic.Int64
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
				size.Add(int64(len(b.Frames(nil))))
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
	if got := handed.Load(); got != int64(last)*int64(subscribers) || size.Load() < 100*got {
		t.Fatalf("%d subscribers were handed %d events of %d bytes, of %d", subscribers, got, size.Load(), last)
	}
	return rate, (cpuTime() - cpu).Seconds() / float64(jobs)
}

// cpuTime returns the CPU time that the process has used.
func cpuTime() time.Duration {
	var u syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// BenchmarkFanOut measures what 100 live subscribers cost the writer. The limit is 10 %
// of its rate, on an otherwise idle machine; the CPU time is meaningful on any machine.
func BenchmarkFanOut(b *testing.B) {
	for b.Loop() {
		var without, with, cpuWithout, cpuWith float64
		for range 3 { // alternating, so that both see the same load
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

// A client that floods a server with connections is rejected, and others are not
// affected.
func TestTooManySubscribers(t *testing.T) {
	n := newNewsroom(t, EventLimits{})
	n.http.options.Feed = feed.NewFeed(feed.New(n.engine), crowded{access.NewGuard(n.engine), access.NewPlaces("event subscriptions", 2, 2)})
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
		if answer.StatusCode != want || i == 2 && answer.Header.Get("Retry-After") == "" {
			t.Errorf("subscriber %d: %s %v", i+1, answer.Status, answer.Header)
		}
	}
}

// crowded is a guard with few places for subscribers.
type crowded struct {
	*access.Guard
	places *access.Places
}

func (c crowded) Subscribe(ctx context.Context) (func(), error) { return c.places.Take(ctx) }
