package local

import (
	"github.com/cockroachdb/pebble/v2"

	"github.com/gopherqueue/gq"
)

// A commit is built in parts by kind of record. Pebble inserts the records of a batch
// into its table in memory in their order, and finds the place of a record at once if it
// directly follows the one before. Records of jobs often do if kinds are not mixed.
//
// All changes of a key are in the same part, in order, except that partNew comes before
// partLive.
const (
	partSpecs = iota
	partNew   // first states of jobs
	partLive  // later states, and removals
	partDone
	partIDs
	partOther
	partCount
)

// part returns the part for a kind of record.
func (tx *txn) part(prefix byte) *pebble.Batch {
	switch prefix {
	case prefixSpec:
		return tx.parts[partSpecs]
	case prefixLive:
		return tx.parts[partLive]
	case prefixDone:
		return tx.parts[partDone]
	case prefixID:
		return tx.parts[partIDs]
	}
	return tx.parts[partOther]
}

func (tx *txn) openParts() {
	for i := range tx.parts {
		if tx.parts[i] == nil {
			tx.parts[i] = tx.s.db.NewBatch()
		}
	}
}

// whole returns the whole commit and leaves empty parts.
func (tx *txn) whole() *pebble.Batch {
	whole := tx.s.db.NewBatchWithSize(tx.size() + 128) // room for the mark
	for _, b := range tx.parts {
		if !b.Empty() {
			must(whole.Apply(b, nil))
		}
		b.Reset()
	}
	return whole
}

// size returns about how many bytes the commit has so far.
func (tx *txn) size() (bytes int) {
	for _, b := range tx.parts {
		bytes += b.Len()
	}
	return bytes + len(tx.ids)*(1+len(gq.JobID{})+8) + len(tx.keyed)*(len(keyID{})+keyRecordSize) + tx.joined*100
}

func (tx *txn) empty() bool {
	for _, b := range tx.parts {
		if !b.Empty() {
			return false
		}
	}
	return true
}
