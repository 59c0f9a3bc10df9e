package delivery

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/engine"
	"github.com/gopherqueue/gq/internal/errs"
	"github.com/gopherqueue/gq/internal/testing/spec"
	"github.com/gopherqueue/gq/store"
	"github.com/gopherqueue/gq/webhook"
)

func TestDelivery(t *testing.T) {
	spec.Covers(t, "J-147")
	f := newFixture(t)
	r := f.receiver(http.StatusNoContent)
	h, _ := f.hooks(Options{})
	id := f.finish(r.URL + "/hook?x=1")
	f.finish("")
	f.until("a delivery", func() bool { return len(f.state(h, Delivered)) == 1 })

	got := r.requests()
	if len(got) != 1 {
		t.Fatalf("%d calls, want 1", len(got))
	}
	var body struct {
		Type      string         `json:"type"`
		Timestamp time.Time      `json:"timestamp"`
		Data      map[string]any `json:"data"`
	}
	if err := json.Unmarshal(got[0].body, &body); err != nil {
		t.Fatal(err)
	}
	if body.Type != "job.completed" || body.Timestamp.IsZero() || body.Data["id"] != id.String() || body.Data["state"] != "COMPLETED" {
		t.Errorf("the body is %s", got[0].body)
	}
	if bytes.Contains(got[0].body, []byte("secret")) {
		t.Error("the payload is in the body")
	}
	if result, _ := body.Data["result"].(map[string]any); result["n"] != 1.0 {
		t.Errorf("the result is %v", body.Data["result"])
	}
	secret, err := h.Secret(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	head := got[0].header
	if err := secret.Verify(head.Get(webhook.HeaderID), head.Get(webhook.HeaderTimestamp), head.Get(webhook.HeaderSignature), got[0].body, time.Now()); err != nil {
		t.Error(err)
	}
	d, err := h.Get(t.Context(), head.Get(webhook.HeaderID))
	if err != nil || d.State != Delivered || d.Attempts != 1 || d.Status != http.StatusNoContent {
		t.Errorf("the delivery is %+v, %v", d, err)
	}
	if _, err := h.Retry(t.Context(), d.ID); errs.KindOf(err) != gq.KindConflict {
		t.Errorf("a delivery that was made, again: %v", err)
	}
}

// A delivery names the trace that the job was submitted in.
func TestDeliveryNamesTheTrace(t *testing.T) {
	const parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
	f := newFixture(t)
	r := f.receiver(http.StatusNoContent)
	h, _ := f.hooks(Options{})
	submitted, err := f.engine.Submit(t.Context(), gq.Spec{
		Type: "t", Metadata: gq.Metadata{CallbackURL: r.URL}, Attributes: map[string]string{gq.AttributeTraceParent: parent},
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.engine.Cancel(t.Context(), submitted.ID(), "enough"); err != nil {
		t.Fatal(err)
	}
	f.until("a delivery", func() bool { return len(f.state(h, Delivered)) == 1 })
	got := r.requests()[0]
	if got.header.Get("traceparent") != parent || !bytes.Contains(got.body, []byte(`"traceparent":"`+parent+`"}`)) {
		t.Errorf("the header has %q, the body is %s", got.header.Get("traceparent"), got.body)
	}
}

// Every way a job can end is delivered under its own name.
func TestEnds(t *testing.T) {
	f := newFixture(t)
	r := f.receiver(http.StatusOK)
	h, _ := f.hooks(Options{})
	cancelled, err := f.engine.Submit(t.Context(), gq.Spec{Type: "t", Delay: time.Hour, Metadata: gq.Metadata{CallbackURL: r.URL}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.engine.Cancel(t.Context(), cancelled.ID(), ""); err != nil {
		t.Fatal(err)
	}
	if _, err := f.engine.Submit(t.Context(), gq.Spec{Type: "t", Metadata: gq.Metadata{CallbackURL: r.URL}}); err != nil {
		t.Fatal(err)
	}
	jobs, err := f.engine.Claim(t.Context(), gq.ClaimRequest{Worker: "w", N: 1})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.engine.Fail(t.Context(), jobs[0].State.Lease.Ref(), gq.Failure{Category: gq.CategoryPermanent}); err != nil {
		t.Fatal(err)
	}
	f.until("two deliveries", func() bool { return len(f.state(h, Delivered)) == 2 })
	types := map[gq.EventType]bool{}
	for _, d := range f.state(h, Delivered) {
		types[d.Type] = true
	}
	if !types[gq.EventCancelled] || !types[gq.EventFailed] && !types[gq.EventDeadLettered] {
		t.Errorf("told of %v", types)
	}
}

func TestRetries(t *testing.T) {
	f := newFixture(t)
	r := f.receiver(500, 302, 429, 200)
	h, _ := f.hooks(Options{})
	f.finish(r.URL)
	f.until("a delivery", func() bool { return len(f.state(h, Delivered)) == 1 })
	got := r.requests()
	if len(got) != 4 {
		t.Fatalf("%d calls, want 4", len(got))
	}
	for i := range got {
		if got[i].header.Get(webhook.HeaderID) != got[0].header.Get(webhook.HeaderID) || !bytes.Equal(got[i].body, got[0].body) {
			t.Errorf("attempt %d has another id or body", i+1)
		}
	}
	f.until("nothing outstanding", func() bool { return h.Totals().Outstanding == 0 })
	if totals := h.Totals(); totals.Failed != 3 || totals.Delivered != 1 {
		t.Errorf("totals %+v", totals)
	}
}

func TestDeadLetter(t *testing.T) {
	f := newFixture(t)
	r := f.receiver(500, 500, 500, 200)
	gone := f.receiver(http.StatusGone)
	h, _ := f.hooks(Options{Attempts: 3})
	f.finish(r.URL)
	f.finish(gone.URL)
	f.finish("http://169.254.169.254/latest/meta-data/")
	f.until("three dead letters", func() bool { return len(f.state(h, Dead)) == 3 })
	if n := len(gone.requests()); n != 1 {
		t.Errorf("%d calls of a receiver that is gone", n)
	}
	byURL := map[string]Delivery{}
	for _, d := range f.state(h, Dead) {
		byURL[d.URL] = d
	}
	if d := byURL["http://169.254.169.254/latest/meta-data/"]; d.Reason != errForbidden.Error() || d.Attempts != 1 {
		t.Errorf("a forbidden receiver: %+v", d)
	}
	if d := byURL[r.URL]; d.Attempts != 3 || d.Status != 500 {
		t.Errorf("a broken receiver: %+v", d)
	}
	again, err := h.Retry(t.Context(), byURL[r.URL].ID)
	if err != nil || again.State != Pending {
		t.Fatalf("%+v, %v", again, err)
	}
	f.until("the retried one", func() bool { return len(f.state(h, Delivered)) == 1 })
	if _, err := h.Retry(t.Context(), "msg_x.77"); errs.KindOf(err) != gq.KindNotFound {
		t.Errorf("an unknown delivery: %v", err)
	}
}

// A redirect is not followed, not even to an allowed address.
func TestRedirects(t *testing.T) {
	f := newFixture(t)
	for _, status := range []int{301, 302, 303, 307, 308} {
		r := f.receiver(status)
		s := newSender(Allow{prefixes: words["loopback"]}, patience)
		v := s.send(t.Context(), r.URL+"/first", http.Header{}, []byte("{}"))
		s.close()
		if v.delivered() || v.final || len(r.requests()) != 1 {
			t.Errorf("%d: %+v after %d calls", status, v, len(r.requests()))
		}
	}
}

// Misbehaving receivers cost an attempt and delay nobody.
func TestAbusiveReceivers(t *testing.T) {
	f := newFixture(t)
	var written atomic.Int64
	huge := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		chunk := bytes.Repeat([]byte("x"), 1<<16)
		for range 1 << 12 {
			n, err := w.Write(chunk)
			written.Add(int64(n))
			if err != nil {
				return
			}
		}
	}))
	defer huge.Close()
	header := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("X", strings.Repeat("x", 1<<20))
	}))
	defer header.Close()
	s := newSender(Allow{prefixes: words["loopback"]}, patience)
	defer s.close()
	if v := s.send(t.Context(), huge.URL, http.Header{}, []byte("{}")); !v.delivered() {
		t.Errorf("a huge answer: %+v", v)
	}
	if v := s.send(t.Context(), header.URL, http.Header{}, []byte("{}")); v.delivered() || v.reason == "" {
		t.Errorf("a huge header: %+v", v)
	}
	for name, answer := range map[string]string{"reset": "", "garbage": "\x00\x01SSH-2.0\r\n\r\n", "endless informational": strings.Repeat("HTTP/1.1 100 Continue\r\n\r\n", 100)} {
		u := f.rawServer(answer)
		if v := s.send(t.Context(), u, http.Header{}, []byte("{}")); v.delivered() || strings.Contains(v.reason, "SSH") {
			t.Errorf("%s: %+v", name, v)
		}
	}
	if n := written.Load(); n > 64<<20 {
		t.Errorf("%d bytes of an answer were taken", n)
	}
}

