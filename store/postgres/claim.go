package postgres

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/machine"
	"github.com/gopherqueue/gq/store"
)

// candidatesOf selects the jobs of bands that a claim may get, as far as the columns can
// tell. It reads one band after the other along the index ready_claim, each from its
// floor. The gaps are for the outer and inner columns, the time, another condition, and the
// locking clause.
//
// It must be executed exactly once, so it is a statement of its own or an ARRAY subquery.
// As part of a join it could be executed again and lock more rows than its limit.
const candidatesOf = `
	SELECT %s
	FROM unnest($1::text[], $2::smallint[]) AS n (queue, band) ` + beginnings + `
	CROSS JOIN LATERAL (
		SELECT %s
		FROM gq.ready AS s
		WHERE ` + claimable + `
			AND (s.status = 3 OR s.run_at <= %s)` + selected + `%s
		ORDER BY s.order_hi, s.order_lo
		LIMIT $8
		%s
	) AS s
	LIMIT $8`

// selected are the conditions of a claim's filter and of the limits of keys and pools.
const selected = `
			AND (cardinality($4::text[]) = 0 OR s.type = ANY ($4))
			AND (s.requires IS NULL OR s.requires <@ $5::text[])
			AND ($6::bigint < 0 OR s.cost <= $6)
			AND (s.limited IS NULL OR s.limited <> ALL ($7::text[]))`

// overdueOf selects overdue held jobs of queues, along the index held_due, in any order.
// No queue may be named twice. The gaps are for the time and the locking clause.
const overdueOf = `
	SELECT ` + columns + `
	FROM (SELECT unnest($1::text[]) AS queue, 0::smallint AS band) AS n ` + beginnings + `
	CROSS JOIN LATERAL (
		SELECT ` + columns + `
		FROM gq.held AS s
		WHERE ` + leased + ` AND s.due <= %s
		LIMIT $3
		%s
	) AS s
	LIMIT $3`

// skipping locks the rows that a query finds and skips those that others have locked.
const skipping = "FOR UPDATE SKIP LOCKED"

// notAside excludes jobs whose key has used up its rate. It is a subquery that reads one row
// for each job of a key. The gap is for the time.
const notAside = `
			AND (s.limited IS NULL OR (
				SELECT k.aside AND k.free > %s FROM gq.limit_key AS k WHERE k.queue = s.queue AND k.key = s.limited
			) IS NOT TRUE)`

// asideOf selects, in any order, the candidates that were set aside: see keys_aside.go. It has the
// parameters of candidatesOf. The gap is for another condition.
const asideOf = `
	SELECT ` + readyColumns + `
	FROM gq.ready AS s
	WHERE s.queue = ANY ($1::text[]) AND $2::smallint[] IS NOT NULL AND s.aside IS NOT NULL` + selected + `%s
	LIMIT $8`

var (
	candidates     = fmt.Sprintf(candidatesOf, columns, readyColumns, "$3", "", "")
	lockCandidates = fmt.Sprintf(candidatesOf, columns, readyColumns, "$3", "", skipping)

	ratedCandidates     = fmt.Sprintf(candidatesOf, columns, readyColumns, "$3", fmt.Sprintf(notAside, "$3"), "")
	lockRatedCandidates = fmt.Sprintf(candidatesOf, columns, readyColumns, "$3", fmt.Sprintf(notAside, "$3"), skipping)
	asideCandidates     = fmt.Sprintf(asideOf, fmt.Sprintf(notAside, "$3"))
	overdue             = fmt.Sprintf(overdueOf, "$2", "")
	lockOverdue         = fmt.Sprintf(overdueOf, "$2", skipping)
)

// levels lists the bands of queues in the order in which claims serve them.
func levels(names ...string) (queues []string, bands []int16) {
	for _, name := range names {
		for p := gq.PriorityCritical; p <= gq.PriorityBulk; p++ {
			queues, bands = append(queues, name), append(bands, int16(p))
		}
	}
	return queues, bands
}

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
		return nil, fmt.Errorf("claim: %w", err)
	}
	defer s.leave()
	out := make([]store.Claimed, len(claims))
	var sound []int
	var asked []store.Claim
	for i := range claims {
		if err := store.CheckClaim(claims[i]); err != nil {
			out[i].Err = fmt.Errorf("claim: %w", err)
			continue
		}
		sound, asked = append(sound, i), append(asked, claims[i])
	}
	if len(sound) == 0 {
		return out, nil
	}
	answers, err := s.claims.do(ctx, asked)
	if err != nil {
		return nil, fmt.Errorf("claim: %w", err)
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
		err := s.transact(ctx, "write", begin, func(tx *txn) error {
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
					out[share.index].Err = fmt.Errorf("claim: %w", err)
				} else {
					out[share.index] = got[i]
				}
			}
		})
	}
	all.Wait()
	return out
}

