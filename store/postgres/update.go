package postgres

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/store"
	"github.com/gopherqueue/gq/store/codec"
)

// Update implements [store.Store].
func (s *Store) Update(ctx context.Context, updates []store.Update) ([]store.Updated, error) {
	if err := s.enter(); err != nil {
		return nil, err
	}
	defer s.leave()
	if len(updates) == 0 {
		return []store.Updated{}, nil
	}
	out, err := s.updates.do(ctx, updates)
	if err != nil {
		return nil, err
	}
	store.OwnUpdated(out)
	return out, nil
}

// update applies updates in one transaction, or in smaller ones if their jobs keep moving
// between tables: each update has its own answer. It runs alone after a shared
// transaction failed, usually on a job locked for long. Then, if all yield, it skips
// locked jobs.
func (s *Store) update(ctx context.Context, updates []store.Update, alone bool) (out []store.Updated, err error) {
	yields := alone && !slices.ContainsFunc(updates, func(u store.Update) bool { return !u.Yield })
	err = s.transact(ctx, s.begins.of(alone), func(tx *txn) error {
		if yields {
			out, err = tx.updateFree(ctx, updates)
		} else {
			out, err = tx.updateAll(ctx, updates)
		}
		return err
	})
	if n := len(updates); errors.Is(err, errMoved) && n > 1 { // with this many jobs some always move
		if out, err = s.update(ctx, updates[:n/2], alone); err == nil {
			var rest []store.Updated
			rest, err = s.update(ctx, updates[n/2:], alone)
			out = append(out, rest...)
		}
	}
	return out, err
}

// updateFree updates the jobs that are not locked. The others get [gq.ErrInUse].
func (tx *txn) updateFree(ctx context.Context, updates []store.Update) ([]store.Updated, error) {
	seqs, err := tx.resolve(ctx, updates)
	if err != nil {
		return nil, err
	}
	busy, err := tx.lockFree(ctx, seqs)
	if err != nil {
		return nil, err
	}
	out := make([]store.Updated, len(updates))
	var free []store.Update
	var places []int
	for i, seq := range seqs {
		if busy[seq] {
			out[i].Err = fmt.Errorf("job %s is locked by a transaction: %w", updates[i].Job, gq.ErrInUse)
			continue
		}
		free, places = append(free, updates[i]), append(places, i)
	}
	if len(free) == 0 {
		return out, nil
	}
	done, err := tx.updateAll(ctx, free)
	for k := range done {
		out[places[k]] = done[k]
	}
	return out, err
}

func (tx *txn) updateAll(ctx context.Context, updates []store.Update) ([]store.Updated, error) {
	out := make([]store.Updated, len(updates))
	c := &changes{written: make(map[blobKey][]byte)}
	var seqs []int64
	var err error
	if !tx.again {
		if seqs, err = tx.prepareKnown(ctx, c, updates); err == nil && c.rows == nil {
			seqs, err = tx.prepareLeased(ctx, c, updates)
		}
		if err != nil {
			return nil, err
		}
	}
	if c.rows == nil {
		if seqs, err = tx.resolve(ctx, updates); err != nil {
			return nil, err
		}
		if err := tx.prepareChanges(ctx, c, updates, seqs); err != nil {
			return nil, err
		}
	}
	for i := range updates {
		if out[i], err = tx.update(ctx, &updates[i], seqs[i], c); err != nil {
			return nil, err
		}
		if tx.known != nil && !out[i].Changed { // the row that it is about may have changed
			return nil, errMoved
		}
	}
	c.writeBlobs(&tx.more)
	if c.plan != nil {
		return out, tx.add(ctx, c.plan)
	}
	err = tx.finish(ctx)
	if err == nil && tx.known != nil {
		tx.s.reach(nanoseconds(tx.now)) // the database has confirmed it
	}
	return out, err
}

// changes is the working set of the updates of one call.
type changes struct {
	rows    map[int64]*row // by sequence number
	plan    *plan          // for the children, nil if there are none
	written map[blobKey][]byte
}

func (c *changes) writeBlobs(batch *pgx.Batch) {
	var b blobs
	for key, data := range c.written {
		b.add(key.seq, key.part, data)
	}
	b.write(batch)
}

