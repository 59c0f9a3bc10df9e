package local

import (
	"encoding/binary"

	"github.com/cockroachdb/pebble/v2"
)

// specs bounds the memory for encoded specs of jobs about to be claimed, which spare a
// claim the disk read: those just submitted and, after a claim has missed one, those
// that follow it. The oldest are dropped first. It belongs to the writer.
type specs struct {
	kept  sequenceIndex[[]byte]
	order []uint64 // sequence numbers in order of arrival; some are already claimed
	head  int
	bytes int
}

const (
	specsBytes   = 16 << 20
	specsLargest = 64 << 10 // larger ones are read when needed
	specsAhead   = 256      // jobs read ahead after a miss
)

// keep remembers a spec, which the caller must not change.
func (c *specs) keep(seq uint64, raw []byte) {
	if len(raw) > specsLargest || c.kept.get(seq) != nil {
		return
	}
	c.kept.add(seq, raw)
	c.order = append(c.order, seq)
	c.bytes += cap(raw)
	for c.bytes > specsBytes || c.head > 1024 && c.kept.get(c.order[c.head]) == nil {
		c.drop(c.order[c.head])
		c.head++
	}
	if c.head > len(c.order)/2 && c.head > 1024 {
		n := copy(c.order, c.order[c.head:])
		c.order, c.head = c.order[:n], 0
	}
}

// drop forgets a spec and returns it, nil if it was not kept.
func (c *specs) drop(seq uint64) []byte {
	raw := c.kept.get(seq)
	if raw != nil {
		c.kept.remove(seq)
		c.bytes -= cap(raw)
	}
	return raw
}

// takeSpec returns the encoded spec of a job that is being claimed, nil if the caller
// must read it.
func (tx *txn) takeSpec(j *job) []byte {
	raw := tx.s.specs.drop(j.seq)
	if raw == nil && j.seq > tx.s.readAhead {
		tx.readSpecs(j.seq)
		raw = tx.s.specs.drop(j.seq)
	}
	return raw
}

// readSpecs reads the specs of a job and of those submitted after it.
func (tx *txn) readSpecs(from uint64) {
	s := tx.s
	it, err := s.db.NewIter(&pebble.IterOptions{
		LowerBound: numberKey(prefixSpec, from), UpperBound: numberKey(prefixSpec, from+specsAhead),
	})
	if err != nil {
		return // the caller reads it and reports the error
	}
	for ok := it.First(); ok; ok = it.Next() {
		seq := binary.BigEndian.Uint64(it.Key()[1:])
		if j := s.table.jobs.at(seq); j != nil && j.ready || j == nil && s.table.folded(seq) {
			s.specs.keep(seq, append([]byte(nil), it.Value()...))
		}
	}
	s.readAhead = from + specsAhead - 1
	_ = it.Close() // the caller reads it and reports the error
}