// claim serves claims without waiting for rows of jobs. If a claim is short of jobs, it
// also returns jobs that may be claimable but that others have locked.
func (tx *txn) claim(ctx context.Context, wants []*want) (passed []int64, err error) {
	if len(wants) == 0 {
		return nil, nil
	}
	var names []string
	for _, w := range wants {
		w.round, w.retry, w.keyRate, w.waited = nil, time.Time{}, false, 0
		names = append(names, w.Queues...)
	}
	names = distinct(names)
	if w := wants[0]; len(wants) == 1 && !slices.ContainsFunc(names, tx.s.limits(w)) && (len(w.Types) == 0 || len(storable(w.Types)) > 0) {
		if passed, done, err := tx.claimFast(ctx, w, names); err != nil || done {
			w.unlimited = err == nil && !slices.ContainsFunc(names, tx.s.limited.has)
			return passed, err
		}
	}
	uncounted, err := tx.uncounted(ctx, wants)
	if err != nil {
		return nil, err
	}
	queues, err := tx.lockQueues(ctx, names, func(q gq.Queue) bool {
		if uncounted[q.Name] {
			q.Pool = ""
		}
		return limited(q)
	})
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		q := queues[name]
		tx.s.limited.learn(name, q.Paused || limited(q))
		tx.s.rated.learn(name, ratesOnly(q))
		if uncounted[name] {
			q.Pool = ""
			tx.s.uncounted.learn(name, !q.Paused && !limited(q))
		}
	}
	for _, w := range wants {
		w.unlimited = !slices.ContainsFunc(w.Queues, tx.s.limited.has)
	}
	for name := range uncounted {
		if q, ok := queues[name]; ok {
			q.Pool = ""
			queues[name] = q
		}
	}
	sharing, err := tx.lockPools(ctx, queues)
	if err != nil {
		return nil, err
	}
	tx.s.notifier.learn(sharing)
	// Jobs selected by this time are checked again once they are locked.
	if err := tx.readClock(ctx); err != nil {
		return nil, err
	}
	if err := tx.reclaim(ctx, distinct(slices.Concat(names, sharing))); err != nil {
		return nil, err
	}
	passed, err = tx.serveAll(ctx, wants, queues, &limits{tx: tx, locked: true})
	if err == nil && slices.ContainsFunc(wants, func(w *want) bool { return w.missing() > 0 }) {
		late, err := numbersOf(tx.scanRows(tx.Query(ctx, overdue, names, nanoseconds(tx.now), 1)))
		return append(passed, late...), err
	}
	return passed, err
}

// serveAll claims jobs from queues whose limits are locked. If a claim is short of jobs, it returns
// jobs that it may have skipped because others have locked them.
func (tx *txn) serveAll(ctx context.Context, wants []*want, queues map[string]gq.Queue, limits *limits) (passed []int64, err error) {
	for _, w := range wants {
		var short []int64
		for _, name := range w.Queues {
			q, configured := queues[name]
			if !configured {
				q = machine.NewQueue(name)
			}
			more, err := tx.serve(ctx, w, q, limits)
			if err != nil {
				return nil, err
			}
			short = slices.Concat(short, more)
		}
		if w.missing() > 0 {
			passed = append(passed, short...)
		}
	}
	limits.write()
	return passed, tx.flush(ctx)
}

// reclaimStep limits how many leases one statement takes back.
const reclaimStep = 1000

// reclaim takes back expired leases of queues, except of jobs that others have locked.
func (tx *txn) reclaim(ctx context.Context, queues []string) error {
	for {
		rows, err := tx.scanRows(tx.Query(ctx, lockOverdue, queues, nanoseconds(tx.now), reclaimStep))
		if err != nil {
			return err
		}
		if len(rows) > 0 {
			if _, err := tx.stamp(ctx, 0); err != nil {
				return err
			}
		}
		for _, r := range rows {
			if err := tx.advance(r); err != nil {
				return err
			}
		}
		if err := tx.flush(ctx); err != nil {
			return err
		}
		if len(rows) < reclaimStep {
			return nil
		}
	}
}

// advance applies the passage of time to a locked job that is due.
func (tx *txn) advance(r *row) error {
	next, events, err := machine.Advance(r.state, tx.draw(), tx.now)
	if err != nil {
		return err
	}
	if len(events) == 0 {
		return fmt.Errorf("job %s is due and time has nothing to do for it: %w", r.state.ID, gq.ErrCorrupt)
	}
	tx.record(r, next, events)
	return nil
}

func (tx *txn) draw() machine.Draw { return tx.s.cfg.Draw(rand.Float64()) }

func numbersOf(rows []*row, err error) ([]int64, error) { return sequencesOf(rows), err }

