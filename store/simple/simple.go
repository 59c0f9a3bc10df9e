// Package simple is the simplest store that meets the contract, for tests. It keeps everything in the
// memory of the process, as maps and sorted lists under one lock, and depends on nothing outside
// this module, so that a test that uses it links no database. Closing it loses everything.
//
// It is written to be read: a commit costs what its sorted lists cost, which is little for
// thousands of jobs and too much for millions. What the URL memory: opens is the store of package
// local, which is fast, on a file system in memory.
package simple

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/internal/wake"
	"github.com/gopherqueue/gq/machine"
	"github.com/gopherqueue/gq/store"
)

// Store implements [store.Store], [store.Changer], [store.Purger] and [store.Notifier]. Make
// one with [Open].
type Store struct {
	config store.Config
	rules  rules

	mu     sync.Mutex // guards everything below
	closed bool
	last   time.Time // of the newest call; time never runs backwards
	random *rand.Rand

	jobs       map[gq.JobID]*job
	submitted  ordered[*job] // all jobs by sequence number
	waiting    map[string]*ordered[candidate]
	held       map[*job]bool  // claimed or running
	timers     ordered[timer] // live jobs by when time changes them
	ended      ordered[timer] // finished jobs by the end of their retention
	counts     map[string]*gq.Count
	leases     map[gq.LeaseID]*job
	keys       map[gq.IdempotencyKey]keyUse // by key without its fingerprint
	tails      map[gq.IdempotencyKey]*job   // last submitted job by [store.OrderKeyOf]
	dependents []dependent                  // not told yet that a dependency has ended
	sequence   uint64                       // of the newest job
	granted    uint64                       // leases so far

	queues  map[string]gq.Queue
	deleted map[string]bool // queues that are listed only while they have jobs
	pools   map[string]gq.Pool
	rates   map[string]time.Time // when the next claim is due under a queue's rate
	ownKeys map[limitKey]gq.QueueKey
	owed    map[limitKey]time.Time // when the next claim is due under a key's rate
	served  map[turnKey]uint64     // turn being served, by queue and priority
	newest  map[turnKey]uint64     // newest turn, by queue, priority and fair key

	docs    map[docKey]store.Doc
	version uint64 // of the newest document

	events   []gq.Event
	eventSeq uint64   // of the newest event
	gone     uint64   // the newest event that is no longer kept
	purged   []purged // jobs whose events are still kept

	listeners map[*listener]bool
	news      store.News // of the call under way
}

// job is a job with everything that belongs to it.
type job struct {
	spec       gq.Spec
	state      gq.State
	metadata   gq.Metadata
	result     []byte
	checkpoint []byte
	events     []gq.Event
	leases     []gq.LeaseID
	dependents []dependent // that wait for it
	ahead      *job        // of its order key, while it waits for that one
}

// dependent is a job that waits for another one.
type dependent struct {
	id    gq.JobID
	ended machine.EndedDependency
}

// keyUse is the use of an idempotency key.
type keyUse struct {
	job         *job
	fingerprint uint64
	while       gq.While
	until       time.Time
}

// candidate is a job that is not held, with its place in the queue's order.
type candidate struct {
	order machine.OrderKey
	job   *job
}

func (c candidate) compare(o candidate) int {
	return cmp.Or(cmp.Compare(c.order.Hi, o.order.Hi), cmp.Compare(c.order.Lo, o.order.Lo),
		slices.Compare(c.job.spec.ID[:], o.job.spec.ID[:]))
}

// timer is an instant at which a job changes or goes.
type timer struct {
	at  time.Time
	job *job
}

func (t timer) compare(o timer) int { return cmp.Or(t.at.Compare(o.at), bySequence(t.job, o.job)) }

func bySequence(a, b *job) int { return cmp.Compare(a.state.Sequence, b.state.Sequence) }

// listener is a subscriber of [Store.Notify].
type listener struct{ f func(store.News) }

// rules are the decisions that a store does not make itself. Every store has [theRules]; a test that
// wants to know whether the contract's suite notices a mistake puts another one in their place.
type rules struct {
	collide   func(machine.KeyHolder, *gq.Spec, time.Time) machine.Collision
	followers func(replaced *gq.State, followers, depth int, waiting gq.JobID) error
	submit    func(machine.Submission, time.Time) (gq.State, []gq.Event)
	claimable func(*gq.State, time.Time) bool
	selects   func(store.Filter, *gq.Spec) bool
	order     func(*gq.State) machine.OrderKey
	ask       func(*limits, *job) verdict
	occupies  func(gq.Pool, gq.Status) bool
	claim     func(gq.State, machine.Grant, time.Time) (gq.State, []gq.Event, error)
	late      func([]store.Claimed, func(*gq.Lease) time.Time) []store.Update
	due       func(*gq.State) time.Time
	kept      func(store.Retention, *gq.State) time.Duration
	show      func(gq.State, time.Time) gq.State
}

