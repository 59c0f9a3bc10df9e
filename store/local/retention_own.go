package local

import (
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/internal/wake"
)

// A finished job with a retention of its own has an index entry that sorts by when it is to be
// removed. Other jobs have none: retention finds them in the log. An entry whose job was purged
// is removed when its time has come.

func keptKey(until int64, seq uint64) []byte {
	return binary.BigEndian.AppendUint64(numberKey(prefixKept, uint64(until)), seq)
}

const keptKeySize = 1 + 8 + 8

// keepOwn records until when a finished job is kept.
func (tx *txn) keepOwn(s *gq.State) {
	until := s.CompletedAt.Add(s.Policy.Retention)
	tx.set(keptKey(until.UnixNano(), s.Sequence), s.ID[:])
	tx.retained = wake.Earlier(tx.retained, until)
}

// collectOwn removes up to limit jobs whose own retention is over.
func (tx *txn) collectOwn(limit int, done *collection) (err error) {
	it, err := tx.s.iterate(prefixKept)
	if err != nil {
		return err
	}
	defer func() { err = either(err, damaged(it.Close())) }()
	var gone []doneKey
	for ok := it.First(); ok && len(gone) < limit; ok = it.Next() {
		key, id := it.Key(), it.Value()
		if len(key) != keptKeySize || len(id) != len(gq.JobID{}) {
			return fmt.Errorf("retention of a job, record %q: %w", key, gq.ErrCorrupt)
		}
		if until := int64(binary.BigEndian.Uint64(key[1:])); until > tx.now.UnixNano() {
			done.at(time.Unix(0, until).UTC())
			break
		}
		k, _, err := tx.readDone(gq.JobID(id))
		switch {
		case err == nil:
			gone = append(gone, k)
		case !errors.Is(err, gq.ErrNotFound): // purged
			return err
		}
		tx.remove(key)
	}
	if err := damaged(it.Error()); err != nil {
		return err
	}
	done.removed, err = tx.drop(gone, true)
	return err
}
