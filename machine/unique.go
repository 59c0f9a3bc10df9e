package machine

import (
	"fmt"
	"math"
	"time"

	"github.com/gopherqueue/gq"
)

// KeyHolder is the job that a store has recorded under a key, with the rule by which the job
// holds it. Nothing is written when a job loses its key: [Collide] finds out.
type KeyHolder struct {
	State       gq.State
	Fingerprint uint64
	While       gq.While  // zero is an idempotency key without a rule
	Until       time.Time // from [KeyUntil]; a later time has the key free
}

// Forever is the Until of a key that only its job's status frees.
var Forever = time.Unix(0, math.MaxInt64).UTC()

// KeyUntil returns when the key of a new job becomes free, whatever the job's status. runAt
// is the earliest time of its first attempt.
func KeyUntil(s *gq.Spec, runAt, now time.Time) time.Time {
	switch {
	case ForReplay(s.Key):
		return Forever
	case s.Unique.While == 0:
		return now.Add(KeyWindow(s))
	case s.Unique.While != gq.ForPeriod:
		return Forever
	case s.Unique.OnCollision == gq.Throttled:
		return runAt.Add(s.Unique.Period)
	default:
		return now.Add(s.Unique.Period)
	}
}

// Waiting reports whether no worker has started the job or holds it.
func Waiting(s *gq.State) bool { return !s.Status.Held() && !s.Status.Terminal() && s.Attempt == 0 }

// holdsKey reports whether the job still holds its key.
func (h *KeyHolder) holdsKey(now time.Time) bool {
	s := &h.State
	ended := s.Status.Terminal() || over(s, now)
	switch h.While {
	case gq.WhileWaiting:
		return Waiting(s) && !ended
	case gq.WhileLive:
		return !ended
	case gq.UntilDone:
		return s.Status != gq.StatusCompleted && s.Status != gq.StatusCancelled
	default:
		return now.Before(h.Until)
	}
}

// Collision is what a submission does whose key is recorded for another job.
type Collision struct {
	Insert    bool      // add the new job; otherwise the answer is the holder
	NotBefore time.Time // of the new job: a lower bound of its run time; zero is none
	Same      bool      // the holder answers the submission: the content is the same, or need not be

	// Replace says that the new job takes the holder's place, as with [Replace].
	Replace bool

	// Next and Events change the holder if Events is not empty.
	Next   gq.State
	Events []gq.Event

	Err error // refuses the submission
}

// Collide decides about a submission whose key is recorded for another job. The holder's rule
// says whether it still holds the key, and the rule of the submission what happens if so.
func Collide(h KeyHolder, s *gq.Spec, now time.Time) Collision {
	replay := h.State.ID == s.ReplayOf && !h.State.Live() // it takes the key over
	switch {
	case replay, h.State.ID == s.Replaces:
		return Collision{Insert: true}
	case h.replayed(s): // a job is replayed once, whether or not its replay still holds the key
		return Collision{Same: true}
	case !h.holdsKey(now):
		return Collision{Insert: true}
	}
	refused := func(reason string) Collision {
		return Collision{Err: &gq.UniqueError{Job: h.State.ID, Status: h.State.At(now).Status, Reason: reason}}
	}
	existing := Collision{Same: s.Unique.While != 0 || h.Fingerprint == s.Key.Fingerprint}
	switch on := s.Unique.OnCollision; {
	case !s.Replaces.IsZero(), !s.ReplayOf.IsZero() && s.Unique.While != 0:
		return refused("") // the caller asks for a new job and has no use for another one
	case on == gq.Refuse:
		return refused("")
	case on == gq.Replace:
		if !Waiting(&h.State) || over(&h.State, now) {
			return refused(h.onlyWaiting("replaced"))
		}
		return Collision{Insert: true, Replace: true}
	case on == gq.Debounced:
		if !Waiting(&h.State) {
			return refused(h.onlyWaiting("postponed"))
		}
		existing.Next, existing.Events = postpone(h.State, FirstRun(s, now), now)
		return existing
	case on == gq.Throttled:
		return throttle(h, s, existing, now)
	default:
		return existing
	}
}

// onlyWaiting says why a holder that no longer waits cannot be replaced or postponed, and what to
// do.
func (h *KeyHolder) onlyWaiting(verb string) string {
	text := "only a waiting job can be " + verb
	switch h.While {
	case gq.WhileWaiting:
		return text
	case gq.WhileLive:
		return text + "; submit again when it has ended, or use unique.while waiting, by which a running job does not hold its key"
	case gq.UntilDone:
		return text + "; submit again when it has completed or was cancelled, or use unique.while waiting, by which a running job does not hold its key"
	case gq.ForPeriod:
	}
	return text + "; its key is free from " + h.Until.UTC().Format(time.RFC3339) + " on"
}

