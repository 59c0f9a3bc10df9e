package postgres

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
	err := s.write(ctx, "update", func(tx *txn) error {
		ids, err := tx.resolve(ctx, updates)
		if err != nil {
			return err
		}
		rows, err := tx.lock(ctx, ids, "UPDATE")
		if err != nil {
			return err
		}
		if err := tx.stamp(ctx); err != nil {
			return err
		}
		known := byJob(rows)
		written := make(map[blobKey][]byte)
		for i := range updates {
			out[i] = tx.update(&updates[i], ids[i], known, written)
		}
		var b blobs
		for key, data := range written {
			b.add(key.job, key.part, data)
		}
		b.write(&tx.more)
		return tx.flush(ctx)
	})
	if err != nil {
		return nil, err
	}
	for i := range out {
		if out[i].Err != nil {
			out[i].Err = fmt.Errorf("update: %w", out[i].Err)
		}
	}
	return out, nil
}

// resolve finds the job that each update names; zero where there is none.
func (tx *txn) resolve(ctx context.Context, updates []store.Update) ([][16]byte, error) {
	refs := make([]store.Ref, len(updates))
	for i := range updates {
		refs[i] = updates[i].Ref
	}
	return tx.jobIDs(ctx, refs)
}

func (tx *txn) jobIDs(ctx context.Context, refs []store.Ref) ([][16]byte, error) {
	var leases []string
	for _, r := range refs {
		if r.Job.IsZero() {
			leases = append(leases, string(r.Lease))
		}
	}
	jobs, err := tx.jobsOf(ctx, storable(leases))
	if err != nil {
		return nil, err
	}
	ids := make([][16]byte, len(refs))
	for i, r := range refs {
		ids[i] = r.Job
		if r.Job.IsZero() {
			ids[i] = jobs[r.Lease]
		}
	}
	return ids, nil
}

type blobKey struct {
	job  gq.JobID
	part int16
}

// update applies one function to the row as the updates before have left it.
func (tx *txn) update(u *store.Update, id gq.JobID, rows map[gq.JobID]*row, written map[blobKey][]byte) store.Updated {
	if err := tx.s.checkUpdate(u); err != nil {
		return store.Updated{Err: err}
	}
	r, ok := rows[id]
	switch {
	case !ok && u.Job.IsZero():
		return store.Updated{Err: fmt.Errorf("no job has or had lease %.80q: %w", u.Lease, gq.ErrStaleLease)}
	case !ok:
		return store.Updated{Err: fmt.Errorf("job %s: %w", id, gq.ErrNotFound)}
	}
	old := r.state
	next, events, err := try(u.Apply, old, tx.now)
	if err != nil {
		return store.Updated{State: old, Err: err}
	}
	if next.ID != old.ID || next.Sequence != old.Sequence || *next.Policy != *old.Policy {
		return store.Updated{State: old, Err: fmt.Errorf("job %s: the function changed what never changes", id)}
	}
	changed, err := differ(old, next)
	if err != nil {
		return store.Updated{State: old, Err: err}
	}
	changed = changed || len(events) > 0
	switch {
	case !old.Live() && changed:
		return store.Updated{State: old, Err: fmt.Errorf("job %s is %s: %w", id, old.Status, gq.ErrIllegalMove)}
	case !old.Live():
		return store.Updated{State: old} // the answer to a repeated call; its blobs are there
	case !changed:
		return store.Updated{State: next} // likewise: a blob must not follow a call that was answered before
	}
	tx.record(r, next, events)
	keep := func(part int16, data []byte) {
		written[blobKey{id, part}] = data
	}
	if u.Metadata != nil {
		raw, err := u.Metadata.AppendBinary(nil)
		if err != nil {
			return store.Updated{State: old, Err: err}
		}
		keep(partMetadata, raw)
	}
	if u.Result != nil {
		keep(partResult, u.Result)
	}
	if u.Checkpoint != nil {
		keep(partCheckpoint, u.Checkpoint)
	}
	return store.Updated{State: next, Changed: true}
}

// try calls a caller's function. Its panic is the error of the item.
func try(apply store.Apply, s gq.State, now time.Time) (next gq.State, events []gq.Event, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("the function given to Update panicked: %v", r)
		}
	}()
	return apply(s, now)
}

// differ compares what would be stored.
func differ(a, b gq.State) (bool, error) {
	before, err := a.AppendBinary(nil)
	if err != nil {
		return false, err
	}
	after, err := b.AppendBinary(nil)
	return !bytes.Equal(before, after), err
}

// checkUpdate reports everything that is wrong with what is stored beside the
// state.
func (s *Store) checkUpdate(u *store.Update) error {
	var faults []gq.Fault
	limit := func(field string, data []byte, most int) {
		if len(data) > most {
			faults = append(faults, gq.Fault{
				Field: field, Problem: fmt.Sprintf("%d bytes are more than the limit of %d", len(data), most),
			})
		}
	}
	limit("result", u.Result, s.cfg.Limits.ResultBytes)
	limit("checkpoint", u.Checkpoint, s.cfg.Limits.CheckpointBytes)
	if u.Metadata != nil {
		faults = append(faults, gq.FaultsOf(u.Metadata.Validate())...)
	}
	if u.Apply == nil {
		return errors.New("no function to apply")
	}
	if len(faults) > 0 {
		return &gq.InvalidError{Faults: faults}
	}
	return nil
}
