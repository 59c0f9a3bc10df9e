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
	"github.com/gopherqueue/gq/internal/wake"
	"github.com/gopherqueue/gq/machine"
	"github.com/gopherqueue/gq/store"
)

// waitQueue holds the claims that wait for jobs. Claims with the same filter share a waitlist.
// The first claim of the list retries; if it gets all the jobs it wants, twice as many claims
// retry together, and so on. So a new job costs one claim instead of one per waiter, and a
// thousand jobs do not need a thousand commits.
//
// One goroutine serves all waitlists while a claim waits. It retries when the store reports
// news of a queue, when a job is due, and when a limit will allow another claim. If the store
// is slow to answer, because the jobs are locked, only that waitlist is delayed.
//
// From its first waiter on, the wait queue receives the store's news. Unless there was news in
// between, a claim that just came back empty waits without retrying, and a claim identical to
// one that just came back empty skips its first attempt.
type waitQueue struct {
	engine *Engine

	mu         sync.Mutex
	lists      map[string]*waitlist              // by filterKey; none is empty; guarded by mu
	byQueue    map[string]map[*waitlist]struct{} // guarded by mu
	byPattern  map[string]map[*waitlist]struct{} // of lists that name patterns; guarded by mu
	ready      []*waitlist                       // must retry; guarded by mu
	serving    bool                              // the goroutine of serve runs; guarded by mu
	subscribed bool                              // the store reports news to this wait queue; guarded by mu
	counts     newsCounts                        // guarded by mu
	empty      map[string]emptyResult            // filters that just came back empty, by filterKey; guarded by mu
	stale      bool                              // the next due time must be read again; guarded by mu
	due        time.Time                         // when a job of recent news is due, in the store's time; guarded by mu
	retry      time.Time                         // when a limit allows another claim; guarded by mu
	wake       chan struct{}
	alarm      alarm // owned by the goroutine of serve
}

// waitlist holds waiting claims with the same filter.
type waitlist struct {
	key       string
	queues    []string
	waiters   list.List // of *waiter
	ready     bool      // is in waitQueue.ready
	busy      bool      // claims of this list are in flight
	width     int       // number of claims that retry together
	unlimited bool      // no limit kept jobs from the last attempt
}

// newsCounts are the numbers of news so far.
type newsCounts struct {
	claimable uint64 // jobs may have become claimable
	freed     uint64 // jobs have ended, which leaves room under a limit
}

// emptyResult records that a claim got fewer jobs than it wanted.
type emptyResult struct {
	before    newsCounts // waitQueue.counts before the claim
	at        time.Time
	unlimited bool // see [store.Claimed]
}

// waiter is a waiting claim. Its fields are guarded by waitQueue.mu.
type waiter struct {
	claim   store.Claim
	got     chan claimResult // receives once
	list    *waitlist
	place   *list.Element // nil if it is in no list
	trying  bool          // its claim is in flight
	leaving bool          // wants the next answer even without jobs
	gone    bool          // wants no answer

	reserved *reservation // nil if it has none
}

// claimResult is the answer to a waiter.
type claimResult struct {
	jobs  []gq.Job
	asked time.Time // when the engine called the store
	err   error
}

// Limits of one round of retries.
const (
	maxTries = 256 // claims
	maxWidth = 64  // claims of one waitlist, which share a call to the store
)

const (
	// dueEvery is the shortest time between two reads of the next due time.
	dueEvery = 10 * time.Millisecond
	// emptyFor is how long an empty result is valid. Jobs can become due meanwhile.
	emptyFor = 10 * time.Millisecond
	maxEmpty = 1000
)

// patience is how long other waitlists wait for a claim in flight.
const patience = 50 * time.Millisecond

func newWaitQueue(e *Engine) waitQueue {
	return waitQueue{
		engine: e, lists: map[string]*waitlist{}, byQueue: map[string]map[*waitlist]struct{}{}, byPattern: map[string]map[*waitlist]struct{}{}, empty: map[string]emptyResult{},
		wake: make(chan struct{}, 1), alarm: alarm{waitQueue: &e.claims},
	}
}

