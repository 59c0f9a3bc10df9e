package native

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coder/websocket"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/gopherqueue/gq"
	pb "github.com/gopherqueue/gq/api/gopherqueue/v1"
	"github.com/gopherqueue/gq/engine"
	"github.com/gopherqueue/gq/internal/access"
	"github.com/gopherqueue/gq/internal/feed"
	"github.com/gopherqueue/gq/internal/wire"
	"github.com/gopherqueue/gq/store"
	"github.com/gopherqueue/gq/store/local"
)

// newsroom is the event feed over HTTP and gRPC.
type newsroom struct {
	testing.TB
	engine *engine.Engine
	feed   *feed.Feed
	web    *httptest.Server
	events pb.EventsServiceClient
	http   *HTTP
	grpc   *GRPC

	grpcAddress string

	written, sent *writes // to HTTP connections, and on gRPC streams
}

// writes has the start times of writes in progress.
type writes struct {
	mu    sync.Mutex
	last  int
	now   map[int]time.Time // guarded by mu
	ended bool              // a connection or stream was closed by the server
}

// end notes that the server has closed a connection or ended a stream.
func (w *writes) end() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ended = true
}

// watch counts a write until done is called.
func (w *writes) watch() (done func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.now == nil {
		w.now = map[int]time.Time{}
	}
	w.last++
	id := w.last
	w.now[id] = time.Now()
	return func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		delete(w.now, id)
	}
}

// stuckFor reports whether a write has been in progress for this long, or the server has
// already given up on its reader.
func (w *writes) stuckFor(d time.Duration) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.ended {
		return true
	}
	for _, began := range w.now {
		if time.Since(began) > d {
			return true
		}
	}
	return false
}

// watchedListener tracks the writes to its connections.
type watchedListener struct {
	net.Listener
	writes *writes
}

// socketBuffer is small, so that a few events fill the sockets of a subscriber that does
// not read. The kernel's own limit is several megabytes.
const socketBuffer = 16 << 10

func (l watchedListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err == nil {
		err = c.(*net.TCPConn).SetWriteBuffer(socketBuffer)
	}
	return watchedConn{c, l.writes}, err
}

type watchedConn struct {
	net.Conn
	writes *writes
}

func (c watchedConn) Write(b []byte) (int, error) {
	defer c.writes.watch()()
	return c.Conn.Write(b)
}

func (c watchedConn) Close() error {
	c.writes.end()
	return c.Conn.Close()
}

type watchedStream struct {
	grpc.ServerStream
	writes *writes
}

func (s watchedStream) SendMsg(m any) error {
	defer s.writes.watch()()
	return s.ServerStream.SendMsg(m)
}

func (w *writes) stream(srv any, s grpc.ServerStream, _ *grpc.StreamServerInfo, next grpc.StreamHandler) error {
	defer w.end()
	return next(srv, watchedStream{s, w})
}

func newNewsroom(t testing.TB, limits EventLimits) *newsroom {
	t.Helper()
	s, err := local.OpenMemory(local.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return newNewsroomOver(t, s, limits)
}

// patience is the limit for subscribers that a stalled machine makes slow.
const patience = 10 * time.Minute

// anyone lets every caller do everything.
func anyone(r *http.Request) (context.Context, error) {
	return access.With(r.Context(), access.Everyone()), nil
}

func newNewsroomOver(t testing.TB, s store.Store, limits EventLimits) *newsroom {
	t.Helper()
	e, err := engine.New(s, engine.Options{})
	if err != nil {
		t.Fatal(err)
	}
	limits.Slow, limits.Stuck = cmp.Or(limits.Slow, patience), cmp.Or(limits.Stuck, patience)
	hub := feed.New(e)
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- hub.Run(ctx) }()
	guard := access.NewGuard(e)
	n := &newsroom{TB: t, engine: e, feed: feed.NewFeed(hub, guard), written: &writes{}, sent: &writes{}}
	n.http = NewHTTP(guard, HTTPOptions{Feed: n.feed, Events: limits, Log: slog.New(slog.DiscardHandler), Identify: anyone})
	n.web = httptest.NewUnstartedServer(n.http)
	n.web.Listener = watchedListener{n.web.Listener, n.written}
	n.web.Start()
	ring, err := access.NewKeyring(s, "")
	if err != nil {
		t.Fatal(err)
	}
	gate := access.NewGate(ring, false, nil)
	n.grpc = NewGRPC(guard, GRPCOptions{
		Feed: n.feed, Events: limits,
		Unary: []grpc.UnaryServerInterceptor{gate.Unary}, Stream: []grpc.StreamServerInterceptor{gate.Stream, n.sent.stream},
	})
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- n.grpc.Serve(listener) }()
	n.grpcAddress = listener.Addr().String()
	conn, err := grpc.NewClient(listener.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithStaticStreamWindowSize(1<<16))
	if err != nil {
		t.Fatal(err)
	}
	n.events = pb.NewEventsServiceClient(conn)
	t.Cleanup(func() {
		n.http.Drain()
		n.grpc.Drain()
		n.web.CloseClientConnections()
		n.web.Close()
		n.http.Wait()
		conn.Close()
		n.grpc.Stop()
		<-served
		stop()
		if err := <-done; err != nil {
			t.Errorf("the hub ended with %v", err)
		}
	})
	return n
}

