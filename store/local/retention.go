package local

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/internal/wake"
	"github.com/gopherqueue/gq/store"
	"github.com/gopherqueue/gq/store/codec"
)

// Retention follows the log of events. Jobs end in the order of their last events, so
// the next jobs past their retention are in a part of the log that was not read before:
// one cursor for each final status says how far it has been read. Nothing else is
// scanned. Records are removed in ranges of adjacent sequence numbers.
//
// An event record is dropped when all cursors have passed it. Its events of jobs that
// are still kept are first copied to the job's own history.

var _ store.Purger = (*Store)(nil)

// endings are the final statuses, in the order of their cursors.
var endings = []gq.Status{gq.StatusCompleted, gq.StatusFailed, gq.StatusDeadLetter, gq.StatusCancelled}

var (
	metaClock   = []byte{prefixMeta, 'c'} // newest time of a commit without events
	metaCursors = []byte{prefixMeta, 'r'} // retention's cursors, and the high-water marks
)

// marks is retention's state. The high-water marks keep numbers from being reused after
// their records are gone.
type marks struct {
	cursors   [4]uint64 // first event not yet read, by ending
	dropped   uint64    // events up to this one are gone
	lastJob   uint64
	lastEvent uint64
	time      int64
}

func (m *marks) fields() []*uint64 {
	return []*uint64{
		&m.cursors[0], &m.cursors[1], &m.cursors[2], &m.cursors[3], &m.dropped, &m.lastJob, &m.lastEvent,
	}
}

func (m marks) encode() []byte {
	b := []byte{1}
	for _, f := range m.fields() {
		b = binary.BigEndian.AppendUint64(b, *f)
	}
	return binary.BigEndian.AppendUint64(b, uint64(m.time))
}

func decodeMarks(b []byte) (m marks, err error) {
	fields := m.fields()
	if len(b) != 1+8*(len(fields)+1) || b[0] != 1 {
		return m, fmt.Errorf("retention marks: %w", gq.ErrCorrupt)
	}
	b = b[1:]
	for _, f := range fields {
		*f, b = binary.BigEndian.Uint64(b), b[8:]
	}
	m.time = int64(binary.BigEndian.Uint64(b))
	return m, nil
}

// Collect implements [store.Store].
func (s *Store) Collect(ctx context.Context, limit int) (int, time.Time, error) {
	for {
		var done collection
		var failed error
		err := s.do(ctx, 1, func(tx *txn) { done, failed = tx.collect(max(limit, 1)) })
		if err != nil {
			return 0, time.Time{}, err // the writer may still be setting it
		}
		if done.removed > 0 || !done.more || failed != nil {
			if done.removed < limit {
				s.compact()
			}
			return done.removed, done.next, failed
		}
	}
}

// collection is the result of one step of retention.
type collection struct {
	removed int
	more    bool      // there is more of the log to read
	next    time.Time // when to look again; zero if nothing is left
}

// at records when there is something to look at.
func (c *collection) at(due time.Time) { c.next = wake.Earlier(c.next, due) }

// collectRecords bounds how many event records one step reads.
const collectRecords = 10_000

// collect takes one step.
func (tx *txn) collect(limit int) (done collection, err error) {
	s := tx.s
	if err := s.disk.room(forCleaning, tx.size()); err != nil {
		return done, err
	}
	tx.awaitDisk()
	tx.forget()
	before := s.marks
	if err := tx.collectOwn(limit, &done); err != nil {
		return collection{}, err
	}
	var gone []doneKey
	for i, status := range endings {
		if done.removed+len(gone) >= limit {
			done.at(tx.now)
			break
		}
		expired, err := tx.expired(i, status, limit-done.removed-len(gone), &done)
		if err != nil {
			return collection{}, err
		}
		gone = append(gone, expired...)
	}
	dropped, err := tx.drop(gone, false)
	if err != nil {
		return collection{}, err
	}
	done.removed, done.more = done.removed+dropped, done.more || dropped < len(gone)
	if err := tx.dropEvents(); err != nil {
		return collection{}, err
	}
	if s.marks != before {
		s.marks.lastJob, s.marks.lastEvent, s.marks.time = tx.t.lastJob, tx.t.lastEvent, tx.now.UnixNano()
		tx.set(metaCursors, s.marks.encode())
	}
	tx.dropBuckets()
	return done, nil
}

