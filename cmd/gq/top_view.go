package main

import (
	"bytes"
	"cmp"
	"fmt"
	"strings"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/x/ansi"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/internal/quantity"
)

// queueColumn is a column of the queues, and what they are sorted by.
type queueColumn struct {
	name    string
	width   int // 0 takes what the others leave
	compare func(m *topModel, a, b gq.Count) int
	text    func(m *topModel, c gq.Count) cell
}

// queueColumns are the columns of pageQueues. Numbers sort from the largest.
var queueColumns = []queueColumn{
	{"QUEUE", 0, func(_ *topModel, a, b gq.Count) int { return cmp.Compare(a.Queue, b.Queue) }, func(m *topModel, c gq.Count) cell {
		if m.data.paused[c.Queue] {
			return cell{"⏸ " + oneLine(c.Queue, 200) + " (paused)", yellow}
		}
		return text(oneLine(c.Queue, 200))
	}},
	counted("WAITING", 8, gq.StatusScheduled),
	counted("BLOCKED", 8, blocked...),
	counted("RUNNING", 8, gq.StatusClaimed, gq.StatusRunning),
	counted("FAILED", 7, gq.StatusFailed, gq.StatusDeadLetter),
	rated("IN/S", 5, func(r perSecond) float64 { return r.submitted }),
	rated("DONE/S", 7, func(r perSecond) float64 { return r.completed }),
	rated("FAIL/S", 7, func(r perSecond) float64 { return r.failed + r.retried }),
}

// blocked are the states of jobs that wait for a time, a retry or other jobs.
var blocked = []gq.Status{gq.StatusPending, gq.StatusDelayed, gq.StatusRetrying}

// counted is a column with the number of jobs in some states.
func counted(name string, width int, of ...gq.Status) queueColumn {
	sum := func(c gq.Count) (n int64) {
		for _, s := range of {
			n += c.By[s]
		}
		return n
	}
	return queueColumn{
		name, width,
		func(_ *topModel, a, b gq.Count) int { return cmp.Compare(sum(b), sum(a)) },
		func(_ *topModel, c gq.Count) cell {
			n := sum(c)
			switch {
			case n == 0:
				return cell{"0", faint}
			case of[0] == gq.StatusFailed:
				return cell{short(float64(n)), red}
			}
			return text(short(float64(n)))
		},
	}
}

// rated is a column with a rate.
func rated(name string, width int, of func(perSecond) float64) queueColumn {
	rate := func(m *topModel, c gq.Count) (float64, bool) {
		r, ok := m.rates.of(c.Queue)
		return of(r), ok
	}
	return queueColumn{
		name, width,
		func(m *topModel, a, b gq.Count) int {
			x, _ := rate(m, a)
			y, _ := rate(m, b)
			return cmp.Compare(y, x)
		},
		func(m *topModel, c gq.Count) cell {
			n, ok := rate(m, c)
			switch {
			case !ok:
				return cell{"–", faint}
			case n == 0:
				return cell{"0", faint}
			}
			return text(short(n))
		},
	}
}

// short formats a number with at most four digits and a unit.
func short(n float64) string {
	switch {
	case n >= 1e10:
		return fmt.Sprintf("%.0fG", n/1e9)
	case n >= 1e7:
		return fmt.Sprintf("%.0fM", n/1e6)
	case n >= 1e6:
		return fmt.Sprintf("%.1fM", n/1e6)
	case n >= 1e4:
		return fmt.Sprintf("%.0fk", n/1e3)
	case n < 10 && n != float64(int64(n)):
		return fmt.Sprintf("%.1f", n)
	default:
		return fmt.Sprintf("%.0f", n)
	}
}

// View draws the screen.
func (m *topModel) View() tea.View {
	v := tea.NewView(strings.Join(m.frame(m.height), "\n"))
	v.AltScreen = true
	v.WindowTitle = "gq top"
	return v
}

// Lines of a frame around its body.
const (
	topLines    = 3
	bottomLines = 1
)

// room is the number of rows of a table that fit below its heading. The table of jobs has a title too.
func (m *topModel) room() int {
	heading := 1
	if m.page == pageJobs {
		heading++
	}
	return max(m.height-topLines-bottomLines-heading, 1)
}

// frame returns the lines of a screen of a height; 0 has no limit.
func (m *topModel) frame(height int) []string {
	lines := m.summary()
	body := m.body(height)
	if height > 0 {
		space := max(height-len(lines)-bottomLines, 1)
		for len(body) < space {
			body = append(body, "")
		}
		body = append(body[:space], m.footer())
	}
	lines = append(lines, body...)
	for i := range lines {
		lines[i] = ansi.Truncate(lines[i], m.width, "…")
	}
	return lines
}

