package main

import (
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/charmbracelet/x/ansi"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/internal/cli"
)

// cell is a colored text of a table.
type cell struct{ text, colour string }

func text(s string) cell { return cell{text: s, colour: plain} }

func number[T ~int | ~int64 | ~uint64](n T) cell { return cell{text: fmt.Sprint(n), colour: plain} }

func statusCell(s gq.Status) cell {
	if !s.Valid() {
		return text("")
	}
	return cell{s.String(), statusColours[s]}
}

// table prints rows with aligned columns.
func (s screen) table(head []string, rows [][]cell) {
	widths := make([]int, len(head))
	for i, h := range head {
		widths[i] = len(h)
	}
	for _, row := range rows {
		for i := range row {
			row[i].text = flat(row[i].text)
			widths[i] = max(widths[i], ansi.StringWidth(row[i].text))
		}
	}
	titles := make([]cell, len(head))
	for i, h := range head {
		titles[i] = cell{h, bold}
	}
	for _, row := range append([][]cell{titles}, rows...) {
		var line strings.Builder
		for i, c := range row {
			padding := widths[i] - ansi.StringWidth(c.text)
			if i == len(row)-1 {
				padding = 0
			}
			line.WriteString(s.paint(c.colour, c.text) + strings.Repeat(" ", padding+2))
		}
		s.line("%s", strings.TrimRight(line.String(), " "))
	}
}

// pairs prints names with their values and skips empty values.
func (s screen) pairs(pairs ...[2]string) {
	width := 0
	for _, p := range pairs {
		if p[1] != "" {
			width = max(width, len(p[0]))
		}
	}
	for _, p := range pairs {
		if p[1] != "" {
			s.line("%s  %s", s.paint(faint, fmt.Sprintf("%-*s", width, p[0])), flat(p[1]))
		}
	}
}

// ago formats how long ago a time was, or how far ahead it is.
func ago(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	d := time.Since(t)
	if d < 0 {
		return "in " + roundly(-d)
	}
	return roundly(d) + " ago"
}

// roundly formats a duration in its two largest units.
func roundly(d time.Duration) string {
	const day = 24 * time.Hour
	switch {
	case d < time.Second:
		return fmt.Sprintf("%dms", d.Milliseconds())
	case d < time.Minute:
		return fmt.Sprintf("%ds", d/time.Second)
	case d < time.Hour:
		return fmt.Sprintf("%dm%02ds", d/time.Minute, d%time.Minute/time.Second)
	case d < day:
		return fmt.Sprintf("%dh%02dm", d/time.Hour, d%time.Hour/time.Minute)
	default:
		return fmt.Sprintf("%dd%02dh", d/day, d%day/time.Hour)
	}
}

// instant formats a time and how long ago it was.
func instant(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return fmt.Sprintf("%s (%s)", t.UTC().Format(time.RFC3339), ago(t))
}

// clean protects the terminal from untrusted text.
func clean(s string) string { return cli.Printable(s) }

// flat makes one line of a text: another line of it would look like the next row.
func flat(s string) string { return strings.NewReplacer("\n", " ", "\t", " ").Replace(s) }

func oneLine(s string, most int) string {
	s = clean(flat(s))
	if utf8.RuneCountInString(s) <= most {
		return s
	}
	return string([]rune(s)[:most-1]) + "…"
}

func yes(b bool) string {
	if b {
		return "yes"
	}
	return ""
}
