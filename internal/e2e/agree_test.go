package e2e_test

import (
	"context"
	"encoding/json"
	"log/slog"
	"reflect"
	"strings"
	"sync"
	"testing"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/internal/testing/cmdtest"
	"github.com/gopherqueue/gq/internal/testing/pgtest"
	"github.com/gopherqueue/gq/worker"
)

// ownFields tell when a server was asked, count what its process has done, or measure what changes
// from one moment to the next: the size of the database, its connections and dead rows.
var ownFields = []string{"last_seen_at", "commits", "syncs", "age", "waiting_for", "database", "disk_bytes"}

// withoutOwn removes ownFields from decoded JSON.
func withoutOwn(v any) any {
	switch v := v.(type) {
	case map[string]any:
		if v["check"] == "server" {
			delete(v, "text") // how fast it answered
		}
		for _, name := range ownFields {
			delete(v, name)
		}
		for name := range v {
			v[name] = withoutOwn(v[name])
		}
	case []any:
		for i := range v {
			v[i] = withoutOwn(v[i])
		}
	}
	return v
}

// TestServersAgree asks two servers on a database about the same things, with workers on both.
func TestServersAgree(t *testing.T) {
	t.Parallel()
	all := serversOn(t, pgtest.Database(t), 2)
	ctx, stop := context.WithCancel(t.Context())
	var working sync.WaitGroup
	defer working.Wait()
	defer stop()
	running := make(chan struct{}, 2)
	for i, s := range all {
		w := worker.New(s.client(), worker.Config{
			Name: []string{"one", "two"}[i], QueueSets: []worker.QueueSet{{Queues: []string{"q"}}}, Slots: 1, Logger: slog.New(slog.DiscardHandler),
		})
		w.HandleFunc("work", func(ctx context.Context, _ *worker.Run) error {
			running <- struct{}{}
			<-ctx.Done()
			return ctx.Err()
		})
		working.Go(func() {
			if err := w.Run(ctx); err != nil {
				t.Error(err)
			}
		})
	}
	c := all[0].client()
	submit := func(s gq.Spec) string {
		t.Helper()
		out, err := c.Submit(t.Context(), s)
		if err != nil {
			t.Fatal(err)
		}
		return out.ID().String()
	}
	for range 2 {
		submit(gq.Spec{Queue: "q", Type: "work"})
		<-running
	}
	jobs := []string{
		submit(gq.Spec{Queue: "q", Type: "work"}),                              // both workers are busy
		submit(gq.Spec{Queue: "q", Type: "other"}),                             // no worker has the type
		submit(gq.Spec{Queue: "elsewhere", Type: "work"}),                      // no worker has the queue
		submit(gq.Spec{Queue: "q", Type: "work", Requires: []string{"a gpu"}}), // no worker has the capability
	}
	commands := [][]string{{"worker", "list"}, {"stats"}, {"doctor"}, {"job", "list"}, {"queue", "list"}}
	for _, id := range jobs {
		commands = append(commands, []string{"job", "explain", id})
	}
	for _, args := range commands {
		ask := func(s *served) any {
			t.Helper()
			out := s.gq(append(args, "--json")...)
			var v any
			if err := json.Unmarshal([]byte(out.stdout), &v); err != nil {
				t.Fatalf("gq %s: %v: %+v", strings.Join(args, " "), err, out)
			}
			return withoutOwn(v)
		}
		var answers [2]any
		t.Cleanup(func() {
			if t.Failed() {
				t.Logf("the last answers to gq %s were:\n%v\n%v", strings.Join(args, " "), answers[0], answers[1])
			}
		})
		cmdtest.WaitFor(t, "the same answer to gq "+strings.Join(args, " "), func() bool {
			answers = [2]any{ask(all[0]), ask(all[1])}
			return reflect.DeepEqual(answers[0], answers[1])
		})
		text, err := json.Marshal(answers[0])
		if err != nil {
			t.Fatal(err)
		}
		if args[0] == "worker" && (!strings.Contains(string(text), `"one"`) || !strings.Contains(string(text), `"two"`)) {
			t.Errorf("gq worker list says %s", text)
		}
	}
	// The metric counts the workers of the whole database on every server.
	for _, s := range all {
		cmdtest.WaitFor(t, "the metric", func() bool {
			_, text := httpGet(t, "http://"+s.http+"/metrics")
			return strings.Contains(text, "\ngq_workers 2\n")
		})
	}
}
