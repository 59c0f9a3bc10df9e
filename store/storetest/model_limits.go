package storetest

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"pgregory.net/rapid"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/store"
)

// usage is what counts against the limits before a claim: certainly, and possibly. The two
// differ by leases that ended for a reason other than expiry, which a store may or may not
// have noticed. A claim adds its jobs to both.
type usage struct{ surely, possibly tallied }

type tallied struct {
	running map[string]int
	key     map[[2]string]int // by queue and limit key
	pool    map[string]int64
	due     map[string]time.Time    // state of the rates, by queue
	owed    map[[2]string]time.Time // state of the rates of limit keys
}

func newTallied() tallied {
	return tallied{make(map[string]int), make(map[[2]string]int), make(map[string]int64), make(map[string]time.Time), make(map[[2]string]time.Time)}
}

func (t tallied) add(q gq.Queue, s *gq.Spec) {
	t.running[s.Queue]++
	t.key[[2]string{s.Queue, s.LimitKey}]++
	if q.Pool != "" {
		t.pool[q.Pool] += s.CostUnits
	}
}

func (m *model) usage() usage {
	u := usage{newTallied(), newTallied()}
	for name, due := range m.owed {
		u.surely.due[name], u.possibly.due[name] = due, due
	}
	maps.Copy(u.surely.owed, m.owedKeys)
	maps.Copy(u.possibly.owed, m.owedKeys)
	for _, j := range m.jobs {
		if j.held() && !j.expired(m.now) {
			u.possibly.add(m.queues[j.spec.Queue], &j.spec)
			if !come(j.due(), m.now) {
				u.surely.add(m.queues[j.spec.Queue], &j.spec)
			}
		}
	}
	return u
}

// fits reports whether the limit key and the pool of a job have room for it.
func (m *model) fits(t tallied, s *gq.Spec) bool {
	q := m.queues[s.Queue]
	key := [2]string{s.Queue, s.LimitKey}
	if limit, _ := m.keyLimits(key); limit > 0 && t.key[key] >= limit {
		return false
	}
	return q.Pool == "" || s.CostUnits == 0 || t.pool[q.Pool]+s.CostUnits <= m.pools[q.Pool]
}

// rate uses one claim of a queue's rate; it implements the rule a second time. At most as
// many intervals may be owed as the burst has jobs.
func (m *model) rate(t tallied, queue string) (at time.Time, ok bool) {
	r := m.queues[queue].Rate
	if r.Count == 0 {
		return at, true
	}
	gap := r.Per / time.Duration(r.Count) // an integer in this test
	owed := max(0, t.due[queue].Sub(m.now))
	if t.due[queue].IsZero() {
		owed = 0
	}
	most := time.Duration(max(1, r.Burst)) * gap
	if owed > most { // left by a slower rate
		owed = most - gap
	}
	if owed+gap > most {
		return m.now.Add(owed + gap - most), false
	}
	t.due[queue] = m.now.Add(owed + gap)
	return at, true
}

// chosen fails unless a claim found the right jobs in the right order. A job may or may not
// know yet that its dependencies have ended, so it may be among them or not; everything
// else is exact. It returns when a rate certainly allows another job, and when one possibly
// does.
func (m *model) chosen(call string, f store.Filter, n int, got []gq.Job) (sure time.Time, possible []time.Time) {
	if len(got) > n {
		m.Fatalf("%s for %d found %d jobs", call, n, len(got))
	}
	u := m.usage()
	rest := got
	for i, queue := range f.Queues {
		if slices.Contains(f.Queues[:i], queue) {
			continue
		}
		var mine []gq.Job
		for len(rest) > 0 && rest[0].Spec.Queue == queue {
			mine, rest = append(mine, rest[0]), rest[1:]
		}
		m.sound(call, queue, f, mine)
		left := n - (len(got) - len(rest) - len(mine))
		at, blocked := m.chosenIn(call, queue, f, left, mine, u, &possible)
		if !at.IsZero() {
			possible = append(possible, at)
			if blocked {
				sure = earliest(sure, at)
			}
		}
	}
	if len(rest) > 0 {
		m.Fatalf("%s of %v found a job of queue %s out of turn", call, f.Queues, rest[0].Spec.Queue)
	}
	return sure, possible
}

// sound fails unless each job found in a queue was claimable.
func (m *model) sound(call, queue string, f store.Filter, got []gq.Job) {
	for i, g := range got {
		j := m.jobs[g.State.ID]
		switch {
		case j == nil:
			m.Fatalf("%s found job %s, which does not exist", call, g.State.ID)
		case j.spec.Queue != queue || !suits(f, &j.spec):
			m.Fatalf("%s %+v found job %s, which does not match: %+v", call, f, g.State.ID, j.spec)
		case !slices.ContainsFunc(m.reachable(j), func(o *modelJob) bool { return o.claimable(m.now) }):
			m.Fatalf("%s found job %s, which is %s (due %v, now %v)", call, g.State.ID, j.s.Status, j.due(), m.now)
		case i > 0 && !before(m.standing(m.jobs[got[i-1].State.ID]), m.standing(j)):
			m.Fatalf("%s found job %s behind %s", call, g.State.ID, got[i-1].State.ID)
		}
	}
}

