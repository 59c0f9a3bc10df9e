package engine

import (
	"container/list"
	"context"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/store"
)

// waitQueue serves the claims that wait. Those that ask for the same stand in one
// line; whoever is at its head tries, and having found all it asked for sends
// the next ones to try, twice as many each time. So a job that comes in costs
// one claim and not one for each waiter, and a thousand jobs do not wait for a
// thousand commits.
//
// A goroutine serves all lines while anyone waits. It looks when the store has news of
// a queue, when a job is due, and when a limit will have room again. A claim that the
// store takes long over, since somebody has the jobs locked, holds up its own line only.
//
// From the first wait on the wait queue hears all news. Who has just tried in vain and now
// stands in line need not try again, and who asks for what the wait queue has just found to be
// all need not try at all, unless there was news in between.
type waitQueue struct {
	engine *Engine

	mu      sync.Mutex
	lines   map[string]*line              // by what they ask for; none is empty; guarded by mu
	byQueue map[string]map[*line]struct{} // guarded by mu
	ready   []*line                       // have something to look for; guarded by mu
	serving bool                          // by the one goroutine that alarm belongs to; guarded by mu
	told    bool                          // the store tells this wait queue its news; guarded by mu
	heard   uint64                        // news of queues so far; guarded by mu
	spent   map[string]finding            // what was found to be all, by key of line; guarded by mu
	stale   bool                          // there was news since the next due time was read; guarded by mu
	retry   time.Time                     // when a limit lets those through who got nothing, since it was read; guarded by mu
	wake    chan struct{}
	alarm   alarm
}

// line is who waits for the same.
type line struct {
	key     string
	queues  []string
	waiters list.List // of *waiter
	ready   bool      // is in waitQueue.ready
	busy    bool      // some of it are trying
	width   int       // how many try together
}

// finding is when a line got less than it asked for.
type finding struct {
	heard uint64 // news until then
	at    time.Time
}

// waiter is a claim that waits. Its fields are guarded by waitQueue.mu.
type waiter struct {
	claim   store.Claim
	got     chan served // receives once
	line    *line
	place   *list.Element // nil if it stands in no line
	trying  bool          // a claim for it is under way
	leaving bool          // wants an answer even if it is none
	gone    bool          // wants none
}

// served is the answer to a waiter.
type served struct {
	jobs  []gq.Job
	asked time.Time // when the store was asked
	err   error
}

// Of one look at the lines.
const (
	maxTries = 256 // claims
	maxWidth = 64  // claims of one line, which are one call to the store
)

const (
	// dueEvery is how often the next due time is read at most.
	dueEvery = 10 * time.Millisecond
	// spentFor is how long it counts that there was no more: jobs become due meanwhile.
	spentFor = 10 * time.Millisecond
	maxSpent = 1000
)

// patience is how long other lines wait for a claim.
const patience = 50 * time.Millisecond

func newWaitQueue(e *Engine) waitQueue {
	return waitQueue{
		engine: e, lines: map[string]*line{}, byQueue: map[string]map[*line]struct{}{}, spent: map[string]finding{},
		wake: make(chan struct{}, 1), alarm: alarm{waitQueue: &e.claims},
	}
}

// lineKey is equal for claims that find the same jobs. Where a pool is occupied by
// starting, who only holds a job finds more.
func lineKey(c *store.Claim) string {
	f := &c.Filter
	var b strings.Builder
	section := func(names []string, ordered bool) {
		if !ordered && !slices.IsSorted(names) {
			names = slices.Sorted(slices.Values(names))
		}
		for _, n := range names {
			b.WriteString(n)
			b.WriteByte(0)
		}
		b.WriteByte(1)
	}
	section(f.Queues, true)
	section(f.Types, false)
	section(f.Offers, false)
	b.WriteString(strconv.FormatInt(f.MaxCost, 10))
	if c.Hold {
		b.WriteByte('h')
	}
	return b.String()
}

// idle reports whether a claim would find nothing: someone waits for the same, or
// has just got all there was.
func (d *waitQueue) idle(c *store.Claim) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.lines) == 0 && len(d.spent) == 0 {
		return false
	}
	key := lineKey(c)
	if d.lines[key] != nil {
		return true
	}
	found, ok := d.spent[key]
	return ok && d.told && found.heard == d.heard && time.Since(found.at) < spentFor
}

// until counts the news so far, for [waitQueue.wait]; 0 if the wait queue does not hear any.
func (d *waitQueue) until() uint64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.told {
		return 0
	}
	return d.heard
}