// summary returns the lines above the body.
func (m *topModel) summary() []string {
	s, t := m.screen, m.data.stats.Total
	var all perSecond
	known := false
	for _, c := range m.data.stats.Queues {
		r, ok := m.rates.of(c.Queue)
		known = known || ok
		all.submitted += r.submitted
		all.completed += r.completed
		all.failed += r.failed + r.retried
	}
	third := "rates unknown"
	if known || len(m.data.stats.Queues) == 0 && m.rates.problem() == nil {
		third = fmt.Sprintf("submitted %s/s  done %s/s  failed attempts %s/s", short(all.submitted), short(all.completed), short(all.failed))
	}
	if m.filter != "" && m.page.filtered() {
		third += "  filter: " + s.paint(bold, oneLine(m.filter, 60))
	}
	first := fmt.Sprintf("%s  %s  %s", s.paint(bold, "gq top"), oneLine(m.addr, 30), m.data.when.UTC().Format("15:04:05 UTC"))
	if m.data.when.IsZero() {
		first = fmt.Sprintf("%s  %s  connecting …", s.paint(bold, "gq top"), oneLine(m.addr, 60))
	}
	if m.data.err != nil {
		first += "  " + s.paint(red, "no answer: "+oneLine(m.data.err.Error(), 120))
	} else if !m.data.when.IsZero() {
		tabs := m.tabs()
		first += strings.Repeat(" ", max(m.width-ansi.StringWidth(first)-ansi.StringWidth(tabs), 2)) + tabs
	}
	var stopped int64
	for _, s := range blocked {
		stopped += t.By[s]
	}
	second := fmt.Sprintf("%s  %s waiting  %s blocked  %s running  %s failed  %s  %s",
		quantity.Of(len(m.data.stats.Queues), "queue"), short(float64(t.By[gq.StatusScheduled])), short(float64(stopped)), short(float64(t.Held())), short(float64(t.By[gq.StatusFailed]+t.By[gq.StatusDeadLetter])),
		quantity.Of(m.data.stats.Workers, "worker"), quantity.Of(max(len(m.data.stats.Nodes), 1), "server"))
	return []string{first, second, third}
}

// tabs names the pages that keys open, and marks the current one.
func (m *topModel) tabs() string {
	at := m.page
	if len(m.back) > 0 {
		at = m.back[0].page
	}
	names := []string{"1 queues", "2 workers", "3 failures"}
	for i := range names {
		switch {
		case page(i) != at:
			names[i] = m.screen.paint(faint, names[i])
		case m.screen.colour:
			names[i] = m.screen.paint(bold, names[i])
		default:
			names[i] = "[" + names[i] + "]"
		}
	}
	return strings.Join(names, "  ")
}

// topKeys says what can be done on each page.
var topKeys = [...]string{
	pageQueues:   "Enter open  s sort  r reverse  / filter  p pause  1-3 pages  ? help  q quit",
	pageWorkers:  "/ filter  1-3 pages  ? help  q quit",
	pageFailures: "Enter explain  / filter  1-3 pages  ? help  q quit",
	pageJobs:     "Enter explain  Esc back  p pause  1-3 pages  ? help  q quit",
	pageJob:      "↑ ↓ scroll  Esc back  1-3 pages  ? help  q quit",
	pageHelp:     "Esc back  q quit",
}

// footer returns the last line: a question, the result of an action, or the keys.
func (m *topModel) footer() string {
	s := m.screen
	switch {
	case m.question != "":
		return s.paint(bold, m.question)
	case m.typing:
		return "filter: " + oneLine(m.filter, 60) + "▏ (Enter keeps it, Esc clears it)"
	case m.note != "":
		return oneLine(m.note, 200)
	}
	return s.paint(faint, topKeys[m.page])
}

// body returns the lines of the current page, those that fit if there is a height.
func (m *topModel) body(height int) []string {
	switch m.page {
	case pageQueues:
		return m.queueTable(height)
	case pageWorkers:
		return m.workerTable(height)
	case pageFailures:
		return m.failureTable(height)
	case pageJobs:
		return m.jobTable(height)
	case pageJob:
		return m.scrolled(height, m.explained())
	default:
		return m.scrolled(height, strings.Split(topHelp, "\n"))
	}
}

const topHelp = `WAITING      jobs that a worker could claim now
BLOCKED      jobs that wait for a time, a retry or other jobs

1  2  3      queues, workers, failures among the last events
↑ ↓  j k     select or scroll, also PgUp PgDn Home End
Enter        open: a queue's live jobs, then why a job is not running
Esc          back
s  r         sort queues by the next column, reverse
/            show only queues whose names contain a text, their failures, and
             workers that contain it in their name or in a queue's
p            pause or resume the selected queue
q            quit`

