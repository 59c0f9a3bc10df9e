package worker

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/gopherqueue/gq"
)

// reporter sends checkpoints and children, for which handlers wait. While one call is in
// flight it collects the next batch.
type reporter struct {
	worker *Worker

	mu      sync.Mutex
	waiting []*pendingReport
	busy    bool
	closed  bool
}

type pendingReport struct {
	beat   gq.Heartbeat
	sent   time.Time
	answer gq.LeaseResult
	err    error
	done   chan struct{}
}

// send sends a beat and waits for its answer.
func (s *reporter) send(ctx context.Context, r *Run, b gq.Heartbeat) (gq.LeaseResult, error) {
	p := &pendingReport{beat: b, done: make(chan struct{})}
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return gq.LeaseResult{}, ErrDraining
	}
	s.waiting = append(s.waiting, p)
	if !s.busy {
		s.busy = true
		s.worker.background.Go(s.loop)
	}
	s.mu.Unlock()
	select {
	case <-p.done:
		if p.err == nil {
			s.worker.keeper.answered(r, p.answer, p.sent, false)
		}
		return p.answer, p.err
	case <-ctx.Done(): // the queue may still save it
		return gq.LeaseResult{}, context.Cause(ctx)
	}
}

// close rejects all further reports.
func (s *reporter) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
}

func (s *reporter) loop() {
	for {
		batch := s.next()
		if len(batch) == 0 {
			return
		}
		s.step(batch)
	}
}

func (s *reporter) next() []*pendingReport {
	s.mu.Lock()
	defer s.mu.Unlock()
	n, size := 0, 0
	for n < len(s.waiting) && n < maxBatch && (n == 0 || size < maxBytes) {
		size += len(s.waiting[n].beat.Checkpoint)
		n++
	}
	batch := s.waiting[:n:n]
	s.waiting = s.waiting[n:]
	s.busy = n > 0
	return batch
}

func (s *reporter) step(batch []*pendingReport) {
	beats := make([]gq.Heartbeat, len(batch))
	for i, p := range batch {
		beats[i] = p.beat
	}
	ctx, cancel := context.WithTimeout(s.worker.life, callTimeout)
	defer cancel()
	sent := time.Now()
	s.worker.calls.heartbeats.Add(1)
	answers, err := s.worker.queue.Heartbeat(ctx, beats)
	if err == nil && len(answers) != len(beats) {
		err = fmt.Errorf("heartbeat: %d answers to %d beats", len(answers), len(beats))
	}
	if err != nil {
		s.worker.failures.heartbeats.Add(1)
	}
	s.worker.heartbeats.record(err)
	for i, p := range batch {
		if p.sent, p.err = sent, err; err == nil {
			p.answer = answers[i]
		}
		close(p.done)
	}
}