// rawServer accepts connections, responds with a text and resets them.
func (f *fixture) rawServer(answer string) string {
	f.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		f.Fatal(err)
	}
	done := make(chan struct{})
	f.Cleanup(func() { l.Close(); <-done })
	go func() {
		defer close(done)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			buffer := make([]byte, 1<<10)
			_, _ = c.Read(buffer)
			_, _ = io.WriteString(c, answer)
			_ = c.(*net.TCPConn).SetLinger(0)
			c.Close()
		}
	}()
	return "http://" + l.Addr().String()
}

// hanging is a receiver that never responds; waiting counts the requests.
func (f *fixture) hanging() (url string, waiting *atomic.Int64) {
	f.Helper()
	waiting = new(atomic.Int64)
	release := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		waiting.Add(1)
		defer waiting.Add(-1)
		select {
		case <-release:
		case <-r.Context().Done():
		}
	}))
	f.Cleanup(func() {
		close(release)
		server.Close()
	})
	return server.URL, waiting
}

// Deliveries to a receiver that never responds use only its own share of requests.
func TestSlowReceiver(t *testing.T) {
	f := newFixture(t)
	slow, waiting := f.hanging()
	quick := f.receiver(200)
	h, stop := f.hooks(Options{})
	defer stop()
	for range 20 {
		f.finish(slow)
	}
	f.until("the slow receiver to be busy", func() bool { return waiting.Load() == 1 })
	for range 20 {
		f.finish(quick.URL)
	}
	f.until("the quick receiver", func() bool { return len(quick.requests()) == 20 })
	if n := h.Totals().Failed; n > 0 {
		t.Errorf("the quick receiver waited until %d slow ones were given up", n)
	}
	if n := waiting.Load(); n > 1 {
		t.Errorf("%d requests at once to a receiver that has not answered any, want 1", n)
	}
	f.until("twenty outstanding ones", func() bool { return h.Totals().Outstanding == 20 })
}

