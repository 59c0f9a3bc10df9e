package trail_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/engine"
	"github.com/gopherqueue/gq/internal/access"
	"github.com/gopherqueue/gq/internal/trail"
	"github.com/gopherqueue/gq/store"
	"github.com/gopherqueue/gq/store/simple"
)

type fixture struct {
	*testing.T
	store store.Store
	trail *trail.Trail
	now   time.Time
	api   engine.API
	ctx   context.Context //nolint:containedctx // of an operator
}

func newFixture(t *testing.T) *fixture {
	s, err := simple.Open(store.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	e, err := engine.New(s, engine.Options{})
	if err != nil {
		t.Fatal(err)
	}
	f := &fixture{T: t, store: s, now: time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)}
	f.trail = trail.New(s, slog.New(slog.DiscardHandler), func() time.Time { return f.now })
	f.api = f.trail.Engine(e)
	f.ctx = access.Through(access.With(t.Context(), access.Everyone()), access.Via{Face: "http", From: "192.0.2.1:5"})
	return f
}

func (f *fixture) read(q trail.Query) trail.Page {
	f.Helper()
	page, err := f.trail.Read(f.Context(), q)
	if err != nil {
		f.Fatal(err)
	}
	return page
}

// unrecorded are the calls that change nothing, or whose changes the event log has.
var unrecorded = strings.Fields(`
	Get List Wait Explain History CountWhere Workflow Workflows Workers Queue Queues QueuesAfter QueueKeys QueueHistory QueueActivity Counts Stats Pools Inbox
	Schedule Schedules Events LastEvent Follow Jobs ByLease BeforeFirstEvent Samples CatchUp
	Submit SubmitBatch SubmitGraph SubmitWorkflow AddToWorkflow Claim Start Heartbeat Settle Complete Fail Release
	Advance Connected WorkerStopped Prepare Report Admit Sample`)

// TestEveryChangeIsRecorded calls every method of the engine. A new one is either recorded or
// listed above.
func TestEveryChangeIsRecorded(t *testing.T) {
	f := newFixture(t)
	api := reflect.TypeFor[engine.API]()
	for i := range api.NumMethod() {
		m := api.Method(i)
		if slices.Contains(unrecorded, m.Name) {
			continue
		}
		before := len(f.read(trail.Query{Limit: 1000}).Entries)
		arguments := []reflect.Value{reflect.ValueOf(f.ctx)}
		for k := 1; k < m.Type.NumIn(); k++ {
			switch typ := m.Type.In(k); typ {
			case reflect.TypeFor[string]():
				arguments = append(arguments, reflect.ValueOf("q"))
			case reflect.TypeFor[func(*gq.Queue)]():
				arguments = append(arguments, reflect.ValueOf(func(*gq.Queue) {}))
			default:
				arguments = append(arguments, reflect.Zero(typ))
			}
		}
		f.now = f.now.Add(time.Second)
		reflect.ValueOf(f.api).MethodByName(m.Name).Call(arguments)
		page := f.read(trail.Query{Limit: 1000})
		if len(page.Entries) != before+1 {
			t.Errorf("%s left %d entries, want one; if it changes nothing, list it in unrecorded", m.Name, len(page.Entries)-before)
			continue
		}
		if e := page.Entries[0]; e.By != "everyone" || e.Face != "http" || e.From != "192.0.2.1:5" || e.Verb == "" || e.Object == "" || e.Outcome == "" || !e.At.Equal(f.now) {
			t.Errorf("%s: %+v", m.Name, e)
		}
	}
}

