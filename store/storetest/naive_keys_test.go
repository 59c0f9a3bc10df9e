package storetest

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/machine"
	"github.com/gopherqueue/gq/store"
)

// keyLimits returns the limits of a limit key.
func (n *naive) keyLimits(key [2]string) (int, gq.Rate) {
	q, own := n.data.queues[key[0]], n.data.ownKeys[key]
	if n.bug == ignoresOwnKeys {
		own = gq.QueueKey{}
	}
	return machine.KeyLimits(&q, &own)
}

// useKey takes a job from the rate of its key, unless that is used up.
func (l *limits) useKey(j *naiveJob, weight int) bool {
	if j.spec.LimitKey == "" || l.n.bug == ignoresKeyRate {
		return true
	}
	if l.n.bug == ignoresWeight {
		weight = min(weight, 1)
	}
	key := [2]string{j.spec.Queue, j.spec.LimitKey}
	_, rate := l.n.keyLimits(key)
	next, ok := machine.TakeKeyRate(rate, weight, l.owed[key], l.now)
	if !ok {
		l.keyRate = l.n.bug != keyRateUnsaid
		if at := machine.KeyRateAt(rate, l.owed[key], l.now); l.retry.IsZero() || at.Before(l.retry) {
			l.retry = at
		}
		return false
	}
	if weight > 0 {
		l.owed[key] = next
	}
	return true
}

// changeKeys changes limits and converts what the keys of a queue owe.
func (n *naive) changeKeys(queue string, now time.Time, change func()) {
	before := make(map[[2]string]gq.Rate)
	for key := range n.data.owed {
		if key[0] == queue {
			_, before[key] = n.keyLimits(key)
		}
	}
	change()
	for key, was := range before {
		if _, rate := n.keyLimits(key); rate != was && n.bug != owesTheSame {
			n.data.owed[key] = machine.ChangeKeyRate(was, rate, n.data.owed[key], now)
		}
	}
}

func (n *naive) PutKey(ctx context.Context, k gq.QueueKey) error {
	now, err := n.begin(ctx, true)
	if err != nil {
		return err
	}
	defer n.mu.Unlock()
	if err := machine.CheckQueueKey(k); err != nil && n.bug != acceptsAnyKey {
		return err
	}
	q := n.data.queues[k.Queue]
	if q.UpdatedAt.IsZero() {
		return store.NoQueue(k.Queue)
	}
	key := [2]string{k.Queue, k.Key}
	_, known := n.data.ownKeys[key]
	remove := k.Limit == 0 && !k.Rate.Limited()
	if remove && !known {
		return store.NoKey(k)
	}
	n.changeKeys(k.Queue, now, func() {
		k.UpdatedAt = now
		if remove {
			delete(n.data.ownKeys, key)
			q.OwnKeys--
		} else {
			n.data.ownKeys[key] = k
		}
		if !known {
			q.OwnKeys++
		}
		n.data.queues[k.Queue] = q
	})
	n.announce(k.Queue)
	return nil
}

func (n *naive) Keys(ctx context.Context, asked store.KeyQuery) (keys []gq.QueueKey, err error) {
	now, err := n.begin(ctx, false)
	if err != nil {
		return nil, err
	}
	defer n.mu.Unlock()
	if err := store.CheckKeys(&asked); err != nil {
		return nil, err
	}
	for _, name := range asked.Names {
		k := n.data.ownKeys[[2]string{asked.Queue, name}]
		k.Queue, k.Key = asked.Queue, name
		keys = append(keys, k)
	}
	if asked.Names == nil {
		for key, k := range n.data.ownKeys {
			if key[0] == asked.Queue && k.Key > asked.After {
				keys = append(keys, k)
			}
		}
		slices.SortFunc(keys, func(a, b gq.QueueKey) int { return cmp.Compare(a.Key, b.Key) })
		keys = keys[:min(len(keys), asked.Limit)]
	}
	for i, k := range keys {
		key := [2]string{k.Queue, k.Key}
		_, rate := n.keyLimits(key)
		if at := machine.KeyRateAt(rate, n.data.owed[key], now); at.After(now) {
			keys[i].FreeAt = at
		}
	}
	return keys, nil
}

func (n *naive) Waiting(ctx context.Context, prefix, after string, limit int) (queues []string, err error) {
	now, err := n.begin(ctx, false)
	if err != nil {
		return nil, err
	}
	defer n.mu.Unlock()
	if err := store.CheckWaiting(limit); err != nil {
		return nil, err
	}
	for _, j := range n.data.jobs {
		name := j.spec.Queue
		free := !j.state.Status.Held() || j.state.Lease.Expired(now)
		if free && !j.state.Status.Terminal() && strings.HasPrefix(name, prefix) && (name > after || n.bug == waitingFromStart) && !slices.Contains(queues, name) {
			queues = append(queues, name)
		}
	}
	slices.Sort(queues)
	return queues[:min(limit, len(queues))], nil
}
