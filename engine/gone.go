package engine

import (
	"context"
	"slices"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/internal/wake"
	"github.com/gopherqueue/gq/machine"
	"github.com/gopherqueue/gq/store"
)

// A worker whose process dies holds its jobs until its leases expire. If it used a stream, the
// server notices at once that the stream broke. The worker gets goneAfter to come back to any
// server of the store; then its leases are ended as lost.

const (
	goneAfter  = 6 * time.Second
	goneAgain  = time.Second // until the next check if another server has not announced itself since
	goneGiveUp = 20 * time.Second
)

// streamKey marks the context of calls through a stream.
type streamKey struct{}

func throughStream(ctx context.Context) bool { return ctx.Value(streamKey{}) != nil }

// Connected implements [API].
func (e *Engine) Connected(ctx context.Context, worker, version string) (through context.Context, end func(broke bool), err error) {
	if err := checkWorker(worker); err != nil {
		return nil, nil, err
	}
	r := &e.workers
	r.mu.Lock()
	defer r.mu.Unlock()
	if known := r.known[worker]; known != nil && !r.over(known, time.Now()) {
		for _, queue := range known.filter().Queues {
			if err := authorize(ctx, queue); err != nil {
				err, _ = unwrapRefusal(err)
				return nil, nil, err
			}
		}
	}
	w := r.atLocked(worker)
	if w.streams++; w.streams == 1 {
		wake.Up(r.news) // other servers must not take it for gone
	}
	if version != "" {
		w.version = machine.Truncate(version, gq.MaxNameBytes)
	}
	ended := false
	end = func(broke bool) {
		r.mu.Lock()
		defer r.mu.Unlock()
		if ended {
			return
		}
		ended = true
		w.streams--
		switch w.drop(time.Now()); {
		case w.streams > 0:
		case w.stopped: // other servers may still know it; remember that it has stopped
		case len(w.leases) == 0 && w.waiting == 0: // it has stopped, or comes back with its next call
			if r.known[worker] == w && time.Since(w.outside) > r.memory {
				delete(r.known, worker)
				wake.Up(r.news)
			}
		case broke:
			w.broke = time.Now()
			wake.Up(r.broken)
		}
	}
	return context.WithValue(WithAuthorize(ctx, nil), streamKey{}, true), end, nil
}

// suspect is a worker that may be gone.
type suspect struct {
	name   string
	broke  time.Time // by our clock
	leases []gq.LeaseID
}

// suspects returns the workers whose last stream broke before a time and that this engine has not
// heard of since, and when to look again. It leaves out workers that hold a job which they did not
// claim through a stream: otherwise a stream in the name of another worker could end its leases.
func (r *registry) suspects(before time.Time) (due []suspect, next time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for name, w := range r.known {
		switch {
		case w.broke.IsZero():
		case w.streams > 0 || w.waiting > 0:
			w.broke = time.Time{}
		case w.broke.After(before):
			next = wake.Earlier(next, w.broke.Add(goneAfter))
		default:
			s := suspect{name: name, broke: w.broke}
			w.drop(time.Now())
			for id, l := range w.leases {
				if !l.streamed {
					s.leases = nil
					break
				}
				s.leases = append(s.leases, id)
			}
			if len(s.leases) == 0 {
				w.broke = time.Time{}
				continue
			}
			due = append(due, s)
		}
	}
	return due, next
}

// cleared ends the suspicion against a worker; gone removes its leases too.
func (r *registry) cleared(s suspect, gone bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	w := r.known[s.name]
	if w == nil || !w.broke.Equal(s.broke) {
		return // it was heard of meanwhile
	}
	w.broke = time.Time{}
	if gone {
		for _, id := range s.leases {
			delete(w.leases, id)
		}
	}
}

// runGone ends the leases of workers that are gone, until the context ends.
func (e *Engine) runGone(ctx context.Context) {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-e.workers.broken:
		case <-timer.C:
		}
		next := e.endGone(ctx)
		if !next.IsZero() {
			timer.Reset(time.Until(next))
		}
	}
}

// endGone ends the leases of workers that are gone by now and returns when to look again.
func (e *Engine) endGone(ctx context.Context) (next time.Time) {
	now := time.Now()
	due, next := e.workers.suspects(now.Add(-goneAfter))
	if len(due) == 0 {
		return next
	}
	docs, err := e.nodeDocuments(ctx)
	if err != nil {
		e.log.Warn("could not find out whether workers are gone", "error", err)
	}
	_, elsewhere := e.others(docs)
	for _, s := range due {
		switch current := err == nil && e.announcedSince(docs, s.broke); {
		case slices.ContainsFunc(elsewhere, func(w worker) bool { return w.Name == s.name && w.knownAfter(e.clock.at(s.broke)) }):
			e.workers.cleared(s, false)
		case current:
			e.lose(ctx, s)
		case now.Sub(s.broke) > goneGiveUp:
			e.workers.cleared(s, false) // its leases expire soon
		default:
			next = wake.Earlier(next, now.Add(goneAgain))
		}
	}
	return next
}

// knownAfter reports whether a server has heard of the worker after a time, or is connected to it.
func (w *worker) knownAfter(t time.Time) bool {
	return w.streams > 0 || w.Waiting > 0 || w.LastSeen.After(t)
}

// announcedSince reports whether every other live node has announced its workers since a time by
// our clock. A node without workers announces itself rarely, but a new worker soon.
func (e *Engine) announcedSince(docs []nodeRecord, t time.Time) bool {
	now, since := e.clock.now(), e.clock.at(t)
	return !slices.ContainsFunc(docs, func(f nodeRecord) bool {
		return len(f.Workers) > 0 && now.Sub(f.Time) <= nodeFresh && f.Time.Before(since)
	})
}

// lose ends the leases of a worker that is gone.
func (e *Engine) lose(ctx context.Context, s suspect) {
	// The store's time is only estimated: a claim just before the stream broke must not look
	// like one after it.
	since := e.clock.at(s.broke).Add(clockSlack)
	lost := 0
	for ids := range slices.Chunk(s.leases, e.options.Batch) {
		updates := make([]store.Update, len(ids))
		for i, id := range ids {
			draw := e.draw()
			updates[i] = store.Update{
				Ref: store.Ref{Lease: id}, Yield: true,
				Apply: func(state gq.State, now time.Time) (gq.State, []gq.Event, error) {
					return machine.Lose(state, gq.LeaseRef{ID: id, Worker: s.name}, since, draw, now)
				},
			}
		}
		updated, err := e.store.Update(ctx, updates)
		if err != nil {
			e.log.Warn("could not end the leases of a worker that is gone; they will expire", "worker", s.name, "error", err)
			break
		}
		for i := range updated {
			if updated[i].Changed {
				lost++
			}
		}
	}
	e.workers.cleared(s, true)
	if lost > 0 {
		e.log.Info("a worker is gone; its leases were ended", "worker", s.name, "leases", lost)
	}
}
