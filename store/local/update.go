package local

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/store"
	"github.com/gopherqueue/gq/store/codec"
)

// Update implements [store.Store].
func (s *Store) Update(ctx context.Context, updates []store.Update) ([]store.Updated, error) {
	c := newUpdating(s, updates)
	if err := s.inChunks(ctx, len(updates), c); err != nil {
		return nil, err
	}
	store.OwnUpdated(c.out)
	return c.out, nil
}

// updating is one call of Update.
type updating struct {
	s       *Store
	updates []store.Update
	out     []store.Updated
}

func newUpdating(s *Store, updates []store.Update) *updating {
	if len(updates) != 1 {
		return &updating{s, updates, make([]store.Updated, len(updates))}
	}
	var one struct { // a single allocation
		updating
		out [1]store.Updated
	}
	one.updating = updating{s, updates, one.out[:]}
	return &one.updating
}

func (c *updating) weigh(i int) int {
	u := &c.updates[i]
	if c.out[i].Err = c.s.checkUpdate(u); c.out[i].Err != nil {
		return 0
	}
	weight := 1 + (len(u.Result)+len(u.Checkpoint))>>10
	if len(u.Spawn) > 0 {
		weight += groupWeight(store.Group{Jobs: u.Spawn})
	}
	return weight
}

func (c *updating) apply(tx *txn, i int) {
	if c.out[i].Err == nil {
		tx.update(&c.updates[i], &c.out[i], false)
	}
}

func (s *Store) checkUpdate(u *store.Update) error {
	if err := store.CheckUpdate(u, s.config.Limits, s.config.Retention); err != nil {
		return err
	}
	return nil
}

// update applies one change, if the disk has room for it; hasRoom says that this was
// checked. It also tries finished jobs: a function may answer a repeated call, but
// cannot change them.
func (tx *txn) update(u *store.Update, out *store.Updated, hasRoom bool) {
	j, done, err := tx.target(u.Ref)
	if err != nil {
		out.Err = err
		return
	}
	if j == nil {
		*out = tx.updateDone(u, done)
		return
	}
	if !hasRoom {
		if err := tx.s.fits(forChanges, tx.size()+len(u.Result)+len(u.Checkpoint)); err != nil {
			out.Err = err
			return
		}
	}
	was := tx.look(j)
	h, old := was.header, &was.state
	if err := u.Authorized(j.bucket.queueName, old); err != nil {
		out.Err = err
		return
	}
	next, events, err := tx.try(u.Apply, old)
	if err != nil {
		out.State, out.Err = *old, err
		return
	}
	if !tx.differs(j, h, old, &next, events) {
		out.State = next
		return
	}
	if j.lacksRoom(old.Status, next.Status) {
		kept := *old // makeRoom uses look for other jobs
		old = &kept
		if err := tx.makeRoom(j); err != nil {
			out.State, out.Err = *old, fmt.Errorf("job %s: %w", j.id, err)
			return
		}
	}
	if len(u.Spawn) > 0 {
		was, will := *old, next // copies: the job changes before its children are added
		*out = tx.updateAndSpawn(u, spawner{j, &was, &will}, h, events)
		return
	}
	tx.replace(u, j, h, old, &next, events)
	out.State, out.Changed = next, true
}

// updateAndSpawn changes a job and adds its children, or does neither.
func (tx *txn) updateAndSpawn(u *store.Update, b spawner, h header, events []gq.Event) store.Updated {
	children := store.Group{Jobs: u.Spawn, Mint: u.Mint, Authorize: u.Authorize}
	encoded := make([][]byte, len(u.Spawn))
	encodeSpecs(encoded, children)
	p, err := tx.checkInsert(children, encoded, make([]store.Placed, len(u.Spawn)), &b)
	if err != nil {
		return store.Updated{State: *b.old, Err: err}
	}
	tx.replace(u, b.job, h, b.old, b.next, events)
	tx.admit(p)
	for i := range p.placed {
		if p.placed[i].State.ID == b.job.id { // the job's own key equals its child's
			p.placed[i].State = *b.next
		}
	}
	return store.Updated{State: *b.next, Changed: true, Spawned: p.placed}
}

// replace writes an update's new values and the new state.
func (tx *txn) replace(u *store.Update, j *job, h header, old, next *gq.State, events []gq.Event) {
	if u.Metadata != nil {
		raw, _ := codec.AppendMetadata(*u.Metadata, nil) // never fails
		h.flags |= flagMetadata
		tx.put(prefixMetadata, j.seq, raw)
	}
	if u.Result != nil {
		h.flags |= flagResult
		tx.put(prefixResult, j.seq, u.Result)
	}
	if u.Checkpoint != nil {
		h.flags |= flagCheckpoint
		tx.put(prefixCheckpoint, j.seq, u.Checkpoint)
	}
	tx.save(j, h, old, next, events)
}

// try calls a caller's function. A panic, or the state of another job, is the caller's
// error and does not fail the store.
func (tx *txn) try(apply store.Apply, s *gq.State) (next gq.State, events []gq.Event, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("the function given to Update panicked: %v", r)
		}
	}()
	if next, events, err = apply(*s, tx.now); err == nil && (next.ID != s.ID || next.Sequence != s.Sequence || !samePolicy(next.Policy, s.Policy)) {
		return *s, nil, fmt.Errorf("job %s: the function given to Update changed what never changes", s.ID)
	}
	next.Policy = s.Policy // not a copy that the caller may write to
	return next, events, err
}

func samePolicy(a, b *gq.Policy) bool { return a == b || a != nil && *a == *b }

// differs reports whether a function changed anything.
func (tx *txn) differs(j *job, h header, old, next *gq.State, events []gq.Event) bool {
	if len(events) > 0 {
		return true
	}
	tx.scratch = encodeRecord(tx.scratch[:0], h, old)
	before := len(tx.scratch)
	tx.scratch = encodeRecord(tx.scratch, h, next)
	return !bytes.Equal(tx.scratch[:before], tx.scratch[before:])
}

// target finds the referenced job: a live one, or the id of a finished one.
func (tx *txn) target(r store.Ref) (*job, gq.JobID, error) {
	if !r.Job.IsZero() {
		if j := tx.t.live(r.Job); j != nil {
			return j, gq.JobID{}, nil
		}
		return nil, r.Job, nil
	}
	j, done, err := tx.lookup(r.Lease)
	if errors.Is(err, gq.ErrNotFound) {
		return nil, gq.JobID{}, store.UnknownLease(r.Lease)
	}
	return j, done, err
}

func (tx *txn) updateDone(u *store.Update, id gq.JobID) store.Updated {
	k, record, err := tx.ended(id)
	if err != nil {
		return store.Updated{Err: fmt.Errorf("job %s: %w", id, err)}
	}
	_, old, err := decodeRecord(record, k.seq, tx.t.intern)
	if err != nil {
		return store.Updated{Err: err}
	}
	if err := u.Authorized(tx.t.numbers[k.queue].config.Name, &old); err != nil {
		return store.Updated{Err: err}
	}
	next, events, err := tx.try(u.Apply, &old)
	if err != nil {
		return store.Updated{State: old, Err: err}
	}
	if len(events) > 0 {
		return store.Updated{State: old, Err: gq.ErrIllegalMove.Errorf("job %s is already %s", id, old.Status)}
	}
	return store.Updated{State: next}
}
