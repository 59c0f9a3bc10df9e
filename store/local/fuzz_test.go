package local

import (
	"bytes"
	"errors"
	"math"
	"reflect"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/machine"
	"github.com/gopherqueue/gq/store"
)

// law checks what holds for every codec and any bytes: decoding takes memory in
// proportion, fails only with one of two errors, and its result can be encoded and
// decoded again.
func law[T any](t *testing.T, b []byte, decode func([]byte) (T, error), encode func(T) []byte) {
	t.Helper()
	original := bytes.Clone(b)
	v, err := decode(b)
	if used, most := memory(func() { _, _ = decode(b) }), uint64(64*len(b)+64<<10); used > most {
		t.Errorf("%d bytes took %d bytes of memory", len(b), used)
	}
	if !bytes.Equal(b, original) {
		t.Error("decoding changed its input")
	}
	if err != nil {
		if !errors.Is(err, gq.ErrCorrupt) && !errors.Is(err, gq.ErrFormat) {
			t.Errorf("refused with %v", err)
		}
		return
	}
	written := encode(v)
	back, err := decode(written)
	if err != nil {
		t.Fatalf("what was read cannot be written and read again: %v\n%+v", err, v)
	}
	if !reflect.DeepEqual(v, back) {
		t.Fatalf("read, written and read again (-first +second):\n%s", cmp.Diff(v, back, cmp.AllowUnexported(header{}, storedEvent{}, keyRecord{}, marks{})))
	}
	if again := encode(back); !bytes.Equal(written, again) {
		t.Errorf("written twice in two ways:\n%x\n%x", written, again)
	}
}

// exactLaw is law for codecs with one encoding per value: encoding the decoded value
// yields the same bytes.
func exactLaw[T any](t *testing.T, b []byte, decode func([]byte) (T, error), encode func(T) []byte) {
	t.Helper()
	law(t, b, decode, encode)
	if v, err := decode(b); err == nil {
		if written := encode(v); !bytes.Equal(written, b) {
			t.Errorf("read as\n%+v\nand written as\n%x, was\n%x", v, written, b)
		}
	}
}

// memory returns how many bytes a call allocates. Other goroutines may allocate
// meanwhile, so it takes the least of several measurements.
func memory(call func()) uint64 {
	least := uint64(math.MaxUint64)
	for range 100 {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		call()
		runtime.ReadMemStats(&after)
		if least = min(least, after.TotalAlloc-before.TotalAlloc); least < 64<<10 {
			break
		}
	}
	return least
}

// seed adds records and damaged versions of them.
func seed(f *testing.F, records ...[]byte) {
	f.Helper()
	f.Add([]byte(nil))
	for _, raw := range records {
		f.Add(raw)
		f.Add(raw[:len(raw)/2])
		f.Add(append(bytes.Clone(raw), 0))
		for i := 0; i < len(raw); i += 5 {
			damaged := bytes.Clone(raw)
			damaged[i] ^= 0xff
			f.Add(damaged)
		}
		for i := range raw {
			if raw[i] < 0x80 {
				f.Add(slices.Concat(raw[:i], []byte{raw[i] | 0x80, 0}, raw[i+1:])) // a number in a longer form
			}
		}
	}
}

var fuzzTime = time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)

// fuzzState returns the state of a running job.
func fuzzState() gq.State {
	p := machine.DefaultPolicy()
	s, _ := machine.Submit(machine.Submission{ID: machine.NewJobID([16]byte{1}), Sequence: 7, Policy: &p, Own: gq.PriorityNormal, Depth: 1}, fuzzTime)
	s, _, err := machine.Claim(s, machine.Grant{Lease: mintLease(7, [2]uint64{1, 2}), Worker: "w", Start: true}, fuzzTime)
	if err != nil {
		panic(err)
	}
	return s
}

func FuzzDecodeRecord(f *testing.F) {
	type record struct {
		h header
		s gq.State
	}
	s := fuzzState()
	keyed := header{lastEvent: 9, bucket: 2, cost: 5, flags: flagKeyed}
	plain := keyed
	keyed.setKeys(&gq.Spec{LimitKey: "customer", FairKey: "tenant", OrderKey: "account"})
	seed(f, encodeRecord(nil, plain, &s), encodeRecord(nil, keyed, &s))
	f.Fuzz(func(t *testing.T, b []byte) {
		exactLaw(t, b, func(b []byte) (r record, err error) {
			r.h, r.s, err = decodeRecord(b, 7, alone)
			return r, err
		}, func(r record) []byte { return encodeRecord(nil, r.h, &r.s) })
	})
}

