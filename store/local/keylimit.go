package local

import (
	"slices"
	"strings"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/machine"
)

// A queue with limits for keys keeps the claimable jobs of each limit key in an index of
// their own. The buckets hold only the jobs that a claim could pick next: for each key
// and bucket the first job, the first cheaper one, and so on. Any filter finds the same
// job among these as among all. A key that is at its limit puts none into the buckets,
// nor does one whose rate is used up: see keyrate.go. So a claim never skips a job,
// however many there are.
//
// Filling or freeing a key costs as much as it puts into the buckets: one job for each
// of its buckets if all its jobs cost the same. A job without a key, or in a queue
// without a limit, has a nil key and is always in its bucket.

// limitKey is one limit key of a queue.
type limitKey struct {
	name    string
	queue   *queue
	own     *gq.QueueKey // limits of its own, nil for none
	held    int          // jobs that occupy a place
	jobs    int          // live jobs; the key is removed with the last unless it owes something
	buckets []keyBucket  // those with claimable jobs, by number
	hidden  bool         // none of its jobs is in a bucket
	due     int64        // until when it owes units of its rate, in nanoseconds since 1970; 0 for nothing
	aside   int32        // place in queue.aside
	owing   int32        // place in table.owing
	moved   bool         // due changed in this commit
}

// limitKeys are the limit keys of a queue.
type limitKeys struct {
	keys  map[string]*limitKey // of live jobs, and those that owe something, if there are limits for keys
	own   []*gq.QueueKey       // limits of single keys, by name
	aside keyTimers            // keys with jobs whose rate is used up, by when it allows the next claim
}

// noLimitKeys is empty and never changes: there may be very many queues, most without limit
// keys.
var noLimitKeys = &limitKeys{}

// ownLimitKeys returns the limit keys of the queue for a change.
func (q *queue) ownLimitKeys() *limitKeys {
	if q.limitKeys == noLimitKeys {
		q.limitKeys = &limitKeys{keys: map[string]*limitKey{}, aside: keyTimers{place: placeAside}}
	}
	return q.limitKeys
}

// forget removes a limit key.
func (q *queue) forget(k *limitKey) {
	delete(q.keys, k.name)
	if len(q.keys) == 0 && len(q.own) == 0 {
		q.limitKeys = noLimitKeys
	}
}

// keyBucket is the claimable jobs of one key in one bucket.
type keyBucket struct {
	bucket *bucket
	ready  *index
}

// attach assigns a job to its limit key, if the queue has limits for keys.
func (q *queue) attach(j *job, keys *jobKeys) {
	if keys == nil || keys.limit == "" || !q.limitsKeys() {
		return
	}
	k := q.keyNamed(keys.limit)
	k.jobs++
	j.limit = k
}

// keyNamed returns a limit key, a new one if need be.
func (q *queue) keyNamed(name string) *limitKey {
	k := q.keys[name]
	if k == nil {
		k = &limitKey{name: strings.Clone(name), queue: q, own: q.ownKey(name), aside: noTimer, owing: noTimer}
		q.ownLimitKeys().keys[k.name] = k
	}
	return k
}

// limitsKeys reports whether any key of the queue has a limit.
func (q *queue) limitsKeys() bool {
	return q.config.KeyLimit > 0 || q.config.KeyRate.Limited() || len(q.own) > 0
}

// limits returns the limits of a key.
func (k *limitKey) limits() (limit int, rate gq.Rate) {
	config := gq.Queue{KeyLimit: k.queue.config.KeyLimit, KeyRate: k.queue.config.KeyRate}
	return machine.KeyLimits(&config, k.own)
}

// detach removes a job that is neither claimable nor held from its key.
func (q *queue) detach(j *job) {
	k := j.limit
	if k == nil {
		return
	}
	j.limit = nil
	if k.jobs--; k.jobs == 0 {
		q.aside.set(k, 0)
		if k.hidden = false; k.owing == noTimer {
			q.forget(k)
		}
	}
}

// occupy counts a job as held in a status.
func (t *table) occupy(j *job, s gq.Status) {
	q := j.bucket.queue
	if q.pool != nil && machine.CountsInPool(q.pool.config, s) {
		q.pool.used += j.cost
	}
	if k := j.limit; k != nil {
		k.held++
		t.judge(k)
	}
}

// vacate undoes occupy.
func (t *table) vacate(j *job, s gq.Status) {
	q := j.bucket.queue
	if q.pool != nil && machine.CountsInPool(q.pool.config, s) {
		q.pool.used -= j.cost
	}
	if k := j.limit; k != nil {
		k.held--
		t.judge(k)
	}
}