// chosenIn fails unless the jobs found in one queue are within its limits and a limit
// explains every job not found. It returns when the rate allows another job, if the rate
// excluded one, and whether only the rate did.
func (m *model) chosenIn(call, queue string, f store.Filter, n int, got []gq.Job, u usage, possible *[]time.Time) (retry time.Time, blocked bool) {
	q := m.queues[queue]
	var must []*modelJob
	for _, j := range m.jobs {
		if j.spec.Queue == queue && j.claimable(m.now) && suits(f, &j.spec) {
			must = append(must, j)
		}
	}
	slices.SortFunc(must, func(a, b *modelJob) int {
		if before(m.standing(a), m.standing(b)) {
			return -1
		}
		return 1
	})
	if q.Paused {
		if len(got) > 0 {
			m.Fatalf("%s found %d jobs in queue %s, which is paused", call, len(got), queue)
		}
		if len(must) > 0 {
			m.happened("claim in a paused queue")
		}
		return retry, false
	}
	full := func(t tallied) bool { return q.MaxRunning > 0 && t.running[queue] >= q.MaxRunning }
	var keyed time.Time // when the first job that its key kept is free of it
	alone := false      // only the rate of the queue kept a job
	next := 0           // index in got
	for _, j := range append(must, nil) {
		for next < len(got) && (j == nil || !before(m.standing(j), m.standing(m.jobs[got[next].State.ID])) || got[next].State.ID == j.spec.ID) {
			g := m.jobs[got[next].State.ID]
			if full(u.surely) {
				m.Fatalf("%s found job %s in queue %s, of which MaxRunning are held", call, g.spec.ID, queue)
			}
			if !m.fits(u.surely, &g.spec) {
				m.Fatalf("%s found job %s, for which its key or its pool has no room: %+v", call, g.spec.ID, g.spec)
			}
			if _, ok := m.rate(u.surely, queue); !ok {
				m.Fatalf("%s found job %s in queue %s, whose rate is used up", call, g.spec.ID, queue)
			}
			key := [2]string{queue, g.spec.LimitKey}
			if _, ok := m.keyRate(u.surely, key, weightOf(&g.spec)); !ok {
				m.Fatalf("%s found job %s, whose limit key %q has used up its rate", call, g.spec.ID, g.spec.LimitKey)
			}
			m.rate(u.possibly, queue)
			m.keyRate(u.possibly, key, weightOf(&g.spec))
			u.surely.add(q, &g.spec)
			u.possibly.add(q, &g.spec)
			next++
		}
		if j == nil || next > 0 && got[next-1].State.ID == j.spec.ID {
			continue
		}
		// A job that was not found needs a reason.
		if !m.fits(u.possibly, &j.spec) {
			m.happened("claim beside a limit")
			continue
		}
		if next == n || full(u.possibly) {
			if full(u.possibly) {
				m.happened("claim at MaxRunning")
			}
			if next < len(got) && (next == n || full(u.surely)) {
				m.Fatalf("%s found job %s, but not %s, which comes before it", call, got[next].State.ID, j.spec.ID)
			}
			continue
		}
		_, ok := m.rate(u.possibly.copyRate(queue), queue)
		if !ok {
			m.happened("claim at a rate")
		}
		free, allowed := m.keyRate(u.possibly, [2]string{queue, j.spec.LimitKey}, 0)
		if !allowed {
			m.happened("claim at the rate of a key")
			keyed = earliest(keyed, free)
		}
		if !ok || !allowed {
			blocked = true
			alone = alone || allowed
			continue
		}
		m.Fatalf("%s for %d found %d jobs in queue %s, but not %s (%s), which was claimable and within all limits",
			call, n, len(got), queue, j.spec.ID, j.s.Status)
	}
	if !alone {
		retry = keyed
	}
	if full(u.possibly) { // the end of a job counts then, not the time
		blocked = false
	}
	if at, ok := m.rate(u.possibly.copyRate(queue), queue); !ok && at.After(retry) {
		retry = at // also for a job that the store may see and the model does not
	}
	for key := range u.possibly.owed {
		if key[0] != queue {
			continue
		}
		if at, ok := m.keyRate(u.possibly, key, 0); !ok { // whichever of its jobs the claim may have
			*possible = append(*possible, at)
		}
	}
	return retry, blocked
}

// copyRate returns a copy with a rate that can be used without changing t.
func (t tallied) copyRate(queue string) tallied {
	t.due = map[string]time.Time{queue: t.due[queue]}
	return t
}

// comeback fails unless a claim returns when to retry if only a rate excluded a job.
func (m *model) comeback(c store.Claim, answer store.Claimed, sure time.Time, possible []time.Time) {
	at := answer.RetryAt
	switch {
	case at.IsZero():
		if !sure.IsZero() && len(answer.Jobs) < c.N {
			m.Fatalf("Claim got %d of %d jobs and is not told that a rate lets another through at %v", len(answer.Jobs), c.N, sure)
		}
	case len(answer.Jobs) == c.N || !slices.ContainsFunc(possible, at.Equal) || !sure.IsZero() && at.After(sure):
		m.Fatalf("Claim got %d of %d jobs and is told to come back at %v; want %v or, possibly, %v", len(answer.Jobs), c.N, at, sure, possible)
	default:
		m.happened("claim told to come back")
	}
}

