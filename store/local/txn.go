package local

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/store/codec"
)

// txn is the open commit: changes that the table already has, and the records that will
// make them durable. Only the writer has one, and it always completes a step it began,
// so nothing is rolled back.
type txn struct {
	s        *Store
	t        *table
	now      time.Time
	parts    [partCount]*pebble.Batch
	events   eventWriter
	first    uint64    // the first event of the current instant
	recent   []*recent // this commit and those that are not durable yet, oldest first
	spare    *recent
	runs     []run     // packs of this commit
	joined   int       // jobs in them
	keyed    []keyID   // new keys of this commit
	ids      []idEntry // of this commit's new jobs whose ids are from elsewhere
	touched  []*queue
	paces    []*queue          // those whose pace changed
	owers    []*limitKey       // those that owe more or less than before
	cancels  []gq.JobID        // running jobs that are asked to stop
	changed  []*queue          // those in the news
	retained time.Time         // when the first own retention of a job that the commit ended is over; zero for none
	gone     map[gq.JobID]bool // finished jobs that this commit removes: the disk still has them
	noted    []gq.Event        // scratch for the current job's events
	scratch  []byte
	spell    []byte  // scratch for records of other jobs
	name     []byte  // scratch for keys
	decoded  opened  // scratch for look
	source   *record // what decoded was decoded from
}

// recent is what a commit did that cannot be read from disk until the commit is
// durable.
type recent struct {
	number   uint64              // of the commit
	finished []*job              // jobs that ended in it
	keys     map[keyID]keyRecord // its new keys
	packs    []*pack             // its new packs
}

// begin starts a commit at an instant that is not before the last one; see restamp. The
// caller holds the lock.
func (s *Store) begin() *txn {
	s.applied++
	now := s.now()
	s.disk.measure()
	tx := &s.tx
	tx.s, tx.t, tx.now = s, s.table, now
	tx.openParts()
	tx.events = eventWriter{b: tx.events.b[:0]}
	tx.first = s.table.lastEvent + 1
	clear(tx.gone)
	tx.forget()
	r := tx.spare
	if tx.spare = nil; r == nil {
		r = &recent{keys: map[keyID]keyRecord{}}
	}
	r.number = s.applied
	tx.recent = append(tx.recent, r)
	return tx
}

// instant is how long the calls of one commit count as simultaneous, unless a lease, a
// delay or a lifetime ends in between.
const instant = time.Millisecond

// restamp advances the time of the open commit before more calls join it: no call is
// judged by a time before it was made, however long the disk keeps the commit open.
// Events of different instants are separate records. The caller holds the lock.
func (tx *txn) restamp() {
	now := tx.s.now()
	if now.Sub(tx.now) < instant && !tx.t.changesBy(now.UnixNano()) {
		return
	}
	tx.sealEvents()
	tx.now = now
}

// sealEvents adds the record of the current instant's events.
func (tx *txn) sealEvents() {
	if tx.events.count == 0 {
		return
	}
	tx.scratch = tx.events.encode(tx.scratch[:0], tx.now)
	tx.set(numberKey(prefixEvents, tx.first), tx.scratch)
	tx.events = eventWriter{b: tx.events.b[:0]}
	tx.first = tx.t.lastEvent + 1
}

// forget drops the recent commits that have become durable.
func (tx *txn) forget() {
	durable, n := tx.s.durable.Load(), 0
	for ; n < len(tx.recent) && tx.recent[n].number <= durable; n++ {
		r := tx.recent[n]
		for _, j := range r.finished {
			tx.t.jobs.remove(j)
			tx.s.opened.put(j.open)
			j.open = nil
		}
		for _, p := range r.packs {
			tx.t.folds.keep(p)
		}
		clear(r.finished)
		clear(r.keys)
		clear(r.packs)
		r.finished, r.packs, tx.spare = r.finished[:0], r.packs[:0], r
	}
	tx.recent = slices.Delete(tx.recent, 0, n)
}

// here returns what this commit did so far.
func (tx *txn) here() *recent { return tx.recent[len(tx.recent)-1] }

// key finds a key that may not be on disk yet.
func (tx *txn) key(key keyID) (keyRecord, bool) {
	for _, r := range slices.Backward(tx.recent) {
		if record, ok := r.keys[key]; ok {
			return record, true
		}
	}
	return keyRecord{}, false
}

// idEntry leads from an id that is from elsewhere to its job.
type idEntry struct {
	id  gq.JobID
	seq uint64
}

