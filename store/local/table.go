package local

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/internal/enum"
	"github.com/gopherqueue/gq/machine"
)

// table is the store in memory: what scheduling needs of every live job, and the number
// of finished ones. It is guarded by Store.mu; only the writer changes it.
type table struct {
	jobs     ids                 // live, and ended in a commit that is not durable yet
	foreign  map[gq.LeaseID]*job // held jobs whose lease id was not made here
	queues   map[string]*queue
	numbers  []*queue                 // by queue number; 0 is none
	names    atomic.Pointer[[]string] // queue names by number, for readers without the lock
	buckets  map[uint32]*bucket
	pools    map[string]*pool
	toRun    timers    // delayed and retrying jobs, by when they may run
	toDue    timers    // jobs that time changes in another way, by when
	promoted []timer   // claimable since that instant, but not yet recorded
	owing    keyTimers // limit keys that owe units of their rate, by until when

	waiting  []*waiting        // see there
	kids     map[uint64][]edge // waiting dependents of live or ended parents, by parent
	ahead    map[uint64]uint64 // by job that waits because of its order key: the job that it waits for
	ended    []ending          // parents whose dependents have yet to be updated
	policies map[gq.Policy]*gq.Policy
	presets  []gq.Policy // shared, by preset number
	policy   *gq.Policy  // the last one interned
	shared   [16]*record // the last ones that were shared, by bucket
	folds    folds

	first       gq.State // decoded from firstRecord
	firstRecord *record
	readRandom  func(*pack) []uint64 // from disk

	ready      int64  // claimable jobs
	lastJob    uint64 // the newest job's sequence number
	lastEvent  uint64
	lastBucket uint32

	bounds bounds // of finished jobs, for List
}

// job is a live job. A waiting job keeps its state encoded and shares it with others. The
// state is decoded while the job is held and after it has ended.
//
// A job that has ended stays in the table until its commit is durable.
type job struct {
	id     gq.JobID
	seq    uint64
	record *record // while open is set only its pack counts, and it may be nil
	open   *opened
	bucket *bucket
	limit  *limitKey        // nil is no limit
	key    machine.OrderKey // place in the bucket while ready
	cost   int64
	toRun  int32 // place in table.toRun
	toDue  int32 // place in table.toDue
	status gq.Status
	ready  bool // claimable
	shown  bool // in the bucket

	foreign bool  // its id is from elsewhere: see ids
	rest    int32 // how many folded jobs follow it
}

// record is the encoded state of waiting jobs. Jobs of one bucket that are submitted
// in one commit mostly have the same state except for their id, so they share it. It
// never changes.
type record struct {
	encoded []byte // see encodeRecord; the id is zero
	id      int    // where the id is
	pack    *pack  // nil is none
}

func newRecord(encoded []byte) *record {
	r := &record{encoded: append(make([]byte, 0, len(encoded)), encoded...), id: recordID(encoded)}
	clear(r.encoded[r.id : r.id+len(gq.JobID{})])
	return r
}

// share returns the record of a waiting job: one that another job of its pack has, if possible.
func (t *table) share(bucket uint32, encoded []byte, p *pack) *record {
	last := &t.shared[bucket%uint32(len(t.shared))]
	if *last != nil && (*last).pack == p && (*last).fits(encoded) {
		return *last
	}
	r := newRecord(encoded)
	r.pack, *last = p, r
	return r
}

// of returns the record of the job with an id, in a buffer.
func (r *record) of(id gq.JobID, buffer *[]byte) []byte {
	*buffer = append((*buffer)[:0], r.encoded...)
	copy((*buffer)[r.id:], id[:])
	return *buffer
}

// fits reports whether the record of a job differs from r only in the id.
func (r *record) fits(encoded []byte) bool {
	rest := r.id + len(gq.JobID{})
	return len(r.encoded) == len(encoded) &&
		bytes.Equal(r.encoded[:r.id], encoded[:r.id]) && bytes.Equal(r.encoded[rest:], encoded[rest:])
}

// decode decodes the record of a waiting job.
func (j *job) decode(intern func(gq.Policy) *gq.Policy) (header, gq.State, error) {
	h, s, err := decodeRecord(j.record.encoded, j.seq, intern)
	s.ID = j.id
	return h, s, err
}

