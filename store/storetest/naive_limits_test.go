package storetest

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/machine"
	"github.com/gopherqueue/gq/store"
)

// limits is what a claim may still take.
type limits struct {
	n       *naive
	now     time.Time
	key     map[[2]string]int    // held, by queue and limit key
	running map[string]int       // held, by queue
	pool    map[string]int64     // occupied
	due     map[string]time.Time // state of the rates, by queue
	owed    map[[2]string]time.Time
	retry   time.Time
	keyRate bool
	into    gq.Status // status of the claimed jobs
	peeking bool
}

// limits counts what occupies capacity at an instant.
func (n *naive) limits(now time.Time) *limits {
	l := &limits{
		n: n, now: now, into: gq.StatusRunning, key: make(map[[2]string]int), running: make(map[string]int),
		pool: make(map[string]int64), due: make(map[string]time.Time), owed: maps.Clone(n.data.owed),
	}
	maps.Copy(l.due, n.data.due)
	for _, j := range n.data.jobs {
		if j.state.Status.Held() && (!j.state.Lease.Expired(now) || n.bug == expiredLeasesCount) {
			l.occupy(j, j.state.Status)
		}
	}
	return l
}

func (l *limits) keyOf(j *naiveJob) [2]string {
	if l.n.bug == keysAcrossQueues {
		return [2]string{"", j.spec.LimitKey}
	}
	return [2]string{j.spec.Queue, j.spec.LimitKey}
}

func (l *limits) poolOf(queue string) string {
	pool := l.n.data.queues[queue].Pool
	if l.n.bug == poolsByQueue && pool != "" {
		return pool + " of " + queue
	}
	return pool
}

func (l *limits) occupy(j *naiveJob, s gq.Status) {
	l.key[l.keyOf(j)]++
	l.running[j.spec.Queue]++
	if pool := l.poolOf(j.spec.Queue); pool != "" && (l.counts(j, s) || l.n.bug == holdsOccupy) {
		l.pool[pool] += j.spec.CostUnits
	}
}

// counts reports whether a job in a status occupies capacity of its pool.
func (l *limits) counts(j *naiveJob, s gq.Status) bool {
	return machine.CountsInPool(l.n.data.pools[l.n.data.queues[j.spec.Queue].Pool], s)
}

// start returns an error if the pool has no room for a move into a status.
func (n *naive) start(j *naiveJob, to gq.Status, now time.Time) error {
	q := n.data.queues[j.spec.Queue]
	pool, ok := n.data.pools[q.Pool]
	if !ok || !machine.CountsInPool(pool, to) || machine.CountsInPool(pool, j.state.Status) || n.bug == startsAnyway {
		return nil
	}
	pool.Used = n.limits(now).pool[q.Pool]
	return machine.AdmitToPool(pool, j.spec.CostUnits)
}

// verdict is whether a claim takes a job, and whether it continues after it.
type verdict int

const (
	take verdict = iota
	pass
	stop
)

// ask decides whether a claim may have a job, and if so counts it.
func (l *limits) ask(j *naiveJob) verdict {
	n, q := l.n, l.n.data.queues[j.spec.Queue]
	if l.peeking && n.bug == peekSeesAll {
		return take
	}
	if q.MaxRunning > 0 && l.running[q.Name] >= q.MaxRunning && n.bug != ignoresMaxRunning {
		return stop
	}
	keyed := j.spec.LimitKey != "" || n.bug == keylessIsKey
	if limit, _ := n.keyLimits([2]string{q.Name, j.spec.LimitKey}); limit > 0 && keyed && l.key[l.keyOf(j)] >= limit && n.bug != ignoresKeyLimit {
		if n.bug == keyHidesOthers {
			return stop
		}
		return pass
	}
	if q.Pool != "" && l.counts(j, l.into) && n.bug != ignoresPool {
		free := n.data.pools[q.Pool].Capacity - l.pool[l.poolOf(q.Name)]
		fits := j.spec.CostUnits == 0 || j.spec.CostUnits <= free
		if n.bug == nothingNeedsRoom {
			fits = free > 0 && j.spec.CostUnits <= free
		}
		if !fits {
			if n.bug == poolHidesOthers {
				return stop
			}
			return pass
		}
	}
	if !l.useKey(j, 0) {
		if n.bug == rateHidesOthers {
			return stop
		}
		return pass
	}
	if q.Rate.Limited() && n.bug != ignoresRate {
		next, ok := machine.TakeRate(q.Rate, l.due[q.Name], l.now)
		if !ok {
			if at := machine.RateAt(q.Rate, l.due[q.Name], l.now); l.retry.IsZero() || at.Before(l.retry) || n.bug == rateNamesLast {
				l.retry = at
			}
			return stop
		}
		l.due[q.Name] = next
	}
	l.useKey(j, machine.Weight(&j.spec))
	if n.bug != limitsSeeBefore {
		l.occupy(j, l.into)
	}
	return take
}

// turn returns the turn of a job that joins a queue or changes its level.
func (n *naive) turn(s *gq.Spec, level gq.Priority) uint64 {
	if !n.data.queues[s.Queue].Fair || n.bug == ignoresFair {
		return 0
	}
	key := naiveTurn{s.Queue, level, s.FairKey}
	last := n.data.newest[key]
	if n.bug == keysComeFirst && !n.waiting(s) {
		last = 0
	}
	n.data.newest[key] = machine.FairTurn(n.data.turn[naiveTurn{s.Queue, level, ""}], last)
	return n.data.newest[key]
}

