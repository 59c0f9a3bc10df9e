package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/internal/history"
	"github.com/gopherqueue/gq/machine"
	"github.com/gopherqueue/gq/store"
)

// QueueHistory returns what happened in queues over time, up to this call. Its cost depends on
// the number of queues and hours it asks for, not on the number of jobs.
func (e *Engine) QueueHistory(ctx context.Context, q gq.HistoryQuery) ([]gq.HistoryPoint, error) {
	now, err := e.store.Now(ctx)
	if err == nil {
		q, err = completeHistoryQuery(q, now)
	}
	if err != nil {
		return nil, fmt.Errorf("queue history: %w", err)
	}
	names := slices.Clone(q.Queues)
	if len(names) == 0 {
		names = []string{""}
	}
	var list []slot
	kept := history.HourOf(now) - int64(gq.HistoryHours/time.Hour)
	for hour := max(history.HourOf(q.Since), kept); history.StartOf(hour).Before(q.Until); hour++ {
		for _, name := range names {
			list = append(list, slot{name, hour})
		}
	}
	points := make([]history.Point, (q.Until.Sub(q.Since)+q.Step-1)/q.Step)
	err = e.readHistory(ctx, func() { clear(points) }, list, func(s slot, one counted) {
		begin := history.StartOf(s.hour)
		if q.Step >= time.Hour {
			one.Sum(&points[begin.Sub(q.Since)/q.Step], 0, history.Minutes)
			return
		}
		for m := 0; m < history.Minutes; m += int(q.Step / time.Minute) {
			if at := begin.Add(time.Duration(m) * time.Minute); !at.Before(q.Since) && at.Before(q.Until) {
				one.Sum(&points[at.Sub(q.Since)/q.Step], m, m+int(q.Step/time.Minute))
			}
		}
	})
	if err != nil {
		return nil, fmt.Errorf("queue history: %w", err)
	}
	out := make([]gq.HistoryPoint, len(points))
	for i := range points {
		out[i].Time = q.Since.Add(time.Duration(i) * q.Step)
		points[i].Fill(&out[i])
	}
	return out, nil
}

// completeHistoryQuery checks a query, fills in its defaults, and extends it to whole steps that
// are kept.
func completeHistoryQuery(q gq.HistoryQuery, now time.Time) (gq.HistoryQuery, error) {
	var faults []gq.Fault
	add := func(field, format string, args ...any) {
		faults = append(faults, gq.Fault{Field: field, Problem: fmt.Sprintf(format, args...)})
	}
	if len(q.Queues) > gq.MaxHistoryQueues {
		add("queues", "has %d names; at most %d", len(q.Queues), gq.MaxHistoryQueues)
	}
	for i, name := range q.Queues {
		if machine.CheckQueueName(name) != nil {
			add("queues", "%.80q is not the name of a queue", name)
		} else if slices.Contains(q.Queues[:i], name) {
			add("queues", "%.80q is there twice", name)
		}
	}
	if q.Step == 0 {
		q.Step = time.Minute
	}
	if q.Step < time.Minute || q.Step > gq.HistoryHours || q.Step%time.Minute != 0 || q.Step < time.Hour && time.Hour%q.Step != 0 || q.Step > time.Hour && q.Step%time.Hour != 0 {
		add("step", "%v is neither a whole part of an hour in minutes, such as 1m, 5m or 15m, nor a whole number of hours", q.Step)
	}
	last := now.Add(time.Nanosecond) // what happened just now included
	if q.Until.IsZero() || q.Until.After(last) {
		q.Until = last
	}
	if !q.Since.IsZero() && !q.Since.Before(q.Until) {
		add("since", "%s is not before %s", q.Since.UTC().Format(time.RFC3339), q.Until.UTC().Format(time.RFC3339))
	}
	if len(faults) > 0 {
		return q, &gq.InvalidError{Faults: faults}
	}
	if q.Since.IsZero() {
		q.Since = q.Until.Add(-60*q.Step + 1)
	}
	kept := gq.HistoryHours
	if q.Step < time.Hour {
		kept = gq.HistoryMinutes
	}
	if first := now.Add(-kept); q.Since.Before(first) {
		q.Since = first
	}
	step := int64(q.Step / time.Second)
	q.Since = time.Unix(q.Since.Unix()/step*step, 0).UTC()
	until := q.Until.Unix() / step * step
	if time.Unix(until, 0).Before(q.Until) {
		until += step
	}
	q.Until = time.Unix(until, 0).UTC()
	if !q.Since.Before(q.Until) { // all of it is too old, or to come
		q.Until = q.Since
	}
	if n := q.Until.Sub(q.Since) / q.Step; n > gq.MaxHistoryPoints {
		add("step", "%d points of %v are more than %d; choose a longer step or a shorter time", n, q.Step, gq.MaxHistoryPoints)
		return q, &gq.InvalidError{Faults: faults}
	}
	return q, nil
}

