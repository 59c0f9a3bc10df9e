package delivery

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/engine"
	"github.com/gopherqueue/gq/internal/testing/leaktest"
	"github.com/gopherqueue/gq/store"
	"github.com/gopherqueue/gq/store/local"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// fixture is an engine on an in-memory store, with deliveries to loopback.
type fixture struct {
	*testing.T
	store  store.Store
	engine *engine.Engine
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	s, err := local.OpenMemory(local.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	e, err := engine.New(s, engine.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return &fixture{T: t, store: s, engine: e}
}

// patience is the limit for receivers that a stalled machine makes slow. It is less than
// the time for which a process owns a delivery.
const patience = 45 * time.Second

// hooks runs deliveries until the test ends or stop is called.
func (f *fixture) hooks(o Options) (h *Hooks, stop func()) {
	f.Helper()
	var err error
	if o.Allow, err = ParseAllow([]string{"loopback"}); err != nil {
		f.Fatal(err)
	}
	o.Within = patience
	if o.Backoff == nil {
		o.Backoff = func(int, float64) time.Duration { return 10 * time.Millisecond }
	}
	h = New(f.engine, f.store, o)
	if err := h.Prepare(f.Context()); err != nil {
		f.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- h.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			f.Errorf("run: %v", err)
		}
	})
	f.Cleanup(stop)
	return h, stop
}

// finish submits a job with a callback and completes it.
func (f *fixture) finish(callback string) gq.JobID {
	f.Helper()
	out, err := f.engine.Submit(f.Context(), gq.Spec{
		Type: "t", Payload: gq.Payload{Data: []byte(`{"secret":"payload"}`)},
		Metadata: gq.Metadata{CallbackURL: callback, Tags: map[string]string{"a": "<b>"}},
	})
	if err != nil {
		f.Fatal(err)
	}
	jobs, err := f.engine.Claim(f.Context(), gq.ClaimRequest{Worker: "w", N: 1})
	if err != nil || len(jobs) != 1 {
		f.Fatalf("claimed %d: %v", len(jobs), err)
	}
	if _, err := f.engine.Complete(f.Context(), jobs[0].State.Lease.Ref(), []byte(`{"n":1}`)); err != nil {
		f.Fatal(err)
	}
	return out.ID()
}

// until waits for a condition.
func (f *fixture) until(what string, ok func() bool) {
	f.Helper()
	deadline := time.Now().Add(2 * time.Minute)
	for !ok() {
		if time.Now().After(deadline) {
			f.Fatalf("waited in vain for %s", what)
		}
		time.Sleep(2 * time.Millisecond)
	}
}

// state lists the deliveries in a state.
func (f *fixture) state(h *Hooks, s State) []Delivery {
	f.Helper()
	page, err := h.List(f.Context(), s, "", 0)
	if err != nil {
		f.Fatal(err)
	}
	return page.Deliveries
}

// received is a request as the receiver got it.
type received struct {
	header http.Header
	body   []byte
}

// receiver responds with the given statuses, and then with the last one forever.
type receiver struct {
	*httptest.Server
	mu  sync.Mutex
	got []received // guarded by mu
}

func (f *fixture) receiver(statuses ...int) *receiver {
	f.Helper()
	r := &receiver{}
	r.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
		body, _ := io.ReadAll(request.Body)
		r.mu.Lock()
		n := len(r.got)
		r.got = append(r.got, received{request.Header.Clone(), body})
		r.mu.Unlock()
		w.Header().Set("Location", r.URL+"/elsewhere")
		w.WriteHeader(statuses[min(n, len(statuses)-1)])
	}))
	f.Cleanup(r.Close)
	return r
}

func (r *receiver) requests() []received {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.got
}