// submit creates jobs with four events each, including their cancellation.
func (n *newsroom) submit(jobs int, queue string) {
	n.Helper()
	specs := make([]gq.Spec, jobs)
	for i := range specs {
		specs[i] = gq.Spec{Queue: queue, Type: "t"}
	}
	out, err := n.engine.SubmitBatch(n.Context(), specs)
	if err != nil {
		n.Fatal(err)
	}
	for _, s := range out {
		if s.Err != nil {
			n.Fatal(s.Err)
		}
	}
}

// all returns the sequence numbers of all events in the log.
func (n *newsroom) all() (numbers []uint64) {
	n.Helper()
	events, err := n.engine.Events(n.Context(), 0, 100_000)
	if err != nil {
		n.Fatal(err)
	}
	for i := range events {
		numbers = append(numbers, events[i].Seq)
	}
	return numbers
}

// take returns the sequence numbers of the next n events.
func take(t testing.TB, n int, next func() (wire.Event, error)) (numbers []uint64) {
	t.Helper()
	for len(numbers) < n {
		e, err := next()
		if err != nil {
			t.Fatalf("after %d events: %v", len(numbers), err)
		}
		numbers = append(numbers, e.Seq)
	}
	return numbers
}

// sse opens a stream of server-sent events.
func (n *newsroom) sse(query string, header ...string) (next func() (wire.Event, error), closing func()) {
	n.Helper()
	r, err := http.NewRequestWithContext(n.Context(), http.MethodGet, n.web.URL+"/v1/events"+query, nil)
	if err != nil {
		n.Fatal(err)
	}
	if len(header) == 2 {
		r.Header.Set(header[0], header[1])
	}
	answer, err := http.DefaultClient.Do(r) //nolint:bodyclose // by closing
	if err != nil {
		n.Fatal(err)
	}
	if answer.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(answer.Body)
		n.Fatalf("%s: %s", answer.Status, text)
	}
	lines := bufio.NewScanner(answer.Body)
	lines.Buffer(nil, 1<<20)
	return func() (e wire.Event, err error) {
		kind := ""
		for lines.Scan() {
			if name, ok := strings.CutPrefix(lines.Text(), "event: "); ok {
				kind = name
			}
			if data, ok := strings.CutPrefix(lines.Text(), "data: "); ok {
				if kind == "end" {
					return e, errors.New(data)
				}
				return e, json.Unmarshal([]byte(data), &e)
			}
		}
		return e, io.ErrUnexpectedEOF
	}, func() { answer.Body.Close() }
}

// dialSmall connects with a small buffer for what the server sends.
func dialSmall(ctx context.Context, network, address string) (net.Conn, error) {
	c, err := new(net.Dialer).DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	return c, c.(*net.TCPConn).SetReadBuffer(socketBuffer)
}

func (n *newsroom) socket(query string) (next func() (wire.Event, error), conn *websocket.Conn) {
	n.Helper()
	small := &http.Client{Transport: &http.Transport{DialContext: dialSmall}}
	conn, _, err := websocket.Dial(n.Context(), n.web.URL+"/v1/events/ws"+query, &websocket.DialOptions{HTTPClient: small}) //nolint:bodyclose // there is none
	if err != nil {
		n.Fatal(err)
	}
	return func() (e wire.Event, err error) {
		_, data, err := conn.Read(n.Context())
		if err != nil {
			return e, err
		}
		return e, json.Unmarshal(data, &e)
	}, conn
}

