package local

import (
	"context"
	"fmt"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/machine"
	"github.com/gopherqueue/gq/store"
)

// Now implements [store.Timekeeper].
func (s *Store) Now(ctx context.Context) (time.Time, error) {
	var now time.Time
	err := s.do(ctx, 1, func(tx *txn) { now = tx.now })
	if err != nil {
		return time.Time{}, err // the writer may still be setting the result
	}
	return now, nil
}

// Due implements [store.Store].
func (s *Store) Due(ctx context.Context, limit int) (store.Due, error) {
	var due store.Due
	err := s.do(ctx, 1, func(tx *txn) { due = tx.due(max(limit, 1)) })
	if err != nil {
		return store.Due{}, err // the writer may still be setting the result
	}
	return due, nil
}

// due merges the jobs that have become claimable with those that time changes in
// another way. A job may be among both; the earlier instant counts.
func (tx *txn) due(limit int) (due store.Due) {
	t, now := tx.t, tx.now.UnixNano()
	due.Now = tx.now
	t.promote(now)
	for len(t.promoted) > 0 && !t.unrecorded(t.promoted[0]) {
		t.promoted = t.promoted[1:]
	}
	ready, timed := t.promoted, t.toDue.walk()
	seen := map[*job]bool{}
	next := int64(0)
	for {
		d, ok := timed.peek()
		fromReady := len(ready) > 0 && (!ok || ready[0].before(d))
		if fromReady {
			d, ok = ready[0], true
		}
		if !ok {
			break
		}
		if !seen[d.job] && (!fromReady || t.unrecorded(d)) {
			if d.at > now || len(due.Jobs) == limit {
				next = d.at
				break
			}
			seen[d.job] = true
			due.Jobs = append(due.Jobs, d.job.id)
			for i := uint64(1); i <= uint64(d.job.rest) && next == 0; i++ { // folded jobs are due at the same time
				if len(due.Jobs) == limit {
					next = d.at
					break
				}
				p := d.job.record.pack
				seq := d.job.seq + i
				due.Jobs = append(due.Jobs, t.jobs.key.Restore(seq, t.random(p)[seq-p.first]))
			}
			if next != 0 {
				break
			}
		}
		if fromReady {
			ready = ready[1:]
		} else {
			timed.pop()
		}
	}
	for w := t.toRun.walk(); ; w.pop() {
		waiting, ok := w.peek()
		if !ok || next != 0 && waiting.at >= next {
			break
		}
		if !seen[waiting.job] {
			next = waiting.at
			break
		}
	}
	if next != 0 {
		due.Next = time.Unix(0, next).UTC()
	}
	return due
}

// unrecorded reports whether a promoted job is still claimable in memory only.
func (t *table) unrecorded(p timer) bool {
	j := p.job
	if !j.ready || j.open != nil || t.live(j.id) != j {
		return false
	}
	_, s, err := j.decode(t.intern)
	return err == nil && s.Status != gq.StatusScheduled && s.RunAt.UnixNano() == p.at
}

// ReleaseDependents implements [store.Store]. Every commit of this store updates up to
// releaseStep dependents, so there is rarely anything left.
func (s *Store) ReleaseDependents(ctx context.Context, limit int) (int, error) {
	told := 0
	err := s.do(ctx, 1, func(tx *txn) { told = tx.tell(max(limit, 1)) })
	if err != nil {
		return 0, err // the writer may still be setting the result
	}
	return told, nil
}

// releaseStep bounds how many dependents a commit updates without a caller.
const releaseStep = 1000

// tell updates up to limit dependents of ended jobs.
func (tx *txn) tell(limit int) (told int) {
	t := tx.t
	for len(t.ended) > 0 && told < limit {
		end := t.ended[0]
		kids := t.kids[end.seq]
		for len(kids) > 0 && told < limit {
			e := kids[0]
			kids[0] = edge{}
			kids = kids[1:]
			told++
			tx.remove(edgeKey(end.seq, e.child.seq, e.kind))
			if t.live(e.child.id) != e.child {
				continue // it has ended meanwhile
			}
			h, old := tx.load(e.child)
			next, events, err := machine.DependencyEnded(old, machine.EndedDependency{Kind: e.kind, Status: end.status, Priority: end.level}, tx.now)
			if err != nil {
				panic(fmt.Sprintf("local: dependency of job %s: %v", old.ID, err))
			}
			if tx.differs(e.child, h, &old, &next, events) {
				tx.save(e.child, h, &old, &next, events)
			}
		}
		if len(kids) > 0 {
			t.kids[end.seq] = kids
			return told
		}
		delete(t.kids, end.seq)
		t.ended = t.ended[1:]
		tx.remove(numberKey(prefixEnded, end.seq))
	}
	if len(t.ended) == 0 {
		t.ended = nil
	}
	return told
}