// expired reads the log from a cursor on and lists the jobs that ended in a status and are past
// their retention.
func (tx *txn) expired(cursor int, status gq.Status, limit int, done *collection) (gone []doneKey, err error) {
	s := tx.s
	kept := s.config.Retention.Of(status)
	horizon := tx.now.Add(-kept).UnixNano()
	it, err := s.iterate(prefixEvents)
	if err != nil {
		return nil, err
	}
	defer func() { err = either(err, damaged(it.Close())) }()
	at := s.marks.cursors[cursor]
	ok := it.SeekLT(numberKey(prefixEvents, at+1)) || it.First()
	for read := 0; ok && len(gone) < limit; ok = it.Next() {
		if ended := recordTime(it.Value()); ended > horizon {
			done.at(time.Unix(0, ended).Add(kept).UTC())
			break
		}
		if read++; read > collectRecords {
			done.more = true
			break
		}
		var visitErr error
		err := s.visitEvents(it.Key(), it.Value(), func(e *storedEvent) bool {
			if e.Seq < at {
				return true
			}
			if len(gone) >= limit {
				return false
			}
			if e.Status == status && e.Type == endingEvent(status) {
				k, err := tx.endedIn(e.queue, status, e.Job)
				if err == nil {
					gone = append(gone, k)
				} else if !errors.Is(err, gq.ErrNotFound) {
					visitErr = err
					return false
				}
			}
			s.marks.cursors[cursor] = e.Seq + 1
			return true
		})
		if err = errors.Join(err, visitErr); err != nil {
			return nil, err
		}
	}
	if len(gone) >= limit {
		done.at(tx.now)
	}
	return gone, damaged(it.Error())
}

// endedIn finds a job that ended in an earlier commit, with a known queue and status. It returns
// ErrNotFound if there is none.
func (tx *txn) endedIn(queue uint32, status gq.Status, id gq.JobID) (doneKey, error) {
	if tx.gone[id] {
		return doneKey{}, gq.ErrNotFound
	}
	k, err := tx.s.findDone(id)
	if err != nil {
		return k, err
	}
	if k.status = status; k.queue != queue {
		return k, fmt.Errorf("queue of job %s: %w", id, gq.ErrCorrupt)
	}
	return k, tx.s.see(k.append(nil), func([]byte) error { return nil })
}

func endingEvent(s gq.Status) gq.EventType {
	switch s {
	case gq.StatusCompleted:
		return gq.EventCompleted
	case gq.StatusFailed:
		return gq.EventFailed
	case gq.StatusDeadLetter:
		return gq.EventDeadLettered
	default:
		return gq.EventCancelled
	}
}

func recordTime(b []byte) int64 {
	if len(b) < 9 {
		return 0
	}
	return int64(binary.BigEndian.Uint64(b[1:]))
}

// drop removes jobs with all their records and returns their number. It spares those with a
// retention of their own, unless told to remove them too.
func (tx *txn) drop(gone []doneKey, own bool) (int, error) {
	s := tx.s
	keys := make([][]byte, 0, len(gone))
	numbers := make([]uint64, 0, len(gone))
	for _, k := range gone {
		key := k.append(nil)
		record, err := s.read(key)
		if err != nil {
			return 0, err
		}
		h, state, err := decodeRecord(record, k.seq, alone)
		if err != nil {
			return 0, err
		}
		if !own && state.Policy.Retention > 0 {
			continue
		}
		if tx.t.jobs.isForeign(state.ID, k.seq) {
			tx.remove(idKey(state.ID))
		}
		if h.flags&flagKeyed != 0 {
			if err := tx.dropKey(k.seq, state.ID); err != nil {
				return 0, err
			}
		}
		if err := tx.dropLeases(&state, h.lastEvent); err != nil {
			return 0, err
		}
		q := tx.t.numbers[k.queue]
		q.counts[k.status]--
		tx.touch(q)
		if tx.gone == nil {
			tx.gone = map[gq.JobID]bool{}
		}
		tx.gone[state.ID] = true
		keys = append(keys, key)
		numbers = append(numbers, k.seq)
	}
	if len(numbers) == 0 {
		return 0, nil
	}
	slices.Sort(numbers)
	s.garbage.add(numbers[0], numbers[len(numbers)-1])
	written := tx.written()
	for _, prefix := range numbered {
		records := make([][]byte, len(numbers))
		for i, n := range numbers {
			records[i] = numberKey(prefix, n)
		}
		if err := tx.dropRanges(records, written); err != nil {
			return 0, err
		}
	}
	slices.SortFunc(keys, bytes.Compare)
	return len(numbers), tx.dropRanges(keys, written)
}

// numbered are the kinds of records that finished jobs have under their number.
var numbered = []byte{prefixSpec, prefixResult, prefixCheckpoint, prefixMetadata, prefixHistory}

// written returns the keys that this commit has set so far, sorted. The iterator does
// not see them, and a range deletion must not remove them.
func (tx *txn) written() (keys [][]byte) {
	for _, b := range tx.parts {
		for r := b.Reader(); ; {
			kind, key, _, ok, err := r.Next()
			must(err)
			if !ok {
				break
			}
			if kind == pebble.InternalKeyKindSet {
				keys = append(keys, key)
			}
		}
	}
	slices.SortFunc(keys, bytes.Compare)
	return keys
}

