package transfer

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/machine"
	"github.com/gopherqueue/gq/store"
	"github.com/gopherqueue/gq/store/codec"
)

// kind is what sort of thing an item is. The numbers are stored.
type kind byte

const (
	kindPool kind = iota + 1
	kindQueue
	kindDoc
	kindEvent
	kindJob
	kindLease
	kindEdge
	kindEnded

	kinds = int(kindEnded)
)

var kindNames = [...]string{"", "pools", "queues", "documents", "events", "jobs", "leases", "dependencies", "endings"}

func (k kind) String() string { return kindNames[k] }

// visit calls f for every item, with what writes it. An item has one form,
// whichever store it comes from:
//
//	pool   gq.Pool as JSON
//	queue  gq.Queue as JSON, instant, uvarint for each level
//	doc    kind, name, uvarint version, data
//	event  uvarint number, instant, job id, queue, gq.Event
//	job    uvarint number, gq.Spec, gq.State, gq.Metadata, result, checkpoint, instant
//	lease  id, uvarint job
//	edge   uvarint parent, uvarint child, byte kind
//	ended  uvarint parent, byte status, byte level
//
// Strings and other variable parts have their length in front, a uvarint; what
// may be missing has the length plus one, and 0 where it is. An instant is in
// nanoseconds since 1970, in 8 bytes, and 0 for none.
func visit(items *store.Items, f func(k kind, appendTo func([]byte) []byte)) {
	for i := range items.Pools {
		f(kindPool, func(b []byte) []byte { return appendPool(b, &items.Pools[i]) })
	}
	for i := range items.Queues {
		f(kindQueue, func(b []byte) []byte { return appendQueue(b, &items.Queues[i]) })
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

// appendSized writes what encode appends, with its length in front.
func appendSized(b []byte, encode func([]byte) ([]byte, error)) []byte {
	part, _ := encode(nil) // the forms of package gq never fail
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

// decode reads what encode has written.
func decode(b []byte) (items store.Items, err error) {
	d := &decoder{b: b}
	for n := 0; len(d.b) > 0; n++ {
		k := kind(d.byte())
		inner := &decoder{b: d.bytes()}
		if d.err == nil {
			inner.item(k, &items)
			inner.end()
			d.err = inner.err
		}
		if d.err != nil {
			return store.Items{}, fmt.Errorf("item %d: %w", n+1, d.err)
		}
	}
	return items, nil
}

// decoder reads fields until the first one that is broken. What it returns is
// part of what it reads.
type decoder struct {
	b   []byte
	err error
}

func (d *decoder) fail(what string) {
	if d.err == nil {
		d.err = fmt.Errorf("%s: %w", what, gq.ErrCorrupt)
	}
	d.b = nil
}

func (d *decoder) take(n uint64) []byte {
	if n > uint64(len(d.b)) {
		d.fail("ends too soon")
		return nil
	}
	part := d.b[:n:n]
	d.b = d.b[n:]
	return part
}

func (d *decoder) byte() byte {
	if part := d.take(1); part != nil {
		return part[0]
	}
	return 0
}

func (d *decoder) uvarint() uint64 {
	v, n := binary.Uvarint(d.b)
	if n <= 0 || n > 1 && d.b[n-1] == 0 {
		d.fail("not a number")
		return 0
	}
	d.b = d.b[n:]
	return v
}

func (d *decoder) bytes() []byte { return d.take(d.uvarint()) }
func (d *decoder) text() string  { return string(d.bytes()) }

func (d *decoder) optional() []byte {
	n := d.uvarint()
	if n == 0 || d.err != nil {
		return nil
	}
	part := d.take(n - 1)
	if part == nil && d.err == nil {
		part = []byte{}
	}
	return part
}

func (d *decoder) instant() time.Time {
	part := d.take(8)
	if part == nil {
		return time.Time{}
	}
	n := int64(binary.BigEndian.Uint64(part))
	if n == 0 {
		return time.Time{}
	}
	return time.Unix(0, n).UTC()
}

func (d *decoder) end() {
	if d.err == nil && len(d.b) > 0 {
		d.fail("has more than it should")
	}
}

// check keeps the error of a part.
func (d *decoder) check(what string, err error) {
	if err != nil && d.err == nil {
		d.err = fmt.Errorf("%s: %w: %w", what, gq.ErrCorrupt, err)
		d.b = nil
	}
}

func (d *decoder) item(k kind, items *store.Items) {
	switch k {
	case kindPool:
		var p gq.Pool
		d.check("pool", json.Unmarshal(d.bytes(), &p))
		d.check("pool", machine.CheckPool(p))
		items.Pools = append(items.Pools, p)
	case kindQueue:
		items.Queues = append(items.Queues, d.queue())
	case kindDoc:
		doc := store.Doc{Kind: d.text(), Name: d.text(), Version: d.uvarint(), Data: append([]byte{}, d.bytes()...)}
		d.check("document", store.CheckDocs([]store.Doc{doc}))
		items.Docs = append(items.Docs, doc)
	case kindEvent:
		items.Events = append(items.Events, d.event())
	case kindJob:
		items.Jobs = append(items.Jobs, d.job())
	case kindLease:
		items.Leases = append(items.Leases, store.LeaseItem{Lease: gq.LeaseID(d.text()), Job: d.uvarint()})
	case kindEdge:
		items.Edges = append(items.Edges, store.EdgeItem{Parent: d.uvarint(), Child: d.uvarint(), Kind: gq.DependencyKind(d.byte())})
	case kindEnded:
		e := store.EndedItem{Parent: d.uvarint(), Status: gq.Status(d.byte()), Level: gq.Priority(d.byte())}
		if d.err == nil && !e.Status.Terminal() {
			d.fail("ending")
		}
		items.Ended = append(items.Ended, e)
	default:
		d.fail(fmt.Sprintf("kind %d is not known", k))
	}
}

func (d *decoder) queue() (q store.QueueItem) {
	d.check("queue", json.Unmarshal(d.bytes(), &q.Queue))
	d.check("queue", machine.CheckQueue(q.Queue))
	q.Due = d.instant()
	for i := range q.Turns {
		q.Turns[i] = d.uvarint()
	}
	return q
}

func (d *decoder) event() gq.Event {
	seq, at, id := d.uvarint(), d.instant(), gq.JobID{}
	copy(id[:], d.take(uint64(len(id))))
	queue := d.text()
	e, rest, err := codec.DecodeEvent(d.bytes())
	if err == nil && len(rest) > 0 {
		err = gq.ErrCorrupt
	}
	d.check(fmt.Sprintf("event %d", seq), err)
	e.Seq, e.Time, e.Job, e.Queue = seq, at, id, queue
	return e
}

func (d *decoder) job() (j store.JobItem) {
	seq := d.uvarint()
	what := fmt.Sprintf("job %d", seq)
	var err error
	j.Spec, err = codec.DecodeSpec(d.bytes())
	d.check(what, err)
	j.State, err = codec.DecodeState(d.bytes(), seq, func(p gq.Policy) *gq.Policy { return &p })
	d.check(what, err)
	j.Metadata, err = codec.DecodeMetadata(d.bytes())
	d.check(what, err)
	j.Result, j.Checkpoint, j.KeyUntil = d.optional(), d.optional(), d.instant()
	return j
}
