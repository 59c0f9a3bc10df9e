// Package feed hands the events of a queue to many subscribers.
//
// One reader follows the event log and keeps the newest events in memory. A
// subscriber has nothing but its place in the log: it takes what it has not seen
// from that memory, or from the log itself where it is further behind. So
// nobody waits for a slow subscriber, an idle one costs a goroutine, and an event
// is encoded once however many get it.
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
)

// Source is what a hub needs of an engine.
type Source interface {
	Events(ctx context.Context, after uint64, limit int) ([]gq.Event, error)
	Follow(ctx context.Context, after uint64, f func([]gq.Event) error) error
	LastEvent(ctx context.Context) (uint64, error)
}

// Sizes of a hub.
const (
	recent   = 8192 // events kept in memory, and a page more
	pageSize = 500  // events read from the log at once
	pageRoom = 1024 // events that commits share a page for

	// pace is the least time between two batches: the first event after a pause
	// comes at once, and a flood in batches, for all subscribers together.
	pace = 25 * time.Millisecond

	again = time.Second // after an error
)

// Entry is an event with its encoded form, which all subscribers share and
// nobody may change.
type Entry struct {
	gq.Event
	Encoded []byte
}

// Filter selects events. The zero value is all of them.
type Filter struct {
	Queues []string
	Types  []gq.EventType
	Job    gq.JobID
	May    func(queue string) bool // nil is all
}

// all reports whether every event passes.
func (f *Filter) all() bool {
	return len(f.Queues) == 0 && len(f.Types) == 0 && f.Job.IsZero() && f.May == nil
}

// Allows reports whether an event passes.
func (f *Filter) Allows(e *gq.Event) bool {
	return (len(f.Queues) == 0 || slices.Contains(f.Queues, e.Queue)) &&
		(len(f.Types) == 0 || slices.Contains(f.Types, e.Type)) &&
		(f.Job.IsZero() || f.Job == e.Job) &&
		(f.May == nil || f.May(e.Queue))
}

// Hub is where subscribers meet the log.
type Hub struct {
	source Source
	encode func(b []byte, e *gq.Event) []byte
	seen   []func([]gq.Event) // see Seen; set before Run

	subscribers atomic.Int64 // while there are none nothing is encoded

	mu    sync.Mutex
	pages [][]Entry     // the newest events, ascending; no page is empty, and pages only grow; guarded by mu
	kept  int           // events in pages; guarded by mu
	last  uint64        // the newest event read; guarded by mu
	grown chan struct{} // closed when last has grown, see pace; guarded by mu
	woken time.Time     // when that was; guarded by mu
	waits bool          // it will be when the pace allows; guarded by mu
	ended bool          // Run has returned; guarded by mu
}

// New makes a hub that encodes events with encode, which appends. It does nothing
// until [Hub.Run].
func New(s Source, encode func(b []byte, e *gq.Event) []byte) *Hub {
	return &Hub{source: s, encode: encode, grown: make(chan struct{})}
}

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
		pause(ctx, again)
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
		h.mu.Lock()
		h.pages, h.kept, h.last = nil, 0, last
		h.wakeLocked() // those who came before
		h.mu.Unlock()
	}
	h.mu.Lock()
	last := h.last
	h.mu.Unlock()
	return h.source.Follow(ctx, last, func(events []gq.Event) error {
		for _, f := range h.seen {
			f(events)
		}
		if h.subscribers.Load() == 0 { // whoever comes reads the log
			h.mu.Lock()
			h.pages, h.kept, h.last = nil, 0, events[len(events)-1].Seq
			h.wakeLocked()
			h.mu.Unlock()
			return nil
		}
		entries := make([]Entry, len(events))
		text := make([]byte, 0, len(events)*encodedSize) // of all of them
		for i := range events {
			from := len(text)
			text = h.encode(text, &events[i])
			entries[i] = Entry{Event: events[i], Encoded: text[from:len(text):len(text)]}
		}
		h.add(entries)
		return nil
	})
}

// encodedSize is about what an event takes.
const encodedSize = 256

