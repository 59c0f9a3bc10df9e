package simple

import (
	"maps"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/internal/wake"
	"github.com/gopherqueue/gq/machine"
)

// limits is what claims may still take at an instant.
type limits struct {
	store   *Store
	now     time.Time
	into    gq.Status            // of the claimed jobs
	running map[string]int       // held jobs by queue
	keys    map[limitKey]int     // held jobs by queue and limit key
	used    map[string]int64     // capacity by pool
	rates   map[string]time.Time // as in Store, with the jobs chosen so far
	owed    map[limitKey]time.Time
	retryAt time.Time // when a rate allows another claim
	keyRate bool      // the rate of a limit key does not allow one now
}

type limitKey struct{ queue, key string }

// limits counts what unexpired leases occupy.
func (s *Store) limits(into gq.Status, now time.Time) *limits {
	l := &limits{
		store: s, now: now, into: into, running: make(map[string]int), keys: make(map[limitKey]int),
		used: make(map[string]int64), rates: maps.Clone(s.rates), owed: maps.Clone(s.owed),
	}
	for j := range s.held {
		if !j.state.Lease.Expired(now) {
			l.occupy(j, j.state.Status)
		}
	}
	return l
}

// occupy counts a job that is held in a status.
func (l *limits) occupy(j *job, status gq.Status) {
	l.running[j.spec.Queue]++
	l.keys[limitKey{j.spec.Queue, j.spec.LimitKey}]++
	if pool := l.store.queues[j.spec.Queue].Pool; l.store.rules.occupies(l.store.pools[pool], status) {
		l.used[pool] += j.spec.CostUnits
	}
}

// verdict says whether a claim gets a job, and whether it looks further in the queue.
type verdict uint8

const (
	take verdict = iota
	pass
	stop
)

// ask decides whether a claim may have a job, and if so counts it.
func (l *limits) ask(j *job) verdict {
	q := l.store.queues[j.spec.Queue]
	if q.MaxRunning > 0 && l.running[q.Name] >= q.MaxRunning {
		return stop
	}
	key := limitKey{q.Name, j.spec.LimitKey}
	limit, rate := l.store.keyLimits(key)
	if limit > 0 && l.keys[key] >= limit {
		return pass
	}
	if pool, ok := l.store.pools[q.Pool]; ok && l.store.rules.occupies(pool, l.into) {
		if pool.Used = l.used[q.Pool]; machine.AdmitToPool(pool, j.spec.CostUnits) != nil {
			return pass
		}
	}
	owed, ok := machine.TakeKeyRate(rate, machine.Weight(&j.spec), l.owed[key], l.now)
	if !ok {
		l.retryAt, l.keyRate = wake.Earlier(l.retryAt, machine.KeyRateAt(rate, l.owed[key], l.now)), true
		return pass
	}
	if q.Rate.Limited() {
		next, ok := machine.TakeRate(q.Rate, l.rates[q.Name], l.now)
		if !ok {
			l.retryAt = wake.Earlier(l.retryAt, machine.RateAt(q.Rate, l.rates[q.Name], l.now))
			return stop
		}
		l.rates[q.Name] = next
	}
	if owed.After(l.now) {
		l.owed[key] = owed
	}
	l.occupy(j, l.into)
	return take
}

// admit returns an error if the pool of a job has no room for its move into a status.
func (s *Store) admit(j *job, to gq.Status, now time.Time) error {
	pool, ok := s.pools[s.queues[j.spec.Queue].Pool]
	if !ok || !s.rules.occupies(pool, to) || s.rules.occupies(pool, j.state.Status) {
		return nil
	}
	pool.Used = s.limits(to, now).used[pool.Name]
	return machine.AdmitToPool(pool, j.spec.CostUnits)
}

// turnKey names a priority of a fair queue, or with a fair key, that key there.
type turnKey struct {
	queue    string
	priority gq.Priority
	key      string
}

// turn returns the turn of a job that joins a queue or changes its priority.
func (s *Store) turn(spec *gq.Spec, p gq.Priority) uint64 {
	if !s.queues[spec.Queue].Fair {
		return 0
	}
	key := turnKey{spec.Queue, p, spec.FairKey}
	s.newest[key] = machine.FairTurn(s.served[turnKey{queue: spec.Queue, priority: p}], s.newest[key])
	return s.newest[key]
}

// serve records the turn of a job that is claimed.
func (s *Store) serve(j *job) {
	key := turnKey{queue: j.spec.Queue, priority: j.state.Priority()}
	s.served[key] = max(s.served[key], j.state.Turn)
}

// rearrange gives new turns to the live jobs of a queue.
func (s *Store) rearrange(queue string) {
	for _, turns := range []map[turnKey]uint64{s.newest, s.served} {
		maps.DeleteFunc(turns, func(k turnKey, _ uint64) bool { return k.queue == queue })
	}
	for _, j := range s.submitted.items {
		if j.spec.Queue == queue && j.state.Live() {
			next := j.state
			next.Turn = s.turn(&j.spec, next.Priority())
			s.replace(j, next)
		}
	}
}
