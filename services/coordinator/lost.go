package coordinator

import (
	"cmp"
	"context"
	"slices"
	"time"
)

// settled is the age by which a job must have reached its worker, if it ever will.
const settled = time.Second

// arrive reports whether a worker that asks for work is available. It takes back the
// jobs that the worker cannot be running any more.
//
// The timeout does not notice a worker that died and came back under its name in time,
// nor an answer that was lost. But a slot runs one job, and an idle slot does not ask
// again before its hint is over. So this call and the recent calls that got no job come
// from different slots, and the worker can run at most one job in each of its other
// slots.
func (s *Service) arrive(ctx context.Context, workerID string) bool {
	s.mu.Lock()
	now := s.config.Now()
	available := s.availableLocked(workerID, now)
	var taken []redelivery
	if available {
		taken = s.takeLostLocked(workerID, now)
	}
	s.mu.Unlock()
	s.logRedelivery(ctx, "FetchWork", taken)
	return available
}

func (s *Service) takeLostLocked(workerID string, now time.Time) (taken []redelivery) {
	w := s.workers[workerID]
	if w.slots == 0 {
		return nil
	}
	asking := 1
	recent := now.Add(-s.config.IdleHint * 9 / 10)
	for _, t := range w.idled {
		if t.After(recent) {
			asking++
		}
	}
	var held []*handout
	for _, h := range s.held {
		if h.worker == workerID && now.Sub(h.since) > settled {
			held = append(held, h)
		}
	}
	excess := len(held) - max(0, w.slots-asking)
	if excess <= 0 {
		return nil
	}
	slices.SortFunc(held, func(a, b *handout) int { return cmp.Or(a.since.Compare(b.since), cmp.Compare(a.jobID, b.jobID)) })
	for _, h := range held[:excess] {
		taken = append(taken, s.takeBackLocked(h, "job is handed out again: its worker asks for more than it could while running it"))
	}
	return taken
}
