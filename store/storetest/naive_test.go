package storetest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/machine"
	"github.com/gopherqueue/gq/store"
)

// naive is the simplest store that meets the contract: maps under one lock. It shows
// that the suite can be passed and, with a planted bug, that the suite detects the bug.
type naive struct {
	bug   bug
	habit habit
	cfg   store.Config

	mu     sync.Mutex
	data   *naiveData         // guarded by mu; outlives the handle
	closed bool               // guarded by mu
	told   []func(store.News) // guarded by mu
}

// habit is a choice that the contract leaves to a store.
type habit uint8

const (
	tellsInTheSameCommit habit = 1 << iota // dependents are updated in the commit that ends their dependency
	readsNow                               // reads show a job as time has changed it
	sweepsFirst                            // claims record everything that is due in their queues
)

type naiveData struct {
	jobs     map[gq.JobID]*naiveJob
	leases   map[gq.LeaseID]gq.JobID
	keys     map[gq.IdempotencyKey]naiveKey // key without fingerprint
	queues   map[string]gq.Queue
	deleted  map[string]bool // queues that are listed only while they have jobs
	pools    map[string]gq.Pool
	due      map[string]time.Time    // state of the rates, by queue
	owed     map[[2]string]time.Time // state of the rates of limit keys, by queue and key
	ownKeys  map[[2]string]gq.QueueKey
	turn     map[naiveTurn]uint64    // being served, by queue and level
	newest   map[naiveTurn]uint64    // newest turn of each key
	docs     map[[2]string]store.Doc // by kind and name
	version  uint64                  // of the newest document
	events   []gq.Event
	telling  []telling // dependents that have not been updated yet
	sequence uint64
	seq      uint64
	removed  uint64 // number of the newest collected event
	tokens   uint64
	last     time.Time // of the newest commit
}

type naiveJob struct {
	spec       gq.Spec
	state      gq.State
	metadata   gq.Metadata
	result     []byte
	checkpoint []byte
	waiting    []telling // its waiting dependents
}

type telling struct {
	child gq.JobID
	ended machine.EndedDependency
}

type naiveKey struct {
	job         gq.JobID
	fingerprint uint64
	while       gq.While
	until       time.Time
}

func naiveBackend(b bug, h habit) Backend {
	return Backend{
		Open: func(t testing.TB, cfg store.Config) store.Store {
			t.Helper()
			cfg, err := cfg.WithDefaults()
			if err != nil {
				t.Fatal(err)
			}
			return &naive{bug: b, habit: h, cfg: cfg, data: &naiveData{
				jobs: make(map[gq.JobID]*naiveJob), leases: make(map[gq.LeaseID]gq.JobID),
				keys: make(map[gq.IdempotencyKey]naiveKey), queues: make(map[string]gq.Queue), deleted: map[string]bool{},
				docs: make(map[[2]string]store.Doc), pools: make(map[string]gq.Pool), due: make(map[string]time.Time),
				owed: make(map[[2]string]time.Time), ownKeys: make(map[[2]string]gq.QueueKey),
				turn: make(map[naiveTurn]uint64), newest: make(map[naiveTurn]uint64),
			}}
		},
		Reopen: func(t testing.TB, s store.Store, _ store.Config) store.Store {
			t.Helper()
			n := s.(*naive)
			if err := n.Close(); err != nil {
				t.Fatal(err)
			}
			n.mu.Lock()
			defer n.mu.Unlock()
			return &naive{bug: b, habit: h, cfg: n.cfg, data: n.data.reopened(b)}
		},
	}
}

// reopened returns the data after a restart: all of it, except for bugs.
func (d *naiveData) reopened(b bug) *naiveData {
	switch b {
	case forgetsKeys:
		clear(d.keys)
	case forgetsQueues:
		for name := range d.queues {
			d.queues[name] = machine.NewQueue(name)
		}
	case forgetsDocs:
		clear(d.docs)
	case forgetsPools:
		for name := range d.pools {
			d.pools[name] = gq.Pool{Name: name, Capacity: gq.MaxCapacity}
		}
	case forgetsRates:
		clear(d.due)
	case forgetsOwed:
		clear(d.owed)
	case forgetsTurns:
		clear(d.turn)
	case forgetsTelling:
		d.telling = nil
	case forgetsTime:
		d.last = time.Time{}
	case forgetsVersions:
		for _, j := range d.jobs {
			j.state.Version = 0
		}
	case forgetsSequence:
		d.sequence = 0
		for _, j := range d.jobs {
			d.sequence = max(d.sequence, j.state.Sequence)
		}
	case forgetsEvents:
		d.events = nil
	case forgetsHeartbeat:
		for _, j := range d.jobs {
			if j.state.Lease != nil && j.state.Status.Held() {
				l := *j.state.Lease
				l.HeartbeatAt, l.ExpiresAt = l.GrantedAt, l.GrantedAt.Add(l.TTL)
				j.state.Lease = &l
			}
		}
	default:
	}
	return d
}

