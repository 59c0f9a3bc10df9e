package feed

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/internal/testing/leaktest"
	"github.com/gopherqueue/gq/internal/wire"
	"github.com/gopherqueue/gq/machine"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// log is an in-memory event log.
type log struct {
	mu     sync.Mutex
	events []gq.Event
	gone   uint64 // events up to this one are no longer kept
	grown  chan struct{}
	reads  int
}

func newLog() *log { return &log{grown: make(chan struct{})} }

func (l *log) write(n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for range n {
		seq := uint64(len(l.events)) + 1
		l.events = append(l.events, gq.Event{Seq: seq, Queue: fmt.Sprint("q", seq%3), Type: gq.EventScheduled})
	}
	close(l.grown)
	l.grown = make(chan struct{})
}

func (l *log) Events(_ context.Context, after uint64, limit int) ([]gq.Event, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.reads++
	if after < l.gone {
		return nil, gq.ErrGone
	}
	from := min(after, uint64(len(l.events)))
	return l.events[from:min(from+uint64(limit), uint64(len(l.events)))], nil
}

func (l *log) LastEvent(context.Context) (uint64, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return uint64(len(l.events)), nil
}

func (l *log) Follow(ctx context.Context, after uint64, f func([]gq.Event) error) error {
	for ctx.Err() == nil {
		l.mu.Lock()
		grown := l.grown
		l.mu.Unlock()
		events, _ := l.Events(ctx, after, 100)
		if len(events) > 0 {
			after = events[len(events)-1].Seq
			if err := f(events); err != nil {
				return err
			}
			continue
		}
		select {
		case <-grown:
		case <-ctx.Done():
		}
	}
	return nil
}

// TestEverySubscriberGetsEverything starts subscribers at random positions while the log
// grows: each gets all later events once, in order and encoded correctly.
func TestEverySubscriberGetsEverything(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLog()
		l.write(3 * recent)
		h := New(l)
		ctx, stop := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		wg.Go(func() { _ = h.Run(ctx) })
		synctest.Wait()
		const total = 5 * recent
		for i := range 16 {
			after := uint64(rand.N(4 * recent))
			if i == 0 {
				after = 0
			}
			filter := Filter{}
			if i%2 == 1 {
				filter.Queues = []string{"q1"}
			}
			wg.Go(func() {
				next := after + 1
				_, err := h.Subscribe(ctx, after, filter, 0, func(b Batch, _ uint64) error {
					for i, e := range b.Events() {
						for len(filter.Queues) > 0 && next%3 != 1 {
							next++
						}
						if e.Seq != next || !bytes.HasPrefix(b.JSON(i), strconv.AppendUint([]byte(`{"seq":`), e.Seq, 10)) {
							return fmt.Errorf("got event %d (%s), want %d", e.Seq, b.JSON(i), next)
						}
						next++
					}
					return nil
				})
				if err != nil {
					t.Error(err)
				}
				if next+2 < total {
					t.Errorf("the last event was %d of %d", next-1, total)
				}
			})
		}
		for range 2 * recent / 512 {
			l.write(512)
			synctest.Wait()
		}
		stop()
		wg.Wait()
	})
}

// TestSlowSubscriberDelaysNobody blocks one subscriber forever; another still gets
// everything, and the first can resume where it stopped.
func TestSlowSubscriberDelaysNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLog()
		h := New(l)
		ctx, stop := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		wg.Go(func() { _ = h.Run(ctx) })
		blocked, errSlow := make(chan struct{}), errors.New("too slow")
		var resume uint64
		wg.Go(func() {
			var err error
			resume, err = h.Subscribe(ctx, 0, Filter{}, 0, func(b Batch, _ uint64) error {
				if b.Events()[0].Seq == 1 {
					return nil
				}
				<-blocked
				return errSlow
			})
			if !errors.Is(err, errSlow) {
				t.Errorf("the slow subscription ended with %v", err)
			}
		})
		got := 0
		wg.Go(func() {
			_, _ = h.Subscribe(ctx, 0, Filter{}, 0, func(b Batch, _ uint64) error { got += b.Len(); return nil })
		})
		l.write(1)
		synctest.Wait()
		for range 100 {
			l.write(100)
			synctest.Wait()
		}
		if got != 10_001 {
			t.Errorf("the quick subscriber got %d events", got)
		}
		close(blocked)
		synctest.Wait()
		if resume != 1 {
			t.Errorf("the slow subscriber can resume after %d, want 1", resume)
		}
		stop()
		wg.Wait()
	})
}

func TestGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLog()
		l.write(recent)
		l.gone = 10
		h := New(l)
		ctx, stop := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		wg.Go(func() { _ = h.Run(ctx) })
		synctest.Wait()
		if _, err := h.Subscribe(ctx, 3, Filter{}, 0, func(Batch, uint64) error { return nil }); !errors.Is(err, gq.ErrGone) {
			t.Errorf("events that are gone: %v", err)
		}
		stop()
		wg.Wait()
		// A subscription ends with the hub.
		if after, err := h.Subscribe(t.Context(), recent, Filter{}, 0, nil); after != recent || err != nil {
			t.Errorf("subscription to a hub that ended: %d, %v", after, err)
		}
	})
}

// TestFromMemory checks that a subscriber at the head does not read the log.
func TestFromMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLog()
		h := New(l)
		ctx, stop := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		wg.Go(func() { _ = h.Run(ctx) })
		for range 10 {
			wg.Go(func() { _, _ = h.Subscribe(ctx, 0, Filter{}, 0, func(Batch, uint64) error { return nil }) })
		}
		synctest.Wait()
		l.mu.Lock()
		before := l.reads
		l.mu.Unlock()
		l.write(50)
		synctest.Wait()
		if n := l.reads - before; n > 2 { // those of the hub itself
			t.Errorf("one page of events was read %d times from the log", n)
		}
		stop()
		wg.Wait()
	})
}

// TestReadTogether starts subscribers at the same position far back: they share the reads
// of the log.
func TestReadTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLog()
		l.write(10 * pageSize)
		h := New(l)
		ctx, stop := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		wg.Go(func() { _ = h.Run(ctx) })
		synctest.Wait()
		before := l.reads
		const subscribers = 50
		var got atomic.Int64
		together := make(chan struct{})
		for range subscribers {
			wg.Go(func() {
				_, _ = h.Subscribe(ctx, 0, Filter{}, 0, func(b Batch, _ uint64) error {
					got.Add(int64(b.Len()))
					<-together
					return nil
				})
			})
		}
		synctest.Wait() // everyone has the first page
		close(together)
		synctest.Wait()
		if got.Load() != subscribers*10*pageSize {
			t.Errorf("%d subscribers got %d events", subscribers, got.Load())
		}
		l.mu.Lock()
		reads := l.reads - before
		l.mu.Unlock()
		if reads != 10 {
			t.Errorf("ten pages were read %d times for %d subscribers", reads, subscribers)
		}
		stop()
		wg.Wait()
	})
}

// talking is a source whose pages come from the test.
type talking struct {
	*log
	pages chan []gq.Event
}

func (l *talking) Follow(ctx context.Context, _ uint64, f func([]gq.Event) error) error {
	for {
		select {
		case events := <-l.pages:
			if err := f(events); err != nil {
				return err
			}
		case <-ctx.Done():
			return nil
		}
	}
}

// Progress reaches every subscriber at the head once, in its place, and has no number of its own.
func TestProgress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &talking{newLog(), make(chan []gq.Event)}
		l.write(3)
		h := New(l)
		var counted int
		h.Seen(func(events []gq.Event) { counted += len(events) })
		ctx, stop := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		wg.Go(func() { _ = h.Run(ctx) })
		synctest.Wait()
		said := func(seq uint64, note string) gq.Event {
			return gq.Event{Seq: seq, Queue: "q1", Type: gq.EventProgress, Note: note}
		}
		var got [3]string
		for i, after := range []uint64{0, 3, 3} {
			f := Filter{}
			if i == 2 {
				f.Types = []gq.EventType{gq.EventProgress}
			}
			wg.Go(func() {
				_, _ = h.Subscribe(ctx, after, f, 0, func(b Batch, upTo uint64) error {
					for _, e := range b.Events() {
						got[i] += fmt.Sprint(e.Seq, e.Note, " ")
						if upTo < e.Seq {
							t.Errorf("up to %d there is event %d", upTo, e.Seq)
						}
					}
					return nil
				})
			})
		}
		synctest.Wait()
		for _, page := range [][]gq.Event{
			{said(3, "a")}, {said(3, "b")}, {{Seq: 4, Queue: "q1"}, said(4, "c"), {Seq: 5, Queue: "q1"}}, {said(5, "d"), {Seq: 6, Queue: "q1"}},
		} {
			l.pages <- page
			synctest.Wait()
		}
		stop()
		wg.Wait()
		want := [3]string{"1 2 3 3a 3b 4 4c 5 5d 6 ", "3a 3b 4 4c 5 5d 6 ", "3a 3b 4c 5d "}
		if got != want || counted != 3 {
			t.Errorf("the subscribers got %q, want %q; %d events were counted, want 3", got, want, counted)
		}
	})
}