// sealIDs adds the index entries of ids from elsewhere, sorted: ids are random, and Pebble
// finds the place of a record faster if the one before is near.
func (tx *txn) sealIDs() {
	slices.SortFunc(tx.ids, func(a, b idEntry) int { return bytes.Compare(a.id[:], b.id[:]) })
	for i := range tx.ids {
		e := &tx.ids[i]
		tx.name = append(append(tx.name[:0], prefixID), e.id[:]...)
		id := len(tx.name)
		tx.name = binary.BigEndian.AppendUint64(tx.name, e.seq)
		tx.set(tx.name[:id], tx.name[id:])
	}
	tx.ids = tx.ids[:0]
}

// sealNewKeys adds the new keys, sorted for the same reason.
func (tx *txn) sealNewKeys() {
	slices.SortFunc(tx.keyed, func(a, b keyID) int { return bytes.Compare(a[:], b[:]) })
	here := tx.here()
	for i := range tx.keyed {
		key := &tx.keyed[i]
		if record, ok := here.keys[*key]; ok {
			tx.set(key[:], record.encode())
		}
	}
	tx.keyed = tx.keyed[:0]
}

// seal adds what a commit writes once: its last events, the changed counts and paces
// and, if it has no events, the time.
func (tx *txn) seal() {
	tx.noteRecords()
	tx.sealPacks()
	tx.sealIDs()
	tx.sealNewKeys()
	tx.sealKeys()
	told := tx.events.count > 0
	tx.sealEvents()
	if !told && !tx.empty() {
		tx.set(metaClock, binary.BigEndian.AppendUint64(nil, uint64(tx.now.UnixNano())))
	}
	for _, q := range tx.touched {
		q.touched = false
		tx.set(smallKey(prefixCounts, q.number), encodeCounts(q))
	}
	tx.touched = tx.touched[:0]
	for i, q := range tx.paces {
		tx.set(smallKey(prefixPace, q.number), encodePace(q))
		tx.paces[i] = nil
	}
	tx.paces = tx.paces[:0]
}

// set and remove fail only on a closed batch, which would be a defect here.
func (tx *txn) set(key, value []byte)       { must(tx.part(key[0]).Set(key, value, nil)) }
func (tx *txn) remove(key []byte)           { must(tx.part(key[0]).Delete(key, nil)) }
func (tx *txn) removeRange(from, to []byte) { must(tx.part(from[0]).DeleteRange(from, to, nil)) }

func must(err error) {
	if err != nil {
		panic(fmt.Sprintf("local: build a commit: %v", err))
	}
}

// put writes a record of a job under its sequence number.
func (tx *txn) put(prefix byte, seq uint64, value []byte) {
	tx.name = appendNumberKey(tx.name[:0], prefix, seq)
	tx.set(tx.name, value)
}

// record appends a job's events to the commit and returns the job's newest event
// record.
func (tx *txn) record(events []gq.Event, in *bucket, previous uint64) uint64 {
	if len(events) == 0 {
		return previous
	}
	for i := range events {
		tx.t.lastEvent++
		tx.events.add(&events[i], in.typ, in.queue.number, previous)
		if events[i].Type == gq.EventCancelRequested {
			tx.cancels = append(tx.cancels, events[i].Job)
		}
	}
	return tx.first
}

// save replaces the state of a placed job.
func (tx *txn) save(j *job, h header, old, next *gq.State, events []gq.Event) {
	tx.t.passOn(j)
	tx.t.unplace(j, old)
	if q := j.bucket.queue; q.turns != nil && next.Live() && next.Priority() != old.Priority() {
		next.Turn = tx.turn(q, h.keys, next.Priority())
	}
	tx.store(j, h, old, next, events)
}

// store writes the state of a job that is not placed, and places it. old is nil if the
// job is new.
func (tx *txn) store(j *job, h header, old, next *gq.State, events []gq.Event) {
	t := tx.t
	if !next.Status.Held() { // a held job makes nothing claimable and frees no capacity
		tx.change(j.bucket.queue)
	}
	h.lastEvent = tx.record(events, j.bucket, h.lastEvent)
	tx.scratch = encodeRecord(tx.scratch[:0], h, next)
	t.place(j, next)
	if l := next.Lease; l != nil && (old == nil || old.Lease == nil || old.Lease.ID != l.ID) && t.isForeign(j, next) {
		tx.set(leaseKey(l.ID), binary.BigEndian.AppendUint64(nil, j.seq))
	}
	tx.keep(j, h, next)
	switch {
	case !next.Live():
		tx.finish(j, next)
	case old == nil:
		tx.name = appendNumberKey(tx.name[:0], prefixLive, j.seq)
		must(tx.parts[partNew].Set(tx.name, tx.scratch, nil))
	default:
		tx.put(prefixLive, j.seq, tx.scratch)
	}
}

