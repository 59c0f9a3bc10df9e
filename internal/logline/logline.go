// Package logline formats values the same way in every log of the programs:
//
//   - A duration is a number of milliseconds, and its key says so: took becomes took_ms. Sizes are
//     numbers whose keys end in _bytes.
//   - Text is cut after 1 KiB, followed by its full length, because much of it comes from
//     clients.
package logline

import (
	"fmt"
	"io"
	"log/slog"
	"strings"
)

// Size limits in bytes.
const (
	MaxText  = 1 << 10
	MaxStack = 32 << 10 // for the attribute "stack", which clients cannot influence
)

// NewText returns a logger that writes lines for people.
func NewText(w io.Writer, level slog.Leveler) *slog.Logger {
	return slog.New(slog.NewTextHandler(w, &slog.HandlerOptions{Level: level, ReplaceAttr: Replace}))
}

// Replace applies the rules to an attribute, as a ReplaceAttr of [slog.HandlerOptions].
func Replace(_ []string, a slog.Attr) slog.Attr {
	switch a.Value.Kind() {
	case slog.KindDuration:
		if !strings.HasSuffix(a.Key, "_ms") {
			a.Key += "_ms"
		}
		a.Value = slog.Float64Value(float64(a.Value.Duration().Microseconds()) / 1000)
	case slog.KindString:
		a.Value = slog.StringValue(cut(a.Key, a.Value.String()))
	case slog.KindAny:
		switch v := a.Value.Any().(type) {
		case *slog.Source, slog.Level: // formatted by the handler
		case error:
			a.Value = slog.StringValue(cut(a.Key, v.Error()))
		case fmt.Stringer:
			a.Value = slog.StringValue(cut(a.Key, v.String()))
		case []byte:
			a.Value = slog.StringValue(cut(a.Key, string(v)))
		case []string:
			a.Value = slog.StringValue(cut(a.Key, strings.Join(v, ",")))
		}
	default:
	}
	return a
}

// cut shortens text that is too long.
func cut(key, text string) string {
	most := MaxText
	if key == "stack" {
		most = MaxStack
	}
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most], "") + fmt.Sprintf("… (%d bytes)", len(text))
}
