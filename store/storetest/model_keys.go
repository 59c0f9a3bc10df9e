package storetest

import (
	"time"

	"pgregory.net/rapid"

	"github.com/gopherqueue/gq"
)

// keyLimits returns the limits of a limit key; a job without a key has none.
func (m *model) keyLimits(key [2]string) (limit int, rate gq.Rate) {
	if key[1] == "" {
		return 0, gq.Rate{}
	}
	q, own := m.queues[key[0]], m.ownKeys[key]
	limit, rate = q.KeyLimit, q.KeyRate
	if own.Limit > 0 {
		limit = own.Limit
	}
	if own.Rate.Count > 0 {
		rate = own.Rate
	}
	return limit, rate
}

// keyRate takes units from the rate of a key; it implements the rule a second time. One unit
// must be free.
func (m *model) keyRate(t tallied, key [2]string, weight int) (at time.Time, ok bool) {
	_, r := m.keyLimits(key)
	if r.Count == 0 {
		return at, true
	}
	gap := r.Per / time.Duration(r.Count) // an integer in this test
	owed := time.Duration(0)
	if due, known := t.owed[key]; known && due.After(m.now) {
		owed = due.Sub(m.now)
	}
	if most := time.Duration(max(1, r.Burst)) * gap; owed+gap > most {
		return m.now.Add(owed + gap - most), false
	}
	if weight > 0 {
		t.owed[key] = m.now.Add(owed + time.Duration(weight)*gap)
	}
	return at, true
}

func weightOf(s *gq.Spec) int { return max(s.Weight, 1) }

// rerated changes limits and converts what the keys of a queue owe: the units stay.
func (m *model) rerated(queue string, change func()) {
	gap := func(r gq.Rate) time.Duration { return r.Per / time.Duration(max(r.Count, 1)) }
	before := make(map[[2]string]gq.Rate)
	for key := range m.owedKeys {
		if key[0] == queue {
			_, before[key] = m.keyLimits(key)
		}
	}
	change()
	for key, was := range before {
		_, rate := m.keyLimits(key)
		owed := m.owedKeys[key].Sub(m.now)
		switch {
		case was == rate:
		case rate.Count == 0 || was.Count == 0 || owed <= 0:
			delete(m.owedKeys, key)
		default:
			in, out := gap(was)/time.Second, gap(rate)/time.Second // integers in this test, and small: the product must not overflow
			m.owedKeys[key] = m.now.Add(owed * out / in)
			m.happened("another rate for a key that owes")
		}
	}
}

// putKey gives a key limits of its own, or takes them away.
func (m *model) putKey(r *rapid.T, queue string) {
	k := gq.QueueKey{Queue: queue, Key: pick(r, "key", "k", "l"), Limit: pick(r, "own limit", 0, 1, 3)}
	if rapid.Bool().Draw(r, "own rate") {
		k.Rate = gq.Rate{Count: 1, Per: seconds(r, "per", 1, 4), Burst: pick(r, "burst", 0, 2)}
	}
	key := [2]string{k.Queue, k.Key}
	_, known := m.ownKeys[key]
	remove := k.Limit == 0 && !k.Rate.Limited()
	if remove && !known {
		return
	}
	m.ok("PutKey", m.s.PutKey(m.Context(), k))
	m.rerated(k.Queue, func() {
		if remove {
			delete(m.ownKeys, key)
		} else {
			m.ownKeys[key] = k
		}
	})
	m.happened("own limits of a key")
}