func theRules() rules {
	return rules{
		collide: machine.Collide, followers: machine.CheckFollowers, submit: machine.Submit,
		claimable: machine.Claimable, selects: store.Filter.Selects, order: machine.Order, ask: (*limits).ask,
		occupies: machine.CountsInPool, claim: machine.Claim, late: store.Late,
		due: machine.Due, kept: store.Retention.For, show: gq.State.At,
	}
}

// wallClock is the clock of a store that is opened without one.
type wallClock struct{}

func (wallClock) Now() time.Time { return time.Now() }

// Open returns a new, empty store. It reports every fault of the configuration as
// [gq.ErrInvalid].
func Open(c store.Config) (*Store, error) {
	c, err := c.WithDefaults()
	if err != nil {
		return nil, fmt.Errorf("open store: %w", err)
	}
	if c.Clock == nil {
		c.Clock = wallClock{}
	}
	return &Store{
		config: c, rules: theRules(), random: rand.New(rand.NewPCG(1, 2)), // the same delays in every run of a test
		jobs: make(map[gq.JobID]*job), submitted: ordered[*job]{compare: bySequence},
		waiting: make(map[string]*ordered[candidate]), held: make(map[*job]bool),
		timers: ordered[timer]{compare: timer.compare}, ended: ordered[timer]{compare: timer.compare},
		counts: make(map[string]*gq.Count), leases: make(map[gq.LeaseID]*job), keys: make(map[gq.IdempotencyKey]keyUse), tails: make(map[gq.IdempotencyKey]*job),
		queues: make(map[string]gq.Queue), deleted: make(map[string]bool), pools: make(map[string]gq.Pool), rates: make(map[string]time.Time),
		ownKeys: make(map[limitKey]gq.QueueKey), owed: make(map[limitKey]time.Time),
		served: make(map[turnKey]uint64), newest: make(map[turnKey]uint64), docs: make(map[docKey]store.Doc),
		listeners: make(map[*listener]bool),
	}, nil
}

// Config implements [store.Store].
func (s *Store) Config() store.Config { return s.config }

// Ephemeral reports that closing the store loses its data.
func (s *Store) Ephemeral() bool { return true }

// Close implements [store.Store].
func (s *Store) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	clear(s.listeners)
	return nil
}

// begin locks the store for one call and returns its time. Without an error the caller must
// call end.
func (s *Store) begin(ctx context.Context) (now time.Time, err error) {
	if ctx.Err() != nil {
		return now, context.Cause(ctx)
	}
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return now, fmt.Errorf("store in memory: %w", gq.ErrClosed)
	}
	return s.nowLocked(), nil
}

func (s *Store) nowLocked() time.Time {
	if now := s.config.Clock.Now(); now.After(s.last) {
		s.last = now
	}
	return s.last
}

// end notifies listeners of what the call has changed and unlocks the store.
func (s *Store) end() {
	defer s.mu.Unlock()
	news := s.news
	s.news = store.News{}
	if len(news.Queues) == 0 && news.Due.IsZero() {
		return
	}
	news.Event, news.DueKnown = s.eventSeq, true
	news.Dependents = len(s.dependents) > 0
	s.tellLocked(news)
}

// Announce implements [store.Announcer].
func (s *Store) Announce(due time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tellLocked(store.News{Event: s.eventSeq, Due: due, DueKnown: true})
}

func (s *Store) tellLocked(news store.News) {
	for l := range s.listeners {
		own := news
		own.Queues = slices.Clone(news.Queues)
		l.f(own)
	}
}

// changed notes that a queue changed, and with it those that share its pool.
func (s *Store) changed(queue string) {
	note := func(name string) {
		if !slices.Contains(s.news.Queues, name) {
			s.news.Queues = append(s.news.Queues, name)
		}
	}
	note(queue)
	if pool := s.queues[queue].Pool; pool != "" {
		for name, q := range s.queues {
			if q.Pool == pool {
				note(name)
			}
		}
	}
}

// Notify implements [store.Notifier].
func (s *Store) Notify(_ bool, f func(store.News)) (stop func()) {
	l := &listener{f}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.closed {
		s.listeners[l] = true
	}
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.listeners, l)
	}
}

// Now implements [store.Timekeeper].
func (s *Store) Now(ctx context.Context) (time.Time, error) {
	now, err := s.begin(ctx)
	if err != nil {
		return now, err
	}
	defer s.end()
	return now, nil
}

// draw returns the random input of a retry delay.
func (s *Store) draw() machine.Draw { return s.config.Draw(s.random.Float64()) }

// dueAt notes when time alone changes a job that this call wrote.
func (s *Store) dueAt(t time.Time) { s.news.Due = wake.Earlier(s.news.Due, t) }
