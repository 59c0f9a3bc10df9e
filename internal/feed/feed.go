// Package feed hands the events of a queue to many subscribers.
//
// One reader follows the event log and keeps the newest events in memory. A
// subscriber has nothing but its place in the log: it takes what it has not seen
// from that memory, a page at a time, or from the log itself where it is further
// behind. So nobody waits for a slow subscriber, an idle one costs a goroutine, and
// a page is written once however many get it.
//
// Every subscriber gets every event that its filter lets through, in order,
// without a gap or a repetition from the sequence number it asked for.
package feed

import (
	"context"
	"errors"
	"slices"
	"sort"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/internal/retry"
)

// Source is what a hub needs of an engine. The hub keeps the events it is handed.
type Source interface {
	Events(ctx context.Context, after uint64, limit int) ([]gq.Event, error)
	Follow(ctx context.Context, after uint64, f func([]gq.Event) error) error
	LastEvent(ctx context.Context) (uint64, error)
}

// Sizes of a hub.
const (
	recent   = 16384 // events kept in memory, and a page more
	pageSize = 500   // events read at once by those who are further behind
	maxOld   = 16    // pages of theirs that are kept for others who come to the same place

	again = time.Second // after an error
)

// Hub is where subscribers meet the log.
type Hub struct {
	source Source
	seen   []func([]gq.Event) // see Seen; set before Run

	subscribers atomic.Int64 // while there are none nothing is kept

	mu    sync.Mutex
	pages []*page       // the newest events, ascending; guarded by mu
	kept  int           // events in pages; guarded by mu
	last  uint64        // the newest event read; guarded by mu
	grown chan struct{} // closed when last has grown; guarded by mu
	ended bool          // Run has returned; guarded by mu
	old   []*reading    // of those who are behind, the newest last; guarded by mu
}

// New makes a hub. It does nothing until [Hub.Run].
func New(s Source) *Hub { return &Hub{source: s, grown: make(chan struct{})} }

// Seen has f called with all events from now on, in order. It must return at
// once, and Run must not have begun.
func (h *Hub) Seen(f func([]gq.Event)) { h.seen = append(h.seen, f) }

// Run follows the log until the context ends, which is a clean stop. It goes on
// through errors, and ends with one only when the store is closed or has failed
// for good. Then all subscriptions end too.
func (h *Hub) Run(ctx context.Context) error {
	defer h.end()
	began := false
	for {
		err := h.follow(ctx, &began)
		switch {
		case err == nil || ctx.Err() != nil:
			return nil // the end of the context is a clean stop
		case errors.Is(err, gq.ErrClosed) || errors.Is(err, gq.ErrStoreFailed):
			return err
		case errors.Is(err, gq.ErrGone):
			began = false // nobody read for so long; go on at the end
		}
		retry.Pause(ctx, again)
	}
}

// follow reads on from the last event, which is the newest one at first.
func (h *Hub) follow(ctx context.Context, began *bool) error {
	if !*began {
		last, err := h.source.LastEvent(ctx)
		if err != nil {
			return err
		}
		*began = true
		h.skipTo(last)
	}
	h.mu.Lock()
	last := h.last
	h.mu.Unlock()
	return h.source.Follow(ctx, last, func(events []gq.Event) error {
		for _, f := range h.seen {
			f(events)
		}
		if h.subscribers.Load() == 0 {
			h.skipTo(events[len(events)-1].Seq) // whoever comes reads the log
		} else {
			h.add(newPage(events))
		}
		return nil
	})
}

// skipTo forgets what is kept.
func (h *Hub) skipTo(last uint64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.pages, h.kept, h.old, h.last = nil, 0, nil, last
	h.wakeLocked()
}

func (h *Hub) add(p *page) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.pages = append(h.pages, p)
	h.kept += len(p.events)
	drop := 0
	for h.kept-len(h.pages[drop].events) >= recent {
		h.kept -= len(h.pages[drop].events)
		drop++
	}
	h.pages = slices.Delete(h.pages, 0, drop)
	h.last = p.last()
	h.wakeLocked()
}

// wakeLocked tells all who wait that there is more. How often that may be is the
// source's to bound.
func (h *Hub) wakeLocked() {
	close(h.grown)
	h.grown = make(chan struct{})
}

func (h *Hub) end() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.ended = true
	h.wakeLocked()
}

