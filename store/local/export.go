package local

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/store"
	"github.com/gopherqueue/gq/store/codec"
)

// export reads the records of a snapshot, one kind after the other. A cursor is the
// last key read, or the first byte of the next kind's keys.
type export struct {
	s       *Store
	snap    *pebble.Snapshot
	head    store.Head
	names   map[uint32]string // of queues
	numbers map[string]uint32 // of queues
	empty   map[uint32]bool   // deleted queues without jobs
	pack    packRecord        // the last one that was read
	own     map[uint32]int    // limit keys with limits of their own, by queue
}

// exported are the kinds of records that are items of their own, in the order of
// [store.Items]. A job's other records are read with its spec.
var exported = []byte{
	prefixPool, prefixQueue, prefixOwnKey, prefixOwed, prefixDoc, prefixHistory, prefixEvents, prefixSpec, prefixLease, prefixEdge, prefixEnded,
}

// Export implements [store.Exporter].
func (s *Store) Export(ctx context.Context) (store.Export, error) {
	if err := s.told(ctx); err != nil {
		return nil, fmt.Errorf("export: %w", err)
	}
	x := &export{s: s, names: map[uint32]string{}, numbers: map[string]uint32{}, empty: map[uint32]bool{}, own: map[uint32]int{}}
	err := s.view(ctx, oneByOne, func(time.Time) (then, error) {
		s.awaitDisk()
		x.snap = s.db.NewSnapshot()
		s.reads.Add(1) // keeps the files open until Close
		t := s.table
		x.head = store.Head{
			LastJob: t.lastJob, LastEvent: t.lastEvent, Gone: s.incomplete(),
			Time: time.Unix(0, s.lastTime).UTC(), // an empty store's time is 1970
		}
		for _, q := range t.numbers[1:] {
			x.names[q.number], x.numbers[q.config.Name] = q.config.Name, q.number
			if q.hidden() {
				x.empty[q.number] = true
			}
			if len(q.own) > 0 {
				x.own[q.number] = len(q.own)
			}
			for _, n := range q.counts {
				x.head.Jobs += n
			}
		}
		return nil, nil
	})
	if err != nil {
		if x.snap != nil {
			err = errors.Join(err, x.Close())
		}
		return nil, fmt.Errorf("export: %w", err)
	}
	if err := x.number(); err != nil {
		return nil, fmt.Errorf("export: %w", errors.Join(err, x.Close()))
	}
	return x, nil
}

// told waits until all dependents of ended jobs have been updated. Otherwise the writer
// would do that on its own, and the origin would change during the export.
func (s *Store) told(ctx context.Context) error {
	for {
		s.mu.RLock()
		waiting := len(s.table.ended) > 0 && s.importing == nil
		s.mu.RUnlock()
		if !waiting {
			return nil
		}
		if err := s.do(ctx, 1, func(*txn) {}); err != nil {
			return err
		}
	}
}

// incomplete returns the last event before which events may be missing: dropped or
// processed by retention, or never in this store. The caller holds the lock.
func (s *Store) incomplete() uint64 {
	return max(s.dropped.Load(), s.gone.Load(), slices.Max(s.marks.cursors[:])-1)
}

// number sets the head's LastDoc and Origin. Every commit changes at least the time and
// opening a store changes nothing, so equal origins mean equal content.
func (x *export) number() error {
	raw, err := x.get(metaDocs)
	switch {
	case errors.Is(err, gq.ErrNotFound):
	case err != nil:
		return err
	case len(raw) != 8:
		return fmt.Errorf("record %q: %w", metaDocs, gq.ErrCorrupt)
	default:
		x.head.LastDoc = binary.BigEndian.Uint64(raw)
	}
	h := sha256.New()
	fmt.Fprintf(h, "local %d %d %d %d %d", x.head.LastJob, x.head.LastEvent, x.head.Gone, x.head.LastDoc, x.head.Time.UnixNano())
	h.Sum(x.head.Origin[:0])
	return nil
}

