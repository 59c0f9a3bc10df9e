package main

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/x/ansi"

	"github.com/gopherqueue/gq"
)

// modelAt returns gq top without a terminal, in a window of 80×24.
func modelAt(at page) *topModel {
	m := newTopModel(time.Second, "", screen{to: io.Discard})
	m.page, m.data.when = at, time.Now()
	return m
}

func press(m *topModel, keys ...string) {
	for _, k := range keys {
		m.press(tea.KeyPressMsg{Code: []rune(k)[0], Text: k})
	}
}

// Nothing of an explanation is lost in 80 columns.
func TestTopExplanationFits(t *testing.T) {
	t.Parallel()
	m := modelAt(pageJob)
	long := strings.Repeat("many words\tof a\nsummary ", 12) + "end-of-summary"
	m.data.explain = gq.Explanation{
		Job: gq.JobID{1}, Type: "email.send", Queue: "mail", Status: gq.StatusScheduled,
		Reason: gq.Reason{Summary: long, Remedy: strings.Repeat("do something about it ", 8) + "end-of-remedy"},
		Timeline: []gq.Event{
			{Type: gq.EventSubmitted, Time: time.Now().Add(-48 * time.Hour), Status: gq.StatusScheduled},
			{
				Type: gq.EventRetrying, Time: time.Now(), Status: gq.StatusRetrying, Attempt: 2, Worker: "worker-1",
				Failure: &gq.Failure{Message: strings.Repeat("a message\tof words ", 9) + "end-of-message " + strings.Repeat("x", 100)},
			},
		},
	}
	lines := m.explained()
	for _, line := range lines {
		if w := ansi.StringWidth(line); w > m.width || strings.Contains(line, "\t") {
			t.Errorf("a line is %d wide: %q", w, line)
		}
	}
	text := strings.Join(strings.Fields(strings.Join(lines, " ")), " ")
	for _, want := range []string{"end-of-summary", "end-of-remedy", "end-of-message", "attempt 2; worker-1", "queue mail", strings.Repeat("x", 20)} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, strings.Join(lines, "\n"))
		}
	}
}

// A text that does not fit can be scrolled to its end, and back from there with one key a line.
func TestTopScrolls(t *testing.T) {
	t.Parallel()
	m := modelAt(pageJob)
	m.data.explain = gq.Explanation{Job: gq.JobID{1}, Status: gq.StatusScheduled, Reason: gq.Reason{Summary: "it waits"}}
	for i := range 40 {
		m.data.explain.Timeline = append(m.data.explain.Timeline, gq.Event{Type: gq.EventUpdated, Status: gq.StatusScheduled, Time: m.data.when, Attempt: i + 1})
	}
	shown := func() string { return strings.Join(m.frame(m.height), "\n") + "\n" }
	if !strings.Contains(shown(), "it waits") || strings.Contains(shown(), "attempt 40\n") {
		t.Errorf("the beginning is\n%s", shown())
	}
	press(m, "G", "j", "j")
	end := shown()
	if !strings.Contains(end, "attempt 40\n") || strings.Contains(end, "it waits") {
		t.Errorf("the end is\n%s", end)
	}
	if press(m, "k"); shown() == end {
		t.Error("one line up shows the same")
	}
	press(m, "g")
	if !strings.Contains(shown(), "it waits") {
		t.Errorf("back at the beginning:\n%s", shown())
	}
}

// The selected row is visible on every page with a table, wherever it is.
func TestTopShowsTheSelectedRow(t *testing.T) {
	t.Parallel()
	for _, at := range []page{pageQueues, pageWorkers, pageFailures, pageJobs} {
		m := modelAt(at)
		for i := range 60 {
			name := fmt.Sprintf("row-%02d", i)
			m.data.stats.Queues = append(m.data.stats.Queues, gq.Count{Queue: name})
			m.data.workers = append(m.data.workers, gq.LiveWorker{Name: name})
			m.rates.past([]gq.Event{{Type: gq.EventFailed, Status: gq.StatusFailed, Queue: name, Time: m.data.when}})
			m.data.jobs = append(m.data.jobs, gq.Job{Spec: gq.Spec{Type: name}, State: gq.State{Status: gq.StatusScheduled}})
		}
		for _, key := range []string{"j", "k"} {
			for range 60 {
				if frame := strings.Join(m.frame(m.height), "\n"); !strings.Contains(frame, "\n> ") || strings.Count(frame, "\n") != m.height-1 {
					t.Fatalf("page %d, row %d is not visible:\n%s", at, m.row, frame)
				}
				press(m, key)
			}
		}
	}
}

// Keys of one page do nothing on another, and what is filtered says so.
func TestTopKeysOfPages(t *testing.T) {
	t.Parallel()
	m := modelAt(pageWorkers)
	m.data.workers = []gq.LiveWorker{{Name: "hand", Queues: []string{"mail"}}, {Name: "foot", Queues: []string{"video"}}}
	press(m, "s", "r")
	if m.order != 0 || m.reverse {
		t.Error("the workers' page sorts the queues")
	}
	m.filter = "mai"
	frame := strings.Join(m.frame(m.height), "\n")
	if !strings.Contains(frame, "> hand ") || strings.Contains(frame, "foot") || !strings.Contains(frame, "filter: mai") || m.rows() != 1 {
		t.Errorf("workers of mail:\n%s", frame)
	}
	m.open(pageJobs)
	m.at = "video"
	press(m, "/")
	if frame := strings.Join(m.frame(m.height), "\n"); m.typing || strings.Contains(frame, "filter: mai") {
		t.Errorf("the jobs of a queue are filtered:\n%s", frame)
	}
	if !strings.Contains(m.tabs(), "[2 workers]") {
		t.Errorf("the page came from %s", m.tabs())
	}
	m.data.err = errors.New("gone")
	if frame := strings.Join(m.frame(m.height), "\n"); !strings.Contains(frame, "no answer: gone") {
		t.Errorf("without a server:\n%s", frame)
	}
	for at, text := range topKeys {
		if w := ansi.StringWidth(text); w == 0 || w > 80 {
			t.Errorf("the keys of page %d are %d wide", at, w)
		}
	}
}
