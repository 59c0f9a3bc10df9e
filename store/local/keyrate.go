package local

import (
	"encoding/binary"
	"fmt"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/internal/wake"
	"github.com/gopherqueue/gq/machine"
)

// A claim that meets a job whose key has used up its rate sets the key aside: its jobs
// leave the buckets until the rate allows the next claim. So each claimed job costs at
// most one such encounter, however many jobs wait.
//
// What a key owes is written with the claim. Once that time is past, the record and the
// key itself are removed, so that idle keys cost nothing.

// keyTimers orders limit keys by an instant. It is a binary heap; each key knows its
// position in it.
type keyTimers struct {
	heap  []keyTimer
	place func(*limitKey) *int32
}

type keyTimer struct {
	at  int64 // nanoseconds since 1970
	key *limitKey
}

func placeAside(k *limitKey) *int32 { return &k.aside }
func placeOwing(k *limitKey) *int32 { return &k.owing }

// set moves a key's timer; 0 removes it.
func (h *keyTimers) set(k *limitKey, at int64) {
	i := int(*h.place(k))
	last := len(h.heap) - 1
	switch {
	case at == 0 && i == noTimer:
		return
	case at == 0:
		moved := h.heap[last]
		h.heap[last] = keyTimer{}
		h.heap = h.heap[:last]
		if *h.place(k) = noTimer; i == last {
			return
		}
		h.put(i, moved)
	case i == noTimer:
		i = last + 1
		h.heap = append(h.heap, keyTimer{at, k})
	default:
		h.heap[i].at = at
	}
	t := h.heap[i]
	for i > 0 && t.at < h.heap[(i-1)/2].at {
		h.put(i, h.heap[(i-1)/2])
		i = (i - 1) / 2
	}
	for kid := 2*i + 1; kid < len(h.heap); kid = 2*i + 1 {
		if kid+1 < len(h.heap) && h.heap[kid+1].at < h.heap[kid].at {
			kid++
		}
		if t.at <= h.heap[kid].at {
			break
		}
		h.put(i, h.heap[kid])
		i = kid
	}
	h.put(i, t)
}

func (h *keyTimers) put(i int, t keyTimer) {
	h.heap[i] = t
	*h.place(t.key) = int32(i)
}

// past returns the earliest key if its time has come.
func (h *keyTimers) past(now int64) *limitKey {
	if len(h.heap) == 0 || h.heap[0].at > now {
		return nil
	}
	return h.heap[0].key
}

// allow reports whether the rate of a job's key allows a claim, and sets the key aside if
// not.
func (tx *txn) allow(k *limitKey) bool {
	if k.due == 0 {
		return true
	}
	_, rate := k.limits()
	due := time.Unix(0, k.due)
	if _, ok := machine.TakeKeyRate(rate, 1, due, tx.now); ok {
		return true
	}
	k.queue.aside.set(k, machine.KeyRateAt(rate, due, tx.now).UnixNano())
	tx.t.judge(k)
	return false
}

// use takes the weight of a claimed job from the rate of its key.
func (tx *txn) use(k *limitKey, keys *jobKeys) {
	_, rate := k.limits()
	if !rate.Limited() {
		return
	}
	var due time.Time
	if k.due != 0 {
		due = time.Unix(0, k.due)
	}
	next, _ := machine.TakeKeyRate(rate, max(keys.weight, 1), due, tx.now)
	k.due = next.UnixNano()
}

// owe records what a key owes.
func (tx *txn) owe(k *limitKey) {
	tx.t.owing.set(k, k.due)
	if !k.moved {
		k.moved = true
		tx.owers = append(tx.owers, k)
	}
}

// sealKeys writes what keys owe.
func (tx *txn) sealKeys() {
	for i, k := range tx.owers {
		k.moved = false
		tx.name = owedKey(tx.name[:0], k.queue, k.name)
		if k.due == 0 {
			tx.remove(tx.name)
		} else {
			tx.scratch = binary.BigEndian.AppendUint64(tx.scratch[:0], uint64(k.due))
			tx.set(tx.name, tx.scratch)
		}
		tx.owers[i] = nil
	}
	tx.owers = tx.owers[:0]
}