// opened is a decoded record.
type opened struct {
	header
	state gq.State
}

// openedPool recycles decoded records. It belongs to the writer; readers copy what they
// see under the lock.
type openedPool struct{ free []*opened }

const maxOpenedFree = 16 << 10

func (p *openedPool) get() *opened {
	n := len(p.free)
	if n == 0 {
		return new(opened)
	}
	o := p.free[n-1]
	p.free = p.free[:n-1]
	return o
}

func (p *openedPool) put(o *opened) {
	if len(p.free) < maxOpenedFree {
		p.free = append(p.free, o)
	}
}

// edge is a waiting dependent.
type edge struct {
	child *job
	kind  gq.DependencyKind
}

// ending is a finished parent.
type ending struct {
	seq    uint64
	status gq.Status
	level  gq.Priority
}

// queue is a queue with its claimable jobs by class.
type queue struct {
	number     uint32
	config     settings
	pool       *pool           // nil is none
	*limitKeys                 // shared by all queues that have none
	tails      map[string]*job // of live jobs: the last one of each order key
	due        time.Time       // when the next claim is due under the rate
	turns      *turns          // nil unless the queue is fair
	classes    []*class
	lists      *[gq.StatusCompleted]numbers // live jobs by status and sequence; nil until there is one
	counts     [gq.StatusCancelled + 1]int64
	deleted    bool // listed only while it has jobs
	touched    bool // the counts of finished jobs changed in this commit
	changed    bool // a job changed in this commit
}

// settings is a [gq.Queue] that shares its policy with others: there may be very many
// queues, and few policies.
type settings struct {
	Name                           string
	policy                         *gq.Policy
	Paused, Fair                   bool
	MaxRunning, MaxDepth, KeyLimit int
	Rate, KeyRate                  gq.Rate
	Pool                           string
	UpdatedAt                      time.Time
}

// settings converts a queue's configuration to the form that is kept.
func (t *table) settings(q gq.Queue) settings {
	return settings{
		Name: q.Name, policy: t.intern(q.Policy), Paused: q.Paused, Fair: q.Fair, MaxRunning: q.MaxRunning,
		MaxDepth: q.MaxDepth, KeyLimit: q.KeyLimit, Rate: q.Rate, KeyRate: q.KeyRate, Pool: q.Pool, UpdatedAt: q.UpdatedAt,
	}
}

// configuration returns the queue's configuration.
func (q *queue) configuration() gq.Queue {
	config := q.config.queue()
	config.OwnKeys = len(q.own)
	return config
}

func (s *settings) queue() gq.Queue {
	return gq.Queue{
		Name: s.Name, Policy: *s.policy, Paused: s.Paused, Fair: s.Fair, MaxRunning: s.MaxRunning,
		MaxDepth: s.MaxDepth, KeyLimit: s.KeyLimit, Rate: s.Rate, KeyRate: s.KeyRate, Pool: s.Pool, UpdatedAt: s.UpdatedAt,
	}
}

// live returns the numbers of the jobs in a status, for reading only.
func (q *queue) live(s gq.Status) *numbers {
	if q.lists == nil {
		return &noNumbers
	}
	return &q.lists[s]
}

// list adds a live job to the list of a status.
func (q *queue) list(s gq.Status, seq uint64) {
	if q.lists == nil {
		q.lists = new([gq.StatusCompleted]numbers)
	}
	q.lists[s].add(seq)
}

var noNumbers numbers

// held is the number of jobs that occupy the queue's concurrency.
func (q *queue) held() int64 { return q.counts[gq.StatusClaimed] + q.counts[gq.StatusRunning] }

// liveCount is the number of jobs that have not finished.
func (q *queue) liveCount() (n int64) {
	for s := gq.StatusPending; s < gq.StatusCompleted; s++ {
		n += q.counts[s]
	}
	return n
}

// class is the part of a queue whose jobs require the same capabilities.
type class struct {
	requires []string
	byType   map[string]*bucket
	heads    []*bucket // heap of the buckets that have ready jobs, by their first job
}

// bucket is the claimable jobs of one queue, type and class, in order.
type bucket struct {
	number    uint32
	queue     *queue
	class     *class
	typ       string
	queueName string
	ready     index
	jobs      int // live jobs that belong here
	head      int // place in class.heads, -1 if empty
}

