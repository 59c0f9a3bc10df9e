package engine

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/internal/history"
	"github.com/gopherqueue/gq/store"
)

// The history of queues is counted from the event log, which every transition is written to in
// its own commit. It is stored as documents: one for each queue and hour, one for all queues
// together and hour, and a cursor with the number of the last event that they include. All are
// written in one commit under the version of the cursor. So each event is counted exactly once,
// even with several engines and after a crash. Events after the cursor are counted in memory.

const (
	historyTick  = 10 * time.Second // how often an engine counts new events
	historyEvery = time.Minute      // how often it stores them,
	historyMost  = 20_000           // or once there are this many
	historyStep  = 10_000           // events read at a time
	historyAway  = 90 * time.Second // how long it leaves that to another engine that has stored some
)

const (
	historyKind = "history"     // the cursor
	historyAll  = "history.all" // all queues together
	historyPart = "history.part"
	cursorName  = "cursor"
)

// The document of an hour has minutes, that of a day hours. Kinds are short because there are many
// documents.
func hourDoc(s slot) store.DocName { return historyDoc("h"+strconv.FormatInt(s.hour, 10), s.queue) }
func dayDoc(s slot) store.DocName {
	return historyDoc("d"+strconv.FormatInt(s.hour/history.DayHours, 10), s.queue)
}

func historyDoc(when, queue string) store.DocName {
	if queue == "" {
		return store.DocName{Kind: historyAll, Name: when}
	}
	return store.DocName{Kind: when, Name: queue}
}

// slot is an hour of a queue, or of all queues if the name is empty.
type slot struct {
	queue string
	hour  int64
}

// histories counts the events after the stored history.
type histories struct {
	e      *Engine
	news   atomic.Bool   // something has happened since the last tick
	turn   chan struct{} // held by whoever uses the fields below
	known  bool          // the cursor has been read
	cursor store.Doc
	at     historyCursor
	seq    uint64                 // last event counted
	tail   map[slot]*history.Hour // counted since the cursor
	events int                    // in the tail
	stored time.Time              // when this engine has last seen everything stored
	moved  time.Time              // when it has last seen that another engine stored something

	last    slot // of the last event, and what it is counted in
	lastOne *history.Hour
	lastAll *history.Hour

	recent activityCache
}

// activityCache has the last answer of QueueActivity for all queues.
type activityCache struct {
	reads shared[[]gq.QueueActivity]
	mu    sync.Mutex
	list  []gq.QueueActivity // guarded by mu
	at    time.Time          // guarded by mu
}

func newHistories(e *Engine) *histories { return &histories{e: e, turn: make(chan struct{}, 1)} }

