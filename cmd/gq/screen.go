package main

import (
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/charmbracelet/x/term"

	"github.com/gopherqueue/gq"
)

// screen prints lines for people, in color if the terminal supports it.
type screen struct {
	to     io.Writer
	colour bool
}

func newScreen(w io.Writer, getenv func(string) string) screen {
	return screen{w, isTerminal(w) && getenv("NO_COLOR") == "" && getenv("TERM") != "dumb"}
}

// isTerminal reports whether a reader or writer is a terminal.
func isTerminal(stream any) bool {
	file, ok := stream.(*os.File)
	if !ok {
		return false
	}
	return term.IsTerminal(file.Fd())
}

const (
	plain  = "0"
	bold   = "1"
	faint  = "2"
	red    = "31"
	green  = "32"
	yellow = "33"
	blue   = "34"
)

func (s screen) paint(code, text string) string {
	if !s.colour {
		return text
	}
	return "\x1b[" + code + "m" + text + "\x1b[0m"
}

func (s screen) line(format string, args ...any) { fmt.Fprintf(s.to, format+"\n", args...) }
func (s screen) title(format string, args ...any) {
	s.line("%s", s.paint(bold, fmt.Sprintf(format, args...)))
}

// statusColours has a color for every status.
var statusColours = [...]string{
	gq.StatusPending: faint, gq.StatusDelayed: faint, gq.StatusScheduled: plain, gq.StatusClaimed: blue, gq.StatusRunning: blue,
	gq.StatusRetrying: yellow, gq.StatusCompleted: green, gq.StatusFailed: red, gq.StatusDeadLetter: red, gq.StatusCancelled: yellow,
}

// status returns a status in its color, padded.
func (s screen) status(status gq.Status, width int) string {
	return s.paint(statusColours[status], fmt.Sprintf("%-*s", width, status))
}

// event prints one line of history.
func (s screen) event(at time.Duration, typ string, e *gq.Event) {
	var notes []string
	add := func(ok bool, format string, args ...any) {
		if ok {
			notes = append(notes, fmt.Sprintf(format, args...))
		}
	}
	add(e.Type == gq.EventStarted, "attempt %d on %s, lease version %d", e.Attempt, e.Worker, e.Version)
	add(e.Type == gq.EventClaimed, "held by %s", e.Worker)
	add(e.Type == gq.EventCancelRequested, "asked to stop")
	add(e.Type == gq.EventCancelDelivered, "%s has been told", e.Worker)
	add(e.Failure != nil, "%s", failureText(e.Failure))
	add(e.Reason != "" && !strings.Contains(failureText(e.Failure), e.Reason), "%s", e.Reason)
	add(e.Type == gq.EventRetrying && !e.Until.IsZero() && e.Until.After(e.Time), "again in %v", e.Until.Sub(e.Time).Round(time.Millisecond))
	s.line("%5.1fs  %s  %-13s %s  %s", at.Seconds(), s.paint(faint, e.Job.String()[:8]), typ, s.status(e.Status, 11), strings.Join(notes, ", "))
}

func failureText(f *gq.Failure) string {
	if f == nil {
		return ""
	}
	text, _, _ := strings.Cut(f.Message, "\n")
	if f.Code != "" {
		text += " (" + f.Code + ")"
	}
	return text
}
