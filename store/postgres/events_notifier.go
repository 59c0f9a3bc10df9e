package postgres

import (
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/gopherqueue/gq/internal/wake"
	"github.com/gopherqueue/gq/store"
)

var _ store.Notifier = (*Store)(nil)

// notifier follows the commits of its store: it has their events numbered, tells
// whoever asked in this process, and sends word to the other nodes. While it is
// at it the next commits gather, so that there is at most one notification for
// many of them.
type notifier struct {
	s    *Store
	node string // tells its own notifications from others

	wake chan struct{}  // holds one
	quit chan struct{}  // closed by stop
	all  sync.WaitGroup // its goroutines

	mu        sync.Mutex
	changes   effects                  // guarded by mu; since the last round
	sharing   map[string]*[]string     // guarded by mu; the queues of a queue's pool, as far as this node has claimed from one
	listeners map[int]func(store.News) // guarded by mu
	next      int                      // guarded by mu; key of the next listener
	followers int                      // guarded by mu; listeners that want events promptly
	listening bool                     // guarded by mu; there is a goroutine for notifications
	last      int64                    // guarded by mu; number of the newest event known
	polled    int64                    // guarded by mu; up to which poll has told; others' events may have got their numbers here
}

// effects are what a commit, or several, may have changed for claims.
type effects struct {
	opened map[string]bool // queues where jobs may have become claimable, or a limit has changed
	freed  map[string]bool // queues where a job has ended
	due    int64           // the earliest instant at which time changes a job that was written, or one before; 0 if there is none
}

func (c *effects) open(queues ...string) { note(&c.opened, queues) }
func (c *effects) free(queues ...string) { note(&c.freed, queues) }

func note(in *map[string]bool, queues []string) {
	if *in == nil && len(queues) > 0 {
		*in = make(map[string]bool)
	}
	for _, queue := range queues {
		(*in)[queue] = true
	}
}

// at records when time changes a job; 0 is never.
func (c *effects) at(due int64) {
	if c.due == 0 || due != 0 && due < c.due {
		c.due = due
	}
}

func (c *effects) add(o *effects) {
	c.open(names(o.opened)...)
	c.free(names(o.freed)...)
	c.at(o.due)
}

func (c *effects) none() bool { return len(c.opened) == 0 && len(c.freed) == 0 && c.due == 0 }

func (c *effects) news(last int64) store.News {
	n := store.News{Queues: names(c.opened), Freed: names(c.freed), Event: uint64(last), DueKnown: true}
	if c.due != 0 {
		n.Due = instant(c.due)
	}
	return n
}

const (
	// notifierPause is the least time between two rounds. Where a round takes long,
	// because everything does, the pause is notifierShare times as long, up to
	// notifierPauseMost, so that the work itself has most of the database.
	notifierPause     = 10 * time.Millisecond
	notifierShare     = 4
	notifierPauseMost = 100 * time.Millisecond
	// numberLate is how long events may wait for their numbers while nobody follows them.
	// A call that reads events numbers them first.
	numberLate = 500 * time.Millisecond
	// notifierWithin is how long a round may take.
	notifierWithin = 10 * time.Second
)

func (h *notifier) start(s *Store) {
	h.s, h.node = s, nodeName()
	h.wake, h.quit = make(chan struct{}, 1), make(chan struct{})
	h.sharing, h.listeners = make(map[string]*[]string), make(map[int]func(store.News))
	h.all.Go(h.serve)
}

func (h *notifier) stop() {
	close(h.quit)
	h.all.Wait()
}

// tell takes the changes of a commit, and whether it has events. Listeners in this
// process hear of the changes at once, and of the events when they have numbers.
func (h *notifier) tell(c *effects, events bool) {
	if c.none() && !events {
		return
	}
	h.mu.Lock()
	h.changes.add(c)
	if !c.none() {
		h.spreadLocked(c.news(h.last))
	}
	h.mu.Unlock()
	wake.Up(h.wake)
}

func (h *notifier) serve() {
	late := time.NewTimer(0) // for events that nobody waits for
	defer late.Stop()
	for numbered := time.Now(); ; {
		select {
		case <-h.wake:
		case <-late.C:
		case <-h.quit:
			return
		}
		began := time.Now()
		if h.round(began.Sub(numbered) >= numberLate) {
			numbered = began
			late.Stop()
		} else {
			late.Reset(time.Until(numbered.Add(numberLate)))
		}
		if !h.pause(min(max(notifierPause, notifierShare*time.Since(began)), notifierPauseMost)) {
			return
		}
	}
}

// pause waits, unless the store is closed.
func (h *notifier) pause(d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-h.quit:
		return false
	}
}

// round tells of the commits since the last one. It numbers their events if a listener
// waits for them or it must, and reports whether it did. What goes wrong here is made up
// for by whoever reads events next.
func (h *notifier) round(must bool) (numbered bool) {
	h.mu.Lock()
	changed := h.changes
	h.changes = effects{}
	last := h.last
	must = must || h.followers > 0
	h.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), notifierWithin)
	defer cancel()
	if must {
		if n, err := h.s.number(ctx); err == nil {
			last = n
		}
		h.spread(store.News{Event: uint64(last), DueKnown: true})
	}
	if must || len(changed.opened) > 0 || len(changed.freed) > 0 {
		h.notify(ctx, &changed, last, !must)
	}
	_ = h.s.raise(ctx, h.s.floors.ripe(int(h.s.floors.every.Load()))) // or the next time; claims walk further until then
	return must
}

// spread tells the listeners of this process.
func (h *notifier) spread(news store.News) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.spreadLocked(news)
}

func (h *notifier) spreadLocked(news store.News) {
	h.last = max(h.last, int64(news.Event))
	pools := make(map[*[]string]bool)
	for _, queue := range slices.Concat(news.Queues, news.Freed) { // room that one queue of a pool leaves is for all of them
		if pool := h.sharing[queue]; pool != nil {
			pools[pool] = true
		}
	}
	for pool := range pools {
		news.Freed = append(news.Freed, *pool...)
	}
	for _, f := range h.listeners {
		f(news)
	}
}

// learn notes queues that share pools. Whoever waits for room has tried to claim, so
// that this node knows of the queues that may leave it some.
func (h *notifier) learn(sharing []string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, queue := range sharing {
		h.sharing[queue] = &sharing
	}
}

// Notify implements [store.Notifier].
func (s *Store) Notify(events bool, f func(store.News)) (stop func()) {
	h := &s.notifier
	h.mu.Lock()
	defer h.mu.Unlock()
	if events {
		h.followers++
		wake.Up(h.wake)
	}
	h.next++
	key := h.next
	h.listeners[key] = f
	select {
	case <-h.quit: // closed; nothing will be told
	default:
		if !h.listening {
			h.listening = true
			h.all.Go(h.listen)
		}
	}
	return func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		if _, there := h.listeners[key]; there && events {
			h.followers--
		}
		delete(h.listeners, key)
	}
}

// jitter keeps nodes from asking at the same moments.
func jitter(d time.Duration) time.Duration {
	return d + time.Duration((rand.Float64()-0.5)*float64(d)/2)
}
