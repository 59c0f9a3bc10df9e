package delivery

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/internal/retry"
	"github.com/gopherqueue/gq/internal/wire"
	"github.com/gopherqueue/gq/store"
)

// Limits.
const (
	commitDeliveries = 100             // deliveries created in one commit
	maxResult        = 64 << 10        // largest result that is included, in bytes
	cursorEvery      = 5 * time.Second // interval of cursor writes while there are no deliveries
)

// errMoved stops the reader because another process reads the log.
var errMoved = errors.New("another process has moved the cursor")

// ingest creates a delivery for each ended job with a callback.
func (h *Hooks) ingest(ctx context.Context) error {
	return h.retry(ctx, "read the event log for webhooks", func(ctx context.Context) error {
		for ctx.Err() == nil {
			after, version, err := h.cursor(ctx)
			if err != nil {
				return err
			}
			h.passed.Store(after)
			r := reader{hooks: h, after: after, saved: after, version: version, savedAt: time.Now()}
			err = h.engine.Follow(ctx, after, func(events []gq.Event) error { return r.page(ctx, events) })
			switch {
			case errors.Is(err, errMoved):
				if !retry.Pause(ctx, time.Second) { // meanwhile the other process creates the deliveries
					return nil
				}
			case errors.Is(err, gq.ErrGone):
				if err := r.skip(ctx); err != nil {
					return err
				}
			case err != nil:
				return err
			}
		}
		return nil
	})
}

// catchUpWithin is the time limit of CatchUp.
const catchUpWithin = 10 * time.Second

// CatchUp waits until every job that ended before the call has its delivery and so can be
// purged. The error is [gq.ErrTimeout] if that takes too long, for example while the
// limit of outstanding deliveries is reached.
func (h *Hooks) CatchUp(ctx context.Context) error {
	last, err := h.engine.LastEvent(ctx)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, catchUpWithin)
	defer cancel()
	for h.passed.Load() < last {
		if !retry.Pause(ctx, 5*time.Millisecond) {
			return fmt.Errorf("deliveries to callbacks are still being made; try again later: %w", gq.ErrTimeout)
		}
	}
	return nil
}

// reader follows the log from a cursor.
type reader struct {
	hooks   *Hooks
	after   uint64 // events up to this one are processed
	saved   uint64 // the stored cursor
	version uint64 // version of the cursor document
	savedAt time.Time

	callbacks bool // there are jobs with callbacks
}

// ends reports whether an event type ends a job.
func ends(t gq.EventType) bool {
	switch t {
	case gq.EventCompleted, gq.EventFailed, gq.EventDeadLettered, gq.EventCancelled:
		return true
	default:
		return false
	}
}

// page creates the deliveries for a page of the log.
func (r *reader) page(ctx context.Context, events []gq.Event) error {
	ended := make([]*gq.Event, 0, len(events))
	refs := make([]store.Ref, 0, len(events))
	for i := range events {
		if ends(events[i].Type) {
			ended, refs = append(ended, &events[i]), append(refs, store.Ref{Job: events[i].Job})
		}
	}
	used, err := r.used(ctx, len(refs) > 0)
	if err != nil {
		return err
	}
	if used {
		found, err := r.hooks.store.Get(ctx, refs, 0)
		if err != nil {
			return err
		}
		var with []int
		for i := range found {
			if found[i].Err != nil || found[i].Metadata.CallbackURL == "" {
				continue
			}
			goesOn, err := r.goesOn(ctx, &found[i].State)
			if err != nil {
				return err
			}
			if !goesOn {
				with = append(with, i)
			}
		}
		for len(with) > 0 {
			n := min(len(with), commitDeliveries)
			if err := r.make(ctx, ended, found, with[:n]); err != nil {
				return err
			}
			with = with[n:]
		}
	}
	r.after = events[len(events)-1].Seq
	r.hooks.passed.Store(r.after)
	if time.Since(r.savedAt) < cursorEvery {
		return nil
	}
	return r.save(ctx, nil)
}

// goesOn reports whether a job ended because it was edited or put off: it goes on as the job that took
// its place, whose end the callback tells.
func (r *reader) goesOn(ctx context.Context, s *gq.State) (bool, error) {
	if s.ReplacedBy.IsZero() {
		return false, nil
	}
	found, err := r.hooks.store.Get(ctx, []store.Ref{{Job: s.ReplacedBy}}, 0)
	return err == nil && found[0].Err == nil && !found[0].State.SubmittedAt.IsZero(), err
}

// used reports whether jobs must be read: some have ended, and there are jobs with
// callbacks.
func (r *reader) used(ctx context.Context, ends bool) (bool, error) {
	if !ends || r.callbacks {
		return ends, nil
	}
	_, err := r.hooks.store.Doc(ctx, store.KindCallbacks, store.NameCallbacks)
	switch {
	case err == nil:
		r.callbacks = true
	case !errors.Is(err, gq.ErrNotFound):
		return false, err
	}
	return r.callbacks, nil
}

