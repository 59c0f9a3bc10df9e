package postgres

import (
	"context"
	"maps"
	"math/rand/v2"
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
	queues    map[string]bool          // guarded by mu; where something may have become claimable since the last round
	sharing   map[string]*[]string     // guarded by mu; the queues of a queue's pool, as far as this node has claimed from one
	listeners map[int]func(store.News) // guarded by mu
	next      int                      // guarded by mu; key of the next listener
	listening bool                     // guarded by mu; there is a goroutine for notifications
	last      int64                    // guarded by mu; number of the newest event known
	polled    int64                    // guarded by mu; up to which poll has told; others' events may have got their numbers here
}

const (
	// notifierPause is the least time between two rounds. Where a round takes long,
	// because everything does, the pause is notifierShare times as long, up to
	// notifierPauseMost, so that the work itself has most of the database.
	notifierPause     = 10 * time.Millisecond
	notifierShare     = 4
	notifierPauseMost = 100 * time.Millisecond
	// notifierWithin is how long a round may take.
	notifierWithin = 10 * time.Second
)

func (h *notifier) start(s *Store) {
	h.s, h.node = s, nodeName()
	h.wake, h.quit = make(chan struct{}, 1), make(chan struct{})
	h.queues, h.sharing, h.listeners = make(map[string]bool), make(map[string]*[]string), make(map[int]func(store.News))
	h.all.Go(h.serve)
}

func (h *notifier) stop() {
	close(h.quit)
	h.all.Wait()
}

// tell takes down where a commit may have made something claimable, and whether it
// has events. Whoever asked in this process hears of the queues at once, and of the
// events when they have numbers.
func (h *notifier) tell(queues map[string]bool, events bool) {
	if len(queues) == 0 && !events {
		return
	}
	h.mu.Lock()
	maps.Copy(h.queues, queues)
	if len(queues) > 0 {
		h.spreadLocked(store.News{Queues: names(queues), Event: uint64(h.last)})
	}
	h.mu.Unlock()
	wake.Up(h.wake)
}

func (h *notifier) serve() {
	for {
		select {
		case <-h.wake:
		case <-h.quit:
			return
		}
		began := time.Now()
		h.round()
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

// round numbers the events of the commits since the last one and tells of them.
// What goes wrong here is made up for by whoever reads events next.
func (h *notifier) round() {
	h.mu.Lock()
	queues := names(h.queues)
	clear(h.queues)
	last := h.last
	h.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), notifierWithin)
	defer cancel()
	if n, err := h.s.number(ctx); err == nil {
		last = n
	}
	h.spread(store.News{Event: uint64(last)})
	h.notify(ctx, queues, last)
	_ = h.s.raise(ctx, h.s.floors.ripe(int(h.s.floors.every.Load()))) // or the next time; claims walk further until then
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
	for _, queue := range news.Queues { // what one queue of a pool leaves, the others can have
		if pool := h.sharing[queue]; pool != nil {
			pools[pool] = true
		}
	}
	for pool := range pools {
		news.Queues = append(news.Queues, *pool...)
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
func (s *Store) Notify(f func(store.News)) (stop func()) {
	h := &s.notifier
	h.mu.Lock()
	defer h.mu.Unlock()
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
		delete(h.listeners, key)
	}
}

// jitter keeps nodes from asking at the same moments.
func jitter(d time.Duration) time.Duration {
	return d + time.Duration((rand.Float64()-0.5)*float64(d)/2)
}
