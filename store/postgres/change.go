package postgres

import (
	"context"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/store"
)

var _ store.Changer = (*Store)(nil)

// Change implements [store.Changer]. It uses one transaction and rolls it back if any
// part is refused.
func (s *Store) Change(ctx context.Context, c store.Change) (out store.Changed, err error) {
	if err := s.checkChange(c); err != nil {
		return out, err
	}
	err = s.write(ctx, func(tx *txn) error {
		out, err = tx.change(ctx, c)
		return err
	})
	return owned(out, err)
}

func (s *Store) checkChange(c store.Change) error {
	if err := store.CheckChange(c); err != nil {
		return err
	}
	if len(c.Insert) > 0 {
		if err := s.checkGroup(store.Group{Jobs: c.Insert}); err != nil {
			return &store.ChangeError{Update: store.Inserting, Err: err}
		}
	}
	return nil
}

// owned is the answer to a change, whose states the caller owns.
func owned(out store.Changed, err error) (store.Changed, error) {
	if err != nil {
		return store.Changed{}, err
	}
	for i := range out.States {
		store.Own(&out.States[i])
	}
	store.OwnPlaced(out.Placed)
	return out, nil
}

// change makes a valid change, except that an error leaves part of it.
func (tx *txn) change(ctx context.Context, c store.Change) (store.Changed, error) {
	out, err := tx.changeStored(ctx, c)
	if err != nil {
		return out, err
	}
	if len(c.Events) == 0 {
		return out, nil
	}
	if err := tx.readClock(ctx); err != nil {
		return out, err
	}
	for i := range c.Events {
		tx.events.add(c.Events[i].Queue, "", &c.Events[i])
	}
	return out, tx.flush(ctx)
}

// changeStored makes all of a change but its events.
func (tx *txn) changeStored(ctx context.Context, c store.Change) (out store.Changed, err error) {
	if len(c.Updates) > 0 {
		if out.States, err = tx.changeJobs(ctx, c); err != nil {
			return out, err
		}
	}
	var p *plan
	group := store.Group{Jobs: c.Insert}
	if len(c.Insert) > 0 {
		if p, _, err = tx.prepare(ctx, []store.Group{group}, nil); err != nil {
			return out, err
		}
	}
	if len(c.Docs) > 0 {
		if err := tx.lockDocs(ctx, c.Docs); err != nil {
			return out, err
		}
		if err := tx.checkVersions(ctx, c.Docs); err != nil {
			return out, err
		}
	}
	if p != nil {
		placed := p.place(group)
		if placed.Err != nil {
			return out, &store.ChangeError{Update: store.Inserting, Err: placed.Err}
		}
		out.Placed = placed.Jobs
	}
	if len(c.Docs) > 0 {
		if out.Versions, err = tx.putDocs(ctx, c.Docs); err != nil {
			return out, err
		}
	}
	if p != nil {
		return out, tx.add(ctx, p)
	}
	return out, nil
}

// changeJobs makes the updates of a change.
func (tx *txn) changeJobs(ctx context.Context, c store.Change) ([]gq.State, error) {
	states := make([]gq.State, len(c.Updates))
	seqs, err := tx.resolve(ctx, c.Updates)
	if err != nil {
		return nil, err
	}
	work := &changes{written: make(map[blobKey][]byte)}
	if err := tx.prepareChanges(ctx, work, c.Updates, seqs); err != nil {
		return nil, err
	}
	seen := make(map[int64]int, len(seqs))
	for i := range c.Updates {
		if k, twice := seen[seqs[i]]; twice && seqs[i] != 0 {
			return nil, c.Again(i, k)
		}
		seen[seqs[i]] = i
		u, err := tx.update(ctx, &c.Updates[i], seqs[i], work)
		if err != nil {
			return nil, err
		}
		if u.Err != nil {
			return nil, &store.ChangeError{Update: i, Err: u.Err}
		}
		states[i] = u.State
	}
	work.writeBlobs(&tx.more)
	return states, tx.flush(ctx)
}