func newTable() *table {
	t := &table{
		foreign:  map[gq.LeaseID]*job{},
		queues:   map[string]*queue{},
		numbers:  []*queue{nil},
		buckets:  map[uint32]*bucket{},
		pools:    map[string]*pool{},
		toRun:    timers{place: placeToRun},
		toDue:    timers{place: placeToDue},
		owing:    keyTimers{place: placeOwing},
		kids:     map[uint64][]edge{},
		folds:    folds{most: keptIDs},
		policies: map[gq.Policy]*gq.Policy{},
		presets:  make([]gq.Policy, len(enum.All[gq.Preset]())+1),
	}
	for _, p := range enum.All[gq.Preset]() {
		t.presets[p] = p.Policy()
	}
	t.names.Store(&[]string{""})
	return t
}

// intern lets equal policies share memory. The set is bounded: if a client keeps
// sending new policies, only the jobs that have them use memory.
func (t *table) intern(p gq.Policy) *gq.Policy {
	if p.IsPreset() {
		return &t.presets[p.Preset]
	}
	if t.policy != nil && *t.policy == p { // cheaper than a map lookup
		return t.policy
	}
	shared, ok := t.policies[p]
	if !ok {
		if len(t.policies) >= 4096 {
			clear(t.policies)
		}
		shared = new(p)
		t.policies[p] = shared
	}
	t.policy = shared
	return shared
}

func (t *table) addQueue(number uint32, config gq.Queue) *queue {
	q := &queue{number: number, config: t.settings(config), limitKeys: noLimitKeys}
	q.join(t.pools[config.Pool])
	if config.Fair {
		q.turns = newTurns()
	}
	names := *t.names.Load()
	for len(t.numbers) <= int(number) {
		t.numbers = append(t.numbers, nil)
		names = append(names, "") // past the end of the slice that readers have
	}
	t.numbers[number], names[number] = q, config.Name
	t.names.Store(&names)
	t.queues[config.Name] = q
	return q
}

func (t *table) addBucket(number uint32, q *queue, typ string, requires []string) *bucket {
	var c *class
	for _, known := range q.classes {
		if slices.Equal(known.requires, requires) {
			c = known
		}
	}
	if c == nil {
		c = &class{requires: slices.Clone(requires), byType: map[string]*bucket{}}
		q.classes = append(q.classes, c)
	}
	l := &bucket{number: number, queue: q, class: c, typ: strings.Clone(typ), queueName: q.config.Name, head: -1}
	c.byType[l.typ] = l
	t.buckets[number] = l
	t.lastBucket = max(t.lastBucket, number)
	return l
}

// findBucket returns the bucket of a spec, nil if it has none yet.
func (q *queue) findBucket(typ string, requires []string) *bucket {
	for _, c := range q.classes {
		if slices.Equal(c.requires, requires) {
			return c.byType[typ]
		}
	}
	return nil
}

// dropBucket removes an empty bucket.
func (t *table) dropBucket(l *bucket) {
	delete(t.buckets, l.number)
	delete(l.class.byType, l.typ)
	if len(l.class.byType) == 0 {
		l.queue.classes = slices.DeleteFunc(l.queue.classes, func(c *class) bool { return c == l.class })
		if len(l.queue.classes) == 0 { // the queue may stay idle: free its memory
			l.queue.classes, l.queue.lists = nil, nil
		}
	}
}

// place updates counts, lists and timers for a job's state, and adds the job to its
// bucket if it is claimable. The job must not be placed already.
func (t *table) place(j *job, s *gq.State) {
	j.status = s.Status
	q := j.bucket.queue
	q.counts[s.Status]++
	if s.Status.Terminal() {
		q.touched = true
		t.bounds.raise(doneKey{q.number, s.Status, j.seq})
		t.toDue.set(j, 0)
		return
	}
	q.list(s.Status, j.seq)
	t.toDue.set(j, dueAt(s))
	switch {
	case s.Status == gq.StatusDelayed || s.Status == gq.StatusRetrying:
		t.toRun.set(j, s.RunAt.UnixNano())
	case s.Status == gq.StatusScheduled:
		t.enter(j, machine.Order(s))
	case s.Status.Held():
		t.occupy(j, s.Status)
		if seq, ok := leaseSequence(s.Lease.ID); !ok || seq != j.seq {
			t.foreign[s.Lease.ID] = j
		}
	}
}

