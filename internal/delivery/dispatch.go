package delivery

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/internal/heap"
	"github.com/gopherqueue/gq/internal/wake"
	"github.com/gopherqueue/gq/store"
	"github.com/gopherqueue/gq/webhook"
)

// entry is an outstanding delivery known to this process.
type entry struct {
	name  string
	host  string
	at    time.Time     // when to process it next
	taken uint64        // document version under which this process owns it; 0 if it does not
	as    pace          // pace of its host when the attempt began
	took  time.Duration // duration of the last request; 0 if none

	inWaiting int // index in its host's heap, -1 if not in it
}

// host is a destination of deliveries: a name or address, and a port.
type host struct {
	pace        pace
	waiting     heap.Heap[*entry] // ordered by entry.at
	active      int               // requests in progress
	outstanding int               // waiting plus active
}

func newHost() *host {
	return &host{waiting: heap.New(func(a, b *entry) bool { return a.at.Before(b.at) }, func(e *entry, at int) { e.inWaiting = at })}
}

// pace is how fast a host responds. All slow hosts together get a fixed share of the
// concurrent requests, so that any number of them leaves room for the others.
type pace uint8

const (
	unknown pace = iota // no recent request
	quick               // the last request ended quickly, whatever the response
	slow                // the last request did not
	paces
)

// maxIdle is how many quick hosts without outstanding deliveries are remembered.
const maxIdle = 1000

// free reports whether another request may go to a host.
func (h *Hooks) free(at *host) bool {
	all := h.options.Concurrency
	active := h.active[unknown] + h.active[quick] + h.active[slow]
	if active >= all {
		return false
	}
	if at.pace == quick {
		return at.active < perHost
	}
	// One at a time, and never all: a quarter of the requests is reserved for quick
	// hosts.
	return at.active == 0 && h.active[unknown]+h.active[slow] < max(1, all*3/4) &&
		(at.pace == unknown || h.active[slow] < max(1, all/4))
}

// add adds an outstanding delivery once. version is its document's, or 0 if a scan found
// it.
func (h *Hooks) add(r *record, version uint64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	name := nameOf(r.Seq)
	if e := h.known[name]; e != nil {
		h.own(e, r, version)
		return
	}
	e := &entry{name: name, host: hostOf(r.URL), at: r.NextAt}
	switch {
	case version != 0 && r.Attempts == 1:
		e.taken = version // created by this process
	case !h.options.Exclusive && r.Until.After(e.at):
		e.at = r.Until
	}
	h.known[name] = e
	at := h.hosts[e.host]
	switch {
	case at == nil:
		at = newHost()
		h.hosts[e.host] = at
	case at.outstanding == 0:
		h.idle--
	}
	at.outstanding++
	at.waiting.Push(e)
	wake.Up(h.wake)
}

// own takes over a delivery that this process created but a scan found first. The scan
// assumed that another process owns it and would wait for that ownership to end.
func (h *Hooks) own(e *entry, r *record, version uint64) {
	if version == 0 || r.Attempts != 1 || e.taken != 0 || e.inWaiting < 0 {
		return
	}
	e.taken, e.at = version, r.NextAt
	h.hosts[e.host].waiting.Fix(e.inWaiting)
	wake.Up(h.wake)
}

// crowded reports whether n more deliveries would exceed a host's limit.
func (h *Hooks) crowded(name string, n int) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if at := h.hosts[name]; at != nil {
		n += at.outstanding
	}
	return n > h.options.MaxPerHost
}

// awaitRoom waits until n more deliveries fit within the total limit.
func (h *Hooks) awaitRoom(ctx context.Context, n int) bool {
	for {
		h.mu.Lock()
		fits := len(h.known) == 0 || len(h.known)+n <= h.options.MaxTotal
		h.mu.Unlock()
		if fits {
			return true
		}
		select {
		case <-h.room:
		case <-ctx.Done():
			return false
		}
	}
}

func (h *Hooks) count(f func(*Totals)) {
	h.mu.Lock()
	defer h.mu.Unlock()
	f(&h.totals)
}

// dispatch starts attempts when they are due.
func (h *Hooks) dispatch(ctx context.Context) error {
	timer := time.NewTimer(0)
	defer timer.Stop()
	done := make(chan struct{})
	running := 0
	defer func() {
		for ; running > 0; running-- {
			<-done
		}
	}()
	for {
		batch, next := h.pick(time.Now())
		for _, e := range batch {
			running++
			go func() {
				h.attempt(ctx, e)
				done <- struct{}{}
			}()
		}
		timer.Reset(next)
		select {
		case <-ctx.Done():
			return nil
		case <-h.wake:
		case <-timer.C:
		case <-done:
			running--
		}
	}
}

// pick removes the deliveries to send now, and returns when to look again.
func (h *Hooks) pick(now time.Time) (batch []*entry, next time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	next = time.Minute
	for _, at := range h.hosts { // map order is random, so every host gets its turn
		for at.waiting.Len() > 0 && h.free(at) {
			if wait := at.waiting.At(0).at.Sub(now); wait > 0 {
				next = min(next, wait)
				break
			}
			e := at.waiting.Remove(0)
			at.active++
			e.as, e.took = at.pace, 0
			h.active[e.as]++
			batch = append(batch, e)
		}
	}
	return batch, next
}

