package postgres

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/machine"
)

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
