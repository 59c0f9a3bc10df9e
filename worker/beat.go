package worker

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/internal/errs"
	"github.com/gopherqueue/gq/internal/wake"
)

const (
	shortLease  = 30 * time.Second       // of jobs with no lease time of their own: a killed worker's jobs run elsewhere after it
	maxBatch    = 1000                   // beats or outcomes per call
	maxBytes    = 3 << 20                // approximate size of a call
	progressGap = time.Second            // shortest time between two progress reports of a job
	together    = 100 * time.Millisecond // reports due within this time share a call
)

// progress records progress for the next heartbeat and moves that heartbeat forward.
func (k *keeper) progress(r *Run, fraction float64, note string, now time.Time) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if r.index < 0 || r.cause != nil {
		return
	}
	r.fraction, r.unsent = fraction, true
	if note != "" {
		r.note = note[:min(len(note), 4*gq.MaxReasonBytes)] // the queue truncates it to valid UTF-8
	}
	if r.policy.Extend != gq.ExtendReset || r.interval == 0 {
		return // heartbeats are limited
	}
	at := now
	if t := r.lastBeat.Add(progressGap); t.After(at) {
		at = t
	}
	at = at.Add(together)
	if at.Before(r.beatAt) {
		r.beatAt = at
		k.atLocked(at)
	}
}

// cancelRequested moves the next heartbeats of jobs forward, whose answers say why they are
// to stop. Where heartbeats are limited, it ends the contexts without one.
func (k *keeper) cancelRequested(jobs []gq.JobID) {
	var notices []notice
	defer func() { tell(notices) }()
	asked := make(map[gq.JobID]bool, len(jobs))
	for _, id := range jobs {
		asked[id] = true
	}
	now := time.Now()
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, r := range k.runs {
		switch {
		case r.cause != nil || !asked[r.ID()]:
		case r.policy.Extend != gq.ExtendReset || r.interval == 0:
			notices = append(notices, k.cancelLocked(r, "", now))
		default:
			r.beatAt, r.asked = now, true
			k.atLocked(now)
		}
	}
}

func (k *keeper) cancelLocked(r *Run, reason string, now time.Time) notice {
	k.stats.cancels++
	n := k.stopLocked(r, cancelCause(reason), now)
	n.level, n.message = slog.LevelInfo, "cancel requested"
	return n
}

// unsent returns heartbeats with the last progress of executions whose handlers have returned.
func (k *keeper) unsent(batch []*Run) (beats []gq.Heartbeat) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, r := range batch {
		if r.unsent && !r.lost && r.policy.Extend == gq.ExtendReset {
			r.unsent = false
			beats = append(beats, gq.Heartbeat{Lease: r.ref, Progress: r.fraction, Note: r.note})
		}
	}
	return beats
}

// live reports whether the execution may still report to the queue.
func (k *keeper) live(r *Run) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return r.index >= 0 && !r.lost
}

// beat renews leases in one call.
func (k *keeper) beat(ctx context.Context, runs []*Run, now time.Time) {
	beats := make([]gq.Heartbeat, 0, len(runs))
	sent := make([]*Run, 0, len(runs))
	patience := gq.MaxDuration // until the first lease expires
	k.mu.Lock()
	for _, r := range runs {
		if r.index < 0 || r.cause != nil {
			continue
		}
		b := gq.Heartbeat{Lease: r.ref, Progress: -1}
		if r.unsent {
			b.Progress, b.Note, r.unsent = r.fraction, r.note, false
		}
		beats, sent = append(beats, b), append(sent, r)
		patience = min(patience, r.expires.Sub(now))
	}
	k.mu.Unlock()
	if len(beats) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	k.worker.calls.heartbeats.Add(1)
	answers, err := k.worker.queue.Heartbeat(ctx, beats)
	if err == nil && len(answers) != len(beats) {
		err = fmt.Errorf("heartbeat: %d answers to %d beats", len(answers), len(beats))
	}
	if err != nil {
		k.worker.failures.heartbeats.Add(1)
	}
	k.worker.heartbeats.record(err)
	for i, r := range sent {
		if err == nil {
			k.answered(r, answers[i], now, beats[i].Progress >= 0)
		} else {
			k.unanswered(r, beats[i].Progress >= 0)
		}
	}
}

// unanswered schedules an early repetition of a beat.
func (k *keeper) unanswered(r *Run, progress bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if r.index < 0 || r.cause != nil {
		return
	}
	r.unsent = r.unsent || progress
	retry := time.Now().Add(min(max(r.interval/4, 50*time.Millisecond), 5*time.Second))
	if retry.Before(r.beatAt) {
		r.beatAt = retry
		k.atLocked(retry)
	}
}

// answered applies the answer to a beat that was sent at the given time, with progress or without.
func (k *keeper) answered(r *Run, a gq.LeaseResult, sent time.Time, progress bool) {
	kind := errs.KindOf(a.Err)
	if a.Err != nil && passing(kind) {
		k.unanswered(r, progress)
		return
	}
	var notices []notice
	defer func() { tell(notices) }()
	k.mu.Lock()
	defer k.mu.Unlock()
	if r.index < 0 {
		return
	}
	now := time.Now()
	switch {
	case a.Err == nil:
		k.renewLocked(r, a.State.Lease, sent)
		if c := a.State.Cancellation; c.Requested() && r.cause == nil {
			notices = append(notices, k.cancelLocked(r, c.Reason, now))
		}
	case kind == gq.KindStaleLease || kind == gq.KindNotFound:
		switch {
		case r.cause != nil:
			r.lost = true
		case reached(r.timeoutAt, now): // the queue ended the attempt first
			r.lost = true
			notices = append(notices, k.timeoutLocked(r, now))
		default:
			notices = append(notices, k.loseLocked(r, now, "the queue rejected it"))
		}
	case kind == gq.KindConflict: // no renewals left
		r.interval, r.beatAt = 0, time.Time{}
	}
}

// renewLocked records a renewed lease. It uses only differences between times of the queue's
// clock.
func (k *keeper) renewLocked(r *Run, l *gq.Lease, sent time.Time) {
	if l == nil {
		return
	}
	granted := l.ExpiresAt.Sub(l.HeartbeatAt)
	if t := sent.Add(granted); t.After(r.expires) {
		r.expires = t
	}
	r.over = time.Now().Add(granted)
	r.interval = k.worker.interval(l, r.policy)
	if sent.Before(r.lastBeat) {
		return // a later beat is in flight
	}
	r.lastBeat = sent
	t := beatAfter(sent, r.interval)
	if (r.unsent || r.asked) && !t.IsZero() {
		t = wake.Earlier(r.beatAt, t) // progress waits to be reported, or a request to stop to be confirmed
	}
	r.beatAt = t
	k.atLocked(t)
}

// passing reports whether an error of this kind leaves the fate of the item unknown.
func passing(kind gq.ErrorKind) bool {
	return kind == gq.KindUnavailable || kind == gq.KindTimeout || kind == gq.KindInternal
}

func cancelCause(reason string) error {
	if reason == "" {
		return ErrCancelRequested
	}
	return fmt.Errorf("%w: %s", ErrCancelRequested, reason)
}