// scrolled returns the part of a text that fits.
func (m *topModel) scrolled(height int, lines []string) []string {
	if height == 0 {
		return lines
	}
	return lines[min(m.row, max(len(lines)-m.room()-1, 0)):]
}

// explained returns the explanation of a job, in lines that fit.
func (m *topModel) explained() []string {
	if m.data.explain.Job.IsZero() {
		return []string{"job " + m.job.String() + " …"}
	}
	var b bytes.Buffer
	s := screen{&b, m.screen.colour}
	x := m.data.explain
	events := x.Timeline
	x.Timeline = nil // has columns of its own here
	s.title("job %s", x.Job)
	s.line("type %s, queue %s", oneLine(x.Type, 200), oneLine(x.Queue, 200))
	s.explanation(&x)
	var lines []string
	for line := range strings.SplitSeq(strings.TrimRight(b.String(), "\n"), "\n") {
		lines = append(lines, wrapped("", line, m.width)...)
	}
	layout := time.TimeOnly
	if len(events) > 0 {
		lines = append(lines, "")
		if m.data.when.Sub(events[0].Time) > 12*time.Hour {
			layout = "Jan _2 15:04:05"
		}
	}
	for i := range events {
		e := &events[i]
		note := eventNote(e)
		if e.Attempt > 0 {
			note = strings.TrimSuffix(fmt.Sprintf("attempt %d; %s", e.Attempt, note), "; ")
		}
		lines = append(lines, wrapped(fmt.Sprintf("%s  %-20s  %s  ", e.Time.UTC().Format(layout), e.Type, m.screen.status(e.Status, 11)), oneLine(note, 400), m.width)...)
	}
	return lines
}

// wrapped breaks a text after a prefix into lines of a width. The further lines begin below the
// first, or below what a line without a prefix is indented by.
func wrapped(prefix, text string, width int) []string {
	indent := ansi.StringWidth(prefix)
	if prefix == "" {
		indent = len(text) - len(strings.TrimLeft(text, " ")) + 2
	}
	const hyphen = "\ue000" // keeps names and commands with hyphens in one piece
	text = ansi.Wrap(strings.ReplaceAll(text, "-", hyphen), max(width-indent, 20), "")
	lines := strings.Split(strings.ReplaceAll(text, hyphen, "-"), "\n")
	for i := range lines {
		if i > 0 {
			lines[i] = strings.Repeat(" ", indent) + strings.TrimLeft(lines[i], " ")
		}
	}
	lines[0] = prefix + lines[0]
	return lines
}

// visible returns which rows of a table fit, so that the selected one is among them.
func (m *topModel) visible(height, rows int) (from, to int) {
	if height == 0 {
		return 0, rows
	}
	room := m.room()
	m.first = max(min(m.first, m.row), m.row-room+1, 0)
	m.first = min(m.first, max(rows-room, 0))
	return m.first, min(m.first+room, rows)
}

// column is a column of a table: its width is 0 if it takes what the others leave. Columns of
// numbers are aligned to the right.
type topColumn struct {
	name  string
	width int
	right bool
}

// table returns a heading and the rows that fit.
func (m *topModel) table(height int, columns []topColumn, rows int, row func(i int) []cell, empty string) []string {
	rest, marked := m.width, height > 0 && !m.screen.colour
	if marked {
		rest -= 2 // for a mark in front of the selected row
	}
	for _, c := range columns {
		rest -= c.width + 1
	}
	line := func(cells []cell, selected bool) string {
		var b strings.Builder
		for i, c := range columns {
			width := c.width
			if width == 0 {
				width = max(rest, 12)
			}
			t := ansi.Truncate(cells[i].text, width, "…")
			space := strings.Repeat(" ", max(width-ansi.StringWidth(t), 0))
			code := cells[i].colour
			if selected {
				code = "7" // reverse
			}
			if c.right {
				b.WriteString(m.paint(selected, code, space+t))
			} else {
				b.WriteString(m.paint(selected, code, t+space))
			}
			b.WriteString(m.paint(selected, "7", " "))
		}
		return b.String()
	}
	heads := make([]cell, len(columns))
	for i, c := range columns {
		heads[i] = cell{c.name, bold}
	}
	lines := []string{line(heads, false)}
	if marked {
		lines[0] = "  " + lines[0]
	}
	if rows == 0 {
		return append(lines, m.screen.paint(faint, empty))
	}
	from, to := m.visible(height, rows)
	for i := from; i < to; i++ {
		selected := height > 0 && i == m.row
		text := line(row(i), selected)
		switch {
		case selected && marked:
			text = "> " + text
		case marked:
			text = "  " + text
		}
		lines = append(lines, text)
	}
	return lines
}

