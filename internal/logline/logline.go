// Package logline has the rules for values that every log of the programs follows,
// whatever its format:
//
//   - A duration is written with its unit, such as "311.467µs".
//   - A text is cut after 1 KiB, and says how long it was: much of what is logged
//     comes from clients.
package logline

import (
	"fmt"
	"io"
	"log/slog"
	"strings"
)

// Sizes of values in bytes.
const (
	MaxText  = 1 << 10
	MaxStack = 32 << 10 // of the attribute "stack", which no client writes
)

// NewText is a log of lines for people.
func NewText(w io.Writer, level slog.Leveler) *slog.Logger {
	return slog.New(slog.NewTextHandler(w, &slog.HandlerOptions{Level: level, ReplaceAttr: Replace}))
}

// NewJSON is a log of JSON lines.
func NewJSON(w io.Writer, level slog.Leveler) *slog.Logger {
	return slog.New(slog.NewJSONHandler(w, &slog.HandlerOptions{Level: level, ReplaceAttr: Replace}))
}

// Replace applies the rules to an attribute. It is for [slog.HandlerOptions].
func Replace(_ []string, a slog.Attr) slog.Attr {
	switch a.Value.Kind() {
	case slog.KindDuration:
		a.Value = slog.StringValue(a.Value.Duration().String())
	case slog.KindString:
		a.Value = slog.StringValue(cut(a.Key, a.Value.String()))
	case slog.KindAny:
		switch v := a.Value.Any().(type) {
		case *slog.Source, slog.Level: // they are the handler's own
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

// cut shortens a text that is too long.
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
