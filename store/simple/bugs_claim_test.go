package simple

import (
	"context"
	"maps"
	"runtime"
	"slices"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/machine"
	"github.com/gopherqueue/gq/store"
)

var claimBugs = []bug{
	found("a claim gets one job more than it asked for", "Claim/Number", func(p *planted) {
		p.asked(func(c *store.Claim) { c.N++ })
	}),
	missed("a claim is answered with leases that have almost run out", "Claim/Slow", func(p *planted) {
		p.rules.late = func([]store.Claimed, func(*gq.Lease) time.Time) []store.Update { return nil }
	}),
	found("claims are not written down", "Lease/Invisible", func(p *planted) {
		p.claims(func(c store.Claim, claim func(store.Claim) store.Claimed) store.Claimed {
			was := p.states()
			answer := claim(c)
			for _, got := range answer.Jobs {
				j := p.jobs[got.State.ID]
				p.replace(j, was[j])
			}
			return answer
		})
	}),
	found("claims are decided outside the lock", "Limit/OneWinner", func(p *planted) {
		p.on.Claim = func(ctx context.Context, claims []store.Claim) ([]store.Claimed, error) {
			seen := p.states()
			p.mu.Unlock()
			runtime.Gosched()
			p.mu.Lock()
			return each(claims, func(c store.Claim) (out store.Claimed, err error) {
				for j, was := range seen {
					if j.state.Status.Held() && !was.Status.Held() {
						p.replace(j, was)
					}
				}
				return one(ctx, p.Store.Claim, c, &err), err
			})
		}
	}),
	found("an expired lease holds until a sweep", "Lease/Expiry", func(p *planted) {
		p.claims(func(c store.Claim, claim func(store.Claim) store.Claimed) store.Claimed {
			now := p.nowLocked()
			defer p.jobsWith(func(s *gq.State) {
				if s.Status.Held() && s.Lease.Expired(now) {
					lease := *s.Lease
					lease.ExpiresAt, s.Lease = now.Add(time.Hour), &lease
				}
			})()
			return claim(c)
		})
	}),
	found("a delay lasts until a sweep", "Lease/RunTime Lease/RetryTime", func(p *planted) {
		p.rules.claimable = func(s *gq.State, now time.Time) bool {
			return s.Status == gq.StatusScheduled && machine.Claimable(s, now)
		}
	}),
	found("a delay ends 1 ns early", "Lease/RunTime Lease/RetryTime", func(p *planted) {
		p.rules.claimable = func(s *gq.State, now time.Time) bool { return machine.Claimable(s, now.Add(1)) }
		p.rules.claim = func(s gq.State, g machine.Grant, now time.Time) (gq.State, []gq.Event, error) {
			if !machine.Claimable(&s, now) {
				now = now.Add(1)
			}
			return machine.Claim(s, g, now)
		}
	}),
	found("a delay ends 1 ns late", "Lease/RunTime Lease/RetryTime", func(p *planted) {
		p.rules.claimable = func(s *gq.State, now time.Time) bool {
			return machine.Claimable(s, now) && (s.Status == gq.StatusScheduled || machine.Claimable(s, now.Add(-1)))
		}
	}),
	found("jobs are claimed past their lifetime", "Lease/Lifetime", func(p *planted) {
		endless := func(s gq.State) gq.State {
			policy := *s.Policy
			policy.Lifetime, policy.RunLifetime = 0, 0
			s.Policy = &policy
			return s
		}
		p.rules.claimable = func(s *gq.State, now time.Time) bool {
			e := endless(*s)
			return machine.Claimable(&e, now)
		}
		p.rules.claim = func(s gq.State, g machine.Grant, now time.Time) (gq.State, []gq.Event, error) {
			next, events, err := machine.Claim(endless(s), g, now)
			next.Policy = s.Policy
			return next, events, err
		}
	}),
	found("a paused queue goes on", "Limit/Paused", func(p *planted) {
		p.limited(func(q *gq.Queue) { q.Paused = false })
	}),

	// Order.
	found("jobs are served by id", "Claim/FIFO Claim/Priority", func(p *planted) {
		p.ordered(func(*gq.State) machine.OrderKey { return machine.OrderKey{} })
	}),
	found("a retried job goes to the end of its level", "Claim/RetryKeepsPlace", func(p *planted) {
		p.ordered(func(s *gq.State) machine.OrderKey {
			return machine.OrderKey{Hi: uint64(s.Priority())<<61 | uint64(s.RunAt.UnixNano()), Lo: s.Sequence}
		})
	}),
	found("the last job is served first", "Claim/FIFO", func(p *planted) {
		p.ordered(func(s *gq.State) machine.OrderKey {
			return machine.OrderKey{Hi: uint64(s.Priority()), Lo: ^s.Sequence}
		})
	}),
	found("levels are ignored", "Claim/Priority", func(p *planted) {
		p.ordered(func(s *gq.State) machine.OrderKey { return machine.OrderKey{Lo: s.Sequence} })
	}),
	found("inherited levels are ignored", "Graph/PriorityOrder", func(p *planted) {
		p.ordered(func(s *gq.State) machine.OrderKey { return machine.OrderKey{Hi: uint64(s.Own), Lo: s.Sequence} })
	}),
	found("jobs do not move up while they wait", "Aging/Overtakes Aging/Reopen", func(p *planted) {
		p.inOrderOf(func(s *gq.State) { s.Policy = nil })
	}),
	found("jobs move up before they may run", "Aging/Ready", func(p *planted) {
		p.inOrderOf(func(s *gq.State) { s.RunAt = s.CreatedAt })
	}),
	found("fair queues are served by submission", "Fair/Turns", func(p *planted) {
		p.inOrderOf(func(s *gq.State) { s.Turn = 0 })
	}),
	found("a retried job takes a later turn", "Fair/Retried", func(p *planted) {
		p.inOrderOf(func(s *gq.State) { s.Turn += 3 * uint64(s.Attempt) })
	}),
	found("a key that comes back is served at once", "Fair/Returns", func(p *planted) {
		p.specs(func(s *gq.Spec) {
			for _, j := range p.jobs {
				if j.spec.Queue == s.Queue && j.spec.FairKey == s.FairKey && j.state.Live() && !j.state.Status.Held() {
					return
				}
			}
			maps.DeleteFunc(p.newest, func(k turnKey, _ uint64) bool { return k.queue == s.Queue && k.key == s.FairKey })
		})
	}),
	found("a queue that is made fair leaves the jobs it has", "Fair/Changed", func(p *planted) {
		p.on.PutQueue = func(ctx context.Context, q gq.Queue) error {
			was, served, newest := p.states(), maps.Clone(p.served), maps.Clone(p.newest)
			err := p.Store.PutQueue(ctx, q)
			for j, s := range was {
				p.replace(j, s)
			}
			p.served, p.newest = served, newest
			return err
		}
	}),

	// Filters.
	found("types are ignored", "Filter/Types", func(p *planted) {
		p.asked(func(c *store.Claim) { c.Types = nil })
	}),
	found("one of the required capabilities is enough", "Filter/Capabilities", func(p *planted) {
		p.rules.selects = func(f store.Filter, s *gq.Spec) bool {
			if slices.ContainsFunc(s.Requires, func(c string) bool { return slices.Contains(f.Offers, c) }) {
				f.Offers = s.Requires
			}
			return f.Selects(s)
		}
	}),
	found("a cost must be below the largest, not at most it", "Filter/Cost", func(p *planted) {
		p.rules.selects = func(f store.Filter, s *gq.Spec) bool {
			return f.Selects(s) && (s.CostUnits == 0 || s.CostUnits != f.MaxCost)
		}
	}),

	// Leases.
	found("a reclaimed job keeps its lease id", "Lease/Expiry Lease/Tokens", func(p *planted) {
		p.granted(func(s *gq.State, g *machine.Grant) {
			if s.Lease != nil {
				g.Lease = s.Lease.ID
			}
		})
	}),
	found("every claim has version 1", "Lease/Expiry", func(p *planted) {
		p.granted(func(s *gq.State, _ *machine.Grant) { s.Version = 0 })
	}),
	found("the claim's TTL is ignored", "Lease/TTL", func(p *planted) {
		p.granted(func(_ *gq.State, g *machine.Grant) { g.TTL = 0 })
	}),
	found("a hold starts the job", "Lease/Hold", func(p *planted) {
		p.granted(func(_ *gq.State, g *machine.Grant) { g.Start = true })
	}),
	found("leases name the wrong worker", "Lease/Grant", func(p *planted) {
		p.granted(func(_ *gq.State, g *machine.Grant) { g.Worker = "worker" })
	}),
	found("leases occupy nothing", "Lease/Grant", func(p *planted) {
		p.granted(func(_ *gq.State, g *machine.Grant) { g.CostUnits = 0 })
	}),
	missed("the application's backoffs are not asked", "Lease/OwnBackoff", func(p *planted) {
		p.config.Backoffs = nil
	}),
	found("Peek claims", "Claim/Peek", func(p *planted) {
		p.on.Peek = func(ctx context.Context, f store.Filter, n int) ([]store.Found, error) {
			peeked, err := p.Store.Peek(ctx, f, n)
			if err == nil {
				_, err = p.Store.Claim(ctx, []store.Claim{{Filter: f, N: n, Worker: "peek"}})
			}
			return peeked, err
		}
	}),
	missed("every page of queues is the first", "Waiting/Pages", func(p *planted) {
		p.on.Waiting = func(ctx context.Context, prefix, _ string, limit int) ([]string, error) {
			return p.Store.Waiting(ctx, prefix, "", limit)
		}
	}),
}

