package postgres

import (
	"context"
	"fmt"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/store"
)

// A claim waits for locked jobs that it might get, because this store's transactions end
// soon. An application's transaction may not: in each round the claim looks for other
// jobs, and in the end it returns fewer jobs and a time at which to look again.
const (
	maxRounds = 10
	awaitWait = "; SET LOCAL lock_timeout = '250ms'"
	lookAgain = time.Second
)

// want is a claim, or several claims that ask for the same, with the jobs it got so far.
type want struct {
	store.Claim
	shares    []share   // the claims in their order; N is the sum of their numbers
	jobs      []gq.Job  // in the order of the shares
	round     []gq.Job  // jobs of the transaction under way
	asked     time.Time // when the time of its leases was read, by the local clock
	retry     time.Time // when another claim may get more jobs; zero if not known
	unlimited bool      // no queue had a limit in the last round
	keyRate   bool      // the rate of a limit key kept jobs from the last round
	waited    int64     // the earliest time at which a job of the round was due before its claim; 0 for none
}

// share is one of the claims of a want.
type share struct {
	index  int // among the claims
	n      int
	worker string
}

// workerOf is the worker that gets the nth job.
func (w *want) workerOf(n int) string {
	for _, s := range w.shares {
		if n < s.n {
			return s.worker
		}
		n -= s.n
	}
	panic("postgres: a claim got more jobs than it asked for")
}

// wantsOf merges claims that differ only in the worker and the number of jobs. So many
// callers that claim one job each cost as much as one caller that claims many.
func wantsOf(claims []store.Claim) []*want {
	var wants []*want
	known := make(map[string]*want)
	for i, c := range claims {
		key := fmt.Sprintf("%q %q %q %d %t %d %d %d", c.Queues, c.Types, c.Offers, c.MaxCost, c.Hold, c.TTL, c.DefaultTTL, c.Parts)
		w := known[key]
		if w == nil {
			w = &want{Claim: c}
			w.N = 0
			known[key] = w
			wants = append(wants, w)
		}
		w.N += c.N
		w.shares = append(w.shares, share{i, c.N, c.Worker})
	}
	return wants
}

// into is the status of the jobs that it claims.
func (w *want) into() gq.Status {
	if w.Hold {
		return gq.StatusClaimed
	}
	return gq.StatusRunning
}

func (w *want) missing() int { return w.N - len(w.jobs) - len(w.round) }

// Claim implements [store.Store].
func (s *Store) Claim(ctx context.Context, claims []store.Claim) ([]store.Claimed, error) {
	if err := s.enter(); err != nil {
		return nil, err
	}
	defer s.leave()
	out := make([]store.Claimed, len(claims))
	var sound []int
	var asked []store.Claim
	for i := range claims {
		if err := store.CheckClaim(claims[i]); err != nil {
			out[i].Err = err
			continue
		}
		sound, asked = append(sound, i), append(asked, claims[i])
	}
	if len(sound) == 0 {
		return out, nil
	}
	answers, err := s.claims.do(ctx, asked)
	if err != nil {
		return nil, err
	}
	for k, i := range sound {
		out[i] = answers[k]
	}
	return out, nil
}

// claim serves valid claims. If a later round fails it still returns the jobs of earlier
// rounds, because their leases are granted and nobody else knows them.
func (s *Store) claim(ctx context.Context, claims []store.Claim, alone bool) ([]store.Claimed, error) {
	wants := wantsOf(claims)
	if alone && len(wants) > 1 {
		return s.claimApart(ctx, claims, wants), nil
	}
	begin := s.begins.shared
	if alone {
		begin = s.begins.write + awaitWait
	}
	locked := false
	granted := make(grantTimes)
	for range maxRounds {
		var passed []int64
		err := s.transact(ctx, begin, func(tx *txn) error {
			var err error
			passed, err = tx.claim(ctx, wants)
			return err
		})
		if locked = alone && held(err); locked { // the lock on a queue timed out
			continue
		}
		some := slices.ContainsFunc(wants, func(w *want) bool { return len(w.jobs) > 0 })
		if err != nil && !some {
			return nil, err
		}
		if locked = err != nil; locked {
			break
		}
		for _, w := range wants {
			s.floors.passWant(w)
			for i := range w.round {
				granted.note(w.round[i].State.Lease, w.asked)
			}
			w.jobs, w.round = append(w.jobs, w.round...), nil
		}
		if locked = len(passed) > 0; !locked {
			break
		}
		patience := patienceOf(wants, granted)
		if patience <= 0 {
			break
		}
		err = s.await(ctx, passed, begin+waitAtMost(patience))
		some = slices.ContainsFunc(wants, func(w *want) bool { return len(w.jobs) > 0 })
		patient := alone && held(err) && !some
		if err != nil && !patient && !some {
			return nil, err
		}
		if err != nil && !patient {
			break
		}
	}
	if locked {
		at := instant(s.latest.Load()).Add(lookAgain)
		for _, w := range wants {
			if w.retry.IsZero() || at.Before(w.retry) {
				w.retry = at
			}
		}
	}
	out := make([]store.Claimed, len(claims))
	for _, w := range wants {
		jobs := w.jobs
		for _, share := range w.shares {
			n := min(share.n, len(jobs))
			if out[share.index].Jobs, jobs = jobs[:n:n], jobs[n:]; n < share.n {
				out[share.index].RetryAt, out[share.index].KeyRate = w.retry, w.keyRate
			}
			out[share.index].Unlimited = w.unlimited
		}
	}
	s.dropLate(out, granted)
	return out, nil
}