// dropKey removes a job's idempotency key, unless a later job has taken it.
func (tx *txn) dropKey(seq uint64, id gq.JobID) error {
	raw, err := tx.s.read(numberKey(prefixSpec, seq))
	if err != nil {
		return err
	}
	spec, err := codec.DecodeSpec(raw)
	if err != nil {
		return err
	}
	key := keyOf(&spec.Key)
	raw, err = tx.s.read(key[:])
	if errors.Is(err, gq.ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	if record, err := decodeKeyRecord(raw); err != nil || record.id != id {
		return err
	}
	if newer, ok := tx.key(key); ok && newer.id != id {
		return nil
	}
	tx.remove(key[:])
	return nil
}

// dropLeases removes the records of lease ids that were not made here.
func (tx *txn) dropLeases(s *gq.State, last uint64) error {
	if s.Lease == nil {
		return nil
	}
	if seq, ok := leaseSequence(s.Lease.ID); ok && seq == s.Sequence {
		return nil
	}
	events, err := tx.s.history(s.ID, s.Sequence, last)
	for _, e := range events {
		if e.Lease != "" {
			tx.remove(leaseKey(e.Lease))
		}
	}
	return err
}

// dropRanges removes records with one range deletion per run of adjacent records, both
// on disk and in this commit. keys are sorted; missing ones cost nothing.
func (tx *txn) dropRanges(keys, written [][]byte) (err error) {
	for _, key := range keys {
		if _, found := slices.BinarySearchFunc(written, key, bytes.Compare); found {
			tx.remove(key) // for instance a history that was written in this commit
		}
	}
	it, err := tx.s.db.NewIter(&pebble.IterOptions{
		LowerBound: keys[0], UpperBound: append(slices.Clone(keys[len(keys)-1]), 0),
	})
	if err != nil {
		return err
	}
	defer func() { err = either(err, damaged(it.Close())) }()
	for i := 0; i < len(keys); {
		if !it.SeekGE(keys[i]) {
			return damaged(it.Error())
		}
		// Skip to the first wanted key that is not before the iterator's.
		for i < len(keys) && bytes.Compare(keys[i], it.Key()) < 0 {
			i++
		}
		if i == len(keys) || !bytes.Equal(keys[i], it.Key()) {
			continue
		}
		from, to := keys[i], keys[i]
		run := 0
		for valid := true; valid && i < len(keys); valid = it.Next() {
			for i < len(keys) && bytes.Compare(keys[i], it.Key()) < 0 {
				i++
			}
			if i == len(keys) || !bytes.Equal(keys[i], it.Key()) || run > 0 && between(written, to, keys[i]) {
				break
			}
			to = keys[i]
			i++
			run++
		}
		if run == 1 {
			tx.remove(from)
		} else {
			tx.removeRange(from, append(slices.Clone(to), 0))
		}
	}
	return damaged(it.Error())
}

// between reports whether one of the sorted keys lies between two.
func between(keys [][]byte, from, to []byte) bool {
	at, _ := slices.BinarySearchFunc(keys, from, bytes.Compare)
	return at < len(keys) && bytes.Compare(keys[at], to) < 0
}

// spareBuckets is how many empty buckets are kept for reuse.
const spareBuckets = 1024

// dropBuckets forgets empty buckets, so that short-lived job types do not accumulate.
func (tx *txn) dropBuckets() {
	if len(tx.t.buckets) <= spareBuckets {
		return
	}
	for _, l := range tx.t.buckets {
		if l.jobs == 0 {
			tx.t.dropBucket(l)
			tx.remove(smallKey(prefixBucket, l.number))
		}
	}
}

// Purge implements [store.Purger].
func (s *Store) Purge(ctx context.Context, ids []gq.JobID) ([]error, error) {
	if len(ids) == 0 {
		return nil, s.usable(ctx)
	}
	answers := make([]error, len(ids))
	var failed error
	err := s.do(ctx, len(ids), func(tx *txn) { failed = tx.purge(ids, answers) })
	if err != nil {
		return nil, err // the writer may still be setting answers
	}
	if failed != nil {
		return nil, failed
	}
	return answers, nil
}

// purge removes finished jobs. Their events stay in the log until retention drops them.
func (tx *txn) purge(ids []gq.JobID, answers []error) error {
	s := tx.s
	if err := s.disk.room(forCleaning, tx.size()); err != nil {
		return err
	}
	tx.awaitDisk()
	tx.forget()
	var gone []doneKey
	seen := make(map[gq.JobID]bool, len(ids))
	for i, id := range ids {
		k, err := tx.purgeable(id)
		switch {
		case err == nil && !seen[id]:
			gone = append(gone, k)
			seen[id] = true
		case err == nil || errors.Is(err, gq.ErrNotFound):
			answers[i] = gq.ErrNotFound.Errorf("job %s not found", id)
		case errors.Is(err, gq.ErrIllegalMove):
			answers[i] = err
		default:
			return err
		}
	}
	if len(gone) == 0 {
		return nil
	}
	if _, err := tx.drop(gone, true); err != nil {
		return err
	}
	s.marks.lastJob, s.marks.lastEvent, s.marks.time = tx.t.lastJob, tx.t.lastEvent, tx.now.UnixNano()
	tx.set(metaCursors, s.marks.encode())
	return nil
}

// purgeable finds a job that ended in an earlier commit. An end in this commit is not
// visible to anyone yet.
func (tx *txn) purgeable(id gq.JobID) (doneKey, error) {
	if j := tx.t.get(id); j != nil {
		return doneKey{}, gq.ErrIllegalMove.Errorf("job %s is still %s; only finished jobs can be purged", id, j.status)
	}
	k, _, err := tx.readDone(id)
	return k, err
}
