package local

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/machine"
	"github.com/gopherqueue/gq/store/codec"
)

// A job's record is its state and what the store needs in addition:
//
//	uvarint  the job's newest event record
//	uvarint  bucket
//	uvarint  cost
//	byte     flags
//	string   limit key, if the flags say so
//	string   fair key, if the flags say so
//	string   order key, if the flags say so
//	uvarint  weight, if the flags say so
//	         gq.State
//
// A string is its length, a uvarint, and its bytes.
const (
	flagKeyed      = 1 << iota // has an idempotency key
	flagMetadata               // has metadata that changed since it was submitted
	flagResult                 // has a result
	flagCheckpoint             // has a checkpoint
	flagLimitKey               // has a limit key
	flagFairKey                // has a fair key
	flagOrderKey               // has an order key
	flagWeight                 // has a weight above 1
)

type header struct {
	lastEvent uint64
	bucket    uint32
	cost      int64
	flags     byte
	keys      *jobKeys // nil if it has none
}

// jobKeys are the keys by which a job is limited, takes its turn and follows others.
type jobKeys struct {
	limit, fair, order string
	weight             int // for the rate of the limit key; 0 is 1
}

// hasKeys reports whether a job needs jobKeys.
func hasKeys(s *gq.Spec) bool { return s.LimitKey != "" || s.FairKey != "" || s.OrderKey != "" }

func (h *header) setKeys(s *gq.Spec) {
	h.keys = &jobKeys{limit: s.LimitKey, fair: s.FairKey, order: s.OrderKey}
	if s.Weight > 1 {
		h.keys.weight = s.Weight
		h.flags |= flagWeight
	}
	if s.LimitKey != "" {
		h.flags |= flagLimitKey
	}
	if s.FairKey != "" {
		h.flags |= flagFairKey
	}
	if s.OrderKey != "" {
		h.flags |= flagOrderKey
	}
}

func (h header) fairKey() string {
	if h.keys == nil {
		return ""
	}
	return h.keys.fair
}

func encodeRecord(b []byte, h header, s *gq.State) []byte {
	b = binary.AppendUvarint(b, h.lastEvent)
	b = binary.AppendUvarint(b, uint64(h.bucket))
	b = binary.AppendUvarint(b, uint64(h.cost))
	b = append(b, h.flags)
	if h.flags&flagLimitKey != 0 {
		b = append(binary.AppendUvarint(b, uint64(len(h.keys.limit))), h.keys.limit...)
	}
	if h.flags&flagFairKey != 0 {
		b = append(binary.AppendUvarint(b, uint64(len(h.keys.fair))), h.keys.fair...)
	}
	if h.flags&flagOrderKey != 0 {
		b = append(binary.AppendUvarint(b, uint64(len(h.keys.order))), h.keys.order...)
	}
	if h.flags&flagWeight != 0 {
		b = binary.AppendUvarint(b, uint64(h.keys.weight))
	}
	b, _ = codec.AppendState(s, b) // never fails
	return b
}

// uvarint reads a number and returns how many bytes it took: 0 if it is missing, out of
// range or not in its shortest form.
func uvarint(b []byte) (v uint64, n int) {
	v, n = binary.Uvarint(b)
	if n <= 0 || n > 1 && b[n-1] == 0 {
		return 0, 0
	}
	return v, n
}

func decodeHeader(b []byte) (h header, rest []byte, err error) {
	var fields [3]uint64
	for i := range fields {
		v, n := uvarint(b)
		if n == 0 {
			return h, nil, fmt.Errorf("job record: %w", gq.ErrCorrupt)
		}
		fields[i], b = v, b[n:]
	}
	if len(b) == 0 || fields[1] > 1<<32-1 || fields[2] > gq.MaxCostUnits {
		return h, nil, fmt.Errorf("job record: %w", gq.ErrCorrupt)
	}
	h = header{lastEvent: fields[0], bucket: uint32(fields[1]), cost: int64(fields[2]), flags: b[0]}
	b = b[1:]
	if h.flags&(flagLimitKey|flagFairKey|flagOrderKey|flagWeight) == 0 {
		return h, b, nil
	}
	h.keys = &jobKeys{}
	for _, k := range []struct {
		flag byte
		key  *string
	}{{flagLimitKey, &h.keys.limit}, {flagFairKey, &h.keys.fair}, {flagOrderKey, &h.keys.order}} {
		if h.flags&k.flag == 0 {
			continue
		}
		size, n := uvarint(b)
		if n == 0 || size == 0 || size > gq.MaxNameBytes || size > uint64(len(b)-n) {
			return h, nil, fmt.Errorf("keys of a job record: %w", gq.ErrCorrupt)
		}
		*k.key, b = string(b[n:n+int(size)]), b[n+int(size):]
	}
	if h.flags&flagWeight != 0 {
		weight, n := uvarint(b)
		if n == 0 || weight < 2 || weight > gq.MaxWeight || h.keys.limit == "" {
			return h, nil, fmt.Errorf("weight of a job record: %w", gq.ErrCorrupt)
		}
		h.keys.weight, b = int(weight), b[n:]
	}
	return h, b, nil
}

func decodeRecord(b []byte, seq uint64, intern func(gq.Policy) *gq.Policy) (header, gq.State, error) {
	h, rest, err := decodeHeader(b)
	if err != nil {
		return h, gq.State{}, err
	}
	s, err := codec.DecodeState(rest, seq, intern)
	return h, s, err
}

// recordID returns where the id begins in a valid record.
func recordID(b []byte) int {
	_, state, err := decodeHeader(b)
	if err != nil {
		panic(fmt.Sprintf("local: record of a live job: %v", err))
	}
	return len(b) - len(state) + codec.StateID(state)
}

