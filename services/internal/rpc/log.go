package rpc

import (
	"context"
	"io"
	"log/slog"

	"github.com/gopherqueue/gq/internal/logline"
)

// Log writes JSON lines, one object each, with the fields that every line of the task
// queue must have: ts_ms, level, service, method, event, message.
type Log struct {
	logger *slog.Logger
}

// NewLog returns a log of a service that drops records below level.
func NewLog(w io.Writer, service string, level slog.Leveler) *Log {
	handler := slog.NewJSONHandler(w, &slog.HandlerOptions{Level: level, ReplaceAttr: rename})
	return &Log{slog.New(handler).With("service", service)}
}

// rename renames slog's own fields to those of the task queue.
func rename(groups []string, a slog.Attr) slog.Attr {
	a = logline.Replace(groups, a)
	if len(groups) > 0 {
		return a
	}
	switch a.Key {
	case slog.TimeKey:
		return slog.Int64("ts_ms", a.Value.Time().UnixMilli())
	case slog.MessageKey:
		a.Key = "message"
	}
	return a
}

// Debug records details for troubleshooting.
func (l *Log) Debug(ctx context.Context, method, event, message string, attrs ...slog.Attr) {
	l.write(ctx, slog.LevelDebug, method, event, message, attrs)
}

// Info records expected events.
func (l *Log) Info(ctx context.Context, method, event, message string, attrs ...slog.Attr) {
	l.write(ctx, slog.LevelInfo, method, event, message, attrs)
}

// Warn records events that may need attention.
func (l *Log) Warn(ctx context.Context, method, event, message string, attrs ...slog.Attr) {
	l.write(ctx, slog.LevelWarn, method, event, message, attrs)
}

// EventAnomaly is the event of log lines about a broken invariant.
const EventAnomaly = "consistency_anomaly"

// Anomaly records a broken invariant about a job that was not repaired. kind names the
// invariant.
func (l *Log) Anomaly(ctx context.Context, method, kind, jobID, message string, attrs ...slog.Attr) {
	attrs = append([]slog.Attr{JobID(jobID), slog.String("anomaly", kind)}, attrs...)
	l.write(ctx, slog.LevelError, method, EventAnomaly, message, attrs)
}

func (l *Log) write(ctx context.Context, level slog.Level, method, event, message string, attrs []slog.Attr) {
	if !l.logger.Enabled(ctx, level) {
		return
	}
	all := make([]slog.Attr, 0, len(attrs)+3)
	all = append(all, slog.String("method", method), slog.String("event", event))
	if id := requestID(ctx); id != "" {
		all = append(all, slog.String("request_id", id))
	}
	l.logger.LogAttrs(ctx, level, message, append(all, attrs...)...)
}

// JobID is the field that names a job.
func JobID(id string) slog.Attr { return slog.String("job_id", id) }

// WorkerID is the field that names a worker.
func WorkerID(id string) slog.Attr { return slog.String("worker_id", id) }