// filterKey is equal for claims that can get the same jobs. It includes Hold: in a pool with
// AtStart a claim with Hold can get more jobs.
func filterKey(c *store.Claim) string {
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

// knownEmpty reports whether a claim would get nothing, because another claim with the same
// filter waits or just came back empty.
func (wq *waitQueue) knownEmpty(c *store.Claim) bool {
	wq.mu.Lock()
	defer wq.mu.Unlock()
	if len(wq.lists) == 0 && len(wq.empty) == 0 {
		return false
	}
	key := filterKey(c)
	if wq.lists[key] != nil {
		return true
	}
	found, ok := wq.empty[key]
	if found.unlimited {
		found.before.freed = wq.counts.freed
	}
	return ok && wq.subscribed && found.before == wq.counts && time.Since(found.at) < emptyFor
}

// newsSoFar returns the counts of news for [waitQueue.wait]; zero if the store does not report
// any.
func (wq *waitQueue) newsSoFar() newsCounts {
	wq.mu.Lock()
	defer wq.mu.Unlock()
	if !wq.subscribed {
		return newsCounts{}
	}
	return wq.counts
}

// retryAt records when a limit allows another claim.
func (wq *waitQueue) retryAt(at time.Time) {
	if at.IsZero() {
		return
	}
	wq.mu.Lock()
	defer wq.mu.Unlock()
	wq.retry = wake.Earlier(wq.retry, at)
	wq.wakeUp()
}

// wait waits until there is a job, the time is over or the context ends. tried is the result
// of newsSoFar before the caller's own attempt came back empty.
func (wq *waitQueue) wait(ctx context.Context, c store.Claim, within time.Duration, tried newsCounts) ([]gq.Job, error) {
	w := wq.join(c, tried)
	timer := time.NewTimer(within)
	defer timer.Stop()
	select {
	case s := <-w.got:
		return wq.receive(ctx, s)
	case <-timer.C:
	case <-ctx.Done():
	}
	if wq.leave(w) {
		return nil, nil
	}
	select { // the claim is in flight
	case s := <-w.got:
		return wq.receive(ctx, s)
	case <-ctx.Done():
		wq.engine.giveBack(wq.abandon(w))
		return nil, nil
	}
}

// receive returns an answer to the caller, or releases the jobs if its context has ended.
func (wq *waitQueue) receive(ctx context.Context, s claimResult) ([]gq.Job, error) {
	if ctx.Err() != nil {
		wq.engine.giveBack(s.jobs)
		return nil, nil //nolint:nilerr // the end of a wait is no error
	}
	return wq.engine.usable(s), s.err
}

// join appends a claim to its waitlist.
func (wq *waitQueue) join(c store.Claim, tried newsCounts) *waiter {
	w := &waiter{claim: c, got: make(chan claimResult, 1)}
	key := filterKey(&c)
	wq.mu.Lock()
	defer wq.mu.Unlock()
	l := wq.lists[key]
	if l == nil {
		l = &waitlist{key: key, queues: c.Queues, width: 1, unlimited: wq.empty[key].unlimited}
		wq.lists[key] = l
		for _, q := range l.queues {
			by := wq.indexLocked(q)
			if by[q] == nil {
				by[q] = map[*waitlist]struct{}{}
			}
			by[q][l] = struct{}{}
		}
		if tried != wq.counts || !wq.subscribed {
			wq.readyLocked(l) // news may have arrived before the list existed
		}
	}
	w.list, w.place = l, l.waiters.PushBack(w)
	if !wq.serving {
		wq.serving = true
		go wq.serve()
	}
	return w
}

// leave removes a waiter from its waitlist. It reports false if the claim is in flight and an
// answer will follow.
func (wq *waitQueue) leave(w *waiter) bool {
	wq.mu.Lock()
	defer wq.mu.Unlock()
	if w.trying || w.place == nil {
		w.leaving = true
		return false
	}
	wq.removeLocked(w)
	if len(wq.lists) == 0 {
		wq.wakeUp()
	}
	return true
}

// abandon removes a waiter and returns the jobs that were already delivered to it. No further
// jobs will be delivered.
func (wq *waitQueue) abandon(w *waiter) []gq.Job {
	wq.mu.Lock()
	defer wq.mu.Unlock()
	w.gone = true
	wq.removeLocked(w)
	select {
	case s := <-w.got:
		return s.jobs
	default:
		return nil
	}
}

// deliver answers a waiter. It reports false if the waiter has left.
func (wq *waitQueue) deliver(w *waiter, s claimResult) bool {
	wq.mu.Lock()
	defer wq.mu.Unlock()
	if w.gone {
		return false
	}
	w.got <- s
	return true
}

func (wq *waitQueue) removeLocked(w *waiter) {
	if w.place == nil {
		return
	}
	l := w.list
	l.waiters.Remove(w.place)
	w.place = nil
	if l.waiters.Len() > 0 {
		return
	}
	delete(wq.lists, l.key)
	for _, q := range l.queues {
		by := wq.indexLocked(q)
		if delete(by[q], l); len(by[q]) == 0 {
			delete(by, q)
		}
	}
}

// indexLocked returns the index that has a queue or a pattern.
func (wq *waitQueue) indexLocked(queue string) map[string]map[*waitlist]struct{} {
	if _, ok := machine.QueuePrefix(queue); ok {
		return wq.byPattern
	}
	return wq.byQueue
}

func (wq *waitQueue) readyLocked(l *waitlist) {
	if !l.ready {
		l.ready = true
		wq.ready = append(wq.ready, l)
		wq.wakeUp()
	}
}

func (wq *waitQueue) wakeUp() { wake.Up(wq.wake) }

// news receives a notification of the store, which sends one per commit.
func (wq *waitQueue) news(n store.News) {
	wq.mu.Lock()
	defer wq.mu.Unlock()
	if n.DueKnown {
		wq.due = wake.Earlier(wq.due, n.Due)
	} else {
		wq.stale = true
	}
	if len(n.Queues) > 0 {
		wq.counts.claimable++
		clear(wq.empty)
	}
	if len(n.Freed) > 0 {
		wq.counts.freed++
	}
	if len(wq.lists) == 0 {
		return
	}
	for _, q := range n.Queues {
		wq.listsOfLocked(q, wq.readyLocked)
	}
	for _, q := range n.Freed {
		wq.listsOfLocked(q, func(l *waitlist) {
			if !l.unlimited {
				wq.readyLocked(l)
			}
		})
	}
	wq.wakeUp() // the next due time may have changed
}

// listsOfLocked visits the waitlists for jobs of a queue.
func (wq *waitQueue) listsOfLocked(queue string, visit func(*waitlist)) {
	for l := range wq.byQueue[queue] {
		visit(l)
	}
	for pattern, lists := range wq.byPattern {
		if gq.MatchQueue(pattern, queue) {
			for l := range lists {
				visit(l)
			}
		}
	}
}