// Any number of receivers that never respond do not delay one that does.
func TestManySlowReceivers(t *testing.T) {
	f := newFixture(t)
	quick := f.receiver(200)
	h, stop := f.hooks(Options{Concurrency: 8})
	defer stop()
	f.finish(quick.URL)
	f.until("the first delivery", func() bool { return len(f.state(h, Delivered)) == 1 })
	var all []*atomic.Int64
	for range 12 {
		slow, waiting := f.hanging()
		all = append(all, waiting)
		f.finish(slow)
	}
	busy := func() (n int64) {
		for _, waiting := range all {
			n += waiting.Load()
		}
		return n
	}
	f.until("the slow receivers to have all they get", func() bool { return busy() == 6 })
	for range 20 {
		f.finish(quick.URL)
	}
	f.until("the quick receiver", func() bool { return len(quick.requests()) == 21 })
	if n := h.Totals().Failed; n > 0 {
		t.Errorf("the quick receiver waited until %d slow ones were given up", n)
	}
}

// A host's share follows from how fast its last request ended.
func TestPlaces(t *testing.T) {
	h := New(nil, nil, Options{Concurrency: 8})
	for _, test := range []struct {
		name   string
		at     host
		active [paces]int
		want   bool
	}{
		{"none under way", host{}, [paces]int{}, true},
		{"an unknown one has one", host{active: 1}, [paces]int{unknown: 1}, false},
		{"a quick one has several", host{pace: quick, active: perHost - 1}, [paces]int{quick: perHost - 1}, true},
		{"and no more", host{pace: quick, active: perHost}, [paces]int{quick: perHost}, false},
		{"slow ones share a quarter", host{pace: slow}, [paces]int{slow: 1}, true},
		{"and no more", host{pace: slow}, [paces]int{slow: 2}, false},
		{"which leaves room for unknown ones", host{}, [paces]int{slow: 2, unknown: 3}, true},
		{"up to three quarters", host{}, [paces]int{slow: 2, unknown: 4}, false},
		{"the rest is for quick ones", host{pace: quick}, [paces]int{slow: 2, unknown: 4, quick: 1}, true},
		{"all are taken", host{pace: quick}, [paces]int{quick: 8}, false},
	} {
		if h.active = test.active; h.free(&test.at) != test.want {
			t.Errorf("%s: %t, want %t", test.name, !test.want, test.want)
		}
	}
}

