package worker_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/internal/testing/leaktest"
	"github.com/gopherqueue/gq/internal/testing/spec"
	"github.com/gopherqueue/gq/machine"
	"github.com/gopherqueue/gq/worker"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// fixture is a worker on an in-memory queue, inside a synctest bubble.
type fixture struct {
	*testing.T
	*memory
	link   *link
	mux    *worker.Mux
	config worker.Config
	log    *logBook
	worker *worker.Worker
	cancel context.CancelFunc
	ended  chan error
}

// bubble runs a test in a synctest bubble.
func bubble(t *testing.T, f func(f *fixture)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		m := newMemory()
		x := &fixture{T: t, memory: m, link: linkTo(m), mux: worker.NewMux(), log: &logBook{}}
		x.config.Logger = slog.New(slog.NewJSONHandler(x.log, nil))
		f(x)
		if x.worker != nil {
			if err := x.stop(); err != nil {
				t.Errorf("the worker did not stop cleanly: %v", err)
			}
		}
	})
}

// run starts the worker.
func (f *fixture) run() {
	f.Helper()
	w, err := worker.NewWith(f.link, f.mux, f.config)
	if err != nil {
		f.Fatal(err)
	}
	ctx, cancel := context.WithCancel(f.Context())
	f.worker, f.cancel, f.ended = w, cancel, make(chan error, 1)
	go func() { f.ended <- w.Run(ctx) }()
	synctest.Wait()
}

// stop stops the worker and returns the result of Run.
func (f *fixture) stop() error {
	f.cancel()
	f.worker = nil
	return <-f.ended
}

// handle registers an untyped handler for "work".
func (f *fixture) handle(h worker.Handler) { f.mux.HandleFunc("work", h) }

// work submits a job of type "work" under a policy.
func (f *fixture) work(change func(*gq.Policy)) gq.JobID {
	p := machine.DefaultPolicy()
	if change != nil {
		change(&p)
	}
	return f.submit(gq.Spec{Type: "work", Policy: p})
}

// after lets time pass and waits until everything is idle.
func after(d time.Duration) {
	time.Sleep(d) // in the bubble
	synctest.Wait()
}

func (f *fixture) wantStatus(id gq.JobID, want gq.Status) gq.Job {
	f.Helper()
	j := f.job(id)
	if j.State.Status != want {
		f.Errorf("the job is %v (failure %+v), want %v", j.State.Status, j.State.Failure, want)
	}
	return j
}

// logBook keeps log lines.
type logBook struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *logBook) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *logBook) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// lines returns the log lines with a message.
func (l *logBook) lines(message string) (found []map[string]any) {
	for line := range strings.Lines(l.String()) {
		var entry map[string]any
		if json.Unmarshal([]byte(line), &entry) == nil && entry["msg"] == message {
			found = append(found, entry)
		}
	}
	return found
}

type email struct {
	To string `json:"to"`
	N  int    `json:"n"`
}

func TestTypedHandler(t *testing.T) {
	spec.Covers(t, "Q-45")
	bubble(t, func(f *fixture) {
		var got worker.Job[email]
		worker.HandleResult(f.mux, gq.NewKind[email, map[string]string]("email.send"), func(_ context.Context, job *worker.Job[email]) (map[string]string, error) {
			got = *job
			return map[string]string{"sent": job.Args.To}, nil
		})
		f.run()
		id := f.submit(gq.Spec{
			Type: "email.send", Payload: gq.Payload{Data: []byte(`{"to":"ann","n":3,"extra":1}`)},
			Key:      gq.IdempotencyKey{Name: "k1"},
			Metadata: gq.Metadata{CorrelationID: "trace-1", Tags: map[string]string{"a": "b"}},
		})
		synctest.Wait()
		j := f.wantStatus(id, gq.StatusCompleted)
		if string(j.Result) != `{"sent":"ann"}` {
			t.Errorf("result %s", j.Result)
		}
		if got.Args != (email{"ann", 3}) {
			t.Errorf("the handler got %+v", got.Args)
		}
		if got.ID() != id || got.Type() != "email.send" || got.Queue() != "default" || got.Attempt() != 1 || got.Bound() != 3 ||
			got.LeaseVersion() != 1 || got.LeaseID() == "" || got.PreviousAttempt() != "" || got.Key().Name != "k1" ||
			got.CorrelationID() != "trace-1" || got.Metadata().Tags["a"] != "b" || got.LastCheckpoint() != nil || got.Failure() != nil {
			t.Errorf("the handler saw another job: %+v", got.Run)
		}
		if claims := f.link.made("claim"); len(claims) < 1 || claims[0].claim.Types[0] != "email.send" {
			t.Errorf("claims: %+v", claims)
		}
	})
}