// grantTimes tells when the time of a lease was read, by the local clock. Its keys are the
// times themselves, which the leases of a transaction share.
type grantTimes map[int64]time.Time

func (g grantTimes) note(l *gq.Lease, asked time.Time) {
	at := l.GrantedAt.UnixNano()
	if known, ok := g[at]; !ok || asked.Before(known) {
		g[at] = asked
	}
}

func (g grantTimes) age(l *gq.Lease, now time.Time) time.Duration {
	return now.Sub(g[l.GrantedAt.UnixNano()])
}

// patienceOf is how long a claim may wait for more jobs: a tenth of the shortest lease
// that it has got, counted from the start of that lease. Without any lease there is no
// limit.
func patienceOf(wants []*want, granted grantTimes) time.Duration {
	now := time.Now()
	patience := time.Duration(math.MaxInt64)
	for _, w := range wants {
		for i := range w.jobs {
			l := w.jobs[i].State.Lease
			patience = min(patience, l.ExpiresAt.Sub(l.GrantedAt)/10-granted.age(l, now))
		}
	}
	return patience
}

// waitAtMost shortens a transaction's lock timeout to d if d is less than lockWait.
func waitAtMost(d time.Duration) string {
	const shortest = 50 * time.Millisecond // lockWait
	if d >= shortest {
		return ""
	}
	return fmt.Sprintf("; SET LOCAL lock_timeout = '%dms'", max(d.Milliseconds(), 1))
}

// dropLate releases jobs whose leases have too little time left, because an earlier round
// claimed them long ago or because the commit was slow.
func (s *Store) dropLate(answers []store.Claimed, granted grantTimes) {
	ours := time.Now()
	now := func(l *gq.Lease) time.Time { return l.GrantedAt.Add(granted.age(l, ours)) }
	if s.cfg.Clock != nil {
		known := instant(s.known())
		now = func(*gq.Lease) time.Time { return known }
	}
	back := store.Late(answers, now)
	if len(back) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), resolveWithin)
	defer cancel()
	_, _ = s.update(ctx, back, false) // if this fails their leases will expire
}

// claimApart serves the different claims of one call concurrently, so that none waits for
// a lock that only another one needs.
func (s *Store) claimApart(ctx context.Context, claims []store.Claim, wants []*want) []store.Claimed {
	out := make([]store.Claimed, len(claims))
	var all sync.WaitGroup
	for _, w := range wants {
		all.Go(func() {
			same := make([]store.Claim, len(w.shares))
			for i, share := range w.shares {
				same[i] = claims[share.index]
			}
			got, err := s.claim(ctx, same, true)
			for i, share := range w.shares {
				if err != nil {
					out[share.index].Err = err
				} else {
					out[share.index] = got[i]
				}
			}
		})
	}
	all.Wait()
	return out
}

// await waits until the transaction that has locked the first of these jobs ends, or
// until begin's lock timeout. It holds no locks meanwhile, so nobody can wait for it.
func (s *Store) await(ctx context.Context, jobs []int64, begin string) error {
	return s.transact(ctx, begin, func(tx *txn) error {
		var batch pgx.Batch
		blocks, masks := numbersIn(jobs[:1]).arrays()
		for _, table := range []string{"gq.ready", "gq.held"} {
			batch.Queue("SELECT FROM "+rowsWith(table, "FOR UPDATE"), blocks, masks)
		}
		return tx.SendBatch(ctx, &batch).Close()
	})
}