func (h *Hub) add(entries []Entry) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if last := len(h.pages) - 1; last >= 0 && len(h.pages[last])+len(entries) <= cap(h.pages[last]) {
		h.pages[last] = append(h.pages[last], entries...) // whoever reads it sees its old end
	} else {
		h.pages = append(h.pages, append(make([]Entry, 0, max(pageRoom, len(entries))), entries...))
	}
	h.kept += len(entries)
	drop := 0
	for h.kept-len(h.pages[drop]) >= recent {
		h.kept -= len(h.pages[drop])
		drop++
	}
	h.pages = slices.Delete(h.pages, 0, drop)
	h.last = entries[len(entries)-1].Seq
	if h.waits {
		return
	}
	if wait := pace - time.Since(h.woken); wait > 0 {
		h.waits = true
		time.AfterFunc(wait, h.wake)
		return
	}
	h.wakeLocked()
}

// wake tells all who wait that there is more: one timer and one waking for all of
// them, whatever the writer does in the meantime.
func (h *Hub) wake() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.wakeLocked()
}

func (h *Hub) wakeLocked() {
	close(h.grown)
	h.grown, h.woken, h.waits = make(chan struct{}), time.Now(), false
}

func (h *Hub) end() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.ended = true
	h.wakeLocked()
}

// page is what comes after a sequence number: entries from memory, or the need
// to read the log, or a channel to wait for.
func (h *Hub) page(after uint64) (entries []Entry, behind bool, grown <-chan struct{}, ended bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if after >= h.last {
		return nil, false, h.grown, h.ended
	}
	if len(h.pages) == 0 || h.pages[0][0].Seq > after+1 {
		return nil, true, h.grown, h.ended
	}
	i := sort.Search(len(h.pages), func(i int) bool { return h.pages[i][len(h.pages[i])-1].Seq > after })
	page := h.pages[i]
	return page[sort.Search(len(page), func(k int) bool { return page[k].Seq > after }):], false, h.grown, h.ended
}

// Send takes what comes after a sequence number, in order. Everything up to the
// sequence number it is told has been looked at. It gets no entries where nothing
// came for a while.
type Send func(entries []Entry, upTo uint64) error

// Subscribe calls send with the events after a sequence number that a filter
// lets through, in order, as they come, and once in every beat at the latest;
// 0 is never. It returns the sequence number up to which everything was handed
// over, and why it ended: nil when the context or the hub did, [gq.ErrGone] where
// the log no longer reaches back so far, or what send returned. From that number
// another subscription goes on without a gap.
func (h *Hub) Subscribe(ctx context.Context, after uint64, f Filter, beat time.Duration, send Send) (uint64, error) {
	h.subscribers.Add(1)
	defer h.subscribers.Add(-1)
	var passed []Entry
	var beats <-chan time.Time
	if beat > 0 {
		ticker := time.NewTicker(beat)
		defer ticker.Stop()
		beats = ticker.C
	}
	for ctx.Err() == nil {
		entries, grown, ended, err := h.next(ctx, after)
		if err != nil {
			if ctx.Err() != nil {
				err = nil // a clean end
			}
			return after, err
		}
		if len(entries) == 0 {
			if ended {
				return after, nil
			}
			select {
			case <-grown:
			case <-beats:
				if err := send(nil, after); err != nil {
					return after, err
				}
			case <-ctx.Done():
			}
			continue
		}
		passed = h.pass(&f, entries, passed[:0])
		upTo := entries[len(entries)-1].Seq
		if len(passed) > 0 {
			if err := send(passed, upTo); err != nil {
				return after, err
			}
		}
		if f.all() {
			passed = nil // it may be the hub's own page
		}
		after = upTo
	}
	return after, nil
}

func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// pass is the entries that a filter lets through, encoded. Where that is all of
// them they are not copied.
func (h *Hub) pass(f *Filter, entries, into []Entry) []Entry {
	if f.all() && !unencoded(entries) {
		return entries
	}
	for i := range entries {
		if e := &entries[i]; f.Allows(&e.Event) {
			into = append(into, *e)
			if e.Encoded == nil { // the page may be shared
				into[len(into)-1].Encoded = h.encode(nil, &e.Event)
			}
		}
	}
	return into
}

func unencoded(entries []Entry) bool {
	for i := range entries {
		if entries[i].Encoded == nil {
			return true
		}
	}
	return false
}

// next is what comes after a sequence number, from memory or from the log.
func (h *Hub) next(ctx context.Context, after uint64) (entries []Entry, grown <-chan struct{}, ended bool, err error) {
	entries, behind, grown, ended := h.page(after)
	if !behind {
		return entries, grown, ended, nil
	}
	events, err := h.source.Events(ctx, after, pageSize)
	entries = make([]Entry, len(events)) // of this subscriber alone
	for i := range events {
		entries[i].Event = events[i]
	}
	return entries, grown, ended, err
}