func TestRawPayloads(t *testing.T) {
	bubble(t, func(f *fixture) {
		const payload = "\x00 not JSON"
		var got []string
		worker.Handle(f.mux, gq.NewKind[[]byte, gq.None]("bytes"), func(_ context.Context, job *worker.Job[[]byte]) error {
			got = append(got, string(job.Args))
			return job.SetResult([]byte("raw result"))
		})
		worker.Handle(f.mux, gq.NewKind[json.RawMessage, gq.None]("json"), func(_ context.Context, job *worker.Job[json.RawMessage]) error {
			got = append(got, string(job.Args))
			return nil
		})
		f.config.Slots = 1
		f.run()
		id := f.submit(gq.Spec{Type: "bytes", Payload: gq.Payload{Data: []byte(payload), ContentType: "application/octet-stream"}})
		synctest.Wait()
		f.submit(gq.Spec{Type: "json", Payload: gq.Payload{Data: []byte(` {"a" : 1}`)}})
		synctest.Wait()
		if len(got) != 2 || got[0] != payload || got[1] != ` {"a" : 1}` {
			t.Errorf("payloads %q", got)
		}
		if r := f.wantStatus(id, gq.StatusCompleted).Result; string(r) != "raw result" {
			t.Errorf("result %q", r)
		}
	})
}

func TestPayloadThatDoesNotDecode(t *testing.T) {
	bubble(t, func(f *fixture) {
		worker.Handle(f.mux, gq.NewKind[email, gq.None]("email.send"), func(context.Context, *worker.Job[email]) error {
			t.Error("the handler was called")
			return nil
		})
		f.run()
		for payload, want := range map[string]string{
			`{"to":`:         "it is malformed JSON at byte 6",
			`{"n":"secret"}`: "n is a JSON string (byte 13); the handler takes int",
			`{"to":12.75}`:   "to is a JSON number (byte 11); the handler takes string",
			`[]`:             "it is a JSON array (byte 1); the handler takes worker_test.email",
		} {
			id := f.submit(gq.Spec{Type: "email.send", Payload: gq.Payload{Data: []byte(payload), ContentType: "text/plain"}})
			synctest.Wait()
			j := f.wantStatus(id, gq.StatusFailed)
			if e := j.State.Failure; e == nil || e.Code != "invalid_payload" || e.Category != gq.CategoryPermanent || e.Message != "the payload does not fit the handler: "+want {
				t.Errorf("%s failed with %+v", payload, e)
			}
		}
	})
}

