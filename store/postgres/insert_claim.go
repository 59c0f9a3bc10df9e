package postgres

import (
	"bytes"
	"context"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/machine"
	"github.com/gopherqueue/gq/store"
)

// A job that a claim waits for is inserted as held by it, in one commit of two round trips:
// the first asks whether anything precedes the job or limits its queue, and takes the number
// and the time; the second writes.

// canClaim reports whether insertClaimed may be tried: for one job of its own that may run at
// once, in a queue that has no limit as far as this node knows.
func (tx *txn) canClaim(groups []store.Group) bool {
	if !tx.shared || tx.careful || len(groups) != 1 || groups[0].Claim == nil || len(groups[0].Jobs) != 1 || !groups[0].Mint {
		return false
	}
	spec, claim := &groups[0].Jobs[0], groups[0].Claim
	if locks(spec) || spec.Gate != 0 || spec.Delay != 0 || !spec.RunAt.IsZero() || spec.Queue == matchingQueue || !claim.Selects(spec) {
		return false
	}
	return tx.s.registry.admits(spec.Queue) && !slices.ContainsFunc(claim.Queues, func(name string) bool {
		return tx.s.guarded.has(name) || tx.s.limited.has(name)
	})
}

// insertClaimed inserts a job that its claim gets, or does nothing. w is the claim.
func (tx *txn) insertClaimed(ctx context.Context, g store.Group, w *want) (out []store.Inserted, done bool, err error) {
	var (
		batch   pgx.Batch
		queues  map[string]gq.Queue
		numbers []int64
		late    bool
		other   *int64
		names   = distinct(w.Queues)
		args    = append(w.fastArgs(names, tx.s.known(), 1), tx.s.cfg.Clock == nil, names, 1)
	)
	batch.Queue(fastStamp, args...).QueryRow(func(row pgx.Row) (err error) {
		var configs []byte
		if numbers, err = tx.stampFrom(row, &configs, &late, &other); err == nil {
			queues, err = queuesOf(configs)
		}
		return err
	})
	w.asked = time.Now()
	if err := tx.SendBatch(ctx, &batch).Close(); err != nil {
		return nil, false, err
	}
	if late || other != nil {
		return nil, false, nil
	}
	for name, q := range queues {
		if bound := q.Paused || limited(q); bound || guarded(q) || reported(q) {
			tx.s.limited.learn(name, bound)
			tx.s.guarded.learn(name, guarded(q) || reported(q))
			return nil, false, nil
		}
	}
	p := tx.work.plan(1, tx.s.ids)
	p.now, p.numbers, p.book, p.answers = tx.now, numbers, newBook(), make([]store.Placed, 0, 1)
	out = []store.Inserted{p.place(g)}
	if out[0].Err != nil {
		return out, true, nil
	}
	b := &p.insertions[0]
	r, spec := b.row, &g.Jobs[0]
	if !machine.Claimable(&r.state, tx.now) {
		return out, true, tx.add(ctx, p)
	}
	next, events, err := machine.Claim(r.state, machine.Grant{
		Lease: mintLease(r.state.Sequence, random()), Worker: w.workerOf(0), Start: !w.Hold, TTL: w.TTL, DefaultTTL: w.DefaultTTL, CostUnits: spec.CostUnits,
	}, tx.now)
	if err != nil {
		return out, true, tx.add(ctx, p) // the job is fine without its claim
	}
	// The spec stays the caller's: the claimed job is made of a copy.
	body, err := appendBody(nil, spec)
	if err != nil {
		return nil, false, err
	}
	claimed, err := found(nil).assemble([]*row{{body: body, state: next}}, w.Parts)
	if err != nil {
		return nil, false, err
	}
	if isApart(spec) && w.Parts&gq.WithPayload != 0 {
		claimed[0].Spec.Payload.Data = bytes.Clone(spec.Payload.Data)
	}
	r.state, b.events = next, append(b.events, events...)
	if err := tx.add(ctx, p); err != nil {
		return nil, false, err
	}
	if tx.committed {
		tx.remember(r)
	}
	w.round = claimed
	return out, true, nil
}

// handOver answers the claim of a group, once its job is committed.
func (s *Store) handOver(out []store.Inserted, w *want) {
	if len(w.round) == 0 {
		return
	}
	s.floors.passWant(w)
	answer := []store.Claimed{{Jobs: w.round, Unlimited: true}}
	granted := make(grantTimes)
	granted.note(w.round[0].State.Lease, w.asked)
	s.dropLate(answer, granted)
	out[0].Claimed = &answer[0]
}
