package local

import (
	"container/heap"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/cockroachdb/pebble/v2"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/internal/enum"
	"github.com/gopherqueue/gq/store"
)

// listed is a job of a page.
type listed struct {
	state gq.State
	flags byte
}

// source is the jobs of one queue and status, in order: live ones from the lists in memory,
// finished ones from disk.
type source struct {
	queue  *queue
	status gq.Status
	seq    uint64 // the next job; or, while it is not known, no smaller than that
	known  bool
	ready  []uint64 // live jobs after it that are known already, the next one last
	chunk  int      // live jobs to read at once
}

// pager merges sources. There is one for each queue and status, so with many queues most of
// them contribute nothing to a page: a source costs one search, and only the jobs of the page
// are read. All finished jobs share one iterator, since an iterator of its own for each source
// would cost more than the page.
type pager struct {
	store    *Store
	from, to uint64 // half-open range of jobs
	oldest   bool
	sources  []*source // a heap by the next job
	disk     *pebble.Iterator
}

func (p *pager) Len() int { return len(p.sources) }

func (p *pager) Less(i, j int) bool {
	return (p.sources[i].seq < p.sources[j].seq) == p.oldest
}

func (p *pager) Swap(i, j int) { p.sources[i], p.sources[j] = p.sources[j], p.sources[i] }

func (p *pager) Push(x any) { p.sources = append(p.sources, x.(*source)) }

func (p *pager) Pop() any {
	last := p.sources[len(p.sources)-1]
	p.sources = p.sources[:len(p.sources)-1]
	return last
}

func (s *Store) page(q *gq.Query, from, to uint64) (seen []listed, next string, err error) {
	p := &pager{store: s, from: from, to: to, oldest: q.OldestFirst}
	defer func() {
		if p.disk != nil {
			err = either(err, damaged(p.disk.Close()))
		}
	}()
	for _, queue := range s.table.numbers[1:] {
		if q.Queue != "" && q.Queue != queue.config.Name {
			continue
		}
		for _, status := range enum.All[gq.Status]() {
			if queue.counts[status] == 0 || len(q.Statuses) > 0 && !slices.Contains(q.Statuses, status) {
				continue
			}
			src := &source{queue: queue, status: status, chunk: 1}
			switch ok, err := p.first(src); {
			case err != nil:
				return nil, "", err
			case ok:
				p.sources = append(p.sources, src)
			}
		}
	}
	heap.Init(p)
	for len(p.sources) > 0 {
		more, err := p.step(p.sources[0], q.Limit, &seen)
		if errors.Is(err, errFull) {
			return seen, store.Cursor(seen[q.Limit-1].state.Sequence), nil
		}
		if err != nil {
			return nil, "", err
		}
		if more {
			heap.Fix(p, 0)
		} else {
			heap.Pop(p)
		}
	}
	return seen, "", nil
}

// errFull says that there are more jobs than the page holds.
var errFull = errors.New("the page is full")

// step takes a job of the first source, or finds out which one is its next.
func (p *pager) step(src *source, limit int, seen *[]listed) (more bool, err error) {
	if !src.known {
		return p.search(src)
	}
	if len(*seen) == limit {
		return false, errFull
	}
	job, more, err := p.take(src)
	*seen = append(*seen, job)
	return more, err
}

// bounds has numbers that the newest finished job of a queue and status does not exceed, as far
// as a page has looked for it.
type bounds struct {
	mu sync.Mutex
	by map[doneKey]uint64 // with sequence number 0; guarded by mu
}

// of returns the bound of a source.
func (b *bounds) of(src *source) (newest uint64, ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	newest, ok = b.by[doneKey{queue: src.queue.number, status: src.status}]
	return newest, ok
}

// learn sets a bound. Its caller keeps writers out, so that no job can finish meanwhile.
func (b *bounds) learn(newest doneKey) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.by == nil {
		b.by = make(map[doneKey]uint64)
	}
	b.by[doneKey{queue: newest.queue, status: newest.status}] = newest.seq
}