func TestNewReportsEveryFault(t *testing.T) {
	m := worker.NewMux()
	ok := func(context.Context, *worker.Run) error { return nil }
	m.HandleFunc("twice", ok)
	m.HandleFunc("twice", ok)
	m.HandleFunc("", ok)
	m.HandleFunc("none", nil)
	m.Use(nil)
	worker.Handle(m, gq.NewKind[int, gq.None]("nil.typed"), nil)
	worker.HandleResult(m, gq.NewKind[int, int]("nil.result"), nil)
	_, err := worker.NewWith(nil, m, worker.Config{
		Slots: 1, MaxCost: -1, Poll: -1, Grace: -1, DrainTimeout: -1, LeaseTTL: -1, HeartbeatEvery: -1,
		QueueSets: []worker.QueueSet{{}, {Queues: []string{"bad name"}, Slots: 2}, {Queues: []string{"a", "a"}}},
	})
	if !errors.Is(err, gq.ErrInvalid) {
		t.Fatalf("New: %v", err)
	}
	for _, want := range []string{
		`handlers["twice"]: is registered twice`, `handlers: a handler has no job type`, `handlers["none"]: is nil`,
		`handlers["nil.typed"]: is nil`, `handlers["nil.result"]: is nil`, `middleware: is nil`,
		`queue: is required`, `queue_sets: 3 queue sets need`, `queue_sets[0].queues: is empty`, `queue_sets[1].slots: 2 is not`,
		`queue_sets[1].queues: "bad name"`, `queue_sets[2].queues: "a" is listed twice`,
		`max_cost:`, `poll:`, `grace:`, `drain_timeout:`, `lease_ttl:`, `heartbeat_every:`,
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("New does not report %q: %v", want, err)
		}
	}
	if _, err := worker.NewWith(newMemory(), worker.NewMux(), worker.Config{}); err == nil || !strings.Contains(err.Error(), "no handler is registered") {
		t.Errorf("a mux without handlers: %v", err)
	}
}

func TestRegisteringInARunningWorkerPanics(t *testing.T) {
	bubble(t, func(f *fixture) {
		f.handle(func(context.Context, *worker.Run) error { return nil })
		f.run()
		defer func() {
			if recover() == nil {
				t.Error("a handler that no worker will call was accepted")
			}
		}()
		f.worker.HandleFunc("b", nil)
	})
}

// A worker without handlers reports that in Run or, if it was started in the background,
// in Stop.
func TestRunReportsFaults(t *testing.T) {
	w := worker.New(newMemory(), worker.Config{Slots: -1, Logger: discard()})
	<-worker.New(nil, worker.Config{}).Start(t.Context()).Done() // it does not wait for Stop
	for _, err := range []error{w.Start(t.Context()).Stop(), worker.New(nil, worker.Config{}).Run(t.Context())} {
		if !errors.Is(err, gq.ErrInvalid) || !strings.Contains(err.Error(), "no handler is registered") {
			t.Errorf("a worker that cannot run: %v", err)
		}
	}
}

// A caller learns at once that a worker cannot run, and later why it ended; Start and Stop can be repeated.
func TestStartTellsItsError(t *testing.T) {
	bad := worker.New(newMemory(), worker.Config{Slots: -1, Logger: discard()}).Start(t.Context())
	if err := bad.Err(); !errors.Is(err, gq.ErrInvalid) || !strings.Contains(err.Error(), "slots") {
		t.Errorf("when Start returns: %v", err)
	}
	for range 2 {
		if err := bad.Stop(); !errors.Is(err, gq.ErrInvalid) {
			t.Errorf("Stop: %v", err)
		}
	}
	good := worker.New(newMemory(), worker.Config{Logger: discard()})
	good.HandleFunc("a", func(context.Context, *worker.Run) error { return nil })
	for range 2 {
		if err := good.Start(t.Context()).Err(); err != nil {
			t.Errorf("while it runs: %v", err)
		}
	}
	if err := good.Stop(); err != nil || good.Err() != nil {
		t.Errorf("after Stop: %v, %v", err, good.Err())
	}
	twice := worker.New(newMemory(), worker.Config{Logger: discard()})
	twice.HandleFunc("a", func(context.Context, *worker.Run) error { return nil })
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if err := twice.Run(ended); err != nil {
		t.Fatal(err)
	}
	<-twice.Start(t.Context()).Done()
	if err := twice.Err(); err == nil {
		t.Error("a worker that has run before has no error")
	}
}

func TestStopWithoutStart(t *testing.T) {
	if err := worker.New(newMemory(), worker.Config{}).Stop(); err != nil {
		t.Error(err)
	}
}

