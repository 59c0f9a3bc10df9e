package local

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/machine"
	"github.com/gopherqueue/gq/store"
	"github.com/gopherqueue/gq/store/codec"
)

// otherRecords is what is known of a job's other records when its state was read.
type otherRecords struct {
	flags byte
	spec  []byte // encoded, nil if it has to be read
	lane  *lane  // nil if it was not looked at
}

// assemble reads what belongs to a job's state from disk. Its error is
// ErrNotFound where the job has been collected since the state was read.
func (s *Store) assemble(job *gq.Job, b otherRecords, parts gq.Parts) error {
	state := &job.State
	raw, err := b.spec, error(nil)
	if raw == nil {
		raw, err = s.read(numberKey(prefixSpec, state.Sequence))
	}
	if err == nil {
		if b.lane != nil {
			job.Spec.Queue, job.Spec.Type = b.lane.queueName, b.lane.typ
		}
		err = codec.Decode(&job.Spec, raw)
	}
	if err != nil {
		return fmt.Errorf("job %s: %w", state.ID, err)
	}
	if parts&gq.WithPayload == 0 {
		job.Spec.Payload.Data = nil
	}
	job.Metadata = job.Spec.Metadata
	if b.flags&flagMetadata != 0 {
		if raw, err = s.read(numberKey(prefixMetadata, state.Sequence)); err == nil {
			job.Metadata, err = codec.DecodeMetadata(raw)
		}
		if err != nil {
			return fmt.Errorf("metadata of job %s: %w", state.ID, err)
		}
	}
	if parts&gq.WithResult != 0 && b.flags&flagResult != 0 {
		if job.Result, err = s.read(numberKey(prefixResult, state.Sequence)); err != nil {
			return fmt.Errorf("result of job %s: %w", state.ID, err)
		}
	}
	if parts&gq.WithCheckpoint != 0 && b.flags&flagCheckpoint != 0 {
		if job.Checkpoint, err = s.read(numberKey(prefixCheckpoint, state.Sequence)); err != nil {
			return fmt.Errorf("checkpoint of job %s: %w", state.ID, err)
		}
	}
	return nil
}

// corrupt says that something must be there and is not.
func corrupt(err error) error {
	if errors.Is(err, gq.ErrNotFound) {
		return fmt.Errorf("missing: %w", gq.ErrCorrupt)
	}
	return err
}

// then is the part of a read that needs no lock.
type then func() error

// What a read looks at under the lock.
type scope int

const (
	oneByOne   scope = iota // single jobs
	memoryOnly              // the table, and of the disk what was there before
	diskToo                 // both, at the same moment
)

// view runs a read at one moment, waits until all that it saw is durable, and
// then runs the part of it that needs no lock.
func (s *Store) view(ctx context.Context, of scope, read func(now time.Time) (then, error)) error {
	if err := ctx.Err(); err != nil {
		return context.Cause(ctx)
	}
	if of != oneByOne {
		if err := s.current(ctx); err != nil {
			return err
		}
	}
	if !s.reading() {
		return s.failure()
	}
	defer s.reads.Done()
	s.mu.RLock()
	for tries := 0; of == diskToo && s.durable.Load() < s.applied; tries++ {
		if tries == 3 { // it never catches up: make the writer wait
			s.settle()
			break
		}
		pending := s.applied
		s.mu.RUnlock()
		err := s.observed(pending)
		s.mu.RLock()
		if err != nil {
			s.mu.RUnlock()
			return err
		}
	}
	seen := s.applied
	now := time.Unix(0, max(s.lastTime, s.config.Clock.Now().UnixNano())).UTC()
	rest, err := read(now)
	s.mu.RUnlock()
	if failed := s.observed(seen); failed != nil {
		return failed
	}
	if err == nil && rest != nil {
		err = rest()
	}
	return err
}

// current makes jobs claimable whose time has come, so that lists and counts
// agree with what a claim would find.
func (s *Store) current(ctx context.Context) error {
	s.mu.RLock()
	next, ok := s.table.toRun.next()
	s.mu.RUnlock()
	if !ok || next.at > s.config.Clock.Now().UnixNano() {
		return nil
	}
	return s.do(ctx, 1, func(tx *txn) { tx.t.promote(tx.now.UnixNano()) })
}

