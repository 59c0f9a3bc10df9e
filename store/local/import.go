package local

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/machine"
	"github.com/gopherqueue/gq/store"
	"github.com/gopherqueue/gq/store/codec"
)

// While a store is being filled, a record says from which origin and how far the copy
// has got. Every part rewrites it, and Finish removes it. A store that was created to be filled
// has it from the beginning, without an origin.
var (
	metaImport = []byte{prefixMeta, 'i'} // origin(32), mark
	metaGone   = []byte{prefixMeta, 'g'} // events up to this one may be missing
)

// importing is the state of an unfinished import. Only the writer changes it, under the
// lock.
type importing struct {
	s      *Store
	origin [32]byte
	mark   []byte
}

func (i *importing) encode() []byte { return append(i.origin[:], i.mark...) }

// begun reports whether the store has the origin's counters.
func (i *importing) begun() bool { return i != nil && i.origin != [32]byte{} }

var errUnfinished = fmt.Errorf("%w: run the gq copy or gq restore that began it again to finish it, or remove the directory", gq.ErrUnfinished)

// recoverImport finds an unfinished import, and the first complete event of a finished
// one.
func (s *Store) recoverImport() error {
	raw, err := s.read(metaGone)
	switch {
	case errors.Is(err, gq.ErrNotFound):
	case err != nil:
		return err
	case len(raw) != 8:
		return fmt.Errorf("record %q: %w", metaGone, gq.ErrCorrupt)
	default:
		s.gone.Store(binary.BigEndian.Uint64(raw))
	}
	raw, err = s.read(metaImport)
	switch {
	case errors.Is(err, gq.ErrNotFound):
		return nil
	case err != nil:
		return err
	case len(raw) < 32:
		return fmt.Errorf("record %q: %w", metaImport, gq.ErrCorrupt)
	case !s.config.Unfinished:
		return errUnfinished
	}
	s.importing = &importing{s: s, origin: [32]byte(raw), mark: raw[32:]}
	return nil
}

// Import implements [store.Importer].
func (s *Store) Import(ctx context.Context, h store.Head) (store.Import, error) {
	var refused error
	err := s.do(ctx, 1, func(tx *txn) {
		if refused = tx.beginImport(h); refused == nil {
			s.dropFilters() // they are rebuilt from disk at the end
		}
	})
	if err = errors.Join(err, refused); err != nil {
		return nil, fmt.Errorf("import into %s: %w", s.dir, err)
	}
	return s.importing, nil
}

// beginImport sets the counters so that they continue the origin's.
func (tx *txn) beginImport(h store.Head) error {
	s, t := tx.s, tx.t
	if s.importing.begun() {
		if s.importing.origin != h.Origin {
			return fmt.Errorf("%w of another store, or of another moment of this one: remove the directory and begin again", gq.ErrUnfinished)
		}
		return nil
	}
	if err := s.documents.load(s); err != nil {
		return err
	}
	if t.lastJob > 0 || t.lastEvent > 0 || len(t.queues) > 0 || len(t.pools) > 0 || s.documents.last > 0 {
		return gq.ErrNotEmpty
	}
	s.importing = &importing{s: s, origin: h.Origin}
	t.lastJob, t.lastEvent, s.documents.last = h.LastJob, h.LastEvent, h.LastDoc
	s.gone.Store(h.Gone)
	s.lastTime = max(s.lastTime, h.Time.UnixNano())
	tx.now = time.Unix(0, s.lastTime).UTC()
	s.marks.lastJob, s.marks.lastEvent, s.marks.time = h.LastJob, h.LastEvent, s.lastTime
	tx.set(metaCursors, s.marks.encode())
	tx.set(metaDocs, binary.BigEndian.AppendUint64(nil, h.LastDoc))
	tx.set(metaGone, binary.BigEndian.AppendUint64(nil, h.Gone))
	tx.set(metaImport, s.importing.encode())
	return nil
}

// Mark implements [store.Import].
func (i *importing) Mark() []byte { return i.mark }