// make creates deliveries and moves the cursor past the last of them, in one commit.
func (r *reader) make(ctx context.Context, ended []*gq.Event, found []store.Found, with []int) error {
	h := r.hooks
	if !h.awaitRoom(ctx, len(with)) {
		return ctx.Err()
	}
	if err := h.addResults(ctx, found, with); err != nil {
		return err
	}
	now := time.Now().UTC()
	records := make([]*record, len(with))
	docs := make([]store.Doc, len(with))
	made := map[string]int{} // by host
	for k, i := range with {
		var err error
		if records[k], err = newRecord(ended[i], &found[i].Job, now); err != nil {
			return err
		}
		kind := kindDue
		to := hostOf(records[k].URL)
		if made[to]++; h.crowded(to, made[to]) {
			kind = kindDead
			records[k].State, records[k].Attempts, records[k].Until = Dead, 0, time.Time{}
			records[k].Reason = fmt.Sprintf("%d deliveries to this host were outstanding", h.options.MaxPerHost)
		}
		if docs[k], err = records[k].doc(kind, 0); err != nil {
			return err
		}
	}
	r.after = ended[with[len(with)-1]].Seq
	versions, err := r.saveWith(ctx, docs)
	if err != nil {
		return err
	}
	for k := range records {
		if records[k].State == Dead {
			h.count(func(t *Totals) { t.Dead++ })
			continue
		}
		h.add(records[k], versions[k])
	}
	return nil
}

func (r *reader) save(ctx context.Context, docs []store.Doc) error {
	_, err := r.saveWith(ctx, docs)
	return err
}

// saveWith writes documents together with the cursor.
func (r *reader) saveWith(ctx context.Context, docs []store.Doc) ([]uint64, error) {
	cursor, err := cursorDoc(r.after, r.version)
	if err != nil {
		return nil, err
	}
	versions, err := r.hooks.store.PutDocs(ctx, append(docs, cursor))
	if errors.Is(err, gq.ErrConflict) {
		return nil, errMoved
	}
	if err != nil {
		return nil, err
	}
	r.version = versions[len(versions)-1]
	r.saved, r.savedAt = r.after, time.Now()
	return versions, nil
}

// skip moves to the end of the log because the next events are no longer kept.
func (r *reader) skip(ctx context.Context) error {
	last, err := r.hooks.engine.LastEvent(ctx)
	if err != nil {
		return err
	}
	r.hooks.options.Log.Error("events were deleted before their webhooks were made",
		"event", "webhook_gap", "after_event", r.after, "next_event", last)
	r.after = last
	err = r.save(ctx, nil)
	if errors.Is(err, errMoved) {
		return nil
	}
	return err
}

// addResults reads the results that are small enough to include.
func (h *Hooks) addResults(ctx context.Context, found []store.Found, with []int) error {
	var refs []store.Ref
	var at []int
	for _, i := range with {
		if n := found[i].State.ResultBytes; n > 0 && n <= maxResult {
			refs, at = append(refs, store.Ref{Job: found[i].State.ID}), append(at, i)
		}
	}
	if len(refs) == 0 {
		return nil
	}
	again, err := h.store.Get(ctx, refs, gq.WithResult)
	if err != nil {
		return err
	}
	for k, i := range at {
		if again[k].Err == nil {
			found[i].Result = again[k].Result
		}
	}
	return nil
}

// message is the body of a delivery.
type message struct {
	Type      gq.EventType `json:"type"`
	Timestamp time.Time    `json:"timestamp"`
	Data      wire.Job     `json:"data"`

	TraceParent string `json:"traceparent,omitempty"` // of the submission
}

// newRecord creates the delivery for the end of a job. Its creator makes the first
// attempt.
func newRecord(e *gq.Event, job *gq.Job, now time.Time) (*record, error) {
	job.Spec.Payload.Data = nil
	var body bytes.Buffer
	if err := wire.EncodeJSON(&body, message{Type: e.Type, Timestamp: e.Time.UTC(), Data: wire.JobOf(job), TraceParent: e.TraceParent}); err != nil {
		return nil, fmt.Errorf("encode the end of %s: %w", e.Job, err)
	}
	return &record{
		Delivery: Delivery{
			ID: idOf(e.Job, e.Seq), Job: e.Job, Queue: job.Spec.Queue, Type: e.Type, URL: job.Metadata.CallbackURL,
			CreatedAt: now, NextAt: now, Attempts: 1, State: Pending,
		},
		Seq: e.Seq, TraceParent: e.TraceParent, Until: now.Add(takenFor), Body: json.RawMessage(bytes.TrimSpace(body.Bytes())),
	}, nil
}
