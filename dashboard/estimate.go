package dashboard

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/gopherqueue/gq"
)

// estimate says when a waiting job will probably start, or why nobody can tell.
type estimate struct {
	At      time.Time // zero is unknown
	Latest  bool      // it starts at At at the latest, if the queue goes on as it did
	Soonest bool      // something else may hold it up after At
	Basis   string    // how At was computed
	Unknown string    // why there is no At
}

// Shown reports whether there is something to say.
func (e estimate) Shown() bool { return !e.At.IsZero() || e.Unknown != "" }

// pace is how fast a queue has been lately.
type pace struct {
	Starts float64       // a second; 0 is unknown or none
	Span   time.Duration // that was measured
	Run    time.Duration // median time that a job runs; 0 is unknown
}

// Limits of an estimate.
const (
	maxInLine    = 1000                 // waiting jobs that are looked at for the place of one
	maxPredicted = 365 * 24 * time.Hour // a later start says nothing
)

// place is where a job stands in its queue.
type place struct {
	Ahead int  // jobs before it
	Most  bool // there are at most so many
}

// estimate computes the start of a job from what it waits for and from how fast its queue has
// been lately.
func (v *visit) estimate(job *gq.Job, x *gq.Explanation) (e estimate, err error) {
	if job.State.Status.Terminal() || job.State.Status.Held() {
		return estimate{}, nil
	}
	if neverFits(x) { // whatever it waits for first
		return estimate{Unknown: "it costs more than its pool has, so it cannot start until one of the two is changed"}, nil
	}
	switch x.Cause {
	case gq.CauseDelay, gq.CauseBackoff:
		e = estimate{At: x.Until, Basis: "the time that was set for it", Soonest: heldUpLater(x)}
		if x.Cause == gq.CauseBackoff {
			e.Basis = "the end of its pause after the last failure"
		}
		return e, nil
	case gq.CauseKeyRate:
		return estimate{At: x.Until, Basis: "the rate limit of its key", Soonest: true}, nil
	case gq.CauseDependency:
		return v.afterDependencies(x)
	case gq.CauseSignal:
		return estimate{Unknown: "nobody can tell when the signal comes"}, nil
	case gq.CausePaused:
		return estimate{Unknown: "nobody can tell when the queue is resumed"}, nil
	case gq.CauseNoWorker:
		return estimate{Unknown: "nobody can tell when a worker comes that can run it"}, nil
	case gq.CauseConstraint, gq.CauseCost:
		if !x.Until.IsZero() { // a provider of matching can take it then
			return estimate{At: x.Until, Basis: "the end of what keeps the nearest provider from it", Soonest: true}, nil
		}
		return estimate{Unknown: "nobody can tell when one comes that can run it"}, nil
	case gq.CauseLifetime:
		return estimate{Unknown: "it ends before it may start"}, nil
	case gq.CauseNext, gq.CauseConcurrency, gq.CauseKeyLimit, gq.CauseRate, gq.CausePool:
		return v.inTurn(job, x)
	}
	return estimate{}, nil
}

// neverFits reports whether a job costs more than the whole capacity of its pool.
func neverFits(x *gq.Explanation) bool {
	never := func(r gq.Reason) bool { return r.Cause == gq.CausePool && r.Never }
	return never(x.Reason) || slices.ContainsFunc(x.Also, never)
}

// heldUpLater reports whether a job has a reason to wait that does not end by itself.
func heldUpLater(x *gq.Explanation) bool {
	return slices.ContainsFunc(x.Also, func(r gq.Reason) bool {
		switch r.Cause {
		case gq.CausePaused, gq.CauseNoWorker, gq.CauseConstraint, gq.CauseCost:
			return true
		default:
			return false
		}
	})
}

// inTurn estimates the start of a job that waits for its turn.
func (v *visit) inTurn(job *gq.Job, x *gq.Explanation) (estimate, error) {
	if matching := v.d.options.Sources.Matching; matching != "" && job.Spec.Queue == matching {
		return estimate{Unknown: "rounds of matching decide which job is next"}, nil
	}
	lately, err := v.pace(job.Spec.Queue)
	if err != nil {
		return estimate{}, err
	}
	at := place{Ahead: x.Ahead}
	if x.Cause != gq.CauseNext || x.Ahead < 0 {
		if at, err = v.place(job); err != nil {
			return estimate{}, err
		}
	}
	return predict(v.d.now(), at, lately, x.Until), nil
}

