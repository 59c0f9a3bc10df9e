package postgres

import (
	"context"
	"fmt"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/store"
)

var _ store.Changer = (*Store)(nil)

// Change implements [store.Changer]. It uses one transaction and rolls it back if any
// part is refused.
func (s *Store) Change(ctx context.Context, c store.Change) (store.Changed, error) {
	if err := store.CheckChange(c); err != nil {
		return store.Changed{}, fmt.Errorf("change: %w", err)
	}
	if len(c.Insert) > 0 {
		return s.insertWith(ctx, c)
	}
	var out store.Changed
	err := s.write(ctx, "change", func(tx *txn) error {
		if len(c.Docs)+len(c.Updates) == 0 {
			return nil
		}
		out = store.Changed{States: make([]gq.State, len(c.Updates))}
		seqs, err := tx.resolve(ctx, c.Updates)
		if err != nil {
			return err
		}
		work := &changes{written: make(map[blobKey][]byte)}
		if err := tx.prepareChanges(ctx, work, c.Updates, seqs); err != nil {
			return err
		}
		if err := tx.lockDocs(ctx, c.Docs); err != nil {
			return err
		}
		if err := tx.checkVersions(ctx, c.Docs); err != nil {
			return err
		}
		seen := make(map[int64]int, len(seqs))
		for i := range c.Updates {
			if k, twice := seen[seqs[i]]; twice && seqs[i] != 0 {
				return c.Again(i, k)
			}
			seen[seqs[i]] = i
			u, err := tx.update(ctx, &c.Updates[i], seqs[i], work)
			if err != nil {
				return err
			}
			if u.Err != nil {
				return &store.ChangeError{Update: i, Err: u.Err}
			}
			out.States[i] = u.State
		}
		work.writeBlobs(&tx.more)
		if len(c.Docs) == 0 {
			return tx.flush(ctx)
		}
		out.Versions, err = tx.putDocs(ctx, c.Docs)
		return err
	})
	if err != nil {
		return store.Changed{}, err
	}
	for i := range out.States {
		store.Own(&out.States[i])
	}
	return out, nil
}

// insertWith writes documents and inserts jobs in one transaction.
func (s *Store) insertWith(ctx context.Context, c store.Change) (out store.Changed, err error) {
	group := store.Group{Jobs: c.Insert}
	if err := s.checkGroup(group); err != nil {
		return out, fmt.Errorf("change: %w", &store.ChangeError{Update: store.Inserting, Err: err})
	}
	err = s.write(ctx, "change", func(tx *txn) error {
		p, _, err := tx.prepare(ctx, []store.Group{group}, nil)
		if err != nil {
			return err
		}
		if err := tx.lockDocs(ctx, c.Docs); err != nil {
			return err
		}
		if err := tx.checkVersions(ctx, c.Docs); err != nil {
			return err
		}
		placed := p.place(group)
		if placed.Err != nil {
			return &store.ChangeError{Update: store.Inserting, Err: placed.Err}
		}
		out = store.Changed{Placed: placed.Jobs}
		if len(c.Docs) > 0 {
			if out.Versions, err = tx.putDocs(ctx, c.Docs); err != nil {
				return err
			}
		}
		return tx.add(ctx, p)
	})
	if err != nil {
		return store.Changed{}, err
	}
	store.OwnPlaced(out.Placed)
	return out, nil
}