// Head implements [store.Export].
func (x *export) Head() store.Head { return x.head }

// Close implements [store.Export].
func (x *export) Close() error {
	if x.snap == nil {
		return nil
	}
	err := x.snap.Close()
	x.snap = nil
	x.s.reads.Done()
	return err
}

func (x *export) get(key []byte) ([]byte, error) {
	value, closer, err := x.snap.Get(key)
	if errors.Is(err, pebble.ErrNotFound) {
		return nil, gq.ErrNotFound
	}
	if err != nil {
		return nil, fmt.Errorf("read %q from %s: %w", key, x.s.dir, damaged(err))
	}
	out := append([]byte{}, value...)
	return out, closer.Close()
}

// Read implements [store.Export].
func (x *export) Read(ctx context.Context, cursor string, limit int) (items store.Items, next string, err error) {
	if cursor == "" {
		cursor = string(exported[0])
	}
	kind := slices.Index(exported, cursor[0])
	if kind < 0 {
		return items, "", &gq.InvalidError{Faults: []gq.Fault{{Field: "cursor", Problem: "is not one that an export has returned"}}}
	}
	next, err = x.read(ctx, &items, exported[kind], cursor, limit)
	if err != nil {
		return store.Items{}, "", fmt.Errorf("export from %s: %w", x.s.dir, err)
	}
	if next == "" && kind+1 < len(exported) {
		next = string(exported[kind+1])
	}
	return items, next, nil
}

// read reads records of one kind after a key. It returns the last key read, or "" at
// the end of the kind.
func (x *export) read(ctx context.Context, items *store.Items, prefix byte, after string, limit int) (next string, err error) {
	o := iterOptions(prefix)
	o.LowerBound = []byte(after)
	if len(after) > 1 {
		o.LowerBound = append(o.LowerBound, 0)
	}
	it, err := x.snap.NewIter(o)
	if err != nil {
		return "", err
	}
	defer func() { err = either(err, damaged(it.Close())) }()
	size := 0
	for ok := it.First(); ok; ok = it.Next() {
		if err := ctx.Err(); err != nil {
			return "", context.Cause(ctx)
		}
		value, err := it.ValueAndErr()
		if err = damaged(err); err == nil {
			size += len(value)
			err = x.item(items, it.Key(), value, &size)
		}
		if err != nil {
			return "", fmt.Errorf("record %q: %w", it.Key(), err)
		}
		if items.Len() >= limit || size >= store.ItemBytes {
			return string(it.Key()), nil
		}
	}
	return "", damaged(it.Error())
}

// item adds a record to items. It adds to size the bytes it read in addition.
func (x *export) item(items *store.Items, key, value []byte, size *int) error {
	switch key[0] {
	case prefixPool:
		p, err := decodePool(value)
		items.Pools = append(items.Pools, p)
		return err
	case prefixQueue:
		if isDeleted(value) && x.empty[binary.BigEndian.Uint32(key[1:])] {
			return nil
		}
		q, err := x.queue(key, value)
		items.Queues = append(items.Queues, q)
		return err
	case prefixOwnKey, prefixOwed:
		return x.key(items, key, value)
	case prefixDoc:
		kind, name, ok := strings.Cut(string(key[1:]), "\x00")
		if !ok {
			return gq.ErrCorrupt
		}
		d := store.Doc{Kind: kind, Name: name}
		var err error
		d.Version, d.Data, err = decodeDoc(value)
		items.Docs = append(items.Docs, d)
		return err
	case prefixHistory:
		events, err := decodeCarried(value, func(n uint32) string { return x.names[n] })
		items.Events = append(items.Events, events...)
		return err
	case prefixEvents:
		return x.events(items, key, value)
	case prefixSpec:
		return x.job(items, key, value, size)
	case prefixLease:
		if len(value) != 8 {
			return gq.ErrCorrupt
		}
		items.Leases = append(items.Leases, store.LeaseItem{Lease: gq.LeaseID(key[1:]), Job: binary.BigEndian.Uint64(value)})
	case prefixEdge:
		if err := checkEdge(key, value); err != nil {
			return err
		}
		items.Edges = append(items.Edges, store.EdgeItem{
			Parent: binary.BigEndian.Uint64(key[1:]), Child: binary.BigEndian.Uint64(key[9:]), Kind: gq.DependencyKind(key[17]),
		})
	case prefixEnded:
		if len(key) != 9 || len(value) != 2 {
			return gq.ErrCorrupt
		}
		items.Ended = append(items.Ended, store.EndedItem{
			Parent: binary.BigEndian.Uint64(key[1:]), Status: gq.Status(value[0]), Level: gq.Priority(value[1]),
		})
	}
	return nil
}