// A worker claims from the queues of the kinds that it handles.
func TestQueuesOfKinds(t *testing.T) {
	bubble(t, func(f *fixture) {
		mail := gq.NewKind[string, gq.None]("mail", gq.InQueue("letters"))
		var got []string
		worker.Handle(f.mux, mail, func(_ context.Context, job *worker.Job[string]) error {
			got = append(got, job.Args)
			return nil
		})
		f.run()
		f.submit(gq.Spec{Type: "mail", Queue: "letters", Payload: gq.Payload{Data: []byte(`"ada"`)}})
		f.submit(gq.Spec{Type: "mail", Payload: gq.Payload{Data: []byte(`"elsewhere"`)}})
		synctest.Wait()
		if len(got) != 1 || got[0] != "ada" {
			t.Errorf("handled %v, want the job in the kind's queue", got)
		}
	})
}

// The compiler refuses Handle for a kind with a result, which a handler without one would not set.
var _ func(worker.Registry, gq.Kind[int, gq.None], func(context.Context, *worker.Job[int]) error) = worker.Handle[int]

// A worker that does not claim from the queue of a kind that it handles says so when it starts.
func TestKindsWhoseQueueIsNotClaimed(t *testing.T) {
	bubble(t, func(f *fixture) {
		handle := func(name, queue string) {
			worker.Handle(f.mux, gq.NewKind[string, gq.None](name, gq.InQueue(queue)), func(context.Context, *worker.Job[string]) error { return nil })
		}
		handle("letter", "mail")
		handle("parcel", "post.parcels")
		handle("report", "reports")
		worker.Handle(f.mux, gq.NewKind[string, gq.None]("plain"), func(context.Context, *worker.Job[string]) error { return nil })
		f.mux.HandleFunc("untyped", func(context.Context, *worker.Run) error { return nil })
		f.config.QueueSets = []worker.QueueSet{{Queues: []string{"reports"}}, {Queues: []string{"post.*"}}}
		f.run()
		lines := f.log.lines("no queue set has the queue of a kind with a handler; its jobs wait for another worker")
		if len(lines) != 2 || lines[0]["type"] != "letter" || lines[0]["queue"] != "mail" || lines[1]["type"] != "plain" || lines[1]["queue"] != "default" || lines[0]["level"] != "WARN" {
			t.Errorf("%v", lines)
		}
	})
}

// The log says why jobs failed, in one line each, and does not count cancelled ones as failures.
func TestTheLogSaysWhyJobsFailed(t *testing.T) {
	bubble(t, func(f *fixture) {
		worker.Handle(f.mux, gq.NewKind[map[string]any, gq.None]("work"), func(_ context.Context, job *worker.Job[map[string]any]) error {
			switch job.Args["how"] {
			case "fails":
				return gq.Permanent(errors.New("no route to ada@example.org, card 4111\nsecond line"), "no_route")
			case "panics":
				panic("nobody is called ada")
			default:
				return worker.Cancel("nobody wants it")
			}
		})
		f.run()
		policy := gq.PresetSemantics.Policy()
		policy.MaxAttempts = 1
		for _, how := range []string{"fails", "panics", "cancels"} {
			f.submit(gq.Spec{Type: "work", Policy: policy, Payload: gq.Payload{Data: []byte(`{"how":"` + how + `","to":["ada"],"card":4111,"route":null}`)}})
		}
		synctest.Wait()
		for _, want := range []struct{ message, level, code, text string }{
			{"job failed", "WARN", "no_route", "no route to [payload]@example.org, card [payload]"},
			{"job failed", "WARN", "panic", "panic: nobody is called [payload]"},
			{"handler panicked", "ERROR", "", "panic: nobody is called [payload]"},
			{"job cancelled", "INFO", "cancelled", "nobody wants it"},
		} {
			found := false
			for _, line := range f.log.lines(want.message) {
				code, _ := line["code"].(string)
				found = found || line["level"] == want.level && code == want.code && line["error"] == want.text
			}
			if !found {
				t.Errorf("no line %+v in\n%s", want, f.log)
			}
		}
		if n := len(f.log.lines("job failed")); n != 2 {
			t.Errorf("%d jobs failed, by the log", n)
		}
	})
}