// predict computes when a job starts that has others before it. It starts no earlier than
// notBefore.
func predict(now time.Time, at place, lately pace, notBefore time.Time) estimate {
	if lately.Starts <= 0 {
		if !notBefore.IsZero() && at.Ahead == 0 {
			return estimate{At: notBefore, Basis: "the rate limit of its queue"}
		}
		return estimate{Unknown: "no job of its queue has started lately, so there is no rate to compute from"}
	}
	wait := float64(at.Ahead+1) / lately.Starts // seconds
	if wait > maxPredicted.Seconds() {
		return estimate{Unknown: fmt.Sprintf("at %s it would take more than a year", perSecond(lately.Starts))}
	}
	ahead := number(at.Ahead) + plural(at.Ahead, " job", " jobs") + " ahead of it"
	if at.Most {
		ahead = "at most " + ahead
	}
	e := estimate{
		At: now.Add(time.Duration(wait * float64(time.Second))), Latest: at.Most,
		Basis: fmt.Sprintf("%s; jobs of its queue started at %s in the last %s", ahead, perSecond(lately.Starts), duration(lately.Span)),
	}
	if e.At.Before(notBefore) {
		e.At = notBefore
	}
	return e
}

// place counts the jobs before a job, if its queue is not too long, in the order in which claims
// take them.
func (v *visit) place(job *gq.Job) (place, error) {
	page, err := v.d.queue.List(v.ctx, gq.Query{Queue: job.Spec.Queue, Statuses: []gq.Status{gq.StatusScheduled}, OldestFirst: true, Limit: maxInLine, MaxScan: maxSearched})
	if err != nil {
		return place{}, err
	}
	if page.Next != "" {
		counts, err := v.d.queue.Counts(v.ctx, job.Spec.Queue)
		if err != nil || len(counts) == 0 {
			return place{}, err
		}
		return place{Ahead: int(max(0, counts[0].By[gq.StatusScheduled]-1)), Most: true}, nil
	}
	return placeOf(job, page.Jobs), nil
}

// placeOf counts the waiting jobs that a claim takes before a job: those with a more urgent
// priority, and those with the same that became claimable earlier.
func placeOf(job *gq.Job, waiting []gq.Job) (p place) {
	self := &job.State
	for i := range waiting {
		s := &waiting[i].State
		switch {
		case s.ID == self.ID:
		case s.Priority() < self.Priority(), s.Priority() == self.Priority() && s.ScheduledAt.Before(self.ScheduledAt):
			p.Ahead++
		}
	}
	return p
}

// afterDependencies estimates the start of a job from the jobs that it waits for, if all of them
// run already.
func (v *visit) afterDependencies(x *gq.Explanation) (estimate, error) {
	unknown := estimate{Unknown: "it depends on jobs that have not started; their pages say when they will"}
	if len(x.Jobs) == 0 || x.More > 0 || slices.ContainsFunc(x.Also, func(r gq.Reason) bool { return r.Cause != gq.CauseLifetime }) {
		return unknown, nil
	}
	var last time.Time
	for _, other := range x.Jobs {
		if !other.Status.Held() {
			return unknown, nil
		}
		job, err := v.d.queue.Get(v.ctx, other.Job, 0)
		if err != nil || job.State.StartedAt.IsZero() {
			return unknown, notGone(err)
		}
		lately, err := v.pace(job.Spec.Queue)
		if err != nil {
			return unknown, err
		}
		if lately.Run == 0 {
			return estimate{Unknown: "it waits for jobs that run, and none of their queue has ended lately, so nobody can tell how long they take"}, nil
		}
		if end := job.State.StartedAt.Add(lately.Run); end.After(last) {
			last = end
		}
	}
	if now := v.d.now(); last.Before(now) {
		return estimate{Unknown: "the jobs that it waits for already run longer than half of the jobs of their queues do"}, nil
	}
	return estimate{At: last, Basis: fmt.Sprintf("the median time that jobs like the %s that it waits for ran lately", plural(len(x.Jobs), "one", "ones"))}, nil
}

// notGone returns an error unless it says that a job was removed or is none of the visitor's.
func notGone(err error) error {
	if errors.Is(err, gq.ErrNotFound) || errors.Is(err, gq.ErrDenied) {
		return nil
	}
	return err
}