func FuzzDecodeEvents(f *testing.F) {
	var w eventWriter
	a, b := machine.NewJobID([16]byte{1}), machine.NewJobID([16]byte{2})
	w.add(&gq.Event{Job: a, Type: gq.EventSubmitted, Status: gq.StatusPending}, "mail", 1, 0)
	w.add(&gq.Event{Job: a, Type: gq.EventScheduled, Status: gq.StatusScheduled}, "mail", 1, 0)
	w.add(&gq.Event{Job: b, Type: gq.EventStarted, Status: gq.StatusRunning, Attempt: 1, Lease: "l", Version: 1, LeaseState: gq.LeaseActive, Worker: "w"}, "pack", 2, 4)
	seed(f, w.encode(nil, fuzzTime))
	var twice eventWriter // names the same job twice, with different previous records
	twice.add(&gq.Event{Job: a, Type: gq.EventSubmitted, Status: gq.StatusPending}, "mail", 1, 0)
	twice.last = gq.JobID{}
	twice.add(&gq.Event{Job: a, Type: gq.EventScheduled, Status: gq.StatusScheduled}, "mail", 1, 9)
	f.Add(twice.encode(nil, fuzzTime))
	f.Fuzz(func(t *testing.T, b []byte) {
		exactLaw(t, b, func(b []byte) (all []storedEvent, err error) {
			err = decodeEvents(b, 100, func(e *storedEvent) bool {
				all = append(all, *e)
				return true
			})
			if last, lastErr := lastOf(numberKey(prefixEvents, 100), b); err == nil && len(all) > 0 && (lastErr != nil || last != all[len(all)-1].Seq) {
				t.Errorf("lastOf says %d, %v, and the last event is %d", last, lastErr, all[len(all)-1].Seq)
			}
			if err == nil && len(all) > 0 && recordTime(b) != all[0].Time.UnixNano() {
				t.Errorf("recordTime says %d, and the first event is of %v", recordTime(b), all[0].Time)
			}
			return all, err
		}, func(all []storedEvent) []byte {
			var w eventWriter
			at := time.Unix(0, recordTime(b))
			for i := range all {
				w.add(&all[i].Event, all[i].JobType, all[i].queue, all[i].previous)
			}
			return w.encode(nil, at)
		})
	})
}

func FuzzDecodeMarks(f *testing.F) {
	seed(f, marks{cursors: [4]uint64{1, 2, 3, 4}, dropped: 5, lastJob: 6, lastEvent: 7, time: 8}.encode())
	f.Fuzz(func(t *testing.T, b []byte) { exactLaw(t, b, decodeMarks, marks.encode) })
}

func FuzzDecodeKeyRecord(f *testing.F) {
	seed(f, keyRecord{id: machine.NewJobID([16]byte{1}), fingerprint: 2, expires: 3}.encode())
	f.Fuzz(func(t *testing.T, b []byte) { exactLaw(t, b, decodeKeyRecord, keyRecord.encode) })
}

func FuzzDecodeCarried(f *testing.F) {
	carried := func(all []gq.Event) (b []byte) {
		for _, e := range all {
			queue := uint32(0)
			if e.Queue != "" {
				queue = 1
			}
			b = appendCarried(b, &storedEvent{Event: e, queue: queue})
		}
		return b
	}
	seed(f, carried([]gq.Event{
		{Seq: 1, Time: fuzzTime, Queue: "q", Job: machine.NewJobID([16]byte{1}), Type: gq.EventSubmitted, Status: gq.StatusPending},
		{Seq: 2, Time: fuzzTime, Queue: "q", Job: machine.NewJobID([16]byte{1}), Type: gq.EventCancelled, Status: gq.StatusCancelled, Reason: "why"},
	}))
	f.Fuzz(func(t *testing.T, b []byte) {
		law(t, b, func(b []byte) ([]gq.Event, error) {
			return decodeCarried(b, func(n uint32) string { return map[uint32]string{1: "q"}[n] })
		}, carried)
	})
}