func (m *topModel) paint(selected bool, code, text string) string {
	if code == plain || code == "7" && !selected {
		return text
	}
	return m.screen.paint(code, text)
}

func (m *topModel) queueTable(height int) []string {
	columns := make([]topColumn, len(queueColumns))
	for i, c := range queueColumns {
		columns[i] = topColumn{c.name, c.width, i > 0}
		if i == m.order {
			columns[i].name = "▾" + c.name
			if m.reverse {
				columns[i].name = "▴" + c.name
			}
		}
	}
	all := m.queues()
	empty := "no queue yet: gq submit makes one"
	if m.filter != "" {
		empty = "no queue with " + oneLine(m.filter, 40) + " in its name"
	}
	if m.data.when.IsZero() {
		empty = ""
	}
	return m.table(height, columns, len(all), func(i int) []cell {
		cells := make([]cell, len(queueColumns))
		for k, c := range queueColumns {
			cells[k] = c.text(m, all[i])
		}
		return cells
	}, empty)
}

func (m *topModel) workerTable(height int) []string {
	columns := []topColumn{{"WORKER", 24, false}, {"QUEUES", 0, false}, {"RUNNING", 7, true}, {"WAITING", 7, true}, {"SEEN", 9, true}, {"VERSION", 14, false}}
	all := m.workers()
	empty := "no worker has called in the last minute: gq work starts one"
	if m.filter != "" && len(m.data.workers) > 0 {
		empty = "no worker has " + oneLine(m.filter, 40) + " in its name or in a queue's"
	}
	return m.table(height, columns, len(all), func(i int) []cell {
		w := &all[i]
		return []cell{
			text(oneLine(w.Name, 80)), text(oneLine(strings.Join(w.Queues, ","), 200)), number(w.Running), number(w.Waiting),
			text(roundly(max(m.data.when.Sub(w.LastSeen), 0))), text(oneLine(w.Version, 40)),
		}
	}, empty)
}

func (m *topModel) failureTable(height int) []string {
	columns := []topColumn{{"TIME", 8, false}, {"QUEUE", 16, false}, {"STATE", 11, false}, {"JOB", 8, false}, {"WHY", 0, false}}
	all := m.failures()
	empty := fmt.Sprintf("no failure among the last %d events, nor since gq top began", pastEvents)
	if m.filter != "" {
		empty = "no failure lately in a queue with " + oneLine(m.filter, 40) + " in its name"
	}
	if err := m.rates.problem(); err != nil {
		empty = "events cannot be followed: " + oneLine(err.Error(), 120)
	}
	return m.table(height, columns, len(all), func(i int) []cell {
		e := &all[i]
		why := failureText(e.Failure)
		if why == "" {
			why = e.Reason
		}
		return []cell{
			{m.clock(e.Time), faint}, text(oneLine(e.Queue, 80)), statusCell(e.Status), text(e.Job.String()[:8]), text(oneLine(why, 300)),
		}
	}, empty)
}

// clock writes a time of today, or a day, in eight characters.
func (m *topModel) clock(t time.Time) string {
	if m.data.when.Sub(t) > 12*time.Hour {
		return t.UTC().Format("Jan _2")
	}
	return t.UTC().Format(time.TimeOnly)
}

func (m *topModel) jobTable(height int) []string {
	columns := []topColumn{{"JOB", 36, false}, {"STATE", 9, false}, {"TYPE", 0, false}, {"ATTEMPT", 7, true}, {"AGE", 7, true}, {"WORKER", 16, false}}
	if m.width < 110 {
		columns[0].width = 8 // the page of a job has its whole id
	}
	title := fmt.Sprintf("queue %s: live jobs, oldest first", oneLine(m.at, 60))
	if len(m.data.jobs) == 200 {
		title += ", the first 200"
	}
	lines := []string{m.screen.paint(bold, title)}
	return append(lines, m.table(max(height-1, 0), columns, len(m.data.jobs), func(i int) []cell {
		j := &m.data.jobs[i]
		holder := ""
		if l := j.State.Lease; l != nil && j.State.Status.Held() {
			holder = l.Worker
		}
		return []cell{
			text(j.State.ID.String()[:columns[0].width]), statusCell(j.State.Status), text(oneLine(j.Spec.Type, 80)), text(fmt.Sprintf("%d/%d", j.State.Attempt, j.State.Bound)),
			text(roundly(max(m.data.when.Sub(j.State.CreatedAt), 0))), text(oneLine(holder, 80)),
		}
	}, "no live jobs")...)
}
