package storetest

import (
	"cmp"
	"slices"
	"sync"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/store"
)

// The cases below test the optional [store.Notifier]. They end at once if the store does
// not implement it. Superfluous notifications are allowed.
var notifyCases = []Case{
	{
		Name:   "Notify/Claimable",
		Clause: "there is news of a queue where a job has become claimable: submitted, given back, to be retried, released by what it waited for",
		run:    notifyClaimable,
	},
	{
		Name:   "Notify/Room",
		Clause: "there is news of a queue where there is room again: a job has ended, a limit was raised, it goes on after a pause, or its pool has room because of another queue",
		run:    notifyRoom,
	},
	{
		Name:   "Notify/Due",
		Clause: "news that says when something is due names no instant after the first at which time changes a job of its commits",
		run:    notifyDue,
	},
	{
		Name:   "Notify/Cancels",
		Clause: "there is news of every running job that is asked to stop, and of no other",
		run:    notifyCancels,
	},
}

// newsOf collects a store's notifications.
type newsOf struct {
	*env
	more    chan struct{} // has room for one
	mu      sync.Mutex
	asked   bool       // guarded by mu; some news leaves it to the listener to ask
	cancels []gq.JobID // guarded by mu
	queues  []string   // guarded by mu
	due     time.Time  // guarded by mu; the earliest that was told
}

// listen starts to collect; it returns nil if the store sends no notifications.
func (e *env) listen() *newsOf {
	n, ok := e.store().(store.Notifier)
	if !ok {
		return nil
	}
	w := &newsOf{env: e, more: make(chan struct{}, 1)}
	e.Cleanup(n.Notify(false, func(news store.News) {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.queues = slices.Concat(w.queues, news.Queues, news.Freed)
		w.asked = w.asked || !news.DueKnown
		w.cancels = append(w.cancels, news.Cancels...)
		if !news.Due.IsZero() && (w.due.IsZero() || news.Due.Before(w.due)) {
			w.due = news.Due
		}
		select {
		case w.more <- struct{}{}:
		default:
		}
	}))
	return w
}

// hears fails unless do leads to news of the queue.
func (w *newsOf) hears(queue, after string, do func()) {
	w.Helper()
	w.mu.Lock()
	w.queues = nil
	w.mu.Unlock()
	do()
	for limit := time.After(cmp.Or(w.backend.Patience, 2*time.Minute)); ; {
		w.mu.Lock()
		told := slices.Contains(w.queues, queue)
		w.mu.Unlock()
		if told {
			return
		}
		select {
		case <-w.more:
		case <-limit:
			w.Fatalf("there was no news of queue %s after %s", queue, after)
		}
	}
}

func notifyClaimable(e *env) {
	w := e.listen()
	if w == nil {
		return
	}
	w.hears("a", "a submission", func() { e.add(inQueue("a")) })
	j := e.one(from("a"))
	w.hears("a", "a release", func() { e.update(j.State.ID, releasing(j.State.Lease.Ref(), 0, "")) })
	j = e.one(from("a"))
	w.hears("a", "a failure that is retried", func() { e.fail(j, temporary) })
	parent := e.add(inQueue("b"))
	e.each(e.spec(inQueue("c"), depends(gq.DependencyAfter, parent.ID)))
	w.hears("c", "the end of what its job waited for", func() {
		e.complete(e.one(from("b")))
		e.release()
	})
}

func notifyRoom(e *env) {
	w := e.listen()
	if w == nil {
		return
	}
	single := func(q *gq.Queue) { q.MaxRunning = 1 }
	e.put("a", single)
	e.add(inQueue("a"))
	e.add(inQueue("a"))
	j := e.one(from("a"))
	e.none("while the queue has no room", from("a"))
	w.hears("a", "the end of a job", func() { e.complete(j) })
	e.one(from("a"))
	w.hears("a", "a higher limit", func() { e.put("a", func(q *gq.Queue) { q.MaxRunning = 2 }) })

	e.put("b", func(q *gq.Queue) { q.Paused = true })
	e.add(inQueue("b"))
	w.hears("b", "the end of a pause", func() { e.put("b", func(*gq.Queue) {}) })

	e.putPool("p", 1)
	for _, name := range []string{"c", "d"} {
		e.put(name, func(q *gq.Queue) { q.Pool = "p" })
		e.add(inQueue(name), costing(1))
	}
	j = e.one(from("c"))
	e.none("while the pool has no room", from("d"))
	w.hears("d", "the end of a job of another queue of its pool", func() { e.complete(j) })
	e.one(from("d"))
	w.hears("c", "a higher capacity", func() { e.putPool("p", 2) })
	w.hears("c", "another queue has left its pool", func() { e.put("d", func(*gq.Queue) {}) })
}

func notifyDue(e *env) {
	w := e.listen()
	if w == nil {
		return
	}
	dueBy := func(after string, at time.Time) {
		e.Helper()
		w.mu.Lock()
		defer w.mu.Unlock()
		if !w.asked && (w.due.IsZero() || w.due.After(at)) {
			e.Errorf("the news after %s says %v, and something is due at %v", after, w.due, at)
		}
		w.due, w.asked = time.Time{}, false
	}
	kept := e.each(e.spec(inQueue("k"), keepFor(10*time.Minute)), e.spec(inQueue("k"), keepFor(20*time.Minute)))
	w.hears("k", "the end of two jobs", func() { // in one commit
		for _, u := range e.tryUpdate(cancelled(kept[0].ID), cancelled(kept[1].ID)) {
			e.check("cancel", u.Err)
		}
	})
	dueBy("the end of two jobs with retentions of their own", e.now().Add(10*time.Minute))
	w.hears("a", "a delayed submission", func() { e.add(inQueue("a"), delayed(time.Hour)) })
	dueBy("a delayed submission", e.now().Add(time.Hour))
	w.hears("a", "a submission", func() { e.add(inQueue("a")) })
	dueBy("a submission", e.now().Add(7*24*time.Hour)) // its lifetime
	j := e.one(from("a"), lasting(10*time.Minute))
	w.hears("b", "a submission", func() { e.add(inQueue("b")) }) // comes after the news of the claim
	dueBy("a claim", e.now().Add(10*time.Minute))
	var again gq.State
	w.hears("a", "a failure that is retried", func() { again = e.fail(j, temporary) })
	dueBy("a failure that is retried", again.RunAt)
}

func notifyCancels(e *env) {
	w := e.listen()
	if w == nil {
		return
	}
	states := e.insert(e.specs(7)...)
	running := e.one()
	e.cancel(states[6].ID) // it waits
	e.cancel(running.State.ID)
	e.complete(e.one())
	last := e.one()
	e.cancel(last.State.ID)
	e.cancel(last.State.ID) // a second request changes nothing
	two := idsOf(e.claim(2))
	for _, u := range e.tryUpdate(cancelled(two[0]), cancelled(two[1])) { // in one commit
		e.check("cancel", u.Err)
	}
	w.hears("b", "a submission", func() { e.add(inQueue("b")) }) // comes after all of them
	w.mu.Lock()
	defer w.mu.Unlock()
	e.equal("the jobs that are asked to stop", w.cancels, []gq.JobID{running.State.ID, last.State.ID, two[0], two[1]})
}
