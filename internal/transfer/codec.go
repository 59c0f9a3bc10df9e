package transfer

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/machine"
	"github.com/gopherqueue/gq/store"
	"github.com/gopherqueue/gq/store/codec"
)

// kind is the kind of an item. The numbers are stored.
type kind byte

const (
	kindPool kind = iota + 1
	kindQueue
	kindKey
	kindOwed
	kindDoc
	kindEvent
	kindJob
	kindLease
	kindEdge
	kindEnded

	kinds = int(kindEnded)
)

var kindNames = [...]string{"", "pools", "queues", "limit keys", "used rates", "documents", "events", "jobs", "leases", "dependencies", "endings"}

func (k kind) String() string { return kindNames[k] }

// visit calls f for every item, with a function that encodes it. An item is encoded the
// same way, whichever store it comes from:
//
//	pool   gq.Pool as JSON
//	queue  gq.Queue as JSON, instant, uvarint for each level
//	key    gq.QueueKey as JSON
//	owed   queue, key, instant
//	doc    kind, name, uvarint version, data
//	event  uvarint number, instant, job id, queue, gq.Event
//	job    uvarint number, gq.Spec, gq.State, gq.Metadata, result, checkpoint, instant
//	lease  id, uvarint job
//	edge   uvarint parent, uvarint child, byte kind
//	ended  uvarint parent, byte status, byte level
//
// Strings and other variable parts are preceded by their length, a uvarint. Optional
// parts are preceded by the length plus one, or 0 if absent. An instant is 8 bytes of
// Unix nanoseconds, 0 if absent.
func visit(items *store.Items, f func(k kind, appendTo func([]byte) []byte)) {
	for i := range items.Pools {
		f(kindPool, func(b []byte) []byte { return appendPool(b, &items.Pools[i]) })
	}
	for i := range items.Queues {
		f(kindQueue, func(b []byte) []byte { return appendQueue(b, &items.Queues[i]) })
	}
	for i := range items.Keys {
		f(kindKey, func(b []byte) []byte { return appendKey(b, items.Keys[i]) })
	}
	for _, o := range items.Owed {
		f(kindOwed, func(b []byte) []byte { return appendInstant(appendText(appendText(b, o.Queue), o.Key), o.Due) })
	}
	for i := range items.Docs {
		f(kindDoc, func(b []byte) []byte { return appendDoc(b, &items.Docs[i]) })
	}
	for i := range items.Events {
		f(kindEvent, func(b []byte) []byte { return appendEvent(b, &items.Events[i]) })
	}
	for i := range items.Jobs {
		f(kindJob, func(b []byte) []byte { return appendJob(b, &items.Jobs[i]) })
	}
	for _, l := range items.Leases {
		f(kindLease, func(b []byte) []byte { return binary.AppendUvarint(appendText(b, string(l.Lease)), l.Job) })
	}
	for _, e := range items.Edges {
		f(kindEdge, func(b []byte) []byte {
			return append(binary.AppendUvarint(binary.AppendUvarint(b, e.Parent), e.Child), byte(e.Kind))
		})
	}
	for _, e := range items.Ended {
		f(kindEnded, func(b []byte) []byte { return append(binary.AppendUvarint(b, e.Parent), byte(e.Status), byte(e.Level)) })
	}
}

