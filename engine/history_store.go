package engine

import (
	"cmp"
	"context"
	"encoding/binary"
	"fmt"
	"strconv"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/internal/history"
	"github.com/gopherqueue/gq/store"
)

// historyCursor says what the stored history includes.
type historyCursor struct {
	seq       uint64 // last event
	collapsed int64  // hours before this one are stored by the day; this one may be partly
	parts     int    // documents with counts that are not in the hours yet
}

func (c historyCursor) encode() []byte {
	b := binary.AppendUvarint([]byte{1}, c.seq)
	b = binary.AppendVarint(b, c.collapsed)
	return binary.AppendUvarint(b, uint64(c.parts))
}

func decodeHistoryCursor(b []byte) (c historyCursor, err error) {
	corrupt := fmt.Errorf("cursor of the history: %w", gq.ErrCorrupt)
	if len(b) == 0 || b[0] != 1 {
		return c, corrupt
	}
	b = b[1:]
	seq, n := binary.Uvarint(b)
	if n <= 0 {
		return c, corrupt
	}
	b = b[n:]
	hour, n := binary.Varint(b)
	if n <= 0 {
		return c, corrupt
	}
	b = b[n:]
	parts, n := binary.Uvarint(b)
	if n <= 0 || n != len(b) || parts > store.MaxDocs {
		return c, corrupt
	}
	return historyCursor{seq, hour, int(parts)}, nil
}

func compareSlots(a, b slot) int {
	return cmp.Or(cmp.Compare(a.hour, b.hour), cmp.Compare(a.queue, b.queue))
}

// maxSlots is how many hours of queues one commit changes.
const maxSlots = store.MaxDocs / 2

// store adds the tail to the stored history and moves the cursor. If the tail has too many
// queues for one commit, the first commit stores the counts as they are, in parts, and each
// further one adds a part to its hours and removes it.
func (h *histories) store(ctx context.Context) error {
	if err := h.join(ctx); err != nil {
		return err
	}
	now := h.e.clock.now()
	today := history.HourOf(now)
	at := h.at
	at.seq = h.seq
	if h.cursor.Version == 0 {
		at.collapsed = today - int64(gq.HistoryMinutes/time.Hour)
	}
	for s := range h.tail {
		if s.hour < today-int64(gq.HistoryHours/time.Hour) {
			delete(h.tail, s)
		}
	}
	if len(h.tail) <= maxSlots {
		docs, err := h.added(ctx, h.tail, at.collapsed)
		if err == nil {
			err = h.put(ctx, docs, at)
		}
		if err != nil {
			return err
		}
		h.settle(now)
		return nil
	}
	var docs []store.Doc
	for list := sorted(h.tail); len(list) > 0; {
		n := min(len(list), maxSlots)
		docs = append(docs, store.Doc{Kind: historyPart, Name: strconv.FormatUint(h.seq, 10) + "." + strconv.Itoa(len(docs)), Data: encodePart(list[:n], h.tail)})
		list = list[n:]
	}
	at.parts = len(docs)
	if err := h.put(ctx, docs, at); err != nil {
		return err
	}
	h.settle(now)
	return h.join(ctx)
}

// settle empties the tail after it was stored.
func (h *histories) settle(now time.Time) {
	h.tail, h.events, h.lastOne, h.stored = map[slot]*history.Hour{}, 0, nil, now
}

// put writes documents and the cursor. After an error the tail has to be counted again.
func (h *histories) put(ctx context.Context, docs []store.Doc, at historyCursor) error {
	cursor := h.cursor
	cursor.Data = at.encode()
	versions, err := h.e.store.PutDocs(ctx, append(docs, cursor))
	if err != nil {
		h.reset()
		return err
	}
	cursor.Version = versions[len(docs)]
	h.cursor, h.at = cursor, at
	return nil
}