// begin takes the lock for one call at one instant. The caller unlocks unless there is
// an error.
func (n *naive) begin(ctx context.Context, write bool) (now time.Time, err error) {
	if err := ctx.Err(); err != nil {
		return now, err
	}
	n.mu.Lock()
	if n.closed && n.bug != worksClosed {
		n.mu.Unlock()
		return now, fmt.Errorf("naive: %w", gq.ErrClosed)
	}
	now = n.now()
	if write && n.data.last.Before(now) {
		n.data.last = now
	}
	return now, nil
}

func (n *naive) now() time.Time {
	now := n.cfg.Clock.Now()
	if now.Before(n.data.last) && n.bug != clockRunsBack {
		return n.data.last
	}
	return now
}

func (n *naive) Close() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closed && n.bug == closesOnce {
		return gq.ErrClosed
	}
	n.closed = true
	return nil
}

// Notify implements [store.Notifier]. Nothing stops it, and it tells of every change.
func (n *naive) Notify(_ bool, f func(store.News)) (stop func()) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.told = append(n.told, f)
	return func() {}
}

// announce reports a queue, and those that share its pool.
func (n *naive) announce(queue string) {
	news := store.News{Queues: []string{queue}, Event: n.data.seq}
	pool := n.data.queues[queue].Pool
	for name, q := range n.data.queues {
		if pool != "" && q.Pool == pool && n.bug != tellsOneQueue {
			news.Queues = append(news.Queues, name)
		}
	}
	for _, f := range n.told {
		f(news)
	}
}

// write stores the result of a verb, with its events.
func (n *naive) write(j *naiveJob, next gq.State, events []gq.Event, now time.Time) {
	n.announce(j.spec.Queue)
	before := j.state
	if before.Live() && next.Live() && before.ID == next.ID && before.Priority() != next.Priority() {
		next.Turn = n.turn(&j.spec, next.Priority())
	}
	j.state = next
	for i, v := range events {
		if n.bug == losesEvents && v.Type == gq.EventScheduled && i > 0 {
			continue
		}
		n.data.seq++
		v.Seq, v.Time, v.Queue, v.JobType = n.data.seq, now, j.spec.Queue, j.spec.Type
		if n.bug == ticksInside {
			v.Time = n.cfg.Clock.Now()
		}
		n.data.events = append(n.data.events, v)
		if v.Type == gq.EventCancelRequested && n.bug != tellsNoCancels {
			for _, f := range n.told {
				f(store.News{Cancels: []gq.JobID{v.Job}, Event: v.Seq, DueKnown: true})
			}
		}
		if last := len(n.data.events) - 1; n.bug == tellsInsertsEarly && i == 0 && before.ID.IsZero() && last > 0 {
			told := n.data.events[last-1:]
			told[0], told[1] = told[1], told[0]
			told[0].Seq, told[1].Seq = told[1].Seq, told[0].Seq
		}
	}
	if next.Lease != nil && (before.Lease == nil || before.Lease.ID != next.Lease.ID) {
		n.data.leases[next.Lease.ID] = next.ID
	}
	if before.Live() && !next.Live() {
		n.stepOut(j)
		for _, w := range j.waiting {
			w.ended.Status, w.ended.Priority = next.Status, next.Priority()
			n.data.telling = append(n.data.telling, w)
			if n.bug == tellsTwice {
				n.data.telling = append(n.data.telling, w)
			}
		}
		if n.bug == neverTells {
			n.data.telling = nil
		}
		if n.habit&tellsInTheSameCommit != 0 {
			n.tell(len(n.data.telling), now)
		}
	}
}

// tell updates up to limit dependents.
func (n *naive) tell(limit int, now time.Time) (told int) {
	for told < limit && len(n.data.telling) > 0 {
		w := n.data.telling[0]
		n.data.telling = n.data.telling[1:]
		told++
		child, ok := n.data.jobs[w.child]
		if !ok {
			continue
		}
		if n.bug == tellsSuccess {
			w.ended.Status = gq.StatusCompleted
		}
		if n.bug == tellsFirst && child.state.Waits > 1 {
			child.state.Waits = 1
		}
		next, events, _ := machine.DependencyEnded(child.state, w.ended, now)
		if n.bug == tellsOneGeneration && !next.Live() {
			child.waiting = nil
		}
		n.write(child, next, events, now)
	}
	return told
}