func (n *newsroom) stream(r *pb.SubscribeRequest) func() (wire.Event, error) {
	n.Helper()
	s, err := n.events.Subscribe(n.Context(), r)
	if err != nil {
		n.Fatal(err)
	}
	var buffer []*pb.Event
	return func() (e wire.Event, err error) {
		for len(buffer) == 0 {
			m, err := s.Recv()
			if err != nil {
				return e, err
			}
			buffer = m.GetEvents()
		}
		e, buffer = shownOf(buffer[0]), buffer[1:]
		return e, nil
	}
}

// shownOf returns what the tests look at of an event.
func shownOf(m *pb.Event) wire.Event {
	e := wire.Event{Seq: m.GetSeq(), Type: gq.EventType(m.GetType()), Entity: m.GetJobId()}
	e.Data.Queue, e.Data.Note = m.GetQueue(), m.GetNote()
	if e.Type == gq.EventProgress {
		e.Data.Progress = new(m.GetProgress())
	}
	return e
}

// Every kind of subscription gets every event, in order, from any position, and continues
// with new ones.
func TestSubscribe(t *testing.T) {
	n := newNewsroom(t, EventLimits{})
	n.submit(50, "a")
	old := n.all()
	from := old[30]
	next, closing := n.sse(fmt.Sprintf("?after=%d", from))
	defer closing()
	again, closingAgain := n.sse("?after=0", "Last-Event-ID", fmt.Sprint(from))
	defer closingAgain()
	socket, conn := n.socket(fmt.Sprintf("?after=%d", from))
	defer conn.CloseNow()
	ways := map[string]func() (wire.Event, error){
		"SSE": next, "SSE that came back": again, "WebSocket": socket, "gRPC": n.stream(&pb.SubscribeRequest{After: &from}),
	}
	got := map[string][]uint64{}
	for name, next := range ways {
		got[name] = take(t, len(old)-31, next)
	}
	n.submit(20, "a")
	want := n.all()[31:]
	for name, next := range ways {
		got[name] = append(got[name], take(t, len(want)-len(got[name]), next)...)
		if !slices.Equal(got[name], want) {
			t.Errorf("%s: events %v, want %v", name, got[name], want)
		}
	}
}

func TestSubscribeFilters(t *testing.T) {
	n := newNewsroom(t, EventLimits{})
	zero := uint64(0)
	n.submit(3, "a")
	n.submit(3, "b")
	want := []uint64{}
	events, err := n.engine.Events(t.Context(), 0, 1000)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range events {
		if e.Queue == "b" && e.Type == gq.EventScheduled {
			want = append(want, e.Seq)
		}
	}
	next, closing := n.sse("?after=0&queue=b&type=job.scheduled")
	defer closing()
	if got := take(t, len(want), next); !slices.Equal(got, want) {
		t.Errorf("SSE: %v, want %v", got, want)
	}
	stream := n.stream(&pb.SubscribeRequest{After: &zero, Queues: []string{"b"}, Types: []pb.EventType{pb.EventType_EVENT_TYPE_JOB_SCHEDULED}})
	if got := take(t, len(want), stream); !slices.Equal(got, want) {
		t.Errorf("gRPC: %v, want %v", got, want)
	}
	socket, conn := n.socket("?after=0&job=" + events[0].Job.String())
	defer conn.CloseNow()
	for range 2 {
		if e, err := socket(); err != nil || e.Entity != events[0].Job.String() {
			t.Errorf("%+v, %v", e, err)
		}
	}
}

