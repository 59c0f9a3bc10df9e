package local

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/store"
)

// Update implements [store.Store].
func (s *Store) Update(ctx context.Context, updates []store.Update) ([]store.Updated, error) {
	out := make([]store.Updated, len(updates))
	err := s.inChunks(ctx, len(updates), func(i int) int {
		if out[i].Err = s.checkUpdate(&updates[i]); out[i].Err != nil {
			return 0
		}
		return 1 + (len(updates[i].Result)+len(updates[i].Checkpoint))>>10
	}, func(tx *txn, i int) {
		if out[i].Err == nil {
			out[i] = tx.update(&updates[i])
		}
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

func (s *Store) checkUpdate(u *store.Update) error {
	var faults []gq.Fault
	for _, blob := range []struct {
		field string
		size  int
		limit int
	}{
		{"result", len(u.Result), s.config.Limits.ResultBytes},
		{"checkpoint", len(u.Checkpoint), s.config.Limits.CheckpointBytes},
	} {
		if blob.size > blob.limit {
			faults = append(faults, gq.Fault{
				Field: blob.field, Problem: fmt.Sprintf("%d bytes are more than the limit of %d", blob.size, blob.limit),
			})
		}
	}
	if u.Metadata != nil {
		faults = append(faults, gq.FaultsOf(u.Metadata.Validate())...)
	}
	if len(faults) > 0 {
		return fmt.Errorf("update: %w", &gq.InvalidError{Faults: faults})
	}
	return nil
}

// update applies one change. Finished jobs are tried too: a verb may answer a
// repeated call there, but it can change nothing.
func (tx *txn) update(u *store.Update) store.Updated {
	j, done, err := tx.target(u.Ref)
	if err != nil {
		return store.Updated{Err: fmt.Errorf("update: %w", err)}
	}
	if j == nil {
		return tx.updateDone(u, done)
	}
	if err := tx.s.disk.room(forChanges); err != nil {
		return store.Updated{Err: fmt.Errorf("update: %w", err)}
	}
	h, old := tx.load(j)
	next, events, err := tx.try(u.Apply, old)
	if err != nil {
		return store.Updated{State: old, Err: err}
	}
	if u.Metadata != nil {
		h.flags |= flagMetadata
		raw, _ := u.Metadata.AppendBinary(nil) // never fails
		tx.put(prefixMetadata, j.seq, raw)
	}
	changed := tx.keep(j, h, &old, &next, events) || u.Metadata != nil
	if changed && u.Result != nil {
		tx.put(prefixResult, j.seq, u.Result)
	}
	if changed && u.Checkpoint != nil {
		tx.put(prefixCheckpoint, j.seq, u.Checkpoint)
	}
	return store.Updated{State: next, Changed: changed}
}

// try calls a caller's function. Its panic is the caller's error, not the end of
// the store.
func (tx *txn) try(apply store.Apply, s gq.State) (next gq.State, events []gq.Event, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("the function given to Update panicked: %v", r)
		}
	}()
	return apply(s, tx.now)
}

// keep writes a state if it differs from the one before.
func (tx *txn) keep(j *job, h header, old, next *gq.State, events []gq.Event) bool {
	if len(events) == 0 {
		before := j.record
		if j.open != nil {
			before = encodeRecord(nil, j.open.header, old)
		}
		tx.scratch = encodeRecord(tx.scratch[:0], h, next)
		if bytes.Equal(tx.scratch, before) {
			return false
		}
	}
	if next.ID != old.ID || next.Sequence != old.Sequence || next.Policy != old.Policy {
		panic(fmt.Sprintf("local: an update of job %s changed what never changes", old.ID))
	}
	tx.save(j, h, old, next, events)
	return true
}

// target finds the job of a reference: a live one, or the id of a finished one.
func (tx *txn) target(r store.Ref) (*job, gq.JobID, error) {
	if !r.Job.IsZero() {
		if j := tx.t.live(r.Job); j != nil {
			return j, gq.JobID{}, nil
		}
		return nil, r.Job, nil
	}
	j, done, err := tx.lookup(r.Lease)
	if errors.Is(err, gq.ErrNotFound) {
		return nil, gq.JobID{}, fmt.Errorf("no job has or had lease %.80q: %w", r.Lease, gq.ErrStaleLease)
	}
	return j, done, err
}

func (tx *txn) updateDone(u *store.Update, id gq.JobID) store.Updated {
	k, record, err := tx.ended(id)
	if err != nil {
		return store.Updated{Err: fmt.Errorf("update job %s: %w", id, err)}
	}
	_, old, err := decodeRecord(record, k.seq, tx.t.intern)
	if err != nil {
		return store.Updated{Err: err}
	}
	next, events, err := tx.try(u.Apply, old)
	if err != nil {
		return store.Updated{State: old, Err: err}
	}
	if len(events) > 0 {
		return store.Updated{State: old, Err: fmt.Errorf("update job %s, which is %s: %w", id, old.Status, gq.ErrIllegalMove)}
	}
	return store.Updated{State: next}
}

// Due implements [store.Store].
func (s *Store) Due(ctx context.Context, limit int) (store.Due, error) {
	var due store.Due
	err := s.do(ctx, 1, func(tx *txn) { due = tx.due(max(limit, 1)) })
	return due, err
}

func (tx *txn) due(limit int) (due store.Due) {
	t, now := tx.t, tx.now.UnixNano()
	// What only became claimable leaves the timers, and is listed first: its
	// time came before now like that of the others.
	for range promoteStep {
		next, ok := t.timers.next()
		if !ok || next.at > now {
			break
		}
		_, old := tx.load(next.job)
		if next.job.ready || !old.Claimable(tx.now) {
			break
		}
		t.promote(next.job, &old)
	}
	for range len(t.promoted) {
		if len(due.Jobs) == limit {
			break
		}
		j := t.promoted[0]
		t.promoted = t.promoted[1:]
		if t.unrecorded(j) { // stays listed until it is recorded
			t.promoted = append(t.promoted, j)
			due.Jobs = append(due.Jobs, j.id)
		}
	}
	for _, j := range t.timers.due(now, limit-len(due.Jobs)) {
		due.Jobs = append(due.Jobs, j.id)
	}
	if next, ok := t.timers.next(); ok {
		due.Next = time.Unix(0, max(next.at, now)).UTC()
	}
	if len(due.Jobs) > 0 {
		due.Next = tx.now
	}
	return due
}

// unrecorded reports whether a job is claimable in memory but not so recorded.
func (t *table) unrecorded(j *job) bool {
	return j.ready && t.live(j.id) == j && gq.Status(statusByte(j.record)) != gq.Scheduled
}

// Release implements [store.Store]. Every commit of this store tells some
// dependents by itself, so that there is rarely anything left.
func (s *Store) Release(ctx context.Context, limit int) (int, error) {
	told := 0
	err := s.do(ctx, 1, func(tx *txn) { told = tx.tell(max(limit, 1)) })
	return told, err
}

// releaseStep bounds how many dependents one commit tells without being asked.
const releaseStep = 1000

// tell informs up to limit dependents that a dependency has ended.
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
			tx.remove(edgeKey(end.seq, e.child.seq))
			if t.live(e.child.id) != e.child {
				continue // it has ended meanwhile
			}
			h, old := tx.load(e.child)
			next, events, err := old.DependencyEnded(gq.Ended{Kind: e.kind, Status: end.status, Priority: end.level}, tx.now)
			if err != nil {
				panic(fmt.Sprintf("local: dependency of job %s: %v", old.ID, err))
			}
			tx.keep(e.child, h, &old, &next, events)
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
