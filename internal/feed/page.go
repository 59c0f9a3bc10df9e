package feed

import (
	"slices"
	"sort"
	"sync"

	"github.com/gopherqueue/gq"
	pb "github.com/gopherqueue/gq/api/gopherqueue/v1"
	"github.com/gopherqueue/gq/internal/pbconv"
	"github.com/gopherqueue/gq/internal/wire"
)

// Filter selects events. The zero value selects all.
type Filter struct {
	Queues []string
	Types  []gq.EventType
	Job    gq.JobID
	May    func(queue string) bool // nil is all

	// Content says of which queues' jobs the subscriber may see the content; nil is all. Redact
	// removes it from an event of others.
	Content func(queue string) bool
	Redact  func(gq.Event) gq.Event
}

// redacted returns a batch without content that the subscriber may not see. Subscribers who see
// everything share one encoding; this batch has its own.
func (f *Filter) redacted(b Batch) Batch {
	if f.Content == nil || b.Len() == 0 {
		return b
	}
	events := slices.Clone(b.Events())
	for i := range events {
		if !f.Content(events[i].Queue) {
			events[i] = f.Redact(events[i])
		}
	}
	return Batch{page: newPage(events)}
}

// Allows reports whether an event passes the filter.
func (f *Filter) Allows(e *gq.Event) bool {
	return f.allowsType(e.Type) && (f.Job.IsZero() || f.Job == e.Job) && f.allowsQueue(e.Queue)
}

func (f *Filter) allowsType(t gq.EventType) bool {
	return len(f.Types) == 0 || slices.Contains(f.Types, t)
}

func (f *Filter) allowsQueue(name string) bool {
	return (len(f.Queues) == 0 || slices.Contains(f.Queues, name)) && (f.May == nil || f.May(name))
}

// page is a non-empty run of consecutive events. All subscribers share it, and nobody may
// modify it.
type page struct {
	events []gq.Event
	queues []string // the queues in it, or nil if more than fewQueues

	number uint64 // among the pages of the hub; 0 for a page of the log
	begins uint64 // all events up to this one are before the page

	// Encoded on first use.
	frames   func() wire.Frames
	messages func() []*pb.Event
}

// fewQueues is the most queues in a page that a filter checks by queue instead of by
// event.
const fewQueues = 8

func newPage(events []gq.Event) *page {
	p := &page{
		events:   events,
		frames:   sync.OnceValue(func() wire.Frames { return wire.FramesOf(events) }),
		messages: sync.OnceValue(func() []*pb.Event { return pbconv.ProtoEvents(events) }),
	}
	last := ""
	for i := range events {
		if name := events[i].Queue; i == 0 || name != last {
			last = name
			if slices.Contains(p.queues, name) {
				continue
			}
			if len(p.queues) == fewQueues {
				p.queues = nil
				break
			}
			p.queues = append(p.queues, name)
		}
	}
	return p
}

func (p *page) last() uint64 { return p.events[len(p.events)-1].Seq }

// allowed reports whether the filter accepts some queues of the page, as far as that is
// known without checking each event, and whether it accepts all.
func (p *page) allowed(f *Filter) (some, every bool) {
	if len(f.Queues) == 0 && f.May == nil {
		return true, true
	}
	if p.queues == nil {
		return true, false
	}
	n := 0
	for _, name := range p.queues {
		if f.allowsQueue(name) {
			n++
		}
	}
	return n > 0, n == len(p.queues)
}

// pass returns the events after a sequence number that pass the filter. room is the
// subscriber's buffer for the indexes of selected events. Of a whole page, progress that has the
// sequence number passes too.
func (p *page) pass(f *Filter, after uint64, whole bool, room *[]int32) Batch {
	b := Batch{page: p}
	if p.events[0].Seq <= after {
		b.from = sort.Search(len(p.events), func(i int) bool { return p.events[i].Seq > after })
	}
	for whole && b.from > 0 && isProgress(p.events[b.from-1]) && p.events[b.from-1].Seq == after {
		b.from--
	}
	some, every := p.allowed(f)
	switch {
	case !some:
		return Batch{}
	case b.from == len(p.events):
		return Batch{}
	case every && len(f.Types) == 0 && f.Job.IsZero():
		return b
	}
	b.picked = (*room)[:0]
	for i := b.from; i < len(p.events); i++ {
		if f.Allows(&p.events[i]) {
			b.picked = append(b.picked, int32(i))
		}
	}
	*room = b.picked
	if len(b.picked) == 0 {
		return Batch{}
	}
	return b
}

// Batch is a list of events in order. What its methods return is shared with other
// subscribers and must not be modified. A batch is valid until the Send call returns.
type Batch struct {
	page   *page
	from   int     // all events from here on,
	picked []int32 // or, if not nil, these
}

// Len returns the number of events.
func (b Batch) Len() int {
	switch {
	case b.page == nil:
		return 0
	case b.picked != nil:
		return len(b.picked)
	default:
		return len(b.page.events) - b.from
	}
}

// Picked reports whether the filter selected single events, so nothing can be shared.
func (b Batch) Picked() bool { return b.picked != nil }

func (b Batch) at(i int) int {
	if b.picked != nil {
		return int(b.picked[i])
	}
	return b.from + i
}

// Events returns all events, without copying if they are consecutive.
func (b Batch) Events() []gq.Event {
	if b.Len() == 0 {
		return nil
	}
	if b.picked == nil {
		return b.page.events[b.from:]
	}
	events := make([]gq.Event, len(b.picked))
	for i, k := range b.picked {
		events[i] = b.page.events[k]
	}
	return events
}

// Messages returns all events as gRPC messages.
func (b Batch) Messages() []*pb.Event {
	if b.Len() == 0 {
		return nil
	}
	all := b.page.messages()
	if b.picked == nil {
		return all[b.from:]
	}
	messages := make([]*pb.Event, len(b.picked))
	for i, k := range b.picked {
		messages[i] = all[k]
	}
	return messages
}

// JSON returns one event as JSON.
func (b Batch) JSON(i int) []byte {
	f := b.page.frames()
	return f.JSON(b.at(i))
}

// Frames returns all events as server-sent events, with the sequence number as the id.
// They are the page's own bytes if the events are consecutive, and otherwise copied to
// room.
func (b Batch) Frames(room []byte) []byte {
	if b.Len() == 0 {
		return nil
	}
	f := b.page.frames()
	if b.picked == nil {
		return f.Between(b.from, len(b.page.events))
	}
	for _, i := range b.picked {
		room = append(room, f.Between(int(i), int(i)+1)...)
	}
	return room
}
