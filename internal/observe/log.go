package observe

import (
	"context"
	"io"
	"log/slog"

	"github.com/gopherqueue/gq/internal/logline"
)

// NewLog writes JSON lines with the fields that every line has: ts_ms, level,
// service, method, event and message. A line that is about no method has an empty
// one, and one that names no event is of the event "log".
func NewLog(w io.Writer, service string, level slog.Leveler) *slog.Logger {
	inner := slog.NewJSONHandler(w, &slog.HandlerOptions{Level: level, ReplaceAttr: rename})
	return slog.New(&complete{inner: inner.WithAttrs([]slog.Attr{slog.String("service", service)})})
}

// rename gives slog's own fields, and those that have several names, theirs.
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

// complete adds the fields that a line lacks.
type complete struct {
	inner         slog.Handler
	method, event bool // are among the attributes already
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
		// The fields of every line stay outside of the group.
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
