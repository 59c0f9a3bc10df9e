// Package servicetest serves designs A and B of the task queue in tests, with logs that
// tests can read.
package servicetest

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"net"
	"sync"
	"testing"

	"google.golang.org/grpc"

	"github.com/gopherqueue/gq/internal/testing/taskqueuetest"
	"github.com/gopherqueue/gq/services/internal/rpc"
)

// Serve serves the registered services on a listener until the test ends or stop is
// called.
func Serve(t testing.TB, listener net.Listener, log *rpc.Log, register func(grpc.ServiceRegistrar)) (stop func()) {
	t.Helper()
	server := rpc.NewServer(log)
	register(server)
	return taskqueuetest.Go(t, func(ctx context.Context) error { return server.Run(ctx, listener) })
}

// A Journal is a log that tests can read.
type Journal struct {
	mu   sync.Mutex
	text bytes.Buffer // guarded by mu
}

// Write appends log lines.
func (j *Journal) Write(p []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.text.Write(p)
}

// Log returns a service's log that writes to the journal.
func (j *Journal) Log(service string) *rpc.Log { return rpc.NewLog(j, service, slog.LevelDebug) }

// A Line is a decoded log line.
type Line map[string]any

// Text returns a field of a line, empty if it is missing.
func (l Line) Text(field string) string {
	s, _ := l[field].(string)
	return s
}

// Lines returns the lines with an event, or all for "". Each must be a JSON object.
func (j *Journal) Lines(t testing.TB, event string) []Line {
	t.Helper()
	j.mu.Lock()
	text := bytes.Clone(j.text.Bytes())
	j.mu.Unlock()
	return ParseLines(t, text, event)
}

// Anomalies returns the lines about lasting faults. A cancel retries only briefly if a
// job is in transit from the queue to a worker, so on a slow machine it also reports
// jobs that continue normally; Anomalies omits those.
func (j *Journal) Anomalies(t *testing.T, target taskqueuetest.Target) (found []Line) {
	t.Helper()
	for _, l := range j.Lines(t, rpc.EventAnomaly) {
		if l.Text("method") == "CancelJob" && l.Text("anomaly") == "queued_not_in_queue" {
			taskqueuetest.AwaitEnd(t, target, l.Text("job_id"))
			continue
		}
		found = append(found, l)
	}
	return found
}

// ParseLines parses the log lines with an event, or all for "".
func ParseLines(t testing.TB, text []byte, event string) (lines []Line) {
	t.Helper()
	for raw := range bytes.Lines(text) {
		var l Line
		if err := json.Unmarshal(raw, &l); err != nil {
			t.Fatalf("log line %q: %v", raw, err)
		}
		if event == "" || l.Text("event") == event {
			lines = append(lines, l)
		}
	}
	return lines
}