func TestSubscribeBadly(t *testing.T) {
	n := newNewsroom(t, EventLimits{})
	for _, query := range []string{"?after=x", "?after=-1", "?after=1&after=2", "?type=nonsense", "?job=1", "?que=a", "?queue=", "?after=99999999999999999999", "?after=1"} {
		for _, path := range []string{"/v1/events", "/v1/events/ws"} {
			answer, err := http.Get(n.web.URL + path + query)
			if err != nil {
				t.Fatal(err)
			}
			answer.Body.Close()
			if answer.StatusCode != http.StatusBadRequest {
				t.Errorf("%s%s: %s", path, query, answer.Status)
			}
		}
	}
	beyond := uint64(1) // there has been no event
	ahead, err := n.events.Subscribe(t.Context(), &pb.SubscribeRequest{After: &beyond})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := ahead.Recv(); status.Code(err) != codes.InvalidArgument || !strings.Contains(err.Error(), "beyond the newest event") {
		t.Errorf("gRPC: %v", err)
	}
	s, err := n.events.Subscribe(t.Context(), &pb.SubscribeRequest{Types: []pb.EventType{999}, JobId: "x", Queues: []string{""}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Recv(); status.Code(err) != codes.InvalidArgument {
		t.Errorf("gRPC: %v", err)
	}
	// A plain request to the WebSocket path gets an explanation.
	answer, err := http.Get(n.web.URL + "/v1/events/ws")
	if err != nil {
		t.Fatal(err)
	}
	text, _ := io.ReadAll(answer.Body)
	answer.Body.Close()
	if answer.StatusCode != http.StatusUpgradeRequired || answer.Header.Get("Content-Type") != "application/problem+json" || !strings.Contains(string(text), `"code":"upgrade_required"`) {
		t.Errorf("without an upgrade: %s %s", answer.Status, text)
	}
	// A page of another site may not connect.
	_, answer, err = websocket.Dial(t.Context(), n.web.URL+"/v1/events/ws", &websocket.DialOptions{HTTPHeader: http.Header{"Origin": {"https://evil.example"}}})
	if err == nil {
		t.Fatal("a page of another site listens")
	}
	text, _ = io.ReadAll(answer.Body)
	answer.Body.Close()
	if answer.StatusCode != http.StatusForbidden || answer.Header.Get("Content-Type") != "application/problem+json" ||
		!strings.Contains(string(text), `"code":"cross_origin"`) || !strings.Contains(string(text), `"request_id"`) {
		t.Errorf("from another origin: %s %v %s", answer.Status, answer.Header, text)
	}
	// A subscriber that sends is disconnected.
	next, conn := n.socket("")
	if err := conn.Write(t.Context(), websocket.MessageText, []byte("hello")); err != nil {
		t.Fatal(err)
	}
	if _, err := next(); websocket.CloseStatus(err) != websocket.StatusPolicyViolation {
		t.Errorf("after a message: %v", err)
	}
}

// A subscriber that does not keep up is disconnected and told where to resume; from there
// nothing is missing. Other subscribers do not notice.
func TestSlowSubscribers(t *testing.T) {
	const tooSlow = 500 * time.Millisecond
	n := newNewsroom(t, EventLimits{Slow: tooSlow})
	zero := uint64(0)
	const jobs = 5000 // their events do not fit into the sockets' buffers, nor into a gRPC stream's window
	slow, conn := n.socket("?after=0")
	defer conn.CloseNow()
	grpcSlow := n.stream(&pb.SubscribeRequest{After: &zero})
	for range jobs / 1000 {
		n.submit(1000, "a")
	}
	want := n.all()
	patient := *n // a face over the same feed that does not mistake a busy machine for a slow subscriber
	face := NewHTTP(n.engine, HTTPOptions{Feed: n.feed, Events: EventLimits{Slow: patience, Stuck: patience}, Identify: anyone})
	patient.web = httptest.NewServer(face)
	defer patient.web.Close()
	defer face.Drain()
	quick, closing := patient.sse("?after=0")
	defer closing()
	if got := take(t, len(want), quick); !slices.Equal(got, want) {
		t.Error("the quick one did not get everything")
	}
	for deadline := time.Now().Add(2 * time.Minute); !n.written.stuckFor(tooSlow) || !n.sent.stuckFor(tooSlow); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("writing to who does not read does not get stuck")
		}
	}
	for name, next := range map[string]func() (wire.Event, error){"WebSocket": slow, "gRPC": grpcSlow} {
		last, end := uint64(0), error(nil)
		for end == nil {
			e, err := next()
			if end = err; err == nil {
				last = e.Seq
			}
		}
		var resume uint64
		text := end.Error()
		if i := strings.Index(text, "after="); i >= 0 {
			_, _ = fmt.Sscanf(text[i:], "after=%d", &resume)
		}
		if !strings.Contains(text, "slow consumer") || resume != last || last >= want[len(want)-1] {
			t.Errorf("%s: got up to %d of %d and ended with %v", name, last, want[len(want)-1], end)
			continue
		}
		rest, closing := patient.sse(fmt.Sprintf("?after=%d", last))
		if got := take(t, int(want[len(want)-1]-last), rest); got[0] != last+1 {
			t.Errorf("%s: resumed with %d after %d", name, got[0], last)
		}
		closing()
	}
}

