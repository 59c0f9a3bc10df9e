package local

import (
	"encoding/binary"
	"fmt"
	"slices"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/machine"
)

// The pace of a queue is the state of its rate limit and its turns. It is written with
// the claims that change it.

// levels is the number of priorities, and of the unused 0.
const levels = gq.PriorityBulk + 1

// turns is the state of a fair queue.
type turns struct {
	now  [levels]uint64            // turn being served, by level
	last [levels]map[string]uint64 // newest turn of each key, by level
	kept [levels]int               // size of last after clearUp
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

// turn gives a job the next turn of its key at a level, 0 if the queue is not fair.
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

// clearUp forgets keys whose newest turn is over: they count as new keys. The rest may
// belong to jobs that left without being served; if there are many, clearUp rebuilds
// the map from the live jobs.
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

// serve advances a level of a fair queue to the turn of a claimed job.
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

// rearrange assigns new turns to the live jobs of a queue whose fairness was switched.
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
			tx.store(j, h, &old, &next, nil)
		}
	}
}

// A pace is the instant of the next claim under the rate, in nanoseconds since 1970 or
// 0 for none, and the turn of each level, 8 bytes each.
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
