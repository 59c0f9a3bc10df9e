package main

import (
	"sync"
	"time"

	"github.com/gopherqueue/gq"
)

// rateWindow is the number of seconds over which gq top measures rates.
const rateWindow = 10

// pastEvents is the number of events from before its start in which gq top looks for failures.
const pastEvents = 1000

// maxFailures is the number of failures that gq top remembers.
const maxFailures = 200

// rates counts the events of the last seconds by queue. Its methods are safe for concurrent
// use.
type rates struct {
	now func() time.Time

	mu       sync.Mutex
	begun    time.Time // the first event counts from here; zero if nothing is followed
	failed   error     // why events are not followed
	queues   map[string]*queueRates
	failures []gq.Event // the newest last
}

// queueRates has a counter for each of the last seconds. Counters of other seconds are stale.
type queueRates struct {
	seconds  [rateWindow + 1]int64 // the Unix time that the counters are for
	counters [rateWindow + 1]perSecond
}

// perSecond counts events, or has their rate a second.
type perSecond struct{ submitted, completed, failed, retried float64 }

func newRates(now func() time.Time) *rates {
	return &rates{now: now, queues: make(map[string]*queueRates)}
}

// begin starts to count, or with an error says that it ended.
func (r *rates) begin(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.begun, r.failed = r.now(), err
}

// note counts events. They count for the second in which they arrive, so that the clocks of
// servers do not matter.
func (r *rates) note(events []gq.Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	second := r.now().Unix()
	for i := range events {
		e := &events[i]
		q := r.queues[e.Queue]
		if q == nil {
			q = new(queueRates)
			r.queues[e.Queue] = q
		}
		at := second % int64(len(q.seconds))
		if q.seconds[at] != second {
			q.seconds[at], q.counters[at] = second, perSecond{}
		}
		switch c := &q.counters[at]; e.Type {
		case gq.EventSubmitted:
			c.submitted++
		case gq.EventCompleted:
			c.completed++
		case gq.EventRetrying:
			c.retried++
			r.remember(e)
		case gq.EventFailed, gq.EventDeadLettered:
			c.failed++
			r.remember(e)
		}
	}
}

// past remembers failures from before it began to count.
func (r *rates) past(events []gq.Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := range events {
		switch events[i].Type {
		case gq.EventRetrying, gq.EventFailed, gq.EventDeadLettered:
			r.remember(&events[i])
		}
	}
}

func (r *rates) remember(e *gq.Event) {
	if len(r.failures) >= 2*maxFailures {
		r.failures = append([]gq.Event(nil), r.failures[maxFailures:]...)
	}
	r.failures = append(r.failures, *e)
}

// of returns the rates of a queue over the last full seconds. ok is false while nothing is
// known.
func (r *rates) of(queue string) (sum perSecond, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.begun.IsZero() || r.failed != nil {
		return sum, false
	}
	now := r.now()
	over := min(now.Sub(r.begun).Seconds(), rateWindow)
	if over < 1 {
		over = 1
	}
	q := r.queues[queue]
	if q == nil {
		return sum, true
	}
	for i, second := range q.seconds {
		if age := now.Unix() - second; age >= 0 && age < rateWindow {
			c := &q.counters[i]
			sum.submitted += c.submitted / over
			sum.completed += c.completed / over
			sum.failed += c.failed / over
			sum.retried += c.retried / over
		}
	}
	return sum, true
}

// recent returns the failures that it remembers, the newest first.
func (r *rates) recent() []gq.Event {
	r.mu.Lock()
	defer r.mu.Unlock()
	from := max(len(r.failures)-maxFailures, 0)
	out := make([]gq.Event, 0, len(r.failures)-from)
	for i := len(r.failures) - 1; i >= from; i-- {
		out = append(out, r.failures[i])
	}
	return out
}

// problem returns why events are not followed.
func (r *rates) problem() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.failed
}