func appendText(b []byte, s string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

func appendInstant(b []byte, t time.Time) []byte {
	n := int64(0)
	if !t.IsZero() {
		n = t.UnixNano()
	}
	return binary.BigEndian.AppendUint64(b, uint64(n))
}

// appendSized appends what encode returns, preceded by its length.
func appendSized(b []byte, encode func([]byte) ([]byte, error)) []byte {
	part, _ := encode(nil) // encoding these types never fails
	return append(binary.AppendUvarint(b, uint64(len(part))), part...)
}

func appendOptional(b, part []byte) []byte {
	if part == nil {
		return append(b, 0)
	}
	return append(binary.AppendUvarint(b, uint64(len(part))+1), part...)
}

func appendPool(b []byte, p *gq.Pool) []byte {
	lean := *p
	lean.Used, lean.UpdatedAt = 0, p.UpdatedAt.UTC()
	return appendSized(b, func([]byte) ([]byte, error) { return json.Marshal(lean) })
}

func appendKey(b []byte, k gq.QueueKey) []byte {
	k.FreeAt, k.UpdatedAt = time.Time{}, k.UpdatedAt.UTC()
	return appendSized(b, func([]byte) ([]byte, error) { return json.Marshal(k) })
}

func appendQueue(b []byte, q *store.QueueItem) []byte {
	config := q.Queue
	config.UpdatedAt = config.UpdatedAt.UTC()
	b = appendSized(b, func([]byte) ([]byte, error) { return json.Marshal(config) })
	b = appendInstant(b, q.Due)
	for _, turn := range q.Turns {
		b = binary.AppendUvarint(b, turn)
	}
	return b
}

func appendDoc(b []byte, d *store.Doc) []byte {
	b = binary.AppendUvarint(appendText(appendText(b, d.Kind), d.Name), d.Version)
	return append(binary.AppendUvarint(b, uint64(len(d.Data))), d.Data...)
}

func appendEvent(b []byte, e *gq.Event) []byte {
	b = appendInstant(binary.AppendUvarint(b, e.Seq), e.Time)
	b = appendText(append(b, e.Job[:]...), e.Queue)
	return appendSized(b, func(b []byte) ([]byte, error) { return codec.AppendEvent(e, b) })
}

func appendJob(b []byte, j *store.JobItem) []byte {
	b = binary.AppendUvarint(b, j.State.Sequence)
	b = appendSized(b, func(b []byte) ([]byte, error) { return codec.AppendSpec(&j.Spec, b) })
	b = appendSized(b, func(b []byte) ([]byte, error) { return codec.AppendState(&j.State, b) })
	b = appendSized(b, func(b []byte) ([]byte, error) { return codec.AppendMetadata(j.Metadata, b) })
	return appendInstant(appendOptional(appendOptional(b, j.Result), j.Checkpoint), j.KeyUntil)
}

// encode writes items one after the other: kind, length, item.
func encode(items *store.Items) []byte {
	var b, item []byte
	visit(items, func(k kind, appendTo func([]byte) []byte) {
		item = appendTo(item[:0])
		b = binary.AppendUvarint(append(b, byte(k)), uint64(len(item)))
		b = append(b, item...)
	})
	return b
}

// decode is the inverse of encode.
func decode(b []byte) (items store.Items, err error) {
	d := &decoder{codec.NewReader(b)}
	for n := 0; d.Len() > 0; n++ {
		k := kind(d.Byte())
		inner := &decoder{codec.NewReader(d.Bytes())}
		if d.Err() == nil {
			inner.item(k, &items)
			inner.End()
			err = inner.Err()
		} else {
			err = d.Err()
		}
		if err != nil {
			return store.Items{}, fmt.Errorf("item %d: %w", n+1, err)
		}
	}
	return items, nil
}

// decoder decodes items. What it returns shares memory with its input.
type decoder struct{ codec.Reader }

func (d *decoder) text() string { return string(d.Bytes()) }

func (d *decoder) optional() []byte {
	n := d.Uvarint()
	if n == 0 || d.Err() != nil {
		return nil
	}
	return slices.Clip(d.Take(n - 1))
}

// check records the error of a field.
func (d *decoder) check(what string, err error) {
	if err != nil {
		d.Fail(fmt.Errorf("%s: %w: %w", what, gq.ErrCorrupt, err))
	}
}

func (d *decoder) item(k kind, items *store.Items) {
	switch k {
	case kindPool:
		var p gq.Pool
		d.check("pool", json.Unmarshal(d.Bytes(), &p))
		d.check("pool", machine.CheckPool(p))
		items.Pools = append(items.Pools, p)
	case kindQueue:
		items.Queues = append(items.Queues, d.queue())
	case kindKey:
		var k gq.QueueKey
		d.check("limit key", json.Unmarshal(d.Bytes(), &k))
		d.check("limit key", machine.CheckQueueKey(k))
		items.Keys = append(items.Keys, k)
	case kindOwed:
		items.Owed = append(items.Owed, store.OwedItem{Queue: d.text(), Key: d.text(), Due: d.Instant()})
	case kindDoc:
		doc := store.Doc{Kind: d.text(), Name: d.text(), Version: d.Uvarint(), Data: append([]byte{}, d.Bytes()...)}
		d.check("document", store.CheckDocs([]store.Doc{doc}))
		items.Docs = append(items.Docs, doc)
	case kindEvent:
		items.Events = append(items.Events, d.event())
	case kindJob:
		items.Jobs = append(items.Jobs, d.job())
	case kindLease:
		items.Leases = append(items.Leases, store.LeaseItem{Lease: gq.LeaseID(d.text()), Job: d.Uvarint()})
	case kindEdge:
		items.Edges = append(items.Edges, store.EdgeItem{Parent: d.Uvarint(), Child: d.Uvarint(), Kind: gq.DependencyKind(d.Byte())})
	case kindEnded:
		e := store.EndedItem{Parent: d.Uvarint(), Status: gq.Status(d.Byte()), Level: gq.Priority(d.Byte())}
		if !e.Status.Terminal() {
			d.Fail(fmt.Errorf("ending: %w", gq.ErrCorrupt))
		}
		items.Ended = append(items.Ended, e)
	default:
		d.Fail(fmt.Errorf("kind %d is not known: %w", k, gq.ErrCorrupt))
	}
}

func (d *decoder) queue() (q store.QueueItem) {
	d.check("queue", json.Unmarshal(d.Bytes(), &q.Queue))
	d.check("queue", machine.CheckQueue(q.Queue))
	q.Due = d.Instant()
	for i := range q.Turns {
		q.Turns[i] = d.Uvarint()
	}
	return q
}

func (d *decoder) event() gq.Event {
	seq, at, id := d.Uvarint(), d.Instant(), gq.JobID{}
	copy(id[:], d.Take(uint64(len(id))))
	queue := d.text()
	e, rest, err := codec.DecodeEvent(d.Bytes())
	if err == nil && len(rest) > 0 {
		err = gq.ErrCorrupt
	}
	d.check(fmt.Sprintf("event %d", seq), err)
	e.Seq, e.Time, e.Job, e.Queue = seq, at, id, queue
	return e
}

func (d *decoder) job() (j store.JobItem) {
	seq := d.Uvarint()
	what := fmt.Sprintf("job %d", seq)
	var err error
	j.Spec, err = codec.DecodeSpec(d.Bytes())
	d.check(what, err)
	j.State, err = codec.DecodeState(d.Bytes(), seq, func(p gq.Policy) *gq.Policy { return &p })
	d.check(what, err)
	j.Metadata, err = codec.DecodeMetadata(d.Bytes())
	d.check(what, err)
	j.Result, j.Checkpoint, j.KeyUntil = d.optional(), d.optional(), d.Instant()
	return j
}