// page is what comes after a sequence number: a page from memory, or the need to
// read the log, or a channel to wait for.
func (h *Hub) page(after uint64) (p *page, behind bool, grown <-chan struct{}, ended bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if after >= h.last {
		return nil, false, h.grown, h.ended
	}
	if len(h.pages) == 0 || h.pages[0].events[0].Seq > after+1 {
		return nil, true, h.grown, h.ended
	}
	i := sort.Search(len(h.pages), func(i int) bool { return h.pages[i].last() > after })
	return h.pages[i], false, h.grown, h.ended
}

// reading is a page of the log that somebody who is behind reads. Those who fell
// behind together stand at the same place, and share it.
type reading struct {
	after uint64

	mu   sync.Mutex
	page *page // nil before it was read; guarded by mu
}

// read is a page of the log itself, nil where nothing comes.
func (h *Hub) read(ctx context.Context, after uint64) (*page, error) {
	h.mu.Lock()
	i := slices.IndexFunc(h.old, func(r *reading) bool { return r.after == after })
	if i < 0 {
		if len(h.old) == maxOld {
			h.old = slices.Delete(h.old, 0, 1)
		}
		i = len(h.old)
		h.old = append(h.old, &reading{after: after})
	}
	r := h.old[i]
	h.mu.Unlock()
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.page == nil {
		events, err := h.source.Events(ctx, after, pageSize)
		if err != nil || len(events) == 0 {
			return nil, err // whoever waits tries again
		}
		r.page = newPage(events)
	}
	return r.page, nil
}

// Send takes what comes after a sequence number, in order. Everything up to the
// sequence number it is told has been looked at. It gets an empty batch where
// nothing came for a while.
type Send func(b Batch, upTo uint64) error

// ErrEnough is returned by a send that has taken the batch and wants no more.
var ErrEnough = errors.New("enough")

// Subscribe calls send with the events after a sequence number that a filter
// lets through, in order, as they come, and once in every beat at the latest;
// 0 is never. It returns the sequence number up to which everything was handed
// over, and why it ended: nil when the context or the hub did, [gq.ErrGone] where
// the log no longer reaches back so far, or what send returned. From that number
// another subscription goes on without a gap.
func (h *Hub) Subscribe(ctx context.Context, after uint64, f Filter, beat time.Duration, send Send) (uint64, error) {
	h.subscribers.Add(1)
	defer h.subscribers.Add(-1)
	var room []int32
	var beats <-chan time.Time
	if beat > 0 {
		ticker := time.NewTicker(beat)
		defer ticker.Stop()
		beats = ticker.C
	}
	for ctx.Err() == nil {
		p, grown, ended, err := h.next(ctx, after)
		if err != nil {
			if ctx.Err() != nil {
				err = nil // a clean end
			}
			return after, err
		}
		if p == nil {
			if ended {
				return after, nil
			}
			select {
			case <-grown:
			case <-beats:
				if err := send(Batch{}, after); err != nil {
					return after, err
				}
			case <-ctx.Done():
			}
			continue
		}
		batch := p.pass(&f, after, &room)
		if batch.Len() > 0 {
			if err := send(batch, p.last()); errors.Is(err, ErrEnough) {
				return p.last(), err
			} else if err != nil {
				return after, err
			}
		}
		after = p.last()
	}
	return after, nil
}

// Follow is like that of the source, without another look at the log for whoever is
// not behind. The error is [gq.ErrClosed] where the hub has ended.
func (h *Hub) Follow(ctx context.Context, after uint64, f func([]gq.Event) error) error {
	_, err := h.Subscribe(ctx, after, Filter{}, 0, func(b Batch, _ uint64) error { return f(b.Events()) })
	if err == nil && ctx.Err() == nil {
		return gq.ErrClosed
	}
	return err
}

// LastEvent is that of the source.
func (h *Hub) LastEvent(ctx context.Context) (uint64, error) { return h.source.LastEvent(ctx) }

// next is what comes after a sequence number, from memory or from the log.
func (h *Hub) next(ctx context.Context, after uint64) (p *page, grown <-chan struct{}, ended bool, err error) {
	p, behind, grown, ended := h.page(after)
	if behind {
		p, err = h.read(ctx, after)
	}
	return p, grown, ended, err
}