// comeBack notes when a limit will let a claim through that has tried by itself, and
// may now wait.
func (d *waitQueue) comeBack(at time.Time) {
	if at.IsZero() {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.retry = earlier(d.retry, at)
	d.wakeUp()
}

// wait stands in line until there is a job, the time is over or the context ends.
// The caller has tried in vain after it read the news until tried.
func (d *waitQueue) wait(ctx context.Context, c store.Claim, within time.Duration, tried uint64) ([]gq.Job, error) {
	w := d.join(c, tried)
	timer := time.NewTimer(within)
	defer timer.Stop()
	select {
	case s := <-w.got:
		return d.hand(ctx, s)
	case <-timer.C:
	case <-ctx.Done():
	}
	if d.leave(w) {
		return nil, nil
	}
	select { // a claim is under way
	case s := <-w.got:
		return d.hand(ctx, s)
	case <-ctx.Done():
		d.engine.giveBack(d.abandon(w))
		return nil, nil
	}
}

// hand gives a caller its answer, unless it has left.
func (d *waitQueue) hand(ctx context.Context, s served) ([]gq.Job, error) {
	if ctx.Err() != nil {
		d.engine.giveBack(s.jobs)
		return nil, nil //nolint:nilerr // the end of a wait is no error
	}
	return d.engine.usable(s), s.err
}

// join puts a claim at the end of its line.
func (d *waitQueue) join(c store.Claim, tried uint64) *waiter {
	w := &waiter{claim: c, got: make(chan served, 1)}
	key := lineKey(&c)
	d.mu.Lock()
	defer d.mu.Unlock()
	l := d.lines[key]
	if l == nil {
		l = &line{key: key, queues: c.Queues, width: 1}
		d.lines[key] = l
		for _, q := range l.queues {
			if d.byQueue[q] == nil {
				d.byQueue[q] = map[*line]struct{}{}
			}
			d.byQueue[q][l] = struct{}{}
		}
		if tried != d.heard || !d.told {
			d.readyLocked(l) // what came before it stood here was not told to it
		}
	}
	w.line, w.place = l, l.waiters.PushBack(w)
	if !d.serving {
		d.serving = true
		go d.serve()
	}
	return w
}

// leave takes a waiter out of its line. It reports false where a claim for it is
// under way: then the answer will come.
func (d *waitQueue) leave(w *waiter) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if w.trying || w.place == nil {
		w.leaving = true
		return false
	}
	d.removeLocked(w)
	if len(d.lines) == 0 {
		d.wakeUp()
	}
	return true
}

// abandon takes a waiter out of its line for good and returns what had been
// delivered to it. What comes later is not.
func (d *waitQueue) abandon(w *waiter) []gq.Job {
	d.mu.Lock()
	defer d.mu.Unlock()
	w.gone = true
	d.removeLocked(w)
	select {
	case s := <-w.got:
		return s.jobs
	default:
		return nil
	}
}

// deliver answers a waiter, and reports false if it has left.
func (d *waitQueue) deliver(w *waiter, s served) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if w.gone {
		return false
	}
	w.got <- s
	return true
}

func (d *waitQueue) removeLocked(w *waiter) {
	if w.place == nil {
		return
	}
	l := w.line
	l.waiters.Remove(w.place)
	w.place = nil
	if l.waiters.Len() > 0 {
		return
	}
	delete(d.lines, l.key)
	for _, q := range l.queues {
		if delete(d.byQueue[q], l); len(d.byQueue[q]) == 0 {
			delete(d.byQueue, q)
		}
	}
}

func (d *waitQueue) readyLocked(l *line) {
	if !l.ready {
		l.ready = true
		d.ready = append(d.ready, l)
		d.wakeUp()
	}
}

func (d *waitQueue) wakeUp() {
	select {
	case d.wake <- struct{}{}:
	default:
	}
}

// news is called by the store for every commit.
func (d *waitQueue) news(n store.News) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.stale = true
	if len(n.Queues) > 0 {
		d.heard++
		clear(d.spent)
	}
	if len(d.lines) == 0 {
		return
	}
	for _, q := range n.Queues {
		for l := range d.byQueue[q] {
			d.readyLocked(l)
		}
	}
	d.wakeUp() // the next due time may be another
}