// prepareChanges locks the jobs of updates and the jobs that their children refer to.
func (tx *txn) prepareChanges(ctx context.Context, c *changes, updates []store.Update, seqs []int64) error {
	var children []store.Group
	for i := range updates {
		if u := &updates[i]; len(u.Spawn) > 0 && tx.s.checkUpdate(u) == nil {
			children = append(children, store.Group{Jobs: u.Spawn, Mint: u.Mint})
		}
	}
	var rows []*row
	var err error
	if len(children) > 0 {
		c.plan, rows, err = tx.prepare(ctx, children, seqs)
	} else if rows, err = tx.lock(ctx, seqs, "UPDATE"); err == nil {
		_, err = tx.lockStarts(ctx, rows, 0)
	}
	c.rows = bySequence(rows)
	return err
}

func bySequence(rows []*row) map[int64]*row {
	found := make(map[int64]*row, len(rows))
	for _, r := range rows {
		found[int64(r.state.Sequence)] = r
	}
	return found
}

// heldByNumber reads and locks held jobs, like the first pass of livingIn.
var heldByNumber = rowsIn("gq.held", "FOR UPDATE OF s")

// prepareLeased is resolve and prepareChanges in one round trip, for the usual case:
// callers name jobs that they hold by their current leases, which this store has made. It
// locks the jobs, and then the pools in which a job may be about to start. In any other
// case c has no rows afterwards, and the caller locks the jobs again. But if only some jobs
// are in gq.held it returns errMoved: a missing one may be held by now and come before a
// locked one in lock order.
func (tx *txn) prepareLeased(ctx context.Context, c *changes, updates []store.Update) ([]int64, error) {
	seqs := make([]int64, len(updates))
	for i := range updates {
		u := &updates[i]
		seq, ok := leaseSequence(u.Lease)
		if !ok || !u.Job.IsZero() || len(u.Spawn) > 0 {
			return nil, nil
		}
		seqs[i] = int64(seq)
	}
	if !tx.ours {
		if err := tx.s.unpack(ctx, seqs); err != nil && !held(err) {
			return nil, err
		}
	}
	sorted := slices.Compact(slices.Sorted(slices.Values(seqs)))
	wanted := numbersIn(sorted)
	blocks, masks := wanted.arrays()
	var (
		batch pgx.Batch
		rows  []*row
	)
	batch.Queue(heldByNumber, blocks, masks).Query(func(found pgx.Rows) (err error) {
		rows, err = tx.scanSome(wanted)(found, nil)
		return err
	})
	batch.Queue(stamps, 0).QueryRow(func(row pgx.Row) error {
		_, err := tx.stampFrom(row)
		return err
	})
	if err := tx.SendBatch(ctx, &batch).Close(); err != nil {
		return nil, err
	}
	if len(rows) > 0 && len(rows) < len(sorted) {
		return nil, errMoved
	}
	starting := slices.ContainsFunc(rows, func(r *row) bool { return r.state.Status == gq.StatusClaimed })
	if len(rows) < len(sorted) {
		return seqs, nil
	}
	found := bySequence(rows)
	for i := range updates {
		if found[seqs[i]].state.Lease.ID != updates[i].Lease {
			// This store may not have made the lease: it may be of any job.
			return seqs, nil
		}
	}
	if !slices.ContainsFunc(updates, func(u store.Update) bool { return !u.Settles }) {
		for _, r := range rows {
			r.share() // so that all are written by one statement
		}
	}
	tx.starts = starts{}
	if starting {
		if _, err := tx.lockStarts(ctx, rows, 0); err != nil {
			return nil, err
		}
	}
	c.rows = found
	return seqs, nil
}

// spawn places the children of an update. They are checked against the next state of the
// job. If they are refused the plan has its old state again.
func (c *changes) spawn(r *row, next gq.State, children store.Group) ([]store.Placed, error) {
	p := c.plan
	if p == nil {
		return nil, nil
	}
	old := r.state
	p.states[next.ID] = next
	if old.Live() && !next.Live() {
		p.live[r.queue]--
	}
	if len(children.Jobs) == 0 {
		return nil, nil
	}
	out := p.place(children)
	if out.Err != nil {
		p.states[next.ID] = old
		if old.Live() && !next.Live() {
			p.live[r.queue]++
		}
		return nil, out.Err
	}
	return out.Jobs, nil
}