// queue reads a queue and its pace.
func (x *export) queue(key, value []byte) (item store.QueueItem, err error) {
	if item.Queue, err = decodeQueue(value); err != nil {
		return item, err
	}
	item.OwnKeys = x.own[binary.BigEndian.Uint32(key[1:])]
	raw, err := x.get(append([]byte{prefixPace}, key[1:]...))
	if errors.Is(err, gq.ErrNotFound) {
		return item, nil
	}
	if err != nil {
		return item, err
	}
	q := queue{config: settings{Name: item.Name, Fair: item.Fair}}
	if item.Fair {
		q.turns = newTurns()
	}
	if err := decodePace(raw, &q); err != nil {
		return item, err
	}
	item.Due = q.due
	if q.turns != nil {
		copy(item.Turns[:], q.turns.now[gq.PriorityCritical:])
	}
	return item, nil
}

// key reads the limits of a limit key, or what it owes.
func (x *export) key(items *store.Items, key, value []byte) error {
	if len(key) < 6 {
		return gq.ErrCorrupt
	}
	queue, name := x.names[binary.BigEndian.Uint32(key[1:])], string(key[5:])
	if key[0] == prefixOwnKey {
		own, err := decodeOwn(queue, name, value)
		items.Keys = append(items.Keys, own)
		return err
	}
	if len(value) != 8 {
		return gq.ErrCorrupt
	}
	items.Owed = append(items.Owed, store.OwedItem{Queue: queue, Key: name, Due: time.Unix(0, int64(binary.BigEndian.Uint64(value))).UTC()})
	return nil
}

// events reads a record of the log without the events of removed jobs.
func (x *export) events(items *store.Items, key, value []byte) error {
	if len(key) != 9 {
		return gq.ErrCorrupt
	}
	var failed error
	err := decodeEvents(value, binary.BigEndian.Uint64(key[1:]), func(e *storedEvent) bool {
		if e.Seq <= x.head.Gone {
			var kept bool
			if kept, failed = x.kept(e.Job); !kept || failed != nil {
				return failed == nil
			}
		}
		e.Queue = x.names[e.queue]
		items.Events = append(items.Events, e.Event)
		return true
	})
	return errors.Join(err, failed)
}

// kept reports whether a job existed when the export began, live or ended.
func (x *export) kept(id gq.JobID) (bool, error) {
	seq := x.s.table.jobs.key.Number(id)
	ref, err := x.get(idKey(id))
	switch {
	case err == nil && len(ref) == 8:
		seq = binary.BigEndian.Uint64(ref)
	case err == nil:
		return false, fmt.Errorf("record %q: %w", idKey(id), gq.ErrCorrupt)
	case !errors.Is(err, gq.ErrNotFound):
		return false, err
	}
	raw, err := x.get(numberKey(prefixSpec, seq))
	if errors.Is(err, gq.ErrNotFound) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	found, _, err := codec.SkimSpec(raw)
	return found == id, err
}