func TestEntries(t *testing.T) {
	f := newFixture(t)
	if _, err := f.api.Pause(f.ctx, "mail"); err != nil {
		t.Fatal(err)
	}
	const secret = "a secret of the payload"
	made, err := f.api.Submit(f.ctx, gq.Spec{Queue: "mail", Type: "t", Payload: gq.Payload{Data: []byte(`"x"`)}, Delay: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	f.now = f.now.Add(time.Second)
	if _, err := f.api.Edit(f.ctx, made.ID(), gq.JobEdit{Payload: &gq.Payload{Data: []byte(`"` + secret + `"`)}}); err != nil {
		t.Fatal(err)
	}
	f.now = f.now.Add(time.Second)
	if _, err := f.api.CancelWhere(f.ctx, gq.Query{Queue: "mail"}, "reason"); err != nil {
		t.Fatal(err)
	}
	f.now = f.now.Add(time.Second)
	if _, err := f.api.Resume(f.ctx, "none"); !errors.Is(err, gq.ErrNotFound) {
		t.Fatal(err)
	}
	// Without rights nothing is recorded, and neither is what the server does by itself.
	denied := engine.WithAuthorize(f.ctx, func(string) error { return gq.ErrDenied })
	if err := f.api.Purge(denied, made.ID()); !errors.Is(err, gq.ErrDenied) {
		t.Fatal(err)
	}
	if _, err := f.api.Pause(t.Context(), "own"); err != nil {
		t.Fatal(err)
	}
	entries := f.read(trail.Query{}).Entries
	want := []trail.Entry{
		{Verb: "resume", Object: "queue none", Outcome: "not_found"},
		{Verb: "cancel", Object: "jobs with queue=mail", Count: 1, Outcome: "ok"},
		{Verb: "edit", Object: "job " + made.ID().String(), Outcome: "ok"},
		{Verb: "pause", Object: "queue mail", Outcome: "ok"},
	}
	if len(entries) != len(want) {
		t.Fatalf("%d entries: %+v", len(entries), entries)
	}
	for i, w := range want {
		if g := entries[i]; g.Verb != w.Verb || g.Object != w.Object || g.Count != w.Count || g.Outcome != w.Outcome {
			t.Errorf("entry %d: %+v, want %+v", i, g, w)
		}
	}
	if text := fmt.Sprintf("%+v", entries); strings.Contains(text, secret) {
		t.Errorf("the trail has the payload: %s", text)
	}
}

func TestRead(t *testing.T) {
	f := newFixture(t)
	begin := f.now
	for i := range 7 {
		f.now = begin.Add(time.Duration(i) * time.Minute)
		verb := []string{"pause", "resume"}[i%2]
		f.trail.Record(f.ctx, verb, fmt.Sprintf("queue %d", i), "", 0, nil)
	}
	objects := func(q trail.Query) (names []string) {
		t.Helper()
		for pages := 0; pages < 10; pages++ {
			page := f.read(q)
			for _, e := range page.Entries {
				names = append(names, strings.TrimPrefix(e.Object, "queue "))
			}
			if q.Cursor = page.Next; page.Next == "" {
				return names
			}
		}
		t.Fatal("the pages do not end")
		return nil
	}
	for name, test := range map[string]struct {
		q    trail.Query
		want string
	}{
		"all, by pages":     {trail.Query{Limit: 2}, "6 5 4 3 2 1 0"},
		"a verb":            {trail.Query{Verb: "resume", Limit: 1}, "5 3 1"},
		"since":             {trail.Query{Since: begin.Add(5 * time.Minute)}, "6 5"},
		"until":             {trail.Query{Until: begin.Add(2 * time.Minute), Limit: 1}, "1 0"},
		"by":                {trail.Query{By: "everyone", Limit: 3}, "6 5 4 3 2 1 0"},
		"by somebody else":  {trail.Query{By: "ops"}, ""},
		"a range of nobody": {trail.Query{Since: begin.Add(time.Hour)}, ""},
	} {
		if got := strings.Join(objects(test.q), " "); got != test.want {
			t.Errorf("%s: %q, want %q", name, got, test.want)
		}
	}
	for _, q := range []trail.Query{{Limit: -1}, {Limit: 1001}, {Cursor: "x"}, {Cursor: "0123456789abcdef-0000000"}} {
		if _, err := f.trail.Read(t.Context(), q); !errors.Is(err, gq.ErrInvalid) {
			t.Errorf("%+v: %v", q, err)
		}
	}
}

func TestPrune(t *testing.T) {
	f := newFixture(t)
	begin := f.now
	for i := range 10 {
		f.now = begin.Add(time.Duration(i) * time.Hour)
		f.trail.Record(f.ctx, "pause", fmt.Sprintf("queue %d", i), "", 0, nil)
	}
	if err := f.trail.Prune(t.Context(), 6*time.Hour+time.Minute, 100); err != nil {
		t.Fatal(err)
	}
	if entries := f.read(trail.Query{}).Entries; len(entries) != 7 || entries[6].Object != "queue 3" {
		t.Errorf("after the age: %+v", entries)
	}
	if err := f.trail.Prune(t.Context(), trail.MaxAge, 2); err != nil {
		t.Fatal(err)
	}
	if entries := f.read(trail.Query{}).Entries; len(entries) != 2 || entries[1].Object != "queue 8" {
		t.Errorf("after the number: %+v", entries)
	}
}

// TestConcurrentEntries checks that entries that share a commit are all written before their calls
// return.
func TestConcurrentEntries(t *testing.T) {
	f := newFixture(t)
	var all sync.WaitGroup
	for range 20 {
		all.Go(func() {
			for range 10 {
				f.trail.Record(f.ctx, "pause", "queue q", "", 0, nil)
			}
		})
	}
	all.Wait()
	if n := len(f.read(trail.Query{Limit: 1000}).Entries); n != 200 {
		t.Errorf("%d entries, want 200", n)
	}
}

// failing is a store that cannot be written to.
type failing struct{ store.Documents }

func (failing) PutDocs(context.Context, []store.Doc) ([]uint64, error) {
	return nil, gq.ErrStoreFailed
}

func TestMissingEntryIsLogged(t *testing.T) {
	f := newFixture(t)
	var log strings.Builder
	broken := trail.New(failing{f.store}, slog.New(slog.NewTextHandler(&log, nil)), nil)
	broken.Record(f.ctx, "pause", "queue q", "", 0, nil)
	if !strings.Contains(log.String(), "audit_failed") || !strings.Contains(log.String(), "queue q") {
		t.Errorf("the log has %q", log.String())
	}
}
