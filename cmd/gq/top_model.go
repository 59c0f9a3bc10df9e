package main

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	tea "charm.land/bubbletea/v2"

	"github.com/gopherqueue/gq"
)

// page is what gq top shows.
type page int

const (
	pageQueues page = iota
	pageWorkers
	pageFailures
	pageJobs // of a queue
	pageJob
	pageHelp
)

// filtered reports whether the filter applies to a page.
func (p page) filtered() bool { return p <= pageFailures }

// topModel is the state of gq top. Only the program's loop changes it.
type topModel struct {
	ctx      context.Context
	queue    queue
	addr     string
	interval time.Duration
	rates    *rates
	screen   screen

	width, height int

	subject         // at is the queue of pageJobs, job the job of pageJob
	back    []place // where Esc leads
	row     int     // the selected one
	first   int     // the first visible one

	order    int // column of the queues
	reverse  bool
	filter   string
	typing   bool   // the filter
	question string // that y answers
	answer   tea.Cmd
	note     string // result of the last action

	data topSample
}

// place is a page that the user can come back to.
type place struct {
	page page
	row  int
}

// subject is what a sample is about.
type subject struct {
	page page
	at   string
	job  gq.JobID
}

// topSample is what one round of calls returned.
type topSample struct {
	of      subject
	when    time.Time
	stats   gq.Stats
	paused  map[string]bool
	workers []gq.LiveWorker
	jobs    []gq.Job
	explain gq.Explanation
	err     error
}

// Messages of the loop, besides topSample.
type (
	topTick  struct{}
	topFresh topSample // of a page that was just opened
	topDone  struct{ note string }
)

func newTopModel(interval time.Duration, filter string, s screen) *topModel {
	return &topModel{interval: interval, filter: filter, screen: s, rates: newRates(time.Now), width: 80, height: 24}
}

// Init asks for the first sample.
func (m *topModel) Init() tea.Cmd { return m.refresh() }

func (m *topModel) refresh() tea.Cmd {
	of := m.subject
	return func() tea.Msg { return m.sample(of) }
}

// sample reads what a page shows.
func (m *topModel) sample(of subject) (s topSample) {
	s.of = of
	ctx, cancel := context.WithTimeout(m.ctx, callTimeout)
	defer cancel()
	s.when = time.Now()
	if s.stats, s.err = m.queue.Stats(ctx); s.err != nil {
		return s
	}
	var queues []gq.Queue
	if queues, s.err = m.queue.Queues(ctx); s.err != nil {
		return s
	}
	s.paused = make(map[string]bool)
	for i := range queues {
		if queues[i].Paused {
			s.paused[queues[i].Name] = true
		}
	}
	switch of.page {
	case pageWorkers:
		s.workers, s.err = m.queue.Workers(ctx)
	case pageJobs:
		var page gq.Page
		page, s.err = m.queue.List(ctx, gq.Query{Queue: of.at, Statuses: live(), OldestFirst: true, Limit: 200})
		s.jobs = page.Jobs
	case pageJob:
		s.explain, s.err = m.queue.Explain(ctx, of.job)
	}
	return s
}

// sampled takes a sample over. After an error the last data stay.
func (m *topModel) sampled(s topSample) {
	if s.err != nil {
		m.data.err = s.err
		return
	}
	if s.of != m.subject { // the user has opened another page meanwhile
		s.workers, s.jobs, s.explain = m.data.workers, m.data.jobs, m.data.explain
	}
	m.data = s
	m.row = min(m.row, max(m.rows()-1, 0))
}

// Update handles a message.
func (m *topModel) Update(msg tea.Msg) (tea.Model, tea.Cmd) {
	switch msg := msg.(type) {
	case tea.WindowSizeMsg:
		m.width, m.height = msg.Width, msg.Height
	case topSample:
		m.sampled(msg)
		return m, tea.Tick(m.interval, func(time.Time) tea.Msg { return topTick{} })
	case topFresh:
		m.sampled(topSample(msg))
	case topTick:
		return m, m.refresh()
	case topDone:
		m.note = msg.note
		return m, m.read()
	case tea.KeyPressMsg:
		return m, m.press(msg)
	}
	return m, nil
}

// read reads the data of a page that has just been opened, without a further tick.
func (m *topModel) read() tea.Cmd {
	of := m.subject
	return func() tea.Msg { return topFresh(m.sample(of)) }
}

// press handles a key.
func (m *topModel) press(k tea.KeyPressMsg) tea.Cmd {
	key := k.String()
	if key == "ctrl+c" {
		return tea.Quit
	}
	if m.typing {
		m.typeFilter(key, k.Text)
		return nil
	}
	if m.question != "" {
		do := m.answer
		m.question, m.answer = "", nil
		if key == "y" {
			return do
		}
		m.note = "nothing was changed"
		return nil
	}
	m.note = ""
	switch key {
	case "q":
		return tea.Quit
	case "?":
		m.open(pageHelp)
	case "up", "k":
		m.row = max(m.row-1, 0)
	case "down", "j":
		m.row = min(m.row+1, max(m.rows()-1, 0))
	case "pgup":
		m.row = max(m.row-m.room(), 0)
	case "pgdown", "space":
		m.row = min(m.row+m.room(), max(m.rows()-1, 0))
	case "home", "g":
		m.row = 0
	case "end", "G":
		m.row = max(m.rows()-1, 0)
	case "1", "2", "3":
		m.back, m.page, m.row, m.first = nil, page(key[0]-'1'), 0, 0
		return m.read()
	case "esc", "backspace", "left", "h":
		return m.leave()
	case "enter", "right", "l":
		return m.enter()
	case "s", "r":
		m.sort(key)
	case "/":
		m.typing = m.page.filtered()
	case "p":
		m.askPause()
	}
	return nil
}