// used counts a claimed job in the rate and the turns of its queue.
func (m *model) used(j *modelJob) {
	t := tallied{due: m.owed, owed: m.owedKeys}
	m.rate(t, j.spec.Queue)
	m.keyRate(t, [2]string{j.spec.Queue, j.spec.LimitKey}, weightOf(&j.spec))
	if at := (levelOf{j.spec.Queue, j.priority()}); j.s.Turn > m.turns[at] {
		m.turns[at] = j.s.Turn
	}
}

// levelOf is a priority level of a queue.
type levelOf struct {
	queue string
	level gq.Priority
}

// keyAt is a fair key at a level of a queue.
type keyAt struct {
	levelOf
	key string
}

func (j *modelJob) fairKey() keyAt { return keyAt{levelOf{j.spec.Queue, j.priority()}, j.spec.FairKey} }

// takesTurns checks the turns of new jobs: the turn being served, or the one after the
// key's own jobs.
func (m *model) takesTurns(made []*modelJob) {
	made = slices.Clone(made)
	slices.SortFunc(made, func(a, b *modelJob) int { return cmp.Compare(a.s.Turn, b.s.Turn) })
	for i, j := range made {
		if !m.queues[j.spec.Queue].Fair {
			if j.s.Turn != 0 {
				m.Fatalf("job %s of a queue that is not fair has turn %d", j.spec.ID, j.s.Turn)
			}
			continue
		}
		at := j.fairKey()
		live := uint64(0) // a store need not remember more after a restart
		for _, o := range m.jobs {
			mine := o.fairKey() == at && !slices.Contains(made[i:], o)
			if mine && (slices.Contains(made, o) || !o.terminal() && len(m.reachable(o)) == 1) {
				live = max(live, o.s.Turn)
			}
		}
		least, most := max(m.turns[at.levelOf], live+1), max(m.turns[at.levelOf], m.newest[at]+1)
		if j.s.Turn < least || j.s.Turn > most {
			m.Fatalf("job %s with fair key %q has turn %d, want %d to %d", j.spec.ID, j.spec.FairKey, j.s.Turn, least, most)
		}
		m.newest[at] = max(m.newest[at], j.s.Turn)
		m.happened("turn")
	}
}

// turned takes the turn of a job from the store. It may change only with the job's priority
// or the fairness of its queue.
func (m *model) turned(j *modelJob, got gq.State) {
	q := m.queues[j.spec.Queue]
	if got.Turn != j.s.Turn && !m.rearranged[q.Name] && !(j.relevelled && q.Fair) {
		m.Fatalf("job %s has turn %d, had %d", j.spec.ID, got.Turn, j.s.Turn)
	}
	if !j.terminal() && q.Fair == (got.Turn == 0) {
		m.Fatalf("job %s has turn %d in a queue that is fair: %t", j.spec.ID, got.Turn, q.Fair)
	}
	j.s.Turn, j.relevelled = got.Turn, false
	at := j.fairKey()
	m.newest[at] = max(m.newest[at], got.Turn)
}

// limit changes the limits of a queue that is being configured.
func (m *model) limit(r *rapid.T, q *gq.Queue) {
	q.KeyLimit = pick(r, "key limit", 0, 0, 1, 2)
	q.Fair = rapid.Bool().Draw(r, "fair")
	if rapid.Bool().Draw(r, "rated") {
		q.Rate = gq.Rate{Count: 1, Per: seconds(r, "per", 1, 4), Burst: pick(r, "burst", 0, 2)}
	}
	if chance(r, "rated keys", 2) {
		q.KeyRate = gq.Rate{Count: 1, Per: seconds(r, "per key", 1, 4), Burst: pick(r, "burst of a key", 0, 2, 3)}
	}
	if chance(r, "pooled", 3) {
		q.Pool = pick(r, "pool", "p", "r")
		capacity := pick[int64](r, "capacity", 3, 1, 6, 0)
		if _, known := m.pools[q.Pool]; !known || rapid.Bool().Draw(r, "new capacity") {
			m.ok("PutPool", m.s.PutPool(m.Context(), gq.Pool{Name: q.Pool, Capacity: capacity}))
			m.pools[q.Pool] = capacity
		}
	}
}

// configured records a queue's configuration.
func (m *model) configured(q gq.Queue) {
	if m.queues[q.Name].Fair != q.Fair {
		m.rearranged[q.Name] = true
		for at := range m.turns {
			if at.queue == q.Name {
				delete(m.turns, at)
			}
		}
		for at := range m.newest {
			if at.queue == q.Name {
				delete(m.newest, at)
			}
		}
		m.happened("rearranged")
	}
	m.queues[q.Name] = q
}
