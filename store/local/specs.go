package local

import (
	"encoding/binary"

	"github.com/cockroachdb/pebble/v2"
)

// specs holds the encoded specs of jobs that are about to be claimed, so that a
// claim need not read the disk: those that were just submitted and, once a
// claim has missed, those that follow it. It is bounded, forgets the oldest
// first and belongs to the writer.
type specs struct {
	bySeq map[uint64][]byte
	order []uint64 // in the order of arrival; some are gone already
	head  int
	bytes int
}

const (
	specsBytes    = 16 << 20
	specsLargest  = 64 << 10 // larger ones are read when needed
	specsAhead    = 256      // jobs read along with one that was missing
	specsOverhead = 64
)

func (c *specs) add(seq uint64, raw []byte) {
	if len(raw) > specsLargest {
		return
	}
	if c.bySeq == nil {
		c.bySeq = map[uint64][]byte{}
	}
	if _, known := c.bySeq[seq]; known {
		return
	}
	c.bySeq[seq] = append(make([]byte, 0, len(raw)), raw...)
	c.order = append(c.order, seq)
	c.bytes += len(raw) + specsOverhead
	for c.bytes > specsBytes {
		c.forget(c.order[c.head])
		c.head++
	}
	if c.head > len(c.order)/2 && c.head > 1024 {
		c.order = c.order[:copy(c.order, c.order[c.head:])]
		c.head = 0
	}
}

func (c *specs) forget(seq uint64) {
	if raw, ok := c.bySeq[seq]; ok {
		delete(c.bySeq, seq)
		c.bytes -= len(raw) + specsOverhead
	}
}

// takeSpec is the encoded spec of a job that is being claimed, nil if the caller
// has to read it.
func (tx *txn) takeSpec(j *job) []byte {
	c := &tx.s.specs
	raw, ok := c.bySeq[j.seq]
	if !ok {
		if j.seq <= tx.s.readAhead {
			return nil // gone again, or too large
		}
		tx.readSpecs(j.seq)
		raw = c.bySeq[j.seq]
	}
	c.forget(j.seq)
	return raw
}

// readSpecs reads the spec of a job and of those submitted after it.
func (tx *txn) readSpecs(from uint64) {
	s := tx.s
	it, err := s.db.NewIter(&pebble.IterOptions{
		LowerBound: numberKey(prefixSpec, from), UpperBound: numberKey(prefixSpec, from+specsAhead),
	})
	if err != nil {
		return // the caller will read it and tell
	}
	for ok := it.First(); ok; ok = it.Next() {
		s.specs.add(binary.BigEndian.Uint64(it.Key()[1:]), it.Value())
	}
	s.readAhead = from + specsAhead - 1
	_ = it.Close() // the caller will read it and tell
}
