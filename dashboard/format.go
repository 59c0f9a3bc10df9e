package dashboard

import (
	"fmt"
	"math"
	"reflect"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/gopherqueue/gq"
)

// number writes an integer with thousands separators.
func number(n any) string {
	v := reflect.ValueOf(n)
	var text string
	switch {
	case v.CanInt():
		text = strconv.FormatInt(v.Int(), 10)
	case v.CanUint():
		text = strconv.FormatUint(v.Uint(), 10)
	default:
		return fmt.Sprint(n)
	}
	sign := ""
	if text[0] == '-' {
		sign, text = "-", text[1:]
	}
	var out strings.Builder
	for i, digit := range text {
		if i > 0 && (len(text)-i)%3 == 0 {
			out.WriteByte(',')
		}
		out.WriteRune(digit)
	}
	return sign + out.String()
}

// plural returns the singular for 1 and the plural otherwise.
func plural(n any, one, many string) string {
	if number(n) == "1" {
		return one
	}
	return many
}

// byteSize writes a size.
func byteSize(n any) string {
	v := reflect.ValueOf(n)
	var size float64
	switch {
	case v.CanInt():
		size = float64(v.Int())
	case v.CanUint():
		size = float64(v.Uint())
	}
	if size < 1000 {
		return fmt.Sprintf("%.0f B", size)
	}
	for _, unit := range []string{"kB", "MB", "GB", "TB"} {
		if size /= 1000; size < 1000 || unit == "TB" {
			return fmt.Sprintf("%.3g %s", size, unit)
		}
	}
	return ""
}

// duration writes a duration with two units at most.
func duration(d time.Duration) string {
	if d < 0 {
		return "-" + duration(-d)
	}
	switch {
	case d == 0:
		return "0 s"
	case d < time.Millisecond:
		return "<1 ms"
	case d < time.Second:
		return fmt.Sprintf("%d ms", d.Milliseconds())
	case d < 10*time.Second:
		return strconv.FormatFloat(float64(d.Milliseconds()/100)/10, 'f', -1, 64) + " s"
	}
	units := []struct {
		name string
		size time.Duration
	}{{"d", 24 * time.Hour}, {"h", time.Hour}, {"m", time.Minute}, {"s", time.Second}}
	for i, u := range units {
		if d < u.size {
			continue
		}
		text := fmt.Sprintf("%d %s", d/u.size, u.name)
		if i+1 < len(units) {
			if rest := d % u.size / units[i+1].size; rest > 0 {
				text += fmt.Sprintf(" %d %s", rest, units[i+1].name)
			}
		}
		return text
	}
	return "0 s"
}

// ago says how far a time is from now.
func ago(t, now time.Time) string {
	d := now.Sub(t)
	switch {
	case d > -time.Second && d < time.Second:
		return "now"
	case d < 0:
		return "in " + duration(-d)
	default:
		return duration(d) + " ago"
	}
}

