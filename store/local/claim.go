package local

import (
	"context"
	"fmt"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/internal/wake"
	"github.com/gopherqueue/gq/machine"
	"github.com/gopherqueue/gq/store"
)

// Claim implements [store.Store].
func (s *Store) Claim(ctx context.Context, claims []store.Claim) ([]store.Claimed, error) {
	if !s.reading() { // for the whole call: payloads are read after the commit
		return nil, s.failure()
	}
	defer s.reads.Done()
	c := newClaiming(s, claims)
	if err := s.inChunks(ctx, len(claims), c); err != nil {
		return nil, err
	}
	return c.answers(ctx)
}

// answers completes the answers of claims that were committed.
func (c *claiming) answers(ctx context.Context) ([]store.Claimed, error) {
	for i := range c.claims {
		store.OwnJobs(c.out[i].Jobs)
		for k := range c.out[i].Jobs {
			if err := c.s.assemble(&c.out[i].Jobs[k], c.extras[i][k], c.claims[i].Parts); err != nil {
				return nil, err
			}
		}
	}
	c.s.dropLate(ctx, c.out)
	return c.out, nil
}

// dropLate releases jobs whose leases a slow commit has mostly used up.
func (s *Store) dropLate(ctx context.Context, answers []store.Claimed) {
	now := s.config.Clock.Now()
	s.giveBack(ctx, store.Late(answers, func(*gq.Lease) time.Time { return now }))
}

// release releases jobs whose claim has failed.
func (s *Store) release(ctx context.Context, jobs []gq.Job) {
	back := make([]store.Update, len(jobs))
	for i := range jobs {
		back[i] = store.GiveBack(&jobs[i].State, "claim failed")
	}
	s.giveBack(ctx, back)
}

func (s *Store) giveBack(ctx context.Context, back []store.Update) {
	if len(back) == 0 {
		return
	}
	if _, err := s.Update(context.WithoutCancel(ctx), back); err != nil {
		s.log.Warn("give back jobs of a claim that failed or took too long; their leases will expire", "dir", s.dir, "jobs", len(back), "error", err)
	}
}

// claiming is one call of Claim.
type claiming struct {
	s      *Store
	claims []store.Claim
	out    []store.Claimed
	extras [][]jobExtras // records of the claimed jobs
}

func newClaiming(s *Store, claims []store.Claim) *claiming {
	if len(claims) != 1 {
		return &claiming{s, claims, make([]store.Claimed, len(claims)), make([][]jobExtras, len(claims))}
	}
	var one struct { // a single allocation
		claiming
		out    [1]store.Claimed
		extras [1][]jobExtras
	}
	one.claiming = claiming{s, claims, one.out[:], one.extras[:]}
	return &one.claiming
}

func (c *claiming) weigh(i int) int {
	if err := store.CheckClaim(c.claims[i]); err != nil {
		c.out[i].Err = err
		return 0
	}
	// Allocated in the caller's goroutine: the writer is shared by all callers.
	n := min(int64(c.claims[i].N), max(c.s.claimable.Load(), 1))
	c.out[i].Jobs, c.extras[i] = make([]gq.Job, 0, n), make([]jobExtras, 0, n)
	return c.claims[i].N
}

func (c *claiming) apply(tx *txn, i int) {
	out := &c.out[i]
	if out.Err != nil {
		return
	}
	if err := tx.s.fits(forChanges, tx.size()); err != nil {
		out.Err = err
		return
	}
	c.extras[i] = tx.claim(&c.claims[i], out, c.extras[i])
}

// claim claims up to N jobs. weigh sized out.Jobs and extras.
func (tx *txn) claim(c *store.Claim, out *store.Claimed, extras []jobExtras) []jobExtras {
	tx.catchUp()
	jobs, retry, keyRate := out.Jobs, time.Time{}, false
	into := gq.StatusRunning
	if c.Hold {
		into = gq.StatusClaimed
	}
	for _, name := range c.Queues {
		q := tx.t.queues[name]
		if q == nil || q.config.Paused {
			continue
		}
		tx.t.free(q, tx.now.UnixNano())
		for len(jobs) < c.N {
			if limit := q.config.MaxRunning; limit > 0 && q.held() >= int64(limit) {
				break
			}
			j := q.pick(&c.Filter, into)
			if j == nil {
				retry, keyRate = q.freeAt(retry), keyRate || q.hasAside()
				break
			}
			if j.limit != nil && !tx.allow(j.limit) {
				continue
			}
			if rate := q.config.Rate; rate.Limited() {
				due, ok := machine.TakeRate(rate, q.due, tx.now)
				if !ok {
					retry = wake.Earlier(retry, machine.RateAt(rate, q.due, tx.now))
					break
				}
				q.due = due
				tx.paced(q)
			}
			tx.t.passOn(j)
			was := tx.look(j)
			h, old := was.header, &was.state
			if k := j.limit; k != nil {
				if tx.use(k, h.keys); k.due != 0 {
					tx.owe(k)
				}
			}
			grant := machine.Grant{
				Lease:  mintLease(j.seq, [2]uint64{tx.s.random.Uint64(), tx.s.random.Uint64()}),
				Worker: c.Worker, Start: !c.Hold, TTL: c.TTL, DefaultTTL: c.DefaultTTL, CostUnits: j.cost, Events: tx.noted[:0],
			}
			next, events, err := machine.Claim(*old, grant, tx.now)
			if err != nil {
				panic(fmt.Sprintf("local: claim of ready job %s: %v", j.id, err))
			}
			tx.noted = events
			extras = append(extras, jobExtras{h.flags, tx.takeSpec(j), j.bucket})
			tx.save(j, h, old, &next, events)
			tx.serve(q, &next)
			if n := len(jobs); n < cap(jobs) {
				jobs = jobs[:n+1] // already zero
			} else {
				jobs = append(jobs, gq.Job{})
			}
			jobs[len(jobs)-1].State = next
		}
	}
	if out.Jobs = jobs; len(jobs) < c.N {
		out.RetryAt, out.KeyRate = retry, keyRate
	}
	return extras
}

// advanceStep limits how many due jobs one claim advances.
const advanceStep = 2_000

// catchUp advances due jobs, so that a claim sees every job whose run time has come or
// whose lease has expired.
func (tx *txn) catchUp() {
	t, now := tx.t, tx.now.UnixNano()
	for range advanceStep {
		next, ok := t.toDue.next()
		if !ok || next.at > now {
			break
		}
		h, old := tx.load(next.job)
		tx.advance(next.job, h, old)
	}
	tx.forgetKeys()
	t.promote(now)
}

// advance applies [machine.Advance] to a due job.
func (tx *txn) advance(j *job, h header, old gq.State) {
	next, events, err := machine.Advance(old, tx.draw(), tx.now)
	if err != nil {
		panic(fmt.Sprintf("local: advance job %s: %v", j.id, err))
	}
	if len(events) == 0 {
		panic(fmt.Sprintf("local: job %s is due at %v and time has nothing to do for it", j.id, tx.now))
	}
	tx.save(j, h, &old, &next, events)
}

func (tx *txn) draw() machine.Draw {
	return tx.s.config.Draw(float64(tx.s.random.Uint64()>>11) / (1 << 53))
}
