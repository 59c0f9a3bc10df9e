package dashboard

import (
	"time"

	"github.com/gopherqueue/gq"
)

// estimate says when a waiting job will probably start.
type estimate struct {
	At    time.Time // zero is unknown
	Basis string    // what the estimate rests on
}

// estimate computes the start of a job from what it waits for and from how fast its queue has
// been lately.
func (v *visit) estimate(job *gq.Job, x *gq.Explanation) (estimate, error) {
	if job.State.Status.Terminal() || job.State.Status.Held() {
		return estimate{}, nil
	}
	if !x.Until.IsZero() {
		return estimate{x.Until, "the time for which it waits"}, nil
	}
	if x.Cause != gq.CauseNext || x.Ahead < 0 {
		return estimate{}, nil
	}
	sample, err := v.recent(job.Spec.Queue)
	if err != nil || !sample.Known() {
		return estimate{}, err
	}
	wait := time.Duration(float64(x.Ahead+1) / sample.PerSecond * float64(time.Second))
	if wait > 365*24*time.Hour {
		return estimate{}, nil
	}
	return estimate{v.d.now().Add(wait), number(x.Ahead) + plural(x.Ahead, " job", " jobs") + " ahead of it, and the rate at which the last " +
		number(sample.Jobs) + " finished jobs of the queue ended"}, nil
}
