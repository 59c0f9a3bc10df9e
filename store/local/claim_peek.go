package local

import (
	"context"
	"fmt"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/machine"
	"github.com/gopherqueue/gq/store"
)

// Peek implements [store.Store].
func (s *Store) Peek(ctx context.Context, f store.Filter, n int) ([]store.Found, error) {
	if err := f.Check(); err != nil {
		return nil, err
	}
	if n < 1 || n > store.MaxClaim {
		return nil, &gq.InvalidError{Faults: []gq.Fault{{
			Field: "n", Problem: fmt.Sprintf("%d is not between 1 and %d", n, store.MaxClaim),
		}}}
	}
	var jobs []gq.Job
	var extras []jobExtras
	err := s.do(ctx, 1, func(tx *txn) {
		tx.t.promote(tx.now.UnixNano())
		defer tx.foresee()()
		jobs, extras = tx.peek(&f, n)
	})
	if err != nil {
		return nil, err
	}
	if !s.reading() {
		return nil, s.failure()
	}
	defer s.reads.Done()
	found := make([]store.Found, len(jobs))
	for i := range jobs {
		store.Own(&jobs[i].State)
		found[i].Err = s.assemble(&jobs[i], extras[i], 0)
		found[i].Job = jobs[i]
	}
	return found, nil
}

// foresee places jobs where the next claim's catchUp would, without changing their
// state: expired leases are freed, jobs past their lifetime become unclaimable. The
// returned function undoes it.
func (tx *txn) foresee() (undo func()) {
	t := tx.t
	var back []func()
	w := t.toDue.walk()
	for range advanceStep {
		d, ok := w.peek()
		if !ok || d.at > tx.now.UnixNano() {
			break
		}
		w.pop()
		j, key, was := d.job, d.job.key, d.job.ready
		_, old := tx.load(j)
		next, _, err := machine.Advance(old, tx.draw(), tx.now)
		if err != nil {
			panic(fmt.Sprintf("local: advance job %s: %v", j.id, err))
		}
		q, status, n := j.bucket.queue, j.status, 1+int64(j.rest) // folded jobs have the same fate
		t.leave(j)
		if status.Held() {
			t.vacate(j, status)
		}
		q.counts[status] -= n
		j.status = next.Status
		q.counts[j.status] += n
		if machine.Claimable(&next, tx.now) {
			t.enter(j, machine.Order(&next))
		}
		back = append(back, func() {
			t.leave(j)
			if status.Held() {
				t.occupy(j, status)
			}
			q.counts[j.status] -= n
			j.status = status
			q.counts[status] += n
			if was {
				t.enter(j, key)
			}
		})
	}
	return func() {
		for _, f := range back {
			f()
		}
	}
}

// peek removes jobs in the order in which a claim would take them, then puts them back.
func (tx *txn) peek(f *store.Filter, n int) (jobs []gq.Job, extras []jobExtras) {
	t := tx.t
	var seen []*job
	held := map[*queue]int64{}
	due := map[*queue]time.Time{}
	owed := map[*limitKey]int64{}
	for _, name := range f.Queues {
		q := t.queues[name]
		if q == nil || q.config.Paused {
			continue
		}
		if _, again := due[q]; !again {
			held[q], due[q] = q.held(), q.due
		}
		t.free(q, tx.now.UnixNano())
		for len(jobs) < n {
			if limit := q.config.MaxRunning; limit > 0 && held[q] >= int64(limit) {
				break
			}
			j := q.pick(f, gq.StatusRunning)
			if j == nil {
				break
			}
			if j.limit != nil && !tx.allow(j.limit) {
				continue
			}
			next, ok := machine.TakeRate(q.config.Rate, due[q], tx.now)
			if !ok {
				break
			}
			due[q] = next
			held[q]++
			if j.rest > 0 {
				t.unfold(j.seq + 1)
			}
			h, state := tx.load(j)
			if k := j.limit; k != nil {
				if _, known := owed[k]; !known {
					owed[k] = k.due
				}
				tx.use(k, h.keys)
			}
			jobs = append(jobs, gq.Job{State: state.At(tx.now)})
			extras = append(extras, jobExtras{flags: h.flags})
			t.leave(j)
			t.occupy(j, gq.StatusRunning)
			seen = append(seen, j)
		}
	}
	for k, due := range owed {
		if k.due != due { // what the peek used up
			k.due = due
			k.queue.aside.set(k, 0)
			t.judge(k)
		}
	}
	for _, j := range seen {
		t.vacate(j, gq.StatusRunning)
		t.enter(j, j.key)
	}
	return jobs, extras
}
