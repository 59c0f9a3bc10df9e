package feed

import (
	"slices"
	"sort"
	"sync"

	"github.com/gopherqueue/gq"
	pb "github.com/gopherqueue/gq/api/gopherqueue/v1"
	"github.com/gopherqueue/gq/internal/wire"
)

// Filter selects events. The zero value is all of them.
type Filter struct {
	Queues []string
	Types  []gq.EventType
	Job    gq.JobID
	May    func(queue string) bool // nil is all
}

// Allows reports whether an event passes.
func (f *Filter) Allows(e *gq.Event) bool {
	return f.allowsType(e.Type) && (f.Job.IsZero() || f.Job == e.Job) && f.allowsQueue(e.Queue)
}

func (f *Filter) allowsType(t gq.EventType) bool {
	return len(f.Types) == 0 || slices.Contains(f.Types, t)
}

func (f *Filter) allowsQueue(name string) bool {
	return (len(f.Queues) == 0 || slices.Contains(f.Queues, name)) && (f.May == nil || f.May(name))
}

// page is events that follow each other, never none. All subscribers share it, and
// nobody changes it.
type page struct {
	events []gq.Event
	queues []string // those that it has, or nil for more than fewQueues

	// Made by the first who wants them.
	frames   func() wire.Frames
	messages func() []*pb.Event
}

// fewQueues is up to how many queues of a page a filter looks at instead of at
// each event.
const fewQueues = 8

func newPage(events []gq.Event) *page {
	p := &page{
		events:   events,
		frames:   sync.OnceValue(func() wire.Frames { return wire.FramesOf(events) }),
		messages: sync.OnceValue(func() []*pb.Event { return wire.ProtoEvents(events) }),
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

// allowed reports whether a filter lets some queues of the page through, as far as
// that can be told without looking at each event, and whether all.
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

// pass is what comes after a sequence number and a filter lets through. room is the
// subscriber's, for the events that were picked.
func (p *page) pass(f *Filter, after uint64, room *[]int32) Batch {
	b := Batch{page: p}
	if p.events[0].Seq <= after {
		b.from = sort.Search(len(p.events), func(i int) bool { return p.events[i].Seq > after })
	}
	some, every := p.allowed(f)
	switch {
	case !some:
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

// Batch is events in order. What it returns is shared with other subscribers:
// nobody may change it. It is good until the call it was given to returns.
type Batch struct {
	page   *page
	from   int     // all events from here on,
	picked []int32 // or these
}

// Len is how many there are.
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

// Picked reports whether a filter left some out, so that there is nothing to share.
func (b Batch) Picked() bool { return b.picked != nil }

func (b Batch) at(i int) int {
	if b.picked != nil {
		return int(b.picked[i])
	}
	return b.from + i
}

// Events is all of them. They are the page's own where all follow each other.
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

// Messages is all of them as they are sent over gRPC.
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

// JSON is one of them.
func (b Batch) JSON(i int) []byte {
	f := b.page.frames()
	return f.JSON(b.at(i))
}

// Frames is all of them as server-sent events, each with its sequence number as
// its id. They are the page's own where all follow each other, or are copied to
// the room that is given.
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