// raise notes that a job has finished. Only the writer calls it.
func (b *bounds) raise(done doneKey) {
	b.mu.Lock()
	defer b.mu.Unlock()
	k := doneKey{queue: done.queue, status: done.status}
	if known, ok := b.by[k]; ok && known < done.seq {
		b.by[k] = done.seq
	}
}

// first moves a source to its first job in the range. The newest finished job of most queues is
// older than what a page shows, so that it need not be searched if a bound is known.
func (p *pager) first(src *source) (ok bool, err error) {
	switch {
	case !src.status.Terminal() && p.oldest:
		src.known = true
		return p.refill(src, p.from), nil
	case !src.status.Terminal():
		src.known = true
		return p.refill(src, p.to), nil
	case p.oldest:
		return p.search(src)
	}
	if newest, ok := p.store.table.bounds.of(src); ok {
		src.seq = min(newest, p.to-1)
		return src.seq >= p.from, nil
	}
	return p.search(src)
}

// search finds the first finished job of a source on disk.
func (p *pager) search(src *source) (ok bool, err error) {
	src.known = true
	if p.disk == nil {
		if p.disk, err = p.store.iterate(prefixDone); err != nil {
			return false, err
		}
	}
	if p.oldest {
		return p.found(src, p.disk.SeekGE(doneKey{src.queue.number, src.status, p.from}.append(nil)))
	}
	ok, err = p.found(src, p.disk.SeekLT(doneKey{src.queue.number, src.status, p.to}.append(nil)))
	if ok && p.to > p.store.table.lastJob {
		p.store.table.bounds.learn(doneKey{src.queue.number, src.status, src.seq})
	}
	return ok, err
}

// take returns the next job of a source and moves it on.
func (p *pager) take(src *source) (job listed, more bool, err error) {
	if !src.status.Terminal() {
		h, state, err := p.store.readLive(src.seq)
		if err != nil {
			return listed{}, false, err
		}
		if n := len(src.ready); n > 0 {
			src.seq, src.ready = src.ready[n-1], src.ready[:n-1]
			return listed{state, h.flags}, true, nil
		}
		bound := src.seq
		if p.oldest {
			bound++
		}
		return listed{state, h.flags}, p.refill(src, bound), nil
	}
	// Another source has moved the iterator.
	at := src.seq
	if ok, err := p.found(src, p.disk.SeekGE(doneKey{src.queue.number, src.status, at}.append(nil))); err != nil || !ok || src.seq != at {
		return listed{}, false, errors.Join(err, fmt.Errorf("list: finished job %d: %w", at, gq.ErrCorrupt))
	}
	h, state, err := decodeRecord(p.disk.Value(), at, alone)
	if err != nil {
		return listed{}, false, err
	}
	if p.oldest {
		more, err = p.found(src, p.disk.Next())
	} else {
		more, err = p.found(src, p.disk.Prev())
	}
	return listed{state, h.flags}, more, err
}

// refill reads the next live jobs of a source from a number on, or below it. The first search
// reads one job, because most sources contribute none; later ones read more and more.
func (p *pager) refill(src *source, bound uint64) bool {
	src.ready = src.ready[:0]
	collect := func(seq uint64) bool {
		if seq < p.from || seq >= p.to {
			return false
		}
		src.ready = append(src.ready, seq)
		return len(src.ready) < src.chunk
	}
	if p.oldest {
		src.queue.live(src.status).ascend(bound, collect)
	} else {
		src.queue.live(src.status).descend(bound, collect)
	}
	src.chunk = min(8*src.chunk, store.MaxPage)
	n := len(src.ready)
	if n == 0 {
		return false
	}
	slices.Reverse(src.ready)
	src.seq, src.ready = src.ready[n-1], src.ready[:n-1]
	return true
}

// found sets a source to the job where the iterator is, unless that is beyond the source.
func (p *pager) found(src *source, valid bool) (bool, error) {
	if !valid {
		return false, damaged(p.disk.Error())
	}
	k, ok := parseDoneKey(p.disk.Key())
	if !ok {
		return false, fmt.Errorf("key %q: %w", p.disk.Key(), gq.ErrCorrupt)
	}
	src.seq = k.seq
	return k.queue == src.queue.number && k.status == src.status && k.seq >= p.from && k.seq < p.to, nil
}