// serve runs while anyone waits.
func (d *waitQueue) serve() {
	d.listen()
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	a := &d.alarm
	for {
		tries, heard, open := d.heads()
		if !open {
			return
		}
		if len(tries) > 0 {
			d.begin(tries, heard)
			continue
		}
		timer.Reset(a.wait())
		select {
		case <-d.wake:
		case <-timer.C:
			if a.rings() {
				d.readyAll()
			}
		}
	}
}

// listen sees to it that the store tells its news, if it does.
func (d *waitQueue) listen() {
	n, ok := d.engine.store.(store.Notifier)
	if !ok || d.alarm.told {
		return
	}
	n.Notify(d.news)
	d.alarm.told = true
	d.mu.Lock()
	defer d.mu.Unlock()
	d.told = true
	d.heard++ // whoever read it before heard nothing
}

func (d *waitQueue) readyAll() {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, l := range d.lines {
		d.readyLocked(l)
	}
}

// heads are those who try next, and the news until now. It reports false when nobody
// waits: then the serving has ended.
func (d *waitQueue) heads() (tries []*waiter, heard uint64, open bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.lines) == 0 {
		d.serving = false
		clear(d.ready)
		d.ready = d.ready[:0]
		return nil, d.heard, false
	}
	d.ready = slices.DeleteFunc(d.ready, func(l *line) bool {
		if l.busy || len(tries) >= maxTries {
			return false
		}
		l.ready = false
		width := min(l.width, maxTries-len(tries))
		for at := l.waiters.Front(); at != nil && width > 0; at = at.Next() {
			w := at.Value.(*waiter)
			w.trying, l.busy = true, true
			tries = append(tries, w)
			width--
		}
		return true
	})
	return tries, d.heard, true
}

// begin claims for those who try, each line for itself, and returns when all have their
// answers or other lines have waited long enough.
func (d *waitQueue) begin(tries []*waiter, heard uint64) {
	answered := make(chan struct{}, len(tries))
	lines := 0
	for len(tries) > 0 {
		n := 1
		for n < len(tries) && tries[n].line == tries[0].line {
			n++
		}
		mine := tries[:n]
		tries = tries[n:]
		lines++
		go func() {
			d.attempt(mine, heard)
			answered <- struct{}{}
		}()
	}
	timer := time.NewTimer(patience)
	defer timer.Stop()
	for range lines {
		select {
		case <-answered:
		case <-timer.C:
			return
		}
	}
}

// attempt claims for several waiters of a line at once, which heard so much news before.
func (d *waitQueue) attempt(tries []*waiter, heard uint64) {
	claims := make([]store.Claim, len(tries))
	for i, w := range tries {
		claims[i] = w.claim
	}
	asked := time.Now()
	claimed, err := d.engine.store.Claim(context.Background(), claims)
	if err != nil {
		d.failAll(tries, err)
		return
	}
	var orphans []gq.Job
	d.mu.Lock()
	full := map[*line]bool{} // whether all who tried found all they asked for
	for i, w := range tries {
		w.trying, w.line.busy = false, false
		c := &claimed[i]
		d.engine.throttled(&w.claim, c)
		d.retry = earlier(d.retry, c.RetryAt)
		enough := len(c.Jobs) == w.claim.N
		if before, seen := full[w.line]; !seen || before {
			full[w.line] = enough
		}
		if !enough && c.Err == nil && len(d.spent) < maxSpent {
			d.spent[w.line.key] = finding{heard, time.Now()}
		}
		switch {
		case w.gone:
			orphans = append(orphans, c.Jobs...)
		case len(c.Jobs) > 0 || c.Err != nil || w.leaving:
			d.removeLocked(w)
			w.got <- served{c.Jobs, asked, c.Err}
		}
	}
	for l, all := range full {
		if !all {
			l.width = 1
			continue
		}
		l.width = min(2*l.width, maxWidth)
		if l.waiters.Len() > 0 {
			d.readyLocked(l)
		}
	}
	d.wakeUp() // others of these lines may have something to look for
	d.mu.Unlock()
	d.engine.giveBack(orphans)
}

// failAll tells everyone who waits that the store cannot be asked, but for those whose
// answers are still to come.
func (d *waitQueue) failAll(tries []*waiter, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, w := range tries {
		w.trying, w.line.busy = false, false
	}
	for _, l := range d.lines {
		for at := l.waiters.Front(); at != nil; {
			w := at.Value.(*waiter)
			if at = at.Next(); w.trying {
				continue
			}
			d.removeLocked(w)
			w.got <- served{err: err}
		}
	}
	d.wakeUp()
}
