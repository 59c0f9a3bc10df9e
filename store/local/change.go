package local

import (
	"context"
	"errors"
	"fmt"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/machine"
	"github.com/gopherqueue/gq/store"
)

var _ store.Changer = (*Store)(nil)

// Change implements [store.Changer]. The store cannot roll back, so it checks
// everything before it changes anything.
func (s *Store) Change(ctx context.Context, c store.Change) (store.Changed, error) {
	if err := store.CheckChange(c); err != nil {
		return store.Changed{}, err
	}
	weight, size := len(c.Updates)+len(c.Docs)+len(c.Events), 0
	group := store.Group{Jobs: c.Insert}
	var encoded [][]byte
	if len(c.Insert) > 0 {
		if err := s.checkGroup(group); err != nil {
			return store.Changed{}, &store.ChangeError{Update: store.Inserting, Err: err}
		}
		weight += groupWeight(group)
		encoded = make([][]byte, len(c.Insert))
		encodeSpecs(encoded, group)
	}
	for i := range c.Updates {
		if err := s.checkUpdate(&c.Updates[i]); err != nil {
			return store.Changed{}, &store.ChangeError{Update: i, Err: err}
		}
		size += len(c.Updates[i].Result) + len(c.Updates[i].Checkpoint)
	}
	for i := range c.Docs {
		size += len(c.Docs[i].Data)
	}
	if weight == 0 {
		return store.Changed{}, s.usable(ctx)
	}
	var out store.Changed
	var refused error
	err := s.do(ctx, weight+size>>10, func(tx *txn) { out, refused = tx.changeAll(c, encoded, size) })
	if err != nil {
		return store.Changed{}, err // not out: the writer may still be setting it
	}
	if refused != nil {
		return store.Changed{}, refused
	}
	for i := range out.States {
		store.Own(&out.States[i])
	}
	store.OwnPlaced(out.Placed)
	return out, nil
}

func (tx *txn) changeAll(c store.Change, specs [][]byte, size int) (out store.Changed, err error) {
	if err := tx.s.fits(forChanges, tx.size()+size+len(c.Updates)<<10); err != nil {
		return out, err
	}
	if err := tx.checkDocs(c.Docs); err != nil {
		return out, err
	}
	if err := tx.rehearse(c); err != nil {
		return out, err
	}
	if len(c.Insert) > 0 {
		group := store.Group{Jobs: c.Insert}
		p, err := tx.checkInsert(group, specs, make([]store.Placed, len(c.Insert)), nil)
		if err != nil {
			return out, &store.ChangeError{Update: store.Inserting, Err: err}
		}
		tx.admit(p)
		out.Placed = p.placed
	}
	out.States = make([]gq.State, len(c.Updates))
	for i := range c.Updates {
		var u store.Updated
		tx.update(&c.Updates[i], &u, true)
		if u.Err != nil {
			panic(fmt.Sprintf("local: update %d of a change was accepted and then refused: %v", i, u.Err))
		}
		out.States[i] = u.State
	}
	if len(c.Docs) > 0 {
		if out.Versions, err = tx.putDocs(c.Docs); err != nil {
			panic(fmt.Sprintf("local: documents of a change were accepted and then refused: %v", err))
		}
	}
	for i := range c.Events {
		tx.record(c.Events[i:i+1], &bucket{queue: tx.queue(c.Events[i].Queue)}, 0)
	}
	return out, nil
}

// checkDocs returns an error if a document's version is not the one the caller read.
func (tx *txn) checkDocs(docs []store.Doc) error {
	if len(docs) == 0 {
		return nil
	}
	if err := tx.s.documents.load(tx.s); err != nil {
		return err
	}
	for i := range docs {
		current, err := tx.docVersion(docKey(docs[i].Kind, docs[i].Name))
		if err != nil {
			return err
		}
		if current != docs[i].Version {
			return docs[i].Conflict(current)
		}
	}
	return nil
}

// errPooled rejects a change that could be checked only after other updates were made.
var errPooled = errors.New("a job that would occupy a pool cannot be changed together with others")

// rehearse calls every function on the state it will be called on and changes nothing.
// Functions are pure: what they accept here they accept again.
func (tx *txn) rehearse(c store.Change) error {
	seen := make(map[gq.JobID]int, len(c.Updates))
	for i := range c.Updates {
		u := &c.Updates[i]
		j, id, err := tx.target(u.Ref)
		if err != nil {
			return &store.ChangeError{Update: i, Err: err}
		}
		if j != nil {
			id = j.id
		}
		if k, twice := seen[id]; twice {
			return c.Again(i, k)
		}
		seen[id] = i
		if j == nil {
			if u := tx.updateDone(u, id); u.Err != nil {
				return &store.ChangeError{Update: i, Err: u.Err}
			}
			continue
		}
		_, old := tx.load(j)
		if err := u.Authorized(j.bucket.queueName, &old); err != nil {
			return &store.ChangeError{Update: i, Err: err}
		}
		next, _, err := tx.try(u.Apply, &old)
		if err != nil {
			return &store.ChangeError{Update: i, Err: err}
		}
		if p := j.bucket.queue.pool; p != nil && machine.CountsInPool(p.config, next.Status) && !machine.CountsInPool(p.config, old.Status) {
			return &store.ChangeError{Update: i, Err: fmt.Errorf("job %s: %w: %w", id, errPooled, gq.ErrNoCapacity)}
		}
	}
	return nil
}
