package local

import (
	"encoding/binary"

	"github.com/cockroachdb/pebble/v2"
)

// specs bounds the memory for encoded specs of jobs about to be claimed, which spare a
// claim the disk read: those just submitted and, after a claim has missed one, those
// that follow it. The oldest are dropped first. It belongs to the writer.
type specs struct {
	order []*job // in order of arrival; some are already claimed
	head  int
	bytes int
}

const (
	specsBytes   = 16 << 20
	specsLargest = 64 << 10 // larger ones are read when needed
	specsAhead   = 256      // jobs read ahead after a miss
)

// keep remembers a spec, which the caller must not change.
func (c *specs) keep(j *job, raw []byte) {
	if len(raw) > specsLargest || j.spec != nil {
		return
	}
	j.spec = raw
	c.order = append(c.order, j)
	c.bytes += len(raw)
	for c.bytes > specsBytes || c.head > 1024 && c.order[c.head].spec == nil {
		c.drop(c.order[c.head])
		c.order[c.head] = nil
		c.head++
	}
	if c.head > len(c.order)/2 && c.head > 1024 {
		n := copy(c.order, c.order[c.head:])
		clear(c.order[n:])
		c.order, c.head = c.order[:n], 0
	}
}

func (c *specs) drop(j *job) []byte {
	raw := j.spec
	c.bytes -= len(raw)
	j.spec = nil
	return raw
}

// takeSpec returns the encoded spec of a job that is being claimed, nil if the caller
// must read it.
func (tx *txn) takeSpec(j *job) []byte {
	if j.spec == nil && j.seq > tx.s.readAhead {
		tx.readSpecs(j.seq)
	}
	return tx.s.specs.drop(j)
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
		if j := s.table.bySequence.get(binary.BigEndian.Uint64(it.Key()[1:])); j != nil && j.ready {
			s.specs.keep(j, append([]byte(nil), it.Value()...))
		}
	}
	s.readAhead = from + specsAhead - 1
	_ = it.Close() // the caller reads it and reports the error
}