var limitBugs = []bug{
	found("any number of jobs run at once", "Limit/MaxRunning", func(p *planted) {
		p.limited(func(q *gq.Queue) { q.MaxRunning = 0 })
	}),
	found("an expired lease occupies a place", "Limit/MaxRunningExpiry", func(p *planted) {
		p.asks(func(l *limits, j *job, ask func() verdict) verdict {
			expired := 0
			for h := range p.held {
				if h.spec.Queue == j.spec.Queue && h.state.Lease.Expired(l.now) {
					expired++
				}
			}
			l.running[j.spec.Queue] += expired
			defer func() { l.running[j.spec.Queue] -= expired }()
			return ask()
		})
	}),
	found("a claim does not see what it has taken itself", "KeyLimit/Held Pool/Capacity Limit/MaxRunning", func(p *planted) {
		p.asks(func(l *limits, j *job, ask func() verdict) verdict {
			running, keys, used := maps.Clone(l.running), maps.Clone(l.keys), maps.Clone(l.used)
			defer func() { l.running, l.keys, l.used = running, keys, used }()
			return ask()
		})
	}),
	found("Peek ignores limits", "KeyLimit/Peek", func(p *planted) {
		p.on.Peek = func(ctx context.Context, f store.Filter, n int) ([]store.Found, error) {
			defer p.queuesWith(func(q *gq.Queue) { *q = gq.Queue{Name: q.Name, Paused: q.Paused} })()
			return p.Store.Peek(ctx, f, n)
		}
	}),

	// Keys.
	found("any number of jobs of one key run at once", "KeyLimit/Held", func(p *planted) {
		p.asks(func(l *limits, j *job, ask func() verdict) verdict {
			held := l.keys[keyOf(j)]
			delete(l.keys, keyOf(j))
			defer func() { l.keys[keyOf(j)] += held }()
			return ask()
		})
	}),
	found("jobs without a limit key share one", "KeyLimit/None", func(p *planted) {
		p.asks(func(l *limits, j *job, ask func() verdict) verdict {
			if limit := p.queues[j.spec.Queue].KeyLimit; j.spec.LimitKey == "" && limit > 0 && l.keys[keyOf(j)] >= limit {
				return pass
			}
			return ask()
		})
	}),
	found("a key without a free place holds up its queue", "KeyLimit/Others", func(p *planted) {
		p.asks(func(l *limits, j *job, ask func() verdict) verdict {
			if limit, _ := p.keyLimits(keyOf(j)); limit > 0 && l.keys[keyOf(j)] >= limit {
				return stop
			}
			return ask()
		})
	}),
	found("a limit key is one in all queues", "KeyLimit/Queues", func(p *planted) {
		p.asks(func(l *limits, j *job, ask func() verdict) verdict {
			others := 0
			for k, n := range l.keys {
				if k.key == j.spec.LimitKey && k.queue != j.spec.Queue {
					others += n
				}
			}
			l.keys[keyOf(j)] += others
			defer func() { l.keys[keyOf(j)] -= others }()
			return ask()
		})
	}),
	found("all keys have the queue's limits", "OwnKey/Limits OwnKey/Alone", func(p *planted) {
		p.claims(func(c store.Claim, claim func(store.Claim) store.Claimed) store.Claimed {
			own := p.ownKeys
			p.ownKeys = make(map[limitKey]gq.QueueKey)
			defer func() { p.ownKeys = own }()
			return claim(c)
		})
	}),
	missed("any limits of a key are accepted", "OwnKey/Faults", func(p *planted) {
		p.on.PutKey = func(ctx context.Context, k gq.QueueKey) error {
			if machine.CheckQueueKey(k) != nil {
				return nil
			}
			return p.Store.PutKey(ctx, k)
		}
	}),

	// Pools.
	found("any cost fits into a pool", "Pool/Capacity", func(p *planted) {
		p.asks(func(_ *limits, j *job, ask func() verdict) verdict {
			q := p.queues[j.spec.Queue]
			defer func() { p.queues[q.Name] = q }()
			boundless := q
			boundless.Pool = ""
			p.queues[q.Name] = boundless
			return ask()
		})
	}),
	found("each queue has its pool for itself", "Pool/Capacity", func(p *planted) {
		var of *limits
		var used map[string]int64 // by queue, of one claim
		p.asks(func(l *limits, j *job, ask func() verdict) verdict {
			if of != l {
				of, used = l, make(map[string]int64)
				for h := range p.held {
					if !h.state.Lease.Expired(l.now) && machine.CountsInPool(p.poolOf(h), h.state.Status) {
						used[h.spec.Queue] += h.spec.CostUnits
					}
				}
			}
			pool := p.queues[j.spec.Queue].Pool
			all := l.used[pool]
			l.used[pool] = used[j.spec.Queue]
			v := ask()
			used[j.spec.Queue], l.used[pool] = l.used[pool], all+l.used[pool]-used[j.spec.Queue]
			return v
		})
	}),
	found("a job that does not fit holds up its queue", "Pool/Behind", func(p *planted) {
		p.asks(func(l *limits, j *job, ask func() verdict) verdict {
			pool := p.poolOf(j)
			pool.Used = l.used[pool.Name]
			if pool.Name != "" && machine.CountsInPool(pool, l.into) && machine.AdmitToPool(pool, j.spec.CostUnits) != nil {
				return stop
			}
			return ask()
		})
	}),
	found("a job that costs nothing waits for room", "Pool/Capacity", func(p *planted) {
		p.asks(func(l *limits, j *job, ask func() verdict) verdict {
			if pool := p.poolOf(j); machine.CountsInPool(pool, l.into) && j.spec.CostUnits == 0 && l.used[pool.Name] >= pool.Capacity {
				return pass
			}
			return ask()
		})
	}),
	missed("what is held occupies any pool", "Pool/AtStart Pool/Used", func(p *planted) {
		p.rules.occupies = func(pool gq.Pool, s gq.Status) bool { return s == gq.StatusClaimed || machine.CountsInPool(pool, s) }
	}),
	missed("a start needs no room", "Pool/AtStart Pool/AtStartConcurrent", func(p *planted) {
		p.updates(func(u store.Update, update func(store.Update) store.Updated) store.Updated {
			pools := maps.Clone(p.pools)
			defer func() { p.pools = pools }()
			for name, pool := range pools {
				pool.Capacity = gq.MaxCapacity
				p.pools[name] = pool
			}
			return update(u)
		})
	}),
	missed("what is in use of a pool is not told", "Pool/Used", func(p *planted) {
		p.on.Pools = func(ctx context.Context) ([]gq.Pool, error) {
			pools, err := p.Store.Pools(ctx)
			for i := range pools {
				pools[i].Used = 0
			}
			return pools, err
		}
	}),
	missed("a queue may name a pool that does not exist", "Pool/Unknown", func(p *planted) {
		p.on.PutQueue = func(ctx context.Context, q gq.Queue) error {
			if _, ok := p.pools[q.Pool]; !ok && q.Pool != "" {
				p.pools[q.Pool] = gq.Pool{Name: q.Pool}
				defer delete(p.pools, q.Pool)
			}
			return p.Store.PutQueue(ctx, q)
		}
	}),
	missed("a change of a queue undoes another", "Queues/Changed", func(p *planted) {
		p.on.PutQueue = func(ctx context.Context, q gq.Queue) error {
			q.UpdatedAt = time.Time{}
			return p.Store.PutQueue(ctx, q)
		}
	}),
	missed("queues are not validated", "Queues/Invalid", func(p *planted) {
		p.on.PutQueue = func(ctx context.Context, q gq.Queue) error {
			if machine.CheckQueue(q) != nil {
				return nil
			}
			return p.Store.PutQueue(ctx, q)
		}
	}),

	// Rates.
	found("claims come as they like", "Rate/Claims", func(p *planted) {
		p.limited(func(q *gq.Queue) { q.Rate = gq.Rate{} })
	}),
	found("a claim that a rate refused does not say until when", "Rate/RetryAt", func(p *planted) {
		p.claims(func(c store.Claim, claim func(store.Claim) store.Claimed) store.Claimed {
			answer := claim(c)
			answer.RetryAt = time.Time{}
			return answer
		})
	}),
	missed("of two rates the last is named", "Rate/Queues", func(p *planted) {
		p.asks(func(l *limits, j *job, ask func() verdict) verdict {
			v := ask()
			if at := machine.RateAt(p.queues[j.spec.Queue].Rate, l.rates[j.spec.Queue], l.now); v == stop && at.After(l.now) {
				l.retryAt = at
			}
			return v
		})
	}),
	missed("a claim does not say that the rate of a key kept jobs from it", "KeyRate/Tells", func(p *planted) {
		p.claims(func(c store.Claim, claim func(store.Claim) store.Claimed) store.Claimed {
			answer := claim(c)
			answer.KeyRate = false
			return answer
		})
	}),
	found("claims of a key come as they like", "KeyRate/Claims", func(p *planted) {
		p.limited(func(q *gq.Queue) { q.KeyRate = gq.Rate{} })
	}),
	found("every job takes one unit of its key's rate", "KeyRate/Weight", func(p *planted) {
		p.asks(func(_ *limits, j *job, ask func() verdict) verdict {
			weight := j.spec.Weight
			j.spec.Weight = 0
			defer func() { j.spec.Weight = weight }()
			return ask()
		})
	}),
	found("a key whose rate is used up holds up its queue", "KeyRate/Claims KeyRate/Filter", func(p *planted) {
		p.asks(func(l *limits, _ *job, ask func() verdict) verdict {
			before := l.keyRate
			l.keyRate = false
			v := ask()
			if l.keyRate {
				v = stop
			}
			l.keyRate = l.keyRate || before
			return v
		})
	}),
	missed("a new rate leaves what keys owe", "KeyRate/Changed", func(p *planted) {
		keep := func(put func() error) error {
			owed := maps.Clone(p.owed)
			defer func() { p.owed = owed }()
			return put()
		}
		p.on.PutQueue = func(ctx context.Context, q gq.Queue) error {
			return keep(func() error { return p.Store.PutQueue(ctx, q) })
		}
		p.on.PutKey = func(ctx context.Context, k gq.QueueKey) error {
			return keep(func() error { return p.Store.PutKey(ctx, k) })
		}
	}),
}

// ordered serves jobs in another order.
func (p *planted) ordered(order func(*gq.State) machine.OrderKey) { p.rules.order = order }

// inOrderOf serves jobs as if their states were others.
func (p *planted) inOrderOf(change func(*gq.State)) {
	p.ordered(func(s *gq.State) machine.OrderKey {
		other := *s
		change(&other)
		return machine.Order(&other)
	})
}

// asks has f decide whether a claim may have a job; f may call ask.
func (p *planted) asks(f func(l *limits, j *job, ask func() verdict) verdict) {
	p.rules.ask = func(l *limits, j *job) verdict {
		return f(l, j, func() verdict { return l.ask(j) })
	}
}

func keyOf(j *job) limitKey { return limitKey{j.spec.Queue, j.spec.LimitKey} }

// poolOf returns the pool of a job's queue, empty for none.
func (p *planted) poolOf(j *job) gq.Pool { return p.pools[p.queues[j.spec.Queue].Pool] }