// isForeign reports whether the lease id of a placed job was not made here.
func (t *table) isForeign(j *job, s *gq.State) bool {
	if s.Status.Held() {
		return t.foreign[s.Lease.ID] == j
	}
	seq, ok := leaseSequence(s.Lease.ID)
	return !ok || seq != j.seq
}

// unplace undoes place, except for toDue, which the next place sets. s is the state the
// job was placed with.
func (t *table) unplace(j *job, s *gq.State) {
	q := j.bucket.queue
	q.counts[j.status]--
	q.live(j.status).remove(j.seq)
	t.toRun.set(j, 0)
	t.leave(j)
	if s.Status.Held() {
		t.vacate(j, s.Status)
		if len(t.foreign) > 0 {
			delete(t.foreign, s.Lease.ID)
		}
	}
}

// live finds a job by id unless it has ended. The caller is the writer.
func (t *table) live(id gq.JobID) *job {
	if j := t.get(id); j != nil && !j.status.Terminal() {
		return j
	}
	return nil
}

// holder finds the job held under a lease.
func (t *table) holder(id gq.LeaseID) *job {
	seq, _ := leaseSequence(id)
	if j := t.jobs.at(seq); j != nil && j.status.Held() && j.open.state.Lease.ID == id {
		return j
	}
	return t.foreign[id]
}

// dueAt returns when time changes a job other than by letting it run, 0 for never.
func dueAt(s *gq.State) int64 {
	due := machine.LifeEnd(s)
	if s.Status != gq.StatusDelayed && s.Status != gq.StatusRetrying {
		due = machine.Due(s)
	}
	if due.IsZero() {
		return 0
	}
	return due.UnixNano()
}

// promoteStep bounds how many jobs one call of promote makes claimable.
const promoteStep = 100_000

// promote makes jobs claimable whose time has come, in memory only: a claim or a sweep
// records it later. Reads show them as claimable at once.
func (t *table) promote(now int64) {
	for range promoteStep {
		next, ok := t.toRun.next()
		if !ok || next.at > now {
			return
		}
		j := next.job
		t.toRun.set(j, 0)
		_, s, err := j.decode(t.intern)
		if err != nil {
			panic(fmt.Sprintf("local: record of live job %s: %v", j.id, err))
		}
		q := j.bucket.queue
		q.counts[j.status]--
		q.live(j.status).remove(j.seq)
		j.status = gq.StatusScheduled
		q.counts[gq.StatusScheduled]++
		q.list(gq.StatusScheduled, j.seq)
		t.enter(j, machine.Order(&s))
		if len(t.promoted) == cap(t.promoted) { // drop jobs that moved on before the slice grows
			t.promoted = slices.DeleteFunc(t.promoted, func(p timer) bool { return !t.unrecorded(p) })
		}
		// A job that was released with an instant in the past goes before others.
		i := len(t.promoted)
		for i > 0 && next.before(t.promoted[i-1]) {
			i--
		}
		t.promoted = slices.Insert(t.promoted, i, next)
	}
}

// enter makes a job claimable.
func (t *table) enter(j *job, key machine.OrderKey) {
	j.key, j.ready = key, true
	t.ready += 1 + int64(j.rest)
	if j.limit != nil {
		j.limit.enter(t, j)
		return
	}
	t.show(j)
}

// leave undoes enter.
func (t *table) leave(j *job) {
	if !j.ready {
		return
	}
	j.ready = false
	t.ready -= 1 + int64(j.rest)
	if j.limit != nil {
		j.limit.leave(t, j)
		return
	}
	t.hide(j)
}

// show adds a job to its bucket.
func (t *table) show(j *job) {
	j.shown = true
	l := j.bucket
	l.ready.add(j)
	if l.head < 0 && len(t.waiting) > 0 {
		t.filled(l.queue)
	}
	if l.head < 0 || l.ready.first() == j {
		l.class.fix(l)
	}
}

// hide removes a job from its bucket.
func (t *table) hide(j *job) {
	j.shown = false
	l := j.bucket
	wasFirst := l.ready.first() == j
	l.ready.remove(j)
	if wasFirst {
		l.class.fix(l)
	}
}