// enter waits for the turn; the returned function ends it.
func (h *histories) enter(ctx context.Context) (leave func(), err error) {
	select {
	case h.turn <- struct{}{}:
		return func() { <-h.turn }, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// reset forgets the tail. The next call reads the cursor and counts again.
func (h *histories) reset() {
	h.known, h.tail, h.events, h.lastOne = false, nil, 0, nil
}

// load reads the cursor.
func (h *histories) load(ctx context.Context) error {
	h.reset()
	d, err := h.e.store.Doc(ctx, historyKind, cursorName)
	switch {
	case errors.Is(err, gq.ErrNotFound):
		h.cursor, h.at = store.Doc{Kind: historyKind, Name: cursorName}, historyCursor{}
	case err != nil:
		return err
	default:
		h.cursor = d
		if h.at, err = decodeHistoryCursor(d.Data); err != nil {
			return err
		}
	}
	h.seq, h.tail, h.known = h.at.seq, map[slot]*history.Hour{}, true
	return nil
}

// stale starts over if the cursor still has a version that another engine has replaced.
func (h *histories) stale(ctx context.Context, version uint64) {
	if leave, err := h.enter(ctx); err == nil {
		if h.cursor.Version == version {
			h.reset()
		}
		leave()
	}
}

// elsewhere reports whether another engine has stored counts lately. Then this one need not read
// the same events.
func (h *histories) elsewhere(ctx context.Context, now time.Time) (bool, error) {
	if !h.e.node.shared {
		return false, nil
	}
	docs, err := h.e.store.FindDocs(ctx, []store.DocName{{Kind: historyKind, Name: cursorName}})
	if err != nil || len(docs) == 0 {
		return false, err
	}
	if docs[0].Version != h.cursor.Version {
		h.reset()
		h.cursor, h.moved, h.stored = docs[0], now, now
	}
	return now.Sub(h.moved) < historyAway, nil
}

// add counts an event.
func (h *histories) add(e *gq.Event) {
	h.events++
	if !history.Counts(e) || e.Queue == "" {
		return
	}
	if s := (slot{e.Queue, history.HourOf(e.Time)}); h.lastOne == nil || s != h.last {
		h.last, h.lastOne, h.lastAll = s, h.slot(s), h.slot(slot{hour: s.hour})
	}
	h.lastOne.Add(e)
	h.lastAll.Add(e)
}

func (h *histories) slot(s slot) *history.Hour {
	one := h.tail[s]
	if one == nil {
		one = new(history.Hour)
		h.tail[s] = one
	}
	return one
}

// catchUp counts all events. If there are many it stores them in between.
func (h *histories) catchUp(ctx context.Context) (err error) {
	if !h.known {
		if err := h.load(ctx); err != nil {
			return err
		}
	}
	defer func() {
		if err != nil {
			h.reset() // part of a step may have been counted
		}
	}()
	for {
		before := h.events
		last, err := store.Skim(ctx, h.e.store, h.seq, historyStep, h.add)
		if errors.Is(err, gq.ErrGone) && h.events == before {
			if last, err = h.e.BeforeFirstEvent(ctx); err == nil && last <= h.seq {
				err = gq.ErrGone.Errorf("events after %d are neither there nor gone", h.seq)
			}
			if err == nil {
				h.seq = last
				continue
			}
		}
		if err != nil {
			return err
		}
		h.seq = last
		if h.events-before < historyStep {
			return nil
		}
		if h.events >= historyMost {
			if err := h.store(ctx); err != nil && !errors.Is(err, gq.ErrConflict) {
				return err
			}
			if !h.known { // another engine was faster
				if err := h.load(ctx); err != nil {
					return err
				}
			}
		}
	}
}

// tick counts new events, stores them if it is time, and forgets old minutes and hours.
func (h *histories) tick(ctx context.Context, force bool) error {
	leave, err := h.enter(ctx)
	if err != nil {
		return err
	}
	defer leave()
	now := h.e.clock.now()
	if !force {
		if other, err := h.elsewhere(ctx, now); err != nil || other {
			return err
		}
	}
	if err := h.catchUp(ctx); err != nil {
		return err
	}
	if h.seq == h.at.seq && h.cursor.Version > 0 {
		h.stored = now
	} else if force || h.events >= historyMost || now.Sub(h.stored) >= historyEvery {
		if err := h.store(ctx); err != nil {
			return err
		}
	}
	return h.forget(ctx)
}

// run counts and stores events until the context ends, and stores the rest then.
func (h *histories) run(ctx context.Context) {
	warn := func(err error) {
		if err != nil && !errors.Is(err, gq.ErrConflict) && !errors.Is(err, gq.ErrClosed) && !errors.Is(err, gq.ErrStoreFailed) {
			h.e.log.Warn("count the history of queues", "error", err)
		}
	}
	ticker := time.NewTicker(historyTick)
	defer ticker.Stop()
	for n := 1; ; n++ {
		select {
		case <-ticker.C:
			if h.news.Swap(false) || time.Duration(n)*historyTick >= historyEvery {
				n = 0
				if err := h.tick(ctx, false); ctx.Err() == nil {
					warn(err)
				}
			}
		case <-ctx.Done():
			last, stop := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
			defer stop()
			warn(h.tick(last, true))
			return
		}
	}
}

// beforeCollect makes sure that no event is deleted that was not counted. Events are deleted when
// the store's retention is over; those of jobs with a shorter one may go once their day is over.
func (h *histories) beforeCollect(ctx context.Context) error {
	const margin, day = 4, 24
	now, stored := h.e.clock.now(), h.storedAt(ctx)
	if now.Sub(stored) < h.e.config.Retention.Shortest()/margin && history.HourOf(now)/day == history.HourOf(stored)/day {
		return nil
	}
	err := h.tick(ctx, true)
	if errors.Is(err, gq.ErrConflict) || errors.Is(err, gq.ErrDiskFull) {
		return nil // another engine stores them now, or deleting is what makes room
	}
	if err != nil {
		return fmt.Errorf("count the history of queues: %w", err)
	}
	return nil
}

// storedAt returns a time before which everything is stored.
func (h *histories) storedAt(ctx context.Context) time.Time {
	leave, err := h.enter(ctx)
	if err != nil {
		return time.Time{}
	}
	defer leave()
	if h.stored.IsZero() {
		h.stored = h.firstLeft(ctx)
	}
	return h.stored
}

// firstLeft returns when the first event after the stored ones was, now if there is none, and zero if
// that cannot be said. Counting everything instead would delay jobs that wait for an engine to start.
func (h *histories) firstLeft(ctx context.Context) (at time.Time) {
	if !h.known && h.load(ctx) != nil {
		return time.Time{}
	}
	now := h.e.clock.now()
	last, err := store.Skim(ctx, h.e.store, h.at.seq, 1, func(e *gq.Event) { at = e.Time })
	switch {
	case err != nil:
		return time.Time{}
	case last == h.at.seq:
		return now
	default:
		return at
	}
}

// forget moves hours that are a day old to their days, without their minutes, and removes days
// that are a month old.
func (h *histories) forget(ctx context.Context) error {
	if h.cursor.Version == 0 {
		return nil
	}
	until := history.HourOf(h.e.clock.now()) - int64(gq.HistoryMinutes/time.Hour)
	for h.at.collapsed < until {
		if err := h.collapse(ctx, h.at.collapsed); err != nil {
			return err
		}
		if h.at.collapsed%history.DayHours == 0 {
			if err := h.drop(ctx, h.at.collapsed-int64(gq.HistoryHours/time.Hour)); err != nil {
				return err
			}
		}
	}
	return nil
}

// collapse moves an hour of all queues to their days. Until the last queue is moved, the cursor
// says that the hour may be in both places.
func (h *histories) collapse(ctx context.Context, hour int64) error {
	for more := true; more; {
		docs, err := h.e.store.Docs(ctx, hourDoc(slot{"q", hour}).Kind, "", maxSlots/2)
		if err != nil {
			return err
		}
		if more = len(docs) == maxSlots/2; !more {
			all, err := h.e.store.FindDocs(ctx, []store.DocName{hourDoc(slot{hour: hour})})
			if err != nil {
				return err
			}
			docs = append(docs, all...)
		}
		counts := make(map[slot]*history.Hour, len(docs))
		for i := range docs {
			d := &docs[i]
			s := slot{d.Name, hour}
			if d.Kind == historyAll {
				s.queue = ""
			}
			one := new(history.Hour)
			if err := one.Decode(d.Data); err != nil {
				return fmt.Errorf("document %s/%s: %w", d.Kind, d.Name, err)
			}
			counts[s] = one
			d.Data = nil
		}
		days, err := h.added(ctx, counts, hour+1)
		if err != nil {
			return err
		}
		at := h.at
		if !more {
			at.collapsed = hour + 1
		}
		if err := h.put(ctx, append(docs, days...), at); err != nil {
			return err
		}
	}
	return nil
}

// drop removes a day, which begins at an hour. It is too old to be read.
func (h *histories) drop(ctx context.Context, hour int64) error {
	docs, err := h.e.store.FindDocs(ctx, []store.DocName{dayDoc(slot{hour: hour})})
	for err == nil {
		var page []store.Doc
		if page, err = h.e.store.Docs(ctx, dayDoc(slot{"q", hour}).Kind, "", maxSlots); err != nil {
			break
		}
		if docs = append(docs, page...); len(docs) == 0 {
			return nil
		}
		for i := range docs {
			docs[i].Data = nil
		}
		_, err = h.e.store.PutDocs(ctx, docs)
		docs = nil
	}
	return err
}

// sorted returns slots in order.
func sorted(counts map[slot]*history.Hour) []slot {
	return slices.SortedFunc(maps.Keys(counts), compareSlots)
}