// A server that stops tells subscribers where to resume.
func TestSubscribersAreToldOfTheEnd(t *testing.T) {
	n := newNewsroom(t, EventLimits{})
	n.submit(5, "a")
	last := n.all()
	next, closing := n.sse("?after=0")
	defer closing()
	socket, conn := n.socket("?after=0")
	defer conn.CloseNow()
	take(t, len(last), next)
	take(t, len(last), socket)
	n.http.Drain()
	want := fmt.Sprintf("resume with after=%d", last[len(last)-1])
	if _, err := next(); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("SSE: %v", err)
	}
	if _, err := socket(); websocket.CloseStatus(err) != websocket.StatusGoingAway || !strings.Contains(err.Error(), want) {
		t.Errorf("WebSocket: %v", err)
	}
}

// While nothing happens, keep-alive messages carry the position to resume from.
func TestSubscribersGetBeats(t *testing.T) {
	n := newNewsroom(t, EventLimits{Beat: 20 * time.Millisecond})
	n.submit(2, "a")
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, n.web.URL+"/v1/events?after=0&queue=other", nil)
	if err != nil {
		t.Fatal(err)
	}
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	lines := bufio.NewScanner(answer.Body)
	want := fmt.Sprintf("id: %d", len(n.all()))
	for lines.Scan() {
		if lines.Text() == want {
			return
		}
	}
	t.Errorf("no beat: %v", lines.Err())
}

// Every kind of subscription gets the newest progress of each job, before the events that follow,
// and filters apply to it.
func TestSubscribersGetProgress(t *testing.T) {
	n := newNewsroom(t, EventLimits{})
	zero := uint64(0)
	sse, closing := n.sse("?after=0")
	defer closing()
	socket, conn := n.socket("?after=0&type=job.progress,job.started,job.completed")
	defer conn.CloseNow()
	only, closingOnly := n.sse("?after=0&queue=mail")
	defer closingOnly()
	ways := map[string]func() (wire.Event, error){"SSE": sse, "WebSocket": socket, "gRPC": n.stream(&pb.SubscribeRequest{After: &zero})}
	// until reads events up to one of a type for each of some jobs.
	until := func(name string, next func() (wire.Event, error), typ gq.EventType, jobs ...gq.JobID) map[string]wire.Event {
		t.Helper()
		got := make(map[string]wire.Event)
		for len(got) < len(jobs) {
			e, err := next()
			switch {
			case err != nil:
				t.Fatalf("%s: after %v: %v", name, got, err)
			case e.Type == typ:
				got[e.Entity] = e
			case typ == gq.EventCompleted && e.Type == gq.EventProgress:
				t.Errorf("%s: the report of %s comes for the second time", name, e.Entity)
			}
		}
		return got
	}
	n.submit(1, "mail")
	n.submit(1, "other")
	jobs, err := n.engine.Claim(t.Context(), gq.ClaimRequest{Worker: "w", N: 2, Queues: []string{"mail", "other"}})
	if err != nil || len(jobs) != 2 {
		t.Fatal(jobs, err)
	}
	ids := []gq.JobID{jobs[0].Spec.ID, jobs[1].Spec.ID}
	for name, next := range ways { // they have caught up
		until(name, next, gq.EventStarted, ids...)
	}
	until("SSE of a queue", only, gq.EventStarted, ids[0])

	for i := range jobs {
		beat := gq.Heartbeat{Lease: jobs[i].State.Lease.Ref(), Progress: float64(i+1) / 4, Note: "row " + jobs[i].Spec.Queue}
		if out, err := n.engine.Heartbeat(t.Context(), []gq.Heartbeat{beat}); err != nil || out[0].Err != nil {
			t.Fatal(out, err)
		}
	}
	check := func(name string, e wire.Event, i int) {
		t.Helper()
		if d := e.Data; d.Progress == nil || *d.Progress != float64(i+1)/4 || d.Note != "row "+jobs[i].Spec.Queue || d.Queue != jobs[i].Spec.Queue {
			t.Errorf("%s: the report of job %d is %+v", name, i, e)
		}
	}
	for name, next := range ways {
		got := until(name, next, gq.EventProgress, ids...)
		for i, id := range ids {
			check(name, got[id.String()], i)
		}
	}
	check("SSE of a queue", until("SSE of a queue", only, gq.EventProgress, ids[0])[ids[0].String()], 0)

	for i := range jobs {
		if _, err := n.engine.Complete(t.Context(), jobs[i].State.Lease.Ref(), nil); err != nil {
			t.Fatal(err)
		}
	}
	for name, next := range ways {
		until(name, next, gq.EventCompleted, ids...)
	}
	if e, err := only(); err != nil || e.Type != gq.EventCompleted || e.Entity != ids[0].String() {
		t.Errorf("SSE of a queue: after the report comes %+v, %v", e, err)
	}
}