// Write implements [store.Import].
func (i *importing) Write(ctx context.Context, items store.Items, mark []byte) error {
	var refused error
	err := i.s.do(ctx, maxWeight, func(tx *txn) {
		if refused = i.s.disk.room(forJobs, tx.size()+store.ItemBytes); refused != nil {
			return
		}
		if refused = tx.importItems(&items); refused != nil {
			i.s.fail(refused) // parts of it may be in memory
			return
		}
		i.mark = bytes.Clone(mark)
		tx.set(metaImport, i.encode())
	})
	if err = errors.Join(refused, err); err != nil {
		return fmt.Errorf("import into %s: %w", i.s.dir, err)
	}
	return nil
}

// Finish implements [store.Import].
func (i *importing) Finish(ctx context.Context) error {
	err := i.s.do(ctx, 1, func(tx *txn) {
		tx.removeRange([]byte{prefixTold}, []byte{prefixTold + 1})
		tx.remove(metaImport)
		i.s.importing = nil
		tx.awaitDisk()
		i.s.buildFilters()
	})
	if err != nil {
		return fmt.Errorf("import into %s: %w", i.s.dir, err)
	}
	return nil
}

func (tx *txn) importItems(items *store.Items) error {
	for _, p := range items.Pools {
		tx.t.pools[p.Name] = &pool{config: p}
		tx.set(poolKey(p.Name), encodePool(p))
	}
	for i := range items.Queues {
		if err := tx.importQueue(&items.Queues[i]); err != nil {
			return err
		}
	}
	if err := tx.importKeys(items); err != nil {
		return err
	}
	for _, d := range items.Docs {
		tx.set(docKey(d.Kind, d.Name), encodeDoc(d.Version, d.Data))
	}
	if err := tx.importEvents(items.Events); err != nil {
		return err
	}
	for i := range items.Jobs {
		if err := tx.importJob(&items.Jobs[i]); err != nil {
			return fmt.Errorf("job %s: %w", items.Jobs[i].State.ID, err)
		}
	}
	for _, l := range items.Leases {
		tx.set(leaseKey(l.Lease), binary.BigEndian.AppendUint64(nil, l.Job))
	}
	for _, e := range items.Edges {
		child := tx.t.jobs.at(e.Child)
		if child == nil {
			child = &job{seq: e.Child} // it has ended: the edge only waits to be removed
		}
		tx.t.kids[e.Parent] = append(tx.t.kids[e.Parent], edge{child, e.Kind})
		tx.setEdge(e.Parent, e.Child, e.Kind)
		if e.Kind == machine.DependencyOrder {
			tx.t.goBehind(e.Child, e.Parent)
		}
	}
	for _, e := range items.Ended {
		tx.t.ended = append(tx.t.ended, ending{e.Parent, e.Status, e.Level})
		tx.put(prefixEnded, e.Parent, []byte{byte(e.Status), byte(e.Level)})
	}
	return nil
}

func (tx *txn) importQueue(item *store.QueueItem) error {
	if tx.t.queues[item.Name] != nil {
		return fmt.Errorf("queue %s is there twice: %w", item.Name, gq.ErrCorrupt)
	}
	if item.Pool != "" && tx.t.pools[item.Pool] == nil {
		return fmt.Errorf("queue %s: pool %s is missing: %w", item.Name, item.Pool, gq.ErrCorrupt)
	}
	q := tx.t.addQueue(uint32(len(tx.t.numbers)), item.Queue)
	tx.set(smallKey(prefixQueue, q.number), encodeQueue(item.Queue))
	q.due = item.Due
	if q.turns != nil {
		copy(q.turns.now[gq.PriorityCritical:], item.Turns[:])
	}
	if !item.Due.IsZero() || item.Turns != [gq.PriorityBulk]uint64{} {
		tx.paced(q)
	}
	return nil
}

// importEvents writes events as log records. Each record refers to the job's previous
// one; a separate record keeps each job's newest one until the job itself arrives.
func (tx *txn) importEvents(events []gq.Event) error {
	newest := map[gq.JobID]uint64{}
	for len(events) > 0 {
		run := store.EventRun(events)
		var w eventWriter
		first := events[0].Seq
		for k := range events[:run] {
			e := &events[k]
			previous, known := newest[e.Job]
			if !known {
				var err error
				if previous, err = tx.toldIn(e.Job); err != nil {
					return err
				}
			}
			w.add(e, e.JobType, tx.queue(e.Queue).number, previous)
			newest[e.Job] = previous
		}
		for k := range events[:run] {
			newest[events[k].Job] = first
		}
		tx.set(numberKey(prefixEvents, first), w.encode(nil, events[0].Time))
		events = events[run:]
	}
	for id, record := range newest {
		tx.set(toldKey(id), binary.BigEndian.AppendUint64(nil, record))
	}
	return nil
}