func (n *naive) ReleaseDependents(ctx context.Context, limit int) (int, error) {
	now, err := n.begin(ctx, true)
	if err != nil {
		return 0, err
	}
	defer n.mu.Unlock()
	return n.tell(max(limit, 1), now), nil
}

func (n *naive) Update(ctx context.Context, updates []store.Update) ([]store.Updated, error) {
	now, err := n.begin(ctx, true)
	if err != nil {
		return nil, err
	}
	defer n.mu.Unlock()
	if n.bug == staleClock {
		now = n.cfg.Clock.(*Clock).Now().Add(-time.Nanosecond)
	}
	answers := make([]store.Updated, len(updates))
	snapshot := make(map[gq.JobID]gq.State)
	for i, u := range updates {
		id := u.Job
		if id.IsZero() {
			var known bool
			if id, known = n.data.leases[u.Lease]; !known {
				answers[i].Err = fmt.Errorf("naive: lease %q: %w", u.Lease, gq.ErrStaleLease)
				continue
			}
		}
		j, ok := n.data.jobs[id]
		if !ok {
			answers[i].Err = fmt.Errorf("naive: job %s: %w", id, gq.ErrNotFound)
			continue
		}
		if err := u.Authorized(j.spec.Queue, &j.state); err != nil && n.bug != asksNobody {
			answers[i].Err = err
			continue
		}
		if n.bug == blindBatch {
			if s, ok := snapshot[id]; ok {
				j.state = s
			}
			snapshot[id] = j.state
		}
		answers[i] = n.apply(j, u, now)
	}
	return own(n, answers), nil
}

func (n *naive) apply(j *naiveJob, u store.Update, now time.Time) store.Updated {
	before := j.state
	kept := store.Update{Result: u.Result, Checkpoint: u.Checkpoint, Metadata: u.Metadata} // spawn checks the children
	if err := store.CheckUpdate(&kept, n.cfg.Limits, n.cfg.Retention); err != nil && n.bug != limitsNothing {
		return store.Updated{State: before, Err: err}
	}
	if n.bug == losesUpdates { // decides before it takes the lock for the write
		n.mu.Unlock()
		runtime.Gosched()
		n.mu.Lock()
	}
	next, events, err := u.Apply(before, now)
	if err == nil && next.ID != before.ID {
		err = errors.New("naive: the state of another job")
	}
	if err != nil && n.bug != ignoresRefusal {
		if n.bug == settlesAnyway && u.Settles && before.Status.Held() {
			next = before
			next.Status, next.Lease = gq.StatusScheduled, nil
			n.write(j, next, nil, now)
		}
		if n.bug == blobsFirst {
			n.blobs(j, u)
		}
		if n.bug == spawnsAnyway {
			_, _ = n.spawn(j, next, u.Spawn, now)
		}
		return store.Updated{State: before, Err: err}
	}
	if refused := n.start(j, next.Status, now); refused != nil && err == nil {
		return store.Updated{State: before, Err: fmt.Errorf("naive: %w", refused)}
	}
	changed := next != before || len(events) > 0
	if !changed && n.bug == spawnsAgain {
		_, _ = n.spawn(j, next, u.Spawn, now)
	}
	if !changed && n.bug != blobsAnyway && n.bug != ignoresRefusal {
		return store.Updated{State: next, Err: err}
	}
	placed, refused := n.spawn(j, next, u.Spawn, now)
	if refused != nil && n.bug != orphanless {
		return store.Updated{State: before, Err: refused}
	}
	if n.bug == heartbeatsAreEvents && len(events) == 0 && changed {
		events = []gq.Event{{Job: next.ID, Type: gq.EventUpdated, Status: next.Status, Attempt: next.Attempt}}
	}
	if n.bug == forgetsHeartbeats && len(events) == 0 && next.Lease != nil && before.Lease != nil {
		next.Lease = before.Lease
	}
	n.write(j, next, events, now)
	n.blobs(j, u)
	return store.Updated{State: j.state, Changed: changed, Spawned: placed, Err: cmp.Or(err, refused)}
}

func (n *naive) blobs(j *naiveJob, u store.Update) {
	if u.Metadata != nil {
		j.metadata = *u.Metadata
	}
	if u.Result != nil && n.bug != losesResult {
		j.result = slices.Clone(u.Result)
	}
	if u.Checkpoint != nil || n.bug == dropsCheckpoint {
		j.checkpoint = slices.Clone(u.Checkpoint)
	}
}