// keep stores a job's state in memory: decoded, or as the bytes just encoded.
func (tx *txn) keep(j *job, h header, s *gq.State) {
	pool := &tx.s.opened
	if !s.Live() || s.Status.Held() {
		if j.open == nil {
			j.open = pool.get()
		}
		j.open.header, j.open.state = h, *s
		if j.pack() == nil {
			j.record = nil
		}
		return
	}
	j.record = tx.t.share(h.bucket, tx.scratch, j.pack())
	if j.open != nil {
		pool.put(j.open)
		j.open = nil
	}
}

// finish moves an ended job out of memory and queues its dependents for an update.
func (tx *txn) finish(j *job, s *gq.State) {
	t, q := tx.t, j.bucket.queue
	done := doneKey{q.number, s.Status, j.seq}
	tx.name = done.append(tx.name[:0])
	tx.set(tx.name, tx.scratch)
	if s.Policy.Retention > 0 {
		tx.keepOwn(s)
	}

	tx.leave(j)
	tx.s.specs.drop(j.seq)
	q.detach(j)
	tx.stepOut(j)
	r := tx.here()
	r.finished = append(r.finished, j)
	tx.touch(q)
	j.bucket.jobs--
	if len(t.kids[j.seq]) > 0 {
		end := ending{j.seq, s.Status, s.Priority()}
		tx.put(prefixEnded, j.seq, []byte{byte(end.status), byte(end.level)})
		t.ended = append(t.ended, end)
	}
}

func (tx *txn) touch(q *queue) {
	if !slices.Contains(tx.touched, q) {
		tx.touched = append(tx.touched, q)
	}
}

// load returns a copy of a job's state.
func (tx *txn) load(j *job) (header, gq.State) {
	o := tx.look(j)
	return o.header, o.state
}

// look returns a job's state. It is valid until the job is stored or look is called
// again.
func (tx *txn) look(j *job) *opened {
	if j.open != nil {
		return j.open
	}
	if tx.source != nil && tx.source == j.record { // jobs submitted together are claimed together
		tx.decoded.state.ID, tx.decoded.state.Sequence = j.id, j.seq
		return &tx.decoded
	}
	var err error
	tx.decoded.header, tx.decoded.state, err = j.decode(tx.t.intern)
	if err != nil {
		panic(fmt.Sprintf("local: record of live job %s: %v", j.id, err))
	}
	if tx.source = nil; tx.decoded.state.Lease == nil && tx.decoded.state.Failure == nil { // pointers are not shared
		tx.source = j.record
	}
	return &tx.decoded
}

// ended finds a job that has ended, in this commit or before.
func (tx *txn) ended(id gq.JobID) (k doneKey, record []byte, err error) {
	if j := tx.t.get(id); j != nil {
		return doneKey{j.bucket.queue.number, j.status, j.seq}, encodeRecord(nil, j.open.header, &j.open.state), nil
	}
	tx.awaitDisk()
	return tx.readDone(id)
}

// readDone finds a job that ended in an earlier commit, unless this commit removes it.
func (tx *txn) readDone(id gq.JobID) (k doneKey, record []byte, err error) {
	if tx.gone[id] {
		return k, nil, gq.ErrNotFound
	}
	return tx.s.readDone(id)
}

// findDone finds the number and the queue of a job on disk, live or finished. It returns
// ErrNotFound if there is none. The caller holds the lock, or is the writer.
func (s *Store) findDone(id gq.JobID) (doneKey, error) {
	if n := s.table.jobs.key.Number(id); n <= s.table.lastJob {
		if k, err := s.specOf(id, n); !errors.Is(err, gq.ErrNotFound) {
			return k, err
		}
	}
	seq, err := s.foreignNumber(id)
	if err != nil {
		return doneKey{}, err
	}
	k, err := s.specOf(id, seq)
	if errors.Is(err, gq.ErrNotFound) { // both records go together
		if _, again := s.foreignNumber(id); !errors.Is(again, gq.ErrNotFound) {
			return k, fmt.Errorf("record %q: %w", idKey(id), errors.Join(corrupt(err), again))
		}
	}
	return k, err
}

// specOf reads the queue of the job with a number, if it has the id.
func (s *Store) specOf(id gq.JobID, seq uint64) (k doneKey, err error) {
	var found gq.JobID
	var name string
	err = s.see(numberKey(prefixSpec, seq), func(raw []byte) (err error) {
		found, name, err = codec.SkimSpec(raw)
		return err
	})
	if err == nil && found != id {
		err = gq.ErrNotFound
	}
	if err != nil {
		return k, err
	}
	q := s.table.queues[name]
	if q == nil {
		return k, fmt.Errorf("queue %.80q of job %s: %w", name, id, corrupt(gq.ErrNotFound))
	}
	return doneKey{queue: q.number, seq: seq}, nil
}