// historyTries is how often a read starts over because another engine has stored counts.
const historyTries = 10

// counted is an hour of a queue.
type counted interface {
	Sum(to *history.Point, fromMinute, endMinute int)
}

// whole is an hour without its minutes.
type whole struct{ *history.Point }

func (w whole) Sum(to *history.Point, from, end int) {
	if w.Point != nil && from <= 0 && end >= history.Minutes {
		to.Merge(w.Point)
	}
}

// readHistory calls f with what is stored of slots and with what was counted since. It calls
// begin first, and again if it starts over.
func (e *Engine) readHistory(ctx context.Context, begin func(), list []slot, f func(slot, counted)) error {
	for range historyTries {
		begin()
		version, same, err := e.readHistoryOnce(ctx, list, f)
		if err != nil || same {
			return err
		}
		e.history.stale(ctx, version)
	}
	return gq.ErrConflict.Errorf("the history changes too fast")
}

// readHistoryOnce returns false if another engine has replaced the version that it went by.
func (e *Engine) readHistoryOnce(ctx context.Context, list []slot, f func(slot, counted)) (version uint64, same bool, err error) {
	var collapsed int64
	err = e.withTail(ctx, func(tail map[slot]*history.Hour) {
		version, collapsed = e.history.cursor.Version, e.history.at.collapsed
		for _, s := range list {
			if one := tail[s]; one != nil {
				f(s, one)
			}
		}
	})
	if err != nil {
		return 0, false, err
	}
	cursor := store.DocName{Kind: historyKind, Name: cursorName}
	hours, days := map[store.DocName]slot{}, map[store.DocName][]slot{}
	var names []store.DocName
	for _, s := range list {
		if s.hour >= collapsed {
			name := hourDoc(s)
			hours[name], names = s, append(names, name)
		}
		if s.hour <= collapsed { // that hour may be partly in its day
			name := dayDoc(s)
			if days[name] == nil {
				names = append(names, name)
			}
			days[name] = append(days[name], s)
		}
	}
	for len(names) > 0 {
		n := min(len(names), store.MaxPage-1)
		docs, err := e.store.FindDocs(ctx, append([]store.DocName{cursor}, names[:n]...))
		if err != nil {
			return 0, false, err
		}
		names = names[n:]
		now := uint64(0)
		for _, d := range docs {
			name := store.DocName{Kind: d.Kind, Name: d.Name}
			if name == cursor {
				now = d.Version
				continue
			}
			if err := decodeHistory(d.Data, hours[name], days[name], f); err != nil {
				return 0, false, fmt.Errorf("document %s/%s: %w", d.Kind, d.Name, err)
			}
		}
		if now != version {
			return version, false, nil
		}
	}
	return version, true, nil
}

// decodeHistory calls f with an encoded hour, or with several hours of an encoded day.
func decodeHistory(data []byte, one slot, several []slot, f func(slot, counted)) error {
	if several == nil {
		var hour history.Hour
		if err := hour.Decode(data); err != nil {
			return err
		}
		f(one, &hour)
		return nil
	}
	var day history.Day
	if err := day.Decode(data); err != nil {
		return err
	}
	for _, s := range several {
		f(s, whole{day.Hour(s.hour)})
	}
	return nil
}

// withTail counts all events and calls f with what is not stored yet, which f must not keep.
func (e *Engine) withTail(ctx context.Context, f func(map[slot]*history.Hour)) error {
	h := e.history
	leave, err := h.enter(ctx)
	if err != nil {
		return err
	}
	defer leave()
	for range historyTries {
		if err = h.catchUp(ctx); err == nil {
			err = h.join(ctx)
		}
		if !errors.Is(err, gq.ErrConflict) { // otherwise another engine was faster
			break
		}
	}
	if err == nil {
		f(h.tail)
	}
	return err
}

// activityMinutes is the time that QueueActivity covers, the current minute included.
const activityMinutes = 60

// activityFresh is how long an answer for all queues is used again.
const activityFresh = 5 * time.Second

// QueueActivity returns what happened in the last 60 minutes in each of the named queues, or in
// each queue where anything did. Without names it may be some seconds old.
func (e *Engine) QueueActivity(ctx context.Context, queues ...string) ([]gq.QueueActivity, error) {
	var list []gq.QueueActivity
	var err error
	if len(queues) > 0 {
		list, err = e.activityOf(ctx, queues)
	} else {
		list, err = e.history.recent.get(ctx, e)
	}
	if err != nil {
		return nil, fmt.Errorf("queue activity: %w", err)
	}
	return list, nil
}