// added reads the documents of slots and adds counts to them. Hours before collapsed are in the
// documents of their days.
func (h *histories) added(ctx context.Context, counts map[slot]*history.Hour, collapsed int64) ([]store.Doc, error) {
	hours, days := map[store.DocName]slot{}, map[store.DocName][]slot{}
	names := make([]store.DocName, 0, len(counts))
	for _, s := range sorted(counts) {
		if s.hour >= collapsed {
			name := hourDoc(s)
			hours[name], names = s, append(names, name)
			continue
		}
		name := dayDoc(s)
		if days[name] == nil {
			names = append(names, name)
		}
		days[name] = append(days[name], s)
	}
	if len(names) == 0 {
		return nil, nil
	}
	found, err := h.e.store.FindDocs(ctx, names)
	if err != nil {
		return nil, err
	}
	stored := make(map[store.DocName]store.Doc, len(found))
	for _, d := range found {
		stored[store.DocName{Kind: d.Kind, Name: d.Name}] = d
	}
	docs := make([]store.Doc, 0, len(names)+1)
	for _, name := range names {
		d, known := stored[name]
		if !known {
			d = store.Doc{Kind: name.Kind, Name: name.Name}
		}
		d.Data, err = addTo(d.Data, counts, hours[name], days[name])
		if err != nil {
			return nil, fmt.Errorf("document %s/%s: %w", d.Kind, d.Name, err)
		}
		docs = append(docs, d)
	}
	return docs, nil
}

// addTo adds the counts of one slot to an encoded hour, or those of several to an encoded day.
func addTo(data []byte, counts map[slot]*history.Hour, one slot, several []slot) ([]byte, error) {
	var hour history.Hour
	var day history.Day
	switch {
	case data == nil:
	case several != nil:
		if err := day.Decode(data); err != nil {
			return nil, err
		}
	default:
		if err := hour.Decode(data); err != nil {
			return nil, err
		}
	}
	if several == nil {
		hour.Merge(counts[one])
		return hour.Append(nil), nil
	}
	for _, s := range several {
		day.Add(s.hour, counts[s])
	}
	return day.Append(nil), nil
}

// join adds the parts to their hours, one part in each commit. There rarely are any.
func (h *histories) join(ctx context.Context) error {
	for h.at.parts > 0 {
		parts, err := h.e.store.Docs(ctx, historyPart, "", 1)
		if err != nil {
			h.reset()
			return err
		}
		if len(parts) == 0 { // another engine has joined them
			h.reset()
			return gq.ErrConflict.Errorf("the history has changed")
		}
		counts, err := decodePart(parts[0].Data)
		if err != nil {
			return err
		}
		docs, err := h.added(ctx, counts, h.at.collapsed)
		if err != nil {
			h.reset()
			return err
		}
		gone := parts[0]
		gone.Data = nil
		at := h.at
		at.parts--
		if err := h.put(ctx, append(docs, gone), at); err != nil {
			return err
		}
	}
	return nil
}

// encodePart encodes slots of a tail, each with its queue, its hour and the length of its counts.
func encodePart(list []slot, tail map[slot]*history.Hour) []byte {
	b := []byte{1}
	var one []byte
	for _, s := range list {
		one = tail[s].Append(one[:0])
		b = binary.AppendUvarint(b, uint64(len(s.queue)))
		b = append(b, s.queue...)
		b = binary.AppendVarint(b, s.hour)
		b = binary.AppendUvarint(b, uint64(len(one)))
		b = append(b, one...)
	}
	return b
}

func decodePart(b []byte) (map[slot]*history.Hour, error) {
	corrupt := fmt.Errorf("part of the history: %w", gq.ErrCorrupt)
	if len(b) == 0 || b[0] != 1 {
		return nil, corrupt
	}
	counts := map[slot]*history.Hour{}
	take := func() ([]byte, bool) {
		size, n := binary.Uvarint(b)
		if n <= 0 || size > uint64(len(b)-n) {
			return nil, false
		}
		out := b[n : n+int(size)]
		b = b[n+int(size):]
		return out, true
	}
	for b = b[1:]; len(b) > 0; {
		queue, ok := take()
		if !ok {
			return nil, corrupt
		}
		hour, n := binary.Varint(b)
		if n <= 0 {
			return nil, corrupt
		}
		b = b[n:]
		data, ok := take()
		if !ok {
			return nil, corrupt
		}
		one := new(history.Hour)
		if err := one.Decode(data); err != nil {
			return nil, err
		}
		counts[slot{string(queue), hour}] = one
	}
	return counts, nil
}
