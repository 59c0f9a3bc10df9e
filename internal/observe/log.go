package observe

import (
	"context"
	"io"
	"log/slog"

	"github.com/gopherqueue/gq/internal/logline"
)

// NewLog writes JSON lines that always have the fields ts_ms, level, service, method,
// event and message. A line without a method has an empty one; a line without an event
// has the event "log".
func NewLog(w io.Writer, service string, level slog.Leveler) *slog.Logger {
	inner := slog.NewJSONHandler(w, &slog.HandlerOptions{Level: level, ReplaceAttr: rename})
	return slog.New(&complete{inner: inner.WithAttrs([]slog.Attr{slog.String("service", service)})})
}

// rename maps slog's own field names, and fields with several names, to ours.
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
	case "request":
		a.Key = "request_id"
	}
	return a
}

// complete adds missing fields to a line.
type complete struct {
	inner         slog.Handler
	method, event bool // already among the attributes
	grouped       bool
}

func (h *complete) Enabled(ctx context.Context, l slog.Level) bool { return h.inner.Enabled(ctx, l) }

func (h *complete) Handle(ctx context.Context, r slog.Record) error {
	method, event := h.method, h.event
	r.Attrs(func(a slog.Attr) bool {
		method, event = method || a.Key == "method", event || a.Key == "event"
		return !method || !event
	})
	if (!method || !event) && !h.grouped {
		r = r.Clone()
		if !method {
			r.AddAttrs(slog.String("method", ""))
		}
		if !event {
			r.AddAttrs(slog.String("event", "log"))
		}
	}
	return h.inner.Handle(ctx, r)
}

func (h *complete) WithAttrs(attrs []slog.Attr) slog.Handler {
	next := *h
	for _, a := range attrs {
		if !h.grouped {
			next.method, next.event = next.method || a.Key == "method", next.event || a.Key == "event"
		}
	}
	next.inner = h.inner.WithAttrs(attrs)
	return &next
}

func (h *complete) WithGroup(name string) slog.Handler {
	next := *h
	if !h.grouped {
		// The common fields stay outside the group.
		var missing []slog.Attr
		if !h.method {
			missing = append(missing, slog.String("method", ""))
		}
		if !h.event {
			missing = append(missing, slog.String("event", "log"))
		}
		next.inner, next.method, next.event, next.grouped = h.inner.WithAttrs(missing), true, true, true
	}
	next.inner = next.inner.WithGroup(name)
	return &next
}
