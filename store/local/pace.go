package local

import (
	"encoding/binary"
	"fmt"
	"slices"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/machine"
)

// The pace of a queue is what its rate and its turns have got to. It is written
// with the claims that move it.

// levels is one more than the least urgent priority.
const levels = gq.PriorityBulk + 1

// turns is where a fair queue stands.
type turns struct {
	now  [levels]uint64            // being served, by level
	last [levels]map[string]uint64 // newest of each key, by level
	kept [levels]int               // entries of last after it was cleared up
}

func newTurns() *turns {
	t := &turns{}
	for level := range t.last {
		t.last[level] = map[string]uint64{}
	}
	return t
}

// note makes a turn the newest of its key.
func (t *turns) note(level gq.Priority, key string, turn uint64) {
	if turn > t.last[level][key] {
		t.last[level][key] = turn
	}
}

// turn gives a job the next turn of its key at a level; 0 where the queue is not
// fair.
func (tx *txn) turn(q *queue, keys *jobKeys, level gq.Priority) uint64 {
	if q.turns == nil {
		return 0
	}
	t, key := q.turns, ""
	if keys != nil {
		key = keys.fair
	}
	turn := machine.FairTurn(t.now[level], t.last[level][key])
	t.last[level][key] = turn
	if len(t.last[level]) > 2*t.kept[level]+64 {
		tx.clearUp(q, level)
	}
	return turn
}

// clearUp forgets keys whose newest turn is over: they are as good as new. What
// is left may still be due to jobs that have gone without being served; then it
// is gathered anew from those that live.
func (tx *txn) clearUp(q *queue, level gq.Priority) {
	t := q.turns
	for key, turn := range t.last[level] {
		if turn < t.now[level] {
			delete(t.last[level], key)
		}
	}
	if int64(len(t.last[level])) > 2*q.liveCount()+64 {
		clear(t.last[level])
		for _, j := range tx.t.liveJobs(q) {
			h, s := tx.load(j)
			if s.Priority() == level {
				t.note(level, h.fairKey(), s.Turn)
			}
		}
	}
	t.kept[level] = len(t.last[level])
}

// serve moves a level of a fair queue on to the turn of a job that is claimed.
func (tx *txn) serve(q *queue, s *gq.State) {
	if q.turns == nil {
		return
	}
	if level := s.Priority(); s.Turn > q.turns.now[level] {
		q.turns.now[level] = s.Turn
		tx.paced(q)
	}
}

// paced notes that the pace of a queue changed in this commit.
func (tx *txn) paced(q *queue) {
	if !slices.Contains(tx.paces, q) {
		tx.paces = append(tx.paces, q)
	}
}

// rearrange gives the live jobs of a queue that became fair, or no longer is,
// their turns anew.
func (tx *txn) rearrange(q *queue) {
	q.turns = nil
	if q.config.Fair {
		q.turns = newTurns()
	}
	tx.paced(q)
	for _, j := range tx.t.liveJobs(q) {
		h, old := tx.load(j)
		next := old
		if next.Turn = tx.turn(q, h.keys, old.Priority()); next.Turn != old.Turn {
			tx.t.unplace(j, &old)
			tx.store(j, h, old.Lease, &next, nil)
		}
	}
}

// A pace is the instant at which the next claim is due under the rate, in
// nanoseconds since 1970 or 0 for none, and the turn of each level, all in 8
// bytes.
const paceSize = 8 * int(levels)

func encodePace(q *queue) []byte {
	due := int64(0)
	if !q.due.IsZero() {
		due = q.due.UnixNano()
	}
	b := binary.BigEndian.AppendUint64(make([]byte, 0, paceSize), uint64(due))
	for level := gq.PriorityCritical; level < levels; level++ {
		now := uint64(0)
		if q.turns != nil {
			now = q.turns.now[level]
		}
		b = binary.BigEndian.AppendUint64(b, now)
	}
	return b
}

func decodePace(b []byte, q *queue) error {
	if len(b) != paceSize {
		return fmt.Errorf("pace of queue %s: %w", q.config.Name, gq.ErrCorrupt)
	}
	if due := int64(binary.BigEndian.Uint64(b)); due != 0 {
		q.due = time.Unix(0, due).UTC()
	}
	for level := gq.PriorityCritical; level < levels; level++ {
		now := binary.BigEndian.Uint64(b[8*int(level):])
		if now > machine.MaxTurn || now != 0 && q.turns == nil {
			return fmt.Errorf("pace of queue %s: %w", q.config.Name, gq.ErrCorrupt)
		}
		if q.turns != nil {
			q.turns.now[level] = now
		}
	}
	return nil
}

func (s *Store) recoverPaces() error {
	return s.each(prefixPace, func(key, value []byte) error {
		if len(key) != 5 {
			return gq.ErrCorrupt
		}
		number := binary.BigEndian.Uint32(key[1:])
		if number == 0 || int(number) >= len(s.table.numbers) {
			return gq.ErrCorrupt
		}
		return decodePace(value, s.table.numbers[number])
	})
}