// A filter gives the same result per page as per event.
func TestPass(t *testing.T) {
	job := machine.NewJobID([16]byte{7})
	may := func(queue string) bool { return queue == "q1" || queue == "q12" }
	filters := []Filter{
		{},
		{Queues: []string{"q0"}},
		{Queues: []string{"q0", "q1", "q2"}},
		{Queues: []string{"other"}},
		{May: may},
		{Queues: []string{"q0", "q1"}, May: may},
		{Types: []gq.EventType{gq.EventStarted}},
		{Job: job},
		{Job: job, Queues: []string{"q1"}},
	}
	for _, queues := range []int{1, 3, fewQueues, fewQueues + 1, 20} {
		events := make([]gq.Event, 60)
		for i := range events {
			events[i] = gq.Event{Seq: uint64(i) + 1, Queue: fmt.Sprint("q", i%queues), Type: gq.EventScheduled + gq.EventType(i%4)}
			if i%7 == 0 {
				events[i].Job = job
			}
		}
		p := newPage(events)
		for k := range filters {
			for _, after := range []uint64{0, 1, 30, 59} {
				var want []gq.Event
				for i := range events {
					if events[i].Seq > after && filters[k].Allows(&events[i]) {
						want = append(want, events[i])
					}
				}
				var room []int32
				b := p.pass(&filters[k], after, false, &room)
				if k == 0 && b.Picked() {
					t.Errorf("%d queues after %d: without a filter events were picked", queues, after)
				}
				if got := b.Events(); !slices.Equal(got, want) || b.Len() != len(want) {
					t.Errorf("%d queues, filter %d after %d: %d events, want %d", queues, k, after, len(got), len(want))
				}
				messages := b.Messages()
				for i := range want {
					if len(messages) != len(want) || messages[i].GetSeq() != want[i].Seq {
						t.Errorf("%d queues, filter %d after %d: %d messages, want %d", queues, k, after, len(messages), len(want))
					}
				}
				var frames []byte
				for i := range want {
					f := wire.FramesOf(want[i : i+1])
					frames = append(frames, f.Between(0, 1)...)
				}
				if got := b.Frames(nil); string(got) != string(frames) {
					t.Errorf("%d queues, filter %d after %d: %s, want %s", queues, k, after, got, frames)
				}
			}
		}
	}
}

// A follower of the hub gets what a follower of its source would, and notices the end of
// the hub.
func TestFollow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLog()
		l.write(3 * pageSize)
		h := New(l)
		running, stop := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		wg.Go(func() { _ = h.Run(running) })
		const after = 7
		next := uint64(after + 1)
		follow := func(ctx context.Context) error {
			return h.Follow(ctx, next-1, func(events []gq.Event) error {
				for i := range events {
					if events[i].Seq != next {
						t.Errorf("event %d, want %d", events[i].Seq, next)
					}
					next++
				}
				return nil
			})
		}
		ctx, leave := context.WithCancel(t.Context())
		wg.Go(func() {
			if err := follow(ctx); err != nil {
				t.Errorf("a follower that left: %v", err)
			}
			if err := follow(t.Context()); !errors.Is(err, gq.ErrClosed) {
				t.Errorf("a follower of a hub that ended: %v", err)
			}
		})
		for range 20 {
			l.write(100)
			synctest.Wait()
		}
		leave()
		synctest.Wait()
		l.write(100)
		synctest.Wait()
		stop()
		wg.Wait()
		if next != 3*pageSize+2101 {
			t.Errorf("events up to %d were handed over", next-1)
		}
	})
}

// leave is a guard that admits everyone until ended.
type leave struct{ ended atomic.Bool }

func (*leave) Reader(context.Context, []string) (func(string) bool, error) { return nil, nil }

func (l *leave) StillValid(context.Context) error {
	if l.ended.Load() {
		return gq.ErrUnauthenticated
	}
	return nil
}

func (*leave) Subscribe(context.Context) (func(), error) { return func() {}, nil }

func (*leave) WhileValid(ctx context.Context) (context.Context, context.CancelFunc) {
	return ctx, func() {}
}

// A subscriber whose token is revoked gets no later events.
func TestNothingAfterTheEndOfAToken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, g := newLog(), &leave{}
		h := New(l)
		ctx, stop := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		wg.Go(func() { _ = h.Run(ctx) })
		s, err := NewFeed(h, g).Open(ctx, nil, Filter{})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		got := 0
		wg.Go(func() {
			if err := s.Run(ctx, 0, func(b Batch, _ uint64) error { got += b.Len(); return nil }); !errors.Is(err, gq.ErrUnauthenticated) {
				t.Errorf("it ended with %v", err)
			}
		})
		synctest.Wait()
		l.write(1)
		synctest.Wait()
		g.ended.Store(true)
		l.write(1)
		synctest.Wait()
		stop()
		wg.Wait()
		if got != 1 || s.After != 1 {
			t.Errorf("it was told of %d events and may resume after %d", got, s.After)
		}
	})
}