// Get implements [store.Store].
func (s *Store) Get(ctx context.Context, refs []store.Ref, parts gq.Parts) ([]store.Found, error) {
	out := make([]store.Found, len(refs))
	err := s.view(ctx, oneByOne, func(now time.Time) (then, error) {
		rest := make([]otherRecords, len(refs))
		for i, r := range refs {
			out[i].State, rest[i].flags, out[i].Err = s.lookup(r, now)
		}
		return func() error {
			for i := range out {
				if out[i].Err == nil {
					out[i].Err = s.assemble(&out[i].Job, rest[i], parts)
				}
			}
			return nil
		}, nil
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

// lookup finds a job. The caller holds the lock.
func (s *Store) lookup(r store.Ref, now time.Time) (state gq.State, flags byte, err error) {
	id := r.Job
	if id.IsZero() {
		if j := s.table.holder(r.Lease); j != nil {
			id = j.id
		} else {
			s.settle()
			job, err := s.leaseJob(r.Lease)
			if err != nil {
				return state, 0, fmt.Errorf("lease %.80q: %w", r.Lease, err)
			}
			id = job
		}
	}
	h, state, err := s.state(id)
	if err != nil {
		return state, 0, err
	}
	if r.Job.IsZero() && !s.had(&state, h.lastEvent, r.Lease) {
		return state, 0, fmt.Errorf("lease %.80q: %w", r.Lease, gq.ErrNotFound)
	}
	return state.At(now), h.flags, nil
}

// state reads a job's record. The caller holds the lock.
func (s *Store) state(id gq.JobID) (header, gq.State, error) {
	if j := s.table.jobs.get(id); j != nil {
		return j.read()
	}
	k, record, err := s.readDone(id)
	if err != nil {
		return header{}, gq.State{}, fmt.Errorf("job %s: %w", id, err)
	}
	return decodeRecord(record, k.seq, alone)
}

// read decodes a job for a reader, who shares nothing with the writer.
func (j *job) read() (header, gq.State, error) {
	if j.open != nil {
		state := j.open.state
		store.Own(&state)
		return j.open.header, state, nil
	}
	return decodeRecord(j.record, j.seq, alone)
}

// had reports whether a job ever had a lease.
func (s *Store) had(state *gq.State, last uint64, id gq.LeaseID) bool {
	if state.Lease == nil {
		return false
	}
	if state.Lease.ID == id || state.PreviousLease == id {
		return true
	}
	s.settle()
	events, err := s.history(state.ID, state.Sequence, last)
	return err == nil && slices.ContainsFunc(events, func(e gq.Event) bool { return e.Lease == id })
}

// Counts implements [store.Store].
func (s *Store) Counts(ctx context.Context, queues ...string) ([]gq.Count, error) {
	var out []gq.Count
	err := s.view(ctx, memoryOnly, func(time.Time) (then, error) {
		if len(queues) == 0 {
			byName := s.queuesByName()
			out = make([]gq.Count, 0, len(byName))
			for _, q := range byName {
				out = append(out, gq.Count{Queue: q.config.Name, By: q.counts})
			}
			return nil, nil
		}
		for _, name := range queues {
			c := gq.Count{Queue: name}
			if q := s.table.queues[name]; q != nil {
				c.By = q.counts
			}
			out = append(out, c)
		}
		return nil, nil
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

// queuesByName is all queues by their names. They are sorted again only when
// there is another one: a queue stays, and keeps its name.
func (s *Store) queuesByName() []*queue {
	known := s.byName.Load()
	if known != nil && len(*known) == len(s.table.numbers)-1 {
		return *known
	}
	sorted := slices.Clone(s.table.numbers[1:])
	slices.SortFunc(sorted, func(a, b *queue) int { return compare(a.config.Name, b.config.Name) })
	s.byName.Store(&sorted)
	return sorted
}

// Events implements [store.Store]. Those who follow the log read all the time, so
// they need no lock: what is durable does not change.
func (s *Store) Events(ctx context.Context, after uint64, limit int) (out []gq.Event, err error) {
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	if !s.reading() {
		return nil, s.failure()
	}
	defer s.reads.Done()
	last := s.lastEvent.Load()
	it, err := s.iterate(prefixEvents)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, it.Close()) }()
	if dropped := max(s.dropped.Load(), s.gone.Load()); after < dropped { // asked once the iterator is there: it has all that come after
		return nil, fmt.Errorf("events up to %d are dropped: %w", dropped, gq.ErrGone)
	}
	if after >= last || limit < 1 {
		return nil, nil
	}
	out = make([]gq.Event, 0, min(last-after, uint64(limit)))
	// The record that holds the first wanted event begins at or before it.
	ok := it.SeekLT(numberKey(prefixEvents, after+2))
	for ; ok && len(out) < limit; ok = it.Next() {
		more := true
		err := s.visitEvents(it.Key(), it.Value(), func(e storedEvent) bool {
			if e.Seq > last { // on its way
				more = false
			} else if e.Seq > after {
				out = append(out, e.Event)
			}
			return more && len(out) < limit
		})
		if err != nil {
			return nil, err
		}
		if !more {
			break
		}
	}
	if err := damaged(it.Error()); err != nil {
		return nil, err
	}
	return out, nil
}

// LastEvent implements [store.Store].
func (s *Store) LastEvent(ctx context.Context) (last uint64, err error) {
	if err := s.usable(ctx); err != nil {
		return 0, err
	}
	return s.lastEvent.Load(), nil
}

// visitEvents decodes a record of events and names their queues.
func (s *Store) visitEvents(key, value []byte, visit func(storedEvent) bool) error {
	if len(key) != 9 {
		return fmt.Errorf("event key %q: %w", key, gq.ErrCorrupt)
	}
	names := *s.table.names.Load()
	return decodeEvents(value, binary.BigEndian.Uint64(key[1:]), func(e storedEvent) bool {
		if int(e.queue) < len(names) {
			e.Queue = names[e.queue]
		}
		return visit(e)
	})
}

// History implements [store.Store].
func (s *Store) History(ctx context.Context, id gq.JobID) ([]gq.Event, error) {
	var out []gq.Event
	err := s.view(ctx, diskToo, func(time.Time) (then, error) {
		h, state, err := s.state(id)
		if err == nil {
			out, err = s.history(id, state.Sequence, h.lastEvent)
		}
		return nil, err
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

// history follows a job's event records from the newest back, and then what has
// outlived the log. The caller holds the lock.
func (s *Store) history(id gq.JobID, seq, last uint64) ([]gq.Event, error) {
	var parts [][]gq.Event
	for at := last; at > s.dropped.Load(); {
		raw, err := s.read(numberKey(prefixEvents, at))
		if err != nil {
			return nil, fmt.Errorf("event record %d of job %s: %w", at, id, corrupt(err))
		}
		var part []gq.Event
		next := uint64(0)
		err = s.visitEvents(numberKey(prefixEvents, at), raw, func(e storedEvent) bool {
			if e.Job == id {
				if len(part) == 0 {
					next = e.previous
				}
				part = append(part, e.Event)
			}
			return true
		})
		if err != nil {
			return nil, err
		}
		if next >= at {
			return nil, fmt.Errorf("event record %d of job %s points forward: %w", at, id, gq.ErrCorrupt)
		}
		parts = append(parts, part)
		at = next
	}
	old, err := s.carried(seq)
	if err != nil {
		return nil, err
	}
	for _, part := range slices.Backward(parts) {
		old = append(old, part...)
	}
	return old, nil
}

// Queues implements [store.Store].
func (s *Store) Queues(ctx context.Context, asked store.QueueQuery) ([]gq.Queue, error) {
	var out []gq.Queue
	standard := machine.DefaultPolicy()
	err := s.view(ctx, memoryOnly, func(time.Time) (then, error) {
		for _, q := range s.candidates(asked) {
			if q.config.Name <= asked.After && asked.After != "" ||
				asked.Pool != "" && q.config.Pool != asked.Pool || asked.Own && *q.config.policy == standard {
				continue
			}
			if out = append(out, q.config.queue()); len(out) == asked.Limit {
				break
			}
		}
		return nil, nil
	})
	return out, err
}

// candidates are the queues among which those are that a query asks for, by name.
func (s *Store) candidates(asked store.QueueQuery) []*queue {
	var some []*queue
	switch {
	case asked.Names != nil:
		for _, name := range slices.Compact(slices.Sorted(slices.Values(asked.Names))) {
			if q := s.table.queues[name]; q != nil {
				some = append(some, q)
			}
		}
		return some
	case asked.Pool != "":
		if p := s.table.pools[asked.Pool]; p != nil {
			some = slices.SortedFunc(slices.Values(p.queues), func(a, b *queue) int { return compare(a.config.Name, b.config.Name) })
		}
		return some
	default:
		all := s.queuesByName()
		from, found := slices.BinarySearchFunc(all, asked.After, func(q *queue, after string) int { return compare(q.config.Name, after) })
		if found {
			from++
		}
		return all[from:]
	}
}

// PutQueue implements [store.Store].
func (s *Store) PutQueue(ctx context.Context, config gq.Queue) error {
	if err := machine.CheckQueue(config); err != nil {
		return fmt.Errorf("put queue: %w", err)
	}
	var refused error
	err := s.do(ctx, 1, func(tx *txn) {
		if refused = s.disk.room(forChanges, tx.batch.Len()); refused != nil {
			return
		}
		if refused = store.CheckPool(config, tx.t.pools[config.Pool] != nil); refused != nil {
			return
		}
		var was gq.Queue
		if known := tx.t.queues[config.Name]; known != nil {
			was = known.config.queue()
		} else if len(tx.t.queues) >= gq.MaxQueues {
			refused = store.TooManyQueues(config.Name)
			return
		}
		next, err := machine.ConfigureQueue(was, config, tx.now)
		if err != nil {
			refused = err
			return
		}
		q := tx.queue(config.Name)
		tx.changePool(q) // which it may leave
		tx.reconfigure(q, next)
		tx.set(smallKey(prefixQueue, q.number), encodeQueue(next))
		tx.change(q)
	})
	if err == nil && refused != nil {
		err = fmt.Errorf("put queue: %w", refused)
	}
	return err
}
