package postgres

import (
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/internal/wake"
	"github.com/gopherqueue/gq/store"
)

var (
	_ store.Notifier = (*Store)(nil)
	_ store.Relay    = (*Store)(nil)
)

// notifier follows the commits of its store: it numbers their events, tells the listeners
// in this process, and notifies the other nodes. It works in rounds, so that all commits
// made during one round share one notification.
type notifier struct {
	s    *Store
	node string // by which it recognizes its own notifications

	wake chan struct{}  // holds one
	quit chan struct{}  // closed by stop
	all  sync.WaitGroup // its goroutines

	mu        sync.Mutex
	changes   effects                  // guarded by mu; since the last round
	sharing   map[string]*[]string     // guarded by mu; by queue, the queues of its pool, if this node has claimed from one of them
	listeners map[int]func(store.News) // guarded by mu
	next      int                      // guarded by mu; key of the next listener
	followers int                      // guarded by mu; listeners that want events promptly
	listening bool                     // guarded by mu; there is a goroutine for notifications
	joined    time.Time                // guarded by mu; since when it receives notifications
	met       time.Time                // guarded by mu; when another node sent the last one
	last      int64                    // guarded by mu; number of the newest event known
	polled    int64                    // guarded by mu; poll has told of events up to here; last may be greater if this node numbered other nodes' events
}

// effects is what one or more commits may have changed for claims.
type effects struct {
	opened  map[string]bool // queues where jobs may have become claimable, or a limit has changed
	freed   map[string]bool // queues where a job has ended
	parent  bool            // a job has ended for which others wait
	cancels []gq.JobID      // running jobs that are asked to stop
	due     int64           // no later than the first instant at which time changes a written job; 0 for none
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

// at records an instant at which time changes a job; 0 means never.
func (c *effects) at(due int64) {
	if c.due == 0 || due != 0 && due < c.due {
		c.due = due
	}
}

func (c *effects) add(o *effects) {
	c.open(names(o.opened)...)
	c.free(names(o.freed)...)
	c.at(o.due)
	c.parent = c.parent || o.parent
	c.cancels = append(c.cancels, o.cancels...)
}

func (c *effects) none() bool {
	return len(c.opened) == 0 && len(c.freed) == 0 && c.due == 0 && !c.parent && len(c.cancels) == 0
}

// soon reports whether something is due before other nodes look by themselves. They must know it
// in case this node is gone by then.
func (c *effects) soon() bool {
	return c.due != 0 && instant(c.due).Before(time.Now().Add(dueSoon))
}

func (c *effects) news(last int64) store.News {
	n := store.News{Queues: names(c.opened), Freed: names(c.freed), Event: uint64(last), Dependents: c.parent, Cancels: c.cancels, DueKnown: true}
	if c.due != 0 {
		n.Due = instant(c.due)
	}
	return n
}

const (
	// notifierPause is the shortest pause between two rounds. After a slow round on a
	// busy database the pause is notifierShare times as long as the round, up to
	// notifierPauseMost, so that most of the database's capacity is left for jobs.
	notifierPause     = 10 * time.Millisecond
	notifierShare     = 4
	notifierPauseMost = 100 * time.Millisecond
	// numberLate is how long events may stay without numbers while no listener follows
	// them. A call that reads events numbers them first.
	numberLate = 500 * time.Millisecond
	// foldQuiet is how long after the last commit the counts that it left are folded.
	foldQuiet = 200 * time.Millisecond
	// dueSoon is more than the time after which engines look at the store without news.
	dueSoon = 2 * time.Minute
	// notifierWithin is the time limit of a round.
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

// tell records the effects of a commit, and whether it has events. It passes the effects
// on to listeners in this process at once, and events once they have numbers.
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
	late := time.NewTimer(0) // for events that no listener waits for
	defer late.Stop()
	quiet := time.NewTimer(foldQuiet) // for counts that nothing else folds
	defer quiet.Stop()
	for numbered := time.Now(); ; {
		select {
		case <-h.wake:
			quiet.Reset(foldQuiet)
		case <-late.C:
		case <-quiet.C:
			h.fold()
			continue
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

// fold folds the counts that are left after a burst, so that reads of counts do not go through
// up to foldStep of them until the next burst.
func (h *notifier) fold() {
	if h.s.appended.Load() < foldLeft {
		return
	}
	h.s.appended.Store(0)
	ctx, cancel := context.WithTimeout(context.Background(), notifierWithin)
	defer cancel()
	_ = h.s.transact(ctx, h.s.begins.write, func(tx *txn) error { // if it fails, reads cost more until the next burst
		return tx.fold(ctx, foldLeft)
	})
}

// pause waits. It returns false if the store is closed meanwhile.
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

// round passes on the commits since the last round. It numbers their events if a listener
// waits for them or must is true, and reports whether it tried. If numbering fails, the
// next call that reads events does it.
func (h *notifier) round(must bool) (numbered bool) {
	h.mu.Lock()
	changed := h.changes
	h.changes = effects{}
	last := h.last
	must = must || h.followers > 0
	alone := h.aloneLocked()
	h.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), notifierWithin)
	defer cancel()
	if must {
		if n, err := h.s.number(ctx); err == nil {
			last = n
		}
		h.spread(store.News{Event: uint64(last), DueKnown: true})
	}
	if !alone && (must || len(changed.opened)+len(changed.freed)+len(changed.cancels) > 0 || changed.soon()) {
		h.notify(ctx, &changed, last, !must)
	}
	_ = h.s.raise(ctx, h.s.floors.ripe(int(h.s.floors.every.Load()))) // if it fails, claims read more of the index until the next round
	return must
}

// spread calls the listeners of this process.
func (h *notifier) spread(news store.News) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.spreadLocked(news)
}

func (h *notifier) spreadLocked(news store.News) {
	h.last = max(h.last, int64(news.Event))
	pools := make(map[*[]string]bool)
	for _, queue := range slices.Concat(news.Queues, news.Freed) { // capacity freed in one queue is free for all queues of its pool
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

// learn records queues that share a pool. A caller that waits for capacity has tried to
// claim, so this node knows the queues that may free some.
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
	case <-h.quit: // the store is closed; f is never called
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

// Announce implements [store.Announcer].
func (s *Store) Announce(due time.Time) {
	s.notifier.tell(&effects{due: nanoseconds(due)}, false)
}

// jitter changes d by up to a quarter, so that nodes do not poll at the same moments.
func jitter(d time.Duration) time.Duration {
	return d + time.Duration((rand.Float64()-0.5)*float64(d)/2)
}