// job reads all records of the job with this spec.
func (x *export) job(items *store.Items, key, value []byte, size *int) error {
	if len(key) != 9 {
		return gq.ErrCorrupt
	}
	seq := binary.BigEndian.Uint64(key[1:])
	var item store.JobItem
	var err error
	if item.Spec, err = codec.DecodeSpec(append([]byte(nil), value...)); err != nil {
		return err
	}
	record, err := x.record(seq, item.Spec.Queue)
	if err != nil {
		return fmt.Errorf("job %s: %w", item.Spec.ID, corrupt(err))
	}
	h, state, err := decodeRecord(record, seq, alone)
	if err != nil {
		return err
	}
	if state.ID.IsZero() {
		state.ID = x.pack.id(x.s.table.jobs.key, seq)
	}
	if state.ID != item.Spec.ID {
		return fmt.Errorf("job %s has the state of %s: %w", item.Spec.ID, state.ID, gq.ErrCorrupt)
	}
	item.State, item.Metadata = state, item.Spec.Metadata
	for _, part := range []struct {
		flag, prefix byte
		set          func([]byte) error
	}{
		{flagMetadata, prefixMetadata, func(raw []byte) error { item.Metadata, err = codec.DecodeMetadata(raw); return err }},
		{flagResult, prefixResult, func(raw []byte) error { item.Result = raw; return nil }},
		{flagCheckpoint, prefixCheckpoint, func(raw []byte) error { item.Checkpoint = raw; return nil }},
	} {
		if h.flags&part.flag == 0 {
			continue
		}
		raw, err := x.get(numberKey(part.prefix, seq))
		if err == nil {
			*size += len(raw)
			err = part.set(raw)
		}
		if err != nil {
			return fmt.Errorf("job %s: %w", item.Spec.ID, corrupt(err))
		}
	}
	if h.flags&flagKeyed != 0 {
		if item.KeyUntil, err = x.keyUntil(&item.Spec); err != nil {
			return err
		}
	}
	items.Jobs = append(items.Jobs, item)
	return nil
}

// record reads a job's state record, live or finished.
func (x *export) record(seq uint64, queue string) ([]byte, error) {
	record, err := x.get(numberKey(prefixLive, seq))
	if errors.Is(err, gq.ErrNotFound) {
		record, err = x.packed(seq)
	}
	if err != nil && !errors.Is(err, gq.ErrNotFound) || err == nil && !bytes.Equal(record, packEnded) {
		return record, err
	}
	k := doneKey{queue: x.numbers[queue], seq: seq}
	for _, k.status = range endings {
		if record, err = x.get(k.append(nil)); !errors.Is(err, gq.ErrNotFound) {
			break
		}
	}
	return record, err
}

// packed returns the record of a job in its first state, with a zero id, if it belongs to a
// pack.
func (x *export) packed(seq uint64) (_ []byte, err error) {
	if !x.pack.has(seq) {
		it, err := x.snap.NewIter(iterOptions(prefixPack))
		if err != nil {
			return nil, err
		}
		defer func() { err = either(err, damaged(it.Close())) }()
		if !it.SeekLT(numberKey(prefixPack, seq+1)) {
			return nil, either(damaged(it.Error()), gq.ErrNotFound)
		}
		value, err := it.ValueAndErr()
		if err == nil {
			x.pack, err = decodePack(slices.Clone(it.Key()), slices.Clone(value))
		}
		if err != nil || !x.pack.has(seq) {
			return nil, either(damaged(err), gq.ErrNotFound)
		}
	}
	return x.pack.start, nil
}

// keyed reads the record of a key.
func (x *export) keyed(k *gq.IdempotencyKey) ([]byte, error) {
	id := keyOf(k)
	return x.get(id[:])
}

// keyUntil returns when a job's idempotency key expires, zero if the job no longer has
// it.
func (x *export) keyUntil(spec *gq.Spec) (time.Time, error) {
	raw, err := x.keyed(&spec.Key)
	if errors.Is(err, gq.ErrNotFound) {
		return time.Time{}, nil
	}
	if err != nil {
		return time.Time{}, err
	}
	record, err := decodeKeyRecord(raw)
	if err != nil || record.id != spec.ID {
		return time.Time{}, err
	}
	return time.Unix(0, record.expires).UTC(), nil
}

var (
	_ store.Exporter = (*Store)(nil)
	_ store.Importer = (*Store)(nil)
)