// foreignNumber returns the number of the job with an id from elsewhere.
func (s *Store) foreignNumber(id gq.JobID) (seq uint64, err error) {
	err = s.see(idKey(id), func(raw []byte) error {
		if len(raw) != 8 {
			return fmt.Errorf("record %q: %w", idKey(id), gq.ErrCorrupt)
		}
		seq = binary.BigEndian.Uint64(raw)
		return nil
	})
	return seq, err
}

// readDone finds a finished job on disk. It returns ErrNotFound if there is none. The caller
// holds the lock, or is the writer.
func (s *Store) readDone(id gq.JobID) (k doneKey, record []byte, err error) {
	if k, err = s.findDone(id); err != nil {
		return k, nil, err
	}
	for _, k.status = range endings {
		if record, err = s.read(k.append(nil)); !errors.Is(err, gq.ErrNotFound) {
			return k, record, err
		}
	}
	// All records go together: unless the job has just been collected, data is lost.
	if _, again := s.findDone(id); !errors.Is(again, gq.ErrNotFound) {
		return k, nil, fmt.Errorf("state of job %s: %w", id, errors.Join(corrupt(err), again))
	}
	return k, nil, err
}

// read copies a value from disk. It returns ErrNotFound if there is none.
func (s *Store) read(key []byte) (value []byte, err error) {
	err = s.see(key, func(v []byte) error {
		value = append([]byte(nil), v...)
		return nil
	})
	return value, err
}

// see looks at a value on disk, which is valid until look returns. It returns ErrNotFound if
// there is none.
func (s *Store) see(key []byte, look func(value []byte) error) error {
	value, closer, err := s.db.Get(key)
	if errors.Is(err, pebble.ErrNotFound) {
		return gq.ErrNotFound
	}
	if err != nil {
		return fmt.Errorf("read %q from %s: %w", key, s.dir, damaged(err))
	}
	err = look(value)
	if closing := closer.Close(); closing != nil {
		err = errors.Join(err, fmt.Errorf("read %q from %s: %w", key, s.dir, closing))
	}
	return err
}

// lookup finds the job that a lease belongs or belonged to: a live job, or the id of an
// ended one.
func (tx *txn) lookup(id gq.LeaseID) (j *job, ended gq.JobID, err error) {
	if j := tx.t.holder(id); j != nil {
		return j, gq.JobID{}, nil
	}
	if seq, ok := leaseSequence(id); ok {
		for _, r := range tx.recent {
			for _, j := range r.finished {
				if j.seq == seq {
					return nil, j.id, nil
				}
			}
		}
	}
	tx.awaitDisk()
	job, err := tx.s.leaseJob(id)
	if err == nil && tx.gone[job] {
		err = gq.ErrNotFound
	}
	if err != nil {
		return nil, gq.JobID{}, err
	}
	if j := tx.t.live(job); j != nil {
		return j, gq.JobID{}, nil
	}
	return nil, job, nil
}

// leaseJob finds on disk the job that a lease id points to. The caller must check that
// the job really had that lease.
func (s *Store) leaseJob(id gq.LeaseID) (gq.JobID, error) {
	seq, minted := leaseSequence(id)
	ref, err := s.read(leaseKey(id))
	switch {
	case err == nil && len(ref) != 8:
		return gq.JobID{}, fmt.Errorf("record %q: %w", leaseKey(id), gq.ErrCorrupt)
	case err == nil:
		seq, minted = binary.BigEndian.Uint64(ref), true
	case !errors.Is(err, gq.ErrNotFound):
		return gq.JobID{}, err
	}
	if !minted {
		return gq.JobID{}, gq.ErrNotFound
	}
	var job gq.JobID
	err = s.see(numberKey(prefixSpec, seq), func(raw []byte) (err error) {
		job, _, err = codec.SkimSpec(raw)
		return err
	})
	return job, err
}

func encodeCounts(q *queue) []byte {
	var b []byte
	for s := gq.StatusCompleted; s <= gq.StatusCancelled; s++ {
		b = binary.AppendVarint(b, q.counts[s])
	}
	return b
}

func decodeCounts(b []byte, q *queue) error {
	for s := gq.StatusCompleted; s <= gq.StatusCancelled; s++ {
		v, n := binary.Varint(b)
		if n <= 0 || v < 0 {
			return fmt.Errorf("counts of queue %s: %w", q.config.Name, gq.ErrCorrupt)
		}
		q.counts[s], b = v, b[n:]
	}
	if len(b) > 0 {
		return fmt.Errorf("counts of queue %s: %w", q.config.Name, gq.ErrCorrupt)
	}
	return nil
}