// A host that accepts nothing does not fill the outbox.
func TestCrowdedHost(t *testing.T) {
	f := newFixture(t)
	dead := f.rawServer("")
	h, _ := f.hooks(Options{MaxPerHost: 5, Backoff: func(int, float64) time.Duration { return time.Hour }})
	for range 12 {
		f.finish(dead)
	}
	f.until("five outstanding and seven dead", func() bool { return len(f.state(h, Dead)) == 7 && len(f.state(h, Pending)) == 5 })
	for _, d := range f.state(h, Dead) {
		if d.Attempts != 0 || d.Reason == "" {
			t.Errorf("%+v", d)
		}
	}
}

// Jobs that end while no process delivers, and requests in progress when a process died,
// are delivered by the next process.
func TestRestart(t *testing.T) {
	f := newFixture(t)
	var broken atomic.Bool
	broken.Store(true)
	got, arrived := make(chan string, 100), make(chan struct{}, 100)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		if broken.Load() {
			arrived <- struct{}{}
			<-r.Context().Done() // the process dies meanwhile
			return
		}
		got <- r.Header.Get(webhook.HeaderID)
	}))
	defer server.Close()
	_, stop := f.hooks(Options{Exclusive: true})
	underWay := f.finish(server.URL)
	<-arrived
	h := New(f.engine, f.store, Options{})
	if n := len(f.state(h, Pending)); n != 1 {
		t.Errorf("%d deliveries are under way", n)
	}
	stop()
	between := f.finish(server.URL)
	broken.Store(false)
	next, _ := f.hooks(Options{Exclusive: true})
	f.until("both", func() bool { return len(f.state(next, Delivered)) == 2 })
	seen := map[string]bool{<-got: true, <-got: true}
	for _, d := range f.state(next, Delivered) {
		if !seen[d.ID] || d.Job != underWay && d.Job != between {
			t.Errorf("%+v was not received", d)
		}
	}
}

// Two processes on one store deliver everything, each end once as long as neither dies.
func TestTwoProcesses(t *testing.T) {
	f := newFixture(t)
	r := f.receiver(500, 200)
	a, _ := f.hooks(Options{Scan: 20 * time.Millisecond})
	f.hooks(Options{Scan: 20 * time.Millisecond})
	const jobs = 50
	for range jobs {
		f.finish(r.URL)
	}
	f.until("all", func() bool {
		page, err := a.List(t.Context(), Delivered, "", 1000)
		return err == nil && len(page.Deliveries) == jobs
	})
	if n := len(r.requests()); n != jobs+1 {
		t.Errorf("%d calls for %d ends and one refusal", n, jobs)
	}
}

func TestListPages(t *testing.T) {
	f := newFixture(t)
	r := f.receiver(410, 410, 200)
	h, _ := f.hooks(Options{})
	for range 7 {
		f.finish(r.URL)
		n := len(r.requests())
		f.until("it", func() bool { return len(f.state(h, Pending)) == 0 && len(r.requests()) >= min(n, 7) })
	}
	f.until("seven", func() bool { return len(f.state(h, Delivered))+len(f.state(h, Dead)) == 7 })
	seen := map[string]bool{}
	pages := 0
	for cursor := ""; ; pages++ {
		page, err := h.List(t.Context(), "", cursor, 3)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range page.Deliveries {
			seen[d.ID] = true
		}
		if cursor = page.Next; cursor == "" {
			break
		}
	}
	if len(seen) != 7 || pages > 3 {
		t.Errorf("%d deliveries on %d pages", len(seen), pages+1)
	}
	for _, bad := range []func() error{
		func() error { _, err := h.List(t.Context(), "nonsense", "", 0); return err },
		func() error { _, err := h.List(t.Context(), "", "nonsense", 0); return err },
		func() error { _, err := h.List(t.Context(), "", "", 1001); return err },
	} {
		if err := bad(); errs.KindOf(err) != gq.KindInvalid {
			t.Errorf("%v, want invalid", err)
		}
	}
}

func TestPrune(t *testing.T) {
	f := newFixture(t)
	r := f.receiver(200)
	h, _ := f.hooks(Options{})
	f.finish(r.URL)
	f.until("a delivery", func() bool { return len(f.state(h, Delivered)) == 1 })
	if err := h.prune(t.Context(), time.Now().Add(23*time.Hour)); err != nil || len(f.state(h, Delivered)) != 1 {
		t.Errorf("dropped too early, %v", err)
	}
	if err := h.prune(t.Context(), time.Now().Add(25*time.Hour)); err != nil || len(f.state(h, Delivered)) != 0 {
		t.Errorf("not dropped, %v", err)
	}
}

