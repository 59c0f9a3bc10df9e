package delivery

import (
	"container/heap"
	"context"
	"errors"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/store"
	"github.com/gopherqueue/gq/webhook"
)

// entry is an outstanding delivery that this process knows of.
type entry struct {
	name  string
	host  string
	at    time.Time     // when to look at it
	taken uint64        // the version under which this process has it to itself; 0 for not
	as    pace          // how its host was known when the attempt began
	took  time.Duration // the last request; 0 for none
}

// host is where deliveries go: a name or address, and a port.
type host struct {
	pace        pace
	waiting     entries // those that are not under way, the next one first
	active      int     // requests under way
	outstanding int     // both
}

// pace is how a host takes requests. One that lets them hang is known by it and
// has few places, so that however many there are the others have theirs.
type pace uint8

const (
	unknown pace = iota // never asked, or long ago
	quick               // the last request ended soon, however
	slow                // it did not
	paces
)

// maxIdle is how many hosts are remembered to be quick to which nothing goes.
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
	// One at a time, and a place is always left for those who are quick.
	return at.active == 0 && h.active[unknown]+h.active[slow] < max(1, all*3/4) &&
		(at.pace == unknown || h.active[slow] < max(1, all/4))
}

type entries []*entry

func (e entries) Len() int           { return len(e) }
func (e entries) Less(i, j int) bool { return e[i].at.Before(e[j].at) }
func (e entries) Swap(i, j int)      { e[i], e[j] = e[j], e[i] }
func (e *entries) Push(x any)        { *e = append(*e, x.(*entry)) } //nolint:forcetypeassert // of this heap
func (e *entries) Pop() any {
	last := (*e)[len(*e)-1]
	*e = (*e)[:len(*e)-1]
	return last
}

// add makes an outstanding delivery known, once. version is of its document.
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
		e.taken = version // made by this process
	case !h.options.Exclusive && r.Until.After(e.at):
		e.at = r.Until
	}
	h.known[name] = e
	at := h.hosts[e.host]
	switch {
	case at == nil:
		at = &host{}
		h.hosts[e.host] = at
	case at.outstanding == 0:
		h.idle--
	}
	at.outstanding++
	heap.Push(&at.waiting, e)
	wakeUp(h.wake)
}

// own gives this process a delivery that it made itself and that a scan found
// first, which took it for another process's and would wait for that to die.
func (h *Hooks) own(e *entry, r *record, version uint64) {
	waiting := h.hosts[e.host].waiting
	i := slices.Index(waiting, e)
	if version == 0 || r.Attempts != 1 || e.taken != 0 || i < 0 {
		return
	}
	e.taken, e.at = version, r.NextAt
	heap.Fix(&waiting, i)
	wakeUp(h.wake)
}

// crowded reports whether n more deliveries to a host would be too many.
func (h *Hooks) crowded(name string, n int) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if at := h.hosts[name]; at != nil {
		n += at.outstanding
	}
	return n > h.options.MaxPerHost
}

// awaitRoom waits until so many more deliveries may be outstanding.
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

// dispatch starts what is due.
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

// pick takes what may be sent now, and tells when to look again.
func (h *Hooks) pick(now time.Time) (batch []*entry, next time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	next = time.Minute
	for _, at := range h.hosts { // in no particular order, so that each gets its turn
		for len(at.waiting) > 0 && h.free(at) {
			if wait := at.waiting[0].at.Sub(now); wait > 0 {
				next = min(next, wait)
				break
			}
			e := heap.Pop(&at.waiting).(*entry) //nolint:forcetypeassert // of this heap
			at.active++
			e.as, e.took = at.pace, 0
			h.active[e.as]++
			batch = append(batch, e)
		}
	}
	return batch, next
}