// instant writes a time for people.
func instant(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05.000 UTC") }

// minute writes a time without its seconds.
func minute(t time.Time) string { return t.UTC().Format("2006-01-02 15:04") }

// machineTime writes a time for programs.
func machineTime(t time.Time) string { return t.UTC().Format(time.RFC3339Nano) }

// percent writes a share. One that is not zero does not look like zero.
func percent(p float64) string {
	switch p = 100 * min(max(p, 0), 1); {
	case p > 0 && p < 0.1:
		return "<0.1 %"
	case p > 0 && p < 9.95 && p != math.Trunc(p):
		return strconv.FormatFloat(p, 'f', 1, 64) + " %"
	default:
		return strconv.FormatFloat(p, 'f', 0, 64) + " %"
	}
}

// figure writes a measured number with three digits.
func figure(v float64) string {
	switch {
	case v >= 99.95:
		return number(int64(min(math.Round(v), math.MaxInt64/2)))
	default:
		return strconv.FormatFloat(v, 'g', 3, 64)
	}
}

// perMinute writes a rate, given by the second, as a number a minute. It is for tables, where all
// rates have the same unit.
func perMinute(rate float64) string {
	switch rate *= 60; {
	case rate <= 0:
		return "0"
	case rate < 0.01:
		return "<0.01"
	case rate < 10:
		return strconv.FormatFloat(rate, 'f', 2, 64)
	case rate < 100:
		return strconv.FormatFloat(rate, 'f', 1, 64)
	default:
		return number(int64(min(rate, math.MaxInt64/2)))
	}
}

// perSecond writes a rate in the unit in which it is a number that people can imagine.
func perSecond(rate float64) string {
	switch {
	case rate <= 0:
		return "0 a second"
	case rate >= 1:
		return figure(rate) + " a second"
	case rate*60 >= 1:
		return figure(rate*60) + " a minute"
	default:
		return figure(rate*3600) + " an hour"
	}
}

// short returns the first part of an id.
func short(id fmt.Stringer) string { return id.String()[:8] }

// Limits of text on a page.
const (
	maxText = 64 << 10 // of a payload, a result or a checkpoint
	maxLine = 300      // characters of one line in a table
)

// printable makes text safe to read: what is invalid or invisible, and what changes the
// direction of the text around it, becomes visible.
func printable(text string) string {
	clean := true
	for _, r := range text {
		if r == utf8.RuneError || hidden(r) {
			clean = false
			break
		}
	}
	if clean {
		return text
	}
	var out strings.Builder
	for i, r := range text {
		_, size := utf8.DecodeRuneInString(text[i:])
		switch {
		case r == utf8.RuneError && size == 1:
			fmt.Fprintf(&out, "\\x%02x", text[i])
		case hidden(r):
			fmt.Fprintf(&out, "\\u%04x", r)
		default:
			out.WriteRune(r)
		}
	}
	return out.String()
}

// hidden reports whether a character is not shown as itself.
func hidden(r rune) bool {
	if r == '\n' || r == '\t' {
		return false
	}
	return unicode.IsControl(r) || unicode.Is(unicode.Cf, r) || unicode.Is(unicode.Zl, r) || unicode.Is(unicode.Zp, r)
}

// oneLine returns the beginning of a text as one line.
func oneLine(text string) string {
	cut := false
	if i := strings.IndexAny(text, "\r\n"); i >= 0 {
		text, cut = text[:i], true
	}
	if len(text) > maxLine {
		text, cut = text[:whole(text, maxLine)], true
	}
	text = printable(strings.ReplaceAll(text, "\t", " "))
	if cut {
		text += " …"
	}
	return text
}

// whole returns where to cut a text that is longer than most bytes, so that no character is cut in two.
func whole[T string | []byte](text T, most int) int {
	for end := most; end > most-utf8.UTFMax && end > 0; end-- {
		if utf8.RuneStart(text[end]) {
			return end
		}
	}
	return most // it is not UTF-8 there
}

// long reports whether oneLine cuts a text.
func long(text string) bool { return len(text) > maxLine || strings.ContainsAny(text, "\r\n") }

// word is the name of a status for people.
func word(s fmt.Stringer) string {
	return strings.ToLower(strings.ReplaceAll(s.String(), "_", " "))
}

// statusLook says how a status is drawn: its shape and its tone.
var statusLook = map[gq.Status][2]string{
	gq.StatusPending:    {"pending", "quiet"},
	gq.StatusDelayed:    {"clock", "quiet"},
	gq.StatusScheduled:  {"ring", "wait"},
	gq.StatusClaimed:    {"half", "active"},
	gq.StatusRunning:    {"play", "active"},
	gq.StatusRetrying:   {"retry", "warn"},
	gq.StatusCompleted:  {"check", "good"},
	gq.StatusFailed:     {"cross", "bad"},
	gq.StatusDeadLetter: {"square", "bad"},
	gq.StatusCancelled:  {"bar", "quiet"},
}

var workflowLook = map[gq.WorkflowStatus][2]string{
	gq.WorkflowRunning:   {"play", "active"},
	gq.WorkflowSucceeded: {"check", "good"},
	gq.WorkflowFailed:    {"cross", "bad"},
	gq.WorkflowCancelled: {"bar", "quiet"},
}

func look(s any) [2]string {
	switch s := s.(type) {
	case gq.Status:
		return statusLook[s]
	case gq.WorkflowStatus:
		return workflowLook[s]
	}
	return [2]string{"ring", "quiet"}
}

func icon(s any) string { return look(s)[0] }
func tone(s any) string { return look(s)[1] }