// attempt makes one attempt, then schedules the next one or forgets the delivery.
func (h *Hooks) attempt(ctx context.Context, e *entry) {
	again, ok := h.deliver(ctx, e)
	h.mu.Lock()
	defer h.mu.Unlock()
	at := h.hosts[e.host]
	at.active--
	h.active[e.as]--
	switch {
	case e.took > h.options.Within/2:
		at.pace = slow
	case e.took > 0:
		at.pace = quick
	}
	if ok {
		e.at = again
		at.waiting.Push(e)
		return
	}
	delete(h.known, e.name)
	if at.outstanding--; at.outstanding == 0 {
		if at.pace == quick && h.idle < maxIdle {
			h.idle++
		} else {
			delete(h.hosts, e.host)
		}
	}
	wake.Up(h.room)
}

// deliver makes one attempt. ok means that another one is due at again.
func (h *Hooks) deliver(ctx context.Context, e *entry) (again time.Time, ok bool) {
	doc, err := h.store.Doc(ctx, kindDue, e.name)
	if errors.Is(err, gq.ErrNotFound) {
		return time.Time{}, false // another process has finished it
	}
	var r *record
	if err == nil {
		r, err = readRecord(&doc)
	}
	if err != nil {
		return h.postpone(ctx, "read a delivery", err)
	}
	now := time.Now().UTC()
	if e.taken != doc.Version || now.Add(h.options.Within).After(r.Until) {
		switch {
		case e.taken != doc.Version && r.NextAt.After(now):
			return r.NextAt, true
		case e.taken != doc.Version && r.Until.After(now) && !h.options.Exclusive:
			return r.Until, true
		}
		if e.taken != doc.Version {
			r.Attempts++
		}
		r.Until = now.Add(takenFor)
		if doc, err = h.write(ctx, r, doc.Version); err != nil {
			return h.postpone(ctx, "take a delivery", err)
		}
	}
	e.taken = 0
	began := time.Now()
	v := h.sender.send(ctx, r.URL, h.header(r, now), r.Body)
	e.took = max(1, time.Since(began))
	if ctx.Err() != nil {
		return now, true // interrupted; the document still says that an attempt is in progress
	}
	return h.finish(ctx, r, doc.Version, v)
}

// postpone delays a delivery after an error that is not the receiver's.
func (h *Hooks) postpone(ctx context.Context, what string, err error) (time.Time, bool) {
	if ctx.Err() == nil && !errors.Is(err, gq.ErrConflict) {
		h.options.Log.Warn(what, "event", "webhook_error", "error", err)
	}
	return time.Now().Add(time.Second), true
}

func (h *Hooks) write(ctx context.Context, r *record, version uint64) (store.Doc, error) {
	doc, err := r.doc(kindDue, version)
	if err != nil {
		return doc, err
	}
	versions, err := h.store.PutDocs(ctx, []store.Doc{doc})
	if err != nil {
		return doc, err
	}
	doc.Version = versions[0]
	return doc, nil
}

func (h *Hooks) header(r *record, now time.Time) http.Header {
	header := http.Header{
		"Content-Type":          {"application/json"},
		"User-Agent":            {userAgent},
		webhook.HeaderID:        {r.ID},
		webhook.HeaderTimestamp: {strconv.FormatInt(now.Unix(), 10)},
		webhook.HeaderSignature: {h.secret.Sign(r.ID, now, r.Body)},
	}
	if r.TraceParent != "" {
		header.Set(gq.AttributeTraceParent, r.TraceParent)
	}
	return header
}

// finish stores the outcome of an attempt.
func (h *Hooks) finish(ctx context.Context, r *record, version uint64, v verdict) (again time.Time, ok bool) {
	now := time.Now().UTC()
	r.LastAt, r.Status, r.Reason, r.Until = now, v.status, v.reason, time.Time{}
	log := h.options.Log.With("event", "webhook", "delivery", r.ID, "job_id", r.Job.String(), "attempt", r.Attempts, "status", v.status)
	switch {
	case v.delivered():
		r.State, r.NextAt = Delivered, time.Time{}
		log.Debug("webhook delivered")
		h.count(func(t *Totals) { t.Delivered++ })
		return h.move(ctx, r, version, kindDone)
	case v.final || r.Attempts >= h.options.Attempts:
		r.State, r.NextAt = Dead, time.Time{}
		log.Warn("webhook given up", "reason", v.reason)
		h.count(func(t *Totals) { t.Failed++; t.Dead++ })
		return h.move(ctx, r, version, kindDead)
	}
	r.NextAt = now.Add(h.options.Backoff(r.Attempts, jitter()))
	log.Info("webhook failed", "reason", v.reason, "next_at", r.NextAt)
	h.count(func(t *Totals) { t.Failed++ })
	if _, err := h.write(ctx, r, version); err != nil {
		return h.postpone(ctx, "write a delivery", err)
	}
	return r.NextAt, true
}

// move ends a delivery, which is then no longer outstanding.
func (h *Hooks) move(ctx context.Context, r *record, version uint64, kind string) (time.Time, bool) {
	if kind == kindDone {
		r.Body = []byte("{}") // never sent again
	}
	gone := store.Doc{Kind: kindDue, Name: nameOf(r.Seq), Version: version}
	doc, err := r.doc(kind, 0)
	if err == nil {
		_, err = h.store.PutDocs(ctx, []store.Doc{gone, doc})
	}
	if err != nil {
		return h.postpone(ctx, "finish a delivery", err)
	}
	return time.Time{}, false
}