// resolve finds the number of the job that each update names; 0 if there is none.
func (tx *txn) resolve(ctx context.Context, updates []store.Update) ([]int64, error) {
	refs := make([]store.Ref, len(updates))
	for i := range updates {
		refs[i] = updates[i].Ref
	}
	return tx.sequences(ctx, refs)
}

type blobKey struct {
	seq  int64
	part int16
}

// update applies one update to its row, as the updates before it have left the row.
func (tx *txn) update(ctx context.Context, u *store.Update, seq int64, c *changes) (store.Updated, error) {
	no := func(s gq.State, err error) (store.Updated, error) { return store.Updated{State: s, Err: err}, nil }
	if err := tx.s.checkUpdate(u); err != nil {
		return no(gq.State{}, err)
	}
	r, ok := c.rows[seq]
	switch {
	case !ok && u.Job.IsZero():
		return no(gq.State{}, store.UnknownLease(u.Lease))
	case !ok, !u.Job.IsZero() && r.state.ID != u.Job:
		return no(gq.State{}, fmt.Errorf("job %s: %w", u.Job, gq.ErrNotFound))
	}
	id := r.state.ID
	old := r.state
	if err := u.Authorized(r.queue, &old); err != nil {
		return no(gq.State{}, err)
	}
	next, events, err := try(u.Apply, old, tx.now)
	if err != nil {
		return no(old, err)
	}
	if next.ID != old.ID || next.Sequence != old.Sequence || *next.Policy != *old.Policy {
		return no(old, fmt.Errorf("job %s: the function changed what never changes", id))
	}
	changed := len(events) > 0
	if !changed {
		if changed, err = differ(old, next); err != nil {
			return no(old, err)
		}
	}
	switch {
	case !old.Live() && changed:
		return no(old, gq.ErrIllegalMove.Errorf("job %s is already %s", id, old.Status))
	case !old.Live():
		tx.relies = true
		return store.Updated{State: old}, nil // a repeated call; its blobs are stored already
	case !changed:
		return store.Updated{State: next}, nil // likewise; it must not overwrite later blobs
	}
	if err := tx.starts.admit(r, next.Status); err != nil {
		return no(old, fmt.Errorf("job %s: %w", id, err))
	}
	if err := tx.turned(ctx, r, &next, c.rows); err != nil {
		return store.Updated{}, err
	}
	placed, err := c.spawn(r, next, store.Group{Jobs: u.Spawn, Mint: u.Mint, Authorize: u.Authorize})
	if err != nil {
		return no(old, err)
	}
	tx.starts.occupy(r, next.Status)
	tx.record(r, next, events)
	keep := func(part int16, data []byte) {
		c.written[blobKey{seq, part}] = data
	}
	if u.Metadata != nil {
		raw, err := codec.AppendMetadata(*u.Metadata, nil)
		if err != nil {
			return store.Updated{}, err
		}
		keep(partMetadata, raw)
	}
	if u.Result != nil {
		keep(partResult, u.Result)
	}
	if u.Checkpoint != nil {
		keep(partCheckpoint, u.Checkpoint)
	}
	return store.Updated{State: next, Changed: true, Spawned: placed}, nil
}

// try calls the caller's function and returns its panic as an error.
func try(apply store.Apply, s gq.State, now time.Time) (next gq.State, events []gq.Event, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("the function given to Update panicked: %v", r)
		}
	}()
	return apply(s, now)
}

// differ reports whether the stored forms of two states differ.
func differ(a, b gq.State) (bool, error) {
	before, err := codec.AppendState(&a, nil)
	if err != nil {
		return false, err
	}
	after, err := codec.AppendState(&b, nil)
	return !bytes.Equal(before, after), err
}

func (s *Store) checkUpdate(u *store.Update) error {
	if u.Apply == nil {
		return errors.New("no function to apply")
	}
	return store.CheckUpdate(u, s.cfg.Limits, s.cfg.Retention)
}