// waiting reports whether a key has another job that is not held.
func (n *naive) waiting(s *gq.Spec) bool {
	for _, j := range n.data.jobs {
		if j.spec.ID != s.ID && j.spec.Queue == s.Queue && j.spec.FairKey == s.FairKey && j.state.Live() && !j.state.Status.Held() {
			return true
		}
	}
	return false
}

// naiveTurn names a key of a fair queue, or one of its levels.
type naiveTurn struct {
	queue string
	level gq.Priority
	key   string
}

// serve advances a level of a fair queue.
func (n *naive) serve(j *naiveJob) {
	at := naiveTurn{j.spec.Queue, j.state.Priority(), ""}
	n.data.turn[at] = max(n.data.turn[at], j.state.Turn)
}

// rearrange assigns new turns to the live jobs of a queue.
func (n *naive) rearrange(queue string) {
	for _, m := range []map[naiveTurn]uint64{n.data.newest, n.data.turn} {
		for key := range m {
			if key.queue == queue {
				delete(m, key)
			}
		}
	}
	for _, j := range n.sorted() {
		if j.spec.Queue == queue && j.state.Live() {
			j.state.Turn = n.turn(&j.spec, j.state.Priority())
		}
	}
}

func (n *naive) PutQueue(ctx context.Context, q gq.Queue) error {
	now, err := n.begin(ctx, true)
	if err != nil {
		return err
	}
	defer n.mu.Unlock()
	_, exists := n.data.pools[q.Pool]
	if err := cmp.Or(machine.CheckQueue(q), store.CheckPool(q, exists || n.bug == acceptsAnyPool)); err != nil && n.bug != acceptsAnyQueue {
		return err
	}
	if n.bug == lastWins {
		q.UpdatedAt = time.Time{}
	}
	if q, err = machine.ConfigureQueue(n.data.queues[q.Name], q, now); err != nil {
		return err
	}
	changed := n.data.queues[q.Name].Fair != q.Fair
	if n.bug != tellsJobsOnly {
		n.announce(q.Name) // the pool it may leave
		defer n.announce(q.Name)
	}
	n.changeKeys(q.Name, now, func() { n.data.queues[q.Name] = q })
	delete(n.data.deleted, q.Name)
	if changed && n.bug != fairLater {
		n.rearrange(q.Name)
	}
	return nil
}

func (n *naive) DeleteQueue(ctx context.Context, name string) error {
	if _, err := n.begin(ctx, true); err != nil {
		return err
	}
	defer n.mu.Unlock()
	if _, ok := n.data.queues[name]; !ok || n.data.deleted[name] && !n.hasJobs(name) {
		return store.NoQueue(name)
	}
	c := gq.Count{Queue: name}
	for _, j := range n.data.jobs {
		if j.spec.Queue == name {
			c.By[j.state.Status]++
		}
	}
	if err := store.QueueInUse(c); err != nil {
		return err
	}
	n.announce(name)
	n.data.queues[name], n.data.deleted[name] = machine.NewQueue(name), true
	delete(n.data.due, name)
	maps.DeleteFunc(n.data.ownKeys, func(k [2]string, _ gq.QueueKey) bool { return k[0] == name })
	maps.DeleteFunc(n.data.owed, func(k [2]string, _ time.Time) bool { return k[0] == name })
	return nil
}

func (n *naive) hasJobs(queue string) bool {
	for _, j := range n.data.jobs {
		if j.spec.Queue == queue {
			return true
		}
	}
	return false
}

func (n *naive) PutPool(ctx context.Context, p gq.Pool) error {
	now, err := n.begin(ctx, true)
	if err != nil {
		return err
	}
	defer n.mu.Unlock()
	if err := machine.CheckPool(p); err != nil {
		return err
	}
	p.UpdatedAt, p.Used = now, 0
	n.data.pools[p.Name] = p
	for name, q := range n.data.queues {
		if q.Pool == p.Name {
			n.announce(name)
		}
	}
	return nil
}

func (n *naive) Pools(ctx context.Context) (pools []gq.Pool, err error) {
	now, err := n.begin(ctx, false)
	if err != nil {
		return nil, err
	}
	defer n.mu.Unlock()
	used := n.limits(now).pool
	for _, p := range n.data.pools {
		if p.Used = used[p.Name]; n.bug == poolsTellNothing {
			p.Used = 0
		}
		pools = append(pools, p)
	}
	slices.SortFunc(pools, func(a, b gq.Pool) int { return cmp.Compare(a.Name, b.Name) })
	return pools, nil
}

// spawn inserts the children of an update. They are checked with the job in its new
// state; if they are refused, the job gets its old state back.
func (n *naive) spawn(j *naiveJob, next gq.State, specs []gq.Spec, now time.Time) ([]store.Placed, error) {
	if len(specs) == 0 || n.bug == losesChildren {
		return nil, nil
	}
	if err := store.CheckSpawn(specs, n.cfg.Limits); err != nil {
		return nil, err
	}
	before := j.state
	j.state = next
	answer := n.insert(store.Group{Jobs: specs}, now)
	j.state = before
	if answer.Err != nil {
		return nil, fmt.Errorf("naive: spawn: %w", answer.Err)
	}
	return answer.Jobs, nil
}