// serve claims jobs from one queue. If the claim is short of jobs, it returns one that it
// may have skipped because others have locked it.
func (tx *txn) serve(ctx context.Context, w *want, q gq.Queue, limits *limits) (passed []int64, err error) {
	types, offers := storable(w.Types), storable(w.Offers)
	if q.Paused || len(w.Types) > 0 && len(types) == 0 {
		return nil, nil
	}
	l, err := limits.of(ctx, q)
	if err != nil {
		return nil, err
	}
	lock, look := lockCandidates, candidates
	if ratesKeys(&q) {
		lock, look = lockRatedCandidates, ratedCandidates
		if err := tx.showFreed(ctx, l); err != nil {
			return nil, err
		}
		l.skips = true
	}
	for {
		room, err := tx.room(ctx, q, w.missing())
		if err != nil || room <= 0 {
			return nil, err
		}
		queues, bands := levels(q.Name)
		args := []any{queues, bands, nanoseconds(tx.now), types, offers, l.afford(w.MaxCost, w.into()), l.full(), room}
		rows, err := tx.scanRows(tx.Query(ctx, lock, args...))
		if err != nil {
			return nil, err
		}
		if len(rows) > 0 {
			if more, err := tx.grant(ctx, w, rows, l); err != nil || !more {
				return nil, err
			}
		}
		if len(rows) < room && w.missing() > 0 { // others have locked the rest, if there is any
			if ratesKeys(&q) {
				if err := tx.retryKeys(ctx, w, limits, nanoseconds(tx.now), q.Name); err != nil {
					return nil, err
				}
			}
			args[5], args[6], args[7] = l.afford(w.MaxCost, w.into()), l.full(), 1
			return numbersOf(tx.scanRows(tx.Query(ctx, look, args...)))
		}
	}
}

// grant claims locked jobs, as far as the limits of their queue allow, and reports
// whether they allow more. A job that is past its lifetime ends instead.
func (tx *txn) grant(ctx context.Context, w *want, rows []*row, l *queueLimits) (more bool, err error) {
	granted := rows[:0:0]
	more = true
	var blobs found
	var batch pgx.Batch
	queueBlobs(&batch, sequencesOf(rows), w.Parts, &blobs)
	if ratesKeys(&l.config) {
		names, err := limitKeys(rows)
		if err != nil {
			return false, err
		}
		l.queueKeys(&batch, names)
	}
	batch.Queue(stamps, 0).QueryRow(func(row pgx.Row) error {
		_, err := tx.stampFrom(row)
		return err
	})
	if w.round == nil { // the first of a round; later leases begin later
		w.asked = time.Now()
	}
	if err := tx.SendBatch(ctx, &batch).Close(); err != nil {
		return false, err
	}
	for _, r := range rows {
		if !machine.Claimable(&r.state, tx.now) {
			if err := tx.advance(r); err != nil {
				return false, err
			}
			continue
		}
		spec, err := r.specOf()
		if err != nil {
			return false, err
		}
		if !l.fits(spec, w.into()) || !l.allows(spec, tx.now) {
			continue
		}
		if at, ok := l.pace(tx.now); !ok {
			if w.retry.IsZero() || at.Before(w.retry) {
				w.retry = at
			}
			more = false
			break
		}
		l.useKey(spec, tx.now)
		l.take(spec, &r.state, w.into())
		if err := tx.lease(w, r, spec.CostUnits, len(granted)); err != nil {
			return false, err
		}
		granted = append(granted, r)
	}
	if err := tx.flush(ctx); err != nil {
		return false, err
	}
	jobs, err := blobs.assemble(granted, w.Parts)
	w.round = append(w.round, jobs...)
	return more, err
}

// lease claims a locked job, the nth of this grant.
func (tx *txn) lease(w *want, r *row, cost int64, nth int) error {
	next, events, err := machine.Claim(r.state, machine.Grant{
		Lease: mintLease(r.state.Sequence, random()), Worker: w.workerOf(len(w.jobs) + len(w.round) + nth), Start: !w.Hold, TTL: w.TTL, DefaultTTL: w.DefaultTTL, CostUnits: cost,
	}, tx.now)
	if err != nil {
		return err
	}
	if due := nanoseconds(machine.Due(&r.state)); due != 0 && (w.waited == 0 || due < w.waited) {
		w.waited = due
	}
	tx.record(r, next, events)
	return nil
}

// room is how many more jobs of a queue may be held, up to n. A claim must have locked
// the queue if it has a limit.
func (tx *txn) room(ctx context.Context, q gq.Queue, n int) (int, error) {
	if q.MaxRunning == 0 || n <= 0 {
		return n, nil
	}
	var held int
	err := tx.QueryRow(ctx,
		"SELECT coalesce(sum(jobs), 0)::bigint FROM "+tally+" WHERE queue = $1 AND status IN (4, 5)", q.Name).Scan(&held)
	return min(n, q.MaxRunning-held), err
}

// await waits until the transaction that has locked the first of these jobs ends, or
// until begin's lock timeout. It holds no locks meanwhile, so nobody can wait for it.
func (s *Store) await(ctx context.Context, jobs []int64, begin string) error {
	return s.transact(ctx, "write", begin, func(tx *txn) error {
		var batch pgx.Batch
		blocks, masks := numbersIn(jobs[:1]).arrays()
		for _, table := range []string{"gq.ready", "gq.held"} {
			batch.Queue("SELECT FROM "+rowsWith(table, "FOR UPDATE"), blocks, masks)
		}
		return tx.SendBatch(ctx, &batch).Close()
	})
}
