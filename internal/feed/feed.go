// Package feed distributes the events of a queue to many subscribers.
//
// One reader follows the event log and keeps the newest events in memory. A subscriber
// only has a position in the log: it reads newer events from that memory, a page at a
// time, or from the log itself if it is further behind. So nobody waits for a slow
// subscriber, an idle one costs a goroutine, and each page is encoded once for all.
//
// Every subscriber gets every event that passes its filter, in order, without gaps or
// duplicates, from the sequence number it asked for.
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

// Source is the part of an engine that a hub needs. The hub keeps the events it gets.
type Source interface {
	Events(ctx context.Context, after uint64, limit int) ([]gq.Event, error)
	Follow(ctx context.Context, after uint64, f func([]gq.Event) error) error
	LastEvent(ctx context.Context) (uint64, error)
}

// Limits of a hub.
const (
	recent   = 16384 // events kept in memory, plus up to a page
	pageSize = 500   // events per read for subscribers that are further behind
	maxOld   = 16    // cached pages of such reads

	again = time.Second // retry delay after an error
)

// Hub follows the log for all subscribers.
type Hub struct {
	source Source
	seen   []func([]gq.Event) // see Seen; set before Run

	subscribers atomic.Int64 // if there are none, no events are kept

	mu    sync.Mutex
	pages []*page       // newest events, ascending; guarded by mu
	kept  int           // events in pages; guarded by mu
	last  uint64        // the newest event read; guarded by mu
	count uint64        // pages so far; guarded by mu
	grown chan struct{} // closed when last grows; guarded by mu
	ended bool          // Run has returned; guarded by mu
	old   []*reading    // reads of subscribers that are behind, newest last; guarded by mu
}

// New creates a hub. It does nothing until [Hub.Run].
func New(s Source) *Hub { return &Hub{source: s, grown: make(chan struct{})} }

// Seen registers f to be called with all new events but progress, in order. f must not block. Call
// Seen before Run.
func (h *Hub) Seen(f func([]gq.Event)) { h.seen = append(h.seen, f) }

// Run follows the log until the context ends, and then returns nil. It continues after
// errors and returns one only if the store is closed or has failed permanently. When it
// returns, all subscriptions end.
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
			began = false // the gap was too long; continue at the end of the log
		}
		retry.Pause(ctx, again)
	}
}

// follow reads on from the last event; the first call starts at the newest event.
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
		if kept := slices.DeleteFunc(slices.Clone(events), isProgress); len(kept) > 0 {
			for _, f := range h.seen {
				f(kept)
			}
		}
		if h.subscribers.Load() == 0 {
			h.skipTo(events[len(events)-1].Seq) // new subscribers read the log
		} else {
			h.add(newPage(events))
		}
		return nil
	})
}

// skipTo drops the kept events.
func (h *Hub) skipTo(last uint64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.pages, h.kept, h.old, h.last = nil, 0, nil, last
	h.count++ // nobody has read everything of what is skipped
	h.wakeLocked()
}

func (h *Hub) add(p *page) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.count++
	p.number, p.begins = h.count, h.last
	h.pages = append(h.pages, p)
	h.kept += len(p.events)
	drop := 0
	for h.kept-len(h.pages[drop].events) >= recent {
		h.kept -= len(h.pages[drop].events)
		drop++
	}
	h.pages = slices.Delete(h.pages, 0, drop)
	h.last = max(h.last, p.last())
	h.wakeLocked()
}

// wakeLocked wakes all waiting subscribers. The source limits how often that happens.
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

// position is how far a subscriber has read.
type position struct {
	after uint64 // all events up to this one
	page  uint64 // all pages up to this one, which may end with progress; 0 is unknown
}

// page returns what follows a position: a page from memory, behind if the log must be read, or a
// channel to wait on. whole says that the subscriber has seen nothing of the page, not even
// progress that has the number of an event before it.
func (h *Hub) page(at *position) (p *page, whole, behind bool, grown <-chan struct{}, ended bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case at.page > 0 && len(h.pages) > 0 && at.page+1 >= h.pages[0].number && at.page < h.count:
		return h.pages[at.page+1-h.pages[0].number], true, false, h.grown, h.ended
	case at.after >= h.last:
		at.page = h.count
		return nil, false, false, h.grown, h.ended
	case len(h.pages) == 0 || h.pages[0].begins > at.after:
		return nil, false, true, h.grown, h.ended
	}
	i := sort.Search(len(h.pages), func(i int) bool { return h.pages[i].last() > at.after })
	return h.pages[i], false, false, h.grown, h.ended
}

// reading is a page of the log, read for subscribers that are behind. Those that fell
// behind together are at the same position and share it.
type reading struct {
	after uint64

	mu   sync.Mutex
	page *page // nil until read; guarded by mu
}

// read returns a page from the log, or nil if there is none.
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
			return nil, err // the next waiter retries
		}
		r.page = newPage(events)
	}
	return r.page, nil
}

// Send receives a batch of events in order. All events up to upTo are covered, including
// filtered ones. The batch is empty if nothing happened for a while.
type Send func(b Batch, upTo uint64) error

// ErrEnough is returned by a [Send] that accepted the batch and wants no more.
var ErrEnough = errors.New("enough")

// Subscribe calls send with the events after a sequence number that pass the filter, in
// order, as they arrive. While idle it sends an empty batch every beat; 0 is never. It
// returns the sequence number up to which everything was sent, from which another
// subscription continues without a gap. The error is nil if the context or the hub ended,
// [gq.ErrGone] if the log no longer reaches back that far, or what send returned.
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
	at := position{after: after}
	for ctx.Err() == nil {
		p, whole, grown, ended, err := h.next(ctx, &at)
		if err != nil {
			if ctx.Err() != nil {
				err = nil // a clean end
			}
			return at.after, err
		}
		if p == nil {
			if ended {
				return at.after, nil
			}
			select {
			case <-grown:
			case <-beats:
				if err := send(Batch{}, at.after); err != nil {
					return at.after, err
				}
			case <-ctx.Done():
			}
			continue
		}
		upTo := max(at.after, p.last())
		batch := f.redacted(p.pass(&f, at.after, whole, &room))
		if batch.Len() > 0 {
			if err := send(batch, upTo); errors.Is(err, ErrEnough) {
				return upTo, err
			} else if err != nil {
				return at.after, err
			}
		}
		at = position{upTo, p.number}
	}
	return at.after, nil
}

// Follow works like the source's Follow, but a caller that is not behind causes no extra
// reads of the log. The error is [gq.ErrClosed] if the hub has ended.
func (h *Hub) Follow(ctx context.Context, after uint64, f func([]gq.Event) error) error {
	_, err := h.Subscribe(ctx, after, Filter{}, 0, func(b Batch, _ uint64) error { return f(b.Events()) })
	if err == nil && ctx.Err() == nil {
		return gq.ErrClosed
	}
	return err
}

// LastEvent returns the source's last event.
func (h *Hub) LastEvent(ctx context.Context) (uint64, error) { return h.source.LastEvent(ctx) }

// next returns the page after a position, from memory or from the log.
func (h *Hub) next(ctx context.Context, at *position) (p *page, whole bool, grown <-chan struct{}, ended bool, err error) {
	p, whole, behind, grown, ended := h.page(at)
	if behind {
		p, err = h.read(ctx, at.after)
	}
	return p, whole, grown, ended, err
}

func isProgress(e gq.Event) bool { return e.Type == gq.EventProgress }