func owedKey(b []byte, q *queue, key string) []byte {
	return append(binary.BigEndian.AppendUint32(append(b, prefixOwed), q.number), key...)
}

// free lets the jobs of keys be claimed whose rate allows it again.
func (t *table) free(q *queue, now int64) {
	for k := q.aside.past(now); k != nil; k = q.aside.past(now) {
		q.aside.set(k, 0)
		t.judge(k)
	}
}

// freeAt returns the earlier of an instant and that at which a key set aside is free.
func (q *queue) freeAt(at time.Time) time.Time {
	if len(q.aside.heap) == 0 {
		return at
	}
	return wake.Earlier(at, time.Unix(0, q.aside.heap[0].at).UTC())
}

// hasAside reports whether the rate of a key is used up that has jobs.
func (q *queue) hasAside() bool { return len(q.aside.heap) > 0 }

// forgetKeys removes keys that owe nothing any more. One that has live jobs keeps its record,
// which its next claim replaces, and is looked at again later.
func (tx *txn) forgetKeys() {
	t, now := tx.t, tx.now.UnixNano()
	for range advanceStep {
		k := t.owing.past(now)
		switch {
		case k == nil:
			return
		case k.jobs == 0:
			tx.settle(k)
		default:
			k.due = 0
			k.queue.aside.set(k, 0)
			t.judge(k)
			t.owing.set(k, now+int64(forgetAgain))
		}
	}
}

// forgetAgain is how soon forgetKeys looks at a key again.
const forgetAgain = time.Minute

// settle makes a key owe nothing.
func (tx *txn) settle(k *limitKey) {
	k.due = 0
	tx.owe(k)
	k.queue.aside.set(k, 0)
	tx.t.judge(k)
	if k.jobs == 0 {
		k.queue.forget(k)
	}
}

// keyRates returns the rates of the keys of a queue that owe something.
func (q *queue) keyRates() map[*limitKey]gq.Rate {
	var rates map[*limitKey]gq.Rate
	for _, k := range q.keys {
		if k.due != 0 {
			if rates == nil {
				rates = map[*limitKey]gq.Rate{}
			}
			_, rates[k] = k.limits()
		}
	}
	return rates
}

// rerate applies new limits to all keys of a queue. rates are those that the keys had.
func (tx *txn) rerate(q *queue, rates map[*limitKey]gq.Rate) {
	for k, was := range rates {
		tx.rerateKey(k, was)
	}
	for _, k := range q.keys {
		tx.t.judge(k)
	}
}

// rerateKey converts what a key owes to its new rate.
func (tx *txn) rerateKey(k *limitKey, was gq.Rate) {
	_, rate := k.limits()
	if rate == was {
		return
	}
	next := machine.ChangeKeyRate(was, rate, time.Unix(0, k.due), tx.now)
	if next.IsZero() {
		tx.settle(k)
		return
	}
	k.due = next.UnixNano()
	tx.owe(k)
	if k.aside != noTimer { // a claim sets it aside again if need be
		k.queue.aside.set(k, 0)
		tx.t.judge(k)
	}
}

// recoverOwed reads what keys owe.
func (s *Store) recoverOwed() error {
	return s.each(prefixOwed, func(key, value []byte) error {
		q, name, err := s.table.keyOf(key)
		if err != nil || len(value) != 8 {
			return gq.ErrCorrupt
		}
		k := q.keyNamed(name)
		if k.due = int64(binary.BigEndian.Uint64(value)); k.due <= 0 {
			return fmt.Errorf("key %.80q of queue %s owes nothing: %w", name, q.config.Name, gq.ErrCorrupt)
		}
		s.table.owing.set(k, k.due)
		return nil
	})
}

// keyOf splits the record key of a limit key.
func (t *table) keyOf(key []byte) (q *queue, name string, err error) {
	if len(key) < 6 {
		return nil, "", gq.ErrCorrupt
	}
	number := binary.BigEndian.Uint32(key[1:])
	if number == 0 || int(number) >= len(t.numbers) {
		return nil, "", gq.ErrCorrupt
	}
	return t.numbers[number], string(key[5:]), nil
}
