package main

import (
	"bytes"
	"context"
	"strings"
	"testing"
	"time"

	"github.com/gopherqueue/gq/internal/cli"
)

// TestDemo runs the whole demo and checks that it shows everything. The command itself
// fails if a job does not end as expected.
func TestDemo(t *testing.T) {
	t.Parallel()
	got := gqIn(t.Context(), t.TempDir(), "demo", "--data", t.TempDir())
	if got.status != cli.ExitOK {
		t.Fatalf("exit status %d, stderr %q, output\n%s", got.status, got.stderr, got.stdout)
	}
	for _, story := range []string{
		"attempt 3 on worker-1, lease version 3", // the retry
		"card_declined",                          // the permanent failure
		"worker-1 has been told",                 // the cancelled one
		"worker-2 sent no sign of life",          // the crash
		"attempt 2 on worker-1, lease version 2",
		"clock.tick", "album.publish", "completed, 1 failed, 1 cancelled",
	} {
		if !strings.Contains(got.stdout, story) {
			t.Errorf("the show does not tell of %q:\n%s", story, got.stdout)
		}
	}
}

// TestDemoInterrupted stops the demo halfway.
func TestDemoInterrupted(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	out := &cuttingWriter{after: "RUNNING", cut: cancel}
	var diagnostics bytes.Buffer
	start := time.Now()
	code := run(ctx, []string{"demo", "--data", t.TempDir()}, func(string) string { return "" }, nil, out, &diagnostics)
	if code != cli.ExitFailure || diagnostics.String() != "gq: interrupted\n" {
		t.Errorf("exit status %d, stderr %q", code, diagnostics.String())
	}
	if took := time.Since(start); took > demoTime/2 {
		t.Errorf("the show went on for %v; want it to end within a second or so", took)
	}
}

// cuttingWriter calls cut when a text is written.
type cuttingWriter struct {
	after string
	cut   func()
}

func (w *cuttingWriter) Write(b []byte) (int, error) {
	if bytes.Contains(b, []byte(w.after)) {
		w.cut()
	}
	return len(b), nil
}
