package engine

import (
	"errors"
	"sync/atomic"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/machine"
	"github.com/gopherqueue/gq/store"
)

// Activity counts what an engine has done since it was created, apart from the calls that it
// answered. Other engines on the same store count their own.
type Activity struct {
	Fired          uint64 // jobs that schedules submitted, also triggered and backfilled ones
	SkippedOverlap uint64 // slots of schedules without a job because of the overlap rule
	SkippedMissed  uint64 // because of the rule for missed slots
	SkippedRefused uint64 // because the job was refused

	Signals uint64 // jobs that got a signal

	KeyRate uint64 // claims that got fewer jobs because of the rates of limit keys

	// Submissions of unique jobs whose key another job held, by what happened.
	Returned  uint64 // the existing job was returned
	Refused   uint64
	Replaced  uint64 // the new job took the place of the existing one
	Debounced uint64 // the existing job was postponed
	Throttled uint64 // the new job waits for the period of the existing one, or one waits already

	TakenIn    uint64 // submissions of the inbox that became jobs
	TurnedDown uint64 // submissions of the inbox that were refused
}

// counters are the counts of [Activity].
type counters struct {
	fired, overlapped, missed, refused atomic.Uint64
	signals                            atomic.Uint64
	keyRate                            atomic.Uint64
	collisions                         [collisionEnd]atomic.Uint64
	takenIn, turnedDown                atomic.Uint64
}

// How collisions of unique jobs end.
const (
	collisionReturned = iota
	collisionRefused
	collisionReplaced
	collisionDebounced
	collisionThrottled
	collisionEnd
)

// Activity returns what the engine has done so far.
func (e *Engine) Activity() Activity {
	c := &e.counters
	return Activity{
		Fired: c.fired.Load(), SkippedOverlap: c.overlapped.Load(), SkippedMissed: c.missed.Load(), SkippedRefused: c.refused.Load(),
		Signals: c.signals.Load(), KeyRate: c.keyRate.Load(),
		Returned: c.collisions[collisionReturned].Load(), Refused: c.collisions[collisionRefused].Load(),
		Replaced: c.collisions[collisionReplaced].Load(), Debounced: c.collisions[collisionDebounced].Load(),
		Throttled: c.collisions[collisionThrottled].Load(),
		TakenIn:   c.takenIn.Load(), TurnedDown: c.turnedDown.Load(),
	}
}

// collided counts what happened to a submission of a unique job, if another one held its key. The
// placement is nil if the submission was refused.
func (c *counters) collided(s *gq.Spec, p *store.Placed, err error) {
	if s.Unique.While == 0 {
		return
	}
	outcome := collisionEnd
	switch on := s.Unique.OnCollision; {
	case errors.Is(err, gq.ErrNotUnique):
		outcome = collisionRefused
	case p == nil:
		return
	case p.Existing && on == gq.Debounced:
		outcome = collisionDebounced
	case on == gq.Throttled && (p.Existing || waitsForPeriod(s, &p.State)):
		outcome = collisionThrottled
	case p.Existing:
		outcome = collisionReturned
	case !p.Replaces.IsZero() && s.Replaces.IsZero(): // otherwise it was edited
		outcome = collisionReplaced
	default:
		return
	}
	c.collisions[outcome].Add(1)
}

// waitsForPeriod reports whether a throttled job runs later than it asked for.
func waitsForPeriod(s *gq.Spec, state *gq.State) bool {
	return state.RunAt.After(machine.FirstRun(s, state.CreatedAt))
}