// The error of a call with many jobs can quote each of them, in the lines of all.
func TestTheLogOfManyJobsQuotesNone(t *testing.T) {
	bubble(t, func(f *fixture) {
		work := gq.NewKind[map[string]any, gq.None]("work")
		worker.HandleMany(f.mux, work, worker.Gather{Size: 2, Wait: time.Hour}, func(_ context.Context, jobs []*worker.Job[map[string]any]) []error {
			line := fmt.Sprintf("bad rows %v and %v", jobs[0].Args["row"], jobs[1].Args["row"])
			if jobs[0].Args["how"] == "panics" {
				panic(line)
			}
			return []error{gq.Permanent(errors.New(line), "bad"), gq.Permanent(errors.New(line), "bad")}
		})
		f.run()
		policy := gq.PresetSemantics.Policy()
		policy.MaxAttempts = 1
		for _, how := range []string{"panics", "fails"} {
			for _, row := range []string{`["first","aaa"]`, `{"b@b.example":42}`} {
				f.submit(gq.Spec{Type: "work", Policy: policy, Payload: gq.Payload{Data: []byte(`{"how":"` + how + `","row":` + row + `}`)}})
			}
			synctest.Wait()
		}
		texts := map[string]int{}
		for _, message := range []string{"job failed", "handler of many jobs panicked"} {
			for _, line := range f.log.lines(message) {
				text, _ := line["error"].(string)
				if texts[message]++; !strings.Contains(text, "bad rows ") || strings.Contains(text, "aaa") || strings.Contains(text, "example") || strings.Contains(text, "42") {
					t.Errorf("%s: %q", message, text)
				}
			}
		}
		if texts["job failed"] != 4 || texts["handler of many jobs panicked"] != 1 {
			t.Errorf("lines of errors: %v", texts)
		}
	})
}

func TestMiddleware(t *testing.T) {
	bubble(t, func(f *fixture) {
		var trail []string
		note := func(name string) worker.Middleware {
			return func(next worker.Handler) worker.Handler {
				return func(ctx context.Context, run *worker.Run) error {
					trail = append(trail, name)
					return next(ctx, run)
				}
			}
		}
		f.mux.Use(note("outer"))
		f.handle(func(context.Context, *worker.Run) error {
			trail = append(trail, "handler")
			return nil
		})
		f.mux.Use(note("inner"))
		f.run()
		f.work(nil)
		synctest.Wait()
		if got := strings.Join(trail, " "); got != "outer inner handler" {
			t.Errorf("called in the order %s", got)
		}
	})
}

func TestRunIsCalledOnce(t *testing.T) {
	bubble(t, func(f *fixture) {
		f.handle(func(context.Context, *worker.Run) error { return nil })
		f.run()
		if err := f.worker.Run(f.Context()); err == nil {
			t.Error("a worker ran twice")
		}
	})
}

func TestHandlersSeeTheValuesOfTheContext(t *testing.T) {
	type key struct{}
	synctest.Test(t, func(t *testing.T) {
		m, mux := newMemory(), worker.NewMux()
		ctx, cancel := context.WithCancel(context.WithValue(t.Context(), key{}, "value"))
		mux.HandleFunc("work", func(ctx context.Context, _ *worker.Run) error {
			defer cancel()
			if ctx.Value(key{}) != "value" {
				t.Error("the value is missing")
			}
			return nil
		})
		m.submit(gq.Spec{Type: "work"})
		w, err := worker.NewWith(m, mux, worker.Config{Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		if err := w.Run(ctx); err != nil {
			t.Error(err)
		}
		if m.counts()[gq.StatusCompleted] != 1 {
			t.Error("the outcome of a handler that ended the worker is lost")
		}
	})
}
