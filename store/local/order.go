package local

import (
	"slices"
	"strings"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/machine"
	"github.com/gopherqueue/gq/store"
)

// A queue knows the last live job of each order key. The next job with the key waits for it
// like for any other dependency. Nothing but the key in the job's record is stored for this.

// lineUp makes a live job the tail of its order key, unless a later one is.
func (q *queue) lineUp(j *job, keys *jobKeys) {
	if keys == nil || keys.order == "" {
		return
	}
	if q.tails == nil {
		q.tails = map[string]*job{}
	}
	if tail := q.tails[keys.order]; tail == nil {
		q.tails[strings.Clone(keys.order)] = j
	} else if tail.seq < j.seq {
		q.tails[keys.order] = j
	}
}

// goBehind notes that a job waits for the one before it.
func (t *table) goBehind(seq, ahead uint64) {
	if t.ahead == nil {
		t.ahead = map[uint64]uint64{}
	}
	t.ahead[seq] = ahead
}

// stepOut removes a job that has ended from the line of its order key. If it ended before it was
// its turn, the job behind it waits for the one ahead of it instead.
func (tx *txn) stepOut(j *job) {
	keys := j.open.keys
	if keys == nil || keys.order == "" {
		return
	}
	t, q := tx.t, j.bucket.queue
	var ahead *job
	if seq, waits := t.ahead[j.seq]; waits {
		delete(t.ahead, j.seq)
		if o := t.jobs.at(seq); o != nil && !o.status.Terminal() {
			ahead = o
		}
	}
	if q.tails[keys.order] == j {
		if delete(q.tails, keys.order); ahead != nil {
			q.tails[keys.order] = ahead
		}
	}
	if ahead == nil {
		for _, e := range t.kids[j.seq] {
			if e.kind == machine.DependencyOrder {
				delete(t.ahead, e.child.seq) // its turn has come
			}
		}
		return
	}
	t.kids[j.seq] = slices.DeleteFunc(t.kids[j.seq], func(e edge) bool {
		if e.kind != machine.DependencyOrder {
			return false
		}
		tx.remove(edgeKey(j.seq, e.child.seq, e.kind))
		if t.live(e.child.id) == e.child { // otherwise it has ended as well
			t.kids[ahead.seq] = append(t.kids[ahead.seq], e)
			t.goBehind(e.child.seq, ahead.seq)
			tx.setEdge(ahead.seq, e.child.seq, e.kind)
		}
		return true
	})
	if len(t.kids[j.seq]) == 0 {
		delete(t.kids, j.seq)
	}
}

// followTails returns the jobs that members have to wait for because of their order keys.
func (tx *txn) followTails(g store.Group, p *checkedGroup, b *spawner) []gq.JobID {
	return store.FollowTails(g.Jobs,
		func(i int) bool { return !p.placed[i].Existing },
		func(s *gq.Spec) gq.JobID {
			q := tx.t.queues[s.Queue]
			if q == nil {
				return gq.JobID{}
			}
			tail := q.tails[s.OrderKey]
			if tail == nil || b != nil && b.job == tail && !b.next.Live() {
				return gq.JobID{}
			}
			return tail.id
		})
}

// behind is the graph of a single job whose only dependency is the tail of its order key.
func (tx *txn) behind(tail gq.JobID, b *spawner) (groupGraph, error) {
	p, err := tx.parent(tail, b)
	return groupGraph{
		order: single.order, depth: []int{1},
		deps:    [][]gq.Dependency{store.Ordered(nil, tail)},
		parents: map[gq.JobID]parent{tail: p},
	}, err
}

// replaceable refuses to replace a job that has an order key.
func (tx *txn) replaceable(j *job) error {
	keys := tx.keysOf(j)
	if keys == nil {
		return nil
	}
	return machine.CheckReplaced(&gq.Spec{ID: j.id, OrderKey: keys.order})
}