func toldKey(id gq.JobID) []byte { return append([]byte{prefixTold}, id[:]...) }

// toldIn returns the newest event record of a job that has yet to arrive, 0 for none.
func (tx *txn) toldIn(id gq.JobID) (uint64, error) {
	raw, err := tx.s.read(toldKey(id))
	switch {
	case errors.Is(err, gq.ErrNotFound):
		return 0, nil
	case err != nil:
		return 0, err
	case len(raw) != 8:
		return 0, fmt.Errorf("record %q: %w", toldKey(id), gq.ErrCorrupt)
	}
	return binary.BigEndian.Uint64(raw), nil
}

func (tx *txn) importJob(item *store.JobItem) (err error) {
	t, spec, state := tx.t, &item.Spec, item.State
	seq := state.Sequence
	foreign := t.jobs.isForeign(state.ID, seq)
	if foreign {
		tx.ids = append(tx.ids, idEntry{state.ID, seq})
	}
	if t.jobs.get(state.ID) != nil || t.jobs.at(seq) != nil || state.Status.Held() && state.Lease == nil || spec.ID != state.ID {
		return fmt.Errorf("is there twice, or broken: %w", gq.ErrCorrupt)
	}
	state.Policy = t.intern(*state.Policy)
	h := header{cost: spec.CostUnits}
	if h.lastEvent, err = tx.toldIn(state.ID); err != nil {
		return err
	}
	if hasKeys(spec) {
		h.setKeys(spec)
	}
	if spec.Key.Name != "" {
		h.flags |= flagKeyed
		if !item.KeyUntil.IsZero() {
			key := keyOf(&spec.Key)
			tx.set(key[:], keyRecord{spec.ID, spec.Key.Fingerprint, spec.Unique.While, item.KeyUntil.UnixNano()}.encode())
		}
	}
	if metadata, changed := item.ChangedMetadata(); changed {
		h.flags |= flagMetadata
		tx.put(prefixMetadata, seq, metadata)
	}
	if item.Result != nil {
		h.flags |= flagResult
		tx.put(prefixResult, seq, item.Result)
	}
	if item.Checkpoint != nil {
		h.flags |= flagCheckpoint
		tx.put(prefixCheckpoint, seq, item.Checkpoint)
	}
	encoded, err := codec.AppendSpec(spec, nil)
	if err != nil {
		return err
	}
	tx.put(prefixSpec, seq, encoded)
	if !state.Live() {
		tx.importEnded(h, &state, tx.queue(spec.Queue))
		return nil
	}
	bucket := tx.bucket(spec)
	bucket.jobs++
	h.bucket = bucket.number
	j := &job{id: state.ID, seq: seq, foreign: foreign, bucket: bucket, cost: h.cost, toRun: noTimer, toDue: noTimer}
	tx.scratch = encodeRecord(tx.scratch[:0], h, &state)
	tx.put(prefixLive, seq, tx.scratch)
	if state.Status.Held() {
		j.open = &opened{h, state}
	} else {
		j.record = t.share(h.bucket, tx.scratch, nil)
	}
	t.adopt(j, h, &state)
	return nil
}

// importEnded writes a finished job. Memory only counts it.
func (tx *txn) importEnded(h header, state *gq.State, q *queue) {
	key := doneKey{q.number, state.Status, state.Sequence}.append(nil)
	tx.scratch = encodeRecord(tx.scratch[:0], h, state)
	tx.set(key, tx.scratch)
	if state.Policy.Retention > 0 {
		tx.keepOwn(state)
	}
	q.counts[state.Status]++
	tx.t.bounds.raise(doneKey{q.number, state.Status, state.Sequence})
	tx.touch(q)
}