// Pruning deletes more than fits into one commit: a busy installation creates more
// between two passes.
func TestPruneMany(t *testing.T) {
	f := newFixture(t)
	h, stop := f.hooks(Options{})
	stop()
	const n = 2*store.MaxDocs + 1
	docs := make([]store.Doc, n)
	for i := range docs {
		r := record{Delivery: Delivery{ID: "msg_x", Type: gq.EventCompleted, CreatedAt: time.Now(), State: Delivered}, Seq: uint64(i + 1), Body: []byte("{}")}
		var err error
		if docs[i], err = r.doc(kindDone, 0); err != nil {
			t.Fatal(err)
		}
	}
	for some := range slices.Chunk(docs, store.MaxDocs) {
		if _, err := f.store.PutDocs(t.Context(), some); err != nil {
			t.Fatal(err)
		}
	}
	if err := h.prune(t.Context(), time.Now().Add(25*time.Hour)); err != nil || len(f.state(h, Delivered)) != 0 {
		t.Errorf("%d and more are left, %v", len(f.state(h, Delivered)), err)
	}
}

// The cursor passes jobs without a callback, and is not written for every page.
func TestCursor(t *testing.T) {
	f := newFixture(t)
	h, stop := f.hooks(Options{})
	r := f.receiver(200)
	for range 5 {
		f.finish("")
	}
	f.finish(r.URL)
	f.until("a delivery", func() bool { return len(f.state(h, Delivered)) == 1 })
	stop()
	after, _, err := h.cursor(t.Context())
	last, lastErr := f.engine.LastEvent(t.Context())
	if err != nil || lastErr != nil || after != last {
		t.Errorf("the cursor is at %d of %d: %v, %v", after, last, err, lastErr)
	}
}

func TestStandardBackoff(t *testing.T) {
	total := time.Duration(0)
	for n := 1; n < 10; n++ {
		d := standardBackoff(n, 0)
		if d < 5*time.Second || standardBackoff(n, 0.999) >= d+d/5 {
			t.Errorf("attempt %d: %v", n, d)
		}
		total += d
	}
	if total < 12*time.Hour || total > 48*time.Hour {
		t.Errorf("ten attempts take %v", total)
	}
}

var _ Store = store.Store(nil)

func ExampleSecret_Verify() {
	secret, _ := webhook.ParseSecret("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
	at := time.Unix(1614265330, 0)
	body := []byte(`{"test": 2432232314}`)
	signature := secret.Sign("msg_p5jXN8AQM9LWM0D4loKWxJek", at, body)
	fmt.Println(signature)
	fmt.Println(secret.Verify("msg_p5jXN8AQM9LWM0D4loKWxJek", "1614265330", signature, body, at))
	// Output:
	// v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=
	// <nil>
}

// A job that is purged as soon as it has ended is still delivered.
func TestPurgeLosesNoCallback(t *testing.T) {
	f := newFixture(t)
	e, err := engine.New(f.store, engine.Options{})
	if err != nil {
		t.Fatal(err)
	}
	f.engine = e
	r := f.receiver(200)
	h, stop := f.hooks(Options{})
	e.UseCallbacks(h)
	const n = 10
	for range n {
		if err := e.Purge(t.Context(), f.finish(r.URL)); err != nil {
			t.Fatal(err)
		}
	}
	for range n {
		f.finish(r.URL)
		if removed, err := e.PurgeWhere(t.Context(), gq.Query{Statuses: []gq.Status{gq.StatusCompleted}}); err != nil || removed != 1 {
			t.Fatalf("%d jobs were removed: %v", removed, err)
		}
	}
	f.until("all callbacks", func() bool { return len(f.state(h, Delivered)) == 2*n })

	// Without a process that creates deliveries, the ended job stays.
	stop()
	id := f.finish(r.URL)
	soon, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if err := e.Purge(soon, id); !errors.Is(err, gq.ErrTimeout) {
		t.Errorf("a job whose callback is still to be told: %v", err)
	}
	if _, err := e.Get(t.Context(), id, 0); err != nil {
		t.Error(err)
	}
	if err := e.Purge(t.Context(), f.finish("")); err != nil {
		t.Errorf("one without a callback: %v", err)
	}
}
