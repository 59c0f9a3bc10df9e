package postgres

import (
	"context"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/machine"
	"github.com/gopherqueue/gq/store"
)

// followTails makes the new jobs of a group wait for the tails of their order keys, and adds the
// tails of the keys that the group leaves. prepare has locked the keys and their tails.
func (p *plan) followTails(g *store.Group, members []member, keys map[gq.IdempotencyKey]holder) map[gq.IdempotencyKey]holder {
	after := store.FollowTails(g.Jobs,
		func(i int) bool { return members[i].existing.IsZero() },
		func(s *gq.Spec) gq.JobID {
			h, found := p.keys[store.OrderKeyOf(s)]
			if !found || !p.stateOf(h.job).Live() {
				return gq.JobID{}
			}
			return h.job
		})
	for i := range g.Jobs {
		if g.Jobs[i].OrderKey == "" || !members[i].existing.IsZero() {
			continue
		}
		if after != nil {
			members[i].deps = store.Ordered(members[i].deps, after[i])
		}
		if keys == nil {
			keys = make(map[gq.IdempotencyKey]holder)
		}
		keys[store.OrderKeyOf(&g.Jobs[i])] = holder{job: g.Jobs[i].ID}
	}
	return keys
}

// replaceable refuses to replace a job that has an order key.
func (p *plan) replaceable(id gq.JobID) error {
	spec, err := p.specOf(id)
	if err != nil {
		return err
	}
	return machine.CheckReplaced(spec)
}

// specOf returns the spec of a job that exists or that this plan inserts.
func (p *plan) specOf(id gq.JobID) (*gq.Spec, error) {
	if made := p.insertion(id); made != nil {
		return made.spec, nil
	}
	return p.found[id].specOf()
}

// stepOut queues what the end of a job changes in the line of its order key. If it ended before
// it was its turn, the job behind it waits for the one ahead of it instead, which is also the
// tail if there is none behind. The lock on the ended job keeps both from changing meanwhile:
// adding a job behind it and telling it that the one ahead has ended need it too.
func (tx *txn) stepOut(old *gq.State) {
	if old.OrderedAfter.IsZero() || old.Status != gq.StatusPending {
		return
	}
	tx.more.Queue(`
		WITH ahead AS (
			DELETE FROM gq.edge WHERE child = $1 AND kind = $2 RETURNING parent
		), tail AS (
			UPDATE gq.idempotency SET seq = ahead.parent FROM ahead WHERE seq = $1 AND get_byte(scope, 0) = 0
		)
		UPDATE gq.edge AS e SET parent = ahead.parent FROM ahead WHERE e.parent = $1 AND e.kind = $2`,
		int64(old.Sequence), int16(machine.DependencyOrder))
}

// lockTails completes the tails of order keys, for which the rows of their jobs are locked: a
// row of gq.idempotency has only the number of the job, and while this transaction waited for
// the lock, a tail may have ended before its turn, so that the one ahead of it is the tail.
func (tx *txn) lockTails(ctx context.Context, keys map[gq.IdempotencyKey]holder, rows []*row, strength string) ([]*row, error) {
	known := make(map[int64]*row, len(rows))
	for _, r := range rows {
		known[int64(r.state.Sequence)] = r
	}
	for key, h := range keys {
		if key.Scope[0] != 0 {
			continue
		}
		for known[h.seq] != nil && !known[h.seq].state.Live() && !known[h.seq].state.OrderedAfter.IsZero() && known[h.seq].state.Version == 0 {
			var seq int64
			err := tx.QueryRow(ctx, "SELECT seq FROM gq.idempotency WHERE scope = $1 AND name = $2", []byte(key.Scope), []byte(key.Name)).Scan(&seq)
			if err != nil {
				return nil, err
			}
			if seq == h.seq {
				break
			}
			if h.seq = seq; known[seq] == nil {
				more, err := tx.lock(ctx, []int64{seq}, strength)
				if err != nil {
					return nil, err
				}
				for _, r := range more {
					known[seq], rows = r, append(rows, r)
				}
			}
		}
		if r := known[h.seq]; r != nil {
			h.job = r.state.ID
		}
		keys[key] = h
	}
	return rows, nil
}