// throttle makes a submission wait for the end of the holder's period. A holder that waits for
// its own turn answers it.
func throttle(h KeyHolder, s *gq.Spec, existing Collision, now time.Time) Collision {
	at := h.Until
	if h.While != gq.ForPeriod { // a rule without a period; the submission's own counts
		at = h.State.RunAt.Add(s.Unique.Period)
	}
	life, limit := s.Policy.Lifetime, "lifetime"
	if within := s.Policy.StartWithin; within > 0 && (life == 0 || within < life) {
		life, limit = within, "start deadline"
	}
	switch {
	case Waiting(&h.State) && now.Before(h.State.RunAt):
		return existing
	case !now.Before(at):
		return Collision{Insert: true}
	case life > 0 && !at.Before(now.Add(life)):
		return Collision{Err: &gq.UniqueError{
			Job: h.State.ID, Status: h.State.Status,
			Reason: fmt.Sprintf("its period ends at %s, after the new job's %s of %v", at.UTC().Format(time.RFC3339), limit, life),
		}}
	default:
		return Collision{Insert: true, NotBefore: at}
	}
}

// postpone moves the run time of a waiting job. It never moves it forward, nor past the end of
// the job's lifetime, and leaves a job alone whose time has come: it runs after this anyway.
func postpone(s gq.State, at, now time.Time) (gq.State, []gq.Event) {
	if claimable := s.At(now).Status == gq.StatusScheduled; claimable || !at.After(s.RunAt) || over(&s, at) {
		return s, nil
	}
	t := begin(s)
	t.RunAt = at
	e := t.note(gq.EventUpdated)
	e.Until, e.Reason = at, "debounced"
	return t.State, t.events
}

// Replace cancels a waiting job because another one takes its place. The error is
// [gq.ErrIllegalMove] for any other job.
func Replace(s gq.State, by gq.JobID, now time.Time) (gq.State, []gq.Event, error) {
	switch {
	case s.Status.Terminal():
		return s, nil, illegal(s, "replace")
	case !Waiting(&s):
		return s, nil, gq.ErrIllegalMove.Errorf("cannot replace job %s: a worker has started it or holds it (%s)", s.ID, s.Status)
	case over(&s, now):
		return s, nil, gq.ErrIllegalMove.Errorf("cannot replace job %s: its %s is over", s.ID, limitOf(&s))
	}
	return replace(s, by, now)
}

func replace(s gq.State, by gq.JobID, now time.Time) (gq.State, []gq.Event, error) {
	t := begin(s)
	t.ReplacedBy = by
	t.Cancellation = gq.Cancellation{RequestedAt: now, Reason: "replaced by " + by.String()}
	t.cancelled(false, now)
	return t.State, t.events, nil
}

// CheckFollowers refuses to replace a job for which others wait if they cannot wait for the
// new one instead: there are too many of them, a chain of dependencies would grow, or the new
// job depends on one that waits itself and that the old job did not depend on. A chain that does
// not grow cannot become a cycle, unless it leads through an order key, which counts for no
// depth: waiting is the first such job, zero for none ([NewDependency]).
func CheckFollowers(old *gq.State, followers, depth int, waiting gq.JobID) error {
	switch {
	case followers == 0:
		return nil
	case followers > gq.MaxFollowers:
		return gq.ErrTooMany.Errorf("cannot replace job %s: more than %d jobs depend on it", old.ID, gq.MaxFollowers)
	case depth > old.Depth:
		return invalid("depends_on", fmt.Sprintf(
			"jobs depend on job %s, which this one replaces, so it cannot depend on a longer chain of jobs (%d) than that one did (%d)", old.ID, depth, old.Depth))
	case !waiting.IsZero():
		return invalid("depends_on", fmt.Sprintf(
			"jobs depend on job %s, which this one replaces, so it cannot newly depend on job %s, which waits for others itself; wait until that one can run, or cancel the old job and submit this one", old.ID, waiting))
	}
	return nil
}

// NewDependency returns the first job among the dependencies of a job for which it must wait,
// which the job that it replaces did not wait for, and which waits for others itself.
func NewDependency(deps []gq.Dependency, kept, waits func(gq.JobID) bool) gq.JobID {
	for _, d := range deps {
		if Waits(d.Kind) && !kept(d.Job) && waits(d.Job) {
			return d.Job
		}
	}
	return gq.JobID{}
}