// judge shows or hides the jobs of a key after something changed that limits it.
func (t *table) judge(k *limitKey) {
	limit, _ := k.limits()
	hidden := limit > 0 && k.held >= limit || k.aside != noTimer
	if hidden == k.hidden {
		return
	}
	for _, l := range k.buckets {
		for j := range l.front {
			if hidden {
				t.hide(j)
			} else {
				t.show(j)
			}
		}
	}
	k.hidden = hidden
}

// front visits the jobs that are in the bucket unless the key is hidden.
func (l keyBucket) front(visit func(*job) bool) {
	for j := l.ready.first(); j != nil && visit(j) && j.cost > 0; {
		j = l.ready.cheap(j.cost - 1)
	}
}

func (k *limitKey) find(l *bucket) (int, bool) {
	return slices.BinarySearchFunc(k.buckets, l.number, func(kl keyBucket, number uint32) int {
		return int(int64(kl.bucket.number) - int64(number))
	})
}

// enter makes a job of the key claimable.
func (k *limitKey) enter(t *table, j *job) {
	i, found := k.find(j.bucket)
	if !found {
		k.buckets = slices.Insert(k.buckets, i, keyBucket{j.bucket, &index{}})
	}
	l := k.buckets[i]
	if !k.hidden {
		if first := l.ready.cheap(j.cost); first == nil || j.precedes(first) {
			for o := range l.front { // the jobs that it replaces in the bucket
				if o.cost < j.cost {
					break
				}
				if j.precedes(o) {
					t.hide(o)
				}
			}
			t.show(j)
		}
	}
	l.ready.add(j)
}

// leave removes a claimable job from the key.
func (k *limitKey) leave(t *table, j *job) {
	i, _ := k.find(j.bucket)
	l := k.buckets[i]
	l.ready.remove(j)
	if l.ready.size == 0 {
		k.buckets = slices.Delete(k.buckets, i, i+1)
	}
	if !j.shown {
		return
	}
	t.hide(j)
	for o := range l.front { // the jobs that take its place
		if !o.shown {
			t.show(o)
		}
	}
}

// precedes reports whether a claimable job is served before another.
func (j *job) precedes(o *job) bool { return sortKey{j.key, j.id}.less(sortKey{o.key, o.id}) }

// reconfigure changes a queue's configuration and adapts the live jobs.
func (tx *txn) reconfigure(q *queue, config gq.Queue) {
	t := tx.t
	was := q.config
	pool := t.pools[config.Pool]
	limited := q.limitsKeys()
	rates := q.keyRates()
	if limited == machine.LimitsKeys(&config) && q.pool == pool {
		q.config = t.settings(config)
	} else {
		tx.regroup(q, config, pool)
	}
	tx.rerate(q, rates)
	if was.Fair != config.Fair {
		tx.rearrange(q)
	}
}

// regroup moves all jobs from their old keys and pool to the new ones.
func (tx *txn) regroup(q *queue, config gq.Queue, pool *pool) {
	t := tx.t
	jobs := tx.t.liveJobs(q)
	ready := make([]bool, len(jobs))
	for i, j := range jobs {
		ready[i] = j.ready
		t.leave(j)
		if j.status.Held() {
			t.vacate(j, j.status)
		}
		q.detach(j)
	}
	q.config = t.settings(config)
	q.join(pool)
	for i, j := range jobs {
		q.attach(j, tx.keysOf(j))
		if j.status.Held() {
			t.occupy(j, j.status)
		}
		if ready[i] {
			t.enter(j, j.key)
		}
	}
}

// liveJobs returns a queue's live jobs in the order of submission.
func (t *table) liveJobs(q *queue) (jobs []*job) {
	for s := range gq.StatusCompleted {
		q.live(s).ascend(0, func(seq uint64) bool {
			jobs = append(jobs, t.unfold(seq))
			return true
		})
	}
	slices.SortFunc(jobs, func(a, b *job) int {
		if a.seq < b.seq {
			return -1
		}
		return 1
	})
	return jobs
}

// keysOf reads the keys of a job from its record.
func (tx *txn) keysOf(j *job) *jobKeys {
	if j.open != nil {
		return j.open.keys
	}
	h, _, err := decodeHeader(j.record.encoded)
	if err != nil {
		panic("local: record of live job " + j.id.String() + ": " + err.Error())
	}
	return h.keys
}
