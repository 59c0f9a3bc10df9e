package logline

import (
	"bytes"
	"encoding/json"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"
)

// newJSON returns a logger as servers and the services of the designs make it.
func newJSON(b *bytes.Buffer) *slog.Logger {
	return slog.New(slog.NewJSONHandler(b, &slog.HandlerOptions{ReplaceAttr: Replace}))
}

// In both formats and at any depth, durations have a unit in their keys and text from clients is
// bounded.
func TestReplace(t *testing.T) {
	long := strings.Repeat("é", 50_000)
	for name, make := range map[string]func(*bytes.Buffer) *slog.Logger{
		"text": func(b *bytes.Buffer) *slog.Logger { return NewText(b, slog.LevelInfo) },
		"json": func(b *bytes.Buffer) *slog.Logger { return newJSON(b) },
	} {
		var b bytes.Buffer
		make(&b).With("with", long).WithGroup("g").Info(long, "took", 311467*time.Nanosecond, "id", long, "error", errors.New(long),
			"list", []string{long}, "bytes", []byte(long), slog.Group("in", "id", long, "took", 2*time.Second))
		line := b.String()
		if len(line) > 8*(MaxText+100) {
			t.Errorf("%s: a line has %d bytes", name, len(line))
		}
		for _, want := range []string{"took_ms", "0.311", "2000", "(100000 bytes)"} {
			if !strings.Contains(line, want) {
				t.Errorf("%s: no %s in %s", name, want, line)
			}
		}
		if strings.ContainsRune(line, '\uFFFD') {
			t.Errorf("%s: a character was cut in half", name)
		}
	}
	var b bytes.Buffer
	newJSON(&b).Info("short", "n", 7, "took", 1500*time.Microsecond, "wait_ms", time.Second, "error", errors.New("x"))
	var got map[string]any
	if err := json.Unmarshal(b.Bytes(), &got); err != nil || got["n"] != 7.0 || got["took_ms"] != 1.5 || got["wait_ms"] != 1000.0 || got["error"] != "x" || got["level"] != "INFO" {
		t.Errorf("%s: %v", b.String(), err)
	}
}
