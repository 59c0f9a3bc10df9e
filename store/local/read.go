package local

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/store"
	"github.com/gopherqueue/gq/store/codec"
)

// jobExtras is what was known about a job's other records when its state was read.
type jobExtras struct {
	flags  byte
	spec   []byte  // encoded, nil if it must be read
	bucket *bucket // nil if unknown
}

// assemble reads a job's other records from disk. It returns ErrNotFound if the job has
// been collected since its state was read.
func (s *Store) assemble(job *gq.Job, b jobExtras, parts gq.Parts) error {
	state := &job.State
	raw, err := b.spec, error(nil)
	if raw == nil {
		raw, err = s.read(numberKey(prefixSpec, state.Sequence))
	}
	if err == nil {
		if b.bucket != nil {
			job.Spec.Queue, job.Spec.Type = b.bucket.queueName, b.bucket.typ
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

// corrupt marks a missing record that must exist as [gq.ErrCorrupt].
func corrupt(err error) error {
	if errors.Is(err, gq.ErrNotFound) {
		return fmt.Errorf("missing: %w", gq.ErrCorrupt)
	}
	return err
}

// then is the part of a read that needs no lock.
type then func() error

// scope is what a read needs to see consistently.
type scope int

const (
	oneByOne   scope = iota // single jobs
	memoryOnly              // the table, and the part of the disk that was already durable
	diskToo                 // both, at the same moment
)

// view runs a read at one moment, waits until everything it saw is durable, and then
// runs the rest of the read, which needs no lock.
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
		if tries == 3 { // the disk never catches up: make the writer wait
			s.awaitDisk()
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

// current makes jobs claimable whose time has come, so that lists and counts agree with
// the next claim.
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
		rest := make([]jobExtras, len(refs))
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
			s.awaitDisk()
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
	if h, state, err := s.folded(id); !errors.Is(err, gq.ErrNotFound) {
		return h, state, err
	}
	k, record, err := s.readDone(id)
	if err != nil {
		return header{}, gq.State{}, fmt.Errorf("job %s: %w", id, err)
	}
	return decodeRecord(record, k.seq, alone)
}

// read decodes a job for a reader. The copy shares nothing with the writer.
func (j *job) read() (header, gq.State, error) {
	if j.open != nil {
		state := j.open.state
		store.Own(&state)
		return j.open.header, state, nil
	}
	return j.decode(alone)
}

// had reports whether a job ever had a lease.
func (s *Store) had(state *gq.State, last uint64, id gq.LeaseID) bool {
	if state.Lease == nil {
		return false
	}
	if state.Lease.ID == id || state.PreviousLease == id {
		return true
	}
	s.awaitDisk()
	events, err := s.history(state.ID, state.Sequence, last)
	return err == nil && slices.ContainsFunc(events, func(e gq.Event) bool { return e.Lease == id })
}
