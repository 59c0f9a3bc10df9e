package dashboard

import (
	"errors"
	"slices"

	"github.com/gopherqueue/gq"
)

// Limits of the page of events.
const (
	shownEvents   = 100
	scannedEvents = 5000 // that are looked at for one page
	eventsAtOnce  = 1000
)

type eventsView struct {
	Events      []gq.Event // newest first
	Type, Queue string
	Types       []gq.EventType
	Queues      []string
	Scanned     int
	Faults      []gq.Fault
}

func (d *Dashboard) events(v *visit) error {
	q := v.r.URL.Query()
	view := eventsView{Type: clean(q.Get("type"), 64), Queue: clean(q.Get("queue"), gq.MaxNameBytes)}
	for t := gq.EventSubmitted; t.Valid(); t++ {
		view.Types = append(view.Types, t)
	}
	var want gq.EventType
	if view.Type != "" {
		if err := want.UnmarshalText([]byte(view.Type)); err != nil {
			v.status, view.Faults = 400, faultsOf(err)
		}
	}
	var err error
	if view.Queues, err = v.queueNames(); err != nil {
		return err
	}
	if len(view.Faults) == 0 {
		if err := v.readEvents(&view, want); err != nil {
			return err
		}
		v.watch = "all"
	}
	return v.show("events", "Events", view)
}

// readEvents reads the log backwards, a limited number of events.
func (v *visit) readEvents(view *eventsView, want gq.EventType) error {
	last, err := v.d.queue.LastEvent(v.ctx)
	if err != nil {
		return err
	}
	size := uint64(shownEvents) // most often the newest ones are enough
	for end := last; end > 0 && view.Scanned < scannedEvents && len(view.Events) < shownEvents; size = eventsAtOnce {
		after := end - min(end, size)
		events, err := v.d.queue.Events(v.ctx, after, int(end-after))
		if errors.Is(err, gq.ErrGone) {
			return nil // older ones are no longer kept
		}
		if err != nil {
			return err
		}
		slices.Reverse(events)
		for i := range events {
			e := &events[i]
			if e.Seq > end || want != 0 && e.Type != want || view.Queue != "" && e.Queue != view.Queue {
				continue
			}
			if view.Events = append(view.Events, *e); len(view.Events) == shownEvents {
				break
			}
		}
		view.Scanned += int(end - after)
		end = after
	}
	return nil
}
