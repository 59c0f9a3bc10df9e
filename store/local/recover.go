package local

import (
	"bytes"
	crand "crypto/rand"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math"

	"github.com/cockroachdb/pebble/v2"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/machine"
	"github.com/gopherqueue/gq/store"
)

// recover builds the table from the records of live jobs. It reads no finished ones.
func (s *Store) recover() (err error) {
	defer func() {
		if r := recover(); r != nil { // no record written by a store causes this
			err = fmt.Errorf("%w: %v", gq.ErrCorrupt, r)
		}
	}()
	for _, step := range []func() error{
		s.recoverIDKey, s.recoverImport, s.recoverMarks, s.recoverPools, s.recoverQueues, s.recoverPaces, s.recoverOwnKeys, s.recoverOwed, s.recoverBuckets, s.recoverJobs, s.recoverEdges, s.recoverEnded, s.recoverNumbers,
	} {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

// each calls visit for every record of a kind.
func (s *Store) each(prefix byte, visit func(key, value []byte) error) (err error) {
	it, err := s.iterate(prefix)
	if err != nil {
		return err
	}
	defer func() { err = either(err, damaged(it.Close())) }()
	for ok := it.First(); ok; ok = it.Next() {
		value, err := it.ValueAndErr()
		if err = damaged(err); err == nil {
			err = visit(it.Key(), value)
		}
		if err != nil {
			return fmt.Errorf("record %q: %w", it.Key(), err)
		}
	}
	return damaged(it.Error())
}

// metaIDKey is the secret of the ids made here, and its checksum: with a wrong secret no job
// would be found.
var metaIDKey = []byte{prefixMeta, 'k'}

// createIDKey draws the secret of a new store.
func (s *Store) createIDKey() error {
	secret := make([]byte, store.IDSecretSize, store.IDSecretSize+4)
	crand.Read(secret) // never fails
	return s.db.Set(metaIDKey, binary.BigEndian.AppendUint32(secret, checksum(secret)), pebble.Sync)
}

func (s *Store) recoverIDKey() error {
	raw, err := s.read(metaIDKey)
	if err == nil && (len(raw) != store.IDSecretSize+4 || binary.BigEndian.Uint32(raw[store.IDSecretSize:]) != checksum(raw[:store.IDSecretSize])) {
		err = gq.ErrCorrupt
	}
	if err == nil {
		s.table.jobs.key, err = store.NewIDKey(raw[:store.IDSecretSize])
	}
	if err != nil {
		return fmt.Errorf("record %q: %w", metaIDKey, corrupt(err))
	}
	return nil
}

func (s *Store) recoverMarks() error {
	raw, err := s.read(metaCursors)
	if errors.Is(err, gq.ErrNotFound) {
		s.marks.cursors = [4]uint64{1, 1, 1, 1}
		return nil
	}
	if err != nil {
		return err
	}
	if s.marks, err = decodeMarks(raw); err != nil {
		return fmt.Errorf("record %q: %w", metaCursors, err)
	}
	s.dropped.Store(s.marks.dropped)
	s.lastTime = s.marks.time
	s.table.lastJob, s.table.lastEvent = s.marks.lastJob, s.marks.lastEvent
	return nil
}

func (s *Store) recoverQueues() error {
	err := s.each(prefixQueue, func(key, value []byte) error {
		next := uint32(len(s.table.numbers))
		if len(key) != 5 || binary.BigEndian.Uint32(key[1:]) != next {
			return fmt.Errorf("queue number %d is missing: %w", next, gq.ErrCorrupt)
		}
		config, err := decodeQueue(value)
		if err != nil {
			return err
		}
		if config.Pool != "" && s.table.pools[config.Pool] == nil {
			return fmt.Errorf("pool %s is missing: %w", config.Pool, gq.ErrCorrupt)
		}
		s.table.addQueue(next, config).deleted = isDeleted(value)
		return nil
	})
	if err != nil {
		return err
	}
	return s.each(prefixCounts, func(key, value []byte) error {
		if len(key) != 5 {
			return gq.ErrCorrupt
		}
		number := binary.BigEndian.Uint32(key[1:])
		if number == 0 || int(number) >= len(s.table.numbers) {
			return gq.ErrCorrupt
		}
		return decodeCounts(value, s.table.numbers[number])
	})
}

func (s *Store) recoverBuckets() error {
	return s.each(prefixBucket, func(key, value []byte) error {
		if len(key) != 5 {
			return gq.ErrCorrupt
		}
		number, typ, requires, err := decodeBucket(value)
		if err != nil || int(number) >= len(s.table.numbers) || number == 0 {
			return errors.Join(gq.ErrCorrupt, err)
		}
		s.table.addBucket(binary.BigEndian.Uint32(key[1:]), s.table.numbers[number], typ, requires)
		return nil
	})
}

// recoverJobs reads the live jobs: those in packs, and those that have a record of their own,
// in the order of their numbers.
func (s *Store) recoverJobs() (err error) {
	packs := packReader{s: s}
	if packs.it, err = s.iterate(prefixPack); err != nil {
		return err
	}
	defer func() { err = either(err, damaged(packs.it.Close())) }()
	packs.more = packs.it.First()
	t := s.table
	var h header
	var state gq.State
	var last *record // what they were decoded from
	err = s.each(prefixLive, func(key, value []byte) error {
		if len(key) != 9 {
			return gq.ErrCorrupt
		}
		seq := binary.BigEndian.Uint64(key[1:])
		p, err := packs.skipTo(seq)
		if err != nil {
			return err
		}
		if p != nil && bytes.Equal(value, packEnded) {
			p.left--
			return nil
		}
		if last != nil && last.fits(value) && p == last.pack {
			state.ID, state.Sequence = gq.JobID(value[last.id:]), seq
		} else if h, state, err = decodeRecord(value, seq, t.intern); err != nil {
			return err
		}
		if last = nil; !state.Status.Held() {
			last = t.share(h.bucket, value, p)
		}
		_, err = s.adopt(h, &state, last, p)
		return err
	})
	if err == nil {
		_, err = packs.skipTo(math.MaxUint64)
	}
	return err
}

// adopt adds a live job. If it is held, its record has only its pack, if it has one.
func (s *Store) adopt(h header, state *gq.State, r *record, p *pack) (*job, error) {
	t, seq := s.table, state.Sequence
	bucket := t.buckets[h.bucket]
	if bucket == nil {
		return nil, fmt.Errorf("bucket %d is missing: %w", h.bucket, gq.ErrCorrupt)
	}
	if !state.Live() || t.jobs.get(state.ID) != nil || t.jobs.at(seq) != nil || t.folded(seq) {
		return nil, fmt.Errorf("job %s is %s, or there twice: %w", state.ID, state.Status, gq.ErrCorrupt)
	}
	bucket.jobs++
	j := &job{id: state.ID, seq: seq, foreign: t.jobs.isForeign(state.ID, seq), bucket: bucket, cost: h.cost, toRun: noTimer, toDue: noTimer, record: r}
	if state.Status.Held() {
		if j.open = (&opened{h, *state}); p != nil {
			j.record = &record{pack: p}
		}
	}
	t.adopt(j, h, state)
	t.lastJob = max(t.lastJob, seq)
	return j, nil
}

// adopt adds a live job that has its record.
func (t *table) adopt(j *job, h header, state *gq.State) {
	q := j.bucket.queue
	q.attach(j, h.keys)
	q.lineUp(j, h.keys)
	if q.turns != nil {
		q.turns.note(state.Priority(), h.fairKey(), state.Turn)
	}
	t.jobs.add(j)
	t.place(j, state)
}

func (s *Store) recoverEdges() error {
	// Edges name sequence numbers; only waiting jobs are children.
	waiting := map[uint64]*job{}
	for _, q := range s.table.numbers[1:] {
		q.live(gq.StatusPending).ascend(0, func(seq uint64) bool {
			waiting[seq] = s.table.jobs.at(seq)
			return true
		})
	}
	return s.each(prefixEdge, func(key, value []byte) error {
		if err := checkEdge(key, value); err != nil {
			return err
		}
		parent, child := binary.BigEndian.Uint64(key[1:]), binary.BigEndian.Uint64(key[9:])
		j := waiting[child]
		if j == nil {
			j = &job{seq: child} // it has ended: the edge only waits to be removed
		}
		kind := gq.DependencyKind(key[17])
		s.table.kids[parent] = append(s.table.kids[parent], edge{j, kind})
		if kind == machine.DependencyOrder && waiting[child] != nil {
			s.table.goBehind(child, parent)
		}
		return nil
	})
}

func (s *Store) recoverEnded() error {
	return s.each(prefixEnded, func(key, value []byte) error {
		if len(key) != 9 || len(value) != 2 || !gq.Status(value[0]).Terminal() {
			return gq.ErrCorrupt
		}
		s.table.ended = append(s.table.ended, ending{
			binary.BigEndian.Uint64(key[1:]), gq.Status(value[0]), gq.Priority(value[1]),
		})
		return nil
	})
}

// recoverNumbers finds the last numbers and the last time used, so that none is used
// again.
func (s *Store) recoverNumbers() (err error) {
	it, err := s.db.NewIter(&pebble.IterOptions{})
	if err != nil {
		return fmt.Errorf("read %s: %w", s.dir, err)
	}
	defer func() { err = either(err, damaged(it.Close())) }()
	if it.SeekLT(numberKey(prefixSpec, math.MaxUint64)) && it.Key()[0] == prefixSpec {
		s.table.lastJob = max(s.table.lastJob, binary.BigEndian.Uint64(it.Key()[1:]))
	}
	if it.SeekLT(numberKey(prefixEvents, math.MaxUint64)) && it.Key()[0] == prefixEvents {
		s.lastTime = max(s.lastTime, recordTime(it.Value()))
		last, err := lastOf(it.Key(), it.Value())
		if err != nil {
			return err
		}
		s.table.lastEvent = max(s.table.lastEvent, last)
	}
	raw, err := s.read(metaClock)
	switch {
	case err == nil && len(raw) != 8:
		return fmt.Errorf("record %q: %w", metaClock, gq.ErrCorrupt)
	case err == nil:
		s.lastTime = max(s.lastTime, int64(binary.BigEndian.Uint64(raw)))
	case !errors.Is(err, gq.ErrNotFound):
		return err
	}
	return damaged(it.Error())
}

// Queues and buckets are few and change rarely: their records are JSON.

type bucketRecord struct {
	Queue    uint32   `json:"queue"`
	Type     string   `json:"type"`
	Requires []string `json:"requires,omitempty"`
}

func encodeBucket(l *bucket) []byte {
	b, err := json.Marshal(bucketRecord{l.queue.number, l.typ, l.class.requires})
	must(err)
	return b
}

func decodeBucket(b []byte) (queue uint32, typ string, requires []string, err error) {
	var r bucketRecord
	if err := json.Unmarshal(b, &r); err != nil {
		return 0, "", nil, fmt.Errorf("bucket: %w", errors.Join(gq.ErrCorrupt, err))
	}
	return r.Queue, r.Type, r.Requires, nil
}

func encodeQueue(q gq.Queue) []byte {
	q.OwnKeys = 0 // follows from their records
	b, err := json.Marshal(q)
	must(err)
	return b
}

// deletedQueue is the record of a queue that was deleted.
type deletedQueue struct {
	gq.Queue
	Deleted bool
}

func encodeDeleted(q gq.Queue) []byte {
	b, err := json.Marshal(deletedQueue{q, true})
	must(err)
	return b
}

// isDeleted reports whether the record of a queue says that it was deleted.
func isDeleted(record []byte) bool {
	var q deletedQueue
	return bytes.Contains(record, []byte(`"Deleted"`)) && json.Unmarshal(record, &q) == nil && q.Deleted
}

func decodeQueue(b []byte) (q gq.Queue, err error) {
	if err := json.Unmarshal(b, &q); err != nil {
		return q, fmt.Errorf("queue: %w", errors.Join(gq.ErrCorrupt, err))
	}
	if err := machine.CheckQueue(q); err != nil {
		return q, fmt.Errorf("queue: %w: %w", gq.ErrCorrupt, err)
	}
	return q, nil
}