func FuzzDecodeBucket(f *testing.F) {
	type record struct {
		queue    uint32
		typ      string
		requires []string
	}
	encode := func(r record) []byte {
		return encodeBucket(&bucket{queue: &queue{number: r.queue}, typ: r.typ, class: &class{requires: r.requires}})
	}
	seed(f, encode(record{1, "send", []string{"gpu"}}), encode(record{2, "", nil}), []byte("null"), []byte("[]"))
	f.Fuzz(func(t *testing.T, b []byte) {
		law(t, b, func(b []byte) (r record, err error) {
			r.queue, r.typ, r.requires, err = decodeBucket(b)
			if len(r.requires) == 0 {
				r.requires = nil
			}
			return r, err
		}, encode)
	})
}

func FuzzDecodeQueue(f *testing.F) {
	q := machine.NewQueue("mail")
	q.Paused, q.MaxRunning, q.MaxDepth, q.UpdatedAt = true, 3, 4, fuzzTime
	seed(f, encodeQueue(q), encodeQueue(machine.NewQueue("default")), []byte("null"))
	f.Fuzz(func(t *testing.T, b []byte) {
		law(t, b, func(b []byte) (gq.Queue, error) {
			q, err := decodeQueue(b)
			q.UpdatedAt = q.UpdatedAt.UTC() // time zones may or may not have names
			return q, err
		}, encodeQueue)
	})
}

func FuzzDecodeCounts(f *testing.F) {
	var q queue
	q.counts[gq.StatusCompleted], q.counts[gq.StatusCancelled] = 1, math.MaxInt64
	seed(f, encodeCounts(&q))
	f.Fuzz(func(t *testing.T, b []byte) {
		law(t, b, func(b []byte) (counts [gq.StatusCancelled + 1]int64, err error) {
			var q queue
			err = decodeCounts(b, &q)
			return q.counts, err
		}, func(counts [gq.StatusCancelled + 1]int64) []byte { return encodeCounts(&queue{counts: counts}) })
	})
}

func FuzzParseDoneKey(f *testing.F) {
	seed(f, doneKey{1, gq.StatusCompleted, 7}.append(nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		if k, ok := parseDoneKey(b); ok && !bytes.Equal(k.append(nil), b) {
			t.Errorf("%x is read as %+v", b, k)
		}
	})
}

func FuzzParseCursor(f *testing.F) {
	f.Add("")
	f.Add(store.Cursor(1))
	f.Add(store.Cursor(math.MaxUint64))
	f.Add("AQAAAAAAAAAA")
	f.Add("====")
	f.Fuzz(func(t *testing.T, cursor string) {
		seq, err := store.ParseCursor(cursor)
		switch {
		case err != nil && (!errors.Is(err, gq.ErrInvalid) || seq != 0):
			t.Errorf("%q is refused with %d, %v", cursor, seq, err)
		case err == nil && cursor != "" && store.Cursor(seq) != cursor:
			t.Errorf("%q is read as %d, which is %q", cursor, seq, store.Cursor(seq))
		}
	})
}

func FuzzLeaseSequence(f *testing.F) {
	f.Add(uint64(1), uint64(2), uint64(3), "x")
	f.Add(uint64(1)<<48-1, uint64(math.MaxUint64), uint64(math.MaxUint64), string(mintLease(5, [2]uint64{})))
	f.Fuzz(func(t *testing.T, seq, a, b uint64, other string) {
		seq &= 1<<48 - 1 // two hundred billion jobs a day for a year
		if got, ok := leaseSequence(mintLease(seq, [2]uint64{a, b})); !ok || got != seq {
			t.Errorf("the lease of job %d names job %d, %v", seq, got, ok)
		}
		_, _ = leaseSequence(gq.LeaseID(other))
	})
}

// FuzzVerify: the reader of Pebble's files accepts any bytes without a panic.
func FuzzVerify(f *testing.F) {
	f.Add([]byte(nil), uint32(0))
	f.Add(slices.Repeat([]byte{9}, 100), uint32(9))
	f.Fuzz(func(t *testing.T, b []byte, log uint32) {
		if c, ok := chunkAt(b, log); ok && (c.size > len(b) || c.size < chunkHeader) {
			t.Errorf("a chunk of %d bytes in %d", c.size, len(b))
		}
	})
}