// alone is an intern function for readers, which share nothing.
func alone(p gq.Policy) *gq.Policy { return new(p) }

// keyRecord is the value of an idempotency key's record.
type keyRecord struct {
	id          gq.JobID
	fingerprint uint64
	while       gq.While // the rule of a unique job
	expires     int64
}

const keyRecordSize = 16 + 8 + 8 + 1

func (k keyRecord) encode() []byte {
	b := append(make([]byte, 0, keyRecordSize), k.id[:]...)
	b = binary.BigEndian.AppendUint64(b, k.fingerprint)
	b = binary.BigEndian.AppendUint64(b, uint64(k.expires))
	return append(b, byte(k.while))
}

func decodeKeyRecord(b []byte) (k keyRecord, err error) {
	if len(b) != keyRecordSize {
		return k, fmt.Errorf("idempotency key: %w", gq.ErrCorrupt)
	}
	copy(k.id[:], b)
	k.fingerprint = binary.BigEndian.Uint64(b[16:])
	k.expires = int64(binary.BigEndian.Uint64(b[24:]))
	k.while = gq.While(b[32])
	return k, nil
}

// The events of one commit are one record:
//
//	byte     version
//	fixed 8  time
//	uvarint  number of events
//	then for each event
//	byte     1: about the same job as the one before; 0: the next three follow
//	16       job id
//	uvarint  queue
//	uvarint  the job's previous event record, 0 for none
//	         gq.Event, without the type of the job if the one before it has the same
const eventsVersion = 1

type eventWriter struct {
	b     []byte
	count int
	last  gq.JobID
	typ   string // of the last job
}

func (w *eventWriter) add(e *gq.Event, typ string, queue uint32, previous uint64) {
	if w.count > 0 && w.last == e.Job {
		w.b = append(w.b, 1)
	} else {
		w.b = append(w.b, 0)
		w.b = append(w.b, e.Job[:]...)
		w.b = binary.AppendUvarint(w.b, uint64(queue))
		w.b = binary.AppendUvarint(w.b, previous)
		w.last = e.Job
	}
	one := *e
	if one.JobType = ""; typ != w.typ && !e.Type.OfProvider() {
		one.JobType, w.typ = typ, typ
	}
	w.b, _ = codec.AppendEvent(&one, w.b) // never fails
	w.count++
}

func (w *eventWriter) encode(b []byte, now time.Time) []byte {
	b = append(b, eventsVersion)
	b = binary.BigEndian.AppendUint64(b, uint64(now.UnixNano()))
	b = binary.AppendUvarint(b, uint64(w.count))
	return append(b, w.b...)
}

// storedEvent is a decoded event with what its record adds.
type storedEvent struct {
	gq.Event
	queue    uint32
	previous uint64
}

// decodeEvents calls visit for each event of a record, until it returns false. The event
// is valid until visit returns.
func decodeEvents(b []byte, first uint64, visit func(*storedEvent) bool) error {
	bad := func() error { return fmt.Errorf("event record %d: %w", first, gq.ErrCorrupt) }
	if len(b) < 10 {
		return bad()
	}
	if b[0] != eventsVersion {
		return fmt.Errorf("event record %d has version %d: %w", first, b[0], gq.ErrFormat)
	}
	at := time.Unix(0, int64(binary.BigEndian.Uint64(b[1:]))).UTC()
	count, n := uvarint(b[9:])
	if n == 0 {
		return bad()
	}
	b = b[9+n:]
	var e storedEvent
	typ := "" // of the last job
	for i := range count {
		if len(b) == 0 || b[0] > 1 || i == 0 && b[0] == 1 {
			return bad()
		}
		same := b[0] == 1
		b = b[1:]
		id := e.Job
		if !same {
			if len(b) < 16 {
				return bad()
			}
			if copy(id[:], b); i > 0 && id == e.Job {
				return bad() // the same job must use the short form
			}
			b = b[16:]
			q, n := uvarint(b)
			if n == 0 || q > 1<<32-1 {
				return bad()
			}
			b = b[n:]
			previous, n := uvarint(b)
			if n == 0 {
				return bad()
			}
			b = b[n:]
			e.queue, e.previous = uint32(q), previous
		}
		var err error
		if e.Event, b, err = codec.DecodeEvent(b); err != nil {
			return fmt.Errorf("event record %d: %w", first, err)
		}
		if typ != "" && e.JobType == typ {
			return bad() // the same type must be left out
		}
		if e.Job, e.Seq, e.Time = id, first+i, at; !e.Type.OfProvider() {
			typ = cmp.Or(e.JobType, typ)
			e.JobType = typ
		}
		if !visit(&e) {
			return nil
		}
	}
	if len(b) > 0 {
		return bad()
	}
	return nil
}

// mintLease makes a lease id by which the job can be found: the job's sequence number
// and 74 random bits, in the form of a UUID. Leases fence but do not authorise, so the
// number need not be secret.
func mintLease(seq uint64, random [2]uint64) gq.LeaseID {
	var b [16]byte
	binary.BigEndian.PutUint64(b[:], seq<<16|random[0]&0xffff)
	binary.BigEndian.PutUint64(b[8:], random[1])
	return machine.NewLeaseID(b)
}

// leaseSequence returns the sequence number in a lease id made by mintLease. For other
// ids the number is meaningless.
func leaseSequence(id gq.LeaseID) (uint64, bool) {
	raw, err := gq.ParseJobID(string(id)) // the same text form
	if err != nil {
		return 0, false
	}
	return binary.BigEndian.Uint64(raw[:]) >> 16, true
}