// attempt makes one attempt and says what becomes of the delivery.
func (h *Hooks) attempt(ctx context.Context, e *entry) {
	again, ok := h.deliver(ctx, e)
	h.mu.Lock()
	defer h.mu.Unlock()
	at := h.hosts[e.host]
	at.active--
	h.active[e.as]--
	switch {
	case e.took > h.options.Within/2: // a host that is quick takes less
		at.pace = slow
	case e.took > 0:
		at.pace = quick
	}
	if ok {
		e.at = again
		heap.Push(&at.waiting, e)
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
	wakeUp(h.room)
}

// deliver makes one attempt. ok means that another one is due, at again.
func (h *Hooks) deliver(ctx context.Context, e *entry) (again time.Time, ok bool) {
	doc, err := h.store.Doc(ctx, kindDue, e.name)
	if errors.Is(err, gq.ErrNotFound) {
		return time.Time{}, false // another process has settled it
	}
	var r *record
	if err == nil {
		r, err = readRecord(&doc)
	}
	if err != nil {
		return h.later(ctx, "read a delivery", err)
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
			return h.later(ctx, "take a delivery", err)
		}
	}
	e.taken = 0
	began := time.Now()
	v := h.sender.send(ctx, r.URL, h.header(r, now), r.Body)
	e.took = max(1, time.Since(began))
	if ctx.Err() != nil {
		return now, true // it was broken off; the document says that it is under way
	}
	return h.settle(ctx, r, doc.Version, v)
}

// later puts a delivery off after an error that has nothing to do with it.
func (h *Hooks) later(ctx context.Context, what string, err error) (time.Time, bool) {
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
	return http.Header{
		"Content-Type":          {"application/json"},
		"User-Agent":            {userAgent},
		webhook.HeaderID:        {r.ID},
		webhook.HeaderTimestamp: {strconv.FormatInt(now.Unix(), 10)},
		webhook.HeaderSignature: {h.secret.Sign(r.ID, now, r.Body)},
	}
}

// settle writes down what became of an attempt.
func (h *Hooks) settle(ctx context.Context, r *record, version uint64, v verdict) (again time.Time, ok bool) {
	now := time.Now().UTC()
	r.LastAt, r.Status, r.Reason, r.Until = now, v.status, v.reason, time.Time{}
	log := h.options.Log.With("event", "webhook", "delivery", r.ID, "job_id", r.Job.String(), "attempt", r.Attempts, "status", v.status)
	switch {
	case v.delivered():
		r.State, r.NextAt = Delivered, time.Time{}
		log.Debug("a webhook was delivered")
		h.count(func(t *Totals) { t.Delivered++ })
		return h.move(ctx, r, version, kindDone)
	case v.final || r.Attempts >= h.options.Attempts:
		r.State, r.NextAt = Dead, time.Time{}
		log.Warn("a webhook was given up", "reason", v.reason)
		h.count(func(t *Totals) { t.Failed++; t.Dead++ })
		return h.move(ctx, r, version, kindDead)
	}
	r.NextAt = now.Add(h.options.Backoff(r.Attempts, jitter()))
	log.Info("a webhook failed", "reason", v.reason, "next_at", r.NextAt)
	h.count(func(t *Totals) { t.Failed++ })
	if _, err := h.write(ctx, r, version); err != nil {
		return h.later(ctx, "write down a delivery", err)
	}
	return r.NextAt, true
}

// move takes a delivery out of those that are outstanding.
func (h *Hooks) move(ctx context.Context, r *record, version uint64, kind string) (time.Time, bool) {
	if kind == kindDone {
		r.Body = []byte("{}") // it is not needed again, unless someone asks for it
	}
	gone := store.Doc{Kind: kindDue, Name: nameOf(r.Seq), Version: version}
	doc, err := r.doc(kind, 0)
	if err == nil {
		_, err = h.store.PutDocs(ctx, []store.Doc{gone, doc})
	}
	if err != nil {
		return h.later(ctx, "settle a delivery", err)
	}
	return time.Time{}, false
}