func (c *activityCache) get(ctx context.Context, e *Engine) ([]gq.QueueActivity, error) {
	fresh := func() []gq.QueueActivity {
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.list != nil && time.Since(c.at) < activityFresh {
			return slices.Clone(c.list)
		}
		return nil
	}
	if list := fresh(); list != nil {
		return list, nil
	}
	list, err := c.reads.do(ctx, func(ctx context.Context) ([]gq.QueueActivity, error) {
		if list := fresh(); list != nil {
			return list, nil
		}
		at := time.Now()
		list, err := e.activity(ctx)
		if err == nil {
			c.mu.Lock()
			c.list, c.at = append([]gq.QueueActivity{}, list...), at
			c.mu.Unlock()
		}
		return list, err
	})
	return slices.Clone(list), err
}

// window is the last hour: the hours that it touches, and its first minute.
func (e *Engine) window(ctx context.Context) (from time.Time, hours []int64, err error) {
	now, err := e.store.Now(ctx)
	if err != nil {
		return from, nil, err
	}
	from = now.Truncate(time.Minute).Add(-(activityMinutes - 1) * time.Minute).UTC()
	for hour := history.HourOf(from); hour <= history.HourOf(now); hour++ {
		hours = append(hours, hour)
	}
	return from, hours, nil
}

// sums adds up the window by queue.
type sums struct {
	from time.Time
	by   map[string]*history.Point
}

func (s *sums) add(at slot, one counted) {
	if s.by[at.queue] == nil {
		s.by[at.queue] = new(history.Point)
	}
	begin := history.StartOf(at.hour)
	one.Sum(s.by[at.queue], int(max(s.from.Sub(begin), 0)/time.Minute), history.Minutes)
}

func (s *sums) list(all bool) []gq.QueueActivity {
	out := make([]gq.QueueActivity, 0, len(s.by))
	for queue, p := range s.by {
		if all || !p.Empty() {
			a := gq.QueueActivity{Queue: queue}
			a.Time = s.from
			p.Fill(&a.HistoryPoint)
			out = append(out, a)
		}
	}
	slices.SortFunc(out, func(a, b gq.QueueActivity) int { return strings.Compare(a.Queue, b.Queue) })
	return out
}

func (e *Engine) activityOf(ctx context.Context, queues []string) ([]gq.QueueActivity, error) {
	if len(queues) > gq.MaxQueues {
		return nil, &gq.InvalidError{Faults: []gq.Fault{{Field: "queues", Problem: fmt.Sprintf("has %d names; at most %d", len(queues), gq.MaxQueues)}}}
	}
	for _, name := range queues {
		if err := machine.CheckQueueName(name); err != nil {
			return nil, err
		}
	}
	from, hours, err := e.window(ctx)
	if err != nil {
		return nil, err
	}
	var list []slot
	for _, hour := range hours {
		for _, name := range queues {
			list = append(list, slot{name, hour})
		}
	}
	slices.SortFunc(list, compareSlots)
	list = slices.Compact(list)
	total := sums{from: from}
	err = e.readHistory(ctx, func() {
		total.by = make(map[string]*history.Point, len(queues))
		for _, name := range queues {
			total.by[name] = new(history.Point)
		}
	}, list, total.add)
	if err != nil {
		return nil, err
	}
	return total.list(true), nil
}

// activity reads all queues, page by page, and starts over if the history was stored meanwhile.
func (e *Engine) activity(ctx context.Context) ([]gq.QueueActivity, error) {
	from, hours, err := e.window(ctx)
	if err != nil {
		return nil, err
	}
	for range historyTries {
		total := sums{from: from, by: map[string]*history.Point{}}
		version := uint64(0)
		err := e.withTail(ctx, func(tail map[slot]*history.Hour) {
			version = e.history.cursor.Version
			for s, one := range tail {
				if s.queue != "" && slices.Contains(hours, s.hour) {
					total.add(s, one)
				}
			}
		})
		if err != nil {
			return nil, err
		}
		for _, hour := range hours {
			kind := hourDoc(slot{"q", hour}).Kind
			for after := ""; ; {
				docs, err := e.store.Docs(ctx, kind, after, store.MaxPage)
				if err != nil {
					return nil, err
				}
				for _, d := range docs {
					var one history.Hour
					if err := one.Decode(d.Data); err != nil {
						return nil, fmt.Errorf("document %s/%s: %w", d.Kind, d.Name, err)
					}
					total.add(slot{d.Name, hour}, &one)
				}
				if len(docs) < store.MaxPage {
					break
				}
				after = docs[len(docs)-1].Name
			}
		}
		docs, err := e.store.FindDocs(ctx, []store.DocName{{Kind: historyKind, Name: cursorName}})
		if err != nil {
			return nil, err
		}
		if len(docs) == 0 && version == 0 || len(docs) == 1 && docs[0].Version == version {
			return total.list(false), nil
		}
		e.history.stale(ctx, version)
	}
	return nil, gq.ErrConflict.Errorf("the history changes too fast")
}