// sort changes the order of the queues.
func (m *topModel) sort(key string) {
	switch {
	case m.page != pageQueues:
	case key == "s":
		m.order = (m.order + 1) % len(queueColumns)
	default:
		m.reverse = !m.reverse
	}
}

// typeFilter changes the filter by a key.
func (m *topModel) typeFilter(key, text string) {
	switch key {
	case "enter":
		m.typing = false
	case "esc":
		m.typing, m.filter = false, ""
	case "backspace":
		if r := []rune(m.filter); len(r) > 0 {
			m.filter = string(r[:len(r)-1])
		}
	default:
		if len(m.filter)+len(text) <= gq.MaxNameBytes {
			m.filter += text
		}
	}
	m.row, m.first = 0, 0
}

func (m *topModel) open(p page) {
	m.back = append(m.back, place{m.page, m.row})
	m.page, m.row, m.first = p, 0, 0
}

func (m *topModel) leave() tea.Cmd {
	if len(m.back) == 0 {
		return nil
	}
	last := m.back[len(m.back)-1]
	m.back = m.back[:len(m.back)-1]
	m.page, m.row, m.first = last.page, last.row, 0
	return m.read()
}

// enter opens what is selected.
func (m *topModel) enter() tea.Cmd {
	switch m.page {
	case pageQueues:
		if all := m.queues(); m.row < len(all) {
			m.at = all[m.row].Queue
			m.data.jobs = nil
			m.open(pageJobs)
			return m.read()
		}
	case pageJobs:
		if m.row < len(m.data.jobs) {
			return m.openJob(m.data.jobs[m.row].State.ID)
		}
	case pageFailures:
		if all := m.failures(); m.row < len(all) {
			return m.openJob(all[m.row].Job)
		}
	}
	return nil
}

func (m *topModel) openJob(id gq.JobID) tea.Cmd {
	m.job, m.data.explain = id, gq.Explanation{}
	m.open(pageJob)
	return m.read()
}

// askPause asks whether to pause or resume the selected queue.
func (m *topModel) askPause() {
	name := m.at
	if m.page == pageQueues {
		all := m.queues()
		if m.row >= len(all) {
			return
		}
		name = all[m.row].Queue
	} else if m.page != pageJobs {
		return
	}
	verb, do := "pause", m.queue.Pause
	if m.data.paused[name] {
		verb, do = "resume", m.queue.Resume
	}
	m.question = fmt.Sprintf("%s queue %s? y/n", verb, oneLine(name, 40))
	m.answer = func() tea.Msg {
		ctx, cancel := context.WithTimeout(m.ctx, callTimeout)
		defer cancel()
		if _, err := do(ctx, name); err != nil {
			return topDone{err.Error()}
		}
		return topDone{fmt.Sprintf("%sd queue %s", verb, oneLine(name, 60))}
	}
}

// queues returns the queues to show, sorted.
func (m *topModel) queues() []gq.Count {
	var out []gq.Count
	for _, c := range m.data.stats.Queues {
		if strings.Contains(c.Queue, m.filter) {
			out = append(out, c)
		}
	}
	column := queueColumns[m.order]
	slices.SortStableFunc(out, func(a, b gq.Count) int {
		n := column.compare(m, a, b)
		if m.reverse {
			n = -n
		}
		return cmp.Or(n, cmp.Compare(a.Queue, b.Queue))
	})
	return out
}

// failures returns the failures to show.
func (m *topModel) failures() []gq.Event {
	return slices.DeleteFunc(m.rates.recent(), func(e gq.Event) bool { return !strings.Contains(e.Queue, m.filter) })
}

// workers returns the workers to show.
func (m *topModel) workers() []gq.LiveWorker {
	var out []gq.LiveWorker
	for i := range m.data.workers {
		w := &m.data.workers[i]
		has := func(name string) bool { return strings.Contains(name, m.filter) }
		if has(w.Name) || slices.ContainsFunc(w.Queues, has) {
			out = append(out, *w)
		}
	}
	return out
}

// rows returns the number of rows that can be selected or scrolled to.
func (m *topModel) rows() int {
	switch m.page {
	case pageQueues:
		return len(m.queues())
	case pageWorkers:
		return len(m.workers())
	case pageFailures:
		return len(m.failures())
	case pageJobs:
		return len(m.data.jobs)
	default: // each row begins at another line of the text
		return max(len(m.body(0))-m.room(), 1)
	}
}
