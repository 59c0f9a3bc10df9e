package local

import (
	"math"
	"slices"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/machine"
	"github.com/gopherqueue/gq/store"
)

// fix restores a bucket's place in the heap after its first job changed.
func (c *class) fix(l *bucket) {
	switch {
	case l.ready.size == 0 && l.head >= 0:
		last := len(c.heads) - 1
		i := l.head
		c.swap(i, last)
		c.heads[last] = nil
		c.heads = c.heads[:last]
		l.head = -1
		if i < last {
			c.down(c.up(i))
		}
	case l.ready.size == 0:
	case l.head < 0:
		c.heads = append(c.heads, l)
		l.head = len(c.heads) - 1
		c.up(l.head)
	default:
		c.down(c.up(l.head))
	}
}

func (c *class) swap(i, k int) {
	c.heads[i], c.heads[k] = c.heads[k], c.heads[i]
	c.heads[i].head, c.heads[k].head = i, k
}

func (c *class) less(i, k int) bool {
	a, b := c.heads[i].ready.first(), c.heads[k].ready.first()
	return sortKey{a.key, a.id}.less(sortKey{b.key, b.id})
}

func (c *class) up(i int) int {
	for i > 0 && c.less(i, (i-1)/2) {
		c.swap(i, (i-1)/2)
		i = (i - 1) / 2
	}
	return i
}

func (c *class) down(i int) {
	for {
		kid := 2*i + 1
		if kid+1 < len(c.heads) && c.less(kid+1, kid) {
			kid++
		}
		if kid >= len(c.heads) || !c.less(kid, i) {
			return
		}
		c.swap(i, kid)
		i = kid
	}
}

// anyCost is a limit that every cost satisfies.
const anyCost = math.MaxInt64

// afford returns the highest cost that a claim into status may take.
func (q *queue) afford(f *store.Filter, status gq.Status) int64 {
	most := int64(anyCost)
	if f.MaxCost > 0 {
		most = f.MaxCost
	}
	if q.pool != nil && machine.CountsInPool(q.pool.config, status) {
		most = min(most, q.pool.free())
	}
	return most
}

// pick returns the queue's first claimable job that the filter and the pool allow to be
// claimed into a status.
func (q *queue) pick(f *store.Filter, into gq.Status) *job {
	var best *job
	most := q.afford(f, into)
	consider := func(j *job) {
		if j != nil && (best == nil || (sortKey{j.key, j.id}).less(sortKey{best.key, best.id})) {
			best = j
		}
	}
	for _, c := range q.classes {
		if len(c.heads) == 0 || !c.offered(f.Offers) {
			continue
		}
		switch {
		case len(f.Types) > 0:
			for _, typ := range f.Types {
				if l := c.byType[typ]; l != nil {
					consider(l.pick(most))
				}
			}
		case c.heads[0].ready.first().cost <= most:
			consider(c.heads[0].ready.first())
		default:
			for _, l := range c.heads {
				consider(l.pick(most))
			}
		}
	}
	return best
}

func (l *bucket) pick(most int64) *job {
	if most == anyCost {
		return l.ready.first()
	}
	return l.ready.cheap(most)
}

// offered reports whether a worker's capabilities include the class's.
func (c *class) offered(offers []string) bool {
	for _, r := range c.requires {
		if !slices.Contains(offers, r) {
			return false
		}
	}
	return true
}
